"""Training small networks on the real digits: reproducible, resumable, stoppable, and it learns."""

import json
import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from syno_lab.data.datasets import Dataset, load_dataset
from syno_lab.errors import TrainingError
from syno_lab.models import resnet_tiny
from syno_lab.training import Resumption, TrainingProgress, TrainingResult, train
from syno_lab.training.recipes import cycle
from syno_lab.training.tasks import batch_bounds, crop_and_flip

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_dataset("digits")


@pytest.fixture(scope="module")
def few(digits) -> Dataset:
    """The first 200 digits, tested on 64."""
    return part_of(digits, 200, 64)


def part_of(dataset: Dataset, train_count: int, test_count: int, name: str = "digits") -> Dataset:
    return Dataset(
        name,
        "a part",
        dataset.train_images[:train_count].copy(),
        dataset.train_labels[:train_count].copy(),
        dataset.test_images[:test_count].copy(),
        dataset.test_labels[:test_count].copy(),
        dataset.classes,
    )


def small_net(seed: int = 0, dropout: float = 0.2) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(128, 10),
    )


def numbers(result: TrainingResult) -> list[tuple[float, ...]]:
    return [(record.epoch, record.train_loss, record.test_loss, record.test_accuracy) for record in result.curve]


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_residual_network_learns_the_digits(digits):
    torch.manual_seed(0)
    net = resnet_tiny(10, 1, width=8)
    result = train(net, digits, epochs=3)
    assert result.stopped == "finished"
    assert result.accuracy is not None
    assert result.accuracy > 0.85
    assert result.accuracy == max(record.test_accuracy for record in result.curve)
    assert result.parameters == sum(parameter.numel() for parameter in net.parameters())
    # The last record is what the module, as it was left, does on the test images.
    mean, deviation = digits.test_images.mean() * 0 + digits.train_images.mean() / 255, digits.train_images.std() / 255
    net.eval()
    with torch.no_grad():
        logits = net(torch.from_numpy((digits.test_images / 255 - mean) / deviation).float())
    labels = torch.from_numpy(digits.test_labels.copy())
    assert (logits.argmax(1) == labels).float().mean().item() == pytest.approx(result.final_accuracy)
    assert nn.functional.cross_entropy(logits, labels).item() == pytest.approx(result.curve[-1].test_loss, rel=1e-4)


def test_labels_that_mean_nothing_are_not_learned(digits):
    """The accuracy comes from the test images alone: with shuffled training labels it is at chance."""
    shuffled = Dataset(
        "digits",
        "labels shuffled",
        digits.train_images,
        np.random.default_rng(0).permutation(digits.train_labels),
        digits.test_images,
        digits.test_labels,
        digits.classes,
    )
    result = train(small_net(), shuffled, epochs=2)
    assert result.accuracy is not None
    assert result.accuracy < 0.35


def test_it_learns_from_the_real_cifar(real_data):
    cifar = part_of(load_dataset(real_data("cifar-10-batches-bin")), 1000, 300, "cifar-10")
    torch.manual_seed(0)
    result = train(resnet_tiny(10, 3, width=8), cifar, epochs=3)
    assert result.accuracy is not None
    assert result.accuracy > 0.18
    assert result.curve[-1].train_loss < result.curve[0].train_loss


def test_the_seed_decides_everything(few):
    nets = [small_net() for _ in range(3)]
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = train(nets[0], few, epochs=2, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)  # the state of the global generator does not matter
    second = train(nets[1], few, epochs=2, seed=3)
    third = train(nets[2], few, epochs=2, seed=4)
    assert numbers(first) == numbers(second)
    assert same_weights(nets[0], nets[1])
    assert numbers(first) != numbers(third)
    assert not same_weights(nets[0], nets[2])


@pytest.mark.parametrize("name", ["digits", "cifar-10"])
def test_a_resumed_training_ends_like_an_uninterrupted_one(few, tmp_path, name):
    few = part_of(few, 200, 64, name)  # under CIFAR's name the images are also shifted and mirrored
    whole, cut = small_net(), small_net()
    expected = train(whole, few, epochs=3, seed=7)
    # Stopped in the middle of epoch 2: what was done of it is lost, and done again.
    seen: list[TrainingProgress] = []
    stop = lambda: bool(seen) and seen[-1].epoch == 2 and seen[-1].batch == 2  # noqa: E731
    checkpoint = tmp_path / "new" / "state.pt"
    first = train(cut, few, epochs=3, seed=7, checkpoint=checkpoint, on_progress=seen.append, should_stop=stop)
    assert first.stopped == "interrupted"
    assert numbers(first) == numbers(expected)[:1]
    resumed_net = small_net(seed=1)  # its weights are replaced by the checkpoint's
    resumed = train(resumed_net, few, epochs=3, seed=7, checkpoint=checkpoint)
    assert resumed.stopped == "finished"
    assert numbers(resumed) == numbers(expected)
    assert same_weights(resumed_net, whole)
    assert resumed.last_loss == expected.last_loss
    # Once more: there is nothing left to do, and the result is the same.
    again_net = small_net(seed=2)
    again = train(again_net, few, epochs=3, seed=7, checkpoint=checkpoint)
    assert again == resumed
    assert same_weights(again_net, whole)
    assert [path.name for path in checkpoint.parent.iterdir()] == ["state.pt"]


def test_an_exception_in_between_leaves_a_good_checkpoint(few, tmp_path):
    def break_off(progress: TrainingProgress) -> None:
        if progress.epoch == 2:
            raise KeyboardInterrupt

    net = small_net()
    net.eval()
    with pytest.raises(KeyboardInterrupt):
        train(net, few, epochs=2, checkpoint=tmp_path / "c", on_progress=break_off)
    assert not any(module.training for module in net.modules())
    whole, resumed = small_net(), small_net()
    assert numbers(train(whole, few, epochs=2)) == numbers(train(resumed, few, epochs=2, checkpoint=tmp_path / "c"))
    assert same_weights(whole, resumed)


def test_a_checkpoint_of_another_training_is_refused(few, digits, tmp_path):
    path = tmp_path / "c.pt"
    train(small_net(), few, epochs=1, checkpoint=path)
    with pytest.raises(TrainingError, match=r"training with epochs 2 in .*c\.pt, found 1; delete"):
        train(small_net(), few, epochs=2, checkpoint=path)
    with pytest.raises(TrainingError, match="training with seed 1"):
        train(small_net(), few, epochs=1, seed=1, checkpoint=path)
    with pytest.raises(TrainingError, match="training with dataset"):
        train(small_net(), digits, epochs=1, checkpoint=path)
    with pytest.raises(TrainingError, match="expected a checkpoint of this module"):
        train(resnet_tiny(10, 1, width=4), few, epochs=1, checkpoint=path)


class _RunsCode:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_foreign_or_hostile_checkpoint_is_refused_and_runs_nothing(few, tmp_path):
    path, proof = tmp_path / "c.pt", tmp_path / "it-ran"
    torch.save({"format": "syno-lab-checkpoint", "x": _RunsCode(proof)}, path)
    with pytest.raises(TrainingError, match=r"expected a checkpoint in .*; delete"):
        train(small_net(), few, epochs=1, checkpoint=path)
    assert not proof.exists()
    torch.load(path, weights_only=False)  # the attack is a real one
    assert proof.exists()
    for content in (b"", b"junk", path.read_bytes()[:100]):
        path.write_bytes(content)
        with pytest.raises(TrainingError, match="expected a checkpoint in") as refusal:
            train(small_net(), few, epochs=1, checkpoint=path)
        assert "\n" not in str(refusal.value)
    torch.save({"format": "other"}, path)
    with pytest.raises(TrainingError, match=r"expected a checkpoint.* in .*, found"):
        train(small_net(), few, epochs=1, checkpoint=path)


def test_a_place_that_cannot_be_written_is_named(few, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingError, match=r"expected to write .*choose another place"):
        train(small_net(), few, epochs=1, checkpoint=tmp_path / "file" / "c.pt")


def test_progress_after_every_batch(few):
    seen: list[TrainingProgress] = []
    result = train(small_net(), few, epochs=2, batch_size=64, on_progress=seen.append)
    expected = [
        (epoch, phase, batch)
        for epoch in (1, 2)
        for phase, last in (("train", 4), ("test", 1))
        for batch in range(1, last + 1)
    ]
    assert [(p.epoch, p.phase, p.batch) for p in seen] == expected
    assert {p.epochs for p in seen} == {2}
    assert {(p.phase, p.batches) for p in seen} == {("train", 4), ("test", 1)}
    assert seen[3].loss == result.curve[0].train_loss
    assert (seen[4].loss, seen[4].accuracy) == (result.curve[0].test_loss, result.curve[0].test_accuracy)


def test_early_stopping_waits_for_patience(few):
    class Fixed(nn.Module):
        """Always says 3, more or less loudly, so that the accuracy never rises after the first epoch."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (10 + self.weight) * torch.eye(10)[3].expand(len(x), 10)

    result = train(Fixed(), few, epochs=9, patience=2, learning_rate=0.001)
    assert result.stopped == "early"
    assert len(result.curve) == 3
    assert result.accuracy == np.mean(few.test_labels == 3)


def test_a_judge_is_asked_after_every_epoch_but_the_last(few):
    asked = []

    def judge(curve):
        asked.append(len(curve))
        return "it is enough" if len(curve) == 3 else None

    result = train(small_net(), few, epochs=3, judge=judge)
    assert (result.stopped, result.reason, asked) == ("finished", "", [1, 2])
    asked.clear()
    result = train(small_net(), few, epochs=9, judge=judge)
    assert (result.stopped, result.reason, asked) == ("pruned", "it is enough", [1, 2, 3])
    assert len(result.curve) == 3


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_is_reproducible_and_resumes(few, tmp_path, precision):
    whole, cut = small_net(), small_net()
    expected = train(whole, few, epochs=3, precision=precision)
    assert all(parameter.dtype == torch.float32 for parameter in whole.parameters())
    path = tmp_path / "c"
    assert train(cut, few, epochs=3, precision=precision, checkpoint=path, should_stop=path.exists).stopped == (
        "interrupted"
    )
    found: list[Resumption] = []
    resumed = train(cut, few, epochs=3, precision=precision, checkpoint=path, on_resume=found.append)
    assert [one.epochs for one in found] == [1]
    assert found[0].wall_s > 0
    assert numbers(resumed) == numbers(expected)
    assert same_weights(whole, cut)
    with pytest.raises(TrainingError, match="training with precision 'float32'"):
        train(small_net(), few, epochs=3, checkpoint=path)


class WithoutGradient(nn.Module):
    """A linear classifier whose loss stops to depend on its weights at a given call; or it is right without them."""

    def __init__(self, at: int, answers: torch.Tensor | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(64, 10)
        self.at, self.answers, self.calls = at, answers, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += self.training
        logits = self.linear(x.flatten(1))
        if self.calls < self.at:
            return logits
        return logits * 0 if self.answers is None else logits * 0 + self.answers


def test_gradients_that_stay_zero_end_a_training_unless_all_is_learnt(few):
    result = train(WithoutGradient(at=6), few, epochs=3)  # 4 batches in an epoch
    assert result.stopped == "diverged"
    assert len(result.curve) == 1
    assert "epoch 2, training batch 4 of 4, found nothing but zeros in 3 batches in a row at a loss of 2.303" in (
        result.reason
    )
    # Where a batch or two are without, it goes on.
    assert train(WithoutGradient(at=7), few, epochs=2).stopped == "finished"
    ones = Dataset(
        "digits",
        "all the same",
        few.train_images,
        np.ones_like(few.train_labels),
        few.test_images,
        np.ones_like(few.test_labels),
        few.classes,
    )
    sure = torch.zeros(10)
    sure[1] = 1000.0
    assert train(WithoutGradient(1, sure), ones, epochs=2).stopped == "finished"


def test_gradients_that_are_no_numbers_end_a_training_before_the_weights_are_lost(few):
    class Steep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.linear = nn.Linear(64, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            # The root of zero has a value and no slope.
            return self.linear(x.flatten(1)) + (self.linear.weight[0] * 0).sqrt().sum()

    net = Steep()
    result = train(net, few, epochs=1)
    assert result.stopped == "diverged"
    assert "expected finite gradients in epoch 1, training batch 1 of 4, found nan" in result.reason
    assert all(torch.isfinite(parameter).all() for parameter in net.parameters())


def test_the_time_limit_cuts_an_epoch_short_and_tests_it(few, monkeypatch):
    import syno_lab.training.limits as room

    clock = [0.0]
    monkeypatch.setattr(room.time, "monotonic", lambda: clock[0])

    def tick(progress: TrainingProgress) -> None:
        clock[0] += 1.0

    # An epoch has 4 training batches and a test batch: five seconds. Seven seconds end in the second.
    result = train(small_net(), few, epochs=5, time_limit_s=7, on_progress=tick)
    assert result.stopped == "time"
    assert [record.epoch for record in result.curve] == [1, 2]
    assert [record.seconds for record in result.curve] == [5, 3]


@pytest.mark.parametrize(
    ("lasts", "limit", "ending"),
    [
        # An epoch has 4 training batches and a test batch: five epochs take 25 seconds, and the projection says so.
        ({}, 7, "projected 25 s of 7 s allowed, after 5 of 20 batches"),
        ({}, 25.5, None),
        # A first batch that loads libraries and one that was held up say nothing of the rest, but are spent.
        ({1: 5.0}, 30, None),
        ({4: 50.0}, 75, None),
        ({1: 5.0}, 20, "projected 29 s of 20 s allowed, after 5 of 20 batches"),
        # What others do to the machine may end: a quarter more than is left is not hopeless yet, until it is.
        (dict.fromkeys(range(18, 26), 0.5), 23.5, None),
        ({}, 22, "projected 25 s of 22 s allowed, after 9 of 20 batches"),
        # It slows down, and its tests with it.
        (dict.fromkeys(range(6, 26), 3.0), 40, "projected 62 s of 40 s allowed, after 9 of 20 batches"),
    ],
)
def test_a_training_gives_up_once_its_pace_shows_that_it_will_not_end(few, monkeypatch, lasts, limit, ending):
    import syno_lab.training.limits as room

    clock, batches = [0.0], [0]
    monkeypatch.setattr(room.time, "monotonic", lambda: clock[0])

    def tick(progress: TrainingProgress) -> None:
        batches[0] += 1
        clock[0] += lasts.get(batches[0], 1.0)

    result = train(small_net(), few, epochs=5, time_limit_s=limit, gives_up=True, on_progress=tick)
    if ending is None:
        assert (result.stopped, len(result.curve), batches[0]) == ("finished", 5, 25)
    else:
        assert (result.stopped, result.reason) == ("slow", ending)
        assert len(result.curve) == int(ending.split()[-4]) // 4
    # Whoever does not give up learns to the last second.
    clock[0], batches[0] = 0.0, 0
    assert train(small_net(), few, epochs=5, time_limit_s=limit, on_progress=tick).stopped != "slow"


@pytest.mark.parametrize("held_s", [60.0, 3600.0, -3600.0])
def test_a_training_is_not_ended_for_time_that_it_has_not_had(few, monkeypatch, held_s):
    """Stopped for a minute or an hour, or with a clock that is set back, between two batches."""
    import syno_lab.training.limits as room

    clock, batches = [0.0], [0]
    monkeypatch.setattr(room.time, "monotonic", lambda: clock[0])

    def tick(progress: TrainingProgress) -> None:
        batches[0] += 1
        clock[0] += held_s if batches[0] == 7 else 1.0

    # Three epochs of five batches: the limit is that of the work alone, and still one.
    result = train(small_net(), few, epochs=3, time_limit_s=16, gives_up=True, on_progress=tick)
    assert (result.stopped, len(result.curve)) == ("finished", 3)
    clock[0], batches[0] = 0.0, 0
    assert train(small_net(), few, epochs=3, time_limit_s=12, on_progress=tick).stopped == "time"


def test_time_spent_before_a_resumption_counts(few, monkeypatch, tmp_path):
    import syno_lab.training.limits as room

    clock = [0.0]
    monkeypatch.setattr(room.time, "monotonic", lambda: clock[0])

    def tick(progress: TrainingProgress) -> None:
        clock[0] += 1.0

    path = tmp_path / "c"
    train(small_net(), few, epochs=3, time_limit_s=7, on_progress=tick, checkpoint=path)
    clock[0] = 1000.0
    resumed = train(small_net(), few, epochs=3, time_limit_s=9, on_progress=tick, checkpoint=path)
    assert resumed.stopped == "time"
    assert [record.seconds for record in resumed.curve] == [5, 5]
    clock[0] = 5000.0
    assert train(small_net(), few, epochs=3, checkpoint=path).stopped == "finished"


def test_interrupted_before_anything(few):
    result = train(small_net(), few, epochs=1, should_stop=lambda: True)
    assert (result.stopped, result.curve, result.accuracy, result.final_accuracy) == ("interrupted", (), None, None)


class Explodes(nn.Module):
    """A linear classifier whose logits are not finite from a given call on."""

    def __init__(self, at: int, value: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(64, 10)
        self.at, self.value, self.calls = at, value, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        logits = self.linear(x.flatten(1))
        return logits * self.value if self.calls >= self.at else logits


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(("at", "epochs_done"), [(1, 0), (3, 0), (5, 0), (7, 1)])
def test_a_loss_that_is_no_number_stops_the_training(few, value, at, epochs_done):
    net = Explodes(at, value)
    result = train(net, few, epochs=3)
    assert result.stopped == "diverged"
    assert len(result.curve) == epochs_done
    assert net.calls == at
    assert all(torch.isfinite(parameter).all() for parameter in net.parameters())
    if at == 1:
        assert result.last_loss is None
    else:
        assert result.last_loss is not None
        assert math.isfinite(result.last_loss)
    json.dumps(asdict(result), allow_nan=False)
    with pytest.raises(
        TrainingError, match=r"expected a finite loss in epoch \d, (training|test) batch \d of \d, found"
    ):
        train(Explodes(at, value), few, epochs=3, raise_on_divergence=True)


def test_a_learning_rate_far_too_high_is_told(few):
    with pytest.raises(TrainingError, match=r"the last finite loss was .*train with a learning_rate below 1e\+18"):
        train(small_net(), few, epochs=3, learning_rate=1e18, raise_on_divergence=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epochs": 0}, "expected epochs as a whole number from 1 up, found 0"),
        ({"batch_size": 1.5}, "expected batch_size as a whole number"),
        ({"patience": 0}, "expected patience as a whole number"),
        ({"learning_rate": 0}, "expected learning_rate as a number above 0"),
        ({"learning_rate": math.nan}, "expected learning_rate as a number above 0, found nan"),
        ({"time_limit_s": -1}, "expected time_limit_s as a number above 0"),
        ({"precision": "int8"}, "precision: expected one of 'float32', 'bfloat16', 'float16', found 'int8'"),
        ({"seed": 0.5}, "expected seed as a whole number"),
        ({"device": "toaster"}, "expected a device of this machine such as 'cpu', found 'toaster'"),
    ],
)
def test_arguments_out_of_range_are_refused(few, arguments, message):
    with pytest.raises(TrainingError, match=message) as refusal:
        train(small_net(), few, **{"epochs": 1, **arguments})
    assert "\n" not in str(refusal.value)


def test_modules_that_cannot_be_trained_are_refused(few):
    with pytest.raises(TrainingError, match="expected a module with parameters to train, found none in this Flatten"):
        train(nn.Flatten(), few, epochs=1)
    with pytest.raises(TrainingError, match=r"expected logits \[64, 10\] for images \[64, 1, 8, 8\].*found \[64, 3\]"):
        train(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), few, epochs=1)


def test_a_double_module_is_trained_in_double(few):
    net = small_net(dropout=0).double()
    single = train(small_net(dropout=0), few, epochs=1)
    double = train(net, few, epochs=1)
    assert next(net.parameters()).dtype == torch.float64
    assert double.curve[0].train_loss == pytest.approx(single.curve[0].train_loss, rel=1e-4)


def test_augmentation_shifts_and_mirrors():
    """Each result is one of the 2 x 9 x 9 shifted and mirrored images, filled with zeros, and all of these occur."""
    draw = torch.Generator().manual_seed(0)
    image = torch.arange(1.0, 2 * 32 * 32 + 1).view(2, 32, 32)
    padded = torch.zeros(2, 40, 40)
    padded[:, 4:36, 4:36] = image
    possible = {}
    for top in range(9):
        for left in range(9):
            crop = padded[:, top : top + 32, left : left + 32]
            possible[crop.numpy().tobytes()] = (top, left, False)
            possible[crop.flip(2).numpy().tobytes()] = (top, left, True)
    got = crop_and_flip(image.expand(2000, 2, 32, 32), draw)
    kinds = [possible[one.contiguous().numpy().tobytes()] for one in got]
    assert len(set(kinds)) == 162
    assert 0.4 < np.mean([mirrored for _, _, mirrored in kinds]) < 0.6


def test_batches_cover_everything_and_none_trains_on_one_image():
    for count in range(1, 40):
        for size in range(1, 12):
            bounds = batch_bounds(count, size)
            assert [first for first, _ in bounds[1:]] == [last for _, last in bounds[:-1]]
            assert (bounds[0][0], bounds[-1][1]) == (0, count)
            assert size == 1 or count == 1 or all(last - first > 1 for first, last in bounds)
    assert batch_bounds(9, 4) == [(0, 4), (4, 9)]
    assert batch_bounds(9, 4, merge_single=False) == [(0, 4), (4, 8), (8, 9)]


def test_the_learning_rate_rises_once_and_falls_to_nothing():
    for steps in (1, 2, 7, 1000):
        rates = [cycle(step, steps) for step in range(steps)]
        assert all(0 < rate <= 1 for rate in rates)
        top = rates.index(max(rates))
        assert rates == sorted(rates[: top + 1]) + sorted(rates[top + 1 :], reverse=True)
    assert max(rates) > 0.999
    assert rates[-1] < 0.001
