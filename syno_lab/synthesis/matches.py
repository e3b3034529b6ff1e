"""What canonicalization rules match: the top of a state and a proposed step (Syno, section 6).

Each match is a function of a state and a step; the table that gives it a name and a reason is in
:mod:`syno_lab.synthesis.rules`. A match may look at a coordinate's own primitive, at the coordinates right below it,
at its digits and at the weights that share it; :mod:`syno_lab.synthesis.features` lists just that, so that search can
take two states for one where no rule tells them apart. Matches that look deeper say so; those of contractions are in
:mod:`syno_lab.synthesis.matches_weights`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from syno_lab.common.size import Size
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.primitives import is_own
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.digits import are_adjacent, are_one
from syno_lab.synthesis.parameters import coefficient_products, merge_blocks, reduce_sizes

TOLERANCE = 1 / 8  # an approximate rule applies where at most this share of the elements differs
_NOBODY: frozenset[int] = frozenset()
_MOST_POSITIONS = 1 << 20  # of two windows; with more, they are not small beside what they slide along

# -- what rules ask of a state ---------------------------------------------------------------------------------------


def sharers(state: State, coordinate: Coordinate) -> frozenset[int]:
    """The weights a coordinate is SHAREd with."""
    return state.sharing.get(coordinate, _NOBODY)


def is_raw_reduction(state: State, coordinate: Coordinate) -> bool:
    """Whether it is a reduction's iterator, or a digit of one, that no weight shares."""
    while coordinate not in state.sharing:
        if coordinate.node.primitive != "MERGE":
            return coordinate.is_reduction
        coordinate = coordinate.node.operands[0]
    return False


def holders(state: State, coordinate: Coordinate) -> frozenset[int]:
    """The weights that share a coordinate or what it is a digit of."""
    found = sharers(state, coordinate)
    while coordinate.node.primitive == "MERGE":
        coordinate = coordinate.node.operands[0]
        found = found | sharers(state, coordinate)
    return found


def first_digit(state: State, coordinate: Coordinate) -> Coordinate:
    """The leading one of the blocks that SPLITs no weight shares have put together."""
    while coordinate.node.primitive == "SPLIT" and coordinate not in state.sharing:
        coordinate = coordinate.node.operands[0]
    return coordinate


def last_digit(state: State, coordinate: Coordinate) -> Coordinate:
    """The last one of the blocks that SPLITs no weight shares have put together."""
    while coordinate.node.primitive == "SPLIT" and coordinate not in state.sharing:
        coordinate = coordinate.node.operands[1]
    return coordinate


def below_shifts(coordinate: Coordinate) -> tuple[Coordinate, int]:
    """The coordinate under the SHIFTs right below this one, and how many they are."""
    count = 0
    while coordinate.node.primitive == "SHIFT":
        coordinate, count = coordinate.node.operands[0], count + 1
    return coordinate, count


def _operand_from(step: Step, primitive: str, position: int = 0) -> bool:
    return step.operands[position].node.primitive == primitive


def smallest(spec: Spec, size: Size) -> int:
    """The least value of a size under the spec's bindings; a large number where there is none."""
    return min((size.at(binding) for binding in spec.binding_maps), default=1 << 30)


def standing(state: State, coordinate: Coordinate) -> tuple[object, ...]:
    """An order of coordinates that the names of reductions do not change: how it is built, and who shares it."""
    return (len(sharers(state, coordinate)), built(coordinate))


@lru_cache(maxsize=1 << 16)
def built(coordinate: Coordinate) -> tuple[object, ...]:
    """How a coordinate is built, reductions of one size alike: comparable among coordinates of one spec."""
    node = coordinate.node
    tag = -1 if coordinate.is_reduction else node.tag
    parameter = () if node.parameter is None else node.parameter.exponents
    return (
        coordinate.size.exponents,
        node.primitive,
        coordinate.index,
        tag,
        parameter,
        tuple(built(c) for c in node.operands),
    )


# -- REDUCE ----------------------------------------------------------------------------------------------------------


def reduce_late(state: State, step: Step) -> bool:
    """REDUCE after any other step."""
    return any(s.primitive != "REDUCE" for s in state.steps)


# -- views of reductions and of shared coordinates -------------------------------------------------------------------


def view_of_raw_reduction(state: State, step: Step) -> bool:
    """MERGE, SHIFT or SPLIT of reductions or of their digits, where the REDUCEs that replace it are in the space."""
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


def split_of_reductions(state: State, step: Step) -> bool:
    """SPLIT of two reductions or digits, maybe behind other blocks: the larger one comes first."""
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
    (whole,) = coordinate.node.operands
    return whole.size / coordinate.size if whole.is_reduction else None


def view_of_shared(state: State, step: Step) -> bool:
    """A 1-to-1 view of coordinates that one weight shares, all of them."""
    common = sharers(state, step.operands[0])
    for c in step.operands[1:]:
        common = common & sharers(state, c)
    return bool(common)


# -- MERGE -----------------------------------------------------------------------------------------------------------


def merge_above_split(state: State, step: Step) -> bool:
    """The block of the MERGE and that of the SPLIT, or of several SPLITs, divide one another."""
    if not _operand_from(step, "SPLIT"):
        return False
    assert step.parameter is not None
    offset = step.operands[0].node.operands[1].size
    ratio = step.parameter / offset
    if ratio.is_one or state.spec.is_legal(ratio) or state.spec.is_legal(offset / step.parameter):
        return True
    return any(step.parameter in merge_blocks(state.spec, size) for size in offset_sizes(step.operands[0])[1:])


def offset_sizes(coordinate: Coordinate) -> list[Size]:
    """The blocks of the SPLITs that a coordinate is made by, from the innermost: ``C``, then ``B*C``, ..."""
    sizes: list[Size] = []
    while coordinate.node.primitive == "SPLIT":
        coordinate, offset = coordinate.node.operands
        sizes.append(offset.size * sizes[-1] if sizes else offset.size)
    return sizes


def merge_across_blocks(state: State, step: Step) -> bool:
    """The block of the MERGE and that of the SPLIT below it do not divide one another."""
    return _operand_from(step, "SPLIT") and not merge_above_split(state, step)


def merge_of_low_digit(state: State, step: Step) -> bool:
    """MERGE of a remainder."""
    return _operand_from(step, "MERGE") and step.operands[0].index == 1


def merge_of_reduction(state: State, step: Step) -> bool:
    """MERGE of a reduction, or of the rest of one, whose digits are in order of their sizes in another MERGE."""
    (operand,) = step.operands
    assert step.parameter is not None
    block = step.parameter
    if not is_raw_reduction(state, operand):
        return False
    if (operand.size / block).exponents < block.exponents:
        return True
    if operand.is_reduction or operand.index == 1:
        return False
    whole, inner = operand.node.operands[0].size, operand.node.parameter
    return inner is not None and block.exponents < inner.exponents and block in merge_blocks(state.spec, whole)


def merge_above_unfold(state: State, step: Step) -> bool:
    """MERGE above UNFOLD, in blocks much larger than the window (Figure 3(c))."""
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


def merge_above_shift_above_split(state: State, step: Step) -> bool:
    """MERGE above SHIFTs above a SPLIT of the same block, which only the last element of a block crosses."""
    below, count = below_shifts(step.operands[0])
    if not count or below.node.primitive != "SPLIT" or below.node.operands[1].size != step.parameter:
        return False
    return count / smallest(state.spec, below.node.operands[1].size) <= TOLERANCE


# -- SPLIT -----------------------------------------------------------------------------------------------------------


def split_of_split(state: State, step: Step) -> bool:
    """SPLIT whose offset is a SPLIT; weights that share the offset share its parts instead."""
    return _operand_from(step, "SPLIT", 1)


def split_undoes_merge(state: State, step: Step) -> bool:
    """SPLIT that puts two neighbouring digits together again."""
    high, low = last_digit(state, step.operands[0]), step.operands[1]
    return are_one(high, low) and sharers(state, high) == sharers(state, low)


def dilated_window(state: State, step: Step) -> bool:
    """SPLIT of an UNFOLD of the high digit and the low digit, which an UNFOLD with a STRIDEd window gives as well."""
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


def shift_by_a_block(state: State, step: Step) -> bool:
    """SHIFTs of a high digit that is put back on its low digit, where as many SHIFTs of the whole do the same."""
    below, count = below_shifts(step.operands[0])
    low = step.operands[1]
    if not count or not are_adjacent(below, low) or sharers(state, low):
        return False
    return count * smallest(state.spec, low.size) <= state.spec.limits.max_shifts


# -- SHIFT -----------------------------------------------------------------------------------------------------------


def shift_above_reduction(state: State, step: Step) -> bool:
    """SHIFT above a SPLIT whose blocks are counted by a reduction: the carry only renames what is summed."""
    return _operand_from(step, "SPLIT") and is_raw_reduction(state, first_digit(state, step.operands[0]))


def shift_above_rejoined(state: State, step: Step) -> bool:
    """SHIFT above a SPLIT of two neighbouring digits of which only the low one is shared, or the high one shifted."""
    if not _operand_from(step, "SPLIT"):
        return False
    high, low = step.operands[0].node.operands
    below, count = below_shifts(high)
    # A weight that has the high one, SHIFTed or not, has no other SHIFTed by one element.
    if not are_adjacent(below, low) or sharers(state, high) or sharers(state, below):
        return False
    return bool(sharers(state, low)) or count > 0


def shifts_of_a_block(state: State, step: Step) -> bool:
    """As many SHIFTs above a SPLIT as its block has elements, which one SHIFT of the block's number is."""
    below, count = below_shifts(step.operands[0])
    if below.node.primitive != "SPLIT" or not state.spec.binding_maps:
        return False
    block = below.node.operands[1].size
    return all(block.at(binding) == count + 1 for binding in state.spec.binding_maps)


def shifts_all_around(state: State, step: Step) -> bool:
    """As many SHIFTs as there are elements."""
    operand = step.operands[0]
    if operand.size.has_primary or not state.spec.binding_maps:
        return False
    count = below_shifts(operand)[1] + 1
    return all(operand.size.at(binding) == count for binding in state.spec.binding_maps)


# -- EXPAND ----------------------------------------------------------------------------------------------------------


def expand_of_reduction(state: State, step: Step) -> bool:
    """EXPAND of a reduction that no weight shares, or of a digit of one, where a REDUCE of the rest is in the space."""
    (operand,) = step.operands
    if not is_raw_reduction(state, operand):
        return False
    return operand.is_reduction or rest_of(operand) in reduce_sizes(state.spec)


def expand_of_view(state: State, step: Step) -> bool:
    """EXPAND of a 1-to-1 view, whose coordinates below can be dropped instead."""
    node = step.operands[0].node
    if node.primitive in ("SPLIT", "SHIFT", "STRIDE") or is_own(node.primitive):
        return True
    return node.primitive == "MERGE" and any(c.node == node for c in state.expanded)


def expand_above_shift(state: State, step: Step) -> bool:
    """EXPAND of the high digit of a SHIFT: the low one needs no carry."""
    (coordinate,) = step.operands
    return is_high_of_shift(coordinate) and coordinate not in state.sharing


def is_high_of_shift(coordinate: Coordinate) -> bool:
    """Whether it is the high digit that a MERGE makes of a SHIFT."""
    node = coordinate.node
    return node.primitive == "MERGE" and coordinate.index == 0 and node.operands[0].node.primitive == "SHIFT"


def expand_of_unfold(state: State, step: Step) -> bool:
    """EXPAND above UNFOLD, itself or below SHIFT and STRIDE."""
    return is_of_unfold(step.operands[0])


def is_of_unfold(coordinate: Coordinate) -> bool:
    """Whether it is an UNFOLD, or SHIFT or STRIDE of one."""
    while coordinate.node.primitive in ("SHIFT", "STRIDE"):
        coordinate = coordinate.node.operands[0]
    return coordinate.node.primitive == "UNFOLD"


def expand_of_shared(state: State, step: Step) -> bool:
    """EXPAND of a coordinate that a weight shares, itself or below 1-to-1 views."""
    return is_of_shared(state, step.operands[0])


def is_of_shared(state: State, coordinate: Coordinate) -> bool:
    """Whether a weight shares a coordinate, or what SHIFTs, STRIDEs and MERGEs, or a SPLIT, have made it of."""
    while coordinate not in state.sharing:
        primitive, operands = coordinate.node.primitive, coordinate.node.operands
        if primitive == "SPLIT":
            return any(c in state.sharing for c in operands)
        if primitive not in ("SHIFT", "MERGE", "STRIDE"):
            return False
        coordinate = operands[0]
    return True


# -- UNFOLD ----------------------------------------------------------------------------------------------------------


def unfold_of_two_reductions(state: State, step: Step) -> bool:
    """UNFOLD of two reductions, of which little is out of bounds."""
    if not all(c.is_reduction and c not in state.sharing for c in step.operands):
        return False
    return _share(state.spec, _out_of_bounds, *(c.size for c in step.operands)) <= TOLERANCE


def unfold_above_shift(state: State, step: Step) -> bool:
    """UNFOLD along a SHIFTed coordinate, where few positions wrap."""
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
    one, other = i + j - first // 2, i + k - second // 2
    end = one + k - second // 2
    differ = (((one >= 0) & (one < few)) != ((other >= 0) & (other < few))) & (end >= 0) & (end < few)
    return int(differ.sum()) / (main * first * second)


def window_and_offset(state: State, step: Step) -> bool:
    """UNFOLD above a SPLIT whose offset is as large as the window: they may swap, and the lesser one is the offset.

    Weights that share the SPLIT share its parts instead, where that leaves the order of weights as it is.
    """
    offset, window = _offset(step), step.operands[1]
    if offset is None:
        return False
    above, mine = sharers(state, step.operands[0]), sharers(state, window)
    other = sharers(state, offset) | above
    if above and not (mine <= other or above <= mine):
        return False
    return (len(mine), built(window)) < (len(other), built(offset))


def window_rejoins_blocks(state: State, step: Step) -> bool:
    """The same where the SPLIT that swapping makes puts two neighbouring digits together again.

    Looks deeper than the top of the state.
    """
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


def unfold_windows(state: State, step: Step) -> bool:
    """Two UNFOLDs along one coordinate: the window that is less comes first."""
    return _between_windows(state, step) <= TOLERANCE


def unfold_one_sided(state: State, step: Step) -> bool:
    """The same where the border makes no difference, as with windows of two: these reach beyond one end alone."""
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


def window_too_large(state: State, step: Step) -> bool:
    """A window with a primary variable, or as large as what it slides along."""
    main, window = step.operands[0].size, step.operands[1].size
    if window.has_primary:
        return True
    if not main.has_primary and main == window:
        return True
    return any(window.at(b) >= main.at(b) for b in state.spec.binding_maps)


def stride_main(state: State, step: Step) -> bool:
    """A STRIDEd coordinate that a window slides along."""
    return _operand_from(step, "STRIDE")


def stride_of_output(state: State, step: Step) -> bool:
    """STRIDE of an output coordinate."""
    return step.operands[0].is_output
