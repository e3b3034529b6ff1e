"""FLOPs and parameters of ResNet-34 with other operators in it, beside the paper's: ``python benchmarks/flops.py``.

He et al. 2016, table 1, at 224 x 224, batch 1. The 29 convolutions of 3 x 3 and stride 1 are replaced; the first
7 x 7, the three of stride 2, the three 1 x 1 of the shortcuts and the classifier stay. A multiply-add is two FLOPs;
additions of shortcuts and normalisation are not counted. The sampled operators are chosen by cost alone: none is
trained here, while the paper's best ones keep the accuracy.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

from common import about, parser, save, say, typed

import syno_lab as sl
from syno_lab.ir.operator import Operator
from syno_lab.operators import conv2d, operator_1, operator_2

#: Channels, height and width of the four stages, and how many of their convolutions are 3 x 3 with stride 1.
STAGES = ((64, 56, 6), (128, 28, 7), (256, 14, 11), (512, 7, 5))
PAPER = {"flops": [1.76, 4.32], "params": [1.80, 9.50]}


def kept() -> tuple[int, int]:
    """FLOPs and parameters of what is not replaced."""
    flops, params = 2 * 112 * 112 * 64 * 3 * 49, 64 * 3 * 49
    for (below, _, _), (channels, size, _) in pairwise(STAGES):
        flops += 2 * size * size * below * channels * (9 + 1)
        params += below * channels * (9 + 1)
    norms = 2 * (64 + sum(channels * (2 * blocks + (channels > 64)) for channels, blocks in BLOCKS))
    return flops + 2 * 512 * 1000, params + norms + 512 * 1000 + 1000


#: Channels and blocks of the stages.
BLOCKS = ((64, 3), (128, 4), (256, 6), (512, 3))


def layers(operator: Operator, **sizes: int) -> tuple[int, int]:
    """FLOPs and parameters of the 29 layers made of ``operator``."""
    flops = params = 0
    for channels, size, number in STAGES:
        given = {"N": 1, "C_in": channels, "C_out": channels, "H": size, "W": size, **sizes}
        binding = {name: given.get(name, operator.spec.defaults.get(name, 0)) for name in operator.spec.symbols.names}
        flops += number * operator.flops(binding)
        params += number * operator.params(binding)
    return flops, params


def row(name: str, operator: Operator, **sizes: int) -> dict[str, Any]:
    """One operator against conv2d: in the replaced layers, and in the whole network."""
    whole, ours, dense = kept(), layers(operator, **sizes), layers(conv2d(), k_1=3)
    return {
        "name": name,
        "flops": whole[0] + ours[0],
        "params": whole[1] + ours[1],
        "layer_flops_down": dense[0] / ours[0],
        "layer_params_down": dense[1] / ours[1],
        "flops_down": (whole[0] + dense[0]) / (whole[0] + ours[0]),
        "params_down": (whole[1] + dense[1]) / (whole[1] + ours[1]),
    }


def sampled(seconds: float, seed: int) -> dict[str, Any]:
    """The cheapest of operators drawn from a spec of convolutions that mix channels and slide along both H and W."""
    mappings = [{"N": 1, "C_in": c, "C_out": c, "H": size, "W": size, "k_1": 3, "g": 8} for c, size, _ in STAGES]
    sampler = sl.Sampler(
        "[N, C_in, H, W]",
        "[N, C_out, H, W]",
        ["N: 0", "C_in: 3", "C_out: 1", "H: 0", "W: 0"],
        ["k_1: 5", "g: 4"],
        mappings=mappings,
        fixed_io_pairs=[(0, 0)],
        weight_limits="primary",  # no weight along H or W: that would cost more parameters than it saves
        max_primitives=8,
        max_expands=0,
        max_shifts=0,
        max_strides=0,
        max_merges=1,
        seed=seed,
    )
    end = time.monotonic() + seconds
    drawn, fit = 0, []
    for operator in sampler.samples(should_stop=lambda: time.monotonic() > end):
        drawn += 1
        if _is_convolution(operator):
            fit.append(row(str(operator), operator, k_1=3, g=8))
    fit.sort(key=lambda found: found["flops"])
    return {
        "drawn": drawn,
        "fit": len(fit),
        "seconds": seconds,
        "cheapest": fit[:1],
        "median": fit[len(fit) // 2 :][:1],
    }


def _is_convolution(operator: Operator) -> bool:
    """Whether outputs read neighbours along H and W, and one weight joins input channels with output channels."""
    slid = {
        leaf.node.tag
        for step in operator.steps
        if step.primitive == "UNFOLD"
        for leaf in step.operands[0].leaves()
        if leaf.is_output
    }
    channels = {leaf for leaf in operator.inputs[1].leaves() if leaf.is_reduction}
    held = [{leaf for c in weight.coordinates for leaf in c.leaves()} for weight in operator.weights]
    joins = any(leaves & channels and operator.output[1] in leaves for leaves in held)
    return {2, 3} <= slid and joins


def main() -> None:
    """Count, print and save."""
    options = parser(__doc__ or "")
    options.add_argument("--seconds", type=float, default=60.0, help="of sampling (60)")
    chosen = options.parse_args()
    rows = [row("conv2d", conv2d(), k_1=3)]
    assert rows[0]["params"] == 21_797_672, "ResNet-34 has 21.8 million parameters"
    for g, s in ((4, 2), (8, 2), (8, 4), (16, 4)):
        rows.append(row(f"Operator 1, g={g}, s={s}", operator_1(), k_1=3, g=g, s=s))
    for g, s in ((4, 2), (8, 2), (8, 4)):
        rows.append(row(f"Operator 2 (reconstructed), g={g}, s={s}", operator_2(), k_1=3, g=g, s=s))
    say(f"sampling for {chosen.seconds:g} seconds")
    result = {"paper": PAPER, "rows": rows, "sampled": sampled(chosen.seconds, chosen.seed)}
    save("flops", result | {"about": about(typed(), None)})


if __name__ == "__main__":
    main()
