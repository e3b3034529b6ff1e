"""Sessions of Canvas as JSON (:mod:`syno_lab.history`): steps, and what the kernels are grown for.

A file holds data alone. Tensors are numbered as in :mod:`syno_lab.canvas.kernel`. An operator that was given is kept
as the text of its kernel file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from syno_lab.canvas import files
from syno_lab.canvas.aim import Aim, AimedDraft, Taken
from syno_lab.canvas.fitted import FORMAT as KERNEL_FILE
from syno_lab.canvas.fitted import Fitted
from syno_lab.canvas.kernel import Draft, Substitution
from syno_lab.canvas.places import Budget, Place
from syno_lab.canvas.primitives import PRIMITIVES, Primitive
from syno_lab.canvas.rules import RULES, rules_without
from syno_lab.canvas.sizes import MOST_VARIABLES, parse
from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.history import MAX_BYTES, MAX_NOTE, replayed, text_of
from syno_lab.inputs import quoted
from syno_lab.versioned import read_versioned

if TYPE_CHECKING:
    from syno_lab.canvas.session import CanvasSession, Entry

FORMAT = "syno-lab-canvas-session"
VERSION = 1
#: Primitives that a room may allow: those of a draft are fewer.
_MOST = 1 << 10


class _Budget(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """See :class:`.Budget`."""

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
    """See :class:`.Aim`."""

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


class _PlaceRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One place of the history: behind ``parent`` by ``step``, or a beginning with the aim of this number.

    Attributes:
        parent: the number of the place before; None for the first.
        step: what led to it; None for a beginning.
        aim: of a beginning.
        note: of a beginning.
        operator: the kernel file of an operator that was given and ends here.
        comment: what the user wrote about it.
    """

    parent: int | None = None
    step: _Step | None = None
    aim: int | None = None
    note: str = ""
    operator: str | None = None
    comment: str = ""


class _Session(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A session of version 1: see :class:`syno_lab.synthesis.session_text.SessionRecord`."""

    format: str
    version: int
    aims: list[_Aim]
    places: list[_PlaceRecord]
    place: int = 0
    turns: list[int] = []
    rules: list[str] = []


# -- writing -----------------------------------------------------------------------------------------------------------


def to_json(session: CanvasSession) -> str:
    """The whole session, with all branches and the place that is shown."""
    aims = list(dict.fromkeys(entry.state.aim for entry in session.places if entry.step is None))
    records = []
    for entry in session.places:
        operator = None if entry.operator is None else entry.operator.to_json()
        record = _PlaceRecord(entry.parent, operator=operator, comment=entry.comment)
        if entry.step is None:
            record.aim, record.note = aims.index(entry.state.aim), entry.note
        else:
            record.step = _step_record(entry.step)
        records.append(record)
    place, turns, rules = session.place, session.turns, session.rule_names
    found = _Session(FORMAT, VERSION, list(map(_aim_record, aims)), records, place, turns, rules)
    return msgspec.json.encode(found).decode()


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


def read_session(text: str, known: Mapping[str, Callable[[], Any]] | None = None) -> CanvasSession:
    """The session of a text: of :func:`to_json`, the same in one word, or a kernel file, which is one line of steps.

    Args:
        text: what was kept or pasted.
        known: operators that the session loads by name.

    Raises:
        FormatError: one line: what was expected, what was found and where.
    """
    from syno_lab.canvas.session import CanvasSession

    text = text_of(text)
    if f'"{KERNEL_FILE}"' in text[:200]:
        return CanvasSession(files.from_json(text), known)
    record = read_versioned(text, _Session, what="session", name=FORMAT, version=VERSION, most=MAX_BYTES)
    try:
        aims = [_aim(one) for one in record.aims]
        entries = replayed(record.places, lambda one, before, where: _entry(one, before, aims, where))
        return CanvasSession.restored(entries, record.turns, record.place, known, record.rules)
    except FormatError:
        raise
    except SynoError as error:
        raise FormatError(f"session: {error}") from None


def _aim(record: _Aim) -> Aim:
    places = tuple([Place(**msgspec.structs.asdict(place)) for place in record.places])
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
        {
            "primitives": room.primitives,
            "width": room.width,
            "fcs": room.fcs,
            "include": frozenset(room.include),
            "without": frozenset(room.without),
            "must_mix": room.must_mix,
            "must_have": frozenset(room.must_have),
            "prefers_free": room.prefers_free,
            "rules": rules_without(room.without_rules),
        },
        fewest=record.fewest,
        normalise=record.normalise,
        is_example=record.is_example,
    )


def _entry(record: _PlaceRecord, before: list[Entry], aims: list[Aim], where: str) -> Entry:
    from syno_lab.canvas.session import Entry

    if record.step is None:
        if record.aim is None or not 0 <= record.aim < len(aims):
            raise FormatError(f"session: {where}: expected a step, or an aim from 0 to {len(aims) - 1}")
        step, state = None, AimedDraft(Draft(), aims[record.aim])
    else:
        if record.parent is None or record.aim is not None:
            raise FormatError(f"session: {where}: expected a step behind a place, or an aim, found both")
        given = record.step
        step = Taken(Primitive(given.primitive, given.parameter), tuple(given.inputs), _substitution(given, where))
        state = before[record.parent].state
        step, state = state.step(step), state.apply(step)
    operator = None if record.operator is None else files.from_json(record.operator)
    if operator is not None and not is_of(operator, state):
        raise FormatError(f"session: {where}: expected an operator of the primitives before it, found another one")
    return Entry(state, step, record.note[:MAX_NOTE] if step is None else "", operator)


def is_of(operator: Fitted, state: AimedDraft) -> bool:
    """Whether an operator is the kernel that a state has grown to."""
    return operator.kernel.nodes == state.draft.nodes


def _substitution(step: _Step, where: str) -> Substitution | None:
    if step.substitution is None:
        return None
    number, by = step.substitution
    if not 0 <= number < MOST_VARIABLES:
        raise FormatError(
            f"session: {where}: expected a dynamic variable from 0 to {MOST_VARIABLES - 1}, found {quoted(number)}"
        )
    return Substitution(number, parse(by))
