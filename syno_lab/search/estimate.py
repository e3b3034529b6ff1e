"""An estimate of an operator's reward from its actions and traits: a Gaussian process over bags of them.

A descent costs milliseconds and a training seconds to hours, so a search may draw several completions and evaluate the
one that promises most. AMAF adds up what single actions were worth; this also sees which of them go together. A space
says which words are counted of a step (:attr:`syno_lab.protocol.SearchStep.words`): an action as a whole is one of
hundreds, and little is learned of it from the same primitive at other sizes. The kernel of two bags is what they have
in common, ``sum(min(x, y)) / sum(max(x, y))`` (Tanimoto or min-max kernel: Ralaivola and others, Graph kernels for
chemical informatics, 2005). In a large space most of what is alike is written differently: a second bag has the traits
of an operator (:meth:`syno_lab.search.protocol.State.traits`), and the two kernels are averaged. The promise is an
upper confidence bound (Srinivas and others, Gaussian process optimization in the bandit setting, 2010).
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

Bag = Counter[str]


def bag(steps: Iterable[SearchStep]) -> Bag:
    """How often each word occurs in the steps taken."""
    found: Bag = Counter()
    for step in steps:
        for word, number in step.counted:
            found[word] += number
    return found


class Portrait(NamedTuple):
    """What an estimate sees of an operator: what was ``done`` to build it, and what it is (:meth:`.State.traits`)."""

    done: Bag
    traits: Bag


class Estimate:
    """Rewards by portraits; the kernel of two is the mean of those of their bags, without bags that all are empty.

    Letters: ``R`` rewards kept, ``H`` portraits waiting, ``B`` portraits asked about.
    """

    def __init__(self) -> None:
        self._views = tuple(_View() for _ in Portrait._fields)
        self._rewards: list[float] = []

    def __len__(self) -> int:
        return len(self._rewards)

    def add(self, found: Portrait, reward: float) -> None:
        """One more reward."""
        for view, bag_found in zip(self._views, found, strict=True):
            view.add(bag_found)
        self._rewards = [*self._rewards, reward][-MOST_REWARDS:]

    def beliefs(self, asked: Sequence[Portrait], waiting: Sequence[Portrait] = ()) -> tuple[np.ndarray, np.ndarray]:
        """For each portrait ``[B]`` the expected reward and its standard deviation; the rewards' deviation is the unit.

        Those ``waiting`` for a reward are taken to have the mean one, so that little is promised by what is like them
        (the constant liar of Ginsbourger and others, 2010). Without rewards all are 0 and 1.
        """
        if not self._rewards:
            return np.zeros(len(asked)), np.ones(len(asked))
        bags = [([one[i] for one in asked], [one[i] for one in waiting]) for i in range(len(self._views))]
        kernels = [view.kernels(*pair) for view, pair in zip(self._views, bags, strict=True)]
        kernels = [pair for view, pair in zip(self._views, kernels, strict=True) if not view.is_blank] or kernels[:1]
        kernel = np.mean([known for known, _ in kernels], axis=0)  # [R + H, R + H]
        near = np.mean([beside for _, beside in kernels], axis=0)  # [B, R + H]
        rewards = np.array(self._rewards)
        spread = rewards.std()
        values = np.concatenate([(rewards - rewards.mean()) / (spread if spread > 0 else 1.0), np.zeros(len(waiting))])
        kernel[np.diag_indices_from(kernel)] += NOISE
        solved = np.linalg.solve(kernel, np.column_stack([values, near.T]))  # [R + H, 1 + B]
        mean = near @ solved[:, 0]
        variance = 1 - np.einsum("br,rb->b", near, solved[:, 1:])
        return mean, np.sqrt(np.maximum(variance, 0))


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
