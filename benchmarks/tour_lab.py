"""Keep a small lab for the tour, in ``notebooks/tour-lab``, from a search that was made.

First make the search, for half an hour on a quiet machine; then keep it::

    syno-lab search --backbone resnet20 --data CIFAR --minutes 30 --from-nothing --folder LAB
    python benchmarks/tour_lab.py LAB

Kept are all trials with their steps, costs, probes and measures on each rung, the curves of the network and of the
finals, and the result; no predictions, no jobs, no logs and no paths. :func:`syno_widgets.course.tour_lab` copies it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from syno_lab.store.database import Database

TO = Path(__file__).resolve().parents[1] / "notebooks" / "tour-lab"
MOST_BYTES = 400_000
#: Of the outcome of a training.
KEPT = ("state", "reason", "accuracy", "measured_on", "train_loss", "flops", "params", "peak_mib", "wall_s", "cpu_s")
KEPT += ("probe", "rung", "seed", "curve", "replaced", "places")
#: Tables that only running labs need.
LEFT = ("syno_attempts", "syno_progress", "syno_leases", "syno_signatures", "syno_jobs")
#: Of the result: its trials are in the store.
DROPPED = ("recorded", "folder")


def main() -> None:
    """Write the lab."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    arguments.add_argument("lab", type=Path, help="the folder of the lab")
    arguments.add_argument("--name", default="search", help="of the search (search)")
    chosen = arguments.parse_args()
    searched = TO / "searches" / chosen.name
    searched.mkdir(parents=True, exist_ok=True)
    content = store(chosen.lab / "results.sqlite")
    if len(content) > MOST_BYTES:
        sys.exit(f"expected at most {MOST_BYTES:,} bytes, found {len(content):,}")
    (TO / "results.sqlite.gz").write_bytes(content)
    for name in ("result.json", "status.json"):
        found = json.loads((chosen.lab / "searches" / chosen.name / name).read_text(encoding="utf-8"))
        kept = without_paths({key: value for key, value in found.items() if key not in DROPPED})
        for one in kept.get("comparisons", {}).values():  # a prediction for each image
            for side in ("baselines", "operators"):
                one[side] = [trimmed(outcome) for outcome in one.get(side, ())]
        (searched / name).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def store(path: Path) -> bytes:
    """The store's file without what is not kept, compressed; equal for equal stores."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "results.sqlite"
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as old:
            old.execute("VACUUM INTO ?", (str(copy),))
        with closing(Database(copy)) as store:
            for table in LEFT:
                for (key,) in store.columns(f"SELECT rowid FROM {table}"):
                    store.remove(table, "rowid", key)
            for table, name, change in CHANGED:
                # The columns as `write` was given them: those of the table, without the digest.
                columns = store.column("SELECT name FROM pragma_table_info(?) WHERE name <> 'digest'", (table,))
                for row in store.read(", ".join(columns), f"FROM {table}"):
                    values = dict(zip(columns, row, strict=True))
                    if values[name]:
                        values[name] = json.dumps(change(json.loads(values[name])))
                    store.write("INSERT OR REPLACE", table, ", ".join(columns), tuple(values.values()))
        with closing(sqlite3.connect(copy)) as new:
            new.execute("PRAGMA journal_mode=DELETE")
            new.execute("VACUUM")
        return gzip.compress(copy.read_bytes(), mtime=0)


def trimmed(outcome: dict[str, Any]) -> dict[str, Any]:
    """What is kept of an outcome; of a short training no curve, which has one point."""
    kept = {name: outcome[name] for name in KEPT if name in outcome}
    if len(kept.get("curve") or ()) < 2:
        kept.pop("curve", None)
    return kept


def without_paths(value: Any) -> Any:
    """The same with the last part of every path alone."""
    if isinstance(value, dict):
        return {name: without_paths(one) for name, one in value.items()}
    if isinstance(value, list):
        return [without_paths(one) for one in value]
    if isinstance(value, str) and value.startswith("/"):
        return Path(value).name
    return value


CHANGED = (
    ("syno_search_outcomes", "outcome", trimmed),
    ("syno_search_rungs", "outcome", trimmed),
    ("syno_searches", "settings", without_paths),
)


if __name__ == "__main__":
    main()
