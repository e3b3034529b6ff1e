"""Half the trials with TVM's task scheduler against equal shares: the latency of a whole network, three tunings each.

Every tuning starts from nothing, in records of its own. Of one seed, the network tuned with equal shares and the one
tuned with half as many trials by the scheduler are measured in turn, in one process, through Relax. ``--plan`` says
what it would do and how long that takes, and does nothing.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import RESULTS, about, parser, save, say, typed
from msgspec import to_builtins

from syno_lab.api import operators

if TYPE_CHECKING:
    from torch import nn

#: Seconds that a trial, a function's final measurements and a network's export, compilation and runs took on a quiet
#: machine of two cores: for the plan alone.
TRIAL_S, FINISH_S, NETWORK_S = 0.6, 4.0, 90.0


def network(backbone: str, operator: str) -> tuple[nn.Module, tuple[int, int, int, int]]:
    """The backbone with the operator in its places (``conv2d``: as it is), and the shape of its example."""
    from syno_lab.models.registry import backbone as find_backbone
    from syno_lab.tuning.versus import both_networks

    found = find_backbone(backbone)
    net, image = found.build().eval(), (3, found.size, found.size)
    if operator != "conv2d":
        _, net, _ = both_networks(operators.KNOWN[operator](), net, image, found.selection)
    return net.eval(), (1, *image)


def main() -> None:
    """Plan, tune, measure and save."""
    options = parser(__doc__ or "")
    options.add_argument("--backbone", default="resnet20")
    options.add_argument("--operator", default="conv2d", choices=list(operators.KNOWN))
    options.add_argument("--trials", type=int, default=16, help="candidates of each function with equal shares (16)")
    options.add_argument("--tunings", type=int, default=3, help="tunings of each kind, with seeds of their own (3)")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--rounds", type=int, default=5, help="measurements of each network, in turn (5)")
    options.add_argument("--plan", action="store_true", help="say what it would do, and how long it takes")
    chosen = options.parse_args()
    from syno_lab.codegen.tvm_job import network_tasks
    from syno_lab.tuning.network import compiled, run_networks, tune_functions

    net, shape = network(chosen.backbone, chosen.operator)
    target = f"local:{chosen.threads}"
    tasks = network_tasks(net, shape, target=target)
    equal, half = chosen.trials * len(tasks), max(chosen.trials * len(tasks) // 2, len(tasks))
    seconds = chosen.tunings * ((equal + half) * TRIAL_S + 2 * len(tasks) * FINISH_S + 2 * NETWORK_S)
    calls = sum(one.calls for one in tasks)
    say(
        f"{chosen.backbone} with {chosen.operator}: {len(tasks)} functions, {calls} calls; "
        f"{chosen.tunings} times {equal} trials in equal shares and {half} by the scheduler: about "
        f"{seconds / 60:.0f} minutes"
    )
    if chosen.plan:
        return
    kinds: dict[str, dict[str, Any]] = {
        "equal": {"scheduler": "equal", "total": equal},
        "gradient": {"scheduler": "gradient", "total": half},
    }
    rows: list[dict[str, Any]] = []
    for seed in range(chosen.seed, chosen.seed + chosen.tunings):
        with tempfile.TemporaryDirectory() as name:
            folder, ready, row = Path(name), [], {"seed": seed}
            for kind, budget in kinds.items():
                started = time.monotonic()
                done = tune_functions(net, shape, target=target, records=folder / kind, seed=seed, **budget)
                row[kind] = {
                    "seconds": time.monotonic() - started,
                    "trials": done.trials,
                    "parts": to_builtins(done.parts),
                }
                row[kind]["failed"] = {key: why.replace(name, "") for key, why in done.failed.items()}
                ready.append(compiled(done, folder, name=kind))
                say(f"seed {seed}, {kind}: {done.trials} trials in {row[kind]['seconds']:.0f} s")
            found, where = run_networks(ready, done.options, rounds=chosen.rounds)
            for kind, measured in zip(kinds, found, strict=True):
                row[kind]["latency_ms"] = statistics.median(one.latency_ms for one in measured)
                row[kind]["rounds_ms"] = [one.latency_ms for one in measured]
            row["ratio"] = row["gradient"]["latency_ms"] / row["equal"]["latency_ms"]
        rows.append(row)
        say(
            f"seed {seed} on {where}: {row['equal']['latency_ms']:.3f} ms in equal shares, "
            f"{row['gradient']['latency_ms']:.3f} ms by the scheduler with half the trials ({row['ratio']:.3f})"
        )
    told: dict[str, Any] = {"about": about(typed(), None), "rows": rows}
    names = ("backbone", "operator", "trials", "tunings", "threads", "rounds")
    told["settings"] = {name: getattr(chosen, name) for name in names} | {"functions": len(tasks)}
    for kind in (*kinds, "ratio"):
        values = [row["ratio"] if kind == "ratio" else row[kind]["latency_ms"] for row in rows]
        told[kind] = {"median": statistics.median(values), "least": min(values), "most": max(values)}
        say(f"{kind}: median {told[kind]['median']:.3f} ({min(values):.3f} to {max(values):.3f})")
    file = RESULTS / "task_scheduler.json"
    before = json.loads(file.read_text(encoding="utf-8"))["runs"] if file.exists() else []
    others = [run for run in before if run["settings"]["backbone"] != chosen.backbone]
    runs = sorted([*others, told], key=lambda run: run["settings"]["backbone"])
    save("task_scheduler", {"abouts": [run["about"] for run in runs], "runs": runs})


if __name__ == "__main__":
    main()
