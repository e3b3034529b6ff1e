"""What commands are given: operators by name or file, bindings as ``NAME=NUMBER``."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.ir.files import MAX_BYTES
from syno_lab.ir.operator import Operator


def known_names() -> list[str]:
    """The names of the known operators."""
    return list(import_module("syno_lab.operators").KNOWN)


def known_operator(name: str) -> Operator:
    """The known operator ``name``."""
    made = import_module("syno_lab.operators").KNOWN[name]()
    assert isinstance(made, Operator)
    return made


def load_operator(text: str, *, besides: Iterable[str] = ()) -> tuple[str, Operator]:
    """A label and the operator that ``text`` means: a known name, else an operator file.

    ``besides`` are further names that the command knows, for the message.

    Raises:
        FormatError: for a file that is not an operator file.
        SynoError: for neither a name nor a file.
    """
    names = known_names()
    if text in names:
        return text, known_operator(text)
    path = Path(text)
    if not path.is_file():
        near = difflib.get_close_matches(text, names, 1)
        hint = f"did you mean {near[0]}?" if near else "`syno-lab operators` lists the names"
        wanted = ", ".join((*besides, "a known operator or an operator file"))
        raise SynoError(f"expected {wanted}, found {text!r}; {hint}")
    try:
        return path.stem, Operator.from_json(read_small(path, MAX_BYTES))
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None


def read_small(path: Path, limit: int) -> str:
    """The text of a file of at most ``limit`` bytes.

    Raises:
        FormatError: when it is larger, cannot be read, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
        if len(content) > limit:
            raise FormatError(f"expected a file of at most {limit} bytes")
        return content.decode()
    except OSError as error:
        raise FormatError(f"{path}: expected a readable file, found: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise FormatError("expected text in UTF-8, found other bytes") from None


def parse_binding(texts: Iterable[str]) -> dict[str, int]:
    """``["C_in=64", "H=28"]`` as a dictionary.

    Raises:
        SpecError: for anything else, or a name given twice.
    """
    binding: dict[str, int] = {}
    for text in texts:
        name, equals, number = text.partition("=")
        name, number = name.strip(), number.strip()
        if not name or not equals or not (number.isascii() and number.isdecimal()) or int(number) < 1:
            raise SpecError(f"--bind: expected NAME=NUMBER such as C_in=64, found {text!r}")
        if name in binding:
            raise SpecError(f"--bind: {name} is given twice")
        binding[name] = int(number)
    return binding


def complete_binding(operator: Operator, texts: Iterable[str]) -> dict[str, int]:
    """The values of all variables of ``operator``: those given, then its defaults, checked against its sizes.

    Raises:
        SpecError: when one has no value, is unknown, or a size is not a positive integer.
    """
    given = parse_binding(texts)
    bound = operator.complete_binding({**(dict(operator.spec.bindings[0]) if operator.spec.bindings else {}), **given})
    operator.input_sizes(bound)
    operator.output_sizes(bound)
    operator.weight_sizes(bound)
    return bound
