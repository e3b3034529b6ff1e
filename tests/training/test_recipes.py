"""The recipes of trainings: their epochs, what they change in a training, and that a converged one can be continued."""

import math

import numpy as np
import pytest
import torch
from small_trials import small_trial
from torch import nn

import syno_lab as sl
from syno_lab.data.datasets import Dataset, load_dataset
from syno_lab.errors import FormatError, SpecError, TrainingError
from syno_lab.training import train
from syno_lab.training.loop import cross_entropy
from syno_lab.training.recipes import RECIPES, Numbers, image_recipe
from syno_lab.training.tasks import augmentation
from syno_lab.trial import TrialRequest, run_trial

pytestmark = pytest.mark.usefixtures("one_thread")


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def digits() -> Dataset:
    return load_dataset("digits", train_images=64, test_images=32)


def test_a_recipe_has_its_epochs_unless_others_are_asked_for():
    assert TrialRequest(backbone="resnet20").epochs == 3
    assert TrialRequest(backbone="resnet20", recipe="converged").epochs == 60
    asked = TrialRequest.from_dict({"backbone": "resnet20", "recipe": "converged", "epochs": 5})
    assert asked.epochs == 5
    assert TrialRequest.from_dict(asked.to_dict()) == asked
    with pytest.raises(FormatError, match=r"Invalid enum value 'long'.*recipe"):
        TrialRequest.from_dict({"backbone": "resnet20", "recipe": "long"})
    with pytest.raises(TrainingError, match="recipe: expected one of short, converged, found 'long'"):
        train(net(), digits(), epochs=1, recipe="long")


def test_smoothed_labels_are_those_of_the_definition():
    rng = np.random.default_rng(0)
    logits, answers = rng.normal(size=(7, 5)), rng.integers(5, size=7)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    targets = 0.9 * np.eye(5)[answers] + 0.1 / 5
    expected = -(targets * logs).sum(axis=1)
    given = torch.tensor(logits), torch.tensor(answers)
    np.testing.assert_allclose(cross_entropy(*given, reduction="none", smoothing=0.1), expected)
    np.testing.assert_allclose(cross_entropy(*given, smoothing=0.1), expected.mean())


def test_only_the_training_loss_is_that_of_smoothed_labels():
    """With a rate of almost nothing the weights stay, so that one batch without changes has a known loss."""
    data, module = digits(), net()
    numbers = Numbers(learning_rate=1e-30, smoothing=0.5)
    result = train(module, data, epochs=1, recipe=numbers)
    mean, deviation = data.channel_statistics

    def logits(images):
        return module(torch.tensor((images / 255 - mean[0]) / deviation[0], dtype=torch.float32))

    train_loss = cross_entropy(logits(data.train_images), torch.tensor(data.train_labels), smoothing=0.5)
    test_loss = cross_entropy(logits(data.test_images), torch.tensor(data.test_labels))
    assert result.curve[0].train_loss == pytest.approx(train_loss.item(), rel=1e-4)
    assert result.curve[0].test_loss == pytest.approx(test_loss.item(), rel=1e-4)


def test_the_numbers_reach_optimizer_and_images():
    converged = RECIPES["converged"]
    made = image_recipe("sgd", Numbers(weight_decay=0.25))
    (group,) = made.optimizer([nn.Parameter(torch.ones(1))], 0.1).param_groups
    assert (group["weight_decay"], group["momentum"], group["nesterov"]) == (0.25, 0.9, True)
    for optimizer, rate, decay in (("sgd", converged.learning_rate, "0.001"), ("adamw", 0.001, "0.1")):
        made = image_recipe(optimizer, "converged")
        assert (made.learning_rate, made.smoothing, made.crops) == (rate, converged.smoothing, True)
        assert made.name == f"{optimizer}, weight decay {decay}, smoothing 0.1"
        groups = made.optimizer([nn.Parameter(torch.ones(1, 1))], rate).param_groups
        assert max(group["weight_decay"] for group in groups) == float(decay)
        assert image_recipe(optimizer).name == optimizer  # as in the checkpoints of earlier versions
    grey = digits()
    images = np.repeat(grey.train_images, 3, axis=1), grey.train_labels
    folder = Dataset("pictures", "a folder", *images, *images, grey.classes)
    assert [augmentation(folder, None, crops=one) for one in (False, True)] == ["none", "crop"]
    assert augmentation(grey, None, crops=True) == "none"


def test_a_converged_training_continues_from_its_checkpoint(tmp_path):
    request = small_trial(recipe="converged", epochs=3, augment="crop")
    left = tmp_path / "a" / "checkpoint-64.pt"
    stopped = run_trial(request, folder=tmp_path / "a", should_stop=left.exists)
    assert (stopped.state, len(stopped.curve)) == ("interrupted", 1)
    outcome = run_trial(request, folder=tmp_path / "a")
    assert outcome.resumed == 1
    whole = run_trial(request, folder=tmp_path / "b")
    assert [row["train_loss"] for row in outcome.curve] == [row["train_loss"] for row in whole.curve]
    assert not math.isclose(
        whole.curve[0]["train_loss"],
        run_trial(TrialRequest.from_dict(request.to_dict() | {"recipe": "short", "epochs": 1}), folder=tmp_path / "c")
        .curve[0]["train_loss"],
        rel_tol=1e-3,
    )  # fmt: skip


def test_one_call_trains_with_a_recipe():
    _, result = sl.train("resnet20", "digits", recipe="converged", epochs=1, train_images=64, test_images=9)
    assert len(result.curve) == 1
    with pytest.raises(SpecError, match=r"folds: expected none in this call, found 6; use .*run_trial"):
        sl.train("resnet20", "digits", folds=6)
