"""``syno-lab board``: what to run on a board and here, step by step, and which steps are done."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from syno_lab.commands.output import JsonTarget, check_json, say, write_json
from syno_lab.errors import SynoError

_MARKS = {"done": "done   ", "to do": "to do  ", "unknown": "       "}


def command(
    device: Annotated[
        str, typer.Option(help="jetson-orin-nano, jetson-agx-orin, jetson-xavier, or a name of your own.")
    ] = "jetson-orin-nano",
    key: Annotated[str, typer.Option(help="The board's key at the tracker. [default: the target's name]")] = "",
    ssh: Annotated[str, typer.Option(metavar="USER@BOARD", help="How to reach the board by SSH.")] = "user@jetson",
    no_tunnel: Annotated[
        bool, typer.Option("--no-tunnel", help="The board is on a trusted network: no SSH tunnel.")
    ] = False,
    tracker: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the tracker on this machine listens.")
    ] = "127.0.0.1:9190",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port of the board's server.")] = 9090,
    save_server: Annotated[str | None, typer.Option(metavar="PATH", help="Write the board's server there.")] = None,
    json: JsonTarget = None,
) -> None:
    """Set up a board: the commands for it and for this machine, each checked where that is possible from here."""
    check_json(json)
    if not key and (not device or any(letter.isspace() or letter == ":" for letter in device)):
        raise SynoError(f"expected a device's name without blanks and colons, found {device!r}")
    from syno_lab.evaluate.tuning import setup

    plan = setup.Plan(device, key, tracker, port, None if no_tunnel else ssh)
    steps, warnings = setup.checked(plan)
    if save_server is not None:
        say(f"wrote {setup.save_server(save_server)}: copy it to the board", json)
    for number, step in enumerate(steps, start=1):
        where = "here" if step.where == "here" else "on the board"
        say(f"{_MARKS[step.state]}{number}. {step.title}, {where}. {step.why}", json)
        for line in step.commands:
            say(f"             {line}", json)
        if step.found:
            say(f"          -> {step.found}", json)
    for line in warnings:
        say(f"warning: {line}", json)
    write_json({"key": plan.name, "steps": [asdict(step) for step in steps], "warnings": warnings}, json)
