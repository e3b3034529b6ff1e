"""The pool of a search with an estimate: operators that were drawn and not asked for, and what is expected of them.

Descents cost little beside a training: several are made for a question, and the operator is asked for that promises
most by its actions and traits (:mod:`syno_lab.search.estimate`). Those by chance alone keep the search from staying
where the first rewards were; those not taken are compared again.

A share of the questions explores, whatever is promised. The estimate is sure of regions where it has seen little, and
wrong where rewards hang on what its words do not say; a search that follows it alone stays in the first region that
pays. Half of that share takes an operator by chance alone, so that the search is never slower than random search by
more than a constant factor (Hutter, Hoos and Leyton-Brown, Sequential model-based optimization for general algorithm
configuration, 2011, interleave such draws; Falkner, Klein and Hutter, BOHB, 2018, make a third of them). The other
half takes what the estimate knows least about (MacKay, Information-based objective functions for active data
selection, 1992).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from syno_lab.search.asking import check_numbers
from syno_lab.search.descent import Facts, Stop, descend, never
from syno_lab.search.estimate import Estimate, Portrait, bag
from syno_lab.search.protocol import State, Step, Trail

#: What a question takes: the highest promise, an operator by chance alone, or the one of which least is known.
Wish = Literal["promise", "chance", "unknown"]

Steps = tuple[Step, ...]


@dataclass(frozen=True)
class Settings:
    """How a pool is filled and what is taken from it.

    Attributes:
        strays: how many descents are made for a question from the root by chance alone.
        kept: how many of the operators drawn and not taken are compared again at the next question.
        bound: how many standard deviations a promise is above what is expected.
        chance: share of the questions after the first reward that are answered by chance alone.
        unknown: share of them answered with the operator whose reward is least known, of all that are compared.

    Raises:
        SearchError: for numbers that make no sense.
    """

    strays: int = 24
    kept: int = 500
    bound: float = 2.0
    chance: float = 1 / 6
    unknown: float = 1 / 6

    def __post_init__(self) -> None:
        check_numbers(
            ("strays", self.strays, self.strays >= 0, "0 or more"),
            ("kept", self.kept, self.kept >= 0, "0 or more"),
            ("bound", self.bound, self.bound >= 0, "0 or more"),
            ("chance", self.chance, 0 <= self.chance <= 1, "a share from 0 to 1"),
            ("unknown", self.unknown, 0 <= self.unknown <= 1 - self.chance, "a share from 0 to what chance leaves"),
        )


class Pool:
    """Operators drawn and not asked for, by the steps that lead to them, and the estimate of their rewards.

    Args:
        root: the space.
        rng: the only source of chance.
        facts: what is known of the space; added to.
        settings: how it is filled.
        prior: a number for an operator, greater where more is expected of it, before any reward: the mean of the
            estimate (:mod:`.estimate`). Rewards decide how much it counts.
    """

    def __init__(
        self,
        root: State,
        rng: random.Random,
        facts: Facts,
        settings: Settings,
        prior: Callable[[Any], float] | None = None,
    ) -> None:
        self.settings = settings
        self.estimate = Estimate()
        self.kept: dict[Hashable, Steps] = {}  # the most promising first
        self._root = root
        self._rng = rng
        self._facts = facts
        self._prior = prior
        self._portraits: dict[Hashable, tuple[Steps, Portrait]] = {}

    @property
    def compares(self) -> bool:
        """Whether there is anything to compare operators by before they are evaluated."""
        return len(self.estimate) > 0 or self._prior is not None

    def toss(self) -> Wish:
        """What the next question takes, by the shares of the settings."""
        toss = self._rng.random()
        if not len(self.estimate):
            return "promise"
        if toss < self.settings.chance:
            return "chance"
        return "unknown" if toss < self.settings.chance + self.settings.unknown else "promise"

    def drawn(self, should_stop: Stop = never, more: int = 0) -> Iterator[Steps]:
        """Different ways by chance alone from the root to complete states.

        ``more``: descents beside those of the settings.
        """
        met: set[Hashable] = set()
        for _ in range(self.settings.strays + more if self.compares else 0):
            steps = descend(self._root, self._rng, self._facts, should_stop=should_stop)
            if steps is not None and steps[-1].state.key not in met:
                met.add(steps[-1].state.key)
                yield steps

    def with_kept(self, trails: Sequence[Steps]) -> list[Steps]:
        """``trails`` and those drawn before that nobody has asked for."""
        fresh = {steps[-1].state.key for steps in trails}
        old = (steps for key, steps in self.kept.items() if key not in fresh and key not in self._facts.ended)
        return [*trails, *old]

    def in_order(self, trails: Sequence[Steps], waiting: Iterable[Trail], wish: Wish = "promise") -> list[Steps]:
        """The most promising first; before them, where it is wanted, the one of which least is known.

        Complete states that are no operators of the space are left out. All but the first are kept, as many as the
        settings say. ``waiting``: those that wait for a reward.
        """
        found = [steps for steps in trails if self._is_there(steps[-1].state)]
        if len(found) < 2:
            return found
        held = [trail.steps for trail in waiting]
        mean, deviation = self.estimate.beliefs(list(map(self._portrait, found)), list(map(self._portrait, held)))
        order = (-(mean + self.settings.bound * deviation)).argsort(kind="stable").tolist()
        if wish == "unknown":
            order.insert(0, order.pop(order.index(int(deviation.argmax()))))
        found = [found[i] for i in order]
        self.kept = {steps[-1].state.key: steps for steps in found[1 : 1 + self.settings.kept]}
        wanted = self.kept.keys() | {steps[-1].state.key for steps in (found[0], *held)}
        self._portraits = {key: known for key, known in self._portraits.items() if key in wanted}
        return found

    def learn(self, trail: Trail, reward: float) -> None:
        """One more reward."""
        self.estimate.add(self._portrait(trail.steps), reward)

    def _is_there(self, end: State) -> bool:
        """Whether a complete state is an operator of the space; one that is not is not met again."""
        if end.key in self._portraits or end.operator() is not None:
            return True
        self._facts.ended.add(end.key)
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
