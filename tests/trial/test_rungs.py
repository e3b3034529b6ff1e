"""Rungs: what a proxy makes of a request, trainings for a number of steps, held-out images, and slow operators."""

import math
from functools import partial

import msgspec
import numpy as np
import pytest
import torch
from small_trials import SMALL, small_trial

from syno_lab import operators
from syno_lab.data.datasets import Dataset, load_dataset
from syno_lab.data.splits import held_out
from syno_lab.data.text import load_text
from syno_lab.errors import DataError, SpecError
from syno_lab.models.registry import BACKBONES, backbone
from syno_lab.models.rungs import Rung
from syno_lab.training import train
from syno_lab.training.limits import Limits, Stop
from syno_lab.trial import (
    TrialOutcome,
    TrialRequest,
    full_costs_of,
    run_trial,
    rung_request,
    rungs_of,
)
from syno_lab.trial.examples import images_of
from syno_lab.trial.rungs import reward_of

asked = partial(small_trial, train_images=200, test_images=40)


# -- declarations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in BACKBONES if backbone(name).proxies and name != "gpt_tiny"])
def test_a_proxy_is_a_smaller_network_with_the_same_kinds_of_layers(name, real_data):
    """Operators that fit the network must fit its proxy: the channels of the replaced layers are the same."""
    from syno_lab.trial import sites_of

    request = TrialRequest(backbone=name, data=str(real_data("cifar-10-batches-bin")), resolution=backbone(name).size)
    channels = {(site.in_channels, site.out_channels) for site in sites_of(request)}
    before = full_costs_of(request).flops
    for rung in rungs_of(request):
        made = rung_request(request, rung)
        assert made.holdout == 0.2
        if rung.is_full:
            assert full_costs_of(made).flops == before
        else:
            assert full_costs_of(made).flops < before / 3
            assert {(site.in_channels, site.out_channels) for site in sites_of(made)} <= channels
    assert rungs_of(request)[-1].is_full


def test_resnet20_climbs_by_resnet8_at_half_the_resolution(real_data):
    request = TrialRequest(backbone="resnet20", data=str(real_data("cifar-10-batches-bin")), epochs=3, seed=7)
    first, second, third = rungs_of(request)
    made = rung_request(request, first)
    assert (made.options, made.resolution, made.steps, made.seed) == ({"blocks": 1}, 16, 40, 0)
    assert (rung_request(request, second, seed=1).steps, second.seeds) == (156, 2)
    whole = msgspec.structs.replace(request, holdout=0.2, seed=0)
    assert rung_request(request, third) == whole


def test_a_request_that_is_smaller_than_the_proxy_stays_as_it_is(real_data):
    rung = Rung("small", {"options": {"blocks": 2, "width": 8, "strides": "shape"}, "resolution": 16, "steps": 50})
    made = rung_request(asked(options={"blocks": 1, "width": 4}, steps=30, holdout=0.5), rung)
    assert (made.options, made.resolution, made.steps, made.holdout) == (SMALL | {"strides": "shape"}, None, 30, 0.5)
    cifar = asked(data=str(real_data("cifar-10-batches-bin")), options={})
    made = rung_request(cifar, rung)
    assert (made.options, made.resolution) == ({"blocks": 2, "width": 8, "strides": "shape"}, 16)
    (text,) = (rung_request(TrialRequest(backbone="gpt_tiny"), backbone("gpt_tiny").proxies[0]).options,)
    assert text == {"layers": 2, "context": 32}


def test_no_rule_ends_a_rung_and_a_slow_operator_has_a_limit():
    request = asked(stopping={"rule": "canvas"}, rivals=[[0.5]], keep_predictions=True, budget_s=3.0)
    made = rung_request(request, rungs_of(request)[0], baseline_s=10.0)
    assert (made.stopping, made.rivals, made.keep_predictions, made.budget_s) == (None, [], False, None)
    assert (made.time_limit_s, made.gives_up, made.probe_steps) == (20.0, True, 7)
    assert rung_request(request, rungs_of(request)[0]).time_limit_s is None


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"seeds": 0}, "rung it: expected seeds as a whole number from 1 up, found 0"),
        ({"keep": 0.0}, "rung it: expected keep as a share above 0 and at most 1, found 0.0"),
        ({"measure": "loudness"}, "rung it: expected the measure as one of 'accuracy', 'loss', 'training loss'"),
    ],
)
def test_a_rung_out_of_range_is_refused(changes, line):
    with pytest.raises(SpecError, match=line):
        Rung("it", **changes)


def test_a_backbone_without_proxies_says_so():
    with pytest.raises(SpecError, match="expected a backbone with proxies, which rungs train, found gpt2"):
        rungs_of(TrialRequest(backbone="gpt2"))
    with pytest.raises(SpecError, match="rung odd: a request has no colour"):
        rung_request(asked(), Rung("odd", {"colour": 3}))


def test_a_reward_is_between_a_guess_and_a_perfect_prediction():
    def ended(loss: float, **more) -> TrialOutcome:
        return TrialOutcome(**({"state": "finished", "curve": [{"test_loss": loss}], "accuracy": 0.3} | more))

    assert reward_of("loss", ended(0.0)) == 1.0
    assert reward_of("loss", ended(math.log(10))) == pytest.approx(0.1)
    assert reward_of("loss", ended(0.0, state="timeout")) == 0.0
    assert reward_of("loss", ended(math.inf)) == 0.0
    assert reward_of("training loss", ended(9.0, train_loss=0.0)) == 1.0
    assert reward_of("accuracy", ended(9.0)) == 0.3


# -- held-out images ---------------------------------------------------------------------------------------------------


def test_held_out_images_are_training_images_that_are_not_trained_on():
    whole = load_dataset("digits")
    split = load_dataset("digits", holdout=0.25, train_images=400)
    assert (len(split.train_labels), len(split.test_labels)) == (300, 100)
    first = {image.tobytes() for image in whole.train_images[:400]}
    kept, held = ({image.tobytes() for image in images} for images in (split.train_images, split.test_images))
    assert kept | held == first
    assert not kept & held  # no two of these images are equal
    tests = {image.tobytes() for image in whole.test_images}
    assert not (kept | held) & tests
    assert len(load_dataset("digits", holdout=0.25, train_images=400, test_images=7).test_labels) == 7


def test_the_split_is_fixed():
    # Stored rewards are measured on this split: it must never change.
    assert np.flatnonzero(held_out(20, 0.25)).tolist() == [3, 5, 9, 10, 15]
    for count in (2, 3, 10, 1000):
        for share in (0.001, 0.5, 0.999):
            held = held_out(count, share)
            assert 1 <= held.sum() <= count - 1
            assert abs(held.sum() - share * count) <= 1


def shortened(real, folder, *, leave_out="nothing"):
    """The first ten images of each file of CIFAR, in a folder of one's own."""
    folder.mkdir()
    for file in real.iterdir():
        if not file.name.startswith(leave_out):
            content = file.read_bytes()
            (folder / file.name).write_bytes(content[: 3073 * 10] if file.suffix == ".bin" else content)
    return folder


def test_no_file_of_test_images_is_read(tmp_path, real_data):
    folder = shortened(real_data("cifar-10-batches-bin"), tmp_path / "cifar-10-batches-bin", leave_out="test")
    split = load_dataset(folder, holdout=0.2)
    assert (len(split.train_labels), len(split.test_labels)) == (40, 10)
    with pytest.raises(DataError, match="test_batch"):
        load_dataset(folder)


@pytest.mark.parametrize("share", [0, 1, -0.1, "half", True, math.nan])
def test_a_share_that_is_none_is_refused(share, tmp_path):
    with pytest.raises(DataError, match="holdout: expected a share of the training images between 0 and 1"):
        load_dataset("digits", holdout=share)
    outcome = run_trial(msgspec.structs.replace(asked(), holdout=share), folder=tmp_path)
    assert outcome.state == "failed"


def test_a_single_image_cannot_be_split():
    with pytest.raises(DataError, match="expected two or more training images to hold some of them out, found 1"):
        load_dataset("digits", holdout=0.5, train_images=1)


def test_a_text_holds_the_end_of_its_training_part_out(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(chr(97 + at % 26) for at in range(1000)))
    whole = load_text(path)
    split = whole.holding_out(0.2)
    assert np.array_equal(np.concatenate([split.train, split.test]), whole.train)
    assert len(split.test) == 180
    with pytest.raises(DataError, match="holdout: expected a share of the training text"):
        whole.holding_out(1.5)


def test_an_outcome_says_what_it_was_measured_on(tmp_path):
    held = run_trial(asked(epochs=1, holdout=0.2, keep_predictions=True), folder=tmp_path / "a")
    assert (held.state, held.measured_on, len(held.predictions)) == ("finished", "held out", 40)
    assert held.accuracy == np.mean(np.array(held.predictions) == images_of(asked(holdout=0.2)).test_labels)
    test = run_trial(asked(epochs=1), folder=tmp_path / "b")
    assert (test.measured_on, test.machine) == ("test", held.machine)
    assert "torch" in test.machine
    assert "1 thread" in test.machine


def test_images_are_read_once_and_again_when_their_files_change(tmp_path, real_data):
    folder = shortened(real_data("cifar-10-batches-bin"), tmp_path / "cifar-10-batches-bin")
    request = asked(data=str(folder))
    first = images_of(request)
    assert images_of(request) is first
    assert images_of(asked(data=str(folder), holdout=0.2)) is not first
    (folder / "data_batch_1.bin").write_bytes((folder / "data_batch_1.bin").read_bytes()[: 3073 * 5])
    assert len(images_of(request).train_labels) == 45


# -- steps -------------------------------------------------------------------------------------------------------------


class Counting(torch.nn.Module):
    """Counts its batches in training; images of digits [B, 1, 8, 8] to logits."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(64, 10)
        self.batches: list[bytes] = []
        self.strides: set[tuple[int, ...]] = set()

    def forward(self, x):
        if self.training:
            self.batches.append(x.numpy().tobytes())
        return self.linear(x.flatten(1))


def digits(count: int = 100) -> Dataset:
    return load_dataset("digits", train_images=count, test_images=30)


@pytest.mark.parametrize("steps", [1, 4, 7, 8, 11])
def test_a_training_of_steps_has_so_many_batches_and_one_measurement(steps, tmp_path):
    net = Counting()
    result = train(net, digits(), epochs=99, batch_size=25, steps=steps, checkpoint=tmp_path / "state")
    assert len(net.batches) == steps
    assert (result.stopped, len(result.curve)) == ("finished", 1)
    assert not (tmp_path / "state").exists()
    # The images come in another order when all have been seen.
    whole = [set(net.batches[at : at + 4]) for at in range(0, steps - steps % 4, 4)]
    assert len({frozenset(one) for one in whole}) == len(whole)


def test_an_epoch_of_steps_is_an_epoch(tmp_path):
    one, other = Counting(), Counting()
    first = train(one, digits(), epochs=1, batch_size=25)
    second = train(other, digits(), epochs=5, batch_size=25, steps=4)
    assert one.batches == other.batches
    assert torch.equal(one.linear.weight, other.linear.weight)
    assert first.curve[0].test_loss == second.curve[0].test_loss
    assert first.curve[0].closing_loss == second.curve[0].closing_loss


def test_the_learning_rate_goes_through_its_whole_cycle(monkeypatch):
    from syno_lab.training.recipes import cycle

    seen = []
    monkeypatch.setattr(torch.optim.SGD, "step", lambda self, *_: seen.append(self.param_groups[0]["lr"]))
    train(Counting(), digits(), epochs=3, batch_size=25, steps=6, learning_rate=0.5)
    assert seen == pytest.approx([0.5 * cycle(step, 6) for step in range(6)])


def test_the_closing_loss_is_that_of_the_last_batches(tmp_path):
    said = []
    net = Counting()
    result = train(net, digits(160), epochs=1, batch_size=10, on_progress=lambda now: said.append(now))
    means = [now.loss * now.batch for now in said if now.phase == "train"]
    losses = np.diff([0.0, *means])
    assert result.curve[0].closing_loss == pytest.approx(np.mean(losses[-4:]), rel=1e-6)  # a quarter of 16 batches
    outcome = run_trial(asked(epochs=1), folder=tmp_path)
    assert outcome.train_loss is not None
    assert outcome.loss == outcome.curve[-1]["test_loss"]


def test_a_text_trains_for_steps_too(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be " * 100)
    request = TrialRequest(
        backbone="gpt_tiny",
        data=str(path),
        options={"layers": 1, "width": 16, "heads": 2, "context": 8, "steps": 3},
        steps=5,
        batch_size=4,
        test_images=4,
        holdout=0.2,
        threads=1,
    )
    outcome = run_trial(request, folder=tmp_path / "t")
    assert (outcome.state, len(outcome.curve), outcome.measured_on) == ("finished", 1, "held out")


# -- channels last -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", [None, "separable", "grouped", "operator_1", "operator_2", "conv1x1"])
def test_the_layout_of_memory_changes_the_last_digits_at_most(operator, tmp_path):
    text = None if operator is None else getattr(operators, operator)().to_json()
    request = asked(operator=text, options={"width": 16, "blocks": 1}, train_images=64, steps=2)
    plain = run_trial(request, folder=tmp_path / "a")
    last = run_trial(msgspec.structs.replace(request, channels_last=True), folder=tmp_path / "b")
    assert (plain.state, last.state) == ("finished", "finished")
    assert last.loss == pytest.approx(plain.loss, rel=1e-3)


# -- slow operators ----------------------------------------------------------------------------------------------------


def test_the_pace_of_seven_batches_ends_a_slow_training(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("syno_lab.training.limits.time.thread_time", lambda: now[0])
    limits = Limits(10.0, None, gives_up=True, probe_steps=7)
    limits.begin()
    for batch in range(1, 7):
        now[0] += 1.0
        limits.lap("train")
        limits.project(batch, 40 - batch, 1)
    now[0] += 1.0
    limits.lap("train")
    with pytest.raises(Stop, match="slow") as stop:
        limits.project(7, 33, 1)
    assert stop.value.reason == "projected 40 s of 10 s allowed, after 7 of 40 batches"


def test_a_slow_operator_times_out_and_says_after_how_many_batches(tmp_path):
    request = asked(steps=40, time_limit_s=1e-3, gives_up=True, probe_steps=7, batch_size=16)
    # The limit is over before the seventh batch, so what ends it is the limit, as ever.
    outcome = run_trial(request, folder=tmp_path / "a")
    assert outcome.state == "timeout"
    fast = run_trial(msgspec.structs.replace(request, time_limit_s=300.0), folder=tmp_path / "b")
    assert (fast.state, fast.work_s > 0) == ("finished", True)
    slow = run_trial(msgspec.structs.replace(request, time_limit_s=fast.work_s * 5, steps=4000), folder=tmp_path / "c")
    assert slow.state == "timeout"
    assert "of 4000 batches" in slow.reason


# -- what is stored ----------------------------------------------------------------------------------------------------


def test_requests_are_read_back():
    assert TrialRequest.from_dict(asked().to_dict()) == asked()
    with_all = asked(steps=3, holdout=0.2, channels_last=True, probe_steps=7)
    assert TrialRequest.from_dict(with_all.to_dict()) == with_all
