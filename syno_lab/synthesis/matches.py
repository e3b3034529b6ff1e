"""Canonicalization rules of views: each rule decides at the top of a state whether it rejects a step (Syno, section 6).

A rule is a function of a state and a step; its decorator (:mod:`syno_lab.synthesis.rule`) makes a table row. The row
has the rejected and the canonical expression, the section of the paper, and the primitives. The docstring begins with
the reason. The function may read a coordinate's own primitive, the coordinates directly below it, its digits and the
weights that share it. :mod:`syno_lab.synthesis.features` lists all of this, so that search can merge states that no
rule distinguishes. Rules that read more set ``is_deep``. :mod:`.matches_weights` has the rules of contractions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from syno_lab.common.size import Size
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.primitives import is_own
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.features import (
    are_adjacent,
    are_one,
    below_shifts,
    built,
    first_digit,
    is_high_of_shift,
    is_of_shared,
    is_of_unfold,
    is_raw_reduction,
    last_digit,
    offset_sizes,
    sharers,
    standing,
)
from syno_lab.synthesis.rule import CONTRACTIONS, MIXED, VIEWS, approximate, exact, space
from syno_lab.synthesis.space import coefficient_products, merge_blocks, reduce_sizes

#: The primitives that are bijections of coordinates (the paper's 1-to-1 views).
ONE_TO_ONE = ("MERGE", "SHIFT", "SPLIT")
TOLERANCE = 1 / 8  # The largest share of elements that may differ for an approximate rule.
_MOST_POSITIONS = 1 << 20  # The limit of positions of two windows; with more, windows are not small beside the axis.


def _operand_from(step: Step, primitive: str, position: int = 0) -> bool:
    return step.operands[position].node.primitive == primitive


def smallest(spec: Spec, size: Size) -> int:
    """Return the least value of a size under the spec's bindings; without a binding, a large number."""
    return min((size.at(binding) for binding in spec.binding_maps), default=1 << 30)


# -- REDUCE ----------------------------------------------------------------------------------------------------------


@exact("REDUCE after other steps", "REDUCE before them", "appendix A", "REDUCE")
def reduce_first(state: State, step: Step) -> bool:
    """REDUCEs commute with all steps before them, so REDUCEs come first."""
    return any(s.primitive != "REDUCE" for s in state.steps)


# -- views of reductions and of shared coordinates -------------------------------------------------------------------


@exact("sum_r X[r/B, r%B]", "sum_a sum_b X[a, b]", MIXED, *ONE_TO_ONE)
def view_of_reduction(state: State, step: Step) -> bool:
    """If no weight shares reductions (or their digits), a reshape or roll of them only renames summed elements.

    The rule does not reject a step whose replacement needs REDUCEs that are not in the space.
    """
    if step.primitive == "SPLIT":
        two = _raw_reductions(state, step)
        return two is not None and _is_one_reduction(state.spec, *two)
    (operand,) = step.operands
    if step.primitive != "MERGE" or not is_raw_reduction(state, operand):
        return is_raw_reduction(state, operand)
    assert step.parameter is not None
    sizes = reduce_sizes(state.spec)
    is_room = len(state.reductions) < state.spec.limits.max_reduces
    return operand.is_reduction and is_room and step.parameter in sizes and operand.size / step.parameter in sizes


@exact("sum_r sum_q X[B*r + q]", "sum_q sum_r X[C*q + r]", MIXED, "SPLIT")
def split_of_reductions(state: State, step: Step) -> bool:
    """A SPLIT of two reductions sums over both in any order, so the larger reduction comes first.

    Other blocks may be in front of the reductions.
    """
    two = _raw_reductions(state, step)
    return two is not None and two[0].size.exponents < two[1].size.exponents


def _raw_reductions(state: State, step: Step) -> tuple[Coordinate, Coordinate] | None:
    """Return the two reductions (or digits) that a SPLIT puts side by side, or None."""
    low = step.operands[1]
    if not is_raw_reduction(state, low):
        return None
    high = last_digit(state, step.operands[0])
    return (high, low) if is_raw_reduction(state, high) else None


def _is_one_reduction(spec: Spec, *operands: Coordinate) -> bool:
    """Return whether the space has a REDUCE for two reductions together and, if one is a digit, a REDUCE for its rest.

    The rule :func:`split_undoes_merge` handles two digits of one reduction.
    """
    sizes = reduce_sizes(spec)
    leaves = [c.is_reduction for c in operands]
    if not any(leaves) or operands[0].size * operands[1].size not in sizes:
        return False
    return all(leaves) or rest_of(operands[leaves.index(False)]) in sizes


def rest_of(coordinate: Coordinate) -> Size | None:
    """Return a reduction's size without one of its digits; None if several MERGEs made the digit."""
    (operand,) = coordinate.node.operands
    return operand.size / coordinate.size if operand.is_reduction else None


@exact("X[i/B, i%B] * W[i]", "X[a, b] * W[a, b] with [a, b] = [i/B, i%B]", f"{MIXED}, Figure 3(b)", *ONE_TO_ONE)
def view_above_share(state: State, step: Step) -> bool:
    """Weights can be reshaped offline, so 1-to-1 views are placed below contractions.

    The rule applies if one weight shares all operands of the view.
    """
    return bool(frozenset.intersection(*(sharers(state, c) for c in step.operands)))


# -- MERGE -----------------------------------------------------------------------------------------------------------


@exact("[(C*i + j) / (B*C), (C*i + j) % (B*C)]", "[i/B, C*(i%B) + j]", f"{VIEWS}, Figure 3(a)", "MERGE")
def merge_above_split(state: State, step: Step) -> bool:
    """If blocks (or blocks of blocks) divide one another, a parenthesis is removed, and MERGE is below SPLIT."""
    if not _operand_from(step, "SPLIT"):
        return False
    assert step.parameter is not None
    offset = step.operands[0].node.operands[1].size
    ratio = step.parameter / offset
    if ratio.is_one or state.spec.is_legal(ratio) or state.spec.is_legal(offset / step.parameter):
        return True
    return any(step.parameter in merge_blocks(state.spec, size) for size in offset_sizes(step.operands[0])[1:])


@space("[(D*i + j) / B, (D*i + j) % B]", "blocks of which one divides the other", f"{VIEWS}, Figure 3(a)", "MERGE")
def merge_across_blocks(state: State, step: Step) -> bool:
    """In the space, one block size divides the other; otherwise common divisors would decide what is read."""
    return _operand_from(step, "SPLIT") and not merge_above_split(state, step)


@exact("[i/B, (i%B)/C, (i%B)%C]", "[(i/C)/(B/C), (i/C)%(B/C), i%C]", VIEWS, "MERGE")
def merge_of_low_digit(state: State, step: Step) -> bool:
    """Three digits are made by a second MERGE of the high digit, never of the low digit."""
    return _operand_from(step, "MERGE") and step.operands[0].index == 1


@exact("sum_r X[r/B, r%B]", "sum_r X[r%(N/B), r/(N/B)]", MIXED, "MERGE")
def merge_of_reduction(state: State, step: Step) -> bool:
    """Digits of a reduction are summed independently and can swap, so the smallest digit is the lowest.

    The rule rejects a MERGE of a reduction, or of its rest, if another MERGE makes the same digits in order of size.
    """
    (operand,) = step.operands
    assert step.parameter is not None
    block = step.parameter
    if not is_raw_reduction(state, operand):
        return False
    if (operand.size / block).exponents < block.exponents:
        return True
    if operand.is_reduction or operand.index == 1:
        return False
    full, inner = operand.node.operands[0].size, operand.node.parameter
    return inner is not None and block.exponents < inner.exponents and block in merge_blocks(state.spec, full)


@approximate("[(i + j - K/2) / B, (i + j - K/2) % B]", "[i/B, i%B + j - K/2]", f"{VIEWS}, Figure 3(c)", "MERGE")
def merge_above_unfold(state: State, step: Step) -> bool:
    """The block is much larger than the window, so the two forms agree at almost every point."""
    if not _operand_from(step, "UNFOLD") or not state.spec.binding_maps:
        return False
    main, window = step.operands[0].node.operands
    assert step.parameter is not None
    binding = state.spec.binding_maps[0]
    return _block_crossings(main.size.at(binding), window.size.at(binding), step.parameter.at(binding)) <= TOLERANCE


@lru_cache(maxsize=4096)
def _block_crossings(main: int, window: int, block: int) -> float:
    """Return the share of window positions outside the block; blocks repeat, so one block represents all."""
    left, right = window // 2, window - 1 - window // 2
    crossing = 0
    for reach in (left, right):  # 1 + 2 + ... up to the block's size, then the block's size for each farther position
        near = min(reach, block)
        crossing += near * (near + 1) // 2 + (reach - near) * block
    return crossing / (block * window)


@approximate("[((B*i + j + 1) % (B*N)) / B, (B*i + j + 1) % B]", "[i, (j + 1) % B]", VIEWS, "MERGE")
def merge_above_shift_above_split(state: State, step: Step) -> bool:
    """Only the last element of a block is carried to the next block, so the SHIFT is placed below."""
    below, count = below_shifts(step.operands[0])
    if not count or below.node.primitive != "SPLIT" or below.node.operands[1].size != step.parameter:
        return False
    return count / smallest(state.spec, below.node.operands[1].size) <= TOLERANCE


# -- SPLIT -----------------------------------------------------------------------------------------------------------


@exact("B*C*i + (C*j + k)", "C*(B*i + j) + k", VIEWS, "SPLIT")
def split_of_split(state: State, step: Step) -> bool:
    """A parenthesis is removed: blocks of blocks are built from the left, even if weights share the offset."""
    return _operand_from(step, "SPLIT", 1)


@exact("B*(i/B) + i%B", "i", VIEWS, "SPLIT")
def split_undoes_merge(state: State, step: Step) -> bool:
    """A SPLIT of neighbouring digits undoes or replaces a MERGE, unless weights share only one of the digits."""
    high, low = last_digit(state, step.operands[0]), step.operands[1]
    return are_one(high, low) and sharers(state, high) == sharers(state, low)  # a reduction's digits in any order


@exact("B*(i/B + j - K/2) + i%B", "i + B*j - B*K/2", VIEWS, "SPLIT")
def dilated_window(state: State, step: Step) -> bool:
    """An even window along the high digit equals a STRIDEd window along the whole coordinate."""
    if not _operand_from(step, "UNFOLD"):
        return False
    (main, window), low = step.operands[0].node.operands, step.operands[1]
    if not are_one(main, low) or sharers(state, main) or sharers(state, low) or sharers(state, step.operands[0]):
        return False
    spec = state.spec
    is_even = bool(spec.binding_maps) and all(window.size.at(b) % 2 == 0 for b in spec.binding_maps)
    return (
        is_even
        and window.node.primitive not in ("STRIDE", "UNFOLD", "OUTPUT")  # the space never STRIDEs these
        and low.size in coefficient_products(spec)
        and min(low.size.exponents) >= 0
        and spec.limits.max_strides > 0
        and not any(s.primitive == "STRIDE" for s in state.steps)
    )


@space("B*((i/B + 1) % (N/B)) + i%B", "(i + B) % N", VIEWS, "SPLIT")
def shift_by_a_block(state: State, step: Step) -> bool:
    """Rolling the high digit rolls the whole coordinate by a block; for a small block, SHIFTs need fewer steps."""
    below, count = below_shifts(step.operands[0])
    low = step.operands[1]
    if not count or not are_adjacent(below, low) or sharers(state, low):
        return False
    return count * smallest(state.spec, low.size) <= state.spec.limits.max_shifts


# -- SHIFT -----------------------------------------------------------------------------------------------------------


@exact("sum_r X[(B*r + i + 1) % (B*N)]", "sum_r X[B*r + (i + 1) % B]", MIXED, "SHIFT")
def shift_above_reduction(state: State, step: Step) -> bool:
    """The carry of the SHIFT only renames the blocks that are summed."""
    return _operand_from(step, "SPLIT") and is_raw_reduction(state, first_digit(state, step.operands[0]))


@exact("(B*(i/B) + i%B + 1) % N", "B*(j/B) + j%B with j = (i + 1) % N", VIEWS, "SHIFT")
def shift_above_rejoined(state: State, step: Step) -> bool:
    """A SPLIT of two neighbouring digits is the whole coordinate, which can be SHIFTed before the MERGE.

    The rule applies if only the low digit is shared, or if the high digit is SHIFTed.
    """
    if not _operand_from(step, "SPLIT"):
        return False
    high, low = step.operands[0].node.operands
    below, count = below_shifts(high)
    # If a weight has the high digit, SHIFTed or not, the whole coordinate SHIFTed by one element cannot replace it.
    if not are_adjacent(below, low) or sharers(state, high) or sharers(state, below):
        return False
    return bool(sharers(state, low)) or count > 0


@exact("(B*i + j + B) % (B*N)", "B*((i + 1) % N) + j", VIEWS, "SHIFT")
def shifts_of_a_block(state: State, step: Step) -> bool:
    """As many SHIFTs as a block has elements equal one SHIFT of the block's number."""
    below, count = below_shifts(step.operands[0])
    if below.node.primitive != "SPLIT" or not state.spec.binding_maps:
        return False
    block = below.node.operands[1].size
    return all(block.at(binding) == count + 1 for binding in state.spec.binding_maps)


@exact("(i + N) % N", "i", VIEWS, "SHIFT")
def shifts_all_around(state: State, step: Step) -> bool:
    """As many SHIFTs as there are elements have no effect."""
    operand = step.operands[0]
    if operand.size.has_primary or not state.spec.binding_maps:
        return False
    count = below_shifts(operand)[1] + 1
    return all(operand.size.at(binding) == count for binding in state.spec.binding_maps)


# -- EXPAND ----------------------------------------------------------------------------------------------------------


@exact("sum_r X[]", "N * X[]", MIXED, "EXPAND")
def expand_of_reduction(state: State, step: Step) -> bool:
    """EXPAND of a REDUCE only changes a multiplier of the result.

    The rule applies if no weight shares the reduction. For a digit, the space must have a REDUCE of the rest.
    """
    (operand,) = step.operands
    if not is_raw_reduction(state, operand):
        return False
    return operand.is_reduction or rest_of(operand) in reduce_sizes(state.spec)


@exact(
    "EXPAND of SPLIT, SHIFT, STRIDE or of both digits of a MERGE", "EXPAND of the coordinates below", VIEWS, "EXPAND"
)
def expand_of_view(state: State, step: Step) -> bool:
    """A dropped coordinate needs no view before it is dropped."""
    node = step.operands[0].node
    if node.primitive in ("SPLIT", "SHIFT", "STRIDE") or is_own(node.primitive):
        return True
    return node.primitive == "MERGE" and any(c.node == node for c in state.expanded)


@exact("[((i + 1) % N) % B], ((i + 1) % N) / B dropped", "[(i%B + 1) % B], i/B dropped", VIEWS, "EXPAND")
def expand_above_shift(state: State, step: Step) -> bool:
    """If the high digit is dropped, the carry has no effect, so the SHIFT stays inside the block."""
    (coordinate,) = step.operands
    return is_high_of_shift(coordinate) and coordinate not in state.sharing


@space("EXPAND of i + j - K/2", "EXPAND of i and of j", VIEWS, "EXPAND")
def expand_of_unfold(state: State, step: Step) -> bool:
    """In the space, EXPAND drops output coordinates and digits; a dropped window would only weaken the border.

    The coordinate is an UNFOLD, or SHIFTs or STRIDEs of one.
    """
    return is_of_unfold(step.operands[0])


@space("SHARE and then EXPAND", "give it to the weight", CONTRACTIONS, "EXPAND")
def expand_of_shared(state: State, step: Step) -> bool:
    """In the space, a shared coordinate (or a 1-to-1 view of one) is never dropped but given to a weight."""
    return is_of_shared(state, step.operands[0])


# -- UNFOLD ----------------------------------------------------------------------------------------------------------


@approximate("sum_i sum_j X[i + j - K/2]", "K * sum_i X[i]", MIXED, "UNFOLD")
def unfold_of_reductions(state: State, step: Step) -> bool:
    """An UNFOLD of two reductions is a multiple of one sum, except at the border."""
    if not all(c.is_reduction and c not in state.sharing for c in step.operands):
        return False
    return _share(state.spec, _out_of_bounds, *(c.size for c in step.operands)) <= TOLERANCE


@approximate("(i + 1) % N + j - K/2", "(i + j - K/2 + 1) % N", VIEWS, "UNFOLD")
def unfold_above_shift(state: State, step: Step) -> bool:
    """UNFOLD and SHIFT commute except at the border, so the SHIFT is placed above."""
    if not _operand_from(step, "SHIFT"):
        return False
    return _share(state.spec, _wrapping, *(c.size for c in step.operands)) <= TOLERANCE


@lru_cache(maxsize=1 << 14)
def _share(spec: Spec, of: Callable[..., float], *sizes: Size) -> float:
    """Return the largest share over the spec's bindings; without a binding 0, because sizes are large then."""
    return max((of(*(size.at(binding) for size in sizes)) for binding in spec.binding_maps), default=0.0)


@lru_cache(maxsize=4096)
def _out_of_bounds(main: int, window: int) -> float:
    """Return the share of the positions of a window along ``main`` that are out of bounds."""
    left = window // 2
    right = window - 1 - left
    return min(1.0, (left * (left + 1) + right * (right + 1)) / (2 * main * window))


@lru_cache(maxsize=4096)
def _wrapping(main: int, window: int) -> float:
    """Return the share of positions at which UNFOLD above SHIFT and SHIFT above UNFOLD read different elements.

    At the last element, all window positions but the middle differ; as many more are in bounds in one form only.
    """
    return min(1.0, 2 * (window - 1) / (main * window))


@lru_cache(maxsize=4096)
def _clipped_between(main: int, first: int, second: int) -> float:
    """Return the share of positions of two consecutive windows that are in bounds in only one order."""
    import numpy as np

    few = min(main, 2 * (first + second))  # only positions near an axis's border differ
    if few * first * second > _MOST_POSITIONS:
        return 1.0
    i, j, k = np.ogrid[:few, :first, :second]
    a, b = i + j - first // 2, i + k - second // 2
    end = a + k - second // 2
    differ = (((a >= 0) & (a < few)) != ((b >= 0) & (b < few))) & (end >= 0) & (end < few)
    return int(differ.sum()) / (main * first * second)


@exact("B*i + k + j - B/2 from SPLIT(i, k) and window j", "the same from SPLIT(i, j) and window k", VIEWS, "UNFOLD")
def window_and_offset(state: State, step: Step) -> bool:
    """A SPLIT's offset and a window of the same size are added and can swap, so the lesser one is the offset.

    Weights that share the SPLIT then share its parts, if this does not change the order of weights.
    """
    offset, window = _offset(step), step.operands[1]
    if offset is None:
        return False
    above, own = sharers(state, step.operands[0]), sharers(state, window)
    other = sharers(state, offset) | above
    if above and not (own <= other or above <= own):
        return False
    return (len(own), built(window)) < (len(other), built(offset))


@exact("B*(n/B) + k + n%B - B/2 from SPLIT(n/B, k) and window n%B", "n + k - B/2", VIEWS, "UNFOLD", is_deep=True)
def window_rejoins_blocks(state: State, step: Step) -> bool:
    """A window that is the digit below a SPLIT's blocks joins these blocks; the offset becomes the window."""
    if _offset(step) is None:
        return False
    main, window = step.operands
    last, above = last_digit(state, main.node.operands[0]), sharers(state, main)
    return are_one(last, window) and sharers(state, last) | above == sharers(state, window)


def _offset(step: Step) -> Coordinate | None:
    """Return the offset of the SPLIT below an UNFOLD, if the window has the same size and can be an offset."""
    main, window = step.operands
    if main.node.primitive != "SPLIT" or window.node.primitive == "STRIDE":
        return None
    offset = main.node.operands[1]
    return offset if offset.size == window.size else None


@approximate("(i + k - L/2) + j - K/2", "(i + j - K/2) + k - L/2", VIEWS, "UNFOLD")
def unfold_windows(state: State, step: Step) -> bool:
    """Two windows along one coordinate commute except at the border, so the lesser window comes first."""
    return _between_windows(state, step) <= TOLERANCE


@exact("(i + k - 1) + j - 1", "(i + j - 1) + k - 1", VIEWS, "UNFOLD")
def unfold_one_sided(state: State, step: Step) -> bool:
    """Two windows along one coordinate commute if they cross only the same border, so the lesser window comes first."""
    return bool(state.spec.binding_maps) and not _between_windows(state, step)


def _between_windows(state: State, step: Step) -> float:
    """Return the share of positions that differ after swapping two windows along one coordinate, the lesser last."""
    main, window = step.operands
    if main.node.primitive != "UNFOLD" or main in state.sharing:
        return 1.0
    below, first = main.node.operands
    if standing(state, window) >= standing(state, first):
        return 1.0
    return _share(state.spec, _clipped_between, below.size, first.size, window.size)


@space("UNFOLD with a window of a primary size or as large as the main coordinate", "a smaller window", "5.3", "UNFOLD")
def window_size(state: State, step: Step) -> bool:
    """In the space windows are made of coefficients and smaller than what they slide along."""
    main, window = step.operands[0].size, step.operands[1].size
    if window.has_primary:
        return True
    if not main.has_primary and main == window:
        return True
    return any(window.at(b) >= main.at(b) for b in state.spec.binding_maps)


@space("STRIDE as an UNFOLD's main coordinate", "STRIDE as its window", "5.2 and appendix A", "UNFOLD")
def stride_window(state: State, step: Step) -> bool:
    """In the space, a STRIDE is placed directly below an UNFOLD's window."""
    return _operand_from(step, "STRIDE")


@space("STRIDE of an output coordinate", "STRIDE of a window", "5.2 and appendix A", "STRIDE")
def stride_of_output(state: State, step: Step) -> bool:
    """In the space only windows are strided."""
    return step.operands[0].is_output
