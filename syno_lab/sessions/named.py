"""Constructions whose steps are names: a small system says which there are, and has stepping and a search space."""

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
#: The colour of the groups of a menu; walks that a random way begins anew.
_COLOUR, _WALKS = "#334155", 100


class Named(NamedTuple):
    """A step by its name, with the rule that refuses it, and why; empty for none."""

    step: str
    rule: str = ""
    reason: str = ""


class PlaceRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """See :class:`.text.PlaceRecord`; a step is its name."""

    parent: int | None = None
    step: str | None = None
    note: str = ""
    operator: str | None = None
    comment: str = ""


class NamedSteps(Construction[S, str, Named], Explorable[S, str, Named]):
    """Steps from one first state, each a name whose first word is its primitive.

    A system says its first state as ``root``, and :meth:`names`, :meth:`steps_to`, :meth:`svg`, ``distance``,
    ``operator`` and ``knows`` of states that have ``apply(name)`` and are hashable.
    """

    root: S
    record = SessionRecord[PlaceRecord]

    @abstractmethod
    def names(self, state: S) -> Mapping[str, str]:
        """The next steps, each with the reason that refuses it; empty for none."""

    @abstractmethod
    def steps_to(self, value: Any) -> Sequence[str]:
        """The steps from the first state to a state or an operator."""

    @abstractmethod
    def svg(self, state: S) -> str:
        """A state, drawn."""

    def begin(self, start: Any) -> Beginning[S, str]:
        """The first state, and the steps from there to what is given."""
        return Beginning(self.root, self.steps_to(start), None if self.knows(start) else start)

    def candidates(self, state: S, rules: Sequence[OwnRule], should_stop: Stop | None = None) -> Sequence[Named]:
        """The steps, each with the rule that refuses it: the system's, or one of the user's own."""

        def judged(name: str, reason: str) -> Named:
            own = None if reason else refusing(rules, state, name)
            return Named(name, own.name, own.reason) if own is not None else Named(name, reason and "system", reason)

        return [judged(*named) for named in self.names(state).items()]

    def _next(self, state: S, rules: Sequence[OwnRule]) -> list[str]:
        return [one.step for one in self.candidates(state, rules) if not one.rule]

    def way(
        self, state: S, rules: Sequence[OwnRule], patience: Patience, rng: random.Random | None = None
    ) -> Sequence[str]:
        """A shortest way, found breadth first; at random a walk, which is begun anew at a dead end."""
        effort = Effort(*patience)
        for _ in range(_WALKS if rng else 0):
            at, taken = state, list[str]()
            while rng and not at.is_complete and (names := self._next(at, rules)):
                effort.tick("looking for random steps")
                taken.append(rng.choice(names))
                at = self.apply(at, taken[-1])
            if taken and at.is_complete:
                return taken
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
        """The record of each place: the name of its step, and the file of an operator that was given."""
        given = [None if place.operator is None else place.operator.to_json() for place in places]
        found = [PlaceRecord(step=place.step, operator=text) for place, text in zip(places, given, strict=True)]
        return Records((), found)

    def reader(self, record: SessionRecord[PlaceRecord]) -> Reader[S, str]:
        """A reader that takes the steps by their names again, from the first state on."""
        (read,) = self.readers.values()

        def place(one: PlaceRecord, before: Sequence[Place[S, str]], where: str) -> Place[S, str]:
            if one.step is not None and one.parent is None:
                raise FormatError(f"session: {where}: expected a beginning, found the step {quoted(one.step)}")
            state = self.root
            if one.step is not None:
                state = self.apply(before[one.parent or 0].state, one.step)
            operator = None if one.operator is None else read(one.operator)
            check_operator(operator is None or (state.is_complete and self.operator(state) == operator), where)
            return Place(self, state, one.step, operator=operator)

        return place

    def picture(self, place: Place[S, str]) -> Picture:
        """The state, drawn by :meth:`svg`; its picture has no nodes that can be chosen."""
        return Picture(self.svg(place.state), str(place.state), {})

    def menu(self, state: S, found: Sequence[Named], chosen: str = "", whole: Collection[str] = ()) -> Sequence[Group]:
        """The steps in groups by the first words of their names, the nearest first."""
        groups: dict[str, tuple[list[Item], list[Item]]] = {}
        for index, one in enumerate(found):
            far = self._after(state, one)
            item = Item(index, one.step, far, far is not None, one.reason, one.rule)
            groups.setdefault(one.step.split()[0], ([], []))[bool(one.rule)].append(item)
        for items in chain(*groups.values()):
            items.sort(key=_nearness)
        return [Group(name, name, "", _COLOUR, name, "", *items) for name, items in groups.items()]

    def _after(self, state: S, one: Named) -> float | None:
        try:
            return self.distance(self.apply(state, one.step))
        except PrimitiveError:  # what is refused may be illegal
            return None

    def why(self, state: S, candidate: Named) -> Why:
        """The rule that refuses a step, with its sentence. Raises SynoError for a step that may be taken."""
        if not candidate.rule:
            raise SynoError("expected a refused step; this one may be taken")
        kind = "limit" if candidate.rule == "system" else "your own rule"
        return Why(candidate.step, candidate.rule, kind, "", candidate.reason)

    def standing(self, state: S) -> Branch:
        """A state is an operator, a dead end where none can be reached, or open."""
        far = self.distance(state)
        kind: Kind = "operator" if state.is_complete else "dead end" if far is None else "open"
        return Branch("", str(state), kind, distance=None if far is None else round(far))

    def following(self, state: S, rules: Sequence[Any], pruned: bool, effort: Effort) -> Sequence[tuple[int, Named]]:
        """The steps, those that nothing refuses first."""
        return sorted(enumerate(self.candidates(state, rules)), key=lambda each: bool(each[1].rule))

    def leading(self, state: S) -> Callable[[Named], Branch]:
        """A function of a step: whether it is pruned, else what the state behind it is."""

        def branch(one: Named) -> Branch:
            if one.rule:
                return Branch("", one.step, "pruned", reason=one.reason)
            found = self.standing(self.apply(state, one.step))
            return Branch("", one.step, found.kind, distance=found.distance)

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
        """The state, as equal states have the same steps."""
        return self.at

    @property
    def is_complete(self) -> bool:
        """Whether the state is an operator."""
        return bool(self.at.is_complete)

    def children(self) -> Sequence[Taken]:
        """The steps that the system does not refuse, each with the state behind it; none of an operator."""
        names = () if self.is_complete else self.construction._next(self.at, ())
        return [
            Taken(Step(name, (name,), Searched(self.construction, self.at.apply(name), self.accepts))) for name in names
        ]

    def operator(self) -> Any:
        """The operator of the state; None where it is not accepted."""
        found = self.construction.operator(self.at)
        return found if self.accepts(found) else None

    def traits(self) -> Mapping[str, int]:
        """How many steps of each primitive lead to the state."""
        names = [name.split()[0] for name in self.construction.steps_to(self.at)]
        return {name: names.count(name) for name in names}

    def towards(self, operator: Any) -> Sequence[Step]:
        """The next step on the way to an operator; empty where the state is not on its way."""
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
        """The first state, of a search that takes only operators that are accepted."""
        return Searched(self._construction, self._construction.root, accepts)

    def known(self, root: Any) -> Mapping[str, Operator]:
        """The known operators that are accepted, by name."""
        made = {name: make() for name, make in self._construction.known.items()}
        return {name: operator for name, operator in made.items() if root.accepts(operator)}

    def name_of(self, operator: Operator) -> str:
        """A hash of the operator's file, in 32 hexadecimal digits."""
        return hashlib.sha256(operator.to_json().encode()).hexdigest()[:32]

    def lower(self, spare_flops: int) -> None:
        """Lowers no budget, as nothing is filled to one."""

    def probe(self, operator: Operator) -> None:
        """None: these operators have no probe."""
