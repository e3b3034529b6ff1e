"""The tables and figures of the paper on Syno, at the scale that this machine and some hours allow.

python benchmarks/reproduce.py --hours 8 --data cifar-10-batches-bin --text input.txt
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from reproduction import PARTS, Options, reproduce
from reproduction.paper.page import write_pages
from reproduction.run import prepare
from reproduction.scale import check_parts

from syno_lab import cli
from syno_lab.commands.options import with_options
from syno_lab.commands.output import Reporter, say, say_table, tell, write_json
from syno_lab.commands.pgraphs.specs import load_spec
from syno_lab.data.datasets import DATA_VARIABLE, DIGITS
from syno_lab.errors import SynoError
from syno_lab.versioned import JSON

#: The shapes of the ablations: those on which the authors' own engine is measured beside ours.
SPEC, WEIGHT_LIMITS = "conv-authors", "free"


def command(
    hours: Annotated[float, typer.Option(help="Hours for all parts together; the parts share them.")] = 1.0,
    data: Annotated[
        str | None,
        typer.Option(help="A folder of CIFAR or of images, or 'digits'. [default: $SYNO_LAB_DATA, else digits]"),
    ] = None,
    text: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A text for Figure 10's language model; without it, left out.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="PART,...", help="Run these parts alone, and those that they need.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print the plan with its times, and stop.")] = False,
    out: Annotated[
        Path, typer.Option(help="The folder for results; run again with the same folder, it goes on.")
    ] = Path("reproduction"),
    seed: Annotated[int, typer.Option(min=0, help="Of draws, searches and tunings.")] = 0,
) -> None:
    """Run what the paper's tables and figures need, and write one page and a notebook with all of them.

    The plan with its times comes first. Each part's result is stored as it ends: after Ctrl-C or a kill the same
    command goes on. The page shows the paper's points, ours, the scale, and the differences in words.
    """
    named = data or os.environ.get(DATA_VARIABLE) or DIGITS
    if text is not None and not text.is_file():
        raise SynoError(f"--text: expected a text file, found {text}")
    options = Options(
        hours=hours,
        data=named if named == DIGITS else str(Path(named).expanduser().absolute()),
        text=None if text is None else str(text.absolute()),
        seed=seed,
    )
    parts = PARTS if only is None else check_parts([name.strip() for name in only.split(",")])
    spec, _ = load_spec(SPEC, weight_limits=WEIGHT_LIMITS)
    with Reporter() as report:
        found = prepare(out, options, report)
        planned = found.plan(parts)
        drawn: list[dict[str, JSON]] = [
            {
                "part": one.name,
                "for": one.figures,
                "what": one.what,
                "minutes": one.seconds / 60,
                "state": "done" if one.name in found.done else "to do",
            }
            for one in planned.parts
        ]
        to_do = sum(one.seconds for one in planned.parts if one.name not in found.done) / 60
        if plan:
            say_table(drawn)
            say(f"{to_do:.0f} minutes to do")
            write_json({"parts": drawn, "minutes": to_do})
            return
        for row in drawn:
            tell(f"plan: {row['part']}: {row['what']}, {row['minutes']:.1f} minutes, {row['state']}")
        try:
            ran = reproduce(found, spec, parts=parts, report=report)
        except KeyboardInterrupt:
            tell(f"what is done is kept in {out}: the same command goes on")
            raise
        report("page", 0.0, "drawing the figures")
        scale = [(one.name, one.figures, one.what) for one in found.plan().parts]
        page, notebook = write_pages(out, scale)
        report("page", 1.0, str(page))
    say(f"ran {', '.join(ran) or 'nothing: all was done'}")
    say(f"page: {page}\nnotebook: {notebook}")
    write_json({"ran": list(ran), "done": list(found.done), "page": str(page), "notebook": str(notebook)})


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(with_options(command))


def main(arguments: Sequence[str] | None = None) -> int:
    """As :func:`syno_lab.cli.main`."""
    return cli.main(arguments, app)


if __name__ == "__main__":
    sys.exit(main())
