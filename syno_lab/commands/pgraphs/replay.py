"""``syno-lab replay``: draw the operators of a record again and check that they are the same."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from syno_lab.commands.output import Reporter, say, tell, write_json
from syno_lab.errors import StoppedError, SynoError
from syno_lab.version import __version__

DIFFERENT = 1  # the exit status if operators differ


def command(
    record: Annotated[
        Path, typer.Argument(metavar="RECORD", help="A file that `syno-lab sample --save` wrote.", show_default=False)
    ],
    seconds: Annotated[float | None, typer.Option(min=0.0, help="Stop after so many seconds.")] = None,
) -> None:
    """Draw the operators of a record again: the same seed and spec give the same operators.

    The exit status is 0 if all operators are the same, else 1. For another version or other rules, a note is printed.
    """
    from syno_lab.synthesis import record as records

    stored = records.read(record)
    start = time.monotonic()
    with Reporter() as report:
        try:
            result = records.replay(
                stored, report=report, should_stop=lambda: seconds is not None and time.monotonic() - start >= seconds
            )
        except StoppedError as error:
            raise SynoError(
                f"expected {stored.count} operators within {seconds:g} seconds, found fewer: {error}; raise --seconds"
            ) from None
    for note in result.notes:
        tell(f"note: {note}")
    if result.same:
        say(f"the same {stored.count} operators, seed {stored.seed}")
    else:
        say(f"different after {result.compared} of {stored.count}: {result.difference}")
    write_json(
        {
            "record": str(record),
            "same": result.same,
            "count": stored.count,
            "compared": result.compared,
            "difference": result.difference,
            "notes": result.notes,
            "seed": stored.seed,
            "recorded_by": stored.syno_lab,
            "syno_lab": __version__,
            "seconds": time.monotonic() - start,
        }
    )
    if not result.same:
        raise typer.Exit(DIFFERENT)
