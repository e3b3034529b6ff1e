"""The schedule rule ``channel-lanes``: a sum that one factor's innermost axis and a far axis of the output share.

A pGraph's weights have the output channels innermost (``W1[c, p, q, o]``) and its output has them far apart
(``Y[n, o, h, w]``). TVM's tiling (``SSRSRS``) vectorizes what is innermost in the output, and so gathers such a weight
or sends each sum to memory and back. Here a vector register holds as many channels of one pixel as fit, several
registers hold pixels of a row and more channels, and all of them stay where they are for the whole sum: the sums are
collected in a small tensor with the channels innermost, which is copied to the output. It is the register tile of
hand-written convolutions (Liu et al., *Optimizing CNN model inference on CPUs*, section 3.1).

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

#: Of the pixels, of the registers of channels, and of what is summed between two passes over the window.
_MOST_PIXELS = 14
_MOST_REGISTERS = 4
_MOST_SUMMED = 64
#: A narrower vector than this is not worth the copy.
_FEWEST_LANES = 4
#: The fields of TVM's expressions that hold expressions: of operations, casts, calls, selections and loads.
_CHILDREN = ("a", "b", "value", "args", "condition", "true_value", "false_value", "indices")


def vector_bits(target: Any) -> int:
    """The width of a target's vector registers; 0 where it is no processor of LLVM's."""
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
    """The schedule as it is, and beside it one with the block's sum in vector registers of channels, where that fits.

    It fits a sum that no rule has changed yet: one axis of the output (not the last) is the innermost index of some
    factors and no index of the others, its extent divides into vectors of ``vector_bits``, and another axis of the
    output moves none of those factors, so that what is loaded of them serves several pixels.
    """
    changed = schedule.copy()  # looking at loops leaves steps in a trace, too
    fit = _fit(changed, block, vector_bits)
    if fit is None:
        return [schedule]
    try:
        _apply(changed, block, fit)
    except ScheduleError:  # TVM's own conditions, such as who else writes the output
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
    found = schedule.get(block)
    loops = schedule.get_loops(block)
    if not isinstance(found.init, tirx.BufferStore) or not _is_untouched(schedule, found, loops):
        return None
    variables = [one.var for one in found.iter_vars]
    extents = [one.dom.extent for one in found.iter_vars]
    if not all(isinstance(one, tirx.IntImm) for one in extents):
        return None
    sizes = [int(one) for one in extents]
    spatial = [n for n, one in enumerate(found.iter_vars) if one.iter_type == tirx.IterVar.DataPar]
    summed = tuple(n for n, one in enumerate(found.iter_vars) if one.iter_type == tirx.IterVar.CommReduce)
    if len(found.writes) != 1:
        return None
    stored = [_number(one, variables) for one in _indices(found.writes[0])]
    if len(spatial) + len(summed) != len(variables) or sorted(n for n in stored if n is not None) != spatial:
        return None
    factors = [_indices(one) for one in found.reads]
    width = vector_bits // _bits(found.init.buffer.dtype)
    for channels in sorted(stored[:-1], key=lambda n: -sizes[n] if n is not None else 0):
        if channels is None:
            continue
        lanes = next((one for one in (width, width // 2) if one >= _FEWEST_LANES and sizes[channels] % one == 0), None)
        moving = [one for one in factors if _moves(one, variables[channels])]
        if lanes is None or not moving or len(moving) == len(factors):
            continue
        is_innermost = all(
            _number(one[-1], variables) == channels and not _moves(one[:-1], variables[channels]) for one in moving
        )
        pixels = next(
            (
                n
                for n in reversed(stored)
                if n is not None
                and n != channels
                and sizes[n] > 1
                and not any(_moves(one, variables[n]) for one in moving)
            ),
            None,
        )
        if is_innermost and pixels is not None and stored.index(channels) < len(stored) - 1:
            return _Fit(channels, pixels, summed, stored.index(channels), lanes)
    return None


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
    """Where a block reads or writes a tensor, one expression for each axis."""
    return [one.min for one in region.region]


def _moves(indices: Iterable[Any], variable: Any) -> bool:
    return any(node.same_as(variable) for index in indices for node in _nodes(index))


def _nodes(expression: Any) -> Iterator[Any]:
    """An expression and all that is in it."""
    yield expression
    for name in _CHILDREN:
        child = getattr(expression, name, None)
        if isinstance(child, Expr):
            yield from _nodes(child)
        elif isinstance(child, Array):
            for one in child:
                yield from _nodes(one)


def _number(expression: Any, variables: list[Any]) -> int | None:
    """Which of the variables an expression is, None where it is anything else."""
    return next((n for n, one in enumerate(variables) if one.same_as(expression)), None)


def _bits(dtype: Any) -> int:
    return int("".join(letter for letter in str(dtype) if letter.isdigit()))
