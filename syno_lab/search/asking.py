"""The interface of a search: a caller asks it for operators and tells it their rewards.

Between ``ask`` and ``tell`` anything may happen, and several operators may be outstanding at once.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from math import isfinite
from types import MappingProxyType
from typing import Any

from syno_lab.errors import SearchError
from syno_lab.inputs import quoted
from syno_lab.search.descent import Facts, Stop, claim, draw, never
from syno_lab.search.protocol import Candidate, State, Steps, Trail

#: What is told of an operator beside its reward, such as its FLOPs or its latency; less is better.
Measures = Mapping[str, float]
NO_MEASURES: Measures = MappingProxyType({})


class Search(ABC):
    """Asks and tells, and continues from records; not for several threads at once.

    Args:
        root: the space.
        rng: the only source of chance.
    """

    def __init__(self, root: State, rng: random.Random) -> None:
        self.root = root
        self.rng = rng
        self.told: list[tuple[Any, float]] = []
        self._asked = 0
        self._waiting: dict[int, tuple[Candidate, Trail]] = {}
        self._again: list[Candidate] = []  # asked for in vain by :meth:`resume`
        self.facts = Facts()
        self._known: set[int] = set()  # hashes, because operators may be many, and are large
        self._should_stop: Stop = never

    @abstractmethod
    def _propose(self) -> tuple[Trail, Any] | None:
        """A way to an operator not asked for yet, and it; None when there is none left."""

    def _by_chance(self) -> tuple[Trail, Any] | None:
        """An operator not asked for yet, by weight alone."""
        return draw(self.root, self.rng, self.facts, self._known, self._should_stop)

    def _first_new(self, ways: Iterable[Steps | None]) -> tuple[Trail, Any] | None:
        """The first of these ways whose operator was not asked for yet; one by chance where there is none."""
        for steps in ways:
            operator = None if steps is None else claim(steps[-1].state, self.facts, self._known)
            if steps is not None and operator is not None:
                return Trail(steps), operator
        return self._by_chance()

    def _expect(self, trail: Trail) -> None:  # noqa: B027 - most searches need not know
        """An operator that :meth:`_propose` has not given is to be evaluated as well."""

    def _learn(self, operator: Any, trail: Trail, reward: float, measures: Measures) -> None:  # noqa: B027 - likewise
        """An operator that was proposed or expected has been evaluated; ``measures`` beside the reward, if any."""

    def _release(self, trail: Trail) -> None:  # noqa: B027 - likewise
        """An operator that was asked for will not be evaluated."""

    @property
    def outstanding(self) -> tuple[Candidate, ...]:
        """What has been asked for and not been told."""
        return tuple(candidate for candidate, _ in self._waiting.values() if candidate not in self._again)

    @property
    def waiting(self) -> tuple[Trail, ...]:
        """The steps to those that wait for a reward; of a resumed search also to those not asked for again yet."""
        return tuple(trail for _, trail in self._waiting.values())

    @property
    def best(self) -> tuple[Any, float] | None:
        """The operator with the highest reward so far, the first of equals."""
        return max(self.told, key=lambda pair: pair[1], default=None)

    def ask(self, should_stop: Stop = never) -> Candidate | None:
        """An operator to evaluate, each once; None when the space is exhausted (but for those outstanding).

        ``should_stop``: asked while looking, which may take long where a hard limit refuses almost all; None once it
        says so.
        """
        if self._again:
            return self._again.pop(0)
        self._should_stop = should_stop
        proposal = self._propose()
        if proposal is None:
            return None
        return self._noted(*proposal)

    def adopt(self, operator: Any, trail: Trail | None = None) -> Candidate | None:
        """Take an operator as asked for that this search has not asked for; None where it has no place here.

        After :meth:`resume`, for what was outstanding when that search ended; and for what is to be evaluated whatever
        the search makes of it. ``trail``: the steps from this search's root to it, where they are known; to look for
        them takes time. Raises SearchError for one that was told already, or is outstanding.
        """
        for candidate in self._again:
            if candidate.operator == operator:
                self._again.remove(candidate)
                return candidate
        if hash(operator) in self._known:
            raise SearchError("adopt: expected an operator that is not known yet, found one that was asked for or told")
        trail = find(self.root, operator) if trail is None else trail
        if trail is None:
            return None
        candidate = self._noted(trail, operator)
        self._expect(trail)
        return candidate

    def knows(self, operator: Any) -> bool:
        """Whether an operator was asked for, adopted or told."""
        return hash(operator) in self._known

    def trail_of(self, candidate: Candidate) -> Trail:
        """The steps to a candidate that is outstanding. Raises SearchError for any other."""
        found, trail = self._waiting.get(candidate.number, (None, None))
        if found != candidate or trail is None:
            raise SearchError(
                f"candidate {candidate.number}: expected one that is outstanding ({len(self._waiting)} are), found one "
                "that was told, dropped or never asked for; tell each once, to the search that gave it"
            )
        return trail

    def _noted(self, trail: Trail, operator: Any) -> Candidate:
        candidate = Candidate(self._asked, operator, trail.records)
        self._asked += 1
        self.facts.ended.add(trail.end.key)
        self._known.add(hash(operator))
        self._waiting[candidate.number] = (candidate, trail)
        return candidate

    def tell(self, candidate: Candidate, reward: float, measures: Measures = NO_MEASURES) -> None:
        """The reward of an operator that was asked for: from 0 (worst; also for one that failed) to 1.

        ``measures``: what else is known of it, by name; searches with one objective do without. Raises SearchError for
        a reward outside [0, 1], a measure that is no number of 0 or more, and for a candidate that is not outstanding.
        """
        check_reward(reward)
        check_measures(measures)
        trail = self._taken(candidate)
        self.told.append((candidate.operator, reward))
        self._learn(candidate.operator, trail, reward, measures)

    def drop(self, candidate: Candidate) -> None:
        """The operator will not be evaluated now (a job was cancelled); it is not asked for again.

        Raises SearchError for a candidate that is not outstanding.
        """
        self._release(self._taken(candidate))

    def resume(
        self,
        records: Iterable[tuple[Any, float] | tuple[Any, float, Measures]],
        given: Collection[Any] = (),
        after: Callable[[Any], None] = lambda operator: None,
    ) -> int:
        """Continue from records of a search, in the order in which they were told; how many had a place in the space.

        A record is an operator, its reward and, for a search with several objectives, its measures. A fresh search with
        the seed, the space and the settings that gave the records asks the same questions again and, where it was told
        them one at a time, goes on as if it had never stopped. Any other records are taken in as they are: their
        operators are not asked for again, and what is learned from them counts. ``given`` are those that the earlier
        search was handed by :meth:`adopt` and did not ask for itself. ``after`` is called with each operator once its
        reward is told: for what the earlier search's caller did then. Raises SearchError for a reward or a measure that
        :meth:`tell` refuses, or while candidates are outstanding.
        """
        if self._waiting:
            raise SearchError(
                f"resume: expected no outstanding candidate, found {len(self._waiting)}; tell or drop them first"
            )
        known = [(operator, reward, rest[0] if rest else NO_MEASURES) for operator, reward, *rest in records]
        for _, reward, measures in known:
            check_reward(reward)
            check_measures(measures)
        ahead = {operator for operator, _, _ in known}
        is_replay = not self.told
        held: dict[Hashable, Candidate] = {}
        placed = 0
        for operator, reward, measures in known:
            while is_replay and operator not in held and hash(operator) not in self._known and operator not in given:
                candidate = self.ask()
                if candidate is not None:
                    held[candidate.operator] = candidate
                is_replay = candidate is not None and candidate.operator in ahead
            if operator in held:
                self.tell(held.pop(operator), reward, measures)
                placed += 1
            elif hash(operator) not in self._known:
                placed += self._take_in(operator, reward, measures)
            after(operator)
        # Asked for, but not told when the records end: these are the next questions.
        self._again += held.values()
        return placed

    def _take_in(self, operator: Any, reward: float, measures: Measures) -> bool:
        """Learn from an operator that was not asked for; whether the space has it."""
        candidate = self.adopt(operator)
        if candidate is not None:
            self.tell(candidate, reward, measures)
            return True
        self._known.add(hash(operator))
        self.told.append((operator, reward))
        return False

    def _taken(self, candidate: Candidate) -> Trail:
        trail = self.trail_of(candidate)
        del self._waiting[candidate.number]
        return trail


class RandomSearch(Search):
    """Descents by weight alone, each operator once, whatever is told: the baseline for other searches."""

    def _propose(self) -> tuple[Trail, Any] | None:
        return self._by_chance()


def find(state: State, operator: Any) -> Trail | None:
    """The steps that lead to ``operator``; None where the space does not have it."""

    def below(at: State, before: Steps) -> Trail | None:
        if at.is_complete:
            return Trail(before) if at.operator() == operator else None
        for step in at.towards(operator):
            found = below(step.state, (*before, step))
            if found is not None:
                return found
        return None

    return below(state, ())


def check_reward(reward: float) -> None:
    """Refuse what is not a number from 0 to 1. Raises SearchError for anything else."""
    if isinstance(reward, bool) or not isinstance(reward, int | float) or not isfinite(reward) or not 0 <= reward <= 1:
        raise SearchError(
            f"reward: expected a number from 0 to 1 (an accuracy), found {quoted(reward)}; tell 0 for a failure"
        )


def check_measures(measures: Measures) -> None:
    """Refuse measures that are no finite numbers of 0 or more. Raises SearchError for the first of them."""
    for name, found in measures.items():
        if isinstance(found, bool) or not isinstance(found, int | float) or not isfinite(found) or found < 0:
            raise SearchError(f"measure {quoted(name)}: expected a number of 0 or more, found {quoted(found)}")


def check_numbers(*rows: tuple[str, float, bool, str]) -> None:
    """Refuse the first setting that is not right; a row is its name, its value, whether it is right, what is expected.

    Raises SearchError for a value that is not right.
    """
    for name, value, is_right, expected in rows:
        if not is_right:
            raise SearchError(f"{name}: expected {expected}, found {value}")
