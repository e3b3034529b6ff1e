"""Search by an estimate: Bayesian optimisation over random descents, without a tree.

Descents cost little beside a training: for each question several operators are drawn, and the one with the highest
upper confidence bound of its estimated reward (:class:`Estimate`) is asked for. Some are drawn by chance from the root,
as likely as the space's weights make them, so that the search does not stay where the first rewards were; some by
growing one of the best operators anew after a random place, since of a large space chance alone shows little that is
like the best (Hutter, Hoos and Leyton-Brown, Sequential model-based optimization for general algorithm configuration,
2011, search around the best likewise). Those not taken stay in a *pool* and are compared again.

A share of the questions explores, whatever is promised. The estimate is sure of regions where it has seen little, and
wrong where rewards hang on what its words do not say; a search that follows it alone stays in the first region that
pays. Half of that share takes an operator by chance alone, so that the search is never slower than random search by
more than a constant factor (Hutter and others, 2011, interleave such draws; Falkner, Klein and Hutter, BOHB, 2018, make
a third of them). The other half takes what the estimate knows least about (MacKay, Information-based objective
functions for active data selection, 1992).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Any, Literal, NamedTuple

import numpy as np

from syno_lab.search.asking import Measures, Search, check_numbers
from syno_lab.search.descent import descend
from syno_lab.search.evolution import regrown
from syno_lab.search.protocol import Bag, State, Steps, Trail, bag

#: Rewards that are kept, the last so many: solving takes time with the cube of their number.
MOST_REWARDS = 600
#: The variance of the noise, with that of the rewards as the unit.
NOISE = 0.05
#: The slope of the rewards over the prior before any is known: its mean and variance, with the two spreads as units.
SLOPE, SLOPE_VARIANCE = 1.0, 1.0


class Portrait(NamedTuple):
    """What an estimate sees of an operator: what was ``done`` to build it, what it is (:meth:`.State.traits`), a prior.

    The ``prior`` is a number that is greater for an operator of which more is expected; alike for all: none.
    """

    done: Bag
    traits: Bag
    prior: float = 0.0


class Estimate:
    """An operator's reward from its actions and traits: a Gaussian process over bags of them.

    AMAF adds up what single actions were worth; this also sees which of them go together. A space says which words are
    counted of a step (:attr:`syno_lab.protocol.SearchStep.words`): an action as a whole is one of hundreds, and little
    is learned of it from the same primitive at other sizes. The kernel of two bags is what they have in common,
    ``sum(min(x, y)) / sum(max(x, y))`` (Tanimoto or min-max kernel: Ralaivola and others, Graph kernels for chemical
    informatics, 2005). In a large space most of what is alike is written differently: a second bag has the traits of an
    operator (:meth:`.State.traits`), and the two kernels are averaged, without bags that all are empty. The promise is
    an upper confidence bound (Srinivas and others, Gaussian process optimization in the bandit setting, 2010).

    A prior, such as a score that needs no training, is the mean of the process: a line through it, whose slope is
    learned with the rewards (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 2.7).
    Before the first reward the prior alone decides; one that tells nothing gets a slope of 0, the opposite a negative
    one.

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


#: What a question takes: the highest promise, an operator by chance alone, or the one of which least is known.
Wish = Literal["promise", "chance", "unknown"]


@dataclass(frozen=True)
class Settings:
    """How the pool is filled and what is taken from it.

    Attributes:
        strays: how many descents are made for a question from the root by chance alone.
        near: how many are made from a random place of one of the best operators; from the root instead until so many
            rewards are told that the best are a half of them.
        parents: how many operators count as the best.
        kept: how many of the operators drawn and not taken are compared again at the next question.
        bound: how many standard deviations a promise is above what is expected.
        chance: share of the questions after the first reward that are answered by chance alone.
        unknown: share of them answered with the operator whose reward is least known, of all that are compared.

    Raises SearchError for numbers that make no sense.
    """

    strays: int = 8
    near: int = 8
    parents: int = 5
    kept: int = 500
    bound: float = 2.0
    chance: float = 1 / 6
    unknown: float = 1 / 6

    def __post_init__(self) -> None:
        check_numbers(
            ("strays", self.strays, self.strays >= 0, "0 or more"),
            ("near", self.near, self.near >= 0, "0 or more"),
            ("parents", self.parents, self.parents >= 1, "1 or more"),
            ("kept", self.kept, self.kept >= 0, "0 or more"),
            ("bound", self.bound, self.bound >= 0, "0 or more"),
            ("chance", self.chance, 0 <= self.chance <= 1, "a share from 0 to 1"),
            ("unknown", self.unknown, 0 <= self.unknown <= 1 - self.chance, "a share from 0 to what chance leaves"),
        )


class EstimateSearch(Search):
    """Search by an estimate.

    Args:
        root: the space.
        rng: the only source of chance.
        settings: how the pool is filled, and the shares that explore.
        prior: a number for an operator, greater where more is expected of it, before any reward: the mean of the
            estimate. Rewards decide how much it counts.

    Attributes:
        pool: the operators drawn and not asked for, by the keys of their states; the most promising first.
    """

    def __init__(
        self,
        root: State,
        rng: random.Random,
        *,
        settings: Settings | None = None,
        prior: Callable[[Any], float] | None = None,
    ) -> None:
        super().__init__(root, rng)
        self.settings = Settings() if settings is None else settings
        self.estimate = Estimate()
        self.pool: dict[Hashable, Steps] = {}
        self._prior = prior
        self._portraits: dict[Hashable, tuple[Steps, Portrait]] = {}
        self._best: list[tuple[float, Trail]] = []  # the parents, the best first; of equals the earlier

    def _propose(self) -> tuple[Trail, Any] | None:
        wish = self._toss()
        if wish == "chance":
            return self._by_chance()
        near = list(self._near())
        more = 0 if self._are_parents_best else self.settings.near
        fresh = {steps[-1].state.key: steps for steps in (*self.drawn(more), *near)}
        old = [steps for key, steps in self.pool.items() if key not in fresh and key not in self.facts.ended]
        return self._first_new(self.in_order([*fresh.values(), *old], wish))

    def _toss(self) -> Wish:
        """What the next question takes, by the shares of the settings."""
        toss = self.rng.random()
        if not len(self.estimate):
            return "promise"
        if toss < self.settings.chance:
            return "chance"
        return "unknown" if toss < self.settings.chance + self.settings.unknown else "promise"

    @property
    def _are_parents_best(self) -> bool:
        """Whether enough rewards are told for the parents to be better than others."""
        return len(self.estimate) >= 2 * self.settings.parents

    def _near(self) -> Iterator[Steps]:
        """Operators that begin like one of the best."""
        for _ in range(self.settings.near if self._are_parents_best else 0):
            if self._should_stop():
                return
            _, parent = self.rng.choice(self._best)
            steps = regrown(self.root, parent.steps, self.rng.randrange(len(parent.steps)), self.rng, self.facts)
            if steps is not None:
                yield steps

    def drawn(self, more: int = 0) -> Iterator[Steps]:
        """Different ways by chance alone from the root to complete states; ``more`` than the settings say.

        There are none while nothing is known by which they could be compared.
        """
        met: set[Hashable] = set()
        compares = len(self.estimate) > 0 or self._prior is not None
        for _ in range(self.settings.strays + more if compares else 0):
            steps = descend(self.root, self.rng, self.facts, should_stop=self._should_stop)
            if steps is not None and steps[-1].state.key not in met:
                met.add(steps[-1].state.key)
                yield steps

    def in_order(self, trails: Sequence[Steps], wish: Wish = "promise") -> list[Steps]:
        """The most promising first; before them, where it is wanted, the one of which least is known.

        Complete states that are no operators of the space are left out. All but the first are kept, as many as the
        settings say.
        """
        found = [steps for steps in trails if self._is_there(steps[-1].state)]
        if len(found) < 2:
            return found
        held = [trail.steps for trail in self.waiting]
        mean, deviation = self.estimate.beliefs(list(map(self._portrait, found)), list(map(self._portrait, held)))
        order = (-(mean + self.settings.bound * deviation)).argsort(kind="stable").tolist()
        if wish == "unknown":
            order.insert(0, order.pop(order.index(int(deviation.argmax()))))
        found = [found[i] for i in order]
        self.pool = {steps[-1].state.key: steps for steps in found[1 : 1 + self.settings.kept]}
        wanted = self.pool.keys() | {steps[-1].state.key for steps in (found[0], *held)}
        self._portraits = {key: known for key, known in self._portraits.items() if key in wanted}
        return found

    def _learn(self, operator: Any, trail: Trail, reward: float, measures: Measures) -> None:
        self.estimate.add(self._portrait(trail.steps), reward)
        self._best = nlargest(self.settings.parents, [*self._best, (reward, trail)], key=lambda pair: pair[0])

    def _is_there(self, end: State) -> bool:
        """Whether a complete state is an operator of the space; one that is not is not met again."""
        if end.key in self._portraits or end.operator() is not None:
            return True
        self.facts.ended.add(end.key)
        return False

    def _portrait(self, steps: Steps) -> Portrait:
        """What the estimate is shown of an operator; traits and prior are asked for once while it is compared."""
        end = steps[-1].state
        way, portrait = self._portraits.get(end.key, (None, None))
        if portrait is None:
            prior = 0.0 if self._prior is None else self._prior(end.operator())
            portrait = Portrait(bag(steps), Counter(end.traits()), prior)
        elif way is not steps:
            portrait = portrait._replace(done=bag(steps))
        else:
            return portrait
        self._portraits[end.key] = steps, portrait
        return portrait
