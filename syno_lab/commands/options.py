"""Options that several commands have."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_type_hints

import msgspec
import typer

from syno_lab.commands.output import JsonTarget, json_to, say
from syno_lab.errors import SpecError, SynoError
from syno_lab.inputs import MOST_DIGITS, quoted

TrackerOption = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="An RPC tracker. [default: none, this machine itself]")
]
"""The address of the tracker that knows the board of a tuning."""


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``command`` as typer takes it, with the option ``--json``.

    A parameter that is a dataclass becomes an option for each of its fields, which have their types, helps and defaults
    as parameters of a command have theirs. The options come in the order of the parameters and fields; no two have one
    name. Numbers of more than 18 digits are refused: SQLite and torch cannot hold them.
    """
    kinds = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in kinds.items() if is_dataclass(kind)}
    options: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        group = groups.get(parameter.name)
        found = [parameter] if group is None else inspect.signature(group).parameters.values()
        hints = kinds if group is None else get_type_hints(group, include_extras=True)
        options += [one.replace(kind=one.KEYWORD_ONLY, annotation=hints[one.name]) for one in found]
    options.append(inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=JsonTarget))

    @wraps(command)
    def call(json: str | None, **given: Any) -> Any:
        for name, value in given.items():
            for one in value if isinstance(value, list) else (value,):
                if isinstance(one, int) and abs(one) >= 10**MOST_DIGITS:
                    option = name.replace("_", "-")
                    raise SynoError(f"{option}: expected a number of at most {MOST_DIGITS} digits, found {quoted(one)}")
        values = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        with json_to(json):
            return command(**values, **given)

    call.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return call


def check_board(tracker: str, key: str, deadline_s: float = 5.0) -> None:
    """Make sure that a device of that key is behind the tracker, and warn in one line where others can reach it.

    Raises:
        TrackerError: there is none.
    """
    from syno_lab.tuning.checkup import public_address, warning
    from syno_lab.tuning.tracker import check_tracker, parse_address

    host, port = parse_address(tracker)
    check_tracker(host, port, key, min(5.0, deadline_s), need_free=False)
    public = public_address(host, port)
    if public is not None:
        say(f"warning: the tracker {warning(public)}")


def flag(name: str, explanation: str) -> Any:
    """An option without a value, such as ``--fetch``. It needs its name, or typer adds a ``--no-fetch`` to it."""
    return typer.Option(name, help=explanation)


def backbone_options(texts: Iterable[str]) -> dict[str, Any]:
    """The values of ``--option NAME=VALUE``: numbers, true and lists of texts as in JSON; all else is a text.

    Raises:
        SpecError: for a text that is not of this form.
    """
    options: dict[str, Any] = {}
    for text in texts:
        name, value = named_value(text, "--option", "layers=2")
        try:
            options[name] = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            options[name] = value
    return options


def named_value(text: str, option: str, example: str) -> tuple[str, str]:
    """The name and the value of ``NAME=VALUE``; SpecError, with the option and an example, for another text."""
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise SpecError(f"{option}: expected NAME=VALUE such as {example}, found {quoted(text)}")
    return name.strip(), value
