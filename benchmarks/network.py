"""Whole networks by TVM's Relax: a backbone with convolutions and with operators in their places, all tuned alike.

The operators are Operators 1 and 2 of the Syno paper, in all places and with the strided layers kept, and the best
that the stored half hours discovered (``results/half_hours.json``: the highest accuracy, and of those the fewest
FLOPs). Each network has at most ``--total`` trials, which TVM's task scheduler shares out among its functions;
records are shared, so that what two networks call is tuned once. Then all are run in turn, in a process of their own,
as Figure 5 of the paper compares networks; PyTorch's own call of the backbone is timed beside them, in as many
threads. Beside each convolution stands its share of the processor's float32 peak, which ``peak.py`` measures first.

``results/network.json`` keeps a row for each backbone and number of threads. With ``--records FOLDER`` it goes on where
it was ended. ``syno-lab network`` compares two networks for a user.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import RESULTS, about, parser, save, say, typed

from syno_lab.api import operators
from syno_lab.systems import read_operator

if TYPE_CHECKING:
    from torch import nn

    from syno_lab.models.sites import Selection
    from syno_lab.protocol import Operator


def timed_ms(call: Callable[[], Any], threads: int, calls: int = 50) -> dict[str, float]:
    """Milliseconds of a call of PyTorch's in so many threads: the median and the least."""
    import torch

    torch.set_num_threads(threads)
    found = []
    with torch.inference_mode():
        for number in range(calls + 5):
            started = time.perf_counter()
            call()
            if number >= 5:
                found.append(1e3 * (time.perf_counter() - started))
    return {"latency_ms": statistics.median(found), "best_ms": min(found)}


def peak_gflops(threads: int) -> float:
    """GFLOP/s of this processor's float32 peak in so many threads, measured in a process of its own."""
    command = [sys.executable, str(Path(__file__).with_name("peak.py")), "--threads", str(threads)]
    environment = os.environ | {"TVM_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=300)
    return float(done.stdout)


def discovered() -> Operator:
    """The best operator of the stored half hours."""
    rows = json.loads((RESULTS / "half_hours.json").read_text(encoding="utf-8"))["rows"]
    found = [
        (one["over_seeds"]["difference"], -row["best"][share]["flops_ratio"], row["best"][share]["operator"])
        for row in rows
        for share, one in row["comparisons"].items()
        if one is not None
    ]
    return read_operator(max(found)[2])


def networks(selection: Selection) -> dict[str, tuple[Operator, Selection]]:
    """The operators and which layers they replace, by the name of their row."""
    kept = replace(selection, stride=(1, 1))
    found: dict[str, tuple[Operator, Selection]] = {}
    for name in ("operator_1", "operator_2"):
        for words, which in (("all places", selection), ("strided layers kept", kept)):
            found[f"{name}, {words}"] = (operators.KNOWN[name](), which)
    return found | {"the best discovered, all places": (discovered(), selection)}


def alone_ms(tasks: Any, results: dict[str, Any]) -> float | None:
    """Milliseconds of a network's functions, each called alone on the same data; None where one has no candidate."""
    if any(task.label not in results for task in tasks):
        return None
    return float(sum(task.calls * results[task.label].latency_ms for task in tasks))


def convolutions(tasks: Any, results: dict[str, Any], peak: float) -> list[dict[str, Any]]:
    """The functions with a convolution: calls, milliseconds of a call, GFLOP/s, and these over ``peak``.

    A convolution with a stride is Relax's own, one without is conv2d's pGraph, which Relax names an operator.
    """
    from tvm.s_tir.analysis import estimate_tir_flops

    from syno_lab.codegen.tvm_network import task_module

    rows = []
    for task in tasks:
        if ("conv" in task.label or "operator" in task.label) and task.label in results:
            milliseconds = results[task.label].latency_ms
            gflops = estimate_tir_flops(task_module(task.operator, {}, "float32")) / milliseconds / 1e6
            rows.append({"name": task.label, "calls": task.calls, "latency_ms": milliseconds, "gflops": gflops})
            rows[-1]["share_of_peak"] = gflops / peak
    return rows


@contextmanager
def kept(folder: Path | None) -> Iterator[Path]:
    """The folder for records: the given one, or one that is removed at the end."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def main() -> None:
    """Tune, measure and save."""
    options = parser(__doc__ or "")
    options.add_argument("--backbone", default="resnet20")
    options.add_argument("--total", type=int, default=600, help="candidates of a network, at most (600)")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--rounds", type=int, default=5, help="measurements of each network, in turn (5)")
    options.add_argument("--records", type=Path, help="a folder for records, to go on later")
    options.add_argument(
        "--convolutions", action="store_true", help="time the stored run's convolutions again, no more"
    )
    options.add_argument("--note", default="", help="what else to know of the run, such as the machine's load")
    chosen = options.parse_args()
    import torch

    from syno_lab.models.registry import backbone
    from syno_lab.scratch import scratch
    from syno_lab.tuning.network import compiled, run_networks, tune_functions
    from syno_lab.tuning.versus import both_networks

    found = backbone(chosen.backbone)
    net, target = found.build().eval(), f"local:{chosen.threads}"
    image, example = (3, found.size, found.size), (1, 3, found.size, found.size)
    rows, ready, x, peak = list[dict[str, Any]](), [], torch.randn(*example), peak_gflops(chosen.threads)
    wanted = {} if chosen.convolutions else networks(found.selection)
    # The baseline as `syno-lab network` has it: conv2d's pGraph where an operator can stand and no stride is.
    first, _, _ = both_networks(operators.KNOWN["operator_1"](), net, image, found.selection)
    built: dict[str, tuple[nn.Module, int, list[int]]] = {"convolutions": (first.eval(), flops(net, image), [])}
    for name, (operator, selection) in wanted.items():
        _, one, places = both_networks(operator, net, image, selection)
        taken = [sum(place.replaced for place in places), len(places)]
        built[name] = (one.eval(), changed(flops(net, image), net, image, places), taken)
    told: dict[str, Any] = {"about": about(typed(), None), "note": chosen.note, "peak_gflops": peak}
    told |= {name: getattr(chosen, name) for name in ("backbone", "total", "threads", "rounds")}
    told["eager"] = timed_ms(lambda: net(x), chosen.threads)
    with kept(chosen.records) as records, scratch("syno-networks-") as folder:
        for name, (one, count, taken) in built.items():
            started = time.monotonic()
            done = tune_functions(one, example, target=target, records=records, total=chosen.total, seed=chosen.seed)
            row = {"name": name, "flops": count, "places": taken, "functions": len(done.tasks), "trials": done.trials}
            row |= {"known": done.known, "failed": len(done.failed), "tuning_s": time.monotonic() - started}
            if name == "convolutions":
                told["convolutions"] = convolutions(done.tasks, done.results, peak)
                if chosen.convolutions:
                    store(told)
                    return
            row["functions_ms"] = alone_ms(done.tasks, done.results)
            ready.append(compiled(done, folder, name=f"network{len(rows)}"))
            rows.append(row)
            say(f"{name}: {done.trials} trials, {done.known} of them known, {row['tuning_s']:.0f} s")
        measured, where = run_networks(ready, done.options, rounds=chosen.rounds)
    for row, rounds in zip(rows, measured, strict=True):
        row["latency_ms"] = statistics.median(one.latency_ms for one in rounds)
        row["best_ms"] = min(one.best_ms for one in rounds)
        row["error"] = rounds[-1].error
        say(f"{row['name']}: {row['latency_ms']:.3f} ms")
    told |= {"networks": rows, "where": where}
    store(told)


def store(told: dict[str, Any]) -> None:
    """Put a run in the place of the one with its backbone and number of threads, or its convolutions alone into it."""
    file = RESULTS / "network.json"
    before = json.loads(file.read_text(encoding="utf-8")).get("rows", []) if file.exists() else []
    same = [row for row in before if (row["backbone"], row["threads"]) == (told["backbone"], told["threads"])]
    if "networks" not in told:
        if not same:
            sys.exit(f"--convolutions: expected a stored run of {told['backbone']} with these threads, found none")
        told = same[0] | {name: told[name] for name in ("convolutions", "peak_gflops")}
    others = [row for row in before if row not in same]
    order = sorted([*others, told], key=lambda row: (row["backbone"], row["threads"]))
    save("network", {"abouts": [row["about"] for row in order], "rows": order})


def flops(net: nn.Module, image: tuple[int, int, int]) -> int:
    """FLOPs of one image, two for each multiply-add."""
    from syno_lab.models.layers import survey

    return survey(net, image).flops


def changed(before: int, net: nn.Module, image: tuple[int, int, int], places: Any) -> int:
    """FLOPs of the network once the operator stands in its places."""
    from syno_lab.models.layers import survey

    own = {site.name: site.flops for site in survey(net, image).sites}
    return before + sum(place.flops - own[place.name] for place in places if place.replaced)


if __name__ == "__main__":
    main()
