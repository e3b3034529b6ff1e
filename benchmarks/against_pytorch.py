"""A tuned operator against PyTorch's call of it: eager, ``torch.compile`` and TVM, measured in turns.

``syno-lab tune conv2d --compare`` is the same for a user. By default conv2d with 64 channels, 28x28, in one thread.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from common import about, parser, save, say, typed

from syno_lab.api import operators
from syno_lab.evaluate.tuning import TuningTask, local_board, tune
from syno_lab.evaluate.tuning.measuring import measure
from syno_lab.evaluate.tuning.records import key_of


def main() -> None:
    """Tune, measure and save."""
    options = parser(__doc__ or "")
    options.add_argument("--operator", default="conv2d", choices=list(operators.KNOWN))
    options.add_argument("--channels", type=int, default=64)
    options.add_argument("--height", type=int, default=28)
    options.add_argument("--preset", default="thorough")
    options.add_argument("--trials", type=int, help="the preset's unless given")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--rounds", type=int, default=10, help="rounds of five samples of each way (10)")
    chosen = options.parse_args()
    sizes = {"N": 1, "H": chosen.height, "W": chosen.height, "C_in": chosen.channels, "C_out": chosen.channels}
    value = operators.KNOWN[chosen.operator]()
    task = TuningTask(chosen.operator, value.to_json(), value.complete_binding(sizes))
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "records"
        with local_board(threads=chosen.threads) as board:
            found = tune(
                task,
                tracker=board.address,
                key=board.key,
                target=f"local:{chosen.threads}",
                preset=chosen.preset,
                trials=chosen.trials,
                seed=chosen.seed,
                work_dir=folder,
                store=store,
                deadline_s=3600.0,
                on_progress=lambda now: say(f"{now}") if now.trial % 16 == 0 else None,
            )
        key = key_of(task, found.target, found.tvm_version, found.conditions, found.method)
        compared = measure(
            task, record=(store, key), threads=chosen.threads, repeats=5 * chosen.rounds, rounds=chosen.rounds
        )
    tuning = {name: getattr(found, name) for name in ("trials", "failed", "best_ms", "latency_ms", "seconds", "trace")}
    told = {"about": about(typed(), None), "binding": dict(task.binding), "preset": chosen.preset, "tuning": tuning}
    save("against_pytorch", told | {"comparison": compared.to_dict()})


if __name__ == "__main__":
    main()
