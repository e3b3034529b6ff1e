"""``syno-lab board``: print the commands to set up a board, step by step, and which steps are done."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import asdict
from typing import Annotated

import typer

from syno_lab.commands.doctor import say_findings
from syno_lab.commands.options import flag
from syno_lab.commands.output import Reporter, say, write_json
from syno_lab.errors import SynoError
from syno_lab.inputs import nearest, quoted

_TRACKER = "127.0.0.1:9190"
_MARKS = {"done": "done   ", "to do": "to do  ", "unknown": "       "}


def command(
    device: Annotated[
        str, typer.Option(help="jetson-orin-nano, jetson-agx-orin, jetson-xavier, or a name of your own.")
    ] = "jetson-orin-nano",
    key: Annotated[str, typer.Option(help="The board's key at the tracker. [default: the target's name]")] = "",
    ssh: Annotated[str, typer.Option(metavar="USER@BOARD", help="How to reach the board by SSH.")] = "user@jetson",
    no_tunnel: Annotated[bool, flag("--no-tunnel", "Has no effect any more: a board is reached by SSH.")] = False,
    tracker: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help=f"The address of the tracker on this machine. [default: {_TRACKER}; to emulate, a new one]",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port of the board's server.")] = 9090,
    save_server: Annotated[str | None, typer.Option(metavar="PATH", help="Write the board's server there.")] = None,
    emulate: Annotated[
        bool, flag("--emulate", "Run an aarch64 board in an emulator here until Ctrl-C; its latencies mean nothing.")
    ] = False,
    fetch: Annotated[bool, flag("--fetch", "With --emulate: download the missing files (220 MB, no root).")] = False,
    check: Annotated[
        bool, flag("--check", "With --emulate: stop after the board has run an operator compiled here.")
    ] = False,
) -> None:
    """Set up a board: print the commands for the board and for this machine, and check the steps that can be checked.

    With --emulate, start a board here: the RPC server of an aarch64 board, run by an emulator of its processor.
    """
    if emulate:
        if no_tunnel or save_server is not None:
            raise SynoError("--emulate: expected no set-up of a real board; leave --no-tunnel and --save-server out")
        _emulate(key, tracker, fetch, check)
        return
    if fetch or check:
        raise SynoError("expected --emulate beside --fetch and --check")
    if not key and (not device or any(letter.isspace() or letter == ":" for letter in device)):
        raise SynoError(f"expected a device's name without blanks and colons, found {quoted(device)}")
    from syno_lab.codegen.target_names import TARGETS
    from syno_lab.tuning import setup

    plan = setup.Plan(device, key, tracker or _TRACKER, port, ssh)
    steps, warnings = setup.checked(plan)
    if no_tunnel:
        warnings.append(
            "--no-tunnel has no effect any more: TVM's RPC has no password, so all listens on loopback and a board is "
            f"reached by SSH, here as {ssh} (--ssh names another)"
        )
    if device not in TARGETS:
        warnings.append(
            f"there is no target {quoted(device)}, so that a tuning on this board needs --target; there are "
            f"{', '.join(nearest(device, TARGETS))}, and TVM's own"
        )
    if save_server is not None:
        say(f"wrote {setup.save_server(save_server)}: copy it to the board")
    for number, step in enumerate(steps, start=1):
        where = "here" if step.where == "here" else "on the board"
        say(f"{_MARKS[step.state]}{number}. {step.title}, {where}. {step.why}")
        for line in step.commands:
            say(f"             {line}")
        if step.found:
            say(f"          -> {step.found}")
    for line in warnings:
        say(f"warning: {line}")
    write_json({"key": plan.name, "steps": [asdict(step) for step in steps], "warnings": warnings})


def _emulate(key: str, tracker: str | None, fetch: bool, check: bool) -> None:
    """Start the emulated board, check the board as ``doctor`` does, and let it run until Ctrl-C."""
    from syno_lab.tuning.checkup import check_up
    from syno_lab.tuning.emulated import KEY, emulated_board
    from syno_lab.tuning.emulated_files import fetch_board

    with Reporter() as report, contextlib.ExitStack() as stack:
        if fetch:
            fetch_board(report=lambda line: report("fetch", 0.0, line))
        report("board", 0.0, "starting an aarch64 server in the emulator")
        board = stack.enter_context(emulated_board(key or KEY, tracker=tracker))
        address = f"{board.host}:{board.port}"
        report("board", 0.5, f"{board.key} is at the tracker {address}; trying a kernel")
        findings = list(check_up(address, board.key, target=KEY))
        report("board", 1.0, f"{len(findings)} checks")
        healthy = say_findings(findings, {"key": board.key, "tracker": address}, "note   ")
        if not check:
            say(f"use it with --tracker {address} --key {board.key} --target {KEY}; Ctrl-C ends it")
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()
    if not healthy:
        raise typer.Exit(1)
