"""Options that several commands share."""

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
    """The options that decide how a network for a training is built, and its numeric precision."""

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
        """Return the options of the network that the user has set. Raises SpecError as :func:`backbone_options`."""
        sizes = {"width": self.width, "blocks": self.blocks}
        return {name: value for name, value in sizes.items() if value} | backbone_options(self.option or ())

    def precision_on(self, device: str) -> Literal["float32", "bfloat16", "float16"]:
        """Return the precision of a request; for ``fastest``, measure which precision is fastest."""
        if self.precision != "fastest":
            return self.precision
        from syno_lab.training.recipes import fastest_precision

        return fastest_precision(device)


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``command`` with a signature for typer and with the option ``--json``.

    A parameter that is a dataclass or a struct is a group of options. Each field becomes an option, in order, and the
    command receives the complete group. The fields of a dataclass have types, help texts and defaults like the
    parameters of a command. The fields of a struct have metadata of :func:`syno_lab.settings.setting`. Option names are
    unique. Numbers of more than 18 digits are refused, because SQLite and torch cannot store them.
    """
    json = inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=JsonTarget)
    options = [*_options(command), json]

    @wraps(command)
    def call(json: str | None, **given: Any) -> Any:
        for name, value in given.items():
            for v in value if isinstance(value, list) else (value,):
                if isinstance(v, int) and abs(v) >= 10**MOST_DIGITS:
                    option = name.replace("_", "-")
                    raise SynoError(f"{option}: expected a number of at most {MOST_DIGITS} digits, found {quoted(v)}")
        with json_to(json):
            return _called(command, given)

    call.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return call


def _parts(called: Callable[..., Any]) -> Iterator[tuple[str, inspect.Parameter]]:
    """Yield the name of each parameter of a command, or of each field of a group, with its parameter for typer."""
    hints = get_type_hints(called, include_extras=True)
    about = settings_of(called) if isinstance(called, type) and issubclass(called, msgspec.Struct) else None
    for name, parameter in inspect.signature(called).parameters.items():
        option_parameter = parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[name])
        if about is None:
            yield name, option_parameter
        elif name in about:
            more = about[name].extra or {}
            names = more["names"] or (f"--{name.replace('_', '-')}",)  # a flag needs a name, else typer adds --no-…
            option = typer.Option(*names, help=about[name].description, metavar=more["metavar"], min=more["least"])
            kind: Any = Annotated[get_args(hints[name])[0], option]
            yield name, option_parameter.replace(name=names[0].strip("-").replace("-", "_"), annotation=kind)


def _is_group(kind: Any) -> bool:
    return isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, msgspec.Struct))


def _options(called: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    for _, parameter in _parts(called):
        yield from _options(parameter.annotation) if _is_group(parameter.annotation) else [_masked(parameter)]


def _masked(option: inspect.Parameter) -> inspect.Parameter:
    """Escape the help text of an option: rich would take ``[default: none]`` for markup and omit it."""
    kind, *metadata = get_args(option.annotation) or (option.annotation,)
    if not metadata or not getattr(metadata[0], "help", None):
        return option
    shown = copy(metadata[0])  # several commands may share the parameter object
    shown.help = escape(shown.help)
    return option.replace(annotation=Annotated[kind, shown])


def _called(called: Callable[..., Any], values: dict[str, Any]) -> Any:
    """Call the command, or create the group, with its values from the command line."""
    return called(
        **{
            name: _called(parameter.annotation, values) if _is_group(parameter.annotation) else values[parameter.name]
            for name, parameter in _parts(called)
        }
    )


def check_board(tracker: str, key: str, deadline_s: float = 5.0) -> None:
    """Check that a device with this key is at the tracker; warn if other machines can reach the tracker.

    Raises TrackerError if there is no device.
    """
    from syno_lab.tuning.checkup import public_address, warning
    from syno_lab.tuning.tracker import check_tracker, parse_address

    host, port = parse_address(tracker)
    check_tracker(host, port, key, min(5.0, deadline_s), need_free=False)
    public = public_address(host, port)
    if public is not None:
        say(f"warning: the tracker {warning(public)}")


def flag(name: str, explanation: str) -> Any:
    """Return an option that takes no value, such as ``--fetch``. Without a name, typer would add ``--no-fetch``."""
    return typer.Option(name, help=explanation)


def backbone_options(texts: Iterable[str]) -> dict[str, JSON]:
    """Parse ``--option NAME=VALUE``: numbers, true and lists as in JSON; any other value as text.

    Raises SpecError for a text in another form.
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
    """Return the absolute path of data, for all processes and working folders; the name ``digits`` stays unchanged."""
    from syno_lab.data.datasets import DIGITS

    return data if data == DIGITS else str(Path(data).expanduser().absolute())


def named_value(text: str, option: str, example: str) -> tuple[str, str]:
    """Split ``NAME=VALUE``. Raises SpecError, which names the option and an example, for any other text."""
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise SpecError(f"{option}: expected NAME=VALUE such as {example}, found {quoted(text)}")
    return name.strip(), value
