"""``syno-lab replay``: draw a stored search again and say whether the operators are the same."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from syno_lab import __version__
from syno_lab.commands.output import JsonTarget, Reporter, check_json, say, write_json
from syno_lab.commands.sample import seldom

DIFFERENT = 1  # the exit status of a finding


def command(
    record: Annotated[
        Path, typer.Argument(metavar="RECORD", help="What `syno-lab sample --save` wrote.", show_default=False)
    ],
    json: JsonTarget = None,
) -> None:
    """Draw a stored search again: the same seed and spec give the same operators.

    Exit status 0 when all are the same, 1 when one differs. Another version or other rules are named and tried.
    """
    from syno_lab.synthesis import record as records

    check_json(json)
    stored = records.read(record)
    start = time.monotonic()
    with Reporter() as report:
        result = records.replay(stored, report=seldom(report))
    for note in result.notes:
        typer.echo(f"note: {note}", err=True)
    if result.same:
        say(f"the same {stored.count} operators, seed {stored.seed}", json)
    else:
        say(f"different after {result.compared} of {stored.count}: {result.difference}", json)
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
        },
        json,
    )
    if not result.same:
        raise typer.Exit(DIFFERENT)
