"""How widely samples are spread over the space, and how well two seeds agree.

``python benchmarks/spread.py`` draws the first 1,000 operators with each of ten seeds, by draws that spread (the
default) and by draws that list neighbourhoods (``spread=False``), prints JSON and writes it to
``benchmarks/results/spread.json``; ``python benchmarks/render.py`` puts it into the README.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import combinations, islice
from math import log2
from typing import Any

from common import about, parser, save, say, typed, use_one_core

from syno_lab.commands.pgraphs.specs import load_spec
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.models import backbone
from syno_lab.pgraphs.of_network import derive_spec
from syno_lab.synthesis.sampler import Sampler


def conv_free(most: int) -> Spec:
    """The free conv spec, as of the throughput rows."""
    return load_spec("conv", max_primitives=most, weight_limits="free")[0]


def resnet20() -> Spec:
    """The spec that is derived from the convolutions of ResNet-20, within their own FLOPs."""
    known = backbone("resnet20")
    sites = known.survey().select(known.selection)
    return derive_spec(sites, max_primitives=10, max_flops=max(site.flops for site in sites))


SPECS: dict[str, Callable[[], Spec]] = {
    "conv free 9": lambda: conv_free(9),
    "conv free 12": lambda: conv_free(12),
    "ResNet-20 10": resnet20,
}


def root(operator: Operator) -> Hashable:
    """The multiset of REDUCEs."""
    return tuple(sorted(str(c.size) for c in operator.reductions))


def weights(operator: Operator) -> Hashable:
    """The shapes of the weights, in any order."""
    return tuple(sorted(tuple(sorted(map(str, weight.shape))) for weight in operator.weights))


def kind(operator: Operator) -> Hashable:
    """Which primitives it has, and how many of each."""
    return tuple(sorted(step.primitive for step in operator.steps))


def has_windows(operator: Operator) -> bool:
    """Whether a window slides along H and another along W."""
    slid = {str(step.operands[0].size) for step in operator.steps if step.primitive == "UNFOLD"}
    return {"H", "W"} <= slid


def entropy(shares: Sequence[float]) -> float:
    """In bits."""
    return -sum(share * log2(share) for share in shares if share)


def divergence(one: Counter[Hashable], other: Counter[Hashable]) -> float:
    """Jensen and Shannon's, in bits: 0 for equal distributions, 1 for those that have nothing in common."""
    first, second = one.total(), other.total()
    both = [(one[key] / first, other[key] / second) for key in one.keys() | other.keys()]
    middle = entropy([(p + q) / 2 for p, q in both])
    return middle - (entropy([p for p, _ in both]) + entropy([q for _, q in both])) / 2


def figures(drawn: list[list[Operator]]) -> dict[str, Any]:
    """What the draws of all seeds have in common, and how they differ; medians over seeds, or over pairs of them."""
    roots, shapes, kinds = ([[look(o) for o in some] for some in drawn] for look in (root, weights, kind))
    counted = [Counter(found) for found in kinds]
    shares = [sum(map(has_windows, some)) / len(some) for some in drawn]
    lengths = [Counter(len(o.steps) for o in some) for some in drawn]
    return {
        "operators": [len(some) for some in drawn],
        "distinct_roots": statistics.median(len(set(found)) for found in roots),
        "distinct_weights": statistics.median(len(set(found)) for found in shapes),
        "most_of_one_root": statistics.median(max(Counter(found).values()) / len(found) for found in roots),
        "kinds_bits": statistics.median(entropy([n / c.total() for n in c.values()]) for c in counted),
        "kinds_divergence": statistics.median(divergence(*pair) for pair in combinations(counted, 2)),
        "lengths_divergence": statistics.median(divergence(*pair) for pair in combinations(lengths, 2)),
        "roots_in_common": statistics.median(
            len(one & other) / len(one | other) for one, other in combinations(map(set, roots), 2)
        ),
        "windows": {"median": statistics.median(shares), "least": min(shares), "most": max(shares)},
    }


def measure(spec: Spec, spread: bool, seeds: int, count: int) -> dict[str, Any]:
    """Draw with each seed from a cold start."""
    drawn, times = [], []
    for seed in range(seeds):
        begun = time.process_time()
        drawn.append(list(islice(Sampler.from_spec(spec, seed=seed, spread=spread).samples(), count)))
        times.append(time.process_time() - begun)
    return {"cpu_seconds": statistics.median(times)} | figures(drawn)


def main() -> None:
    """Both ways of drawing for each spec."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--count", type=int, default=1_000, help="operators with each seed (1000)")
    arguments.add_argument("--seeds", type=int, default=10, help="how many (10)")
    arguments.add_argument("--specs", nargs="*", choices=list(SPECS), default=list(SPECS))
    arguments.add_argument("--only", choices=["spread", "near"], help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    core = use_one_core(chosen.core)
    rows = []
    for name in chosen.specs:
        spec = SPECS[name]()
        for draws in ("near", "spread"):
            if chosen.only in (None, draws):
                found = measure(spec, draws == "spread", chosen.seeds, chosen.count)
                say(f"{name}, {draws}: {found}")
                rows.append({"spec": name, "draws": draws} | found)
    save("spread", {"rows": rows, "about": about(typed(), core)})


if __name__ == "__main__":
    main()
