"""The last resort: a fault inside any command is one line and status 70; its traceback is there for whoever asks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import pytest
from command_line import every_command

from syno_lab import cli
from syno_lab.cli import main

REPLACED = "\N{REPLACEMENT CHARACTER}"
HOSTILE = "two\nlines, \x1b[2J \u202e and " + "x" * 5000


#: Of arguments that are neither a job nor an operator.
_ARGUMENTS = {"ablation": "canonical"}


class UnspeakableError(RuntimeError):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise ValueError


def _commands() -> dict[str, tuple[list[str], CodeType]]:
    """Every command by its words, with arguments that it takes, and the code of its function."""

    found = {}
    for words, command in every_command():
        arguments = []
        for one in (one for one in command.params if one.required):
            arguments += one.opts[:1] if one.opts[0].startswith("-") else []
            arguments.append("1" if "JOB" in (one.metavar or "") else _ARGUMENTS.get(one.name, "conv2d"))
        found[" ".join(words)] = [*words, *arguments], command.callback.__wrapped__.__code__
    return found


COMMANDS = _commands()


@pytest.fixture
def fault() -> Iterator[Any]:
    """``fault(code, error)``: the first thing that this function calls raises the error instead."""
    before = sys.gettrace()

    def begin(code: CodeType, error: BaseException) -> None:
        def trace(frame: FrameType, event: str, argument: object) -> None:
            if event == "call" and frame.f_back is not None and frame.f_back.f_code is code:
                sys.settrace(before)
                raise error

        sys.settrace(trace)

    yield begin
    sys.settrace(before)


def test_all_commands_are_tried() -> None:
    assert {"lab", "demo", "search", "export", "jobs", "jobs list", "jobs allow", "kernel install"} <= set(COMMANDS)
    assert len(COMMANDS) > 25


@pytest.mark.parametrize("name", COMMANDS)
def test_a_fault_is_one_line(name: str, fault: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words, code = COMMANDS[name]
    fault(code, RuntimeError(HOSTILE))
    assert main(words) == cli.FAULT
    told = capsys.readouterr()
    assert told.out == ""
    (line,) = told.err.splitlines()
    assert line.startswith(f"syno-lab: RuntimeError: two lines, {REPLACED}[2J {REPLACED} and xxx")
    assert line.endswith("… (a fault of Syno Lab, not of yours; `syno-lab --traceback …` shows where it happened)")
    assert line.isprintable()
    assert len(line) < 450
    fault(code, RuntimeError(HOSTILE))
    assert main(["--traceback", *words]) == cli.FAULT
    *rest, last = capsys.readouterr().err.splitlines()
    assert last == line
    assert rest[0] == "Traceback (most recent call last):"
    assert any(f"in {code.co_name}" in one for one in rest)
    assert all(one.isprintable() for one in rest)


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (MemoryError(), 2, "expected what this machine has memory for, found: none left"),
        (RecursionError("too deep"), 70, "RecursionError: too deep (a fault"),
        (UnspeakableError(), 70, "UnspeakableError (a fault"),
        (BaseException("of a library in another language"), 70, "BaseException: of a library"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            OSError(28, "No space left\x1b", "/a\nfolder"),
            2,
            "/a\N{REPLACEMENT CHARACTER}folder: No space left\N{REPLACEMENT CHARACTER}",
        ),
    ],
)
def test_every_class_of_exception_ends_in_a_line(
    error: BaseException, status: int, line: str, fault: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    words, code = COMMANDS["operators"]
    fault(code, error)
    assert main(words) == status
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(f"syno-lab: {line}")


def test_a_traceback_is_shown_for_bad_input_as_well_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--traceback", "show", "nothing of this name"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "Traceback (most recent call last):"
    assert told[-1].startswith("syno-lab: ")
    assert main(["show", "nothing of this name"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1, "not for the next one"
