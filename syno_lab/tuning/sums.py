"""Read a block of a program as a sum of products, for the lab's schedule rules. Imports TVM."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Expr
from tvm.s_tir import SBlock, SBlockRealize, Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.sym import detect_linear_equation
from tvm.tirx import Var
from tvm.tirx.analysis import undefined_vars


@dataclass(frozen=True)
class Sum:
    """A block that sums products of tensors' elements into one tensor.

    Attributes:
        variables: the iterators' variables; the other fields use the index of an iterator in this list.
        sizes: the iterators' extents.
        summed: the iterators over which the block sums.
        stored: for each axis of the output, the iterator that is its index; None if the index is no iterator.
        factors: for each tensor in ``read``, its indices as expressions of the variables.
        read: the tensors that the block reads.
        written: the tensor that the block writes.
        outer: the number of loops around the block's own loops.
    """

    variables: list[Var]
    sizes: list[int]
    summed: tuple[int, ...]
    stored: list[int | None]
    factors: list[list[Expr]]
    read: list[tirx.Buffer]
    written: tirx.Buffer
    outer: int

    @property
    def bits(self) -> int:
        """The number of bits of an element of the output."""
        return int("".join(letter for letter in str(self.written.dtype) if letter.isdigit()))

    @property
    def bytes(self) -> int:
        """The number of bytes of the output."""
        return math.prod(int(size) for size in self.written.shape) * self.bits // 8

    def moved_in_unit_steps(self, axis: int) -> list[list[Expr]]:
        """Return the factors whose innermost index grows by one along an axis; empty if any other index changes.

        The result is also empty if all factors change along the axis, because the lanes then share no factor.
        """
        variable = self.variables[axis]
        moved = [factor for factor in self.factors if moves(factor, variable)]
        is_unit = [_is_unit_step(factor[-1], variable) and not moves(factor[:-1], variable) for factor in moved]
        return moved if all(is_unit) and len(moved) < len(self.factors) else []

    def row_axis(self, axis: int, factors: list[list[Expr]]) -> int | None:
        """Return the axis that numbers the rows along ``axis``, in the output and in ``factors``.

        ``factors`` are all factors that change along ``axis``. The result is None if the rows are not adjacent in
        memory, if another factor changes along that axis, or if no axis numbers the rows.
        """
        row = self.stored[-2] if len(self.stored) > 1 and self.stored[-1] == axis else None
        if row is None or int(self.written.shape[-1]) != self.sizes[axis]:
            return None
        variable = self.variables[row]
        for tensor, indices in zip(self.read, self.factors, strict=True):
            if not any(indices is factor for factor in factors):
                if moves(indices, variable):
                    return None
            elif (
                len(indices) < 2
                or int(tensor.shape[-1]) != self.sizes[axis]
                or not _is_unit_step(indices[-2], variable)
                or moves([*indices[:-2], indices[-1]], variable)
            ):
                return None
        return row

    def place(self, axis: int) -> int | None:
        """Return the position of an axis among the output's axes; None for the last position."""
        position = self.stored.index(axis)
        return None if position == len(self.stored) - 1 else position

    def in_memory_order(self, factors: list[list[Expr]]) -> tuple[int, ...]:
        """Return the axes of the sum, in the order in which they are indices of the first of ``factors``."""

        def position(n: int) -> int:
            return next((k for k, index in enumerate(factors[0]) if moves([index], self.variables[n])), -1)

        return tuple(sorted(self.summed, key=position))


def read_sum(schedule: Schedule, block: SBlockRV) -> Sum | None:
    """Return a block as a :class:`Sum`, if its extents are constant and no rule has tiled it; otherwise None.

    The block may be inside loops over blocks of its output. The sum then has the extents of one block of the output.
    """
    statement, loops = schedule.get(block), own_loops(schedule, block)
    if not isinstance(statement.init, tirx.BufferStore) or not _is_untouched(schedule, statement, loops):
        return None
    extents = [schedule.get(loop).extent for loop in loops]
    if not all(isinstance(extent, tirx.IntImm) for extent in extents) or len(statement.writes) != 1:
        return None
    variables = [iterator.var for iterator in statement.iter_vars]
    spatial = [n for n, iterator in enumerate(statement.iter_vars) if iterator.iter_type == tirx.IterVar.DataPar]
    summed = tuple(n for n, iterator in enumerate(statement.iter_vars) if iterator.iter_type == tirx.IterVar.CommReduce)
    stored = [_number(index, variables) for index in _indices(statement.writes[0])]
    if len(spatial) + len(summed) != len(variables) or sorted(n for n in stored if n is not None) != spatial:
        return None
    factors, read = [_indices(region) for region in statement.reads], [region.source for region in statement.reads]
    outer = len(schedule.get_loops(block)) - len(loops)
    return Sum(variables, [int(size) for size in extents], summed, stored, factors, read, statement.init.buffer, outer)


def own_loops(schedule: Schedule, block: SBlockRV) -> list[LoopRV]:
    """Return the loops over a block's own iterators, without outer loops that other blocks may share."""
    return list(schedule.get_loops(block))[-len(schedule.get(block).iter_vars) or None :]


def elementwise_readers(schedule: Schedule, block: SBlockRV) -> list[str]:
    """Return the names of the elementwise blocks after a block, such as batch normalisation, an addition and ReLU. Each
    of these blocks is the only reader of the block before it.
    """
    names: list[str] = []
    while len(readers := schedule.get_consumers(block)) == 1:
        tensor, block = schedule.get(block).writes[0].source, readers[0]
        reader = schedule.get(block)
        variables = [iterator.var for iterator in reader.iter_vars]
        regions = [*reader.writes, *(region for region in reader.reads if region.source.same_as(tensor))]
        if not all(iterator.iter_type == tirx.IterVar.DataPar for iterator in reader.iter_vars) or not all(
            len(region.region) == len(variables)
            and all(axis.min.same_as(variable) for axis, variable in zip(region.region, variables, strict=True))
            for region in regions
        ):
            break
        names.append(str(reader.name_hint))
    return names


def _is_untouched(schedule: Schedule, block: SBlock, loops: list[LoopRV]) -> bool:
    """Return whether the block has one loop for each of its iterators, in their order, and nothing else inside.

    The outer loops must not split an axis of the sum, so that the block finishes the sum.
    """
    if not loops or len(loops) != len(block.iter_vars):
        return False
    nodes = [schedule.get(loop) for loop in loops]
    variables = [node.loop_var for node in nodes]
    realize = nodes[-1].body
    return (
        isinstance(realize, SBlockRealize)
        and all(node.kind == tirx.ForKind.SERIAL and not node.annotations for node in nodes)
        and all(
            value.same_as(variable) or (axis.iter_type == tirx.IterVar.DataPar and _is_own(value, variable, variables))
            for axis, value, variable in zip(block.iter_vars, realize.iter_values, variables, strict=True)
        )
        and isinstance(realize.predicate, tirx.IntImm)
        and bool(realize.predicate)
    )


def _is_own(value: Expr, variable: Var, variables: list[Var]) -> bool:
    """Return whether an iterator is its own loop's variable plus an offset from the outer loops."""
    others = [other for other in variables if not other.same_as(variable)]
    return _is_unit_step(value, variable) and not any(moves([value], other) for other in others)


def _indices(region: tirx.BufferRegion) -> list[Expr]:
    """Return the indices with which a block reads or writes a tensor, an expression for each axis."""
    return [axis.min for axis in region.region]


def moves(indices: Iterable[Expr], variable: Var) -> bool:
    """Return whether an index depends on a variable."""
    return any(used.same_as(variable) for index in indices for used in undefined_vars(index))


def _is_unit_step(index: Expr, variable: Var) -> bool:
    """Return whether an index grows by one if a variable grows by one."""
    coefficients = detect_linear_equation(index, [variable])
    return len(coefficients) > 0 and isinstance(coefficients[0], tirx.IntImm) and int(coefficients[0]) == 1


def _number(expression: Expr, variables: list[Var]) -> int | None:
    """Return the index in ``variables`` of an expression that is a variable, None for any other expression."""
    return next((n for n, candidate in enumerate(variables) if candidate.same_as(expression)), None)
