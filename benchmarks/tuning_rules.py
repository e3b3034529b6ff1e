"""What each schedule rule buys: conv2d tuned in spaces composed rule by rule, and with a rule of one's own.

As Figure 10a of the MetaSchedule paper (Shao et al., 2022), which does it for BERT's fused-dense. All spaces get the
same trials and seeds, in one run on one core; every result was compared with the unscheduled program's output. At the
end the best schedule of each space is timed beside the others, call by call in turn: by this they are compared.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

from common import RESULTS, about, parser, save, say, typed, use_one_core

import syno_lab as sl
from syno_lab.tuning import Method, TuningResult, TuningTask, local_board, tune
from syno_lab.tuning.measuring import time_schedules

SIZES = {"N": 1, "C_in": 64, "C_out": 64, "H": 28, "W": 28}


def channel_lanes(schedule, block):
    """Sum 16 output channels at once, in the lanes of vector registers that stay put for several pixels of a row."""
    if schedule.get(block).name_hint != "Y":
        return
    copy = schedule.cache_write(block, 0, "global")
    n, o, h, w, c, p, q = schedule.get_loops(block)
    o_0, o_1 = schedule.split(o, [None, 16])
    w_0, w_1 = schedule.split(w, schedule.sample_perfect_tile(w, 2, 14))
    c_0, c_1 = schedule.split(c, schedule.sample_perfect_tile(c, 2, 64))
    schedule.reorder(n, o_0, h, w_0, c_0, p, q, c_1, w_1, o_1)
    schedule.reverse_compute_at(copy, w_0)
    schedule.transform_layout(block, ("write", 0), lambda n, o, h, w: (n, o // 16, h, w, o % 16))
    schedule.vectorize(o_1)
    schedule.unroll(w_1)
    schedule.decompose_reduction(block, c_0)


#: Each space by its name, in the order in which rules are added; the last has our rule in the place of TVM's tiling.
METHODS = {
    "no rule": Method(rules=()),
    "tiling": Method(rules=("tiling",)),
    "+ vectorize": Method(rules=("tiling", "vectorize")),
    "+ unroll": Method(rules=("tiling", "vectorize", "unroll")),
    "+ compute-location": Method(rules=("tiling", "vectorize", "unroll", "compute-location")),
    "channel lanes": Method(rules=(channel_lanes, "compute-location")),
}


def row(name: str, method: Method, found: list[TuningResult]) -> dict[str, object]:
    """What is kept of the tunings in one space, one for each seed."""
    best = min(found, key=lambda one: one.best_ms)
    return {
        "space": name,
        "method": str(method),
        "best_ms": [one.best_ms for one in found],
        "latency_ms": [one.latency_ms for one in found],
        "median_best_ms": statistics.median(one.best_ms for one in found),
        "verified": all(one.verified for one in found),
        "trials": [one.trials for one in found],
        "failed": [one.failed for one in found],
        "seconds": [one.seconds for one in found],
        "history": [[list(point) for point in one.history] for one in found],
        "trace": best.trace,
    }


def beside(task: TuningTask, rows: list[dict[str, object]], rounds: int) -> None:
    """Time the winners of all spaces beside each other, and put the least and the median of each into its row."""
    found = time_schedules(task, {str(one["space"]): str(one["trace"]) for one in rows}, rounds)
    for one in rows:
        times = found[str(one["space"])]
        one["beside_ms"] = {"least": min(times), "median": statistics.median(times), "calls": len(times)}


def main() -> None:
    """Run it."""
    options = parser(__doc__ or "")
    options.add_argument("--trials", type=int, default=32)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--rounds", type=int, default=200, help="calls of each winner beside the others")
    options.add_argument("--again", action="store_true", help="tune nothing: time the stored winners again")
    chosen = options.parse_args()
    core = use_one_core(chosen.core)
    task = TuningTask("conv2d", sl.operators.conv2d().to_json(), SIZES)
    if chosen.again:
        stored = json.loads((RESULTS / "tuning_rules.json").read_text(encoding="utf-8"))
        beside(task, stored["rows"], chosen.rounds)
        stored["about"]["then"] = typed()
        save("tuning_rules", stored)
        return
    found: dict[str, list[TuningResult]] = {name: [] for name in METHODS}
    with local_board() as board, tempfile.TemporaryDirectory() as folder:
        # Seed by seed: what disturbs the machine for a while disturbs all spaces.
        for seed in range(chosen.seed, chosen.seed + chosen.seeds):
            for name, method in METHODS.items():
                result = tune(
                    task,
                    tracker=board.address,
                    key=board.key,
                    method=method,
                    trials=chosen.trials,
                    seed=seed,
                    work_dir=Path(folder),
                    deadline_s=1800,
                )
                found[name].append(result)
                say(f"seed {seed}, {name}: {result.best_ms:.3f} ms in {result.trials} trials, {result.seconds:.0f} s")
            # After each seed, so that a run that is cut short leaves what it has.
            rows = [row(name, method, found[name]) for name, method in METHODS.items()]
            facts = about(typed(), core) | {"target": found["tiling"][0].target, "tvm": found["tiling"][0].tvm_version}
            beside(task, rows, chosen.rounds)
            save("tuning_rules", {"about": facts, "task": task.request(), "trials": chosen.trials, "rows": rows})


if __name__ == "__main__":
    main()
