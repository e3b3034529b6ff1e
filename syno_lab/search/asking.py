"""The interface of a search: a caller asks the search for operators and tells it their rewards.

The caller may do anything between ``ask`` and ``tell``, and several operators may be outstanding at once.
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

#: Further measures of an operator besides its reward, such as its FLOPs or its latency; less is better.
Measures = Mapping[str, float]
NO_MEASURES: Measures = MappingProxyType({})


class Search(ABC):
    """The base class of searches: proposes operators, learns from rewards, continues from records. Not thread-safe.

    Args:
        root: the first state of the space.
        rng: the only random generator that the search uses.
    """

    def __init__(self, root: State, rng: random.Random) -> None:
        self.root = root
        self.rng = rng
        self.told: list[tuple[Any, float]] = []
        self._next_number = 0
        self._waiting: dict[int, tuple[Candidate, Trail]] = {}
        self._again: list[Candidate] = []  # candidates of :meth:`resume` without a reward
        self.facts = Facts()
        self._known: set[int] = set()  # hashes instead of many large operators
        self._should_stop: Stop = never

    @abstractmethod
    def _propose(self) -> tuple[Trail, Any] | None:
        """Return steps to an operator that was not asked for yet, and the operator; None when none is left."""

    def _by_chance(self) -> tuple[Trail, Any] | None:
        """Draw an operator that was not asked for yet, by the weights of the space alone."""
        return draw(self.root, self.rng, self.facts, self._known, self._should_stop)

    def _first_new(self, ways: Iterable[Steps | None]) -> tuple[Trail, Any] | None:
        """Return the first of these paths that ends in a new operator; if no path does, draw an operator at random."""
        for steps in ways:
            operator = None if steps is None else claim(steps[-1].state, self.facts, self._known)
            if steps is not None and operator is not None:
                return Trail(steps), operator
        return self._by_chance()

    def _expect(self, trail: Trail) -> None:  # noqa: B027 - most searches need not know
        """Prepare the search for a reward of an operator that :meth:`_propose` did not return."""

    def _learn(self, operator: Any, trail: Trail, reward: float, measures: Measures) -> None:  # noqa: B027 - likewise
        """Learn from the reward and the further measures of an operator."""

    def _release(self, trail: Trail) -> None:  # noqa: B027 - likewise
        """Forget a proposed operator that will not be evaluated."""

    @property
    def outstanding(self) -> tuple[Candidate, ...]:
        """Return the candidates that were asked for and wait for their rewards."""
        return tuple(candidate for candidate, _ in self._waiting.values() if candidate not in self._again)

    @property
    def waiting(self) -> tuple[Trail, ...]:
        """Return the steps to all operators that wait for a reward, even if a resumed search must return them again."""
        return tuple(trail for _, trail in self._waiting.values())

    @property
    def best(self) -> tuple[Any, float] | None:
        """Return the operator with the highest reward so far, and this reward; of equal rewards the earliest."""
        return max(self.told, key=lambda pair: pair[1], default=None)

    def ask(self, should_stop: Stop = never) -> Candidate | None:
        """Return an operator to evaluate, never the same operator twice; None when no operator is left.

        ``should_stop`` is called during the search for an operator, and True ends the call with None. A call can take
        long if a hard limit refuses almost all operators.
        """
        if self._again:
            return self._again.pop(0)
        self._should_stop = should_stop
        proposal = self._propose()
        return None if proposal is None else self._register(*proposal)

    def adopt(self, operator: Any, trail: Trail | None = None) -> Candidate | None:
        """Register an operator that this search did not ask for; return None if the space lacks the operator.

        Callers adopt operators that were outstanding when an earlier search ended (after :meth:`resume`), and operators
        that must be evaluated in any case. ``trail`` holds the steps from the root to the operator, if the caller has
        them; otherwise the method takes time to find the steps. Raises SearchError for an operator that was
        told already or is outstanding.
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
        candidate = self._register(trail, operator)
        self._expect(trail)
        return candidate

    def knows(self, operator: Any) -> bool:
        """Return whether the search has met an operator: it was asked for, adopted or told."""
        return hash(operator) in self._known

    def trail_of(self, candidate: Candidate) -> Trail:
        """Return the steps to an outstanding candidate. Raises SearchError for any other candidate."""
        outstanding, trail = self._waiting.get(candidate.number, (None, None))
        if outstanding != candidate or trail is None:
            raise SearchError(
                f"candidate {candidate.number}: expected an outstanding candidate ({len(self._waiting)} are), found "
                "one that was told, dropped or never asked for; tell each candidate once, to its own search"
            )
        return trail

    def _register(self, trail: Trail, operator: Any) -> Candidate:
        candidate = Candidate(self._next_number, operator, trail.records)
        self._next_number += 1
        self.facts.ended.add(trail.end.key)
        self._known.add(hash(operator))
        self._waiting[candidate.number] = (candidate, trail)
        return candidate

    def tell(self, candidate: Candidate, reward: float, measures: Measures = NO_MEASURES) -> None:
        """Store the reward of an operator that was asked for: from 0 (worst, or failed) to 1.

        ``measures`` maps names to further measures; searches with one objective ignore them. Raises SearchError for
        a reward outside [0, 1], a measure that is no number of 0 or more, and for a candidate that is not outstanding.
        """
        check_reward(reward)
        check_measures(measures)
        trail = self._pop_waiting(candidate)
        self.told.append((candidate.operator, reward))
        self._learn(candidate.operator, trail, reward, measures)

    def drop(self, candidate: Candidate) -> None:
        """Drop an operator that will not be evaluated (a cancelled job); the search does not ask for it again.

        Raises SearchError for a candidate that is not outstanding.
        """
        self._release(self._pop_waiting(candidate))

    def resume(
        self,
        records: Iterable[tuple[Any, float] | tuple[Any, float, Measures]],
        given: Collection[Any] = (),
        after: Callable[[Any], None] = lambda operator: None,
    ) -> int:
        """Continue from records of a search in the order of its ``tell`` calls; return how many of them the space has.

        A record is an operator, its reward and, for a search with several objectives, its measures. A fresh search with
        the same seed, space and settings asks for the same operators again. If the earlier search got its rewards one
        at a time, the fresh search continues exactly where the earlier search stopped. The search learns from all other
        records too, and does not ask for their operators again. ``given`` holds the operators that a caller handed to
        the earlier search by :meth:`adopt`. ``after`` is called with each operator after its reward is stored, to
        repeat what the caller did after it in the earlier search. Raises SearchError for a reward or a measure that
        :meth:`tell` refuses, and while candidates are outstanding.
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
        pending: dict[Hashable, Candidate] = {}
        placed = 0
        for operator, reward, measures in known:
            while is_replay and operator not in pending and hash(operator) not in self._known and operator not in given:
                candidate = self.ask()
                if candidate is not None:
                    pending[candidate.operator] = candidate
                is_replay = candidate is not None and candidate.operator in ahead
            if operator in pending:
                self.tell(pending.pop(operator), reward, measures)
                placed += 1
            elif hash(operator) not in self._known:
                candidate = self.adopt(operator)
                if candidate is not None:
                    self.tell(candidate, reward, measures)
                    placed += 1
                else:  # the space does not have the operator
                    self._known.add(hash(operator))
                    self.told.append((operator, reward))
            after(operator)
        # `ask` next returns the candidates that have no reward when the records end.
        self._again += pending.values()
        return placed

    def _pop_waiting(self, candidate: Candidate) -> Trail:
        trail = self.trail_of(candidate)
        del self._waiting[candidate.number]
        return trail


class RandomSearch(Search):
    """Draws operators at random by the space's weights, each once, without learning: a baseline for other searches."""

    def _propose(self) -> tuple[Trail, Any] | None:
        return self._by_chance()


def find(state: State, operator: Any) -> Trail | None:
    """Return the steps that lead to ``operator``; None if the space does not have it."""

    def below(at: State, before: Steps) -> Trail | None:
        if at.is_complete:
            return Trail(before) if at.operator() == operator else None
        for step in at.towards(operator):
            trail = below(step.state, (*before, step))
            if trail is not None:
                return trail
        return None

    return below(state, ())


def check_reward(reward: float) -> None:
    """Refuse a reward that is no number from 0 to 1. Raises SearchError."""
    if isinstance(reward, bool) or not isinstance(reward, int | float) or not isfinite(reward) or not 0 <= reward <= 1:
        raise SearchError(
            f"reward: expected a number from 0 to 1 (an accuracy), found {quoted(reward)}; tell 0 for a failure"
        )


def check_measures(measures: Measures) -> None:
    """Refuse measures that are no finite numbers of 0 or more. Raises SearchError for the first bad measure."""
    for name, value in measures.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
            raise SearchError(f"measure {quoted(name)}: expected a number of 0 or more, found {quoted(value)}")


def check_numbers(*rows: tuple[str, float, bool, str]) -> None:
    """Check settings: a row has the name, the value, whether the value is right, and a text that says what is expected.

    Raises SearchError for the first wrong value.
    """
    for name, value, is_right, expected in rows:
        if not is_right:
            raise SearchError(f"{name}: expected {expected}, found {value}")
