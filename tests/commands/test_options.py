"""Options in groups: a command with dataclasses of options is to typer the one with an option for each field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from syno_lab.commands import output
from syno_lab.commands.options import with_options
from syno_lab.commands.output import JsonTarget
from syno_lab.errors import SearchError
from syno_lab.settings import check_bounds, setting


@dataclass(frozen=True)
class Size:
    """A group with a default and an option whose name is not its field's."""

    width: Annotated[int, typer.Option(min=1, help="Columns.")]
    height: Annotated[int | None, typer.Option("--rows")] = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The same as settings; what is none is no option."""

    width: Annotated[int, setting("Columns.", least=1)]
    height: Annotated[int | None, setting("", "--rows")] = None
    depth: int = 1


def flat(
    name: Annotated[str, typer.Argument()],
    width: Annotated[int, typer.Option(min=1, help="Columns.")],
    height: Annotated[int | None, typer.Option("--rows")] = None,
    deep: Annotated[bool, typer.Option()] = False,
    json: JsonTarget = None,
) -> None:
    """Say what was given."""
    typer.echo(f"{name} {width} {height} {deep} {json}")


def in_groups(
    name: Annotated[str, typer.Argument()], size: Size, deep: Annotated[bool, typer.Option()] = False
) -> None:
    """Say what was given."""
    typer.echo(f"{name} {size.width} {size.height} {deep} {output._target.get()}")


def in_settings(
    name: Annotated[str, typer.Argument()], size: Settings, deep: Annotated[bool, typer.Option()] = False
) -> None:
    """Say what was given."""
    typer.echo(f"{name} {size.width} {size.height} {deep} {output._target.get()}")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["box", "--width", "3"],
        ["box", "--width", "3", "--rows", "4", "--deep"],
        ["box", "--width", "3", "--json", "box.json"],
        ["box"],
        ["box", "--width", "0"],
        ["box", "--width", "3", "--height", "4"],
    ],
)
def test_a_group_is_an_option_for_each_field(arguments: list[str]) -> None:
    answers = []
    for command in (flat, with_options(in_groups), with_options(in_settings)):
        app = typer.Typer()
        app.command("say")(command)
        answered = CliRunner().invoke(app, arguments)
        answers.append((answered.exit_code, answered.output))
    assert answers[0] == answers[1] == answers[2]


def test_a_number_out_of_the_bounds_of_its_setting_is_refused() -> None:
    check_bounds(Settings(width=1, height=-3))
    with pytest.raises(SearchError, match="width: expected 1 or more, found 0"):
        check_bounds(Settings(width=0))
