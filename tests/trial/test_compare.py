"""Operator against baseline: the interval against cases that are known, the comparison against its own trials."""

import math
from functools import partial

import numpy as np
import pytest
from scipy.stats import ttest_1samp
from small_trials import small_trial

from syno_lab import operators
from syno_lab.errors import TrainingError
from syno_lab.store.outcomes import Comparison, Interval
from syno_lab.store.verdicts import verdict_of
from syno_lab.trial import (
    TrialOutcome,
    TrialRequest,
    Verdict,
    paired_bootstrap,
    run_stage,
    run_trial,
    sentence,
    two_way_interval,
)
from syno_lab.trial.compare import compared, is_at_chance, seed_spread
from syno_lab.trial.machine import machine_name, one_machine


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
        (([1, 0], [1, 0, 1]), r"the same examples, two or more, found \[2\] and \[3\]"),
        (([1], [0]), r"found \[1\] and \[1\]"),
    ],
)
def test_answers_that_are_no_pairs_are_refused(arguments, message):
    with pytest.raises(TrainingError, match=message):
        paired_bootstrap(*arguments)
    with pytest.raises(TrainingError, match="expected confidence as a number between 0 and 1, found 1"):
        paired_bootstrap([0, 1], [1, 1], confidence=1)


request = partial(small_trial, train_images=200, test_images=64, epochs=1)


def compare(asked: TrialRequest, seeds: list[int], **more) -> Comparison:
    return run_stage({"operator": asked.operator}, asked, seeds, against_baseline=True, **more).comparisons["operator"]


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
    assert said == [f"{side}, seed {seed}: finished in an earlier attempt" for side in SIDES for seed in (0, 5)]


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
    with pytest.raises(TrainingError, match="expected operators and seeds to train, found 0 and 1"):
        compare(request(), [0], folder=tmp_path)
    with pytest.raises(TrainingError, match="expected operators and seeds to train, found 1 and 0"):
        compare(request(operator=operator), [], folder=tmp_path)
    with pytest.raises(TrainingError, match=r"expected seeds that differ, found \[1, 1\]"):
        compare(request(operator=operator), [1, 1], folder=tmp_path)
    with pytest.raises(TrainingError, match="expected the baseline with seed 0 to finish, found diverged: expected"):
        compare(request(operator=operator, learning_rate=1e30), [0], folder=tmp_path)


# -- over seeds and images ---------------------------------------------------------------------------------------------


def test_the_interval_of_seeds_that_are_alike_is_that_of_a_t_test():
    """Losses that no seed changes: what is left is the paired t test over the examples."""
    losses, added = np.array([0.1, 0.7, 0.2, 0.9, 0.4]), np.array([0.2, 0.1, 0.4, 0.0, 0.3])
    found = two_way_interval([losses, losses], [losses + added] * 2)
    known = ttest_1samp(added, 0).confidence_interval(0.95)
    assert (found.difference, found.low, found.high) == pytest.approx((0.2, known.low, known.high))
    same = two_way_interval([losses, losses], [losses, losses])
    assert (same.difference, same.low, same.high) == (0, 0, 0)


def test_examples_that_all_agree_prove_little_if_they_are_few():
    few, many = (two_way_interval(np.ones((3, count)), np.ones((3, count))) for count in (60, 6000))
    assert few.low < -0.02 < many.low < 0 < many.high < 0.02 < few.high


def test_seeds_that_differ_widen_the_interval(np_rng):
    baseline = np_rng.random((5, 500)) < 0.5
    alike = np_rng.random((5, 500)) < 0.5
    apart = np_rng.random((5, 500)) < np.linspace(0.2, 0.8, 5)[:, None]
    assert two_way_interval(baseline, alike).high - two_way_interval(baseline, alike).low < 0.15
    wide = two_way_interval(baseline, apart)
    over_images = paired_bootstrap(baseline, apart)
    assert wide.difference == pytest.approx(over_images.difference)
    assert wide.high - wide.low > 3 * (over_images.high - over_images.low)


def test_an_interval_over_seeds_holds_the_truth_as_often_as_it_says(np_rng):
    hits, runs = 0, 300
    for _ in range(runs):
        hard = np_rng.normal(0, 1, 200)
        sides = [np_rng.random((5, 200)) < 1 / (1 + np.exp(-hard - np_rng.normal(0, 0.1, (5, 1)))) for _ in range(2)]
        found = two_way_interval(*sides, confidence=0.8)
        hits += found.low <= 0 <= found.high
    assert hits / runs > 0.8 - 5.2 * math.sqrt(0.8 * 0.2 / runs)


@pytest.mark.parametrize(
    ("one", "other", "line"),
    [
        ([[0, 1]], [[0, 1]], "on the same seeds, two of each or more"),
        ([[0], [1]], [[0], [1]], "two of each or more"),
        ([[0, 1], [1, 1]], [[0, 1]], "found"),
    ],
)
def test_an_interval_over_seeds_needs_two_of_each(one, other, line):
    with pytest.raises(TrainingError, match=line):
        two_way_interval(one, other)
    with pytest.raises(TrainingError, match="confidence"):
        two_way_interval([[0, 1], [1, 1]], [[0, 1], [1, 1]], confidence=95)


# -- verdicts and machines ---------------------------------------------------------------------------------------------


def trials(answers, **more):
    values = {"state": "finished", "flops": 1, "params": 1}
    return [TrialOutcome(predictions=list(map(int, row)), **(values | more)) for row in answers]


def test_a_comparison_decides(np_rng):
    from syno_lab.data.datasets import load_dataset

    request = TrialRequest(backbone="resnet20", data="digits", test_images=200)
    labels = load_dataset("digits", test_images=200).test_labels

    def guess(share):
        return [np.where(np_rng.random(200) < share, labels, (labels + 1) % 10) for _ in range(3)]

    good, poor, chance = (trials(guess(share), machine="here") for share in (0.9, 0.5, 0.1))
    better = compared(request, [0, 1, 2], poor, good)
    assert (better.verdict, better.machine, better.measured_on) == (Verdict.better, "here", "test")
    assert better.over_seeds.low > 0
    assert compared(request, [0, 1, 2], good, poor).verdict == "worse than the baseline"
    assert compared(request, [0, 1, 2], good, chance).verdict == "at chance level: no better than guessing"
    assert compared(request, [0, 1, 2], good, good).verdict == "undecided"
    single = compared(request, [0], good[:1], poor[:1])
    assert (single.over_seeds, single.seed_spread, single.verdict) == (None, None, Verdict.worse)
    # One seed does not show that two networks are equal.
    assert compared(request, [0], good[:1], good[:1]).verdict == "undecided"


def test_trainings_of_two_machines_or_parts_are_not_compared():
    request = TrialRequest(backbone="resnet20", data="digits", test_images=4)
    here, there = (trials([[0, 1, 2, 3]], machine=name) for name in ("A, 1 thread", "B, 1 thread"))
    with pytest.raises(TrainingError, match=r"found some on A, 1 thread and some on B, 1 thread.*train the baseline"):
        compared(request, [0], here, there)
    before = trials([[0, 1, 2, 3]])  # from before outcomes named their machine
    assert compared(request, [0], before, there).machine == "B, 1 thread"
    held = trials([[0, 1, 2, 3]], measured_on="held out")
    with pytest.raises(TrainingError, match="measured on the same images, found some on held out and some on test"):
        compared(request, [0], before, held)
    assert one_machine(["", ""]) == ""


def test_a_machine_is_named_by_what_its_numbers_depend_on():
    assert machine_name("cpu", 1) == machine_name("cpu", 1)
    assert machine_name("cpu", 1) != machine_name("cpu", 2)
    assert f"torch {__import__('torch').__version__}" in machine_name()


def test_a_guess_is_told_from_an_answer():
    assert is_at_chance(0.1, 1000, 0.1)
    assert is_at_chance(0.12, 1000, 0.1)  # 2.1 standard deviations
    assert not is_at_chance(0.14, 1000, 0.1)  # 4.2
    assert is_at_chance(0.0, 10, 0.1)
    assert not is_at_chance(1.0, 4, 0.1)


def between(low, high):
    return Interval(difference=(low + high) / 2, low=low, high=high)


@pytest.mark.parametrize(
    ("ends", "word", "words"),
    [
        ((-0.15, 0.09), Verdict.undecided, "undecided, -3.0 points (95% interval -15.0 to +9.0;"),
        ((0.01, 0.05), Verdict.better, "better than the baseline, +3.0 points (95% interval +1.0 to +5.0;"),
        ((-0.05, -0.01), Verdict.worse, "worse than the baseline, -3.0 points (95% interval -5.0 to -1.0;"),
        (
            (-0.015, 0.019),
            Verdict.equal,
            "equal to the baseline within 2 points, +0.2 points (95% interval -1.5 to +1.9;",
        ),
        ((-0.015, 0.021), Verdict.undecided, "undecided, +0.3 points"),
        ((-0.015, -0.001), Verdict.worse, "worse than the baseline by less than 2 points, -0.8 points"),
    ],
)
def test_a_verdict_says_what_the_interval_shows(ends, word, words):
    assert verdict_of(between(*ends)) is word
    one = Comparison(over_seeds=between(*ends), seeds=(1, 2, 3), examples=60, within=2.0, verdict=str(word))
    assert sentence(one).startswith(words)
    assert sentence(one).endswith("; 3 seeds, 60 test examples)")


def test_a_verdict_of_losses_and_of_guesses():
    low, high = between(0.03, 0.05), between(-0.01, 0.016)
    assert verdict_of(low, higher_is_better=False) is Verdict.worse
    assert verdict_of(low, at_chance=True) is Verdict.at_chance
    one = Comparison(measure="loss", over_seeds=high, seeds=(1, 2), examples=9, within=2.0, verdict=Verdict.equal)
    assert sentence(one) == (
        "equal to the baseline within 0.02 nats, +0.003 nats (95% interval -0.010 to +0.016; 2 seeds, 9 test examples)"
    )
    guess = Comparison(over_seeds=low, seeds=(1, 2), verdict=Verdict.at_chance)
    assert sentence(guess) == (
        "at chance level: no better than guessing, +4.0 points (95% interval +3.0 to +5.0; 2 seeds)"
    )
    assert sentence(Comparison(verdict="damaged")) == "damaged"


def test_the_spread_of_seeds_is_their_standard_deviation():
    outcomes = [TrialOutcome(state="finished", accuracy=value) for value in (0.4, 0.5, 0.6)]
    assert seed_spread(outcomes) == pytest.approx(0.1)
    assert seed_spread(outcomes[:1]) is None
