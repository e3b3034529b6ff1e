"""Bound the number of programs in a space, so that the search of a small one can end. Imports no TVM."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm.s_tir import Trace


@cache
def tilings(extent: int, parts: int, innermost: int) -> int:
    """The number of ordered factorings of ``extent`` into ``parts`` factors, the last at most ``innermost``."""
    if parts == 1:
        return int(extent <= innermost)
    inner = (one for one in range(1, min(extent, innermost) + 1) if extent % one == 0)
    return sum(tilings(extent // one, parts - 1, extent) for one in inner)


def most_programs(trace: Trace) -> float:
    """The most programs that a sketch of TVM's can give; infinity if a draw is of a kind that cannot be counted."""
    drawn = set[int]()  # loops whose extents are drawn: draws from them have no fixed number of outcomes
    total = 1.0
    for step in trace.insts:
        kind = str(step.kind.name)
        if kind == "Split" and any(type(one).__name__ not in ("IntImm", "NoneType") for one in list(step.inputs)[1:]):
            drawn.update(hash(one) for one in step.outputs)
        elif kind == "SamplePerfectTile" and hash(step.inputs[0]) not in drawn:
            parts, innermost = (int(one) for one in step.attrs)
            extent = math.prod(int(one) for one in trace.decisions[step])
            total *= tilings(extent, parts, innermost)
        elif kind == "SampleCategorical":
            total *= len(step.attrs[0])
        elif kind.startswith("Sample"):
            return math.inf
    return total
