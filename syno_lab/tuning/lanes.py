"""The schedule rule ``channel-lanes``: a sum in vector registers, along an axis that some of its factors do not have.

A pGraph's weights have the output channels innermost (``W1[c, p, q, o]``) and its output has them far apart
(``Y[n, o, h, w]``). TVM's tiling (``SSRSRS``) vectorizes the output's innermost axis, and so gathers such a weight or
moves each sum to memory and back. Here a vector register holds as many channels of one pixel as fit, several registers
hold pixels of a row and more channels, and all of them stay in registers for the whole sum: the sums are collected in a
small tensor with the channels innermost, which is copied to the output. It is the register tile of hand-written
convolutions (Liu et al., *Optimizing CNN model inference on CPUs*, section 3.1).

Where a stage of a chain gives few channels, as Operator 1's first does, its vectors lie along the row of the output
instead: the data has it innermost, the weights do not have it, and the registers hold the channels. Both ways are tried
where both fit.

Which tiles keep a processor busy is known before any measurement: so many sums that the latency of multiplying and
adding is hidden, and no more than there are registers for. Only such tiles are proposed, a sketch for each. On
ResNet-34's layers the others took up to ten times as long, so a search of few trials that drew them found none that was
good in each stage of an operator. The terms are summed in the order in which the weights lie in memory.

Imports TVM: for tuning processes only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.ir import Array, Expr
from tvm.s_tir import SBlockRealize, Schedule, ScheduleError
from tvm.sym import detect_linear_equation
from tvm.target.codegen import llvm_get_vector_width

#: How many sums are in registers at once, at most: those with 512 bits are 32, of others a processor may have 16. A
#: factor's elements need registers besides.
_MOST_SUMS = {512: 16}
_MOST_SUMS_ELSE = 14
#: How many vectors lie side by side, at most: each is loaded, where the other factor's elements are mere operands.
_MOST_VECTORS = 4
#: How many tiles are proposed along one axis, and along each of two. Each stage of a chain multiplies the sketches.
_MOST_TILES = 3
_MOST_TILES_OF_TWO = 2
#: Vectors with fewer lanes do not pay for the copy.
_FEWEST_LANES = 4
#: The fields of TVM's expressions that hold expressions: of operations, casts, calls, selections and loads.
_CHILDREN = ("a", "b", "value", "args", "condition", "true_value", "false_value", "indices")


def vector_bits(target: Any) -> int:
    """The width of a target's vector registers in bits; 0 unless it is a processor target of LLVM."""
    return int(llvm_get_vector_width(target)) if target.kind.name == "llvm" else 0


@dataclass(frozen=True)
class _Tile:
    """Sums that stay in registers together; axes are numbers of the block's loops.

    Attributes:
        lane: the axis along which a vector's lanes lie.
        width: the lanes of a vector.
        summed: the axes that are summed over, slowest first.
        place: the place of ``lane`` among the output's axes; None where it is the last.
        across: the axis whose sums use the same loaded vectors.
        steps: how many of its positions are in the tile.
        vectors: how many vectors lie side by side along ``lane``.
        further: an axis that only makes the tile larger; None where it is large enough.
        further_steps: how many of its positions are in the tile.
    """

    lane: int
    width: int
    summed: tuple[int, ...]
    place: int | None
    across: int = 0
    steps: int = 1
    vectors: int = 1
    further: int | None = None
    further_steps: int = 1

    @property
    def sums(self) -> int:
        """How many vectors of sums there are."""
        return self.vectors * self.steps * self.further_steps


def channel_lanes(schedule: Schedule, block: Any, vector_bits: int, is_wide: bool = False) -> list[Schedule]:
    """The schedules with the block's sum in vector registers, one for each tile; the unchanged one where none fits.

    The rule fits a sum that no other rule has changed yet: one axis of the output moves the innermost index of some
    factors by one and no index of the others, its extent divides into vectors of ``vector_bits``, and another axis of
    the output is an index of none of the former, so that their loaded elements serve several sums. The unchanged
    schedule is an alternative if ``is_wide``, and where the vectors fill less than half of a register or the sums are
    few.
    """
    found = _sum(schedule.copy(), block)  # even reading loops adds steps to a trace
    if found is None:
        return [schedule]
    full = vector_bits // found.bits
    most = _MOST_SUMS.get(vector_bits, _MOST_SUMS_ELSE)
    changed, is_good = [], False
    for tile in _tiles(found, full, most):
        one = schedule.copy()
        try:
            _apply(one, block, tile)
        except ScheduleError:  # TVM's own conditions, such as other writers of the output
            continue
        changed.append(one)
        is_good = is_good or (2 * tile.width >= full and 2 * tile.sums >= most)
    return changed if is_good and not is_wide else [schedule, *changed]


def _apply(schedule: Schedule, block: Any, tile: _Tile) -> None:
    copy = schedule.cache_write(block, 0, "global")
    loops = dict(enumerate(schedule.get_loops(block)))
    summed = [loops.pop(n) for n in tile.summed]
    loops[tile.lane], vectors, lanes = schedule.split(loops[tile.lane], [None, tile.vectors, tile.width])
    loops[tile.across], steps = schedule.split(loops[tile.across], [None, tile.steps])
    inner = [steps, vectors]
    if tile.further is not None:
        loops[tile.further], more = schedule.split(loops[tile.further], [None, tile.further_steps])
        inner.insert(0, more)
    schedule.reorder(*loops.values(), *summed, *inner, lanes)
    schedule.reverse_compute_at(copy, list(loops.values())[-1])
    place, width = tile.place, tile.width
    if place is not None:

        def lanes_last(*axes: Any) -> list[Any]:
            return [one // width if n == place else one for n, one in enumerate(axes)] + [axes[place] % width]

        schedule.transform_layout(block, ("write", 0), lanes_last)
    schedule.vectorize(lanes)
    for loop in inner:
        schedule.unroll(loop)


# -- where it fits -----------------------------------------------------------------------------------------------------


def _tiles(found: _Sum, full: int, most: int) -> list[_Tile]:
    """The tiles with the most sums, of at most two axes along which vectors can lie: widest vectors first.

    ``full`` lanes are in a register; ``most`` sums are in a tile at most.
    """
    axes = []
    for lane in found.stored:
        factors = [] if lane is None else found.moved_in_unit_steps(lane)
        width = None if lane is None else _lanes(found.sizes[lane], full)
        if lane is None or width is None or not factors:
            continue
        tiles = _tiles_along(found, lane, width, factors, most)
        if tiles:
            axes.append((width, found.sizes[lane], tiles))
    axes.sort(key=lambda one: one[:2], reverse=True)
    wide = [tiles for width, _, tiles in axes if 2 * width >= full] or [tiles for _, _, tiles in axes[:1]]
    each = _MOST_TILES if len(wide) == 1 else _MOST_TILES_OF_TWO
    return [tile for tiles in wide[:2] for tile in tiles[:each]]


def _tiles_along(found: _Sum, lane: int, width: int, factors: list[list[Any]], most: int) -> list[_Tile]:
    """The tiles with vectors along ``lane``: the one with the most sums, then those with more than half of them."""
    plain = _Tile(lane, width, found.in_memory_order(factors), found.place(lane))
    others = [n for n in reversed(found.stored) if n is not None and n != lane and found.sizes[n] > 1]
    kept: list[_Tile] = []
    for axis in others:
        if any(_moves(one, found.variables[axis]) for one in factors):
            continue
        tiles = [
            replace(plain, across=axis, steps=steps, vectors=vectors)
            for vectors in _divisors(found.sizes[lane] // width, _MOST_VECTORS)
            for steps in _divisors(found.sizes[axis], most // vectors)
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
    best = [(max(_divisors(found.sizes[n], rest)), n) for n in others if n != kept[0].across]
    steps, axis = max(best, key=lambda one: one[0], default=(1, lane))
    return kept if steps == 1 else [replace(kept[0], further=axis, further_steps=steps), kept[0]]


def _divisors(number: int, most: int) -> list[int]:
    return [one for one in range(1, min(number, most) + 1) if number % one == 0]


def _lanes(extent: int, full: int) -> int | None:
    """The lanes of vectors that hold an axis: a register, half or a quarter of one; None where none of them fits."""
    return next((one for one in (full, full // 2, full // 4) if one >= _FEWEST_LANES and extent % one == 0), None)


@dataclass(frozen=True)
class _Sum:
    """A block that sums products of tensors' elements into one tensor.

    Attributes:
        variables: its iterators' variables; other fields name an iterator by its index in this list.
        sizes: the iterators' extents.
        summed: the iterators that are summed over.
        stored: for each axis of the output the iterator that is its index; None where the index is anything else.
        factors: for each tensor that is read its indices, expressions over the variables.
        bits: the bits of one element of the output.
    """

    variables: list[Any]
    sizes: list[int]
    summed: tuple[int, ...]
    stored: list[int | None]
    factors: list[list[Any]]
    bits: int

    def moved_in_unit_steps(self, axis: int) -> list[list[Any]]:
        """The factors whose innermost index an axis moves by one; empty if it moves a factor in any other way.

        Also empty if it moves all factors: then the lanes share no factor.
        """
        variable = self.variables[axis]
        found = [one for one in self.factors if _moves(one, variable)]
        is_unit = [_is_unit_step(one[-1], variable) and not _moves(one[:-1], variable) for one in found]
        return found if all(is_unit) and len(found) < len(self.factors) else []

    def place(self, axis: int) -> int | None:
        """The place of an axis among the output's; None if it is the last."""
        found = self.stored.index(axis)
        return None if found == len(self.stored) - 1 else found

    def in_memory_order(self, factors: list[list[Any]]) -> tuple[int, ...]:
        """The axes that are summed over, in the order in which the first of ``factors`` has them as indices."""

        def place(n: int) -> int:
            return next((k for k, one in enumerate(factors[0]) if _moves([one], self.variables[n])), -1)

        return tuple(sorted(self.summed, key=place))


def _sum(schedule: Schedule, block: Any) -> _Sum | None:
    """The block as a sum with constant extents that no rule has changed yet; None for any other block."""
    found = schedule.get(block)
    if not isinstance(found.init, tirx.BufferStore) or not _is_untouched(schedule, found, schedule.get_loops(block)):
        return None
    extents = [one.dom.extent for one in found.iter_vars]
    if not all(isinstance(one, tirx.IntImm) for one in extents) or len(found.writes) != 1:
        return None
    variables = [one.var for one in found.iter_vars]
    spatial = [n for n, one in enumerate(found.iter_vars) if one.iter_type == tirx.IterVar.DataPar]
    summed = tuple(n for n, one in enumerate(found.iter_vars) if one.iter_type == tirx.IterVar.CommReduce)
    stored = [_number(one, variables) for one in _indices(found.writes[0])]
    if len(spatial) + len(summed) != len(variables) or sorted(n for n in stored if n is not None) != spatial:
        return None
    factors = [_indices(one) for one in found.reads]
    return _Sum(variables, [int(one) for one in extents], summed, stored, factors, _bits(found.init.buffer.dtype))


def _is_untouched(schedule: Schedule, block: Any, loops: list[Any]) -> bool:
    """Whether the block has one loop for each of its iterators, in their order, and nothing else inside."""
    if not loops or len(loops) != len(block.iter_vars):
        return False
    nodes = [schedule.get(loop) for loop in loops]
    realize = nodes[-1].body
    return (
        isinstance(realize, SBlockRealize)
        and all(one.kind == tirx.ForKind.SERIAL and not one.annotations for one in nodes)
        and all(value.same_as(loop.loop_var) for value, loop in zip(realize.iter_values, nodes, strict=True))
        and isinstance(realize.predicate, tirx.IntImm)
        and bool(realize.predicate)
    )


def _indices(region: Any) -> list[Any]:
    """The indices with which a block reads or writes a tensor: an expression for each axis."""
    return [one.min for one in region.region]


def _moves(indices: Iterable[Any], variable: Any) -> bool:
    return any(node.same_as(variable) for index in indices for node in _nodes(index))


def _nodes(expression: Any) -> Iterator[Any]:
    """An expression and all its subexpressions."""
    yield expression
    for name in _CHILDREN:
        child = getattr(expression, name, None)
        if isinstance(child, Expr):
            yield from _nodes(child)
        elif isinstance(child, Array):
            for one in child:
                yield from _nodes(one)


def _is_unit_step(index: Any, variable: Any) -> bool:
    """Whether an index grows by one with a variable."""
    found = detect_linear_equation(index, [variable])
    return len(found) > 0 and isinstance(found[0], tirx.IntImm) and int(found[0]) == 1


def _number(expression: Any, variables: list[Any]) -> int | None:
    """The index of the variable that an expression is, None for any other expression."""
    return next((n for n, one in enumerate(variables) if one.same_as(expression)), None)


def _bits(dtype: Any) -> int:
    return int("".join(letter for letter in str(dtype) if letter.isdigit()))
