"""How long every notebook takes from a clean kernel: ``python benchmarks/notebooks.py``.

Each runs in a folder of its own, with the solutions left out, as a reader would run it. CPU-seconds are those of its
kernel and of what the kernel started and waited for; they are what a notebook costs, wall time is what it took on a
machine that may have had other things to do. The table in ``notebooks/README.md`` is made from the result.

With paths below ``notebooks`` only those run, and the stored times of the others stay.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from common import RESULTS, about, parser, save, say, typed, use_one_core
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"


def run(path: Path) -> dict[str, Any]:
    """One notebook: seconds on the clock, and of CPU time."""
    book = nbformat.read(path, as_version=4)
    before, start = os.times(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(book, timeout=600, resources={"metadata": {"path": folder}}).execute()
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    found = {
        "notebook": path.relative_to(FOLDER).as_posix(),
        "title": re.sub(r"^#+ ", "", book.cells[0].source.splitlines()[0]),
        "wall_s": round(time.monotonic() - start, 1),
        "cpu_s": round(cpu_s, 1),
    }
    say(f"{found['notebook']}: {found['wall_s']} s, {found['cpu_s']} CPU-seconds")
    return found


def write_table(result: dict[str, Any]) -> None:
    """The times into ``notebooks/README.md``, between its markers."""
    lines = ["| notebook | CPU-seconds | seconds |", "| --- | --- | --- |"]
    lines += [
        f"| [{row['title']}]({row['notebook']}) | {row['cpu_s']:.1f} | {row['wall_s']:.1f} |" for row in result["rows"]
    ]
    lines += ["", _said(result["about"])]
    for row in result["rows"]:
        if "about" in row:
            lines += ["", f"{row['title']}: {_said(row['about'])}"]
    readme = FOLDER / "README.md"
    text = readme.read_text(encoding="utf-8")
    begin, end = "<!-- times: begin -->", "<!-- times: end -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        sys.exit(f"notebooks/README.md: expected {begin} and {end} once each")
    head, tail = text.split(begin)[0], text.split(end)[1]
    readme.write_text("\n".join([head + begin, *lines, end + tail]), encoding="utf-8")


def _said(made: dict[str, Any]) -> str:
    note = f"; {made['note']}" if made.get("note") else ""
    return f"`{made['command']}`, {made['date']}, commit {made['commit']}, {made['machine']}{note}"


def main() -> None:
    """See the head of this file."""
    options = parser(__doc__ or "")
    options.add_argument("paths", nargs="*", help="of notebooks, such as course/07_search.ipynb; without any, all")
    options.add_argument("--note", default="", help="what the reader of the times should know, such as other work")
    options.add_argument("--both", action="store_true", help="use every core, as CI does, not one")
    arguments = options.parse_args()
    core = None if arguments.both else use_one_core(arguments.core)
    paths = sorted(path for path in FOLDER.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)
    made = about(typed(), core) | ({"note": arguments.note} if arguments.note else {})
    result = {"about": made, "rows": []}
    if arguments.paths:
        result = json.loads((RESULTS / "notebooks.json").read_text(encoding="utf-8"))
        if unknown := set(arguments.paths) - {path.relative_to(FOLDER).as_posix() for path in paths}:
            sys.exit(f"expected paths of notebooks below {FOLDER.name}, found {', '.join(sorted(unknown))}")
        paths = [FOLDER / name for name in arguments.paths]
    rows = {row["notebook"]: row for row in result["rows"]}
    for path in paths:
        row = run(path)
        rows[row["notebook"]] = {**row, "about": made} if arguments.paths else row
    # The companions of the tour first, as they lie in the folder.
    result["rows"] = sorted(rows.values(), key=lambda row: FOLDER / row["notebook"])
    save("notebooks", result)
    write_table(result)


if __name__ == "__main__":
    main()
