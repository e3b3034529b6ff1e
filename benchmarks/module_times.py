"""Modules of stored searches' operators against ``nn.Conv2d``: forward and training step, one thread, batch 32.

Draws 200 operators with at most 0.4 of the convolutions' FLOPs from the searches in ``results/`` (the seed is stored).
Each stands in the layers of ResNet-20, of ResNet-34 and of a user's network of five convolutions on 40x40 images, as a
training puts it there: a stride becomes an average pooling. Operator and convolution run in turns. A time is the least
CPU time of some runs, which other programs disturb least. The *roofline* is the least time that this machine can take:
the larger of FLOPs over FLOP/s and bytes over bytes/s, both measured first; a step counts three times the forward's. A
row is *slow* if it takes more than 1.5 times the convolution's time and more than twice its roofline.

``--minutes`` ends the run early; the next run with the same ``--name`` goes on with the pairs of operator and layer
that are missing. Every operator gets one layer before any gets a second. ``--summary`` prints the stored rows only.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from codegen import RESNET_34
from common import RESULTS, about, keep_freed_memory, parser, say, typed, use_one_core
from torch import Tensor, nn
from training_time import space_of, walked

from syno_lab.errors import SynoError
from syno_lab.ir.files import from_json
from syno_lab.ir.operator import Operator
from syno_lab.models.sites import Site
from syno_lab.models.slot import put_in

BATCH, DRAWN, MOST_FLOPS = 32, 200, 0.4
LEAST_RUNS, MOST_RUNS, SECONDS = 4, 12, 0.6  # of each time: at least 4 runs, then more up to this time
SLOW, ROOFLINES = 1.5, 2.0
#: Channels in and out, rows of the input and stride of each kind of 3x3 layer that an operator replaces.
LAYERS = {
    "ResNet-20": ((16, 16, 32, 1), (16, 32, 32, 2), (32, 32, 16, 1), (32, 64, 16, 2), (64, 64, 8, 1)),
    "ResNet-34": RESNET_34,
    "user's": ((16, 16, 40, 1), (16, 32, 40, 2), (32, 32, 20, 1), (32, 64, 20, 2)),
}


def site_of(c_in: int, c_out: int, rows: int, stride: int) -> Site:
    """A 3x3 convolution as a layer of a network."""
    out = rows // stride
    return Site(
        "0",
        c_in,
        c_out,
        rows,
        rows,
        kernel_size=(3, 3),
        flops=2 * 9 * c_in * c_out * out * out,
        params=9 * c_in * c_out,
        stride=(stride, stride),
    )


def stored_operators() -> list[Operator]:
    """The different operators of the stored searches, in the order of their texts."""
    texts: set[str] = set()
    record = json.loads((RESULTS / "recorded_trials.json").read_text(encoding="utf-8"))
    root = space_of(record).root
    rows = [row for row in record["recorded"] if row["replaced_flops"] <= MOST_FLOPS]
    found = (walked(root, row["steps"]) for row in rows)
    texts |= {operator.to_json() for operator in found if operator is not None}
    searches = json.loads((RESULTS / "half_hours.json").read_text(encoding="utf-8"))
    for row in searches["rows"]:
        best = (one for one in row["best"].values() if one)
        texts |= {from_json(one["operator"]).to_json() for one in best if one["replaced_ratio"] <= MOST_FLOPS}
    return [from_json(text) for text in sorted(texts)]


def pairs(drawn: list[str], rng: random.Random) -> Iterator[tuple[str, str, tuple[int, int, int, int]]]:
    """Operators with layers: first each operator with one layer, then each with a second one, and so on."""
    every = [(network, layer) for network, layers in LAYERS.items() for layer in layers]
    orders = {text: rng.sample(every, len(every)) for text in drawn}
    for turn in range(len(every)):
        for text in drawn:
            yield (text, *orders[text][turn])


def roofs() -> dict[str, float]:
    """Measure bytes and FLOPs a second of one thread: of a copy of 64 MB, and of a product of matrices."""
    source, a = torch.randn(1 << 24), torch.randn(1024, 1024)
    copy, product = (min(seconds(call) for _ in range(9)) for call in (partial(source.clone), partial(torch.mm, a, a)))
    return {"bytes_s": 2 * source.nbytes / copy, "flops_s": 2 * 1024**3 / product}


def seconds(call: Callable[[], Any]) -> float:
    """The CPU time of one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def step(module: nn.Module, x: Tensor, gradient: Tensor) -> None:
    """One forward and one backward pass."""
    module(x).backward(gradient)


def forward(module: nn.Module, x: Tensor) -> None:
    """One forward pass without a graph."""
    with torch.inference_mode():
        module(x)


def measured(operator: Operator, layer: tuple[int, int, int, int], roof: dict[str, float]) -> dict[str, Any]:
    """One row: milliseconds of operator and convolution, in turns, and the operator's rooflines."""
    site = site_of(*layer)
    c_in, c_out, _, stride = layer
    peer = nn.Conv2d(c_in, c_out, 3, stride=stride, padding=1, bias=False).train()
    net, (place,) = put_in(nn.Sequential(peer), [site], operator)
    ours = next(net.children())
    x = torch.randn(BATCH, layer[0], layer[2], layer[2])
    leaf = x.clone().requires_grad_()
    gradient = torch.randn_like(peer(x))
    modules = {"ours": ours, "peer": peer}
    times: dict[tuple[str, str], list[float]] = {(what, who): [] for what in ("forward", "step") for who in modules}
    start = time.process_time()
    for number in range(MOST_RUNS):
        if number >= LEAST_RUNS and time.process_time() - start > SECONDS:
            break
        for who in ("ours", "peer") if number % 2 else ("peer", "ours"):
            module = modules[who]
            times["forward", who].append(seconds(partial(forward, module, x)))
            leaf.grad = None
            module.zero_grad(set_to_none=True)
            times["step", who].append(seconds(partial(step, module, leaf, gradient)))
    flops = place.flops * BATCH
    moved = 4 * (x.numel() + gradient.numel() + sum(w.numel() for w in ours.parameters()))
    least = 1e3 * max(flops / roof["flops_s"], moved / roof["bytes_s"])
    row: dict[str, Any] = {"flops_ratio": round(flops / (site.flops * BATCH), 4)}
    for what, passes in (("forward", 1), ("step", 3)):
        ms = {who: 1e3 * min(times[what, who]) for who in modules}
        row[what] = {"ours_ms": round(ms["ours"], 3), "peer_ms": round(ms["peer"], 3)}
        row[what] |= {"ratio": round(ms["ours"] / ms["peer"], 3), "roofline_ms": round(passes * least, 4)}
    return row


def is_slow(found: dict[str, float]) -> bool:
    """Whether a time is above both limits."""
    return found["ratio"] > SLOW and found["ours_ms"] > ROOFLINES * found["roofline_ms"]


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Lines: medians, worst ratios and slow rows, of all rows, of each network, with and without a stride."""
    groups = {"all": rows, **{name: [row for row in rows if row["network"] == name] for name in LAYERS}}
    groups |= {
        "stride 1": [row for row in rows if row["layer"][3] == 1],
        "stride 2": [row for row in rows if row["layer"][3] == 2],
    }
    for name, some in groups.items():
        for what in ("forward", "step") if some else ():
            ratios = [row[what]["ratio"] for row in some]
            slow = sum(is_slow(row[what]) for row in some)
            yield (
                f"{name}, {what}: {len(some)} rows, median {statistics.median(ratios):.3f}, worst {max(ratios):.2f}, "
                f"above {SLOW}: {sum(ratio > SLOW for ratio in ratios)}, slow: {slow}"
            )


def main() -> None:
    """Measure what is missing, store each row, and print the summary."""
    options = parser(__doc__ or "")
    options.add_argument("--name", default="module_times", help="of the file of results (module_times)")
    options.add_argument("--minutes", type=float, help="end after so many minutes")
    options.add_argument("--operators", type=int, default=DRAWN, help=f"that are drawn ({DRAWN})")
    options.add_argument("--summary", action="store_true", help="measure nothing")
    options.add_argument("--drawn", help="a file that keeps the texts of the stored operators for the next run")
    chosen = options.parse_args()
    path = RESULTS / f"{chosen.name}.json"
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"rows": []}
    if not chosen.summary:
        core = use_one_core(chosen.core)
        torch.set_num_threads(1)
        torch.manual_seed(chosen.seed)
        keep_freed_memory()
        begun = time.monotonic()
        stored |= {"about": about(typed(), core), "batch": BATCH, "seed": chosen.seed, "roofs": roofs()}
        rng = random.Random(chosen.seed)
        texts = kept(chosen.drawn)
        drawn = rng.sample(texts, min(chosen.operators, len(texts)))
        numbers = {text: number for number, text in enumerate(drawn)}
        done = {(row["operator"], *row["layer"]) for row in stored["rows"]}
        for text, network, layer in pairs(drawn, rng):
            if chosen.minutes is not None and time.monotonic() - begun > 60 * chosen.minutes:
                break
            number = numbers[text]
            if (number, *layer) in done:
                continue
            row = {"operator": number, "network": network, "layer": list(layer)}
            try:
                row |= measured(from_json(text), layer, stored["roofs"])
            except SynoError as error:
                say(f"{number} does not fit {layer}: {error}")
                continue
            stored["rows"].append(row)
            say(f"{number} {network} {layer}: forward {row['forward']['ratio']}, step {row['step']['ratio']}")
            path.write_text(json.dumps(stored) + "\n", encoding="utf-8")
    say(f"seed {stored['seed']}, {stored['roofs']['bytes_s']:.3g} bytes/s, {stored['roofs']['flops_s']:.3g} FLOP/s")
    for line in summary(stored["rows"]):
        print(line)


def kept(file: str | None) -> list[str]:
    """The texts of the stored operators; read from ``file``, or written to it, as walking to them takes a minute."""
    path = None if file is None else Path(file)
    if path is not None and path.is_file():
        found: list[str] = json.loads(path.read_text(encoding="utf-8"))
        return found
    texts = [operator.to_json() for operator in stored_operators()]
    if path is not None:
        path.write_text(json.dumps(texts), encoding="utf-8")
    return texts


if __name__ == "__main__":
    main()
