"""What sums, minima and maxima of a draft are made of: terms that cancel, and sides that are absorbed.

A *term* is a tensor with the broadcasts that repeat it on its way into the result. Two equal terms are equal tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
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


class Term(NamedTuple):
    """A tensor by its number, and how it is repeated, the last time first; a view as another shape is none."""

    tensor: int
    repeats: tuple[Parts, ...] = ()


def terms_of(
    nodes: Nodes, shapes: Shapes, term: Term, names: Sequence[str], sign: int = 1
) -> Iterator[tuple[Term, int]]:
    """The terms of a term that is made by primitives of these names, with their signs; else itself."""
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
    """Whether one of the inputs is a result of one of these primitives: quick to say, and mostly not so."""
    return any(tensor and nodes[tensor - 1].primitive.name in names for tensor in inputs)


def _sides(
    shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...], repeats: tuple[Parts, ...] = ()
) -> tuple[Term, Term]:
    parts = parts_of(primitive.parameter, shapes[inputs[0]], shapes[inputs[1]])
    return Term(inputs[0], repeats if parts.repeats.is_one else (*repeats, parts)), Term(inputs[1], repeats)


def left_after_cancelling(
    nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]
) -> dict[Term, int] | None:
    """The terms of a sum or difference, how often each; None where no term of a side cancels with one of the other.

    A difference of a tensor and itself is left to the rule that prunes it.
    """
    if not _is_made_by(nodes, inputs, SUMS):
        return None
    try:
        terms = _sides(shapes, primitive, inputs)
    except PrimitiveError:  # a size is still to be substituted
        return None
    found: list[Counter[Term]] = []
    for side, sign in zip(terms, (1, -1 if primitive.name == "sub" else 1), strict=True):
        counts: Counter[Term] = Counter()
        for term, its in terms_of(nodes, shapes, side, SUMS, sign):
            counts[term] += its
        found.append(counts)
    left, right = found
    if not any(number and left[term] == -number for term, number in right.items()):
        return None
    left.update(right)
    return {term: number for term, number in left.items() if number}


def is_at_hand(shapes: Shapes, terms: dict[Term, int], wanted: Shape) -> bool:
    """Whether a sum of these terms is constant, a tensor of the draft, or one primitive on its tensors.

    Args:
        shapes: of the draft.
        terms: how often each is in the sum.
        wanted: the shape of the sum.
    """
    whole = [(term, number) for term, number in terms.items() if not term.repeats and shapes[term.tensor] is wanted]
    if len(terms) < 2:
        return all(number in (-1, 1, 2) for _, number in whole) and len(whole) == len(terms)
    if len(terms) > 2 or not whole or any(abs(number) > 1 for number in terms.values()):
        return False
    (_, one), *others = whole
    if others:
        return one + others[0][1] >= 0
    term, number = next((term, number) for term, number in terms.items() if term != whole[0][0])
    # Repeated onto the other it is the left side, so it must not be what is subtracted.
    return number > 0 and _is_one_broadcast(shapes, term, wanted)


def _is_one_broadcast(shapes: Shapes, term: Term, wanted: Shape) -> bool:
    shape = shapes[term.tensor]
    known = [parts_of(match.parameter, shape, wanted) for match in matches(shape, wanted) if match.substitution is None]
    return any((parts,) == term.repeats or (parts.repeats.is_one and not term.repeats) for parts in known)


def is_absorbed(nodes: Nodes, shapes: Shapes, primitive: Primitive, inputs: tuple[int, ...]) -> bool:
    """Whether a minimum or maximum is one of its sides, because that is a term of the other.

    min(a, max(a, b)) is a, and min(a, min(a, b)) is min(a, b); so with min and max exchanged.
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
        return any(term == one for one, _ in terms_of(nodes, shapes, side, (name,)))

    return (
        has(left, other, right)  # the right side
        or has(right, primitive.name, left)
        or (has_same_shape and (has(right, other, left) or has(left, primitive.name, right)))
    )
