"""Asking ``syno-lab`` in this process."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer

from syno_lab.cli import app, main

#: A spec file's content, small enough to be searched whole.
TINY = {"input_shape": "[H]", "output_shape": "[H]", "primary_specs": ["H=4: 0"], "coefficient_specs": ["k=3: 2"]}


def answered(
    capsys: pytest.CaptureFixture[str], *arguments: str, command: Callable[[tuple[str, ...]], int] = main
) -> str:
    """What ``syno-lab`` prints to standard output."""
    status = command(arguments)
    captured = capsys.readouterr()
    assert status == 0, captured.err
    return captured.out


def refused(
    capsys: pytest.CaptureFixture[str], *arguments: str, command: Callable[[tuple[str, ...]], int] = main
) -> str:
    """The one line with which ``syno-lab`` refuses the arguments, progress before it left out."""
    status = command(arguments)
    captured = capsys.readouterr()
    assert status == 2
    assert captured.out == ""
    *progress, line = captured.err.splitlines()
    assert all(re.match(r"\w+ +\d+ %", text) for text in progress), captured.err
    assert line.startswith("syno-lab: ")
    return line


def every_command() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each command by its words, with what typer has made of it."""

    def walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        if hasattr(command, "commands"):
            if words and command.invoke_without_command:
                yield words, command
            for name, one in command.commands.items():
                yield from walk(one, (*words, name))
        else:
            yield words, command

    return walk(typer.main.get_command(app), ())
