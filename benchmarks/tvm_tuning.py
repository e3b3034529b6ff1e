"""Tuned latencies on this CPU, each tuning with the same small budget, every candidate run over RPC on loopback.

``python benchmarks/tvm_tuning.py`` prints JSON and writes it to ``benchmarks/results/tvm.json``:

- conv2d's pGraph against a convolution written in TE by hand (``te_conv2d.py``), several seeds, ratios within a seed;
- Operators 1 and 2 and those of NAS-PTE against conv2d on the shapes of ResNet-34's 3x3 convolutions of stride 1,
  which are 29 of its 32 such convolutions; the operators keep the height and the width.

It is not called ``tvm.py``, for Python would then import it in the place of TVM.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from common import about, parser, save, say, typed

import syno_lab as sl
from syno_lab.errors import TuningError
from syno_lab.nas_pte.operator import NAS_PTE
from syno_lab.tuning import Board, TuningTask, local_board, time_operators, tune

RESNET_34 = ((64, 56), (128, 28), (256, 14), (512, 7))  # channels and height
HAND = ((64, 28),)
NAS_PTE_BUILDER = "syno_lab.nas_pte.tvm:lower_json"

#: A row's name, its pGraph and the coefficients.
OPERATORS = (
    ("conv2d", "conv2d", {}),
    ("operator_1, g=8, s=2", "operator_1", {"g": 8, "s": 2}),
    ("operator_2, g=8, s=2", "operator_2", {"g": 8, "s": 2}),
)


def sizes(channels: int, height: int) -> dict[str, int]:
    """The binding of one layer."""
    return {"N": 1, "C_in": channels, "C_out": channels, "H": height, "W": height}


def measured(task: TuningTask, board: Board, trials: int, seed: int, folder: str) -> dict[str, Any]:
    """The tuned latency, or the one line of what failed."""
    started = time.monotonic()
    try:
        result = tune(task, tracker=board.address, key=board.key, trials=trials, seed=seed, work_dir=folder)
    except TuningError as error:
        say(f"{task.label}: {error}")
        return {"error": str(error).replace(folder, "")}
    say(f"{task.label}, seed {seed}: {result.latency_ms:.3f} ms, {time.monotonic() - started:.1f} s")
    return {
        "latency_ms": result.latency_ms,
        "best_ms": result.best_ms,
        "trials": result.trials,
        "failed": result.failed,
        "seconds": result.seconds,
        "verified": result.verified,
        "trace": result.trace,
    }


def by_hand(board: Board, trials: int, seeds: range, folder: str) -> list[dict[str, Any]]:
    """conv2d's pGraph over the hand-written TE, ratios within a seed; the order changes from seed to seed."""
    text = sl.operators.conv2d().to_json()
    rows = []
    for channels, height in HAND:
        bound = {**sizes(channels, height), "k_1": 3}
        pairs = []
        for seed in seeds:
            tasks = {
                "pgraph": TuningTask(f"pgraph-{channels}", text, bound),
                "te": TuningTask(f"te-{channels}", text, bound, builder="te_conv2d:conv2d"),
            }
            order = list(tasks) if seed % 2 else list(tasks)[::-1]
            pairs.append({name: measured(tasks[name], board, trials, seed, folder) for name in order})
        ratios = [
            pair["pgraph"]["latency_ms"] / pair["te"]["latency_ms"]
            for pair in pairs
            if all("latency_ms" in one for one in pair.values())
        ]
        rows.append(
            {
                "channels": channels,
                "height": height,
                "pairs": pairs,
                "ratios": ratios,
                "median_ratio": statistics.median(ratios) if ratios else None,
            }
        )
    return rows


def layers(board: Board, trials: int, seeds: range, nas_pte: int, folder: str, rounds: int) -> list[dict[str, Any]]:
    """Every operator on every layer: FLOPs, parameters, and the median over the seeds of the winners' least times.

    NAS-PTE's operators have the first ``nas_pte`` seeds only.
    """
    rows: list[dict[str, Any]] = []
    for channels, height in RESNET_34:
        tasks, here = [], []
        bound = sizes(channels, height)
        jobs: list[tuple[str, Any, dict[str, int], dict[str, str]]] = []
        for name, made, more in OPERATORS:
            operator = sl.operators.KNOWN[made]()
            jobs.append((name, operator, operator.complete_binding({**bound, **more}), {}))
        for name, make in NAS_PTE.items():
            jobs.append((name, make(), bound, {"builder": NAS_PTE_BUILDER}))
        for name, operator, binding, more in jobs:
            task = TuningTask(f"{name}-{channels}", operator.to_json(), binding, **more)
            own = seeds[:nas_pte] if more else seeds
            runs = [measured(task, board, trials, seed, folder) for seed in own]
            tasks.append(task)
            here.append(
                {
                    "operator": name,
                    "channels": channels,
                    "height": height,
                    "flops": operator.flops(binding),
                    "params": operator.params(binding),
                    "runs": runs,
                }
            )
        beside(tasks, here, rounds)
        for row in here:
            least = [run["beside_ms"]["least"] for run in row["runs"] if "beside_ms" in run]
            row["least_ms"] = statistics.median(least) if least else None
        rows += here
    return rows


def beside(tasks: list[TuningTask], rows: list[dict[str, Any]], rounds: int) -> None:
    """Time the winners of all tunings of one layer in turns, single calls, and put the least and the median into each.

    By these the operators are compared: a tuning's own measurements are disturbed by whatever runs meanwhile.
    """
    runs = {
        f"{number} {seed}": (task, run)
        for number, (task, row) in enumerate(zip(tasks, rows, strict=True))
        for seed, run in enumerate(row["runs"])
        if "trace" in run
    }
    if runs:
        times = time_operators({name: (task, run.pop("trace")) for name, (task, run) in runs.items()}, rounds)
        for name, (_, run) in runs.items():
            found = times[name]
            run["beside_ms"] = {"least": min(found), "median": statistics.median(found), "calls": len(found)}


def speedups(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """conv2d's time over each operator's: on each layer, and the geometric mean of those that were measured."""
    times = {(row["operator"], row["channels"]): row["least_ms"] for row in rows if row["least_ms"]}
    found: dict[str, dict[int, float]] = {}
    for (name, channels), least in times.items():
        if ("conv2d", channels) in times:
            found.setdefault(name, {})[channels] = times["conv2d", channels] / least
    return {
        name: {"layers": ratios, "geometric_mean": statistics.geometric_mean(ratios.values())}
        for name, ratios in found.items()
    }


def main() -> None:
    """Measure, print and save."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--trials", type=int, default=16, help="candidates of a tuning (16)")
    arguments.add_argument("--seeds", type=int, default=5, help="tunings of each side against TE (5)")
    arguments.add_argument("--threads", type=int, help="threads that the operators run in (all cores)")
    arguments.add_argument("--layer-seeds", type=int, default=1, help="tunings of each operator on each layer (1)")
    arguments.add_argument("--nas-pte", type=int, default=1, help="of these, those of NAS-PTE's operators (1)")
    arguments.add_argument("--rounds", type=int, default=200, help="calls of each winner beside the others (200)")
    chosen = arguments.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tvm-tuning-") as folder, local_board(threads=chosen.threads) as board:
        hand = by_hand(board, chosen.trials, range(chosen.seed, chosen.seed + chosen.seeds), str(Path(folder)))
        seeds = range(chosen.seed, chosen.seed + chosen.layer_seeds)
        rows = layers(board, chosen.trials, seeds, chosen.nas_pte, str(Path(folder)), chosen.rounds)
    result = {
        "trials": chosen.trials,
        "threads": chosen.threads,
        "by_hand": hand,
        "layers": rows,
        "speedups": speedups(rows),
        "minutes": (time.monotonic() - started) / 60,
        "about": about(typed(), None),
    }
    save("tvm", result)


if __name__ == "__main__":
    main()
