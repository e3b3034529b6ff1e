"""The places of Canvas's sessions as records for a file (:mod:`syno_lab.sessions.text`).

Tensors are numbered as in :mod:`syno_lab.canvas.kernel`. An operator that was given is kept as the text of its kernel
file.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from syno_lab.canvas import files
from syno_lab.canvas.aim import Aim, AimedDraft, Taken
from syno_lab.canvas.growth import Candidate
from syno_lab.canvas.kernel import Draft, Substitution
from syno_lab.canvas.places import Budget
from syno_lab.canvas.places import Place as Convolution
from syno_lab.canvas.primitives import PRIMITIVES, Primitive
from syno_lab.canvas.rules import RULES, Room, rules_without
from syno_lab.canvas.shape import MOST_VARIABLES, parse
from syno_lab.errors import FormatError, SpecError
from syno_lab.inputs import quoted
from syno_lab.sessions.construction import Construction, Place, Reader, Records
from syno_lab.sessions.text import check_operator, head_of

#: Primitives that a room may allow: those of a draft are fewer.
_MOST = 1 << 10


class _Budget(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    max_flops: int | None = None
    max_params: int | None = None
    min_flops: int | None = None
    min_params: int | None = None


class _Room(msgspec.Struct, forbid_unknown_fields=True):
    """See :class:`.Room`; its least costs follow from the places and the budget."""

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
    """A primitive, its tensors by number, and the number of a dynamic variable with the size for it."""

    primitive: str
    inputs: list[int]
    parameter: str = ""
    substitution: tuple[int, str] | None = None


class PlaceRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """See :class:`.text.PlaceRecord`."""

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


# -- writing -----------------------------------------------------------------------------------------------------------


def records(places: Sequence[Place[AimedDraft, Taken]]) -> Records:
    """See :meth:`.Construction.records`."""
    aims = list(dict.fromkeys(entry.state.aim for entry in places if entry.step is None))
    found = []
    for entry in places:
        step = None if entry.step is None else _step_record(entry.step)
        aim = aims.index(entry.state.aim) if step is None else None
        operator = None if entry.operator is None else entry.operator.to_json()
        found.append(PlaceRecord(step=step, aim=aim, operator=operator))
    return Records([list(map(_aim_record, aims))], found)


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


# -- reading -----------------------------------------------------------------------------------------------------------


def reader(
    record: SessionRecord, construction: Construction[AimedDraft, Taken, Candidate]
) -> Reader[AimedDraft, Taken]:
    """See :meth:`.Construction.reader`."""
    aims = [_aim(one) for one in record.aims]

    def read(one: PlaceRecord, before: Sequence[Place[AimedDraft, Taken]], where: str) -> Place[AimedDraft, Taken]:
        step: Taken | None = None
        aim, given = head_of(one.parent, one.step is not None, one.aim, aims, "an aim", where), one.step
        if aim is not None:
            state = AimedDraft(Draft(), aim)
        elif given is not None:
            last = before[one.parent or 0].state
            primitive = Primitive(given.primitive, given.parameter)
            step = last.step(Taken(primitive, tuple(given.inputs), _substitution(given, where)))
            state = last.apply(step)
        operator = None if one.operator is None else files.from_json(one.operator)
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
