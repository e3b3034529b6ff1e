"""Canvas's sampler, solver and modules: rates, repeats, use of the budget, what trains, what is rediscovered.

``python benchmarks/canvas.py --part sampler`` draws kernels for ResNet-20's convolutions in three settings, and counts
distinct valid ones for each CPU-second (each fitted and with its key), attempts that are valid, repeats by key, kernels
that keep a dynamic variable, and the share of the budget that these use. ``solver``: the time of one solution for
ResNet-34's 33 places. ``trust``: whether the meaning, PyTorch, TVM, files and keys agree on random kernels at small
places; the command fails when a kernel does. ``modules``: random kernels in all places of ResNet-20, as they are drawn:
how many build and run, and how many have finite numbers and gradients, and a lower loss, after 24 steps of SGD on
images; it goes on where it was ended. ``conv2d``: the
convolution as a kernel against ``nn.Conv2d``. ``rediscovery``: CPU-seconds until known kernels are drawn from small
sets of primitives, squeeze-and-excitation from one whose types all must be in a kernel. Results are in
``benchmarks/results/canvas.json``, part by part.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from typing import Any

from canvas_modules import modules
from canvas_trust import trust
from common import RESULTS, about, parser, save, say, typed, use_one_core

from syno_lab.canvas import Budget, Place, Sampler, known
from syno_lab.canvas.fitted import Fitted, fill, group_choices

#: ResNet-20's on CIFAR-10, and ResNet-34's on ImageNet, each without the first convolution and those of 1 x 1.
RESNET_20 = (
    Place(16, 16, 32, 32, layers=6),
    Place(16, 32, 16, 16, stride=2),
    Place(32, 32, 16, 16, layers=5),
    Place(32, 64, 8, 8, stride=2),
    Place(64, 64, 8, 8, layers=5),
)
RESNET_34 = tuple(
    Place(*sizes)
    for sizes, layers in (
        ((64, 64, 56, 56), 6),
        ((64, 128, 28, 28, 3, 3, 2), 1),
        ((128, 128, 28, 28), 7),
        ((128, 256, 14, 14, 3, 3, 2), 1),
        ((256, 256, 14, 14), 11),
        ((256, 512, 7, 7, 3, 3, 2), 1),
        ((512, 512, 7, 7), 5),
    )
    for _ in range(layers)
)
SETTINGS: dict[str, dict[str, Any]] = {
    "3 to 12 primitives, budget 1": {"max_flops": 1.0, "max_params": 1.0},
    "3 to 12 primitives, shares 0.1 to 0.5": {
        "max_flops": 0.5,
        "max_params": 0.5,
        "min_flops": 0.1,
        "min_params": 0.1,
    },
    "12 primitives, budget 1": {"max_flops": 1.0, "max_params": 1.0, "primitives": (12, 12)},
    "defaults": {},
}
_SQUEEZE = ("fold_avg", "fc", "relu", "sigmoid", "mul")
REDISCOVERED: dict[str, dict[str, Any]] = {
    "squeeze_excite": {"include": _SQUEEZE, "must_have": _SQUEEZE, "primitives": (7, 7), "fcs": (2, 2)},
    "depthwise_separable": {"include": ("unfold", "group", "fc", "relu"), "primitives": (3, 7), "fcs": (1, 2)},
    "residual": {"include": ("fc", "add", "relu", "shift"), "primitives": (2, 7), "must_mix": False},
}
#: Of the convolution as a kernel and ``nn.Conv2d``, the order of the two changing.
PAIRS = 30


def main() -> None:
    """Measure one part, or all, and save."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--part", choices=PARTS, help="one part alone")
    arguments.add_argument("--count", type=int, default=5000, help="kernels drawn in each setting, and of trust (5000)")
    arguments.add_argument("--kernels", type=int, default=500, help="kernels that are built and run in networks (500)")
    arguments.add_argument("--trained", type=int, default=500, help="and trained for some steps (500)")
    arguments.add_argument("--gradients", type=int, default=500, help="kernels of trust whose gradients are compared")
    arguments.add_argument("--tvm", type=int, default=500, help="and that are compiled by TVM (500)")
    arguments.add_argument("--seeds", type=int, default=5, help="of rediscovery (5)")
    arguments.add_argument("--data", help="a folder with CIFAR-10, for the part modules")
    given = arguments.parse_args()
    core = use_one_core(given.core)
    failed = False
    for name in [given.part] if given.part else PARTS:
        if name == "modules" and given.data is None:
            say("modules: no --data, left out")
            continue
        measured = about(typed(), core)  # now: files may change meanwhile

        def keep(result: dict[str, Any], name: str = name, measured: dict[str, Any] = measured) -> None:
            save("canvas", stored() | {name: {"about": measured, **result}})

        part = PARTS[name]
        result = part(given, stored().get(name, {}), keep) if part in RESUMED else part(given)
        keep(result)
        failed |= bool(result.get("failures"))
    if failed:
        sys.exit("a kernel failed, see above")


def stored() -> dict[str, Any]:
    """All parts that were measured so far; another command may have measured one meanwhile."""
    file = RESULTS / "canvas.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def sampler(given: Any) -> dict[str, Any]:
    """Rates in each setting, from a cold start each."""
    return {name: _drawn(options, given.count) for name, options in SETTINGS.items()}


def _drawn(options: dict[str, Any], count: int) -> dict[str, Any]:
    sampler = Sampler(RESNET_20, normalise=False, seed=0, **options)
    keys, used, free = set(), [], 0
    begun = time.process_time()
    kernels = 0
    while kernels < count:
        fitted = sampler.attempt().fitted
        if fitted is None:
            continue
        kernels += 1
        keys.add(fitted.kernel.key)
        if fitted.kernel.free:
            free += 1
            used.append(fitted)
    cpu_s = time.process_time() - begun
    shares = sorted(_used(fitted, sampler.budget) for fitted in used)
    return {
        "distinct_per_cpu_s": len(keys) / cpu_s,
        "valid": kernels / sum(sampler.outcomes.values()),
        "repeats": 1 - len(keys) / kernels,
        "free": free / kernels,
        "used": {"median": statistics.median(shares), "least": shares[0]} if shares else None,
        "outcomes": dict(sampler.outcomes),
    }


def _used(fitted: Fitted, budget: Budget) -> float:
    """The share of the binding limit."""
    flops, params = fitted.spent
    return max(flops / (budget.max_flops or float("inf")), params / (budget.max_params or float("inf")))


def solver(given: Any) -> dict[str, Any]:
    """CPU milliseconds for one kernel at all places of ResNet-34, within half of the FLOPs and parameters."""
    draws = Sampler(RESNET_34, max_flops=1, normalise=False, seed=1)
    budget = Budget.of_shares(RESNET_34, max_flops=0.5, max_params=0.5)
    rng, times = random.Random(0), []
    while len(times) < 300:
        fitted = draws.attempt().fitted
        if fitted is None or not fitted.kernel.free:
            continue
        begun = time.process_time()
        solved = fill(fitted.kernel, RESNET_34, budget, rng.choice(group_choices(fitted.kernel, RESNET_34)))
        if isinstance(solved, Fitted):
            times.append(1000 * (time.process_time() - begun))
    return {"places": len(RESNET_34), "ms": {"median": statistics.median(times), "worst": max(times)}}


def conv2d(given: Any) -> dict[str, Any]:
    """CPU time of the convolution as a kernel over that of ``nn.Conv2d``, forwards and backwards, in pairs."""
    import torch

    torch.set_num_threads(1)
    bound = {"C_in": 64, "C_out": 64, "H": 28, "W": 28}
    ours = Fitted(known.convolution()).to_torch(bound)
    theirs = torch.nn.Conv2d(64, 64, 3, padding=1, bias=False)
    x = torch.randn(8, 64, 28, 28, requires_grad=True)

    def seconds(module: torch.nn.Module) -> float:
        begun = time.process_time()
        for _ in range(10):
            module(x).sum().backward()
        return time.process_time() - begun

    for module in (ours, theirs):
        seconds(module)
    ratios = []
    for number in range(PAIRS):
        first, second = (ours, theirs) if number % 2 else (theirs, ours)
        spent = {first: seconds(first), second: seconds(second)}
        ratios.append(spent[ours] / spent[theirs])
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {"ratio": middle, "quarters": [low, high], "pairs": PAIRS}


def rediscovery(given: Any) -> dict[str, Any]:
    """CPU-seconds and kernels until each known kernel is drawn, for each seed; None after 60 seconds."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, options in REDISCOVERED.items():
        wanted = known.KNOWN[name]().key
        rows[name] = []
        for seed in range(given.seeds):
            sampler = Sampler(
                RESNET_20[:1], max_flops=None, width=2, prefers_free=False, normalise=False, seed=seed, **options
            )
            begun, found = time.process_time(), None
            while found is None and time.process_time() - begun < 60:
                fitted = sampler.attempt().fitted
                if fitted is not None and fitted.kernel.key == wanted:
                    found = time.process_time() - begun
            rows[name].append({"cpu_s": found, "kernels": sampler.outcomes["kernel"]})
    return rows


#: Parts that keep what they have so far, and go on from it.
RESUMED = (modules,)
PARTS = {
    "sampler": sampler,
    "solver": solver,
    "trust": trust,
    "modules": modules,
    "conv2d": conv2d,
    "rediscovery": rediscovery,
}

if __name__ == "__main__":
    main()
