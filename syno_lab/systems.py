"""The systems of operators that the lab knows, by the ``format`` of their operators' JSON.

Only systems that are listed here, or that the environment variable :data:`VARIABLE` names when the process starts, are
imported: a file from elsewhere names a format, never a module.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.inputs import is_file, likeness, nearest, quoted, shortened
from syno_lab.protocol import ComputesLayers, OfLayers, OfPrimitives, Ruled, Searched, StandsFor, Stepwise
from syno_lab.versioned import read_small, reason

if TYPE_CHECKING:
    from syno_lab.models.sites import Site
    from syno_lab.protocol import Binding, Operator, OperatorSpace, PrimitiveCard, SpaceRequest, System
    from syno_lab.sessions.own_rule import OwnRule

#: Bytes of an operator's JSON that are read, and of a session's text.
MAX_BYTES, MAX_TEXT = 1 << 20, 1 << 22
#: What the text of a file or of a session begins with, and how much of a name must be right for another to be meant.
_TEXTS, _ALIKE = ("{", "syno-session:"), 0.7
#: ``"format=module:name;…"``: further systems; ``"format="`` takes one away.
VARIABLE = "SYNO_LAB_SYSTEMS"


#: Of each system ``"module:name"`` of its :class:`~syno_lab.protocol.System`, imported when it is first used.
SYSTEMS = {
    "syno-lab-operator": "syno_lab.pgraphs.system:PGRAPHS",
    "syno-lab-canvas": "syno_lab.canvas.system:CANVAS",
    "syno-lab-alpha": "syno_lab.alpha.system:ALPHA",
    "syno-lab-nas-pte": "syno_lab.nas_pte.system:NAS_PTE",
}
#: What makes a TVM module of the JSON of an operator in the process of a tuning, ``"module:function"``, where it is not
#: :func:`lower_json`. Tuning records are keyed by this text.
BUILDERS = {
    "syno-lab-operator": "syno_lab.codegen.tvm_target:lower_json",
    "syno-lab-nas-pte": "syno_lab.nas_pte.tvm:lower_json",
}
_BUILDER = f"{__name__}:lower_json"
#: The system that is meant unless the user says otherwise: its format, and as a user names it.
DEFAULT, DEFAULT_NAME = "syno-lab-operator", "pgraphs"
#: Formats by the name of the paper, where it is not the title of the system.
PAPERS = {"syno": "syno-lab-operator", "alpha": "syno-lab-alpha", "alphanas": "syno-lab-alpha"}


class _Header(msgspec.Struct):
    format: str = ""


def formats() -> dict[str, str]:
    """Where the systems are that this process knows. Raises SpecError where :data:`VARIABLE` is malformed."""
    found = dict(SYSTEMS)
    for entry in filter(None, (part.strip() for part in os.environ.get(VARIABLE, "").split(";"))):
        name, equals, target = entry.partition("=")
        if not name or not equals or (target and target.count(":") != 1):
            raise SpecError(f"{VARIABLE}: expected format=module:name;…, found {quoted(entry)}")
        if target:
            found[name] = target
        else:
            found.pop(name, None)
    return found


def all_systems() -> Iterator[System]:
    """Every system, loaded one by one."""
    return (find_system(name) for name in formats())


def find_system(name: str) -> System:
    """The system of a format. Raises FormatError where no system has it."""
    rows = formats()
    if name not in rows:
        raise FormatError(f"system: expected a format among {', '.join(rows)}, found {quoted(name)}")
    return _load(rows[name])


def system_of(operator: Operator) -> System:
    """The system that an operator belongs to. Raises FormatError if it is not registered."""
    return find_system(operator.format)


def format_of(text: str | bytes) -> str:
    """The format that a JSON text names.

    Raises FormatError where it is too long, no JSON, or names no format that is known.
    """
    if len(text) > MAX_BYTES:
        raise FormatError(f"operator file: expected at most {MAX_BYTES} bytes, found {len(text)}")
    try:
        found = msgspec.json.decode(text, type=_Header).format
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise FormatError(f"operator file: expected JSON of an operator: {reason(error)}") from None
    rows = formats()
    if found not in rows:
        expected = f"format {quoted(next(iter(rows)))}" if len(rows) == 1 else f"a format among {', '.join(rows)}"
        raise FormatError(f"operator file: expected {expected}, found {quoted(shortened(found))}")
    return found


def read_operator(text: str | bytes) -> Operator:
    """The operator of a JSON text, of whatever system.

    Raises FormatError, one line: what was expected, what was found and where.
    """
    return find_system(format_of(text)).read(text)


def operator_for(site: Site) -> tuple[Operator, dict[str, int]]:
    """What a network's layer computes as an operator of the first system that has one, and its variables' sizes.

    Raises SpecError where no system has one, with the line of the first system that was asked.
    """
    refusals = []
    for system in all_systems():
        if isinstance(system, ComputesLayers):
            try:
                return system.for_layer(site)
            except SpecError as error:
                refusals.append(error)
    raise refusals[0] if refusals else SpecError(f"{site.name}: expected a system that has its operator, found none")


def binding_for(operator: Operator, named: Binding, *sizes: Sequence[int]) -> dict[str, int]:
    """The sizes of an operator's variables for a layer: see :meth:`.OfLayers.binding_for`.

    Raises SpecError where the operator does not fit, or is none for layers.
    """
    system = system_of(operator)
    if not isinstance(system, OfLayers):
        raise SpecError(f"expected an operator for one layer, found a whole network of {system.title}: {operator}")
    input_sizes, output_sizes = sizes
    return system.binding_for(operator, named, input_sizes, output_sizes)


def space_of(system: System, request: SpaceRequest, rules: Sequence[OwnRule] = ()) -> OperatorSpace:
    """The space of a system for a request, without the operators that rules of the user's own refuse.

    Raises SpecError where there is none.
    """
    if rules and isinstance(system, Ruled):
        return system.ruled_space(request, rules)
    if isinstance(system, Searched):
        return system.space(request)
    raise SpecError(
        f"{system.title} has no space to search: expected another system; `syno-lab operators` lists its own, to "
        "train or tune"
    )


def title_of(text: str | bytes) -> str:
    """The title of the system of a JSON text. Raises as :func:`format_of`."""
    return find_system(format_of(text)).title


def format_named(name: str) -> str:
    """The format of a system that is named by its format or, in any case of letters, by its title: ``pgraphs``.

    A name of :data:`PAPERS` is one too. Raises SpecError where no system is called that.
    """
    for one in (name, PAPERS.get(name.lower())):
        if one in formats():
            return one
    titles = []
    for system in all_systems():
        titles.append(system.title.lower())
        if titles[-1] == name.lower():
            return system.format
    raise SpecError(f"expected a system among {', '.join(titles)}, found {quoted(shortened(name))}")


def find_card(words: Sequence[str]) -> PrimitiveCard:
    """The card of a primitive: ``["unfold"]`` of the first system that has it, or ``["canvas", "unfold"]`` of one.

    Letters may be large or small. Raises SpecError where no primitive is called that.
    """
    *system, name = words or [""]
    searched = [find_system(format_named(" ".join(system)))] if system else list(all_systems())
    known = []
    for one in searched:
        for card in one.cards().values() if isinstance(one, OfPrimitives) else ():
            if card.name.lower() == name.lower():
                return card
            known.append(card.name)
    raise SpecError(f"unknown primitive {quoted(shortened(name))}; known are {', '.join(known) or 'none'}")


def builder_of(text: str | bytes) -> str:
    """The builder of an operator's JSON, by which a tuning makes a TVM module of it. Raises as :func:`format_of`."""
    name = format_of(text)
    return BUILDERS.get(name, _BUILDER) if formats()[name] == SYSTEMS.get(name) else _BUILDER


def lower_json(operator_json: str, binding: Mapping[str, int], dtype: str) -> Any:
    """A TVM module of an operator's JSON: the builder of a system that names none."""
    return read_operator(operator_json).to_tvm(binding, dtype)


def builders() -> tuple[str, ...]:
    """The builders of all systems: a tuning, which may come from a file, names one of these."""
    return (*BUILDERS.values(), _BUILDER)


def is_operator(value: Any) -> bool:
    """Whether a value is an operator of a system that is known."""
    return isinstance(getattr(value, "format", None), str) and value.format in formats()


def operator_of(value: Any) -> Operator | None:
    """A value that is an operator, or the operator that it stands for in its system (a Canvas kernel); else None."""
    if is_operator(value):
        return value
    systems = (system for system in all_systems() if isinstance(system, StandsFor))
    return next((found for system in systems if (found := system.operator_of(value)) is not None), None)


def known_operators() -> dict[str, Callable[[], Operator]]:
    """The known operators of all systems by name; if two systems have a name, the first system's operator."""
    found: dict[str, Callable[[], Operator]] = {}
    for system in all_systems():
        found = {**system.known, **found}
    return found


def opened(value: Any, *, besides: Iterable[str] = ()) -> Any:
    """What a text or a path stands for: the known operator of that name, else the text of the file; all else as it is.

    The text of an operator's file or of a session stays as it is too. ``besides`` are further names, for the message.
    Raises FormatError where the file cannot be read; SynoError for neither a name, nor a file, nor such a text.
    """
    if not isinstance(value, str | Path) or (isinstance(value, str) and value.lstrip().startswith(_TEXTS)):
        return value
    name, known = str(value), known_operators()
    if isinstance(value, str) and name in known:
        return known[name]()
    path = Path(value)
    if not is_file(path):
        close = likeness(name, near := nearest(name, known)[0]) > _ALIKE
        hint = f"did you mean {near}?" if close else "`syno-lab operators` lists the names"
        wanted = ", ".join((*besides, "a known operator or an operator file"))
        raise SynoError(f"expected {wanted}, found {quoted(name)}; {hint}")
    return read_small(path, MAX_TEXT)


def operator_named(value: Any) -> Any:
    """The operator of a known name, a file or a file's text; all else as it is.

    Raises FormatError for a file or a text that is none of an operator; SynoError as :func:`opened`.
    """
    found = opened(value)
    return read_operator(found) if isinstance(found, str) else found


def system_for(start: Any) -> System:
    """The system whose steps lead on from a value: an operator, or what a system begins with (a spec, a state).

    Raises SpecError where no system knows the value.
    """
    if is_operator(start):
        return system_of(start)
    for system in all_systems():
        if isinstance(system, Stepwise) and system.construction.knows(start):
            return system
    raise SpecError(f"expected a spec, a state or an operator of a system that is known, found {type(start).__name__}")


@cache
def _load(place: str) -> System:
    module, _, name = place.partition(":")
    try:
        found: System = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise SpecError(f"{VARIABLE}: expected a system at {quoted(place)}, found: {shortened(str(error))}") from None
    missing = [method for method in ("format", "title", "read", "known") if not hasattr(found, method)]
    if missing:
        raise SpecError(
            f"{VARIABLE}: expected a system (syno_lab.protocol.System) at {quoted(place)}, "
            f"found one without {', '.join(missing)}"
        )
    return found
