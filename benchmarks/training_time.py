"""How long operators of real searches train, against the convolutions that they replace: forward and backward, float32.

The operators are those with the fewest FLOPs among the trials of ``results/recorded_trials.json`` (drawn from the space
that ``syno-lab search --backbone resnet20`` derives), as many spread evenly over that file by FLOPs, and the best ones
that the searches of ``results/half_hours.json`` discovered. Each stands in ResNet-20's layers as a training puts it
there, with the pooling that a stride becomes. Its time over that of ``nn.Conv2d`` is measured in turns for each kind of
layer (the median of ratios of neighbouring runs), and summed over all layers; beside it the time of a whole training
step of the network (forward, loss, backward, optimizer) over that of the network with convolutions.

``--profile N`` prints what takes the time of the N-th operator in place of measuring.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from common import RESULTS, about, keep_freed_memory, parser, save, say, typed, use_one_core
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from syno_lab.codegen.torch_module import to_torch
from syno_lab.experiments import SearchSettings, Space
from syno_lab.ir.files import from_json
from syno_lab.ir.operator import Operator
from syno_lab.models.resnet import resnet20
from syno_lab.models.sites import Site
from syno_lab.models.slot import Slot, costs, put_in
from syno_lab.search.protocol import State
from syno_lab.trial import TrialRequest

BACKBONE = "resnet20"
MOST_FLOPS = 0.5


@dataclass(frozen=True)
class Chosen:
    """An operator that is measured: where it is from, its steps (None: not stored), its share of the FLOPs."""

    group: str
    steps: tuple[str, ...] | None
    operator: Operator
    flops_ratio: float


def space_of(record: dict[str, Any]) -> Space:
    """The space from which the recorded trials were drawn; the wish is of no account for reading them."""
    request = TrialRequest(backbone=BACKBONE, data="digits", epochs=1, threads=1, resolution=32)
    return Space(
        SearchSettings(
            training=request,
            trials=1,
            max_replaced_ratio=record["flops"],
            max_traffic_ratio=4.0,
            limits={"max_primitives": record["max_primitives"]},
            weight_limits="primary",
            wants=None,
            seeds=(),
        )
    )


def walked(state: State, steps: Sequence[str]) -> Operator | None:
    """The operator at the end of named steps; None where the space has no such step any more."""
    for name in steps:
        found = next((s for child in state.children() for s in child.steps() if s.name == name), None)
        if found is None:
            return None
        state = found.state
    return state.operator() if state.is_complete else None


def chosen_operators(count: int) -> Iterator[Chosen]:
    """The operators that are measured, by their groups."""
    record = json.loads((RESULTS / "recorded_trials.json").read_text(encoding="utf-8"))
    root = space_of(record).root
    rows = sorted(record["recorded"], key=lambda row: row["replaced_flops"])
    rows = [row for row in rows if row["replaced_flops"] <= MOST_FLOPS]
    spread = [rows[(2 * i + 1) * len(rows) // (2 * count)] for i in range(count)]
    for group, some in (("fewest FLOPs", rows[:count]), ("spread", spread)):
        for row in some:
            operator = walked(root, row["steps"])
            if operator is None:
                say(f"left out, as the space has no such steps any more: {row['steps']}")
                continue
            yield Chosen(group, tuple(row["steps"]), operator, row["replaced_flops"])
    searches = json.loads((RESULTS / "half_hours.json").read_text(encoding="utf-8"))
    seen = set()
    for row in searches["rows"]:
        for best in row["best"].values():
            if best and best["replaced_ratio"] <= MOST_FLOPS and best["operator"] not in seen:
                seen.add(best["operator"])
                yield Chosen("searches' best", None, from_json(best["operator"]), best["replaced_ratio"])


def step(module: nn.Module, x: Tensor, gradient: Tensor) -> float:
    """CPU seconds of one forward and backward pass, gradients dropped before."""
    x.grad = None
    module.zero_grad(set_to_none=True)
    start = time.process_time()
    module(x).backward(gradient)
    return time.process_time() - start


def in_turns(ours: Callable[[], float], theirs: Callable[[], float], pairs: int) -> list[tuple[float, float]]:
    """Seconds of both, taken in turns, each first every second time."""
    for _ in range(2):
        theirs(), ours()
    found = []
    for number in range(pairs):
        if number % 2:
            found.append((ours(), theirs()))
        else:
            second = theirs()
            found.append((ours(), second))
    return found


def compared(pairs: list[tuple[float, float]]) -> dict[str, float]:
    """The median of ratios, and both medians in milliseconds."""
    return {
        "ratio": round(statistics.median(a / b for a, b in pairs), 4),
        "ours_ms": round(1e3 * statistics.median(a for a, _ in pairs), 3),
        "peer_ms": round(1e3 * statistics.median(b for _, b in pairs), 3),
    }


def kinds_of(sites: Sequence[Site]) -> Counter[Site]:
    """Layers alike but for their names, and how many of each."""
    return Counter(replace(site, name="") for site in sites)


def slot_of(operator: Operator, site: Site, order: Literal["best", "measured"] = "best") -> Slot:
    """A layer of its own with the operator in it."""
    original = nn.Conv2d(site.in_channels, site.out_channels, 3, stride=site.stride, padding=1, bias=False)
    slot = Slot(site, original)
    slot.placeholder.fill(to_torch(operator, costs(operator, [site])[0].binding, order=order))
    return slot


def layers(operator: Operator, sites: Sequence[Site], batch: int, pairs: int) -> dict[str, Any]:
    """The operator against the convolution in each kind of layer, and summed over all layers.

    ``ratio`` is of the module as it is written by default, ``measured`` of the fastest of equal ones.
    """
    rows = []
    total: Counter[str] = Counter()
    for site, count in kinds_of(sites).items():
        ours, fastest = slot_of(operator, site), slot_of(operator, site, "measured")
        peer = ours.original
        x = torch.randn(batch, site.in_channels, site.height, site.width).requires_grad_()
        gradient = torch.randn_like(peer(x))
        found = {
            name: compared(in_turns(partial(step, slot, x, gradient), partial(step, peer, x, gradient), pairs))
            for name, slot in (("default", ours), ("measured", fastest))
        }
        name = f"{site.in_channels}->{site.out_channels} {site.height}x{site.width}/{site.stride[0]}"
        rows.append({"layer": name, "count": count, **{kind: one["ratio"] for kind, one in found.items()}})
        for kind, one in found.items():
            total[f"{kind} ours"] += count * one["ours_ms"]
            total[f"{kind} peer"] += count * one["peer_ms"]
    return {
        "ratio": round(total["default ours"] / total["default peer"], 4),
        "measured": round(total["measured ours"] / total["measured peer"], 4),
        "layers": rows,
    }


def network(operator: Operator, sites: Sequence[Site], batch: int, pairs: int) -> dict[str, float]:
    """A whole training step with the operator against one with convolutions."""
    x, labels = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))

    def training(net: nn.Module) -> Callable[[], float]:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)

        def one() -> float:
            start = time.process_time()
            optimizer.zero_grad(set_to_none=True)
            cross_entropy(net(x), labels).backward()
            optimizer.step()
            return time.process_time() - start

        return one

    base = resnet20().train()
    return compared(in_turns(training(put_in(base, sites, operator)[0].train()), training(base), pairs))


def profiled(operator: Operator, sites: Sequence[Site], batch: int) -> None:
    """Print the source for the first kind of layer and what takes the time there."""
    site = next(iter(kinds_of(sites)))
    slot = slot_of(operator, site)
    print(operator.to_torch_source(costs(operator, [site])[0].binding))
    x = torch.randn(batch, site.in_channels, site.height, site.width).requires_grad_()
    for module in (slot, slot.original):
        gradient = torch.randn_like(module(x))
        step(module, x, gradient)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
            for _ in range(10):
                step(module, x, gradient)
        print(found.key_averages().table(sort_by="self_cpu_time_total", row_limit=14, max_name_column_width=45))


def main() -> None:
    """Measure, print and write ``results/training_time.json``."""
    options = parser(__doc__ or "")
    options.add_argument("--operators", type=int, default=20, help="of each group (20)")
    options.add_argument("--batch", type=int, default=64)
    options.add_argument("--pairs", type=int, default=11, help="of neighbouring runs for each figure (11)")
    options.add_argument("--profile", type=int, help="print what takes the time of the operator with this number")
    chosen = options.parse_args()
    core = use_one_core(chosen.core)
    torch.set_num_threads(1)
    torch.manual_seed(chosen.seed)
    keep_freed_memory()
    record = json.loads((RESULTS / "recorded_trials.json").read_text(encoding="utf-8"))
    sites = space_of(record).sites
    every = list(chosen_operators(chosen.operators))
    if chosen.profile is not None:
        profiled(every[chosen.profile].operator, sites, chosen.batch)
        return
    rows = []
    for number, one in enumerate(every):
        load = os.getloadavg()[0]
        found = layers(one.operator, sites, chosen.batch, chosen.pairs)
        whole = network(one.operator, sites, chosen.batch, max(5, chosen.pairs // 2))
        rows.append(
            {
                "number": number,
                "group": one.group,
                "steps": one.steps,
                "flops_ratio": one.flops_ratio,
                "load": round(load, 2),
                **found,
                "network": whole,
            }
        )
        times = f"layers {found['ratio']:.3f}, measured {found['measured']:.3f}, step {whole['ratio']:.3f}"
        say(f"{number} {one.group}: FLOPs {one.flops_ratio:.4f}, {times}")
    save("training_time", {"about": about(typed(), core), "batch": chosen.batch, "rows": rows})


if __name__ == "__main__":
    main()
