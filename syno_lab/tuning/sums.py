"""A block of a program as a sum of products, as the lab's schedule rules read it. Imports TVM."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Array, Expr
from tvm.s_tir import SBlock, SBlockRealize, Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.sym import detect_linear_equation
from tvm.tirx import Var

#: The fields of TVM's expressions that hold expressions: of operations, casts, calls, selections and loads.
_CHILDREN = ("a", "b", "value", "args", "condition", "true_value", "false_value", "indices")


@dataclass(frozen=True)
class Sum:
    """A block that sums products of tensors' elements into one tensor.

    Attributes:
        variables: its iterators' variables; other fields name an iterator by its index in this list.
        sizes: the iterators' extents.
        summed: the iterators that are summed over.
        stored: for each axis of the output the iterator that is its index; None where the index is anything else.
        factors: for each tensor that is read its indices, expressions over the variables.
        read: the tensors that are read.
        written: the tensor that it writes.
        outer: how many loops are around its own.
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
        """The bits of one element of the output."""
        return int("".join(letter for letter in str(self.written.dtype) if letter.isdigit()))

    @property
    def bytes(self) -> int:
        """The bytes of the whole output."""
        return math.prod(int(one) for one in self.written.shape) * self.bits // 8

    def moved_in_unit_steps(self, axis: int) -> list[list[Expr]]:
        """The factors whose innermost index an axis moves by one; empty if it moves a factor in any other way.

        Also empty if it moves all factors: then the lanes share no factor.
        """
        variable = self.variables[axis]
        found = [one for one in self.factors if moves(one, variable)]
        is_unit = [_is_unit_step(one[-1], variable) and not moves(one[:-1], variable) for one in found]
        return found if all(is_unit) and len(found) < len(self.factors) else []

    def row_axis(self, axis: int, factors: list[list[Expr]]) -> int | None:
        """The axis whose steps go from one whole row along ``axis`` to the next, in the output and in ``factors``.

        These are all factors that ``axis`` moves. None where rows do not follow each other in memory, where another
        factor has such an axis, or where there is none.
        """
        row = self.stored[-2] if len(self.stored) > 1 and self.stored[-1] == axis else None
        if row is None or int(self.written.shape[-1]) != self.sizes[axis]:
            return None
        variable = self.variables[row]
        for tensor, indices in zip(self.read, self.factors, strict=True):
            if not any(indices is one for one in factors):
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
        """The place of an axis among the output's; None if it is the last."""
        found = self.stored.index(axis)
        return None if found == len(self.stored) - 1 else found

    def in_memory_order(self, factors: list[list[Expr]]) -> tuple[int, ...]:
        """The axes that are summed over, in the order in which the first of ``factors`` has them as indices."""

        def place(n: int) -> int:
            return next((k for k, one in enumerate(factors[0]) if moves([one], self.variables[n])), -1)

        return tuple(sorted(self.summed, key=place))


def read_sum(schedule: Schedule, block: SBlockRV) -> Sum | None:
    """The block as a sum with constant extents that no rule has tiled yet; None for any other block.

    It may be inside loops over blocks of its output: its extents are those of one block.
    """
    found, loops = schedule.get(block), own_loops(schedule, block)
    if not isinstance(found.init, tirx.BufferStore) or not _is_untouched(schedule, found, loops):
        return None
    extents = [schedule.get(one).extent for one in loops]
    if not all(isinstance(one, tirx.IntImm) for one in extents) or len(found.writes) != 1:
        return None
    variables = [one.var for one in found.iter_vars]
    spatial = [n for n, one in enumerate(found.iter_vars) if one.iter_type == tirx.IterVar.DataPar]
    summed = tuple(n for n, one in enumerate(found.iter_vars) if one.iter_type == tirx.IterVar.CommReduce)
    stored = [_number(one, variables) for one in _indices(found.writes[0])]
    if len(spatial) + len(summed) != len(variables) or sorted(n for n in stored if n is not None) != spatial:
        return None
    factors, read = [_indices(one) for one in found.reads], [one.source for one in found.reads]
    outer = len(schedule.get_loops(block)) - len(loops)
    return Sum(variables, [int(one) for one in extents], summed, stored, factors, read, found.init.buffer, outer)


def own_loops(schedule: Schedule, block: SBlockRV) -> list[LoopRV]:
    """The loops over a block's own iterators: the innermost ones, where other blocks share the outer loops."""
    return list(schedule.get_loops(block))[-len(schedule.get(block).iter_vars) or None :]


def elementwise_readers(schedule: Schedule, block: SBlockRV) -> list[str]:
    """The names of the blocks after a block that compute one element of each element, each the only reader of the one
    before, as batch normalisation, an addition and ReLU are.
    """
    names: list[str] = []
    while len(readers := schedule.get_consumers(block)) == 1:
        tensor, block = schedule.get(block).writes[0].source, readers[0]
        found = schedule.get(block)
        variables = [one.var for one in found.iter_vars]
        regions = [*found.writes, *(one for one in found.reads if one.source.same_as(tensor))]
        if not all(one.iter_type == tirx.IterVar.DataPar for one in found.iter_vars) or not all(
            len(one.region) == len(variables)
            and all(place.min.same_as(variable) for place, variable in zip(one.region, variables, strict=True))
            for one in regions
        ):
            break
        names.append(str(found.name_hint))
    return names


def _is_untouched(schedule: Schedule, block: SBlock, loops: list[LoopRV]) -> bool:
    """Whether the block has one loop for each of its iterators, in their order, and nothing else inside.

    An axis that is summed over must be whole inside of the outer loops: the sum is finished there.
    """
    if not loops or len(loops) != len(block.iter_vars):
        return False
    nodes = [schedule.get(loop) for loop in loops]
    variables = [one.loop_var for one in nodes]
    realize = nodes[-1].body
    return (
        isinstance(realize, SBlockRealize)
        and all(one.kind == tirx.ForKind.SERIAL and not one.annotations for one in nodes)
        and all(
            value.same_as(variable) or (one.iter_type == tirx.IterVar.DataPar and _is_own(value, variable, variables))
            for one, value, variable in zip(block.iter_vars, realize.iter_values, variables, strict=True)
        )
        and isinstance(realize.predicate, tirx.IntImm)
        and bool(realize.predicate)
    )


def _is_own(value: Expr, variable: Var, variables: list[Var]) -> bool:
    """Whether an iterator is its own loop's variable, counted from where the outer loops say."""
    others = [one for one in variables if not one.same_as(variable)]
    return _is_unit_step(value, variable) and not any(moves([value], one) for one in others)


def _indices(region: tirx.BufferRegion) -> list[Expr]:
    """The indices with which a block reads or writes a tensor: an expression for each axis."""
    return [one.min for one in region.region]


def moves(indices: Iterable[Expr], variable: Var) -> bool:
    """Whether one of the indices depends on a variable."""
    return any(node.same_as(variable) for index in indices for node in _nodes(index))


def _nodes(expression: Expr) -> Iterator[Expr]:
    yield expression
    for name in _CHILDREN:
        child = getattr(expression, name, None)
        if isinstance(child, Expr):
            yield from _nodes(child)
        elif isinstance(child, Array):
            for one in child:
                yield from _nodes(one)


def _is_unit_step(index: Expr, variable: Var) -> bool:
    """Whether an index grows by one with a variable."""
    found = detect_linear_equation(index, [variable])
    return len(found) > 0 and isinstance(found[0], tirx.IntImm) and int(found[0]) == 1


def _number(expression: Expr, variables: list[Var]) -> int | None:
    """The index of the variable that an expression is, None for any other expression."""
    return next((n for n, one in enumerate(variables) if one.same_as(expression)), None)
