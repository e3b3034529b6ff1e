"""The known systems of operators, by the ``format`` in the JSON of their operators.

Only the systems listed here or in the environment variable :data:`VARIABLE` are imported. The process reads the
variable when it starts. A file names a format, never a module.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.inputs import is_file, likeness, nearest, quoted, shortened
from syno_lab.later import later
from syno_lab.protocol import ComputesLayers, OfLayers, OfPrimitives, Ruled, Searched, StandsFor, Stepwise
from syno_lab.versioned import read_small, reason

if TYPE_CHECKING:
    from syno_lab.models.sites import Site
    from syno_lab.protocol import Binding, Operator, OperatorSpace, PrimitiveCard, SpaceRequest, System
    from syno_lab.sessions.own_rule import OwnRule

#: The most bytes that are read of an operator's JSON, and of a session's text.
MAX_BYTES, MAX_TEXT = 1 << 20, 1 << 22
#: How texts of files and of sessions begin, and the least likeness of a suggested name.
_TEXTS, _ALIKE = ("{", "syno-session:"), 0.7
#: What stands before a known operator or a search that is the name of another thing too; the name of a best trial.
KNOWN, SEARCH, BEST = "known:", "search:", "best"
#: The environment variable that adds systems (``"format=module:name;…"``) and removes a system (``"format="``).
VARIABLE = "SYNO_LAB_SYSTEMS"


#: The ``"module:name"`` of each :class:`~syno_lab.protocol.System`, imported on first use.
SYSTEMS = {
    "syno-lab-operator": "syno_lab.pgraphs.system:PGRAPHS",
    "syno-lab-canvas": "syno_lab.canvas.system:CANVAS",
    "syno-lab-alpha": "syno_lab.alpha.system:ALPHA",
    "syno-lab-nas-pte": "syno_lab.nas_pte.system:NAS_PTE",
}
#: The builders other than :func:`lower_json`, as ``"module:function"``. In the process of a tuning, a builder makes a
#: TVM module from an operator's JSON. The builder's text is a part of the key of tuning records.
BUILDERS = {
    "syno-lab-operator": "syno_lab.codegen.tvm_target:lower_json",
    "syno-lab-nas-pte": "syno_lab.nas_pte.tvm:lower_json",
}
_BUILDER = f"{__name__}:lower_json"
#: The default system: its format, and its name for users.
DEFAULT, DEFAULT_NAME = "syno-lab-operator", "pgraphs"
#: The formats by the names of the papers, if a paper's name differs from the title of the system.
PAPERS = {"syno": "syno-lab-operator", "alpha": "syno-lab-alpha", "alphanas": "syno-lab-alpha"}


class _Header(msgspec.Struct):
    format: str = ""


def formats() -> dict[str, str]:
    """Return the ``"module:name"`` of each known system by its format. Raises SpecError if ``VARIABLE`` is invalid."""
    targets = dict(SYSTEMS)
    for entry in filter(None, (part.strip() for part in os.environ.get(VARIABLE, "").split(";"))):
        name, equals, target = entry.partition("=")
        if not name or not equals or (target and target.count(":") != 1):
            raise SpecError(f"{VARIABLE}: expected format=module:name;…, found {quoted(entry)}")
        if target:
            targets[name] = target
        else:
            targets.pop(name, None)
    return targets


def all_systems() -> Iterator[System]:
    """Yield every system; import a system only when it is yielded."""
    return (find_system(name) for name in formats())


def find_system(name: str) -> System:
    """Return the system of a format. Raises FormatError for an unknown format."""
    rows = formats()
    if name not in rows:
        raise FormatError(f"system: expected a format among {', '.join(rows)}, found {quoted(name)}")
    return _load(rows[name])


def system_of(operator: Operator) -> System:
    """Return the system of an operator. Raises FormatError if no system has its format."""
    return find_system(operator.format)


def format_of(text: str | bytes) -> str:
    """Return the format that a JSON text names.

    Raises FormatError if the text is too long, is no JSON, or names no known format.
    """
    if len(text) > MAX_BYTES:
        raise FormatError(f"operator file: expected at most {MAX_BYTES} bytes, found {len(text)}")
    try:
        format_name = msgspec.json.decode(text, type=_Header).format
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise FormatError(f"operator file: expected JSON of an operator: {reason(error)}") from None
    rows = formats()
    if format_name not in rows:
        expected = f"format {quoted(next(iter(rows)))}" if len(rows) == 1 else f"a format among {', '.join(rows)}"
        raise FormatError(f"operator file: expected {expected}, found {quoted(shortened(format_name))}")
    return format_name


def read_operator(text: str | bytes) -> Operator:
    """Read the operator of a JSON text, of any system.

    Raises FormatError; its line names the expected value, the found value, and where it was found.
    """
    return find_system(format_of(text)).read(text)


def operator_for(site: Site) -> tuple[Operator, dict[str, int]]:
    """Return a network's layer as an operator of the first system that supports it, and the operator's sizes.

    Raises the SpecError of the first system that refuses the layer, if all systems refuse it.
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
    """Return the sizes of an operator's variables for a layer: see :meth:`.OfLayers.binding_for`.

    Raises SpecError if the operator does not fit, or is a whole network.
    """
    system = system_of(operator)
    if not isinstance(system, OfLayers):
        raise SpecError(f"expected an operator for one layer, found a whole network of {system.title}: {operator}")
    input_sizes, output_sizes = sizes
    return system.binding_for(operator, named, input_sizes, output_sizes)


def space_of(system: System, request: SpaceRequest, rules: Sequence[OwnRule] = ()) -> OperatorSpace:
    """Return the space of a system for a request, without operators that the user's rules refuse.

    Raises SpecError if the system has no space.
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
    """Return the title of the system that a JSON text of an operator names. Raises as :func:`format_of`."""
    return find_system(format_of(text)).title


def format_named(name: str) -> str:
    """Return the format of a system by its format or, in upper or lower case, its title, such as ``pgraphs``.

    The names in :data:`PAPERS` are valid too. Raises SpecError if no system has this name.
    """
    for format_name in (name, PAPERS.get(name.lower())):
        if format_name in formats():
            return format_name
    titles = []
    for system in all_systems():
        titles.append(system.title.lower())
        if titles[-1] == name.lower():
            return system.format
    raise SpecError(f"expected a system among {', '.join(titles)}, found {quoted(shortened(name))}")


def find_card(words: Sequence[str]) -> PrimitiveCard:
    """Return the card of a primitive: ``["unfold"]`` of the first system with it, ``["canvas", "unfold"]`` of Canvas.

    Upper and lower case are not distinguished. Raises SpecError if no primitive has this name.
    """
    *system, name = words or [""]
    searched = [find_system(format_named(" ".join(system)))] if system else list(all_systems())
    known = []
    for searched_system in searched:
        for card in searched_system.cards().values() if isinstance(searched_system, OfPrimitives) else ():
            if card.name.lower() == name.lower():
                return card
            known.append(card.name)
    raise SpecError(f"unknown primitive {quoted(shortened(name))}; known are {', '.join(known) or 'none'}")


def builder_of(text: str | bytes) -> str:
    """Return the builder of an operator's JSON, for TVM modules in tunings. Raises as :func:`format_of`."""
    name = format_of(text)
    return BUILDERS.get(name, _BUILDER) if formats()[name] == SYSTEMS.get(name) else _BUILDER


def lower_json(operator_json: str, binding: Mapping[str, int], dtype: str) -> Any:
    """Make a TVM module from an operator's JSON; the builder for systems that have no entry in :data:`BUILDERS`."""
    return read_operator(operator_json).to_tvm(binding, dtype)


def builders() -> tuple[str, ...]:
    """List the builders of all systems. A tuning, which may come from a file, must name a listed builder."""
    return (*BUILDERS.values(), _BUILDER)


def is_operator(value: Any) -> bool:
    """Return whether a value is an operator of a known system."""
    return isinstance(getattr(value, "format", None), str) and value.format in formats()


def operator_of(value: Any) -> Operator | None:
    """Return an operator unchanged, or the operator that a value represents (a Canvas kernel); else None."""
    if is_operator(value):
        return value
    systems = (system for system in all_systems() if isinstance(system, StandsFor))
    return next((found for system in systems if (found := system.operator_of(value)) is not None), None)


def known_operators() -> dict[str, Callable[[], Operator]]:
    """Return the known operators of all systems by name; for equal names, the first system's operator."""
    operators: dict[str, Callable[[], Operator]] = {}
    for system in all_systems():
        operators = {**system.known, **operators}
    return operators


class Named(NamedTuple):
    """An operator with the name by which it was found: a known name, a file's, or ``SEARCH#NUMBER``.

    ``places`` are the layers of a trial: a name for those of each size, and the sizes of its variables there.
    """

    label: str
    operator: Operator
    places: Sequence[tuple[str, Mapping[str, int]]] = ()


def opened(value: Any) -> Any:
    """Return the operator of a name, or the text of a file, as :func:`named` finds them; any other value unchanged."""
    found = _found(value) if isinstance(value, str | Path) else value
    return found.operator if isinstance(found, Named) else found


def _found(value: str | Path, folder: str | Path | None = None, besides: Iterable[str] = ()) -> Named | str:
    """Return the operator of a name, the text of a file, or a text that is no name unchanged."""
    name, is_name = str(value), isinstance(value, str)
    if is_name and name.lstrip().startswith(_TEXTS):
        return name
    known, plain = known_operators(), name.removeprefix(KNOWN)
    is_known, is_trial = is_name and plain in known, is_name and "#" in name and os.sep not in name
    is_key = (is_known and plain != name) or (is_trial and name.startswith(SEARCH))
    ways = {f"{KNOWN}{plain}": "the known operator"} if is_known else {}
    if not is_key and is_file(name):
        ways[f".{os.sep}{name}"] = "the file"
    if is_trial and (not ways or later("find_search", name, folder)):
        ways[SEARCH + name.removeprefix(SEARCH)] = "the trial"
    if len(ways) > 1:
        words = " or ".join(f"{way} for {thing}" for way, thing in ways.items())
        raise SynoError(f"{quoted(name)} is the name of two things: write {words}")
    if is_known:
        return Named(plain, known[plain]())
    if "the trial" in ways.values():
        trial: Named = later("trial_named", name, folder)
        return trial
    if ways:
        return read_small(Path(name), MAX_TEXT)
    near = nearest(name, known)[0]
    hint = f"did you mean {near}?" if likeness(name, near) > _ALIKE else "`syno-lab operators` lists the names"
    if is_name and later("find_search", f"{name}#", folder):
        hint = f"a search has this name: write {name}#{BEST} for its best operator"
    wanted = ", ".join((*besides, "a known operator, an operator file or a trial (SEARCH#12)"))
    raise SynoError(f"expected {wanted}, found {quoted(name)}; {hint}")


def named(value: str | Path, folder: str | Path | None = None, *, besides: Iterable[str] = ()) -> Named:
    """Return the operator of a name (``conv2d``, ``known:conv2d``, ``search#12``, ``search#best``), a file or its text.

    ``folder`` is the lab of the trials (None: the default lab); ``besides`` lists further values, for the message.

    Raises FormatError for a file or text without an operator; StoreError for a trial that is not there or failed;
    SynoError for a name of two things, or of none.
    """
    found = _found(value, folder, besides)
    if isinstance(found, Named):
        return found
    try:
        return Named("operator" if found is value else Path(value).stem, read_operator(found))
    except FormatError as error:
        raise error if found is value else FormatError(f"{Path(value)}: {error}") from None


def system_for(start: Any) -> System:
    """Return the system whose steps can continue from a value: an operator, a spec or a state.

    Raises SpecError if no system accepts the value.
    """
    if is_operator(start):
        return system_of(start)
    for system in all_systems():
        if isinstance(system, Stepwise) and system.construction.knows(start):
            return system
    raise SpecError(f"expected a spec, a state or an operator of a system that is known, found {type(start).__name__}")


@cache
def _load(target: str) -> System:
    module, _, name = target.partition(":")
    try:
        found: System = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise SpecError(f"{VARIABLE}: expected a system at {quoted(target)}, found: {shortened(str(error))}") from None
    missing = [method for method in ("format", "title", "read", "known") if not hasattr(found, method)]
    if missing:
        raise SpecError(
            f"{VARIABLE}: expected a system (syno_lab.protocol.System) at {quoted(target)}, "
            f"found one without {', '.join(missing)}"
        )
    return found
