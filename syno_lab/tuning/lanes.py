"""The schedule rule ``channel-lanes``: a sum that one factor's innermost axis and a far axis of the output share.

A pGraph's weights have the output channels innermost (``W1[c, p, q, o]``) and its output has them far apart
(``Y[n, o, h, w]``). TVM's tiling (``SSRSRS``) vectorizes the output's innermost axis, and so gathers such a weight or
moves each sum to memory and back. Here a vector register holds as many channels of one pixel as fit, several registers
hold pixels of a row and more channels, and all of them stay in registers for the whole sum: the sums are collected in a
small tensor with the channels innermost, which is copied to the output. It is the register tile of hand-written
convolutions (Liu et al., *Optimizing CNN model inference on CPUs*, section 3.1).

Imports TVM: for tuning processes only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Array, Expr
from tvm.s_tir import SBlockRealize, Schedule, ScheduleError
from tvm.target.codegen import llvm_get_vector_width

#: The most pixels, registers of channels, and terms summed between two passes over the window, in a tile.
_MOST_PIXELS = 14
_MOST_REGISTERS = 4
_MOST_SUMMED = 64
#: Vectors with fewer lanes do not pay for the copy.
_FEWEST_LANES = 4
#: The fields of TVM's expressions that hold expressions: of operations, casts, calls, selections and loads.
_CHILDREN = ("a", "b", "value", "args", "condition", "true_value", "false_value", "indices")


def vector_bits(target: Any) -> int:
    """The width of a target's vector registers in bits; 0 unless it is a processor target of LLVM."""
    return int(llvm_get_vector_width(target)) if target.kind.name == "llvm" else 0


@dataclass(frozen=True)
class _Fit:
    """Where the rule applies in a block: the numbers of its loops, and the place of the channels in the output."""

    channels: int
    pixels: int
    summed: tuple[int, ...]
    place: int
    lanes: int


def channel_lanes(schedule: Schedule, block: Any, vector_bits: int) -> list[Schedule]:
    """The unchanged schedule and, where the rule fits, one with the block's sum in vector registers of channels.

    The rule fits a sum that no other rule has changed yet: one axis of the output (not the last) is the innermost index
    of some factors and no index of the others, its extent divides into vectors of ``vector_bits``, and another axis of
    the output is an index of none of those factors, so that their loaded elements serve several pixels.
    """
    changed = schedule.copy()  # even reading loops adds steps to a trace
    fit = _fit(changed, block, vector_bits)
    if fit is None:
        return [schedule]
    try:
        _apply(changed, block, fit)
    except ScheduleError:  # TVM's own conditions, such as other writers of the output
        return [schedule]
    return [schedule, changed]


def _apply(schedule: Schedule, block: Any, fit: _Fit) -> None:
    copy = schedule.cache_write(block, 0, "global")
    loops = schedule.get_loops(block)
    apart, lanes = schedule.split(loops[fit.channels], [None, fit.lanes])
    blocks, registers = schedule.split(apart, schedule.sample_perfect_tile(apart, 2, _MOST_REGISTERS))
    pixels, pixel = schedule.split(loops[fit.pixels], schedule.sample_perfect_tile(loops[fit.pixels], 2, _MOST_PIXELS))
    first, *others = (loops[number] for number in fit.summed)
    outer, inner = schedule.split(first, schedule.sample_perfect_tile(first, 2, _MOST_SUMMED))
    taken = {fit.channels, fit.pixels, *fit.summed}
    around = [
        blocks if n == fit.channels else one for n, one in enumerate(loops) if n == fit.channels or n not in taken
    ]
    schedule.reorder(*around, pixels, outer, *others, inner, pixel, registers, lanes)
    schedule.reverse_compute_at(copy, pixels)
    place, width = fit.place, fit.lanes

    def channels_last(*axes: Any) -> list[Any]:
        return [one // width if n == place else one for n, one in enumerate(axes)] + [axes[place] % width]

    schedule.transform_layout(block, ("write", 0), channels_last)
    schedule.vectorize(lanes)
    schedule.unroll(registers)
    schedule.unroll(pixel)


# -- where it fits -----------------------------------------------------------------------------------------------------


def _fit(schedule: Schedule, block: Any, vector_bits: int) -> _Fit | None:
    """Where the rule applies in a block; of several axes that could be the channels, the longest. None: nowhere."""
    found = _sum(schedule, block)
    if found is None:
        return None
    by_size = sorted((n for n in found.stored[:-1] if n is not None), key=lambda n: -found.sizes[n])
    for channels in by_size:
        lanes = _lanes(found.sizes[channels], vector_bits // found.bits)
        weights = found.weights(channels)
        pixels = found.pixels(channels, weights)
        if lanes is not None and weights and pixels is not None:
            return _Fit(channels, pixels, found.summed, found.stored.index(channels), lanes)
    return None


def _lanes(channels: int, width: int) -> int | None:
    """The lanes of the vectors that hold the channels: a whole register or half of one; None where neither fits."""
    return next((one for one in (width, width // 2) if one >= _FEWEST_LANES and channels % one == 0), None)


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

    def weights(self, channels: int) -> list[list[Any]]:
        """The factors with the channels as innermost index; empty if a factor has the channels in another index.

        Also empty if all factors have the channels: then the lanes share no factor.
        """
        variable = self.variables[channels]
        found = [one for one in self.factors if _moves(one, variable)]
        innermost = [_number(one[-1], self.variables) == channels and not _moves(one[:-1], variable) for one in found]
        return found if all(innermost) and len(found) < len(self.factors) else []

    def pixels(self, channels: int, weights: list[list[Any]]) -> int | None:
        """The last axis of the output, longer than 1, that is not an index of the weights; None where there is none."""
        for n in reversed(self.stored):
            if n is None or n == channels or self.sizes[n] <= 1:
                continue
            if not any(_moves(one, self.variables[n]) for one in weights):
                return n
        return None


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


def _number(expression: Any, variables: list[Any]) -> int | None:
    """The index of the variable that an expression is, None for any other expression."""
    return next((n for n, one in enumerate(variables) if one.same_as(expression)), None)


def _bits(dtype: Any) -> int:
    return int("".join(letter for letter in str(dtype) if letter.isdigit()))
