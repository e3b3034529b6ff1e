"""Options in groups: a command with dataclasses of options is to typer the one with an option for each field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from syno_lab.commands import output
from syno_lab.commands.options import with_options
from syno_lab.commands.output import JsonTarget


@dataclass(frozen=True)
class Size:
    """A group with a default and an option whose name is not its field's."""

    width: Annotated[int, typer.Option(min=1, help="Columns.")]
    height: Annotated[int | None, typer.Option("--rows")] = None


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
    for command in (flat, with_options(in_groups)):
        app = typer.Typer()
        app.command("say")(command)
        answered = CliRunner().invoke(app, arguments)
        answers.append((answered.exit_code, answered.output))
    assert answers[0] == answers[1]
