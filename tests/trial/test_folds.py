"""Trainings on folds: every image is tested once, by a network that has not seen it."""

import json
from functools import partial

import msgspec
import numpy as np
import pytest
from command_line import answered, refused
from PIL import Image
from small_trials import small_trial

from syno_lab import operators
from syno_lab.data.datasets import load_dataset
from syno_lab.data.image_folder import find_image_folder
from syno_lab.data.splits import folds_of
from syno_lab.data.stream import stream_of
from syno_lab.errors import DataError, SpecError
from syno_lab.trial import TrialRequest, costs_of, run_stage, run_trial
from syno_lab.trial.examples import batches_of, examples_of

asked = partial(small_trial, test_images=23, epochs=1, folds=3)


def number_of(labels, folds):
    """The fold of each image, from 0 on, by the place of its index among the folds' test parts."""
    number = np.full(len(labels), -1)
    for fold in range(folds):
        test = folds_of(labels, folds, fold + 1)[1]
        assert (number[test] == -1).all()
        number[test] = fold
    assert np.concatenate([np.flatnonzero(number == fold) for fold in range(folds)]).tolist() == (
        folds_of(labels, folds, None)[1].tolist()
    )
    return number


def test_folds_are_a_partition_with_equal_shares_of_each_class():
    rng = np.random.default_rng(0)
    for count, folds in ((30, 2), (101, 6), (7, 7)):
        labels = rng.integers(3, size=count)
        fold = number_of(labels, folds)
        assert np.ptp(np.bincount(fold, minlength=folds)) <= 1
        for kind in range(3):
            assert np.ptp(np.bincount(fold[labels == kind], minlength=folds)) <= 1
        for number in range(folds):
            train, test = folds_of(labels, folds, number + 1)
            assert sorted([*train, *test]) == list(range(count))
            assert (fold[test] == number).all()
    # The folds of these labels may never change, as stored outcomes hold for them.
    assert number_of(np.arange(12) % 3, 4).tolist() == [3, 2, 2, 0, 1, 1, 2, 0, 3, 1, 3, 0]
    for folds in (1, 8, True, 2.0):
        with pytest.raises(DataError, match="data: expected 2 to 7 folds of 7 images, found"):
            folds_of(np.zeros(7, np.int64), folds, 1)


def test_every_image_of_cifar_is_tested_once_and_trained_on_else(real_data):
    whole = load_dataset(real_data("cifar-10-batches-bin"))
    count = len(whole.train_labels) + len(whole.test_labels)
    parts = [whole.folded(6, fold) for fold in range(1, 7)]
    hashes = [{image.tobytes() for image in part.test_images} for part in parts]
    both = {image.tobytes() for image in (*whole.train_images, *whole.test_images)}
    assert set.union(*hashes) == both
    assert sum(len(part.test_labels) for part in parts) == count
    for part, tested in zip(parts, hashes, strict=True):
        assert len(part.train_labels) + len(part.test_labels) == count
        assert not tested & {image.tobytes() for image in part.train_images}
    assert len({part.fingerprint for part in parts}) == 6


def test_a_stream_has_the_folds_of_the_images_in_memory(tmp_path):
    for name, colour in (("dark", 20), ("light", 230)):
        for number in range(9):
            (tmp_path / name).mkdir(exist_ok=True)
            Image.new("RGB", (8, 8), (colour, colour, 2 * number)).save(tmp_path / name / f"{number}.png")
    held = load_dataset(tmp_path, size=8)
    stream = stream_of(find_image_folder(tmp_path), 8)
    for fold in (1, 2, 3, None):
        one, other = held.folded(3, fold), stream.folded(3, fold)
        for part in ("train", "test"):
            images = getattr(one, f"{part}_images")
            files = [np.asarray(Image.open(tmp_path / name)).transpose(2, 0, 1) for name, _ in getattr(other, part)]
            np.testing.assert_array_equal(images, np.stack(files))
            np.testing.assert_array_equal(getattr(one, f"{part}_labels"), getattr(other, f"{part}_labels"))
    assert len(held.folded(3, 1).test_labels) == 6


def test_the_outcome_is_that_of_all_images(tmp_path):
    request = asked(keep_predictions=True)
    said = []
    outcome = run_trial(request, folder=tmp_path, report=lambda fraction, message: said.append((fraction, message)))
    labels = examples_of(request).test_labels
    assert len(labels) == 123
    right = np.array(outcome.predictions) == labels
    assert outcome.accuracy == pytest.approx(right.mean())
    assert outcome.standard_error == pytest.approx(right.std() / np.sqrt(123))
    assert outcome.curve[-1]["accuracy"] == pytest.approx(outcome.accuracy)
    assert outcome.curve[-1]["test_loss"] == pytest.approx(np.mean(outcome.losses), rel=1e-5)
    assert [fraction for fraction, _ in said] == sorted(fraction for fraction, _ in said)
    assert said[-1][1].startswith(f"finished, accuracy {outcome.accuracy:.4f}, standard error ")
    one = msgspec.structs.replace(request, fold=2)
    alone = run_trial(one, folder=tmp_path / "alone")
    assert alone.accuracy == outcome.by_fold[1]
    assert outcome.predictions[41:82] == alone.predictions
    for fold in (1, 2, 3):
        stored = json.loads((tmp_path / f"fold-{fold}" / "outcome.json").read_text())
        assert TrialRequest.from_dict(stored["request"]) == msgspec.structs.replace(request, fold=fold)
    assert batches_of(one) == (2, 1)


def test_a_trial_continues_with_the_fold_that_was_interrupted(tmp_path):
    request = asked(keep_predictions=True, epochs=2)
    second = tmp_path / "a" / "fold-2" / "checkpoint-64.pt"
    stopped = run_trial(request, folder=tmp_path / "a", should_stop=second.exists)
    assert (stopped.state, stopped.accuracy) == ("interrupted", None)
    assert stopped.reason.startswith("fold 2 of 3: ")
    said = []
    went_on = run_trial(request, folder=tmp_path / "a", report=lambda _, message: said.append(message))
    assert said[0] == "finished in an earlier attempt, fold 1 of 3"
    assert went_on.resumed == 1
    whole = run_trial(request, folder=tmp_path / "b")
    assert went_on.predictions == whole.predictions
    assert whole.losses == went_on.losses
    assert len(whole.by_fold) == 3


def test_the_command_trains_on_folds(tmp_path, capsys):
    small = ["--data", "digits", "--width", "4", "--train-images", "60", "--test-images", "30", "--resolution", "4"]
    recipe = ["--recipe", "converged", "--epochs", "1", "--folds", "2", "--folder", str(tmp_path)]
    result = json.loads(answered(capsys, "train", "conv1x1", *small, *recipe, "--json", "-"))
    (trial,) = result["trials"]
    assert result["request"]["recipe"] == "converged"
    assert np.mean(trial["by_fold"]) == pytest.approx(trial["accuracy"])
    assert sorted(path.name for path in tmp_path.glob("*/0/*")) == ["fold-1", "fold-2"]
    line = refused(capsys, "train", "conv1x1", *small, *recipe, "--patience", "1")
    assert line.endswith("folds: expected no stopping beside 2 folds; leave one of the two out")


def test_two_networks_are_compared_over_all_images(tmp_path):
    stage = run_stage({"one": operators.conv1x1().to_json()}, asked(), folder=tmp_path, against_baseline=True)
    comparison = stage.comparisons["one"]
    baseline, one = (trial.outcome for trial in stage.trials)
    assert comparison.interval.difference == pytest.approx(one.accuracy - baseline.accuracy)
    assert comparison.interval.low <= comparison.interval.difference <= comparison.interval.high
    assert len(one.by_fold) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"holdout": 0.2}, "folds: expected no holdout beside 3 folds; leave one of the two out"),
        ({"stopping": {"rule": "median"}}, "folds: expected no stopping beside 3 folds"),
        ({"fold": 4}, "fold: expected a whole number from 1 to folds, 3, found 4"),
        ({"folds": None, "fold": 1}, "fold: expected a whole number from 1 to folds, None, found 1"),
        ({"data": "own:mine"}, "folds: expected CIFAR, digits or images in class folders, found data of your own"),
    ],
)
def test_folds_that_cannot_be_are_refused_in_one_line(changes, message, tmp_path):
    with pytest.raises(SpecError, match=message):
        costs_of(asked(**changes))
    outcome = run_trial(asked(**changes), folder=tmp_path)
    assert outcome.state == "failed"
    assert message in outcome.reason


def test_a_text_has_no_folds_and_images_have_two_or_more(tmp_path):
    (tmp_path / "a.txt").write_text("to be or not to be " * 100)
    request = asked(backbone="gpt_tiny", options={}, data=str(tmp_path / "a.txt"))
    with pytest.raises(SpecError, match=r"folds: expected CIFAR, .* found a text; leave folds out"):
        costs_of(request)
    few = run_trial(asked(train_images=1, test_images=1), folder=tmp_path)
    assert "digits: expected 2 to 2 folds of 2 images, found 3" in few.reason
    for folds in (-1, 0, 1):
        outcome = run_trial(asked(folds=folds), folder=tmp_path / str(folds))
        assert outcome.state == "failed"
        assert f"digits: expected 2 to 123 folds of 123 images, found {folds}" in outcome.reason
