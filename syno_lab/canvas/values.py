"""Ranges of the elements of a draft's tensors, and terms of sums, for all images and weights; the rules use both.

The range of the elements is computed by interval arithmetic along the nodes. No element lies outside its range, but a
range may be wider than necessary. Sums, minima and maxima are split into terms to find terms that cancel, and sides
that are absorbed. A *term* is a tensor with the broadcasts that repeat it. Equal terms are equal tensors.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from syno_lab.canvas.matching import matches
from syno_lab.canvas.primitives import BROADCASTS, Parts, Primitive, parts_of
from syno_lab.errors import PrimitiveError

if TYPE_CHECKING:
    from syno_lab.canvas.kernel import Node
    from syno_lab.canvas.shape import Shape

Nodes = Sequence["Node"]
Shapes = Sequence["Shape"]
SUMS = ("add", "sub", "neg")


class Range(NamedTuple):
    """The numbers from ``low`` to ``high``; each of the two may be infinite."""

    low: float
    high: float


ANY = Range(-inf, inf)
#: The range of an image after a ReLU.
NOT_NEGATIVE = Range(0.0, inf)
#: A bound below the least value of GELU, -0.16997… at -0.7518.
_BELOW_GELU = -0.17
#: Every lower bound is at most this number, every upper bound at least its negative: so no difference is inf - inf.
_MOST = 1e308
_MOST_EXPONENT = math.log(_MOST)


def range_of(nodes: Nodes, tensor: int, image: Range = ANY) -> Range:
    """Return the range of a tensor of a draft, by number; ``image`` is the range of tensor 0."""
    return _range_of(nodes, tensor, {0: image})


def _range_of(nodes: Nodes, tensor: int, known: dict[int, Range]) -> Range:
    result = known.get(tensor)
    if result is not None:
        return result
    (name, _), inputs = nodes[tensor - 1]
    result = _WHATEVER_IS_READ.get(name)
    if result is None:
        first = _range_of(nodes, inputs[0], known)
        if name in _BLEND:
            second = _range_of(nodes, inputs[1], known)
            low, high = _square(first) if name == "mul" and inputs[0] == inputs[1] else _BLEND[name](first, second)
        else:
            change = _ONE.get(name)
            low, high = first if change is None else change(first)
        result = Range(min(low, _MOST), max(high, -_MOST))
    known[tensor] = result
    return result


def _abs(a: Range) -> Range:
    return Range(max(a.low, -a.high, 0.0), max(-a.low, a.high))


def _exp(a: Range) -> Range:
    low, high = (inf if end > _MOST_EXPONENT else math.exp(end) for end in a)
    return Range(low, high)


_WHATEVER_IS_READ = {"fc": ANY, "softmax": Range(0.0, 1.0), "sin": Range(-1.0, 1.0)}
#: The range after a primitive that changes the range of its input; shifts, groups and folds keep the range.
_ONE: dict[str, Callable[[Range], Range]] = {
    "relu": lambda a: Range(max(a.low, 0.0), max(a.high, 0.0)),
    "gelu": lambda a: Range(0.0 if a.low >= 0 else _BELOW_GELU, max(a.high, 0.0)),
    "sigmoid": lambda a: Range(*((math.tanh(end / 2) + 1) / 2 for end in a)),
    "tanh": lambda a: Range(math.tanh(a.low), math.tanh(a.high)),
    "abs": _abs,
    "exp": _exp,
    "neg": lambda a: Range(-a.high, -a.low),
    "unfold": lambda a: Range(min(a.low, 0.0), max(a.high, 0.0)),  # zeros outside
}


def _times(a: float, b: float) -> float:
    """Return the product; 0 where a factor is 0, also with an infinite bound, because no element is infinite."""
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


class Term(NamedTuple):
    """A tensor, by its number, and the broadcasts that repeat it, the last broadcast first; views are left out."""

    tensor: int
    repeats: tuple[Parts, ...] = ()


def terms_of(
    nodes: Nodes, shapes: Shapes, term: Term, names: Sequence[str], sign: int = 1
) -> Iterator[tuple[Term, int]]:
    """Split a term that primitives of these names compute into terms with signs; yield another term unchanged."""
    node = nodes[term.tensor - 1] if term.tensor else None
    if node is None or node.primitive.name not in names:
        yield term, sign
        return
    name, inputs = node.primitive.name, node.inputs
    if name not in BROADCASTS:
        yield from terms_of(nodes, shapes, Term(inputs[0], term.repeats), names, -sign)
        return
    left, right = _sides(shapes, node.primitive, inputs, term.repeats)
    yield from terms_of(nodes, shapes, left, names, sign)
    yield from terms_of(nodes, shapes, right, names, -sign if name == "sub" else sign)


def _is_made_by(nodes: Nodes, inputs: tuple[int, ...], names: Sequence[str]) -> bool:
    """Return whether one of these primitives computes an input; this fast check avoids slow checks."""
    return any(tensor and nodes[tensor - 1].primitive.name in names for tensor in inputs)


def _sides(
    shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...], repeats: tuple[Parts, ...] = ()
) -> tuple[Term, Term]:
    parts = parts_of(primitive.parameter, shapes[inputs[0]], shapes[inputs[1]])
    return Term(inputs[0], repeats if parts.repeats.is_one else (*repeats, parts)), Term(inputs[1], repeats)


def left_after_cancelling(
    nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]
) -> dict[Term, int] | None:
    """Return the terms that are left in a sum or difference, with counts; None where no terms of the two sides cancel.

    Another rule prunes the difference of a tensor and itself.
    """
    if not _is_made_by(nodes, inputs, SUMS):
        return None
    try:
        sides = _sides(shapes, primitive, inputs)
    except PrimitiveError:  # a size is not substituted yet
        return None
    left, right = Counter[Term](), Counter[Term]()
    for counts, side, sign in zip((left, right), sides, (1, -1 if primitive.name == "sub" else 1), strict=True):
        for term, term_sign in terms_of(nodes, shapes, side, SUMS, sign):
            counts[term] += term_sign
    if not any(number and left[term] == -number for term, number in right.items()):
        return None
    left.update(right)
    return {term: number for term, number in left.items() if number}


def is_at_hand(shapes: Shapes, terms: dict[Term, int], wanted: Shape) -> bool:
    """Return whether a sum of counted terms is constant, a tensor of the draft, or the result of one more primitive.

    ``wanted`` is the shape of the sum.
    """
    complete = [(term, number) for term, number in terms.items() if not term.repeats and shapes[term.tensor] is wanted]
    if len(terms) < 2:
        return all(number in (-1, 1, 2) for _, number in complete) and len(complete) == len(terms)
    if len(terms) > 2 or not complete or any(abs(number) > 1 for number in terms.values()):
        return False
    (_, first), *others = complete
    if others:
        return first + others[0][1] >= 0
    term, number = next((term, number) for term, number in terms.items() if term != complete[0][0])
    # A repeated term must be the left side of a broadcast, so it must not be subtracted.
    return number > 0 and _is_one_broadcast(shapes, term, wanted)


def _is_one_broadcast(shapes: Shapes, term: Term, wanted: Shape) -> bool:
    shape = shapes[term.tensor]
    known = [parts_of(match.parameter, shape, wanted) for match in matches(shape, wanted) if match.substitution is None]
    return any((parts,) == term.repeats or (parts.repeats.is_one and not term.repeats) for parts in known)


def is_absorbed(nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]) -> bool:
    """Return whether a minimum or maximum equals one of its sides, because this side is a term of the other side.

    min(a, max(a, b)) is a, and min(a, min(a, b)) is min(a, b); the same holds with min and max exchanged.
    """
    if not _is_made_by(nodes, inputs, ("min", "max")):
        return False
    try:
        left, right = _sides(shapes, primitive, inputs)
    except PrimitiveError:
        return False
    other = "max" if primitive.name == "min" else "min"
    has_same_shape = shapes[inputs[0]] is shapes[inputs[1]]

    def has(side: Term, name: str, term: Term) -> bool:
        return any(term == candidate for candidate, _ in terms_of(nodes, shapes, side, (name,)))

    return (
        has(left, other, right)  # the result is the right side
        or has(right, primitive.name, left)
        or (has_same_shape and (has(right, other, left) or has(left, primitive.name, right)))
    )
