"""Operator against baseline: the interval against cases that are known, the comparison against its own trials."""

import math

import numpy as np
import pytest

from syno_lab import operators
from syno_lab.errors import TrainingError
from syno_lab.trial import TrialRequest, compare, paired_bootstrap, run_trial


def test_two_examples_have_three_possible_means():
    """Of the differences 0 and 1, resampled means are 0, 1/2, 1 with the probabilities 1/4, 1/2, 1/4."""
    wide = paired_bootstrap([0, 0], [0, 1], confidence=0.95)
    assert (wide.difference, wide.low, wide.high) == (0.5, 0.0, 1.0)
    narrow = paired_bootstrap([0, 0], [0, 1], confidence=0.4)
    assert (narrow.low, narrow.high) == (0.5, 0.5)


def test_many_examples_come_near_the_normal_interval(np_rng):
    baseline = (np_rng.random(1000) < 0.6).astype(float)
    operator = np.where(np_rng.random(1000) < 0.2, 1 - baseline, baseline)
    difference = operator - baseline
    found = paired_bootstrap(baseline, operator)
    error = 1.96 * difference.std() / math.sqrt(1000)
    assert found.difference == pytest.approx(difference.mean())
    assert found.low == pytest.approx(difference.mean() - error, abs=0.15 * error)
    assert found.high == pytest.approx(difference.mean() + error, abs=0.15 * error)


def test_pairs_are_kept_and_seeds_are_averaged(np_rng):
    """What an image is for both sides alike does not matter, and independent seeds narrow the interval."""
    hard = np_rng.normal(0, 100, 2000)
    baseline = hard + np_rng.normal(0, 1, (4, 2000))
    operator = hard + np_rng.normal(0, 1, (4, 2000))
    one = paired_bootstrap(baseline[0], operator[0])
    four = paired_bootstrap(baseline, operator)
    assert one.high - one.low < 0.25  # unpaired it would be about 12
    assert (four.high - four.low) / (one.high - one.low) == pytest.approx(0.5, abs=0.12)  # ten standard deviations
    assert four.difference == pytest.approx((operator - baseline).mean())


def test_no_difference_is_an_interval_of_no_width():
    found = paired_bootstrap([[1, 0, 1]], [[1, 0, 1]])
    assert (found.difference, found.low, found.high) == (0, 0, 0)


def test_an_interval_holds_the_truth_as_often_as_it_says(np_rng):
    hits, runs = 0, 400
    for _ in range(runs):
        sides = np_rng.random((2, 200)) < np.array([[0.5], [0.6]])
        found = paired_bootstrap(sides[0], sides[1], confidence=0.8, resamples=500)
        hits += found.low <= 0.1 <= found.high
    # 5.6 standard deviations: one run in 10^7, the half of a percent that resampling 200 examples misses by included.
    assert abs(hits - 0.8 * runs) < 5.6 * math.sqrt(runs * 0.16)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 0], [1, 0, 1]), r"the same two or more examples of both, found \[2\] and \[3\]"),
        (([1], [0]), r"found \[1\] and \[1\]"),
    ],
)
def test_answers_that_are_no_pairs_are_refused(arguments, message):
    with pytest.raises(TrainingError, match=message):
        paired_bootstrap(*arguments)
    with pytest.raises(TrainingError, match="expected confidence as a number between 0 and 1, found 1"):
        paired_bootstrap([0, 1], [1, 1], confidence=1)


def request(**changes) -> TrialRequest:
    values = {
        "backbone": "resnet20",
        "options": {"width": 4, "blocks": 1},
        "train_images": 200,
        "test_images": 64,
        "epochs": 1,
        "threads": 1,
    }
    return TrialRequest(**(values | changes))


def test_both_are_trained_alike_on_each_seed(tmp_path):
    operator = operators.conv1x1().to_json()
    # Rules for early termination are put aside: half a training is no match.
    stopped = {"stopping": {"rule": "canvas"}, "rivals": [[1.0]]}
    asked = request(operator=operator, **stopped)
    found = compare(asked, [0, 5], folder=tmp_path / "a")
    alone = {
        (side, seed): run_trial(request(seed=seed, operator=text), folder=tmp_path / f"{side}{seed}")
        for side, text in (("baseline", None), ("operator", operator))
        for seed in (0, 5)
    }
    assert found.measure == "accuracy"
    by_seed = [alone["operator", seed].accuracy - alone["baseline", seed].accuracy for seed in (0, 5)]
    assert found.by_seed == pytest.approx(by_seed)
    assert found.interval.difference == pytest.approx(np.mean(by_seed))
    assert found.operator - found.baseline == pytest.approx(np.mean(by_seed))
    assert found.flops_ratio == alone["operator", 0].flops / alone["baseline", 0].flops < 1
    assert [trial.seed for trial in found.operators] == [0, 5]
    said = []
    again = compare(asked, [0, 5], folder=tmp_path / "a", report=lambda fraction, message: said.append(message))
    assert again == found  # in the folder of before nothing is trained again
    assert said == [f"{side}, seed {seed}: finished in an earlier attempt" for seed in (0, 5) for side in SIDES]


SIDES = ("baseline", "operator")


def test_texts_are_compared_by_their_windows(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be, that is the question. " * 60)
    asked = TrialRequest(
        backbone="gpt_tiny",
        options={"width": 16, "layers": 1, "heads": 2, "context": 8, "steps": 5},
        data=str(text),
        operator=operators.grouped_linear().to_json(),
        epochs=1,
    )
    found = compare(asked, [0], folder=tmp_path / "a")
    assert found.measure == "loss"
    assert found.baseline == pytest.approx(math.log(found.baselines[0].perplexity), rel=1e-4)
    assert found.interval.low <= found.interval.difference <= found.interval.high


def test_what_cannot_be_compared_is_refused(tmp_path):
    operator = operators.conv1x1().to_json()
    with pytest.raises(TrainingError, match="expected a request with an operator to compare"):
        compare(request(), [0], folder=tmp_path)
    for seeds in ([], [1, 1]):
        with pytest.raises(TrainingError, match="expected seeds that differ, at least one"):
            compare(request(operator=operator), seeds, folder=tmp_path)
    with pytest.raises(TrainingError, match="expected the baseline with seed 0 to finish, found diverged: expected"):
        compare(request(operator=operator, learning_rate=1e30), [0], folder=tmp_path)
