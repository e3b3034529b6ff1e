"""The schedule rule ``channel-lanes``: a sum in vector registers, along an axis that some of its factors do not have.

A pGraph's weights have the output channels innermost (``W1[c, p, q, o]``) and its output has them far apart
(``Y[n, o, h, w]``). TVM's tiling (``SSRSRS``) vectorizes the output's innermost axis, and so gathers such a weight or
moves each sum to memory and back. Here a vector register holds as many channels of one pixel as fit, several registers
hold pixels of a row and more channels, and all of them stay in registers for the whole sum: the sums are collected in a
small tensor with the channels innermost, which is copied to the output. It is the register tile of hand-written
convolutions (Liu et al., *Optimizing CNN model inference on CPUs*, section 3.1).

Where a stage of a chain gives few channels, as Operator 1's first does, its vectors lie along the row of the output
instead: the data has it innermost, the weights do not have it, and the registers hold the channels. Rows that are
shorter than a register and follow each other in memory share one. Both ways are tried where both fit.

Which tiles keep a processor busy is known before any measurement: so many sums that the latency of multiplying and
adding is hidden, and no more than there are registers for. Only such tiles are proposed, a sketch for each. On
ResNet-34's layers the others took up to ten times as long, so a search of few trials that drew them found none that was
good in each stage of an operator. The terms are summed in the order in which the weights lie in memory.

Imports TVM: for tuning processes only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tvm.ir import Expr
from tvm.s_tir import Schedule, ScheduleError
from tvm.s_tir.schedule import SBlockRV
from tvm.target import Target
from tvm.target.codegen import llvm_get_vector_width
from tvm.tirx import Var

from syno_lab.tuning.sums import Sum, elementwise_readers, moves, own_loops, read_sum

#: How many sums are in registers at once, at most: those with 512 bits are 32, of others a processor may have 16. A
#: factor's elements need registers besides.
_MOST_SUMS = {512: 16}
_MOST_SUMS_ELSE = 14
#: TVM takes a tensor of so many bytes, or of more, from its workspace, not from the stack. Where sums have few terms
#: that costs time: 16.7 us instead of 14.4 for Operator 2 on 16 x 32 x 32 (24 terms), none for conv2d (144 terms),
#: measured once on an Intel Xeon with vectors of 512 bits. How many terms are few was chosen after that.
_STACK_BYTES = 1024
_FEW_TERMS = 128
#: How many vectors lie side by side, at most: each is loaded, where the other factor's elements are mere operands.
_MOST_VECTORS = 4
#: How many tiles are proposed along one axis, and along each of two. Each stage of a chain multiplies the sketches.
_MOST_TILES = 3
_MOST_TILES_OF_TWO = 2
#: Vectors with fewer lanes do not pay for the copy.
_FEWEST_LANES = 4


def vector_bits(target: Target) -> int:
    """The width of a target's vector registers in bits; 0 unless it is a processor target of LLVM."""
    return int(llvm_get_vector_width(target)) if target.kind.name == "llvm" else 0


@dataclass(frozen=True)
class _Tile:
    """Sums that stay in registers together; axes are numbers of the block's loops.

    Attributes:
        lane: the axis along which a vector's lanes lie.
        width: the lanes of a vector.
        rows: how many whole rows along ``lane`` a vector holds; more than one where a row is shorter than a register.
        row: the axis of the rows, the one before ``lane`` in the output; None for one row.
        summed: the axes that are summed over, slowest first.
        place: the place of ``lane`` among the output's axes; None where it is the last.
        across: the axis whose sums use the same loaded vectors.
        across_place: its place among the output's axes.
        steps: how many of its positions are in the tile.
        vectors: how many vectors lie side by side along ``lane``, or along ``row`` where they hold whole rows.
        further: an axis that only makes the tile larger; None where it is large enough.
        further_steps: how many of its positions are in the tile.
    """

    lane: int
    width: int
    summed: tuple[int, ...]
    place: int | None
    rows: int = 1
    row: int | None = None
    across: int = 0
    across_place: int = 0
    steps: int = 1
    vectors: int = 1
    further: int | None = None
    further_steps: int = 1

    @property
    def sums(self) -> int:
        """How many vectors of sums there are."""
        return self.vectors * self.steps * self.further_steps


def channel_lanes(schedule: Schedule, block: SBlockRV, vector_bits: int, is_wide: bool = False) -> list[Schedule]:
    """The schedules with the block's sum in vector registers, one for each tile; the unchanged one where none fits.

    The rule fits a sum that no other rule has changed yet: one axis of the output moves the innermost index of some
    factors by one and no index of the others, its extent divides into vectors of ``vector_bits``, and another axis of
    the output is an index of none of the former, so that their loaded elements serve several sums. The unchanged
    schedule is an alternative if ``is_wide``, and where the vectors fill less than half of a register or the sums are
    few.
    """
    look = schedule.copy()  # even reading loops adds steps to a trace
    found = read_sum(look, block)
    if found is None:
        return [schedule]
    after = elementwise_readers(look, block)
    full = vector_bits // found.bits
    most = _most_sums(found, vector_bits)
    changed, is_good = [], False
    for tile in _tiles(found, full, most):
        one = _tiled(schedule, block, tile, after) or _tiled(schedule, block, tile, [])
        if one is None:
            continue
        changed.append(one)
        is_good = is_good or (2 * tile.width >= full and 2 * tile.sums >= most)
    return changed if is_good and not is_wide else [schedule, *changed]


def has_lanes(found: Sum, vector_bits: int) -> bool:
    """Whether a tile fits a sum."""
    return bool(_tiles(found, vector_bits // found.bits, _most_sums(found, vector_bits)))


def _tiled(schedule: Schedule, block: SBlockRV, tile: _Tile, after: list[str]) -> Schedule | None:
    """The schedule with a tile; None where TVM has a condition of its own against it, such as other writers."""
    one = schedule.copy()
    try:
        _apply(one, block, tile, after)
    except ScheduleError:
        return None
    return one


def _apply(schedule: Schedule, block: SBlockRV, tile: _Tile, after: list[str]) -> None:
    for name in after[:-1]:
        schedule.compute_inline(schedule.get_sblock(name))
    copy = schedule.cache_write(block, 0, "global")
    for name in after[-1:]:
        schedule.reverse_compute_inline(schedule.get_sblock(name))
    loops = dict(enumerate(own_loops(schedule, block)))
    summed = [loops.pop(n) for n in tile.summed]
    if tile.row is None:
        loops[tile.lane], vectors, *lanes = schedule.split(loops[tile.lane], [None, tile.vectors, tile.width])
    else:
        loops[tile.row], vectors, rows = schedule.split(loops[tile.row], [None, tile.vectors, tile.rows])
        lanes = [rows, loops.pop(tile.lane)]
    loops[tile.across], steps = schedule.split(loops[tile.across], [None, tile.steps])
    inner = [steps, vectors]
    if tile.further is not None:
        loops[tile.further], more = schedule.split(loops[tile.further], [None, tile.further_steps])
        inner.insert(0, more)
    schedule.reorder(*loops.values(), *summed, *inner, *lanes)
    schedule.reverse_compute_at(copy, list(loops.values())[-1])
    place, first, width = tile.place, tile.across_place, tile.width
    if place is not None:

        def lanes_last(*axes: Var) -> list[Expr]:
            # With ``across`` next to the lanes, TVM's postprocessor would make one long vector of both, whose elements
            # it gathers one by one.
            rest = [one // width if n == place else one for n, one in enumerate(axes) if n != first]
            return [axes[first], *rest, axes[place] % width]

        schedule.transform_layout(block, ("write", 0), lanes_last)
    schedule.vectorize(schedule.fuse(*lanes) if tile.row is not None else lanes[0])
    for loop in inner:
        schedule.unroll(loop)


def _most_sums(found: Sum, vector_bits: int) -> int:
    most = _MOST_SUMS.get(vector_bits, _MOST_SUMS_ELSE)
    on_stack = (_STACK_BYTES - 1) // (vector_bits // 8) if vector_bits else most
    return min(most, on_stack) if math.prod(found.sizes[n] for n in found.summed) < _FEW_TERMS else most


def _tiles(found: Sum, full: int, most: int) -> list[_Tile]:
    """The tiles with the most sums, of at most two axes along which vectors can lie: widest vectors first.

    ``full`` lanes are in a register; ``most`` sums are in a tile at most.
    """
    axes = []
    for lane in found.stored:
        factors = [] if lane is None else found.moved_in_unit_steps(lane)
        width = None if lane is None else _lanes(found.sizes[lane], full)
        if lane is None or width is None or not factors:
            continue
        plain = _Tile(lane, width, found.in_memory_order(factors), found.place(lane))
        row, rows = found.row_axis(lane, factors), full // found.sizes[lane]
        if width == found.sizes[lane] and rows > 1 and row is not None and found.sizes[row] % rows == 0:
            plain = replace(plain, width=width * rows, rows=rows, row=row)
        tiles = _tiles_along(found, plain, factors, most)
        if tiles:
            axes.append((plain.width, found.sizes[lane], tiles))
    axes.sort(key=lambda one: one[:2], reverse=True)
    wide = [tiles for width, _, tiles in axes if 2 * width >= full] or [tiles for _, _, tiles in axes[:1]]
    each = _MOST_TILES if len(wide) == 1 else _MOST_TILES_OF_TWO
    return [tile for tiles in wide[:2] for tile in tiles[:each]]


def _tiles_along(found: Sum, plain: _Tile, factors: list[list[Expr]], most: int) -> list[_Tile]:
    """The tiles with the vectors of ``plain``: the one with the most sums, then those with more than half of them."""
    lanes = (plain.lane, plain.row)
    held = found.sizes[plain.lane] // plain.width if plain.row is None else found.sizes[plain.row] // plain.rows
    others = [n for n in reversed(found.stored) if n is not None and n not in lanes and found.sizes[n] > 1]
    kept: list[_Tile] = []
    for axis in others:
        if any(moves(one, found.variables[axis]) for one in factors):
            continue
        tiles = [
            replace(plain, across=axis, across_place=found.stored.index(axis), steps=steps, vectors=vectors)
            for vectors in divisors(held, _MOST_VECTORS)
            for steps in divisors(found.sizes[axis], most // vectors)
            if steps > 1
        ]
        tiles.sort(key=lambda one: (-one.sums, -one.steps))
        good = [one for one in tiles if 2 * one.sums > tiles[0].sums]
        # The axis that lies closest in memory, unless another gives more than twice as many sums.
        if good and (not kept or good[0].sums > 2 * kept[0].sums):
            kept = good
    if not kept or 2 * kept[0].sums >= most:
        return kept
    # The latency of a few sums is not hidden: those of another axis are computed with them, with loads of their own.
    rest = most // kept[0].sums
    best = [(max(divisors(found.sizes[n], rest)), n) for n in others if n != kept[0].across]
    steps, axis = max(best, key=lambda one: one[0], default=(1, plain.lane))
    return kept if steps == 1 else [replace(kept[0], further=axis, further_steps=steps), kept[0]]


def divisors(number: int, most: int) -> list[int]:
    """The divisors of a number up to ``most``."""
    return [one for one in range(1, min(number, most) + 1) if number % one == 0]


def _lanes(extent: int, full: int) -> int | None:
    """The lanes of vectors that hold an axis: a register, half or a quarter of one; None where none of them fits."""
    return next((one for one in (full, full // 2, full // 4) if one >= _FEWEST_LANES and extent % one == 0), None)
