"""An estimate of an operator's reward from its actions and traits: a Gaussian process over bags of them.

A descent costs milliseconds and a training seconds to hours, so a search may draw several completions and evaluate the
one that promises most. AMAF adds up what single actions were worth; this also sees which of them go together. A space
says which words are counted of a step (:attr:`syno_lab.protocol.SearchStep.words`): an action as a whole is one of
hundreds, and little is learned of it from the same primitive at other sizes. The kernel of two bags is what they have
in common, ``sum(min(x, y)) / sum(max(x, y))`` (Tanimoto or min-max kernel: Ralaivola and others, Graph kernels for
chemical informatics, 2005). In a large space most of what is alike is written differently: a second bag has the traits
of an operator (:meth:`syno_lab.search.protocol.State.traits`), and the two kernels are averaged. The promise is an
upper confidence bound (Srinivas and others, Gaussian process optimization in the bandit setting, 2010).

A prior, such as a score that needs no training, is the mean of the process: a line through it, whose slope is learned
with the rewards (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 2.7). Before the first
reward the prior alone decides; one that tells nothing, or the opposite, gets a slope of 0, or a negative one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from syno_lab.protocol import SearchStep

#: Rewards that are kept, the last so many: solving takes time with the cube of their number.
MOST_REWARDS = 600
#: The variance of the noise, with that of the rewards as the unit.
NOISE = 0.05
#: The slope of the rewards over the prior before any is known: its mean and variance, with the two spreads as units.
SLOPE, SLOPE_VARIANCE = 1.0, 1.0

Bag = Counter[str]


def bag(steps: Iterable[SearchStep]) -> Bag:
    """How often each word occurs in the steps taken."""
    found: Bag = Counter()
    for step in steps:
        for word, number in step.counted:
            found[word] += number
    return found


class Portrait(NamedTuple):
    """What an estimate sees of an operator: what was ``done`` to build it, what it is (:meth:`.State.traits`), a prior.

    The ``prior`` is a number that is greater for an operator of which more is expected; alike for all: none.
    """

    done: Bag
    traits: Bag
    prior: float = 0.0


class Estimate:
    """Rewards by portraits; the kernel of two is the mean of those of their bags, without bags that all are empty.

    Letters: ``R`` rewards kept, ``H`` portraits waiting, ``B`` portraits asked about.
    """

    def __init__(self) -> None:
        self._views = (_View(), _View())  # what was done, and the traits
        self._rewards: list[float] = []
        self._priors: list[float] = []

    def __len__(self) -> int:
        return len(self._rewards)

    def add(self, found: Portrait, reward: float) -> None:
        """One more reward."""
        for view, bag_found in zip(self._views, (found.done, found.traits), strict=True):
            view.add(bag_found)
        self._rewards = [*self._rewards, reward][-MOST_REWARDS:]
        self._priors = [*self._priors, found.prior][-MOST_REWARDS:]

    def beliefs(self, asked: Sequence[Portrait], waiting: Sequence[Portrait] = ()) -> tuple[np.ndarray, np.ndarray]:
        """For each portrait ``[B]`` the expected reward and its standard deviation; the rewards' deviation is the unit.

        Those ``waiting`` for a reward are taken to have the one that the prior gives them, or the mean one, so that
        little is promised by what is like them (the constant liar of Ginsbourger and others, 2010). Without rewards the
        prior is the mean, and all deviations are 1. No deviation has a share of the doubt about the slope: that is no
        reason to evaluate what the prior is against.
        """
        priors = np.array([one.prior for one in asked])
        if not self._rewards:
            return _standard(priors, priors, priors), np.ones(len(asked))
        bags = (
            ([one.done for one in asked], [one.done for one in waiting]),
            ([one.traits for one in asked], [one.traits for one in waiting]),
        )
        kernels = [view.kernels(*pair) for view, pair in zip(self._views, bags, strict=True)]
        kernels = [pair for view, pair in zip(self._views, kernels, strict=True) if not view.is_blank] or kernels[:1]
        kernel = np.mean([known for known, _ in kernels], axis=0)  # [R + H, R + H]
        near = np.mean([beside for _, beside in kernels], axis=0)  # [B, R + H]
        rewards, told, nothing = np.array(self._rewards), np.array(self._priors), np.zeros(len(waiting))
        every = np.concatenate([told, priors])
        wanted = _standard(priors, told, every)  # [B]
        given = np.concatenate([_standard(told, told, every), nothing])  # [R + H]
        values = np.concatenate([_standard(rewards, rewards, rewards), nothing])
        kernel[np.diag_indices_from(kernel)] += NOISE
        solved = np.linalg.solve(kernel, np.column_stack([values, given, near.T]))  # [R + H, 2 + B]
        weight = 1 / SLOPE_VARIANCE + given @ solved[:, 1]
        slope = (SLOPE / SLOPE_VARIANCE + given @ solved[:, 0]) / weight
        mean = slope * wanted + near @ (solved[:, 0] - slope * solved[:, 1])
        variance = 1 - np.einsum("br,rb->b", near, solved[:, 2:])
        return mean, np.sqrt(np.maximum(variance, 0))


def _standard(numbers: np.ndarray, middle: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """``numbers`` less the mean of ``middle``, in standard deviations of ``spread``; 0 where that is 0."""
    if not np.ptp(spread) > 0:  # the deviation of equal numbers may be rounded to more than 0
        return np.zeros(len(numbers))
    return (numbers - middle.mean()) / spread.std()


class _View:
    """One bag of each operator that a reward was told of, and what they have in common. ``V``: words seen."""

    def __init__(self) -> None:
        self._columns: dict[str, int] = {}
        self._rows = np.zeros((0, 0))  # [R, V]
        self._kernel = np.zeros((0, 0))  # [R, R]

    @property
    def is_blank(self) -> bool:
        """Whether no bag had a word."""
        return not self._columns

    def add(self, found: Bag) -> None:
        """One more bag; the oldest goes where there are too many."""
        row = self._vectors([found])
        rows = self._wide()
        near = _common(row, rows)
        kernel = np.block([[self._kernel, near.T], [near, np.ones((1, 1))]])
        self._rows = np.vstack([rows, row])[-MOST_REWARDS:]
        self._kernel = kernel[-MOST_REWARDS:, -MOST_REWARDS:]

    def kernels(self, asked: Sequence[Bag], held: Sequence[Bag]) -> tuple[np.ndarray, np.ndarray]:
        """Of those added and ``held`` with one another ``[R + H, R + H]``, and ``asked`` with them ``[B, R + H]``."""
        together = self._vectors([*asked, *held])  # at once: either may have words that are new
        wanted, others = together[: len(asked)], together[len(asked) :]
        rows = self._wide()
        beside = _common(others, rows)
        kernel = np.block([[self._kernel, beside.T], [beside, _common(others, others)]])
        return kernel, _common(wanted, np.vstack([rows, others]))

    def _wide(self) -> np.ndarray:
        """The rows, with a column for each word seen by now."""
        return np.pad(self._rows, ((0, 0), (0, len(self._columns) - self._rows.shape[1])))

    def _vectors(self, bags: Sequence[Bag]) -> np.ndarray:
        for found in bags:
            for word in found:
                self._columns.setdefault(word, len(self._columns))
        rows = np.zeros((len(bags), len(self._columns)))
        for row, found in zip(rows, bags, strict=True):
            for word, number in found.items():
                row[self._columns[word]] = number
        return rows


def _common(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The kernel of each row of ``x`` with each of ``y``; sum(max) = sum(x) + sum(y) - sum(min)."""
    if len(x) > len(y):  # the loop is over the fewer
        return _common(y, x).T
    least = np.array([np.minimum(row, y).sum(axis=1) for row in x]).reshape(len(x), len(y))
    most = x.sum(axis=1)[:, None] + y.sum(axis=1)[None, :] - least
    return np.divide(least, most, out=np.ones_like(least), where=most > 0)
