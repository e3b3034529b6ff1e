"""A tuned operator against PyTorch's call of it: eager, ``torch.compile`` and TVM, measured in turns.

``syno-lab tune conv2d --compare`` is the same for a user. By default conv2d with 64 channels, 28x28, in one thread.
Then single calls of PyTorch and of the winner in turn: the least of many is what other programs disturb least.
``--again`` times the stored winner in that way once more, without tuning.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from common import RESULTS, about, parser, save, say, tuned_here, typed

from syno_lab.api import operators
from syno_lab.tuning import TuningTask, local_board, time_schedules
from syno_lab.tuning.measuring import measure
from syno_lab.tuning.records import key_of

NAME = "against_pytorch"


def single(task: TuningTask, trace: str, threads: int, turns: int = 4, calls: int = 1000) -> dict[str, Any]:
    """Milliseconds of single calls: the least and the tenth part, of PyTorch's and the winner's in turns."""
    import torch

    from syno_lab.ir.operator import Operator

    torch.set_num_threads(threads)
    module = Operator.from_json(task.operator).to_torch(dict(task.binding)).eval()
    x = torch.randn(*(task.binding[name] for name in ("N", "C_in", "H", "W")))
    found: dict[str, list[float]] = {"eager": [], "tvm": []}
    for _ in range(turns):
        with torch.inference_mode():
            for _ in range(calls):
                started = time.perf_counter()
                module(x)
                found["eager"].append(1e3 * (time.perf_counter() - started))
        found["tvm"] += time_schedules(task, {"tvm": trace}, calls)["tvm"]
    told = {way: {"least_ms": min(ms), "tenth_ms": statistics.quantiles(ms, n=10)[0]} for way, ms in found.items()}
    return {"about": about(typed(), None), "calls": turns * calls, **told}


def main() -> None:
    """Tune, measure and save."""
    options = parser(__doc__ or "")
    options.add_argument("--operator", default="conv2d", choices=list(operators.KNOWN))
    options.add_argument("--channels", type=int, default=64)
    options.add_argument("--height", type=int, default=28)
    options.add_argument("--preset", default="thorough")
    options.add_argument("--trials", type=int, help="the preset's unless given")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--again", action="store_true", help="time the stored winner, tune nothing")
    options.add_argument("--rounds", type=int, default=10, help="rounds of five samples of each way (10)")
    chosen = options.parse_args()
    sizes = {"N": 1, "H": chosen.height, "W": chosen.height, "C_in": chosen.channels, "C_out": chosen.channels}
    value = operators.KNOWN[chosen.operator]()
    task = TuningTask(chosen.operator, value.to_json(), value.complete_binding(sizes))
    if chosen.again:
        stored = json.loads((RESULTS / f"{NAME}.json").read_text(encoding="utf-8"))
        if stored["binding"] != dict(task.binding):
            options.error(f"--again: expected the sizes of the stored tuning, {stored['binding']}")
        save(NAME, stored | {"single": single(task, stored["tuning"]["trace"], chosen.threads)})
        return
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "records"
        with local_board(threads=chosen.threads) as board:
            found = tuned_here(
                task,
                board,
                chosen,
                folder,
                seed=chosen.seed,
                store=store,
                on_progress=lambda now: say(f"{now}") if now.trial % 16 == 0 else None,
            )
        key = key_of(task, found.target, found.tvm_version, found.conditions, found.method)
        compared = measure(
            task, record=(store, key), threads=chosen.threads, repeats=5 * chosen.rounds, rounds=chosen.rounds
        )
    tuning = {name: getattr(found, name) for name in ("trials", "failed", "best_ms", "latency_ms", "seconds", "trace")}
    told = {"about": about(typed(), None), "binding": dict(task.binding), "preset": chosen.preset, "tuning": tuning}
    told |= {"comparison": compared.to_dict(), "single": single(task, found.trace, chosen.threads)}
    save(NAME, told)


if __name__ == "__main__":
    main()
