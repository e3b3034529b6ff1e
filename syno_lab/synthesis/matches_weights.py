"""Canonicalization rules of contractions: a state and a proposed SHARE (Syno, section 6, "Contractions").

Rules of views are in :mod:`syno_lab.synthesis.matches`. Rules that read more than the top of a state, namely all
coordinates of a weight, set ``is_deep``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from syno_lab.ir.coordinate import Coordinate, Node
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step, Weight
from syno_lab.synthesis.features import (
    are_adjacent,
    below,
    below_shifts,
    built,
    digit,
    holders,
    is_high_of_shift,
    is_summed,
    sharers,
)
from syno_lab.synthesis.rule import CONTRACTIONS, MIXED, exact, space
from syno_lab.synthesis.space import merge_blocks


@space("sum_r W[r]", "W[]", CONTRACTIONS, "SHARE", "EXPAND", is_of_given=True)
def reduction_in_one_weight(state: State, step: Step) -> bool:
    """If only one weight has a reduction (or a digit of one), the sum of its elements is a weight again.

    The reduction leaves the data, and of the weights that remain after absorption only one has it.
    """
    if step.primitive == "EXPAND":
        leaving, new = step.operands, set()
    else:
        leaving, new = step.given, set(step.operands + step.given)
    for coordinate in leaving:
        if is_summed(coordinate):
            number = sum(not set(state.weights[i].coordinates) <= new for i in holders(state, coordinate))
            if number + (step.primitive == "SHARE") == 1:
                return True
    return False


@space("sum_r sum_q W1[r, q] * W2[r, q]", "sum_p W1[p] * W2[p]", CONTRACTIONS, "SHARE", is_of_given=True)
def two_inner_reductions(state: State, step: Step) -> bool:
    """If two reductions (or digits) are in the same weights only, they act as one reduction of the product size.

    The contraction gives the two reductions to its weight.
    """
    inner = [holders(state, c) for c in step.given if is_summed(c)]
    return len(set(inner)) < len(inner)


@exact("W[(B*i + j + 1) % B]", "W[j]", MIXED, "SHARE", is_deep=True)
def share_above_shift(state: State, step: Step) -> bool:
    """The low digit of a SHIFTed SPLIT only renames a weight's elements, so the SPLIT's offset is shared instead."""
    return low_of_shifted_split(step) is not None


def low_of_shifted_split(step: Step) -> tuple[Coordinate, tuple[Coordinate, ...]] | None:
    """Return the coordinate that :func:`share_above_shift` rejects, and the operands of the SPLIT."""
    for coordinate in step.operands:
        node = coordinate.node
        if node.primitive != "MERGE" or coordinate.index == 0:
            continue
        under, count = below_shifts(node.operands[0])
        if count and under.node.primitive == "SPLIT" and under.node.operands[1].size == coordinate.size:
            rest = tuple(c for c in step.operands + step.given if c != coordinate)
            if commute((under, *under.node.operands), rest):
                return coordinate, under.node.operands
    return None


@exact("W[B*i + j]", "W[i, j]", CONTRACTIONS, "SHARE", is_of_given=True)
def give_view(state: State, step: Step) -> bool:
    """Weights need no views, so the coordinates below the view are given instead.

    Two neighbouring digits count as a view, too.
    """
    if any(c.node.primitive in ("SPLIT", "SHIFT") for c in step.given):
        return True
    return any(is_one_digit(state.spec, *digits) for digits in neighbouring_digits(state, step))


def neighbouring_digits(state: State, step: Step) -> Iterator[tuple[Coordinate, Coordinate]]:
    """Yield pairs of neighbouring digits, high and low, that are given to a weight and shared by the same weights."""
    digits = [c for c in step.given if c.node.primitive == "MERGE"]
    for high in digits:
        for low in digits:
            if are_adjacent(high, low) and sharers(state, high) == sharers(state, low):
                yield high, low


@exact("W[((i + 1) % N) / B, (i + 1) % B]", "W[i/B, (i%B + 1) % B]", MIXED, "SHARE", is_deep=True)
def give_above_shift(state: State, step: Step) -> bool:
    """The SHIFT only reorders the elements of a weight with both digits, so the SHIFT stays inside the block.

    All weights with the high digit fix the low digit, and so the carry.
    """
    return high_of_fixed_shift(state, step) is not None


def high_of_fixed_shift(state: State, step: Step) -> Coordinate | None:
    """Return the coordinate that :func:`give_above_shift` rejects."""
    for coordinate in step.given:
        if is_high_of_shift(coordinate):
            node = coordinate.node
            low = (Coordinate(node, 1, node.parameter),) if node.parameter is not None else ()
            holders = [state.weights[i].coordinates for i in sharers(state, coordinate)]
            if all(fixes(known, low) for known in (step.operands + step.given, *holders)):
                return coordinate
    return None


def is_one_digit(spec: Spec, high: Coordinate, low: Coordinate) -> bool:
    """Return whether MERGEs within the space can make the two neighbouring digits as one digit."""
    upper, lower = digit(high), digit(low)
    size = upper.root.size
    blocks = merge_blocks(spec, size)
    return all(boundary.is_one or boundary == size or boundary in blocks for boundary in (lower.low, upper.high))


@exact("W1[i] * W2[i, j]", "W2[i, j]", CONTRACTIONS, "SHARE")
def absorbed_weight(state: State, step: Step) -> bool:
    """A weight can be multiplied offline into another weight that has all its coordinates.

    The rule compares the new weight with each old weight, in either direction.
    """
    return absorbing_weight(state, step) is not None


def absorbing_weight(state: State, step: Step) -> Weight | None:
    """Return the old weight for which :func:`absorbed_weight` rejects the step, or None."""
    new = set(step.operands + step.given)
    for weight in state.weights:
        if new <= set(weight.coordinates) or set(weight.coordinates) <= new:
            return weight
    return None


@exact("W1[i, j] * W2[B*i + j]", "W1[i, j]", CONTRACTIONS, "SHARE", is_deep=True)
def absorbed_through_views(state: State, step: Step) -> bool:
    """A weight can be multiplied offline into another weight whose elements fix its elements."""
    return any(_unfolds(given) <= _unfolds(rest) for given, rest in _absorbed(state, step))


@space(
    "W1[i, j] * W2[i + j - K/2]",
    "W1[i, j], zero where i + j - K/2 is out of bounds",
    CONTRACTIONS,
    "SHARE",
    is_deep=True,
)
def absorbed_but_for_border(state: State, step: Step) -> bool:
    """Except for an UNFOLD's zeros, another weight fixes this weight: this is an EXPAND that the space leaves out."""
    stay = [_unfolds(given) <= _unfolds(rest) for given, rest in _absorbed(state, step)]
    return bool(stay) and not any(stay)


def _absorbed(state: State, step: Step) -> Iterator[tuple[tuple[Coordinate, ...], list[Coordinate]]]:
    """Yield, for each new or old weight that the other fixes, its given coordinates and all coordinates without it."""
    new = step.operands + step.given
    data = [*(c for c in state.data if c not in step.given), *state.expanded]
    for old in state.weights:
        rest = [c for weight in state.weights if weight is not old for c in weight.coordinates]
        if fixes(old.coordinates, new):
            yield step.given, [*data, *rest, *old.coordinates]
        if fixes(new, old.coordinates):
            yield old.given, [*data, *rest, *new]


def _unfolds(coordinates: Iterable[Coordinate]) -> set[Node]:
    """Return the UNFOLDs in the construction of the coordinates."""
    return {c.node for c in below(coordinates) if c.node.primitive == "UNFOLD"}


def fixes(known: tuple[Coordinate, ...], wanted: tuple[Coordinate, ...]) -> bool:
    """Return whether the values of ``known`` determine the values of ``wanted``."""
    universe = below(known + wanted)
    fixed = set(known)
    size = -1
    while size != len(fixed):
        size = len(fixed)
        for c in universe:
            operands = c.node.operands
            if not operands:
                continue
            if all(o in fixed for o in operands):
                fixed.add(c)
            elif c in fixed and (
                c.node.primitive in ("SPLIT", "SHIFT", "STRIDE")
                or (c.node.primitive == "UNFOLD" and any(o in fixed for o in operands))
                or (c.node.primitive == "MERGE" and sum(d in fixed for d in universe if d.node == c.node) == 2)
            ):
                fixed.update(operands)
    return all(c in fixed for c in wanted)


@exact("W2[j] * W1[i]", "W1[i] * W2[j]", CONTRACTIONS, "SHARE", is_deep=True)
def contraction_order(state: State, step: Step) -> bool:
    """Independent contractions are taken in one fixed order.

    The rule rejects a contraction that is less than an earlier contraction and could come before it.
    """
    return later_weight(state, step) is not None


def later_weight(state: State, step: Step) -> Weight | None:
    """Return the earlier contraction's weight for which :func:`contraction_order` rejects the step, or None."""
    new = step.operands + step.given
    for weight in state.weights:
        # In the other order, each of the two weights must have a coordinate to share.
        if not commute(weight.coordinates, new) or all(c in step.given for c in weight.shared):
            continue
        if weight_rank(new) < weight_rank(weight.coordinates):
            return weight
    return None


def weight_rank(coordinates: tuple[Coordinate, ...]) -> tuple[object, ...]:
    """Return a sort key of weights: first their sizes, which search can compare without reading more."""
    return (sorted(c.size.exponents for c in coordinates), sorted(built(c) for c in coordinates))


def commute(earlier: tuple[Coordinate, ...], later: tuple[Coordinate, ...]) -> bool:
    """Return whether no coordinate of the later contraction is built from a coordinate of the earlier contraction."""
    return below(operand for c in later for operand in c.node.operands).isdisjoint(earlier)
