"""Options that several commands have."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
import typer
from rich.markup import escape

from syno_lab.commands.output import JsonTarget, json_to, say
from syno_lab.errors import SpecError, SynoError
from syno_lab.inputs import MOST_DIGITS, quoted
from syno_lab.settings import settings_of
from syno_lab.versioned import JSON

#: The rules for early termination.
Rule = Literal["canvas", "median", "percentile", "halving"]

DataOption = Annotated[
    str | None,
    typer.Option(
        help="A folder with CIFAR or with images in class folders, a text file, or 'digits'. "
        "[default: $SYNO_LAB_DATA, else digits]"
    ),
]
"""What a network is trained on."""


@dataclass(frozen=True)
class Built:
    """How a network that is trained is built, and in which numbers it computes."""

    width: Annotated[int | None, typer.Option(min=1, help="Channels of the network. [default: its own]")] = None
    blocks: Annotated[int | None, typer.Option(min=1, help="Residual blocks in each stage. [default: its own]")] = None
    option: Annotated[
        list[str] | None,
        typer.Option(help="Another option of the network, as in layers=2, context=128, tokens=bpe, strides=shape."),
    ] = None
    precision: Annotated[
        Literal["float32", "bfloat16", "float16", "fastest"],
        typer.Option(help="Of matrix products and convolutions; fastest is measured on the processor."),
    ] = "float32"

    def options(self) -> dict[str, JSON]:
        """The options of the network that are given. Raises SpecError as :func:`backbone_options`."""
        sizes = {"width": self.width, "blocks": self.blocks}
        return {name: value for name, value in sizes.items() if value} | backbone_options(self.option or ())

    def precision_on(self, device: str) -> Literal["float32", "bfloat16", "float16"]:
        """The precision that a request has."""
        if self.precision != "fastest":
            return self.precision
        from syno_lab.training.recipes import fastest_precision

        return fastest_precision(device)


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``command`` as typer takes it, with the option ``--json``.

    A parameter that is a dataclass or a struct is a group: it becomes an option for each of its fields, in their order,
    and what is given comes as one. The fields of a dataclass have their types, helps and defaults as parameters of a
    command have theirs; those of a struct have them as :func:`syno_lab.settings.setting` says. No two options have one
    name. Numbers of more than 18 digits are refused: SQLite and torch cannot hold them.
    """
    json = inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=JsonTarget)
    options = [*_options(command), json]

    @wraps(command)
    def call(json: str | None, **given: Any) -> Any:
        for name, value in given.items():
            for one in value if isinstance(value, list) else (value,):
                if isinstance(one, int) and abs(one) >= 10**MOST_DIGITS:
                    option = name.replace("_", "-")
                    raise SynoError(f"{option}: expected a number of at most {MOST_DIGITS} digits, found {quoted(one)}")
        with json_to(json):
            return _called(command, given)

    call.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return call


def _parts(called: Callable[..., Any]) -> Iterator[tuple[str, inspect.Parameter]]:
    """The parameters of a command, or the fields of a group, by name, as typer takes them."""
    hints = get_type_hints(called, include_extras=True)
    about = settings_of(called) if isinstance(called, type) and issubclass(called, msgspec.Struct) else None
    for name, one in inspect.signature(called).parameters.items():
        found = one.replace(kind=one.KEYWORD_ONLY, annotation=hints[name])
        if about is None:
            yield name, found
        elif name in about:
            more = about[name].extra or {}
            names = more["names"] or (f"--{name.replace('_', '-')}",)  # named, or typer adds a --no-… to a flag
            option = typer.Option(*names, help=about[name].description, metavar=more["metavar"], min=more["least"])
            kind: Any = Annotated[get_args(hints[name])[0], option]
            yield name, found.replace(name=names[0].strip("-").replace("-", "_"), annotation=kind)


def _is_group(kind: Any) -> bool:
    return isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, msgspec.Struct))


def _options(called: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    for _, one in _parts(called):
        yield from _options(one.annotation) if _is_group(one.annotation) else [_masked(one)]


def _masked(option: inspect.Parameter) -> inspect.Parameter:
    """The option with a help that is text: rich would take ``[default: none]`` for markup, and leave it out."""
    kind, *found = get_args(option.annotation) or (option.annotation,)
    if not found or not getattr(found[0], "help", None):
        return option
    shown = copy(found[0])  # several commands may share it
    shown.help = escape(shown.help)
    return option.replace(annotation=Annotated[kind, shown])


def _called(called: Callable[..., Any], given: dict[str, Any]) -> Any:
    """The command's answer, or the group, with what is given for it."""
    return called(
        **{
            name: _called(one.annotation, given) if _is_group(one.annotation) else given[one.name]
            for name, one in _parts(called)
        }
    )


def check_board(tracker: str, key: str, deadline_s: float = 5.0) -> None:
    """Make sure that a device of that key is behind the tracker, and warn in one line where others can reach it.

    Raises TrackerError: there is none.
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


def backbone_options(texts: Iterable[str]) -> dict[str, JSON]:
    """The values of ``--option NAME=VALUE``: numbers, true and lists of texts as in JSON; all else is a text.

    Raises SpecError for a text that is not of this form.
    """
    options: dict[str, JSON] = {}
    for text in texts:
        name, value = named_value(text, "--option", "layers=2")
        try:
            options[name] = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            options[name] = value
    return options


def whole_path(data: str) -> str:
    """The path of data, absolute, so that it holds in every process and folder; ``digits`` is none."""
    from syno_lab.data.datasets import DIGITS

    return data if data == DIGITS else str(Path(data).expanduser().absolute())


def named_value(text: str, option: str, example: str) -> tuple[str, str]:
    """The name and the value of ``NAME=VALUE``; SpecError, with the option and an example, for another text."""
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise SpecError(f"{option}: expected NAME=VALUE such as {example}, found {quoted(text)}")
    return name.strip(), value
