"""The schedule rule ``channel-lanes``: vectorize a sum along an axis that is no index of some of its factors.

The output channels ``o`` are the innermost axis of a pGraph's weights (``W1[c, p, q, o]``), but not of its output
(``Y[n, o, h, w]``). TVM's tiling (``SSRSRS``) vectorizes the output's innermost axis. So TVM gathers the weight, or
moves each sum to memory and back. With this rule a vector register has as many channels of a pixel as fit. Several
registers together have several pixels of a row and more channels. The sums stay in registers until they are complete.
The sums are collected in a small tensor with the channels innermost, which is copied to the output. Hand-written
convolutions use this register tile (Liu et al., *Optimizing CNN model inference on CPUs*, section 3.1).

A stage of a chain may have few output channels, such as Operator 1's first stage. The vectors of that stage lie along a
row of the output, the innermost axis of the data. Each register then has its own channels. Several rows share a
register if they are shorter than it and adjacent in memory. If both directions are possible, the rule tries both.

The tiles that keep a processor busy are known before any measurement: enough sums to hide the latency of multiplying
and adding, and no more than fit in the registers. Each of these tiles is proposed in its own sketch. On ResNet-34's
layers other tiles were up to ten times slower. With few trials, a search over other tiles found no candidate with good
tiles in all stages of an operator. The terms of a sum are added in the order of the weights in memory.

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

#: The largest number of sums in registers. A processor has 32 registers of 512 bits, or often 16 of other widths. A
#: factor's elements need registers too.
_MOST_SUMS = {512: 16}
_MOST_SUMS_ELSE = 14
#: TVM allocates a tensor of at least this number of bytes in its workspace, not on the stack. For sums with few terms
#: the workspace costs time. One measurement on an Intel Xeon with vectors of 512 bits: 16.7 us instead of 14.4 for
#: Operator 2 on 16 x 32 x 32 (24 terms), no difference for conv2d (144 terms). Hence ``_FEW_TERMS``.
_STACK_BYTES = 1024
_FEW_TERMS = 128
#: The largest number of adjacent vectors. Each vector is loaded; the other factor's elements are mere operands.
_MOST_VECTORS = 4
#: The most tiles along a single axis, and along each of two axes. Each stage multiplies the number of sketches.
_MOST_TILES = 3
_MOST_TILES_OF_TWO = 2
#: The least number of lanes with which vectors save more time than the copy to the output takes.
_FEWEST_LANES = 4


def vector_bits(target: Target) -> int:
    """The width of a target's vector registers in bits; 0 unless it is a processor target of LLVM."""
    return int(llvm_get_vector_width(target)) if target.kind.name == "llvm" else 0


@dataclass(frozen=True)
class _Tile:
    """A tile: the sums that are in registers at the same time. An axis is the index of a loop of the block.

    Attributes:
        lane: the axis along which a vector's lanes lie.
        width: the number of lanes of a vector.
        rows: the number of rows along ``lane`` in a vector; above 1 if a row is shorter than a register.
        row: the axis that numbers the rows, before ``lane`` in the output; None for one row.
        summed: the axes of the sum, slowest first.
        place: the position of ``lane`` among the output's axes; None for the last position.
        across: the axis whose sums use the same loaded vectors.
        across_place: the position of ``across`` among the output's axes.
        steps: the number of indices along ``across`` in the tile.
        vectors: the number of adjacent vectors along ``lane``, or along ``row`` if vectors have several rows.
        further: an axis that only makes the tile larger; None if the tile is large enough.
        further_steps: the number of indices along ``further`` in the tile.
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
        """The number of vectors in the tile."""
        return self.vectors * self.steps * self.further_steps


def channel_lanes(schedule: Schedule, block: SBlockRV, vector_bits: int, is_wide: bool = False) -> list[Schedule]:
    """Return a schedule for each tile, with the block's sum in vector registers; if no tile fits, the unchanged one.

    The rule fits a sum that no other rule has changed. Along an axis of the output, the innermost index of some factors
    must grow by one, and the other factors must not change. The axis must divide into vectors of ``vector_bits``.
    The factors whose index grows must be independent of some other axis of the output, so that several sums use their
    loaded elements. The unchanged schedule is returned too if ``is_wide``, if the vectors fill less than half of a
    register, or if the block has few sums.
    """
    look = schedule.copy()  # a copy, because reading loops adds steps to a trace
    total = read_sum(look, block)
    if total is None:
        return [schedule]
    after = elementwise_readers(look, block)
    full = vector_bits // total.bits
    most = _most_sums(total, vector_bits)
    changed, is_good = [], False
    for tile in _tiles(total, full, most):
        tiled = _tiled(schedule, block, tile, after) or _tiled(schedule, block, tile, [])
        if tiled is None:
            continue
        changed.append(tiled)
        is_good = is_good or (2 * tile.width >= full and 2 * tile.sums >= most)
    return changed if is_good and not is_wide else [schedule, *changed]


def has_lanes(total: Sum, vector_bits: int) -> bool:
    """Return whether any tile is possible for a sum."""
    return bool(_tiles(total, vector_bits // total.bits, _most_sums(total, vector_bits)))


def _tiled(schedule: Schedule, block: SBlockRV, tile: _Tile, after: list[str]) -> Schedule | None:
    """Return the schedule with a tile; None if TVM refuses it, for example because another block writes the output."""
    changed = schedule.copy()
    try:
        _apply(changed, block, tile, after)
    except ScheduleError:
        return None
    return changed


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
    position, first, width = tile.place, tile.across_place, tile.width
    if position is not None:

        def lanes_last(*axes: Var) -> list[Expr]:
            # With ``across`` next to the lanes, TVM's postprocessor would join the two axes to a long vector, and
            # gather its elements one by one.
            others = [axis // width if n == position else axis for n, axis in enumerate(axes) if n != first]
            return [axes[first], *others, axes[position] % width]

        schedule.transform_layout(block, ("write", 0), lanes_last)
    schedule.vectorize(schedule.fuse(*lanes) if tile.row is not None else lanes[0])
    for loop in inner:
        schedule.unroll(loop)


def _most_sums(total: Sum, vector_bits: int) -> int:
    most = _MOST_SUMS.get(vector_bits, _MOST_SUMS_ELSE)
    on_stack = (_STACK_BYTES - 1) // (vector_bits // 8) if vector_bits else most
    return min(most, on_stack) if math.prod(total.sizes[n] for n in total.summed) < _FEW_TERMS else most


def _tiles(total: Sum, full: int, most: int) -> list[_Tile]:
    """Return the tiles with the most sums for up to two axes that can be vectorized, widest vectors first.

    A register has ``full`` lanes. A tile has at most ``most`` sums.
    """
    axes = []
    for lane in total.stored:
        factors = [] if lane is None else total.moved_in_unit_steps(lane)
        width = None if lane is None else _lanes(total.sizes[lane], full)
        if lane is None or width is None or not factors:
            continue
        plain = _Tile(lane, width, total.in_memory_order(factors), total.place(lane))
        row, rows = total.row_axis(lane, factors), full // total.sizes[lane]
        if width == total.sizes[lane] and rows > 1 and row is not None and total.sizes[row] % rows == 0:
            plain = replace(plain, width=width * rows, rows=rows, row=row)
        tiles = _tiles_along(total, plain, factors, most)
        if tiles:
            axes.append((plain.width, total.sizes[lane], tiles))
    axes.sort(key=lambda entry: entry[:2], reverse=True)
    wide = [tiles for width, _, tiles in axes if 2 * width >= full] or [tiles for _, _, tiles in axes[:1]]
    most_tiles = _MOST_TILES if len(wide) == 1 else _MOST_TILES_OF_TWO
    return [tile for tiles in wide[:2] for tile in tiles[:most_tiles]]


def _tiles_along(total: Sum, plain: _Tile, factors: list[list[Expr]], most: int) -> list[_Tile]:
    """Return tiles with the vectors of ``plain`` and more than half of the largest tile's sums, largest first."""
    lanes = (plain.lane, plain.row)
    vectors_most = total.sizes[plain.lane] // plain.width if plain.row is None else total.sizes[plain.row] // plain.rows
    axes = [n for n in reversed(total.stored) if n is not None and n not in lanes and total.sizes[n] > 1]
    best_tiles: list[_Tile] = []
    for axis in axes:
        if any(moves(factor, total.variables[axis]) for factor in factors):
            continue
        tiles = [
            replace(plain, across=axis, across_place=total.stored.index(axis), steps=steps, vectors=vectors)
            for vectors in divisors(vectors_most, _MOST_VECTORS)
            for steps in divisors(total.sizes[axis], most // vectors)
            if steps > 1
        ]
        tiles.sort(key=lambda tile: (-tile.sums, -tile.steps))
        good = [tile for tile in tiles if 2 * tile.sums > tiles[0].sums]
        # Prefer the axis that lies closest in memory, unless another axis has more than twice as many sums.
        if good and (not best_tiles or good[0].sums > 2 * best_tiles[0].sums):
            best_tiles = good
    if not best_tiles or 2 * best_tiles[0].sums >= most:
        return best_tiles
    # A few sums do not hide the latency, so sums along another axis are added to the tile, with their own loads.
    room = most // best_tiles[0].sums
    best = [(max(divisors(total.sizes[n], room)), n) for n in axes if n != best_tiles[0].across]
    steps, axis = max(best, key=lambda entry: entry[0], default=(1, plain.lane))
    return best_tiles if steps == 1 else [replace(best_tiles[0], further=axis, further_steps=steps), best_tiles[0]]


def divisors(number: int, most: int) -> list[int]:
    """Return the divisors of a number that are at most ``most``."""
    return [divisor for divisor in range(1, min(number, most) + 1) if number % divisor == 0]


def _lanes(extent: int, full: int) -> int | None:
    """Return the lanes of vectors along an axis: a full, a half or a quarter register; None if no width fits."""
    return next((n for n in (full, full // 2, full // 4) if n >= _FEWEST_LANES and extent % n == 0), None)
