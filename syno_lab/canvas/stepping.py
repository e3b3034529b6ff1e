"""The step-by-step growth of kernels, for the sessions and steppers of all systems (:mod:`syno_lab.sessions`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import msgspec

from syno_lab.canvas import drawing, files, growth
from syno_lab.canvas import menu as listing
from syno_lab.canvas.aim import Aim, AimedDraft, Taken, random_way, shortest_way
from syno_lab.canvas.fitted import FORMAT, Fitted
from syno_lab.canvas.growth import SUBSTITUTION, Candidate, OwnLimit
from syno_lab.canvas.kernel import Draft, Kernel, Substitution
from syno_lab.canvas.known import FITTED
from syno_lab.canvas.places import Budget
from syno_lab.canvas.places import Place as Convolution
from syno_lab.canvas.primitives import PRIMITIVES, Primitive
from syno_lab.canvas.rules import RULES, Room, rules_without
from syno_lab.canvas.sampler import Sampler
from syno_lab.canvas.shape import MOST_VARIABLES, parse
from syno_lab.effort import Effort, Stop
from syno_lab.errors import FormatError, SpecError
from syno_lab.inputs import count_of, quoted
from syno_lab.protocol import TracedStep
from syno_lab.search.branches import Branch
from syno_lab.sessions.construction import (
    Beginning,
    ByHand,
    Construction,
    Explorable,
    HandLabels,
    Labels,
    Patience,
    Place,
    Reader,
    Records,
)
from syno_lab.sessions.own_rule import OwnRule, refusing
from syno_lab.sessions.shown import Node, Picture, Preview
from syno_lab.sessions.text import check_operator, head_of

#: The highest number that is accepted as a limit of primitives, leaves or FCs.
_MOST = 1 << 10


class _Budget(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    max_flops: int | None = None
    max_params: int | None = None
    min_flops: int | None = None
    min_params: int | None = None


class _Room(msgspec.Struct, forbid_unknown_fields=True):
    """The record of a :class:`.Room`; the least costs follow from the places and the budget."""

    primitives: int
    width: int
    fcs: tuple[int, int]
    include: list[str]
    without: list[str]
    must_mix: bool
    must_have: list[str] = []
    prefers_free: bool = False
    without_rules: list[str] = []


class _Aim(msgspec.Struct, forbid_unknown_fields=True):
    places: list[files.PlaceFields]
    budget: _Budget
    groups: list[int]
    room: _Room
    fewest: int
    normalise: bool
    is_example: bool


class _Step(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A primitive, the numbers of its tensors, and the number of a dynamic variable with its size."""

    primitive: str
    inputs: list[int]
    parameter: str = ""
    substitution: tuple[int, str] | None = None


class PlaceRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A :class:`.text.PlaceRecord`; tensors are numbered as in :mod:`syno_lab.canvas.kernel`."""

    parent: int | None = None
    step: _Step | None = None
    aim: int | None = None
    note: str = ""
    operator: str | None = None
    comment: str = ""


class SessionRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """See :class:`.text.SessionRecord`."""

    format: str
    version: int
    aims: list[_Aim]
    places: list[PlaceRecord]
    place: int = 0
    turns: list[int] = []
    rules: list[str] = []


def records(places: Sequence[Place[AimedDraft, Taken]]) -> Records:
    """See :meth:`.Construction.records`."""
    aims = list(dict.fromkeys(entry.state.aim for entry in places if entry.step is None))
    entries = []
    for entry in places:
        step = None if entry.step is None else _step_record(entry.step)
        aim = aims.index(entry.state.aim) if step is None else None
        operator = None if entry.operator is None else entry.operator.to_json()
        entries.append(PlaceRecord(step=step, aim=aim, operator=operator))
    return Records([list(map(_aim_record, aims))], entries)


def _step_record(step: Taken) -> _Step:
    substitution = step.substitution
    by = None if substitution is None else (substitution.number, str(substitution.by))
    return _Step(step.primitive.name, list(step.inputs), step.primitive.parameter, by)


def _aim_record(aim: Aim) -> _Aim:
    room = aim.room
    return _Aim(
        [files.PlaceFields(**vars(place)) for place in aim.places],
        _Budget(**vars(aim.budget)),
        list(aim.groups),
        _Room(
            room.primitives,
            room.width,
            room.fcs,
            sorted(room.include),
            sorted(room.without),
            room.must_mix,
            sorted(room.must_have),
            room.prefers_free,
            [rule.name for rule in RULES if rule not in room.rules],
        ),
        aim.fewest,
        aim.normalise,
        aim.is_example,
    )


def reader(
    construction: Construction[AimedDraft, Taken, Candidate], record: SessionRecord
) -> Reader[AimedDraft, Taken]:
    """See :meth:`.Construction.reader`."""
    aims = [_aim(aim_record) for aim_record in record.aims]

    def read(entry: PlaceRecord, before: Sequence[Place[AimedDraft, Taken]], where: str) -> Place[AimedDraft, Taken]:
        step: Taken | None = None
        aim, step_record = head_of(entry.parent, entry.step is not None, entry.aim, aims, "an aim", where), entry.step
        if aim is not None:
            state = AimedDraft(Draft(), aim)
        elif step_record is not None:
            last = before[entry.parent or 0].state
            primitive = Primitive(step_record.primitive, step_record.parameter)
            step = last.step(Taken(primitive, tuple(step_record.inputs), _substitution(step_record, where)))
            state = last.apply(step)
        operator = None if entry.operator is None else files.from_json(entry.operator)
        check_operator(operator is None or operator.kernel.nodes == state.draft.nodes, where)
        return Place(construction, state, step, operator=operator)

    return read


def _aim(record: _Aim) -> Aim:
    places = tuple([Convolution(**msgspec.structs.asdict(place)) for place in record.places])
    if not places:
        raise SpecError("aim: expected at least one place, found none")
    room = record.room
    numbers = {"primitives": room.primitives, "width": room.width, "fcs": room.fcs[0], "fewest": record.fewest}
    for name, number in (*numbers.items(), ("fcs", room.fcs[1])):
        if not 0 <= number <= _MOST:
            raise SpecError(f"aim: expected a number from 0 to {_MOST} for {name}, found {quoted(number)}")
    if any(number < 1 for number in record.groups):
        raise SpecError(f"aim: expected whole numbers from 1 up for groups, found {quoted(record.groups)}")
    unknown = [name for name in (*room.include, *room.must_have) if name not in PRIMITIVES]
    if unknown:
        raise SpecError(f"aim: expected primitives among {', '.join(PRIMITIVES)}, found {quoted(unknown[0])}")
    return Aim.within(
        places,
        Budget(**msgspec.structs.asdict(record.budget)),
        tuple(record.groups),
        Room(
            room.primitives,
            room.width,
            room.fcs,
            frozenset(room.include),
            frozenset(room.must_have),
            frozenset(room.without),
            room.must_mix,
            room.prefers_free,
            rules=rules_without(room.without_rules),
        ),
        fewest=record.fewest,
        normalise=record.normalise,
        is_example=record.is_example,
    )


def _substitution(step: _Step, where: str) -> Substitution | None:
    if step.substitution is None:
        return None
    number, by = step.substitution
    if not 0 <= number < MOST_VARIABLES:
        raise FormatError(
            f"session: {where}: expected a dynamic variable from 0 to {MOST_VARIABLES - 1}, found {quoted(number)}"
        )
    return Substitution(number, parse(by))


PlaceOf = Place[AimedDraft, Taken]


class KernelConstruction(
    Construction[AimedDraft, Taken, Candidate],
    ByHand[AimedDraft, Taken, Candidate],
    Explorable[AimedDraft, Taken, Candidate],
):
    """Building a kernel from the input: a session begins with a draft, a kernel, or the limits of a sampler."""

    labels = Labels(
        distance="Primitives still needed",
        groups="Why: what is counted",
        far="at least # more",
        reached="complete if it fits",
        random="Play random steps to an operator, drawn as the sampler draws",
        reset="Begin again with the input; Undo brings back what was",
        more="needing more primitives",
        none="Nothing can be added.",
        graph="micro-DAG",
    )
    hand = HandLabels(
        title="BY HAND",
        text="Tick one tensor, or both sides of a broadcast, and choose what is done with them",
        columns=("tensor", "LHS", "RHS"),
        nothing="Nothing is ticked.",
        work="looking at the ticked tensors",
    )

    known = FITTED

    # -- states and steps --------------------------------------------------------------------------------------------

    def knows(self, start: Any) -> bool:
        """Return whether a session can begin with this value: a draft, a kernel, a sampler, or a session's state."""
        return isinstance(start, Draft | Kernel | Sampler | AimedDraft)

    def begin(self, start: Draft | Kernel | Fitted | Sampler | AimedDraft) -> Beginning[AimedDraft, Taken]:
        """Return the empty draft and the steps of ``start``; a sampler sets the layers and the budget."""
        nodes: Sequence[Any] = ()
        if isinstance(start, Sampler):
            room, fewest = start.widest, max(1, start.primitives[0])
            aim = Aim(start.places, start.budget, start.groups, room, fewest, start.normalise, is_example=False)
        elif isinstance(start, AimedDraft):
            aim, nodes = start.aim, start.draft.nodes
        else:
            aim, nodes = Aim.of(start), start.kernel.nodes if isinstance(start, Fitted) else start.nodes
        steps = [Taken(primitive, inputs) for primitive, inputs in nodes]
        return Beginning(AimedDraft(Draft(), aim), steps, start if isinstance(start, Fitted) else None)

    def step(self, state: AimedDraft, given: Any) -> Taken:
        """See :meth:`.AimedDraft.step`."""
        return given if isinstance(given, Taken) else state.step(given)

    def operator(self, state: AimedDraft) -> Fitted:
        """Return the kernel, fitted to the layers of the session's aim. Raises SynoError for an incomplete draft."""
        return state.operator()

    def distance(self, state: AimedDraft, effort: Effort | None = None) -> int | None:
        """Return the least number of further primitives."""
        return state.needed

    def candidates(
        self, state: AimedDraft, rules: Sequence[OwnRule], should_stop: Stop | None = None
    ) -> Sequence[Candidate]:
        """Return each primitive on each tensor, and each broadcast (:func:`syno_lab.canvas.growth.candidates`)."""
        effort = Effort(should_stop=should_stop)
        look = lambda: effort.tick("listing the next primitives")  # noqa: E731 - a callback for frequent calls
        return [judged(state, c, rules) for c in growth.candidates(state.draft, state.aim.room, look=look)]

    def way(
        self, state: AimedDraft, rules: Sequence[OwnRule], patience: Patience, rng: random.Random | None = None
    ) -> tuple[Taken, ...]:
        """See :mod:`syno_lab.canvas.aim`."""
        refuses = lambda at, step: refusing(rules, at, step) is not None  # noqa: E731
        if rng is None:
            return shortest_way(state, patience, refuses)
        return random_way(state, rng, patience, refuses)

    def loaded(self, operator: Any, first: AimedDraft, shown: AimedDraft) -> Any:
        """Return an operator without places as a draft with the session's aim; return another operator unchanged."""
        if isinstance(operator, Fitted) and not operator.places and not shown.aim.is_example:
            return AimedDraft(Draft(operator.kernel.nodes), shown.aim)
        return operator

    def name(self, operator: Fitted, known: Mapping[str, Callable[[], Any]]) -> str | None:
        """Return the name of the known kernel that is isomorphic to the operator's kernel."""
        key, normalise = operator.kernel.key, operator.kernel.normalise
        return next((name for name, make in known.items() if _key_of(make, normalise) == key), None)

    # -- as text -----------------------------------------------------------------------------------------------------

    format = "syno-lab-canvas-session"
    record = SessionRecord
    readers: ClassVar[Mapping[str, Callable[[str], Any]]] = {FORMAT: files.from_json}

    records, reader = staticmethod(records), reader

    # -- pictures and texts ------------------------------------------------------------------------------------------

    def picture(self, place: PlaceOf) -> Picture:
        """Draw the micro-DAG with its last tensor highlighted: a draft with its leaves, an operator with its output."""
        draft = place.state.draft
        marked = [len(draft.nodes)] if draft.nodes else []
        if place.is_complete:
            operator = place.built
            svg, words = drawing.svg(operator, highlight=marked), drawing.words(operator)
            description = drawing.describe(operator.kernel)
        else:
            svg, words = drawing.svg(draft, highlight=marked), drawing.words(draft)
            description = drawing.describe(draft)
        highlights = drawing.lights(draft, words)
        nodes = {name: Node(text, highlights[name], name.startswith("t")) for name, text in words.items()}
        return Picture(svg, description, nodes)

    def status(self, place: PlaceOf, name: str | None, effort: Effort | None) -> str:
        """See :func:`.menu.status`, which is always fast."""
        return listing.status(place.state, name, place.built if place.is_complete else None)

    strip = staticmethod(listing.strip)
    explain = staticmethod(listing.explain)
    why = staticmethod(listing.why)
    menu = staticmethod(listing.menu)

    # -- ticked tensors ----------------------------------------------------------------------------------------------

    ticks, ticked = staticmethod(listing.ticks), staticmethod(listing.ticked)

    def preview(
        self,
        state: AimedDraft,
        found: Sequence[Candidate],
        share: Sequence[str],
        give: Sequence[str],
        rules: Sequence[OwnRule],
        should_stop: Stop | None,
    ) -> Preview:
        """See :func:`.menu.preview`."""
        return listing.preview(state, share, give, lambda c: judged(state, c, rules))

    # -- the space around a state ------------------------------------------------------------------------------------

    def standing(self, state: AimedDraft) -> Branch:
        """Return a branch that describes the draft: an operator, a dead end or open, with the draft's distance."""
        return _branch(f"after {count_of(len(state.draft.nodes), 'primitive')}", state)

    def following(
        self, state: AimedDraft, rules: Sequence[OwnRule], pruned: bool, effort: Effort
    ) -> tuple[Sequence[Candidate], Sequence[int]]:
        """List the next primitives; allowed primitives come first.

        A size that makes another tensor illegal is left out, because it leads to no draft.
        """
        look = lambda: effort.tick("looking at the space")  # noqa: E731 - a callback for frequent calls
        options = growth.candidates(state.draft, state.aim.room, look=look)
        found = [judged(state, c, rules) for c in options]
        allowed = [index for index, c in enumerate(found) if c.may_be_taken]
        refused = [index for index, c in enumerate(found) if not c.may_be_taken and c.verdict is not SUBSTITUTION]
        return found, [*allowed, *refused] if pruned else allowed

    def leading(self, state: AimedDraft) -> Callable[[Candidate], Branch]:
        """Return a function that maps a next primitive to its branch: an operator, a dead end, or an open draft."""
        return lambda c: (
            _branch(str(c), state.apply(c.taken))
            if c.verdict is None
            else Branch("", str(c), "pruned", reason=str(c.verdict))
        )


def _branch(text: str, state: AimedDraft) -> Branch:
    if state.is_complete:
        return Branch("", text, "operator", distance=0)
    if state.needed is None:
        why = state.too_much or "there is no room for the primitives that it needs"
        return Branch("", text, "dead end", reason=why)
    return Branch("", text, distance=state.needed)


def judged(state: AimedDraft, one: Candidate, rules: Sequence[OwnRule]) -> Candidate:
    """Return a candidate with the verdict of the user's rules, if no other rule refuses the candidate."""
    rule = refusing(rules, state, one.taken) if one.may_be_taken else None
    return one if rule is None else one._replace(verdict=OwnLimit(rule.name, rule.reason))


@lru_cache(maxsize=1 << 8)
def _key_of(make: Callable[[], Fitted], normalise: bool) -> str:
    return Kernel(make().kernel.nodes, normalise).key


def traces(values: Sequence[Any]) -> list[list[TracedStep]]:
    """Return the primitives of each kernel (fitted or not) or draft, in order.

    Two primitives are equal if name, parameter and inputs are equal; inputs are compared back to the kernel's input.
    """
    keys: dict[Any, int] = {}
    return [_trace(_draft(value), keys) for value in values]


def _draft(value: Any) -> Draft:
    if isinstance(value, Draft):
        return value
    return value.draft if isinstance(value, Kernel | AimedDraft) else value.kernel.draft


def _trace(draft: Draft, keys: dict[Any, int]) -> list[TracedStep]:
    tensors = [keys.setdefault("input", len(keys))]
    steps = []
    for number, node in enumerate(draft.nodes, start=1):
        inputs = tuple([tensors[tensor] for tensor in node.inputs])
        tensors.append(keys.setdefault((str(node.primitive), inputs), len(keys)))
        ids = (f"p{number}", f"t{number}", f"p{number}-lhs", f"p{number}-rhs", f"p{number}-out")
        steps.append(TracedStep(node.primitive.name, f"t{number} = {node}", tensors[-1], frozenset(inputs), ids))
    return steps


CONSTRUCTION = KernelConstruction()
