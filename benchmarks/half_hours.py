"""Keep the results of several searches in rungs, one for each seed, in ``benchmarks/results/half_hours.json``.

First make the searches, one after another on a quiet machine, each in a lab of its own; then keep them::

    syno-lab search --backbone resnet20 --data CIFAR --minutes 30 --from-nothing --seed SEED --folder LAB
    python benchmarks/half_hours.py COMMIT LAB LAB

COMMIT is that of the code which the searches ran. A search that the file has already, of the same commit, seed and
systems, is replaced; others stay. Kept of each is what :mod:`stored_search` keeps but for its trials.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from common import RESULTS, save, say
from stored_search import extract

#: The files: searches of pGraphs, and those of Canvas and of both systems (``--system``).
NAMES = ("half_hours", "canvas_searches")


def main() -> None:
    """Read the searches and write the file."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    arguments.add_argument("commit", help="of the code that searched")
    arguments.add_argument("labs", type=Path, nargs="+", help="folders of labs, each with one search named search")
    arguments.add_argument("--name", choices=NAMES, default=NAMES[0], help="of the file")
    arguments.add_argument("--note", default="", help="what else to know of these searches")
    chosen = arguments.parse_args()
    file = RESULTS / f"{chosen.name}.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
    for lab in chosen.labs:
        found = {"commit": chosen.commit, "note": chosen.note, **extract(lab, "search")}
        del found["recorded"]
        rows = [row for row in rows if _search(row) != _search(found)]
        rows.append(found)
        say(f"seed {found['settings']['seed']}: {summary(found)}")
    command = "syno-lab search --minutes 30 --from-nothing, one for each row; then half_hours.py"
    save(
        chosen.name,
        {"about": rows[-1]["about"] | {"command": command, "commit": chosen.commit}, "rows": sorted(rows, key=_search)},
    )


def _search(row: dict[str, Any]) -> tuple[str, int, str]:
    """Systems, seed and commit: what tells the searches apart."""
    settings = row["settings"]
    return settings.get("system") or "", settings["seed"], row["commit"]


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """The comparison of the best discovered operator within each share of the FLOPs, in a few numbers."""
    return {
        share: None if one is None else one["over_seeds"] | {"verdict": one["verdict"]}
        for share, one in found["comparisons"].items()
    }


if __name__ == "__main__":
    main()
