"""``syno-lab demo``: a complete small search, from drawing operators to the Pareto curve."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from syno_lab.commands.output import Reporter, say, say_table, write_json


def command(
    data: Annotated[
        str | None,
        typer.Option(help="A folder with CIFAR-10 or CIFAR-100, or 'digits'. [default: $SYNO_LAB_DATA, else digits]"),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="The folder for results; run again with the same folder, the demo continues.")
    ] = Path("demo-output"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer operators, images and trials.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the search; trainings have seed 0.")] = 0,
) -> None:
    """Search operators, train them on images, tune them by TVM on this machine, draw the Pareto curve.

    The demo is a small search in this process. After an interruption, run it again with the same options: the search
    continues from its results store.
    """
    from syno_lab.experiments.demo import DemoOptions, run_demo

    options = DemoOptions(data=None if data is None else Path(data), out=out, quick=quick, seed=seed)
    with Reporter() as report:
        result = run_demo(options, report)
    say_table(result.table)
    say("\nWritten:")
    for path in result.files:
        if path.parent == out:
            say(f"  {path}")
    for folder, count in Counter(path.parent for path in result.files if path.parent != out).items():
        say(f"  {folder}/ with {count} files")
    write_json(result.summary)
