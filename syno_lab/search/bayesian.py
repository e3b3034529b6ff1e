"""Search by estimated rewards: Bayesian optimisation over random descents, without a tree.

A descent costs little in comparison with a training. Each call of ``ask`` draws several operators and returns the
operator with the highest upper confidence bound of its estimated reward (:class:`Estimate`). Some draws begin at the
root, by the space's weights alone, so that the search leaves the region of its first rewards. Other draws replace the
last steps of one of the best operators, because in a large space random draws seldom resemble the best (Hutter, Hoos
and Leyton-Brown, Sequential model-based optimization for general algorithm configuration, 2011, also search near the
best). Operators that were drawn and not returned stay in a *pool* for the next comparison.

A share of the calls of ``ask`` *explores*: they ignore the upper confidence bound (the *promise*). The estimate can be
too certain in regions with few rewards, and wrong where rewards depend on more than the counted words. A search by the
estimate alone would stay in the first good region. Half of the exploring calls draw an operator by the weights alone.
The search is slower than random search by at most a constant factor (Hutter and others, 2011, interleave random draws;
Falkner, Klein and Hutter, BOHB, 2018, draw a third at random). The other exploring calls return the operator with the
least certain estimate (MacKay, Information-based objective functions for active data selection, 1992).
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

#: The number of latest rewards that are stored: the time to solve grows with the cube of their number.
MOST_REWARDS = 600
#: The variance of the noise, in units of the rewards' variance.
NOISE = 0.05
#: The mean and variance of the slope before any reward, in units of the deviations of rewards and priors.
SLOPE, SLOPE_VARIANCE = 1.0, 1.0


class Portrait(NamedTuple):
    """The features of an operator for the estimate: the words of its steps (``done``), its traits, and its ``prior``.

    A greater ``prior`` means a higher expected reward before training; equal priors of all operators have no effect.
    """

    done: Bag
    traits: Bag
    prior: float = 0.0


class Estimate:
    """An estimate of an operator's reward from its actions and traits: a Gaussian process over bags of words.

    AMAF adds up the values of single actions; this estimate also uses combinations of actions. A space decides which
    words of a step are counted (:attr:`syno_lab.protocol.SearchStep.words`). Words are smaller than actions: there are
    hundreds of actions, and an action shows little about the same primitive at other sizes. The kernel of two bags is
    the share of their common words, ``sum(min(x, y)) / sum(max(x, y))`` (Tanimoto or min-max kernel: Ralaivola and
    others, Graph kernels for chemical informatics, 2005). In a large space, similar operators often have different
    steps. A second bag has the traits of an operator (:meth:`.State.traits`). The kernel is the mean over the two kinds
    of bags; a kind without any word is left out. The promise is an upper confidence bound (Srinivas and others,
    Gaussian process optimization in the bandit setting, 2010).

    A prior, such as a score without training, sets the mean of the process. The mean is a line over the prior, and the
    rewards set the slope of the line (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, 2.7).
    Before the first reward, the prior alone decides. A useless prior gets the slope 0, and a misleading prior a
    negative slope.

    Letters: ``R`` stored rewards, ``H`` operators that wait, ``B`` operators to estimate.
    """

    def __init__(self) -> None:
        self._views = (_View(), _View())  # one view of the steps, and one of the traits
        self._rewards: list[float] = []
        self._priors: list[float] = []

    def __len__(self) -> int:
        return len(self._rewards)

    def add(self, found: Portrait, reward: float) -> None:
        """Add one reward."""
        for view, bag_found in zip(self._views, (found.done, found.traits), strict=True):
            view.add(bag_found)
        self._rewards = [*self._rewards, reward][-MOST_REWARDS:]
        self._priors = [*self._priors, found.prior][-MOST_REWARDS:]

    def beliefs(self, asked: Sequence[Portrait], waiting: Sequence[Portrait] = ()) -> tuple[np.ndarray, np.ndarray]:
        """Return the expected reward and its standard deviation ``[B]``, in units of the rewards' standard deviation.

        Each ``waiting`` operator counts with the reward that the prior predicts, or with the mean reward, so that
        similar operators promise little (the constant liar of Ginsbourger and others, 2010). Without rewards, the mean
        is the prior and all deviations are 1. The deviations leave out the slope's uncertainty, because it is no reason
        to evaluate operators with a bad prior.
        """
        priors = np.array([portrait.prior for portrait in asked])
        if not self._rewards:
            return _standard(priors, priors, priors), np.ones(len(asked))
        bags = (
            ([portrait.done for portrait in asked], [portrait.done for portrait in waiting]),
            ([portrait.traits for portrait in asked], [portrait.traits for portrait in waiting]),
        )
        kernels = [view.kernels(*pair) for view, pair in zip(self._views, bags, strict=True)]
        kernels = [pair for view, pair in zip(self._views, kernels, strict=True) if view.words] or kernels[:1]
        kernel = np.mean([known for known, _ in kernels], axis=0)  # [R + H, R + H]
        near = np.mean([beside for _, beside in kernels], axis=0)  # [B, R + H]
        rewards, past_priors, nothing = np.array(self._rewards), np.array(self._priors), np.zeros(len(waiting))
        every = np.concatenate([past_priors, priors])
        wanted = _standard(priors, past_priors, every)  # [B]
        scaled_past = np.concatenate([_standard(past_priors, past_priors, every), nothing])  # [R + H]
        values = np.concatenate([_standard(rewards, rewards, rewards), nothing])
        kernel[np.diag_indices_from(kernel)] += NOISE
        solved = np.linalg.solve(kernel, np.column_stack([values, scaled_past, near.T]))  # [R + H, 2 + B]
        weight = 1 / SLOPE_VARIANCE + scaled_past @ solved[:, 1]
        slope = (SLOPE / SLOPE_VARIANCE + scaled_past @ solved[:, 0]) / weight
        mean = slope * wanted + near @ (solved[:, 0] - slope * solved[:, 1])
        variance = 1 - np.einsum("br,rb->b", near, solved[:, 2:])
        return mean, np.sqrt(np.maximum(variance, 0))


def _standard(numbers: np.ndarray, middle: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Return ``numbers`` minus the mean of ``middle``, over the deviation of ``spread``; 0 for constant ``spread``."""
    if not np.ptp(spread) > 0:  # the computed deviation of equal numbers may exceed 0
        return np.zeros(len(numbers))
    return (numbers - middle.mean()) / spread.std()


class _View:
    """The bags of stored operators in one view (steps or traits), and their kernel. ``V``: number of known words."""

    def __init__(self) -> None:
        self.words: dict[str, int] = {}  # the column of each word
        self._rows = np.zeros((0, 0))  # [R, V]
        self._kernel = np.zeros((0, 0))  # [R, R]

    def add(self, new: Bag) -> None:
        """Add one bag; drop the oldest bag above the limit."""
        row = self._vectors([new])
        rows = self._wide()
        near = _common(row, rows)
        kernel = np.block([[self._kernel, near.T], [near, np.ones((1, 1))]])
        self._rows = np.vstack([rows, row])[-MOST_REWARDS:]
        self._kernel = kernel[-MOST_REWARDS:, -MOST_REWARDS:]

    def kernels(self, queries: Sequence[Bag], pending: Sequence[Bag]) -> tuple[np.ndarray, np.ndarray]:
        """Return the kernel of stored and ``pending`` bags ``[R+H, R+H]``, and ``queries`` with them ``[B, R+H]``."""
        together = self._vectors([*queries, *pending])  # one call: each list may have new words
        wanted, extra = together[: len(queries)], together[len(queries) :]
        rows = self._wide()
        beside = _common(extra, rows)
        kernel = np.block([[self._kernel, beside.T], [beside, _common(extra, extra)]])
        return kernel, _common(wanted, np.vstack([rows, extra]))

    def _wide(self) -> np.ndarray:
        """Return the rows with a column for each known word."""
        return np.pad(self._rows, ((0, 0), (0, len(self.words) - self._rows.shape[1])))

    def _vectors(self, bags: Sequence[Bag]) -> np.ndarray:
        for counts in bags:
            for word in counts:
                self.words.setdefault(word, len(self.words))
        rows = np.zeros((len(bags), len(self.words)))
        for row, counts in zip(rows, bags, strict=True):
            for word, number in counts.items():
                row[self.words[word]] = number
        return rows


def _common(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the kernel of each row of ``x`` with each row of ``y``; sum(max) = sum(x) + sum(y) - sum(min)."""
    if len(x) > len(y):  # the loop runs over the shorter array
        return _common(y, x).T
    least = np.array([np.minimum(row, y).sum(axis=1) for row in x]).reshape(len(x), len(y))
    most = x.sum(axis=1)[:, None] + y.sum(axis=1)[None, :] - least
    return np.divide(least, most, out=np.ones_like(least), where=most > 0)


#: What a call of ``ask`` returns: the operator with the highest promise, a random or the least certain operator.
Wish = Literal["promise", "chance", "unknown"]


@dataclass(frozen=True)
class Settings:
    """How the search fills the pool and takes operators from the pool.

    Attributes:
        strays: the number of random descents from the root for each call of ``ask``.
        near: the number of descents from a random step of one of the best operators. Until the number of rewards is
            twice ``parents``, the descents begin at the root instead.
        parents: the number of operators that count as the best.
        kept: the number of operators that stay in the pool for the next call.
        bound: the promise is the expected reward plus this number of standard deviations.
        chance: the share of calls after the first reward that draw a random operator.
        unknown: the share of calls after the first reward that return the operator with the least certain reward.

    Raises SearchError for numbers out of range.
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
    """Search by an estimate of rewards.

    Args:
        settings: how the pool is filled, and the shares of calls that explore.
        prior: a function from an operator to a number, greater for a higher expected reward. The mean of the estimate
            is a line over this number; the rewards set the slope of the line.

    Attributes:
        pool: the operators that were drawn and not returned, by the keys of their states; the most promising first.
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
        self._best: list[tuple[float, Trail]] = []  # the parents by reward, highest first; of equal rewards the earlier

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
        """Decide at random which kind of operator the next call returns, by the shares of the settings."""
        toss = self.rng.random()
        if not len(self.estimate):
            return "promise"
        if toss < self.settings.chance:
            return "chance"
        return "unknown" if toss < self.settings.chance + self.settings.unknown else "promise"

    @property
    def _are_parents_best(self) -> bool:
        """Return whether there are enough rewards for the parents to be better than other operators."""
        return len(self.estimate) >= 2 * self.settings.parents

    def _near(self) -> Iterator[Steps]:
        """Yield paths to operators whose first steps are those of one of the best."""
        for _ in range(self.settings.near if self._are_parents_best else 0):
            if self._should_stop():
                return
            _, parent = self.rng.choice(self._best)
            steps = regrown(self.root, parent.steps, self.rng.randrange(len(parent.steps)), self.rng, self.facts)
            if steps is not None:
                yield steps

    def drawn(self, more: int = 0) -> Iterator[Steps]:
        """Yield different random paths from the root to complete states: ``strays`` of the settings plus ``more``.

        Without a reward and a prior nothing can be compared: then the result is empty.
        """
        met: set[Hashable] = set()
        compares = len(self.estimate) > 0 or self._prior is not None
        for _ in range(self.settings.strays + more if compares else 0):
            steps = descend(self.root, self.rng, self.facts, should_stop=self._should_stop)
            if steps is not None and steps[-1].state.key not in met:
                met.add(steps[-1].state.key)
                yield steps

    def in_order(self, trails: Sequence[Steps], wish: Wish = "promise") -> list[Steps]:
        """Sort the paths by promise, highest first; the wish "unknown" moves the least certain operator to the front.

        Complete states that are no operators of the space are left out. The pool stores all paths but the first, up to
        the limit in the settings.
        """
        ordered = [steps for steps in trails if self._is_there(steps[-1].state)]
        if len(ordered) < 2:
            return ordered
        pending = [trail.steps for trail in self.waiting]
        mean, deviation = self.estimate.beliefs(list(map(self._portrait, ordered)), list(map(self._portrait, pending)))
        order = (-(mean + self.settings.bound * deviation)).argsort(kind="stable").tolist()
        if wish == "unknown":
            order.insert(0, order.pop(order.index(int(deviation.argmax()))))
        ordered = [ordered[i] for i in order]
        self.pool = {steps[-1].state.key: steps for steps in ordered[1 : 1 + self.settings.kept]}
        wanted = self.pool.keys() | {steps[-1].state.key for steps in (ordered[0], *pending)}
        self._portraits = {key: known for key, known in self._portraits.items() if key in wanted}
        return ordered

    def _learn(self, operator: Any, trail: Trail, reward: float, measures: Measures) -> None:
        self.estimate.add(self._portrait(trail.steps), reward)
        self._best = nlargest(self.settings.parents, [*self._best, (reward, trail)], key=lambda pair: pair[0])

    def _is_there(self, end: State) -> bool:
        """Return whether a complete state is an operator of the space; mark other states as ended."""
        if end.key in self._portraits or end.operator() is not None:
            return True
        self.facts.ended.add(end.key)
        return False

    def _portrait(self, steps: Steps) -> Portrait:
        """Return the features of an operator; traits and prior are computed once while the operator is in the pool."""
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
