"""What it buys to prune partial pGraphs by budgets of FLOPs, parameters and memory, against measuring whole operators.

``python benchmarks/budgets.py`` samples the conv-authors spec under tight budgets, with and without bounds for partial
pGraphs, in turns in one process; it prints JSON and writes it to ``benchmarks/results/budgets.json``.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import Any

from common import about, parser, save, say, typed, use_one_core

from syno_lab.commands.pgraphs.specs import load_spec
from syno_lab.ir.spec import Spec
from syno_lab.synthesis.sampler import Sampler

CONV_FLOPS, CONV_PARAMS = 2 * 64 * 64 * 9 * 32 * 32, 64 * 64 * 9  # of conv2d there
ROWS: dict[str, tuple[str, int, dict[str, int]]] = {
    "free 9, 1/9 of conv2d's parameters": ("free", 9, {"max_params": CONV_PARAMS // 9}),
    "free 8, 1/4 of conv2d's FLOPs": ("free", 8, {"max_flops": CONV_FLOPS // 4}),
    "free 8, 1/32 of conv2d's FLOPs": ("free", 8, {"max_flops": CONV_FLOPS // 32}),
    "primary 9, 1/72 of conv2d's FLOPs": ("primary", 9, {"max_flops": CONV_FLOPS // 72}),
}


def drawn(spec: Spec, is_pruned: bool, seconds: float, seed: int) -> dict[str, Any]:
    """Sample from a cold start for so many CPU-seconds."""
    sampler = Sampler.from_spec(spec, seed=seed)
    if not is_pruned:
        sampler._graph.meter = None
    start = time.process_time()
    number = sum(1 for _ in sampler.samples(should_stop=lambda: time.process_time() > start + seconds))
    spent = time.process_time() - start
    return {"operators": number, "cpu_seconds": spent, "rate": number / spent, "nodes": len(sampler._graph)}


def main() -> None:
    """Run the rows, each pair in turns."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--seconds", type=float, default=10.0, help="CPU time of each of the two (10)")
    arguments.add_argument("--turns", type=int, default=3, help="pairs for each row, with seeds of their own (3)")
    chosen = arguments.parse_args()
    core = use_one_core(chosen.core)
    result: dict[str, Any] = {}
    for name, (limits, most, budgets) in ROWS.items():
        spec, _ = load_spec("conv-authors", weight_limits=limits, max_primitives=most)
        spec = replace(spec, limits=replace(spec.limits, **budgets))
        pairs = [
            [drawn(spec, is_pruned, chosen.seconds, chosen.seed + turn) for is_pruned in (False, True)]
            for turn in range(chosen.turns)
        ]
        whole, partial = (statistics.median(pair[i]["rate"] for pair in pairs) for i in (0, 1))
        ratio = statistics.median(pair[1]["rate"] / pair[0]["rate"] for pair in pairs)
        say(f"{name}: {whole:.0f} a CPU-second by whole operators, {partial:.0f} with bounds, {ratio:.2f} times")
        result[name] = {"whole": whole, "bounds": partial, "ratio": ratio, "pairs": pairs}
    save("budgets", result | {"about": about(typed(), core)})


if __name__ == "__main__":
    main()
