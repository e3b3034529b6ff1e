"""Canonicalization rules of views: each says of the top of a state whether it rejects a step (Syno, section 6).

A rule is a function of a state and a step with a row above it (:mod:`syno_lab.synthesis.rule`): the expression that it
rejects, the canonical one, the section of the paper, the primitives. Its docstring begins with the reason. It may look
at a coordinate's own primitive, at the coordinates right below it, at its digits and at the weights that share it;
:mod:`syno_lab.synthesis.features` lists just that, so that search can take two states for one where no rule tells them
apart. Rules that look deeper say so; those of contractions are in :mod:`syno_lab.synthesis.matches_weights`.
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

#: The primitives whose coordinates are a bijection of those below (the paper's 1-to-1 views).
ONE_TO_ONE = ("MERGE", "SHIFT", "SPLIT")
TOLERANCE = 1 / 8  # an approximate rule applies where at most this share of the elements differs
_MOST_POSITIONS = 1 << 20  # of two windows; with more, they are not small beside what they slide along


def _operand_from(step: Step, primitive: str, position: int = 0) -> bool:
    return step.operands[position].node.primitive == primitive


def smallest(spec: Spec, size: Size) -> int:
    """The least value of a size under the spec's bindings; a large number where there is none."""
    return min((size.at(binding) for binding in spec.binding_maps), default=1 << 30)


# -- REDUCE ----------------------------------------------------------------------------------------------------------


@exact("REDUCE after other steps", "REDUCE before them", "appendix A", "REDUCE")
def reduce_first(state: State, step: Step) -> bool:
    """REDUCEs commute with everything before them, so they come first."""
    return any(s.primitive != "REDUCE" for s in state.steps)


# -- views of reductions and of shared coordinates -------------------------------------------------------------------


@exact("sum_r X[r/B, r%B]", "sum_a sum_b X[a, b]", MIXED, *ONE_TO_ONE)
def view_of_reduction(state: State, step: Step) -> bool:
    """A reshape or roll of reductions, or of their digits, that no weight shares only renames what is summed.

    It stays where the REDUCEs that replace it are not in the space.
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
    """Reductions side by side in a SPLIT are summed over all they are together: the larger comes first.

    They may stand behind other blocks.
    """
    two = _raw_reductions(state, step)
    return two is not None and two[0].size.exponents < two[1].size.exponents


def _raw_reductions(state: State, step: Step) -> tuple[Coordinate, Coordinate] | None:
    """The reductions, or digits, side by side in a SPLIT."""
    low = step.operands[1]
    if not is_raw_reduction(state, low):
        return None
    high = last_digit(state, step.operands[0])
    return (high, low) if is_raw_reduction(state, high) else None


def _is_one_reduction(spec: Spec, *operands: Coordinate) -> bool:
    """Whether two reductions, or digits, are one REDUCE: of the size of both, or with what is left of what they are of.

    Two digits of one reduction are for :func:`split_undoes_merge`.
    """
    sizes = reduce_sizes(spec)
    leaves = [c.is_reduction for c in operands]
    if not any(leaves) or operands[0].size * operands[1].size not in sizes:
        return False
    return all(leaves) or rest_of(operands[leaves.index(False)]) in sizes


def rest_of(coordinate: Coordinate) -> Size | None:
    """The size of the reduction that stays when a digit of one is taken away; None where that takes other MERGEs."""
    (operand,) = coordinate.node.operands
    return operand.size / coordinate.size if operand.is_reduction else None


@exact("X[i/B, i%B] * W[i]", "X[a, b] * W[a, b] with [a, b] = [i/B, i%B]", f"{MIXED}, Figure 3(b)", *ONE_TO_ONE)
def view_above_share(state: State, step: Step) -> bool:
    """Weights can be reshaped offline, so 1-to-1 views stand below contractions.

    One weight shares all coordinates of the view.
    """
    common = sharers(state, step.operands[0])
    for c in step.operands[1:]:
        common = common & sharers(state, c)
    return bool(common)


# -- MERGE -----------------------------------------------------------------------------------------------------------


@exact("[(C*i + j) / (B*C), (C*i + j) % (B*C)]", "[i/B, C*(i%B) + j]", f"{VIEWS}, Figure 3(a)", "MERGE")
def merge_above_split(state: State, step: Step) -> bool:
    """The sizes of blocks (or blocks of blocks) divide one another: a parenthesis goes, and MERGE is below SPLIT."""
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
    """In the space such blocks divide one another; else what is read hangs on which numbers have a common divisor."""
    return _operand_from(step, "SPLIT") and not merge_above_split(state, step)


@exact("[i/B, (i%B)/C, (i%B)%C]", "[(i/C)/(B/C), (i/C)%(B/C), i%C]", VIEWS, "MERGE")
def merge_of_low_digit(state: State, step: Step) -> bool:
    """Three digits come from merging the high one again, never the low one."""
    return _operand_from(step, "MERGE") and step.operands[0].index == 1


@exact("sum_r X[r/B, r%B]", "sum_r X[r%(N/B), r/(N/B)]", MIXED, "MERGE")
def merge_of_reduction(state: State, step: Step) -> bool:
    """The digits of a reduction are summed each by itself, so they may change places: the least is the lowest.

    It rejects a MERGE of a reduction, or of the rest of one, whose digits are in order of their sizes in another MERGE.
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
    """The block is much larger than the window, so both agree at almost every point."""
    if not _operand_from(step, "UNFOLD") or not state.spec.binding_maps:
        return False
    main, window = step.operands[0].node.operands
    assert step.parameter is not None
    binding = state.spec.binding_maps[0]
    return _block_crossings(main.size.at(binding), window.size.at(binding), step.parameter.at(binding)) <= TOLERANCE


@lru_cache(maxsize=4096)
def _block_crossings(main: int, window: int, block: int) -> float:
    """Positions inside a block repeat, so one block stands for all: crossing windows read another block or nothing."""
    left, right = window // 2, window - 1 - window // 2
    crossing = 0
    for reach in (left, right):  # 1 + 2 + ... up to the block, and a block for each that reaches farther
        near = min(reach, block)
        crossing += near * (near + 1) // 2 + (reach - near) * block
    return crossing / (block * window)


@approximate("[((B*i + j + 1) % (B*N)) / B, (B*i + j + 1) % B]", "[i, (j + 1) % B]", VIEWS, "MERGE")
def merge_above_shift_above_split(state: State, step: Step) -> bool:
    """Only the last element of a block is carried to the next, so the SHIFT may stand below."""
    below, count = below_shifts(step.operands[0])
    if not count or below.node.primitive != "SPLIT" or below.node.operands[1].size != step.parameter:
        return False
    return count / smallest(state.spec, below.node.operands[1].size) <= TOLERANCE


# -- SPLIT -----------------------------------------------------------------------------------------------------------


@exact("B*C*i + (C*j + k)", "C*(B*i + j) + k", VIEWS, "SPLIT")
def split_of_split(state: State, step: Step) -> bool:
    """A parenthesis is removed: blocks of blocks are put together from the left, though weights share the offset."""
    return _operand_from(step, "SPLIT", 1)


@exact("B*(i/B) + i%B", "i", VIEWS, "SPLIT")
def split_undoes_merge(state: State, step: Step) -> bool:
    """Joining two neighbouring digits (of a reduction in any order) is another MERGE or none, unless one is shared."""
    high, low = last_digit(state, step.operands[0]), step.operands[1]
    return are_one(high, low) and sharers(state, high) == sharers(state, low)


@exact("B*(i/B + j - K/2) + i%B", "i + B*j - B*K/2", VIEWS, "SPLIT")
def dilated_window(state: State, step: Step) -> bool:
    """An even window along the high digit is a STRIDEd window along the whole."""
    if not _operand_from(step, "UNFOLD"):
        return False
    (main, window), low = step.operands[0].node.operands, step.operands[1]
    if not are_one(main, low) or sharers(state, main) or sharers(state, low) or sharers(state, step.operands[0]):
        return False
    spec = state.spec
    is_even = bool(spec.binding_maps) and all(window.size.at(b) % 2 == 0 for b in spec.binding_maps)
    return (
        is_even
        and window.node.primitive not in ("STRIDE", "UNFOLD", "OUTPUT")  # which the space does not STRIDE
        and low.size in coefficient_products(spec)
        and min(low.size.exponents) >= 0
        and spec.limits.max_strides > 0
        and not any(s.primitive == "STRIDE" for s in state.steps)
    )


@space("B*((i/B + 1) % (N/B)) + i%B", "(i + B) % N", VIEWS, "SPLIT")
def shift_by_a_block(state: State, step: Step) -> bool:
    """Rolling the high digit rolls the whole by a block; where that is small, SHIFTs say so with fewer steps."""
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
    """Two neighbouring digits that are put together again are the whole, which is SHIFTed before the MERGE.

    Of the two digits the low one alone is shared, or the high one SHIFTed.
    """
    if not _operand_from(step, "SPLIT"):
        return False
    high, low = step.operands[0].node.operands
    below, count = below_shifts(high)
    # A weight that has the high one, SHIFTed or not, has no other SHIFTed by one element.
    if not are_adjacent(below, low) or sharers(state, high) or sharers(state, below):
        return False
    return bool(sharers(state, low)) or count > 0


@exact("(B*i + j + B) % (B*N)", "B*((i + 1) % N) + j", VIEWS, "SHIFT")
def shifts_of_a_block(state: State, step: Step) -> bool:
    """As many SHIFTs as a block has elements are one SHIFT of the block's number."""
    below, count = below_shifts(step.operands[0])
    if below.node.primitive != "SPLIT" or not state.spec.binding_maps:
        return False
    block = below.node.operands[1].size
    return all(block.at(binding) == count + 1 for binding in state.spec.binding_maps)


@exact("(i + N) % N", "i", VIEWS, "SHIFT")
def shifts_all_around(state: State, step: Step) -> bool:
    """As many SHIFTs as there are elements are none."""
    operand = step.operands[0]
    if operand.size.has_primary or not state.spec.binding_maps:
        return False
    count = below_shifts(operand)[1] + 1
    return all(operand.size.at(binding) == count for binding in state.spec.binding_maps)


# -- EXPAND ----------------------------------------------------------------------------------------------------------


@exact("sum_r X[]", "N * X[]", MIXED, "EXPAND")
def expand_of_reduction(state: State, step: Step) -> bool:
    """EXPAND of a REDUCE only changes a multiplier of the result.

    No weight shares it; of a digit of one, a REDUCE of the rest is in the space.
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
    """Where the high digit is dropped nobody sees the carry: the SHIFT stays inside the block."""
    (coordinate,) = step.operands
    return is_high_of_shift(coordinate) and coordinate not in state.sharing


@space("EXPAND of i + j - K/2", "EXPAND of i and of j", VIEWS, "EXPAND")
def expand_of_unfold(state: State, step: Step) -> bool:
    """In the space EXPAND drops output coordinates and digits; a dropped window only weakens the border.

    The UNFOLD itself, or below SHIFT and STRIDE.
    """
    return is_of_unfold(step.operands[0])


@space("SHARE and then EXPAND", "give it to the weight", CONTRACTIONS, "EXPAND")
def expand_of_shared(state: State, step: Step) -> bool:
    """In the space what a weight shares, itself or below 1-to-1 views, is not dropped: it is given to a weight."""
    return is_of_shared(state, step.operands[0])


# -- UNFOLD ----------------------------------------------------------------------------------------------------------


@approximate("sum_i sum_j X[i + j - K/2]", "K * sum_i X[i]", MIXED, "UNFOLD")
def unfold_of_reductions(state: State, step: Step) -> bool:
    """At most one coordinate of an UNFOLD may be REDUCEd; with both it is a multiple except at the border."""
    if not all(c.is_reduction and c not in state.sharing for c in step.operands):
        return False
    return _share(state.spec, _out_of_bounds, *(c.size for c in step.operands)) <= TOLERANCE


@approximate("(i + 1) % N + j - K/2", "(i + j - K/2 + 1) % N", VIEWS, "UNFOLD")
def unfold_above_shift(state: State, step: Step) -> bool:
    """UNFOLD and SHIFT commute except at the border, so SHIFT stands above."""
    if not _operand_from(step, "SHIFT"):
        return False
    return _share(state.spec, _wrapping, *(c.size for c in step.operands)) <= TOLERANCE


@lru_cache(maxsize=1 << 14)
def _share(spec: Spec, of: Callable[..., float], *sizes: Size) -> float:
    """The largest share of elements under the spec's bindings; 0 where there is none (sizes are large then)."""
    return max((of(*(size.at(binding) for size in sizes)) for binding in spec.binding_maps), default=0.0)


@lru_cache(maxsize=4096)
def _out_of_bounds(main: int, window: int) -> float:
    """The share of the positions of a window along ``main`` that are out of bounds."""
    left = window // 2
    right = window - 1 - left
    return min(1.0, (left * (left + 1) + right * (right + 1)) / (2 * main * window))


@lru_cache(maxsize=4096)
def _wrapping(main: int, window: int) -> float:
    """The share of positions at which UNFOLD above SHIFT and SHIFT above UNFOLD read different elements.

    At the last position all of the window but its middle, and as many again that the borders cut off on one side alone.
    """
    return min(1.0, 2 * (window - 1) / (main * window))


@lru_cache(maxsize=4096)
def _clipped_between(main: int, first: int, second: int) -> float:
    """The share of positions of two windows, one after the other, that are in bounds in one order alone."""
    import numpy as np

    few = min(main, 2 * (first + second))  # only positions near the border differ
    if few * first * second > _MOST_POSITIONS:
        return 1.0
    i, j, k = np.ogrid[:few, :first, :second]
    a, b = i + j - first // 2, i + k - second // 2
    end = a + k - second // 2
    differ = (((a >= 0) & (a < few)) != ((b >= 0) & (b < few))) & (end >= 0) & (end < few)
    return int(differ.sum()) / (main * first * second)


@exact("B*i + k + j - B/2 from SPLIT(i, k) and window j", "the same from SPLIT(i, j) and window k", VIEWS, "UNFOLD")
def window_and_offset(state: State, step: Step) -> bool:
    """A SPLIT's offset and a window of the same size are added and may swap: the lesser one is the offset.

    Weights that share the SPLIT share its parts instead, where that leaves the order of weights as it is.
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
    """A window that is the digit below a SPLIT's blocks makes the whole with them, and the offset is the window."""
    if _offset(step) is None:
        return False
    main, window = step.operands
    last, above = last_digit(state, main.node.operands[0]), sharers(state, main)
    return are_one(last, window) and sharers(state, last) | above == sharers(state, window)


def _offset(step: Step) -> Coordinate | None:
    """The offset of the SPLIT below an UNFOLD, where the window is as large and can be one."""
    main, window = step.operands
    if main.node.primitive != "SPLIT" or window.node.primitive == "STRIDE":
        return None
    offset = main.node.operands[1]
    return offset if offset.size == window.size else None


@approximate("(i + k - L/2) + j - K/2", "(i + j - K/2) + k - L/2", VIEWS, "UNFOLD")
def unfold_windows(state: State, step: Step) -> bool:
    """Two windows along one coordinate commute except at the border: the lesser comes first."""
    return _between_windows(state, step) <= TOLERANCE


@exact("(i + k - 1) + j - 1", "(i + j - 1) + k - 1", VIEWS, "UNFOLD")
def unfold_one_sided(state: State, step: Step) -> bool:
    """Two windows along one coordinate that reach beyond the same end alone commute: the lesser comes first."""
    return bool(state.spec.binding_maps) and not _between_windows(state, step)


def _between_windows(state: State, step: Step) -> float:
    """The share of positions at which two windows along one coordinate, the lesser last, differ from those swapped."""
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
    """In the space STRIDE stands directly under an UNFOLD's window."""
    return _operand_from(step, "STRIDE")


@space("STRIDE of an output coordinate", "STRIDE of a window", "5.2 and appendix A", "STRIDE")
def stride_of_output(state: State, step: Step) -> bool:
    """In the space only windows are strided."""
    return step.operands[0].is_output
