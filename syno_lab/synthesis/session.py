"""A session of pGraphs: a synthesis by hand with its history. The stepper shows it; nothing here needs a notebook."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from syno_lab.common.wants import wants_text
from syno_lab.effort import Effort, Stop
from syno_lab.errors import PrimitiveError, SpecError
from syno_lab.history import PATIENCE_S, History
from syno_lab.history import Entry as AnyEntry
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.own_rule import check_names, own_rule
from syno_lab.protocol import OwnRule
from syno_lab.synthesis.distance import distance
from syno_lab.synthesis.property_distance import property_distance
from syno_lab.synthesis.recognise import recognise
from syno_lab.synthesis.rules import OWN, RULES, Rule
from syno_lab.synthesis.ways import Way, random_way, shortest_way

Known = Mapping[str, Callable[[], Operator]]


@dataclass(frozen=True)
class Entry(AnyEntry):
    """One place in the history: see :class:`syno_lab.history.Entry`.

    Its distance is the shape distance. An operator that was given says how a complete state matches the input.
    """

    def _measure(self, effort: Effort | None) -> int | None:
        return distance(self.state, effort=effort)

    def wished(self, effort: Effort | None = None) -> int | None:
        """The property distance there, kept; as :meth:`measured`."""
        if "_wished" not in self.__dict__:
            self.__dict__["_wished"] = property_distance(self.state, effort)
        found: int | None = self.__dict__["_wished"]
        return found


class Session(History[State, Step, Entry]):
    """A pGraph to step on from, and all that led to it (:class:`syno_lab.history.History`).

    Args:
        start: a spec (begin with its output), a partial pGraph, or an operator (begin with its last step).
        known: operators that :meth:`load` finds by name and :attr:`name` recognises.
    """

    @property
    def operator(self) -> Operator:
        """The operator that is shown: the one that was loaded, or the state's first match with the input.

        Raises:
            PrimitiveError: when the state is not complete.
        """
        return self.entry.operator or self.state.operator()

    @property
    def name(self) -> str | None:
        """The known operator that this is, up to the names of variables; None for another or an incomplete one."""
        return recognise(self.operator, self.known) if self.is_complete else None

    #: What is canonical: the lab's rules, and those of the user's own behind them (:meth:`restrict`).
    rules: tuple[Rule, ...] = RULES

    def restrict(self, rules: Sequence[Any]) -> None:
        """Have rules of the user's own refuse steps: functions, or rows (:class:`.Rule`); those of the lab are there.

        See :meth:`syno_lab.session_protocol.Session.restrict`.
        """
        rows = [rule if isinstance(rule, Rule) else _row(own_rule(rule)) for rule in rules]
        found = (*self.rules, *(row for row in rows if row not in self.rules))
        check_names(row.name for row in found)
        self.rules = found
        self._miss()

    @property
    def own_names(self) -> tuple[str, ...]:
        """The names of the user's rules."""
        return tuple([rule.name for rule in self.rules if rule not in RULES])

    def copy(self) -> Self:
        """The same places and rules, to move on by themselves."""
        found = super().copy()
        found.rules = self.rules
        return found

    def suggest(self, seconds: float | None = PATIENCE_S, should_stop: Stop | None = None) -> Way:
        """A shortest way from here to the input (:func:`syno_lab.synthesis.ways.shortest_way`); nothing moves.

        Raises:
            StoppedError: when ``should_stop`` said so.
            SynoError: where there is nothing to suggest.
        """
        return shortest_way(self.state, self.rules, seconds=seconds, should_stop=should_stop)

    def complete(
        self,
        rng: random.Random,
        seconds: float | None = PATIENCE_S,
        *,
        at_start: bool = False,
        should_stop: Stop | None = None,
    ) -> State:
        """Append random canonical steps to an operator, and go to its end; ``at_start`` stays, as in :meth:`finish`.

        Raises:
            SynoError: where no operator is found (:func:`syno_lab.synthesis.ways.random_way`).
        """
        way = random_way(self.state, rng, self.rules, seconds=seconds, should_stop=should_stop)
        return self.lay(way.steps, at_start)

    # -- what the history asks ---------------------------------------------------------------------------------------

    def _line(self, start: Any, note: str) -> tuple[Entry, ...]:
        return _line(start, note)

    def _beginning(self, state: State) -> Entry:
        return Entry(State.root(state.spec))

    def _step(self, step: Any) -> Step:
        found: Step = getattr(step, "step", step)
        return found

    def _after(self, state: State, step: Step) -> Entry:
        return Entry(state.apply(step), step)

    def _way(self, seconds: float | None, should_stop: Stop | None) -> tuple[Step, ...]:
        return self.suggest(seconds, should_stop).steps

    def _loaded(self, operator: Operator) -> Operator:
        """Without wishes of its own an operator has those that the session began with, if it has their axes."""
        return _wishing(operator, self._places[0].state.spec)


def _row(rule: OwnRule) -> Rule:
    return Rule(rule.name, "", "", rule.reason, OWN, "space", rule.match)


def _wishing(operator: Operator, spec: Spec) -> Operator:
    """The operator with the wishes of ``spec`` where it has none of its own, if it has their axes."""
    if operator.spec.wants or not spec.wants:
        return operator
    try:
        own = operator.spec.with_wants(wants_text(spec.wants, spec.input_shape, spec.output_shape))
    except SpecError:
        return operator
    return replace(operator, state=replace(operator.state, spec=own))


def _line(start: Spec | State | Operator, note: str) -> tuple[Entry, ...]:
    """The places on the way to ``start``, from the output of its spec."""
    if isinstance(start, Spec):
        return (Entry(State.root(start), note=note),)
    if not isinstance(start, State | Operator):
        raise PrimitiveError(f"expected a Spec, a State or an Operator to start from, found {type(start).__name__}")
    state = State.root(start.spec)
    entries = [Entry(state, note=note)]
    for step in start.steps:
        state = state.apply(step)
        entries.append(Entry(state, step))
    if isinstance(start, Operator):
        last = entries[-1]
        entries[-1] = Entry(last.state, last.step, last.note, start)
    return tuple(entries)
