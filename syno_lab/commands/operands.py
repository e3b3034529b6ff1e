"""Arguments of commands: operators by name or file, bindings as ``NAME=NUMBER``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from syno_lab.errors import FormatError, SpecError, UnboundError
from syno_lab.inputs import MOST_DIGITS, QUOTED, integer, printable, quoted
from syno_lab.systems import known_operators, opened, read_operator

if TYPE_CHECKING:
    from syno_lab.protocol import Operator


def load_operator(text: str, *, besides: Iterable[str] = ()) -> tuple[str, Operator]:
    """A label and the operator that ``text`` means: a known name, else an operator file.

    ``besides`` are further names that the command knows, for the message.

    Raises:
        FormatError: for a file that is not an operator file.
        SynoError: for neither a name nor a file.
    """
    found = opened(text, besides=besides)
    if not isinstance(found, str):
        return text, found
    try:
        return ("operator" if found is text else Path(text).stem), read_operator(found)
    except FormatError as error:
        raise error if found is text else FormatError(f"{Path(text)}: {error}") from None


def parse_binding(texts: Iterable[str]) -> dict[str, int]:
    """``["C_in=64", "H=28"]`` as a dictionary.

    Raises:
        SpecError: for anything else, or a name given twice.
    """
    binding: dict[str, int] = {}
    for text in texts:
        name, equals, number = text.partition("=")
        name, number = name.strip(), number.strip()
        value = integer(number)
        if not name or not equals or not value:
            raise SpecError(
                f"--bind: expected NAME=NUMBER such as C_in=64, found {quoted(text)}; "
                f"at most {MOST_DIGITS} digits are read"
            )
        if name in binding:
            raise SpecError(f"--bind: {printable(name, QUOTED)} is given twice")
        binding[name] = value
    return binding


def complete_binding(operator: Operator, texts: Iterable[str] | None) -> dict[str, int]:
    """The values of all variables of ``operator``: those given, then its defaults, checked against its sizes.

    Raises:
        SpecError: when one has no value, is unknown, or a size is not a positive integer.
    """
    given = parse_binding(texts or ())
    try:
        defaults = operator.complete_binding()
    except SpecError:  # some variables have none
        defaults = {}
    try:
        bound = operator.complete_binding({**defaults, **given})
    except UnboundError as error:
        names, first = (printable(text, QUOTED) for text in (", ".join(error.names), error.names[0]))
        raise UnboundError(f"no value for {names}: give each one, as in `--bind {first}=1`", error.names) from None
    unknown = [name for name in given if name not in operator.variables]
    if unknown:
        declared = ", ".join(operator.variables)
        raise SpecError(f"binding: unknown variable {quoted(unknown[0])}; declared are {declared}")
    operator.input_sizes(bound)
    operator.output_sizes(bound)
    operator.weight_sizes(bound)
    return bound


def complete_operator(incomplete: str) -> Iterable[str]:
    """The names of known operators that begin so; where there is none, the shell completes files."""
    return [name for name in known_operators() if name.startswith(incomplete)]
