"""Between which numbers the elements of a draft's tensors lie, whatever the image and the weights are.

Interval arithmetic along the nodes: no element lies outside its range, though a range may be wider than need be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from syno_lab.canvas.kernel import Node


class Range(NamedTuple):
    """From ``low`` to ``high``, both of which may be infinite."""

    low: float
    high: float


ANY = Range(-inf, inf)
#: Of an image behind a ReLU.
NOT_NEGATIVE = Range(0.0, inf)
#: Below the least value of GELU, -0.16997…, which it has at -0.7518.
_BELOW_GELU = -0.17
#: No low end is above, and no high end below minus this, so that differences of ends are numbers.
_MOST = 1e308
_MOST_EXPONENT = math.log(_MOST)


def range_of(nodes: Sequence[Node], tensor: int, image: Range = ANY) -> Range:
    """The range of a tensor.

    Args:
        nodes: of the draft.
        tensor: its number.
        image: the range of tensor 0.
    """
    return _range_of(nodes, tensor, {0: image})


def _range_of(nodes: Sequence[Node], tensor: int, known: dict[int, Range]) -> Range:
    found = known.get(tensor)
    if found is not None:
        return found
    (name, _), inputs = nodes[tensor - 1]
    found = _WHATEVER_IS_READ.get(name)
    if found is None:
        first = _range_of(nodes, inputs[0], known)
        if name in _BLEND:
            second = _range_of(nodes, inputs[1], known)
            low, high = _square(first) if name == "mul" and inputs[0] == inputs[1] else _BLEND[name](first, second)
        else:
            change = _ONE.get(name)
            low, high = first if change is None else change(first)
        found = Range(min(low, _MOST), max(high, -_MOST))
    known[tensor] = found
    return found


# -- one tensor --------------------------------------------------------------------------------------------------------


def _abs(a: Range) -> Range:
    return Range(max(a.low, -a.high, 0.0), max(-a.low, a.high))


def _exp(a: Range) -> Range:
    low, high = (inf if end > _MOST_EXPONENT else math.exp(end) for end in a)
    return Range(low, high)


def _tanh(a: Range) -> Range:
    return Range(math.tanh(a.low), math.tanh(a.high))


_WHATEVER_IS_READ = {"fc": ANY, "softmax": Range(0.0, 1.0), "sin": Range(-1.0, 1.0)}
#: Of the primitives that change the range of what they read; a shift, a group or a fold does not.
_ONE: dict[str, Callable[[Range], Range]] = {
    "relu": lambda a: Range(max(a.low, 0.0), max(a.high, 0.0)),
    "gelu": lambda a: Range(0.0 if a.low >= 0 else _BELOW_GELU, max(a.high, 0.0)),
    "sigmoid": lambda a: Range(*((math.tanh(end / 2) + 1) / 2 for end in a)),
    "tanh": _tanh,
    "abs": _abs,
    "exp": _exp,
    "neg": lambda a: Range(-a.high, -a.low),
    "unfold": lambda a: Range(min(a.low, 0.0), max(a.high, 0.0)),  # zeros outside
}


# -- two tensors -------------------------------------------------------------------------------------------------------


def _times(a: float, b: float) -> float:
    """0 where one is 0: an end is a limit, and never an element that is infinite."""
    return a * b if a and b else 0.0


def _mul(a: Range, b: Range) -> Range:
    ends = [_times(*pair) for pair in product(a, b)]
    return Range(min(ends), max(ends))


def _square(a: Range) -> Range:
    low, high = _abs(a)
    return Range(_times(low, low), _times(high, high))


_BLEND: dict[str, Callable[[Range, Range], Range]] = {
    "add": lambda a, b: Range(a.low + b.low, a.high + b.high),
    "sub": lambda a, b: Range(a.low - b.high, a.high - b.low),
    "mul": _mul,
    "min": lambda a, b: Range(min(a.low, b.low), min(a.high, b.high)),
    "max": lambda a, b: Range(max(a.low, b.low), max(a.high, b.high)),
}
