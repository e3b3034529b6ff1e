"""What a tuning costs: seconds a trial and the best latency at equal trials, MetaSchedule's defaults against ours.

``--ways unfused`` is ours without the schedule rule ``fuse-stages``.

All in one run, every candidate over RPC on loopback and apart from the others: TVM's ``tune_tir`` with its own builder,
runner, population and cost model, its imports made cheap; the same as it comes (``--ways as-it-comes``: on a slow
machine all its candidates die of the builder's time limit, see ``tuning_defaults.py``); our search in the same space
(TVM's rules); and ours as it comes. Each finds a winner with every seed; the winners of a layer are then timed beside
each other, call by call in turn.

A cell (a layer, an operator, a way, a seed) is kept in ``results/tuning_cost.json`` as soon as it is there, and a
second run goes on with those that are missing. It goes seed by seed over all layers, operators and ways, so that it can
be ended at any time with a fair table. The seconds are those of the whole tuning as a caller sees them, from the start
of its process: imports, failures and our last measurements included; the CPU-seconds are those of all its processes
but the board's.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import groupby, product
from pathlib import Path
from typing import Any

from common import RESULTS, TUNING_LIMIT_S, about, parser, save, say, tuned_here, typed
from page_networks import WAYS

import syno_lab as sl
from syno_lab.errors import SynoError
from syno_lab.tuning import Board, Method, TuningTask, local_board, time_schedules

NAME = "tuning_cost"
SHAPES = ("64x56", "128x28", "256x14")  # channels and height: layers of ResNet-34
OPERATORS: dict[str, dict[str, int]] = {"conv2d": {}, "operator_1": {"g": 8, "s": 2}, "operator_2": {"g": 8, "s": 2}}
#: The ways that are ours, and their method.
METHODS = {
    "same-space": Method(rules=("default",)),
    "unfused": Method(rules=("channel-lanes", "default")),
    "ours": Method(),
}

Cell = dict[str, Any]


def task_of(operator: str, shape: str) -> TuningTask:
    """One operator on one layer."""
    channels, height = (int(one) for one in shape.split("x"))
    value = sl.operators.KNOWN[operator]()
    bound = {"N": 1, "C_in": channels, "C_out": channels, "H": height, "W": height, **OPERATORS[operator]}
    return TuningTask(f"{operator}-{shape}", value.to_json(), value.complete_binding(bound))


def by_defaults(task: TuningTask, board: Board, target: str, chosen: Any, seed: int, folder: Path, cheap: bool) -> Cell:
    """A tuning by ``tuning_defaults.py`` in a process of its own."""
    request = {"task": task.request(), "target": target, "host": board.host, "port": board.port, "key": board.key}
    request |= {"trials": chosen.trials, "seed": seed, "folder": str(folder), "cheap": cheap}
    path = os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    started = time.monotonic()
    with (folder / "log").open("w", encoding="utf-8") as log:
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("tuning_defaults.py"))],
            input=json.dumps(request),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            check=False,
            timeout=TUNING_LIMIT_S,
            env={**os.environ, "PYTHONPATH": path},
        )
    seconds = time.monotonic() - started
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"trials"')]
    if done.returncode or not lines:
        return {"error": f"the process ended with {done.returncode}: {_last_line(folder / 'log')}", "seconds": seconds}
    found: Cell = json.loads(lines[-1])
    return found | {"seconds": seconds}


def _last_line(path: Path) -> str:
    lines = [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def by_ours(task: TuningTask, board: Board, way: str, chosen: Any, seed: int, folder: Path) -> Cell:
    """A tuning by :func:`syno_lab.tuning.tune`."""
    started = time.monotonic()
    try:
        found = tuned_here(task, board, chosen, folder, method=METHODS[way], seed=seed)
    except SynoError as error:
        return {"error": str(error).replace(str(folder), ""), "seconds": time.monotonic() - started}
    kept = ("trials", "failed", "best_ms", "latency_ms", "verified", "stopped", "trace")
    return {name: getattr(found, name) for name in kept} | {"seconds": found.seconds}


def stored(chosen: Any) -> dict[str, Any]:
    """What an earlier run with the same numbers left, else an empty result."""
    settings = {name: getattr(chosen, name) for name in ("trials", "preset", "threads")}
    path = RESULTS / f"{chosen.name}.json"
    if path.is_file() and not chosen.fresh:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if found["settings"] == settings:
            return found
        sys.exit(f"{path.name} is of {found['settings']}, not of {settings}: give the same numbers, or --fresh")
    return {"settings": settings, "abouts": [], "cells": [], "beside": []}


def missing(result: dict[str, Any], chosen: Any) -> Iterator[tuple[str, str, int, str]]:
    """The cells to come. Seed by seed, so that what disturbs the machine for a while disturbs all ways."""
    have = {tuple(one["cell"]) for one in result["cells"]}
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        ways = chosen.ways if seed % 2 else chosen.ways[::-1]
        for shape, operator, way in product(chosen.shapes.split(","), chosen.operators.split(","), ways):
            if (operator, shape, seed, way) not in have:
                yield operator, shape, seed, way


def target_text(threads: int) -> str:
    """The processor here as TVM writes it: asked of a process of its own, as all that needs TVM."""
    code = "import sys; from syno_lab.processes.light import import_tvm; import_tvm(); "
    code += "from syno_lab.tuning.targets import resolve; print(resolve(sys.argv[1]).text)"
    words = [sys.executable, "-c", code, f"local:{threads}"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[-1]


def beside(result: dict[str, Any], chosen: Any) -> None:
    """Time the winners of each operator and layer beside each other, where that is not done for all of them."""
    for operator in chosen.operators.split(","):
        for shape in chosen.shapes.split(","):
            found = {
                f"{one['cell'][3]} {one['cell'][2]}": one["trace"]
                for one in result["cells"]
                if one["cell"][:2] == [operator, shape] and "trace" in one
            }
            done = next((one for one in result["beside"] if one["of"] == [operator, shape]), None)
            if not found or (done is not None and done["least_ms"].keys() == found.keys()):
                continue
            times = time_schedules(task_of(operator, shape), found, chosen.rounds)
            result["beside"] = [one for one in result["beside"] if one is not done] + [
                {
                    "of": [operator, shape],
                    "least_ms": {name: min(one) for name, one in times.items()},
                    "median_ms": {name: statistics.median(one) for name, one in times.items()},
                }
            ]
            save(chosen.name, result)


def check(text: str, known: Any, option: str) -> None:
    """End where a list of words on the command line has another than the known ones."""
    unknown = [one for one in text.split(",") if one not in known]
    if unknown:
        sys.exit(f"{option}: expected some of {', '.join(known)}, found {', '.join(unknown)}")


def children_cpu_s() -> float:
    """CPU-seconds of all processes below this one that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def one_cell(result: dict[str, Any], chosen: Any, board: Board, target: str, cell: tuple[str, str, int, str]) -> None:
    """Tune one cell, and keep what was found."""
    operator, shape, seed, way = cell
    task = task_of(operator, shape)
    before, spent = os.getloadavg()[0], children_cpu_s()
    with tempfile.TemporaryDirectory(prefix="tuning-cost-") as folder:
        if way in METHODS:
            found = by_ours(task, board, way, chosen, seed, Path(folder))
        else:
            found = by_defaults(task, board, target, chosen, seed, Path(folder), cheap=way == "defaults")
    result["cells"].append({"cell": list(cell), "load": before, "cpu_s": children_cpu_s() - spent, **found})
    save(chosen.name, result)
    pace = f"{found['seconds'] / max(found.get('trials', 0), 1):.2f} s a trial, {found['seconds']:.0f} s"
    said = found.get("error") or f"{found['best_ms']:.3f} ms in {found['trials']} trials"
    say(f"{task.label}, seed {seed}, {WAYS[way]}: {said}, {pace}")


def main() -> None:
    """Run what is missing."""
    options = parser(__doc__ or "")
    options.add_argument("--trials", type=int, default=64)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--preset", default="normal", help="of our tunings; the trials are those of --trials")
    options.add_argument("--threads", type=int, default=1, help="in which the operators run")
    options.add_argument("--operators", default="conv2d,operator_1")
    options.add_argument("--shapes", default=",".join(SHAPES), help="channels and height of each layer")
    options.add_argument("--ways", default="defaults,same-space,ours", help=f"some of {', '.join(WAYS)}")
    options.add_argument("--rounds", type=int, default=100, help="calls of each winner beside the others")
    options.add_argument("--fresh", action="store_true", help="forget the cells of earlier runs")
    options.add_argument("--name", default=NAME, help="the name of the file in results")
    chosen = options.parse_args()
    check(chosen.operators, OPERATORS, "--operators")
    check(chosen.ways, WAYS, "--ways")
    chosen.ways = chosen.ways.split(",")
    result = stored(chosen)
    result["abouts"].append(about(typed(), None))
    target = target_text(chosen.threads)
    with local_board(threads=chosen.threads) as board:
        for _, cells in groupby(list(missing(result, chosen)), key=lambda cell: cell[2]):
            for operator, shape, seed, way in cells:
                one_cell(result, chosen, board, target, (operator, shape, seed, way))
            beside(result, chosen)
        beside(result, chosen)  # of a run that was ended between the two


if __name__ == "__main__":
    main()
