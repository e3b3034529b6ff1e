"""What bags of actions promise, against the Gaussian process written out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from search_spaces import Words

from syno_lab.protocol import SearchStep
from syno_lab.search.bayesian import MOST_REWARDS, NOISE, SLOPE, SLOPE_VARIANCE, Estimate, Portrait
from syno_lab.search.protocol import Bag, bag


def portrait(word: str = "", traits: str = "") -> Portrait:
    return Portrait(Counter(word), Counter(traits))


def done(found: Iterable[tuple[str, int]]) -> Portrait:
    return Portrait(Counter(dict(found)), Counter())


BAGS = [portrait(word) for word in ("aab", "abc", "cd", "ddd", "", "ae")]


def common(first: Portrait, second: Portrait) -> float:
    """The kernel of what was done by its definition."""
    return tanimoto(first.done, second.done)


def tanimoto(x: Bag, y: Bag) -> float:
    both = set(x) | set(y)
    most = sum(max(x[a], y[a]) for a in both)
    return sum(min(x[a], y[a]) for a in both) / most if most else 1.0


def test_beliefs_are_those_of_the_process() -> None:
    estimate = Estimate()
    rewards = [0.9, 0.7, 0.2, 0.1]
    for actions, reward in zip(BAGS, rewards, strict=False):
        estimate.add(actions, reward)
    asked = [portrait("aac"), portrait("d"), portrait("zz"), BAGS[4], BAGS[5]]
    values = (np.array(rewards) - np.mean(rewards)) / np.std(rewards)
    inverse = np.linalg.inv([[common(x, y) + NOISE * (x is y) for y in BAGS[:4]] for x in BAGS[:4]])
    near = np.array([[common(x, y) for y in BAGS[:4]] for x in asked])
    means = near @ inverse @ values
    deviations = np.sqrt([1 - row @ inverse @ row for row in near])
    found = estimate.beliefs(asked)
    assert found[0] == pytest.approx(means)
    assert found[1] == pytest.approx(deviations)


def test_traits_count_as_much_as_what_was_done() -> None:
    known = [portrait("aab", "xy"), portrait("abc", "xxz"), portrait("cd", ""), portrait("ddd", "z")]
    asked = [portrait("aab", "z"), portrait("cc", "xy"), portrait("", "")]
    rewards = [0.9, 0.7, 0.2, 0.1]
    estimate = Estimate()
    for one, reward in zip(known, rewards, strict=True):
        estimate.add(one, reward)

    def both(first: Portrait, second: Portrait) -> float:
        return (tanimoto(first.done, second.done) + tanimoto(first.traits, second.traits)) / 2

    values = (np.array(rewards) - np.mean(rewards)) / np.std(rewards)
    inverse = np.linalg.inv([[both(x, y) + NOISE * (x is y) for y in known] for x in known])
    near = np.array([[both(x, y) for y in known] for x in asked])
    mean, deviation = estimate.beliefs(asked)
    assert mean == pytest.approx(near @ inverse @ values)
    assert deviation == pytest.approx(np.sqrt([1 - row @ inverse @ row for row in near]))


def test_what_waits_promises_less_to_what_is_like_it() -> None:
    estimate = Estimate()
    for actions, reward in ((portrait("ab"), 0.9), (portrait("cd"), 0.1)):
        estimate.add(actions, reward)
    like, other = portrait("abe"), portrait("fg")
    before, before_unsure = estimate.beliefs([like, other])
    after, after_unsure = estimate.beliefs([like, other], waiting=[portrait("abe")])
    assert after[0] < before[0] - 0.1
    assert after_unsure[0] < before_unsure[0] - 0.1
    assert (after[1], after_unsure[1]) == pytest.approx((before[1], before_unsure[1]))


def test_what_waits_may_have_actions_that_nothing_else_has() -> None:
    estimate = Estimate()
    for actions, reward in ((portrait("ab"), 0.9), (portrait("cd"), 0.1)):
        estimate.add(actions, reward)
    asked = [portrait("ab"), portrait("cf")]
    # Nothing in common with what is asked about, and the mean reward: it tells nothing.
    assert np.array(estimate.beliefs(asked, waiting=[portrait("uvw")])) == pytest.approx(
        np.array(estimate.beliefs(asked))
    )


def test_without_rewards_nothing_is_promised() -> None:
    mean, deviation = Estimate().beliefs([portrait("ab"), portrait()])
    assert (mean.tolist(), deviation.tolist()) == ([0.0, 0.0], [1.0, 1.0])


def test_equal_rewards_promise_alike() -> None:
    estimate = Estimate()
    for actions in BAGS[:3]:
        estimate.add(actions, 0.5)
    assert estimate.beliefs(BAGS[:3])[0].tolist() == [0.0, 0.0, 0.0]


def test_only_the_last_rewards_are_kept() -> None:
    estimate = Estimate()
    for number in range(MOST_REWARDS + 3):
        estimate.add(done([(f"a{number % 7}", 1)]), 0.5)
    assert len(estimate) == MOST_REWARDS


def test_actions_of_steps_are_counted() -> None:
    first = Words("ab", 2).children()[0].step
    assert bag([first, first]) == Counter({"a0": 2})


def test_the_words_of_a_step_are_counted_where_it_has_some() -> None:
    steps = [SearchStep("a", ("UNFOLD(H)",), words=(("UNFOLD", 1), ("UNFOLD H", 2))), SearchStep("b", ("UNFOLD", "c"))]
    assert bag(steps) == Counter({"UNFOLD": 2, "UNFOLD H": 2, "c": 1})


# -- a prior ---------------------------------------------------------------------------------------------------------


def test_a_prior_is_the_mean_with_a_slope_that_is_learned() -> None:
    known = [Portrait(Counter(word), Counter(), prior) for word, prior in (("aab", 3), ("abc", 1), ("cd", 2), ("d", 0))]
    asked = [Portrait(Counter(word), Counter(), prior) for word, prior in (("aac", 5), ("d", 1), ("zz", 0))]
    rewards = [0.9, 0.7, 0.2, 0.1]
    estimate = Estimate()
    for one, reward in zip(known, rewards, strict=True):
        estimate.add(one, reward)
    told = np.array([one.prior for one in known])
    spread = np.std([one.prior for one in known + asked])
    line, wanted = (told - told.mean()) / spread, (np.array([one.prior for one in asked]) - told.mean()) / spread
    values = (np.array(rewards) - np.mean(rewards)) / np.std(rewards)
    # A slope that is normally distributed is one more kernel, the product of the priors (Rasmussen and Williams, 2.7).
    kernel = np.array([[common(x, y) + NOISE * (x is y) for y in known] for x in known])
    near = np.array([[common(x, y) for y in known] for x in asked])
    both = kernel + SLOPE_VARIANCE * np.outer(line, line)
    means = SLOPE * wanted + (near + SLOPE_VARIANCE * np.outer(wanted, line)) @ np.linalg.solve(
        both, values - SLOPE * line
    )
    mean, deviation = estimate.beliefs(asked)
    assert mean == pytest.approx(means)
    assert deviation == pytest.approx(np.sqrt([1 - row @ np.linalg.inv(kernel) @ row for row in near]))


def test_before_the_first_reward_the_prior_alone_decides() -> None:
    mean, deviation = Estimate().beliefs([Portrait(Counter(), Counter(), prior) for prior in (0.2, 0.8, 0.5)])
    assert np.argsort(-mean).tolist() == [1, 2, 0]
    assert deviation.tolist() == [1.0, 1.0, 1.0]


def test_a_prior_alike_for_all_is_none() -> None:
    first, second = Estimate(), Estimate()
    for number, (one, reward) in enumerate(zip(BAGS, [0.9, 0.7, 0.2, 0.1, 0.3], strict=False)):
        first.add(one, reward)
        second.add(one._replace(prior=0.7), reward)
        asked = BAGS[number:]
        expected = first.beliefs(asked, BAGS[:2])
        found = second.beliefs(
            [one._replace(prior=0.7) for one in asked], [one._replace(prior=0.7) for one in BAGS[:2]]
        )
        assert np.array(found).tolist() == np.array(expected).tolist()


def test_a_prior_that_is_wrong_gets_a_negative_slope() -> None:
    estimate = Estimate()
    for number in range(20):
        estimate.add(Portrait(Counter(), Counter({f"t{number}": 1}), number / 20), 1 - number / 20)
    mean, _ = estimate.beliefs([Portrait(Counter(), Counter({"new": 1}), prior) for prior in (0.0, 0.5, 1.0)])
    assert mean[0] > mean[1] + 0.5 > mean[2] + 1
