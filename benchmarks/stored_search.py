"""Keep what notebooks and pages show of a search in rungs, in ``benchmarks/results/search_rungs.json``.

First make the search, for half an hour on a quiet machine; then keep it::

    syno-lab search --rungs --backbone resnet20 --data CIFAR --minutes 30 --from-nothing --folder LAB
    python benchmarks/stored_search.py LAB

The README's picture of its funnel, ``docs/funnel.svg``, is drawn anew too. Kept are the plan, the funnel, the shares of
the time, the front with the finals, the operators of the finalists, and for each trial its probe, its FLOPs and its
measure on each rung; no predictions, no curves and no paths.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from common import RESULTS, about, save, typed

from syno_lab.errors import SynoError
from syno_lab.reports import LabReader
from syno_lab.reports.progress import funnel_picture, progress_of, read_result
from syno_lab.reports.searched import searched

#: Fields of a result that are kept as they are.
KEPT = ("trials", "end", "plan", "funnel", "time", "baseline", "best", "not_compared", "verdict", "front")
SETTINGS = (
    "name",
    "system",
    "method",
    "seed",
    "minutes",
    "workers",
    "seeds",
    "max_replaced_ratio",
    "starts_with_known",
    "wants",
)


def main() -> None:
    """Read the search and write the file."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    arguments.add_argument("lab", type=Path, help="the folder of the lab")
    arguments.add_argument("--name", default="search", help="of the search (search)")
    chosen = arguments.parse_args()
    try:
        found = extract(chosen.lab, chosen.name)
    except SynoError as error:
        sys.exit(str(error))
    save("search_rungs", found)
    progress = progress_of(found, found["settings"]["backbone"])
    assert progress is not None
    (RESULTS.parents[1] / "docs" / "funnel.svg").write_text(funnel_picture(progress) + "\n", encoding="utf-8")


def extract(lab: Path, name: str) -> dict[str, Any]:
    """What is kept of a search that has ended.

    Raises:
        SynoError: there is no such search in the lab, or it has not ended.
    """
    result = read_result(lab, name)
    if result is None or "plan" not in result:
        raise SynoError(f"expected a search in rungs {name!r} that has ended in {lab}, found none")
    with LabReader(lab) as reader:
        rows = {row.number: row for row in reader.read().of(f"search:{name}")}
    training = result["settings"]["training"]
    settings = {key: result["settings"].get(key) for key in SETTINGS}
    settings |= {"backbone": training["backbone"], "epochs": training["epochs"], "data": Path(training["data"]).name}
    return {
        "settings": settings,
        **{key: result[key] for key in KEPT},
        "finalists": searched(result).numbers,
        "comparisons": {
            key: {field: value for field, value in one.items() if field not in ("baselines", "operators")}
            for key, one in result["comparisons"].items()
        },
        "recorded": [
            {
                "number": row.number,
                "known": row.known or None,
                "probe": row.probe,
                "replaced_ratio": one["replaced_ratio"],
                "rungs": one["rungs"],
            }
            for one in result["recorded"]
            if (row := rows.get(one["number"])) is not None
        ],
        "about": {key: value for key, value in about(typed(), None).items() if key != "commit"}  # that of today
        | {
            "command": _command(settings),
            "machine": _machine(result),
            "date": f"{rows[-1].ended[:16].replace('T', ' ')} UTC",
        },
    }


def _command(settings: dict[str, Any]) -> str:
    """The command of the search."""
    words = ["syno-lab", "search", "--rungs", "--backbone", settings["backbone"], "--data", settings["data"]]
    words += [
        "--epochs",
        str(settings["epochs"]),
        "--minutes",
        f"{settings['minutes']:g}",
        "--seed",
        str(settings["seed"]),
    ]
    words += ["--seeds", str(len(settings["seeds"])), "--flops", f"{settings['max_replaced_ratio']:g}"]
    return shlex.join(words + ([] if settings["starts_with_known"] else ["--from-nothing"]))


def _machine(result: dict[str, Any]) -> str | None:
    return next((one["machine"] for one in result["comparisons"].values()), None)


if __name__ == "__main__":
    main()
