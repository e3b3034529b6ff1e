"""Generated torch modules against PyTorch's own layers and against the naive plan: forward and backward, float32.

Each row is the median of ratios of neighbouring runs in one process, ours over the peer's (below 1: ours is faster),
for one and two threads; peak memory is what a training step allocates at once on top of input and weights.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from math import exp, log
from typing import Any

import torch
from common import about, keep_freed_memory, parser, save, say, typed
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import syno_lab as sl
from syno_lab.codegen.torch_module import to_torch
from syno_lab.ir.operator import Operator
from syno_lab.ir.plan import plan

# The seven distinct 3x3 layers of ResNet-34 on 224x224 images: channels in and out, height of the input, stride.
RESNET_34 = (
    (64, 64, 56, 1),
    (64, 128, 56, 2),
    (128, 128, 28, 1),
    (128, 256, 28, 2),
    (256, 256, 14, 1),
    (256, 512, 14, 2),
    (512, 512, 7, 1),
)
IMAGES = ((64, 56), (256, 14))
CONV_SPEC: dict[str, Any] = {
    "input_shape": "[N, C_in, H, W]",
    "output_shape": "[N, C_out, H, W]",
    "primary_specs": ["N=1: 0", "C_in=16: 3", "C_out=16: 1", "H=16: 0", "W=16: 0"],
    "coefficient_specs": ["k_1=3: 4", "k_2=5: 3", "s=2: 0", "g=4: 3"],
    "fixed_io_pairs": [(0, 0)],
    "max_primitives": 9,
    "max_tensors": 3,
    "max_reduces": 5,
}
Module = Callable[[Tensor], Tensor]


def step(module: Module, x: Tensor) -> float:
    """Seconds of one forward and backward pass, gradients dropped before."""
    x.grad = None
    if isinstance(module, nn.Module):
        module.zero_grad(set_to_none=True)
    start = time.perf_counter()
    y = module(x)
    y.backward(torch.ones_like(y))
    return time.perf_counter() - start


def peak_bytes(module: Module, x: Tensor) -> int:
    """The most bytes that one step has allocated at once."""
    x.grad = None
    if isinstance(module, nn.Module):
        module.zero_grad(set_to_none=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
            y = module(x)
            y.sum().backward()
    inner: Any = found.profiler
    events = [e for e in inner.kineto_results.events() if e.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


def compare(ours: Module, peer: Module, x: Tensor, budget_s: float) -> dict[str, float]:
    """Ratio of times, ours over the peer's, each pair run together; milliseconds and peaks beside."""
    x.requires_grad_()
    pairs = []
    for _ in range(3):
        step(peer, x), step(ours, x)
    start = time.perf_counter()
    while len(pairs) < 15 or (time.perf_counter() - start < budget_s and len(pairs) < 200):
        if len(pairs) % 2:
            pairs.append((step(ours, x), step(peer, x)))
        else:
            theirs = step(peer, x)
            pairs.append((step(ours, x), theirs))
    return {
        "ratio": statistics.median(a / b for a, b in pairs),
        "ours_ms": 1e3 * statistics.median(a for a, _ in pairs),
        "peer_ms": 1e3 * statistics.median(b for _, b in pairs),
        "ours_peak_bytes": peak_bytes(ours, x),
        "peer_peak_bytes": peak_bytes(peer, x),
    }


class Row:
    """One comparison: made when it is run, so that only one row's tensors are alive."""

    def __init__(self, table: str, name: str, shape: tuple[int, ...], ours: nn.Module, peer: Module) -> None:
        self.table, self.name, self.shape, self.ours, self.peer = table, name, shape, ours, peer

    def run(self, budget_s: float) -> dict[str, Any]:
        """Its line of the results."""
        x = torch.randn(self.shape)
        found = {"table": self.table, "name": self.name, "input": list(self.shape)}
        return found | compare(self.ours, self.peer, x, budget_s)


def convolutions(batch: int) -> list[Row]:
    """conv2d and Operator 1 against ``nn.Conv2d`` on ResNet-34's layers."""
    rows = []
    for c_in, c_out, height, stride in RESNET_34:
        name = f"{c_in}->{c_out} {height}x{height}"
        sizes = {"N": 1, "C_in": c_in, "C_out": c_out, "H": height, "W": height}
        shape = (batch, c_in, height, height)
        known = sl.operators
        peer = nn.Conv2d(c_in, c_out, 3, padding=1, bias=False)
        rows.append(Row("conv2d", f"{name}, stride 1", shape, known.conv2d().to_torch(sizes), peer))
        if stride == 2:
            strided = nn.Conv2d(c_in, c_out, 3, padding=1, stride=2, bias=False)
            small = {**sizes, "H": height // 2, "W": height // 2, "s": 2}
            rows.append(Row("conv2d", f"{name}, stride 2", shape, known.strided().to_torch(small), strided))
            peer = strided
        for s in (2, 4):
            one = known.operator_1().to_torch({**sizes, "g": 8, "s": s})
            rows.append(Row("operator_1", f"{name}, s={s}, for a layer of stride {stride}", shape, one, peer))
    return rows


def own_calls(batch: int) -> list[Row]:
    """Operators that PyTorch has a call for."""
    known = sl.operators
    rows = []
    for c, h in IMAGES:
        shape, sizes = (batch, c, h, h), {"N": 1, "C": c, "C_in": c, "C_out": c, "H": h, "W": h}
        half = {**sizes, "H": h // 2, "W": h // 2, "s": 2}

        def conv(groups: int = 1, dilation: int = 1, kernel: int = 3, c: int = c) -> nn.Module:
            return nn.Conv2d(
                c, c, kernel, padding=dilation * (kernel // 2), dilation=dilation, groups=groups, bias=False
            )

        def made(operator: Operator, values: dict[str, int], **options: Any) -> nn.Module:
            names = operator.spec.symbols.names
            return to_torch(operator, {k: v for k, v in values.items() if k in names}, **options)

        dilated = made(known.dilated(), {**sizes, "s": 2})
        bare = nn.Conv2d(c, c, 3, dilation=2, bias=False)
        pairs: list[tuple[str, nn.Module, Module]] = [
            ("depthwise 3x3", made(known.depthwise(), sizes), conv(c)),
            ("grouped 3x3, g=4", made(known.grouped(), {**sizes, "g": 4}), conv(4)),
            ("grouped 3x3, g=16", made(known.grouped(), {**sizes, "g": 16}), conv(16)),
            ("dilated 3x3, d=2, peer padded alike", dilated, nn.Sequential(nn.ZeroPad2d((3, 1, 3, 1)), bare)),
            ("dilated 3x3, d=2, peer padded symmetrically", dilated, conv(dilation=2)),
            ("separable 3x3", made(known.separable(), sizes), nn.Sequential(conv(c), conv(kernel=1))),
            ("1x1", made(known.conv1x1(), sizes), conv(kernel=1)),
            ("average pooling 2x2", made(known.sum_pool(), half, scale=0.25), nn.AvgPool2d(2)),
            ("average pooling 3x3, stride 1", made(known.sum_pool_window(), sizes, scale=1 / 9), nn.AvgPool2d(3, 1, 1)),
            ("pixel shuffle", made(known.pixel_shuffle(), {**sizes, "C": c // 4, "s": 2}), nn.PixelShuffle(2)),
            ("pixel unshuffle", made(known.pixel_unshuffle(), half), nn.PixelUnshuffle(2)),
        ]
        rows += [Row("calls", f"{name}, {c}x{h}x{h}", shape, ours, peer) for name, ours, peer in pairs]
    for m, k, n in ((256, 512, 512), (64, 2048, 128)):
        matmul = known.matmul().to_torch({"M": m, "K": k, "N": n})
        rows.append(Row("calls", f"matmul {m}x{k} @ {k}x{n}", (m, k), matmul, nn.Linear(k, n, bias=False)))
    even = sl.operators.conv2d().to_torch({"N": 1, "C_in": 64, "C_out": 64, "H": 56, "W": 56, "k_1": 4})
    peer = nn.Sequential(nn.ZeroPad2d((2, 1, 2, 1)), nn.Conv2d(64, 64, 4, bias=False))
    rows.append(Row("calls", "convolution 4x4 after a pad, 64x56x56", (batch, 64, 56, 56), even, peer))
    return rows


def compiled(batch: int) -> list[Row]:
    """Modules through ``torch.compile`` against the same modules without."""
    rows = []
    sizes = {"N": 1, "C_in": 128, "C_out": 128, "H": 28, "W": 28}
    for name, values in (("conv2d", {}), ("operator_1", {"g": 8, "s": 2}), ("separable", {}), ("half_step_shift", {})):
        operator = sl.operators.KNOWN[name]()
        plain, fast = (to_torch(operator, sizes | values, compile=c) for c in (False, True))
        rows.append(Row("compile", name, (batch, 128, 28, 28), fast, plain))
    return rows


def plans(count: int, seed: int, budget_s: float) -> list[dict[str, Any]]:
    """The plan with the fewest FLOPs against the naive one on sampled operators where the two differ in FLOPs."""
    sampler = sl.Sampler(**CONV_SPEC, seed=seed)
    rows: list[dict[str, Any]] = []
    for number, operator in enumerate(sampler.samples()):
        if len(rows) == count:
            break
        binding = operator.complete_binding(None)
        flops = {o: plan(operator, binding, o).flops for o in ("best", "naive")}
        if flops["best"] == flops["naive"]:
            continue
        best, naive = (to_torch(operator, binding, order=o) for o in ("best", "naive"))
        x = torch.randn(4, *operator.input_sizes(binding)[1:])
        found = {"table": "plans", "name": str(operator), "number": number}
        found |= {"best_flops": flops["best"], "naive_flops": flops["naive"]}
        rows.append(found | compare(best, naive, x, budget_s))
    return rows


def geometric_mean(values: list[float]) -> float:
    """Of positive numbers."""
    return exp(sum(map(log, values)) / len(values))


def main() -> None:
    """Measure, print and write ``results/codegen.json``."""
    options = parser(__doc__ or "")
    options.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    options.add_argument("--tables", nargs="+", default=["conv2d", "operator_1", "calls", "plans", "compile"])
    options.add_argument("--operators", type=int, default=100, help="sampled operators on which plans are compared")
    options.add_argument("--seconds", type=float, default=1.0, help="for each row, and at least 15 pairs of runs")
    chosen = options.parse_args()
    torch.manual_seed(chosen.seed)
    keep_freed_memory()
    rows: list[dict[str, Any]] = []
    for threads in chosen.threads:
        torch.set_num_threads(threads)
        found: list[dict[str, Any]] = []
        for batch in chosen.batch:
            makers = [convolutions, own_calls, *([compiled] if batch == chosen.batch[-1] else [])]
            todo = [row for make in makers for row in make(batch) if row.table in chosen.tables]
            for row in todo:
                found.append({"threads": threads, "batch": batch} | row.run(chosen.seconds))
                say(f"{threads} threads, batch {batch}: {row.table} {row.name}: {found[-1]['ratio']:.2f}")
        if "plans" in chosen.tables:
            sampled = plans(chosen.operators, chosen.seed, chosen.seconds / 10)
            found += [{"threads": threads, "batch": 4} | row for row in sampled]
            ratios = [row["ratio"] for row in sampled]
            say(f"{threads} threads: plans: mean {geometric_mean(ratios):.2f}, worst {max(ratios):.2f}")
        rows += found
    save("codegen", {"about": {**about(typed(), None), "torch": torch.__version__}, "rows": rows})


if __name__ == "__main__":
    main()
