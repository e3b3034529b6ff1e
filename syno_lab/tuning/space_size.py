"""Compute how many programs a design space has at most, so that a search of a small space ends. Imports no TVM."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm.s_tir import Trace


@cache
def tilings(extent: int, parts: int, innermost: int) -> int:
    """Count the ordered factorings of ``extent`` into ``parts`` factors; the last factor is at most ``innermost``."""
    if parts == 1:
        return int(extent <= innermost)
    inner = (factor for factor in range(1, min(extent, innermost) + 1) if extent % factor == 0)
    return sum(tilings(extent // factor, parts - 1, extent) for factor in inner)


def most_programs(trace: Trace) -> float:
    """Return the largest number of programs of a TVM sketch; infinity if the outcomes of a draw cannot be counted."""
    drawn = set[int]()  # the loops whose extents are random choices
    total = 1.0
    for step in trace.insts:
        kind = str(step.kind.name)
        if kind == "Split" and any(type(item).__name__ not in ("IntImm", "NoneType") for item in list(step.inputs)[1:]):
            drawn.update(hash(loop) for loop in step.outputs)
        elif kind == "SamplePerfectTile" and hash(step.inputs[0]) not in drawn:
            parts, innermost = (int(value) for value in step.attrs)
            extent = math.prod(int(factor) for factor in trace.decisions[step])
            total *= tilings(extent, parts, innermost)
        elif kind == "SampleCategorical":
            total *= len(step.attrs[0])
        elif kind.startswith("Sample"):
            return math.inf
    return total
