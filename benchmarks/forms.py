"""Sums over windows and blocks as slices, bands of ones, ``sum`` or ``avg_pool2d``: forward pass and training step.

The rules of shapes in :mod:`syno_lab.codegen.torch_band` and ``torch_convolution._sum`` come from these rows. A time is
the least CPU time of some runs in turns, one thread, batch 32. ``--summary`` prints what the rule chooses and costs.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from common import RESULTS, about, keep_freed_memory, parser, typed, use_one_core
from torch import Tensor
from torch.nn import functional as F

from syno_lab.codegen.torch_band import is_band_faster
from syno_lab.codegen.torch_convolution import MAX_ADDED

BATCH, RUNS = 32, 5
PLANES = ((64, 8), (32, 16), (32, 20), (16, 32), (16, 40))  # channels, rows and columns
WINDOWS = ((2, 1), (3, 1), (4, 1), (6, 1), (8, 1), (3, 2), (4, 2), (5, 2), (9, 2))  # positions of a window, stride
BLOCKS = (2, 4, 8)
Form = Callable[[Tensor], Tensor]


def windows(axis: int, taps: int, stride: int, length: int) -> dict[str, Form]:
    """The forms of a sum of ``taps`` positions along ``axis``, with zeros outside."""
    left, size = taps // 2, length // stride
    reach = stride * (size - 1) + 1
    ones = torch.ones(reach, length).tril(taps - 1 - left).triu(-left)[::stride].contiguous()
    pads = [0, 0] * (3 - axis) + [left, reach + taps - 1 - left - length]

    def slices(x: Tensor) -> Tensor:
        x, step, rest = F.pad(x, pads), 1, taps
        while rest > 1:
            count = next(n for n in range(2, rest + 1) if rest % n == 0)
            rest //= count
            n = x.shape[axis] - step * (count - 1)
            cuts = [x.narrow(axis, q * step, n) for q in range(count)]
            x, step = sum(cuts[1:], cuts[0]), step * count
        return x[(slice(None),) * axis + (slice(None, None, stride),)]

    def band(x: Tensor) -> Tensor:
        if axis == 3:
            return x @ ones.T.contiguous()
        y = torch.bmm(ones.expand(x.shape[0] * x.shape[1], -1, -1), x.flatten(0, 1))
        return y.unflatten(0, x.shape[:2])

    return {"slices": slices, "band": band}


def blocks(axis: int, count: int) -> dict[str, Form]:
    """The forms of a sum of blocks of ``count`` positions along ``axis``."""
    kernel = (count, 1) if axis == 2 else (1, count)

    def slices(x: Tensor) -> Tensor:
        first, *others = x.unflatten(axis, (-1, count)).unbind(axis + 1)
        return sum(others, first)

    return {
        "slices": slices,
        "sum": lambda x: x.unflatten(axis, (-1, count)).sum(axis + 1),
        "avg_pool2d": lambda x: F.avg_pool2d(x, kernel, divisor_override=1),
    }


def cases() -> Iterator[tuple[dict[str, Any], dict[str, Form]]]:
    """Each shape with its forms."""
    for channels, length in PLANES:
        for axis in (2, 3):
            at = {"channels": channels, "length": length, "axis": axis}
            for taps, stride in WINDOWS:
                yield {**at, "taps": taps, "stride": stride}, windows(axis, taps, stride, length)
            for count in BLOCKS:
                if length % count == 0:
                    yield {**at, "taps": count, "stride": count}, blocks(axis, count)


def seconds(call: Callable[[], Any]) -> float:
    """The CPU time of one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def measured(shape: dict[str, Any], forms: dict[str, Form]) -> dict[str, Any]:
    """Milliseconds of each form; equal to 1e-4, forward and backward."""
    x = torch.randn(BATCH, shape["channels"], shape["length"], shape["length"], requires_grad=True)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in forms}
    expected: list[Tensor] = []
    for _ in range(RUNS):
        for name, form in forms.items():
            y = form(x)
            gradient = torch.cos(torch.arange(y.numel())).reshape(y.shape)
            x.grad = None
            y.backward(gradient)
            assert x.grad is not None
            expected = expected or [y.detach(), x.grad.clone()]
            torch.testing.assert_close([y.detach(), x.grad], expected, atol=1e-4, rtol=1e-4)
            x.grad = None
            with torch.inference_mode():
                forward = seconds(partial(form, x))
            step = seconds(lambda form=form, gradient=gradient: form(x).backward(gradient))
            found[name].append((forward, step))
    ms = {name: [round(1e3 * min(some), 4) for some in zip(*times, strict=True)] for name, times in found.items()}
    return {**shape, "ms": ms}


def chosen(row: dict[str, Any]) -> str:
    """The form that the rule chooses."""
    if row["taps"] == row["stride"]:
        return "slices" if row["taps"] <= MAX_ADDED else "sum"
    return "band" if is_band_faster(row["taps"], row["length"]) else "slices"


def main() -> None:
    """Measure, store and print."""
    options = parser(__doc__ or "")
    options.add_argument("--summary", action="store_true", help="measure nothing")
    given = options.parse_args()
    path = RESULTS / "forms.json"
    if not given.summary:
        core = use_one_core(given.core)
        torch.set_num_threads(1)
        torch.manual_seed(given.seed)
        keep_freed_memory()
        rows = [measured(*case) for case in cases()]
        path.write_text(json.dumps({"about": about(typed(), core), "rows": rows}) + "\n", encoding="utf-8")
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    for kind, some in (
        ("windows", [row for row in rows if row["taps"] != row["stride"]]),
        ("blocks", [row for row in rows if row["taps"] == row["stride"]]),
    ):
        for number, what in enumerate(("forward", "step")):
            least = [min(ms[number] for ms in row["ms"].values()) for row in some]
            ours = [row["ms"][chosen(row)][number] for row in some]
            over = [a / b for a, b in zip(ours, least, strict=True)]
            text = (
                f"{kind}, {what}, {len(some)} shapes: the rule's form takes {statistics.geometric_mean(over):.2f} times"
            )
            text += f" the fastest form's time, at most {max(over):.2f}"
            for name in some[0]["ms"]:
                times = [row["ms"][name][number] for row in some]
                mean = statistics.geometric_mean(a / b for a, b in zip(times, least, strict=True))
                text += f"; {name} {mean:.2f}"
            print(text)


if __name__ == "__main__":
    main()
