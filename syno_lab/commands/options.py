"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated, Any

import typer

TrackerOption = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="An RPC tracker. [default: one of our own on 127.0.0.1]")
]
"""Behind which tracker the device is that a tuning is for."""


def flag(name: str, explanation: str) -> Any:
    """An option such as ``--fetch`` that is given or not: without a name typer adds a ``--no-fetch`` to it."""
    return typer.Option(name, help=explanation)
