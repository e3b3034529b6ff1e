"""Constructions with names as steps: a small system lists its steps, and gets a stepper and a search space."""

from __future__ import annotations

import hashlib
import random
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import msgspec

from syno_lab.drawing.style import INK
from syno_lab.effort import Effort, Stop
from syno_lab.errors import FormatError, PrimitiveError, SynoError
from syno_lab.inputs import quoted
from syno_lab.protocol import Operator
from syno_lab.search.branches import Branch, Kind
from syno_lab.search.protocol import Step, Taken
from syno_lab.sessions.construction import Beginning, Construction, Explorable, Patience, Place, Reader, Records, State
from syno_lab.sessions.own_rule import OwnRule, refusing
from syno_lab.sessions.shown import Group, Item, Picture, Why
from syno_lab.sessions.text import SessionRecord, check_operator

S = TypeVar("S", bound=State)
#: The limit of random walks in one search for a way.
_WALKS = 100


class Named(NamedTuple):
    """The name of a step, the rule that refuses the step, and the reason; empty texts if no rule refuses the step."""

    step: str
    rule: str = ""
    reason: str = ""


class PlaceRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The record of a place, see :class:`.text.PlaceRecord`; ``step`` is the name of the step."""

    parent: int | None = None
    step: str | None = None
    note: str = ""
    operator: str | None = None
    comment: str = ""


class NamedSteps(Construction[S, str, Named], Explorable[S, str, Named]):
    """Steps from one first state; each step is a name whose first word is the primitive.

    A system defines the first state ``root`` and :meth:`names`, :meth:`steps_to`, :meth:`svg`, ``distance``,
    ``operator`` and ``knows``. The states are hashable and have ``apply(name)``.
    """

    root: S
    record = SessionRecord[PlaceRecord]

    @abstractmethod
    def names(self, state: S) -> Mapping[str, str]:
        """Map the name of each next step to the reason for its refusal; an empty text means that it is not refused."""

    @abstractmethod
    def steps_to(self, value: Any) -> Sequence[str]:
        """Return the steps from the first state to a state or an operator."""

    @abstractmethod
    def svg(self, state: S) -> str:
        """Draw a state."""

    def begin(self, start: Any) -> Beginning[S, str]:
        """Return the first state and the steps from there to ``start``."""
        return Beginning(self.root, self.steps_to(start), None if self.knows(start) else start)

    def candidates(self, state: S, rules: Sequence[OwnRule], should_stop: Stop | None = None) -> Sequence[Named]:
        """List the steps, each with the rule that refuses it: the system's rule or a rule of the user's own."""

        def judged(name: str, reason: str) -> Named:
            own = None if reason else refusing(rules, state, name)
            return Named(name, own.name, own.reason) if own is not None else Named(name, reason and "system", reason)

        return [judged(*named) for named in self.names(state).items()]

    def _next(self, state: S, rules: Sequence[OwnRule]) -> list[str]:
        return [named.step for named in self.candidates(state, rules) if not named.rule]

    def way(
        self, state: S, rules: Sequence[OwnRule], patience: Patience, rng: random.Random | None = None
    ) -> Sequence[str]:
        """Find the fewest steps to an operator, breadth first; with ``rng``, walk at random, anew after a dead end."""
        effort = Effort(*patience)
        for _ in range(_WALKS if rng else 0):
            at, steps = state, list[str]()
            while rng and not at.is_complete and (names := self._next(at, rules)):
                effort.tick("looking for random steps")
                steps.append(rng.choice(names))
                at = self.apply(at, steps[-1])
            if steps and at.is_complete:
                return steps
        waiting: deque[tuple[S, tuple[str, ...]]] = deque([(state, ())])
        seen = {state}
        while waiting:
            before, way = waiting.popleft()
            for name in self._next(before, rules):
                effort.tick("looking for a way")
                after = self.apply(before, name)
                if after.is_complete:
                    return (*way, name)
                if after not in seen:
                    seen.add(after)
                    waiting.append((after, (*way, name)))
        raise SynoError("no way to an operator was found from here; undo some steps")

    def records(self, places: Sequence[Place[S, str]]) -> Records:
        """Return the record of each place: the name of its step, and the JSON of an operator from the caller."""
        files = [None if place.operator is None else place.operator.to_json() for place in places]
        records = [PlaceRecord(step=place.step, operator=text) for place, text in zip(places, files, strict=True)]
        return Records((), records)

    def reader(self, record: SessionRecord[PlaceRecord]) -> Reader[S, str]:
        """Return a reader that repeats the steps by their names from the first state."""
        (read,) = self.readers.values()

        def place(entry: PlaceRecord, before: Sequence[Place[S, str]], where: str) -> Place[S, str]:
            if entry.step is not None and entry.parent is None:
                raise FormatError(f"session: {where}: expected a beginning, found the step {quoted(entry.step)}")
            state = self.root
            if entry.step is not None:
                state = self.apply(before[entry.parent or 0].state, entry.step)
            operator = None if entry.operator is None else read(entry.operator)
            check_operator(operator is None or (state.is_complete and self.operator(state) == operator), where)
            return Place(self, state, entry.step, operator=operator)

        return place

    def picture(self, place: Place[S, str]) -> Picture:
        """Draw the state by :meth:`svg`; the user can choose no nodes of this picture."""
        return Picture(self.svg(place.state), str(place.state), {})

    def menu(self, state: S, found: Sequence[Named], chosen: str = "", whole: Collection[str] = ()) -> Sequence[Group]:
        """Group the steps by the first words of their names; steps near to an operator come first."""
        groups: dict[str, tuple[list[Item], list[Item]]] = {}
        for index, candidate in enumerate(found):
            far = self._after(state, candidate)
            item = Item(index, candidate.step, far, far is not None, candidate.reason, candidate.rule)
            groups.setdefault(candidate.step.split()[0], ([], []))[bool(candidate.rule)].append(item)
        for items in chain(*groups.values()):
            items.sort(key=_nearness)
        return [Group(name, name, "", INK, name, "", *items) for name, items in groups.items()]

    def _after(self, state: S, candidate: Named) -> float | None:
        try:
            return self.distance(self.apply(state, candidate.step))
        except PrimitiveError:  # a step that a rule refuses may also be illegal
            return None

    def why(self, state: S, candidate: Named) -> Why:
        """Return the rule that refuses a step, with the reason. Raises SynoError for a step that is not refused."""
        if not candidate.rule:
            raise SynoError("expected a refused step; this one may be taken")
        kind = "limit" if candidate.rule == "system" else "your own rule"
        return Why(candidate.step, candidate.rule, kind, "", candidate.reason)

    def standing(self, state: S) -> Branch:
        """Classify a state: an operator, a dead end (no operator can be reached), or open."""
        far = self.distance(state)
        kind: Kind = "operator" if state.is_complete else "dead end" if far is None else "open"
        return Branch("", str(state), kind, distance=None if far is None else round(far))

    def following(
        self, state: S, rules: Sequence[Any], pruned: bool, effort: Effort
    ) -> tuple[Sequence[Named], Sequence[int]]:
        """Return the next steps, first the steps that no rule refuses."""
        found = self.candidates(state, rules)
        return found, sorted(range(len(found)), key=lambda index: bool(found[index].rule))

    def leading(self, state: S) -> Callable[[Named], Branch]:
        """Return a function that describes a step as pruned, or by the kind of the state after the step."""

        def branch(candidate: Named) -> Branch:
            if candidate.rule:
                return Branch("", candidate.step, "pruned", reason=candidate.reason)
            after = self.standing(self.apply(state, candidate.step))
            return Branch("", candidate.step, after.kind, distance=after.distance)

        return branch


def _nearness(item: Item) -> tuple[bool, float]:
    return item.distance is None, item.distance or 0


@dataclass(frozen=True)
class Searched:
    """A state of a search (:class:`syno_lab.search.protocol.State`)."""

    construction: NamedSteps[Any]
    at: Any
    accepts: Callable[[Any], bool]

    @property
    def key(self) -> Any:
        """Return the state itself, as equal states have the same steps."""
        return self.at

    @property
    def is_complete(self) -> bool:
        """Return whether the state is an operator."""
        return bool(self.at.is_complete)

    def children(self) -> Sequence[Taken]:
        """Return the steps that the system does not refuse, each with the state after it; none for an operator."""
        names = () if self.is_complete else self.construction._next(self.at, ())
        return [
            Taken(Step(name, (name,), Searched(self.construction, self.at.apply(name), self.accepts))) for name in names
        ]

    def operator(self) -> Any:
        """Return the operator of the state; None if ``accepts`` rejects the operator."""
        operator = self.construction.operator(self.at)
        return operator if self.accepts(operator) else None

    def traits(self) -> Mapping[str, int]:
        """Count the steps of each primitive that lead to the state."""
        names = [name.split()[0] for name in self.construction.steps_to(self.at)]
        return {name: names.count(name) for name in names}

    def towards(self, operator: Any) -> Sequence[Step]:
        """Return the next step towards an operator; empty if the operator's steps do not pass through this state."""
        done, steps = self.construction.steps_to(self.at), self.construction.steps_to(operator)
        following = steps[len(done) : len(done) + 1] if [*steps[: len(done)]] == [*done] else ()
        return [child.step for child in self.children() if child.step.name in following]


class NamedSpace:
    """The space of all operators that a construction builds (:class:`syno_lab.protocol.OperatorSpace`)."""

    wants = ""

    def __init__(self, construction: NamedSteps[Any]) -> None:
        self._construction = construction

    def __str__(self) -> str:
        return "all operators of these steps"

    def root(self, accepts: Callable[[Any], bool]) -> Searched:
        """Return the first state of a search; the search takes only operators for which ``accepts`` returns True."""
        return Searched(self._construction, self._construction.root, accepts)

    def known(self, root: Any) -> Mapping[str, Operator]:
        """Return the known operators that the search accepts, by name."""
        operators = {name: make() for name, make in self._construction.known.items()}
        return {name: operator for name, operator in operators.items() if root.accepts(operator)}

    def name_of(self, operator: Operator) -> str:
        """Return a hash of the operator's file, as 32 hexadecimal digits."""
        return hashlib.sha256(operator.to_json().encode()).hexdigest()[:32]

    def lower(self, spare_flops: int) -> None:
        """Do nothing: this space has no budget to reduce."""

    def probe(self, operator: Operator) -> None:
        """Return None: these operators have no probe."""
