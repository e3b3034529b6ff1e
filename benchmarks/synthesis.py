"""How many distinct operators a CPU-second sampling gives, from a cold start on one core.

``python benchmarks/synthesis.py`` runs ``syno-lab sample`` for each row, once by neighbourhoods (``--no-spread``, the
fastest) and once by default, prints JSON and writes it to
``benchmarks/results/synthesis.json``; ``python benchmarks/render.py`` puts it into the README. Rows that were not run
keep the results they have.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from common import RESULTS, about, parser, sample, save, say, typed, use_one_core

AUTHORS = [f"conv-authors-{size}" for size in (7, 8, 9, 12)]
FREE = [f"conv-free-{size}" for size in (7, 8, 9, 12)]
ROWS = [*AUTHORS, *FREE, "readme-8"]


def options(row: str) -> dict[str, Any]:
    """The options of ``syno-lab sample`` for ``conv-authors-9`` and the like; ``conv-free``: that spec, free."""
    spec, _, size = row.rpartition("-")
    is_free = spec == "conv-free"
    return {
        "spec": "conv-authors" if is_free else spec,
        "weight_limits": "free" if is_free else None,
        "max_primitives": int(size),
    }


def rows(text: str) -> list[str]:
    """Rows by name, separated by commas; ``conv-authors`` and ``conv`` mean all that begin so."""
    chosen = []
    for part in text.split(","):
        found = [row for row in ROWS if row == part or row.startswith(f"{part}-")]
        if not found:
            raise argparse.ArgumentTypeError(f"expected rows among {', '.join(ROWS)}, found {part!r}")
        chosen += [row for row in found if row not in chosen]
    return chosen


def main() -> None:
    """Run the rows."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--seconds", type=float, default=30.0, help="for each row (30)")
    arguments.add_argument("--rows", type=rows, default=ROWS, help=f"of {', '.join(ROWS)} (all)")
    chosen = arguments.parse_args()
    core = use_one_core(chosen.core)
    path = RESULTS / "synthesis.json"
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for row in chosen.rows:
        say(f"{row}: {chosen.seconds:g} seconds")
        found = sample(**options(row), spread=False, seconds=chosen.seconds, seed=chosen.seed)
        say(f"  {found.get('error') or '{distinct_per_cpu_second:.1f} a CPU-second'.format(**found)}")
        say(f"{row}: draws that spread")
        default = sample(**options(row), seconds=chosen.seconds, seed=chosen.seed)
        found["default"] = {
            name: default[name] for name in ("distinct_per_cpu_second", "repeat_share", "error") if name in default
        }
        result[row] = found | {"asked_seconds": chosen.seconds, "about": about(typed(), core)}
    save("synthesis", {row: result[row] for row in ROWS if row in result})


if __name__ == "__main__":
    main()
