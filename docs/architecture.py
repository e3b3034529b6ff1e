"""The drawing of the packages, ``docs/architecture.svg``, from the imports of today: ``make picture``."""

from __future__ import annotations

import sys
from pathlib import Path

from syno_lab.drawing.render import accessible_svg
from syno_lab.drawing.style import FONT, INK, INPUT, LINE, OUTPUT, PRIMITIVE_LOOKS, WEIGHT

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from house import ROOMS, room_arrows  # noqa: E402

DRAWING = HERE / "architecture.svg"
#: The least number of importing files with which an arrow that follows from others is drawn.
MANY = 5
#: For each thickness the least number of importing files, and the width in points.
WIDTHS = {"thick": (10, 3.5), "middle": (3, 1.8), "thin": (1, 0.8)}
#: What the packages are about, and the colour of their boxes.
PARTS = {
    "what jobs and results need": (OUTPUT.fill, ("processes", "store", "jobs")),
    "operators": (
        INPUT.fill,
        ("common", "drawing", "ir", "synthesis", "search", "sessions", "codegen", "operators", "panes"),
    ),
    "systems of operators": (WEIGHT.fill, ("pgraphs", "nas_pte", "canvas", "alpha")),
    "networks": (PRIMITIVE_LOOKS["MERGE"].fill, ("models", "data", "training", "trial", "tuning")),
    "results, read and produced": (PRIMITIVE_LOOKS["REDUCE"].fill, ("reports", "experiments", "testing")),
    "front ends": (PRIMITIVE_LOOKS["STRIDE"].fill, ("commands", "widgets")),
}
FRONT = ("commands", "widgets")


def arrows() -> dict[tuple[str, str], str]:
    """Return the arrows of the drawing, from a package to a package that imports it, each with its thickness.

    An arrow that follows from two or more others is left out if fewer than :data:`MANY` files import the package.
    """
    files = {(imported, importing): number for (importing, imported), number in room_arrows().items()}
    order = (*ROOMS, *FRONT)
    ways: dict[str, set[str]] = {room: set() for room in order}
    for room in reversed(order):  # all packages that import a package directly or not; they come later
        for before, after in files:
            if before == room:
                ways[room] |= {after} | ways[after]
    drawn = {}
    for (before, after), number in files.items():
        follows = any((before, between) in files and after in ways[between] for between in order if between != after)
        if number >= MANY or not follows:
            drawn[before, after] = next(name for name, (least, _) in WIDTHS.items() if number >= least)
    return drawn


def source() -> str:
    """The drawing as DOT text."""
    colours = {room: colour for colour, rooms in PARTS.values() for room in rooms}
    lines = [
        "digraph rooms {",
        f'graph [ranksep=0.45 nodesep=0.3 bgcolor="transparent" fontname="{FONT}"]',
        f'node [shape=box style="filled,rounded" fontname="{FONT}" fontcolor="{INK}" color="{LINE}" height=0.4]',
        f'edge [color="{LINE}" arrowsize=0.7]',
    ]
    lines += [f'"{room}" [id="{room}" fillcolor="{colours[room]}"]' for room in (*ROOMS, *FRONT)]
    for (before, after), name in sorted(arrows().items()):
        lines.append(f'"{before}" -> "{after}" [id="{before}--{after}" class="{name}" penwidth={WIDTHS[name][1]}]')
    return "\n".join([*lines, "}", ""])


def main() -> None:
    """Write the drawing."""
    drawn = arrows()
    said = "; ".join(
        f"{room} is imported by {', '.join(after for before, after in sorted(drawn) if before == room)}"
        for room in ROOMS
        if any(before == room for before, _ in drawn)
    )
    titles = {f"{before}->{after}": f"{after} imports {before}" for before, after in drawn}
    titles |= {room: f"package {room}: {part}" for part, (_, rooms) in PARTS.items() for room in rooms}
    DRAWING.write_text(accessible_svg(source(), f"The packages of Syno Lab: {said}", titles), encoding="utf-8")


if __name__ == "__main__":
    main()
