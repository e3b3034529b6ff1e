"""An operator with the average pooling behind it as one operator, so that the lowering plan places the pooling.

A layer with a stride is an operator at the input's size and an average pooling (:mod:`syno_lab.models.slot`). The
pooling is a sum over blocks of output positions. As REDUCEs of the same pGraph, it moves below what works on each
position alone, and joins the window before it: the plan takes the order with the fewest FLOPs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Any

from syno_lab.common.size import Size, Symbols
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding, Variable
from syno_lab.ir.state import State, Step


def pooled(operator: Operator, binding: Binding, pool: tuple[int, int]) -> tuple[Operator, dict[str, int]] | None:
    """Return the operator that sums blocks of ``pool`` rows and columns of the output, and its binding.

    The weights keep their order and shapes. Return None if the blocks do not divide the last two axes
    of the output, or if an axis is fixed.
    """
    old, axes = operator.spec, range(len(operator.output))[-2:]
    sizes = [operator.output_sizes(binding)[axis] for axis in axes]
    if len(axes) < 2 or any(axis in old.fixed_outputs for axis in axes) or sizes[0] % pool[0] or sizes[1] % pool[1]:
        return None
    taken = old.symbols.position
    names = tuple(next(n for i in count(1) if (n := f"pool{'_' * i}{axis}") not in taken) for axis in "hw")
    symbols = Symbols(old.symbols.primary, (*old.symbols.coefficient, *names))
    blocks = [symbols.size(name) for name in names]

    def sized(size: Size) -> Size:
        return Size(symbols, (*size.exponents, 0, 0))

    spec = replace(
        old,
        symbols=symbols,
        input_shape=tuple(map(sized, old.input_shape)),
        output_shape=(
            *map(sized, old.output_shape[:-2]),
            *(sized(size) / block for size, block in zip(old.output_shape[-2:], blocks, strict=True)),
        ),
        variables=(*old.variables, *map(Variable, names)),
        bindings=(),
        wants=(),
    )
    bound = {**operator.complete_binding(binding), **dict(zip(names, pool, strict=True))}
    state, before = State.root(spec), State.root(old)
    new = dict(zip(operator.output, state.output, strict=True))
    pending: dict[Coordinate, tuple[Coordinate, Coordinate]] = {}  # blocks, and the position inside each: not split yet

    def apply(primitive: str, operands: Iterable[Coordinate] = (), *more: Any) -> tuple[Coordinate, ...]:
        nonlocal state
        step = Step(primitive, tuple(operands), *more)
        results = state.results(step)
        state = state.apply(step)
        return results

    def moved(coordinates: Iterable[Coordinate]) -> tuple[Coordinate, ...]:
        for c in coordinates:
            if c in pending:
                (new[c],) = apply("SPLIT", pending.pop(c))
        return tuple(new[c] for c in coordinates)

    for block, axis in zip(blocks, axes, strict=True):
        (inside,) = apply("REDUCE", (), block)
        pending[operator.output[axis]] = new[operator.output[axis]], inside
    for step in operator.steps:
        results, before = before.results(step), before.apply(step)
        parameter = None if step.parameter is None else sized(step.parameter)
        found = pending.get(step.operands[-1]) if step.operands else None
        if found and step.primitive == "SPLIT":
            (joined,) = apply("SPLIT", (*moved(step.operands[:1]), found[0]))
            pending[results[0]] = joined, found[1]
        elif found and parameter and step.primitive == "MERGE" and not parameter.at(bound) % found[1].size.at(bound):
            # Digits of the position: the high one is that of the block, the low one ends in the position inside.
            new[results[0]], low = apply("MERGE", found[:1], parameter / found[1].size)
            pending[results[1]] = low, found[1]
        else:
            operands, given = moved(step.operands), moved(step.given)
            new |= dict(zip(results, apply(step.primitive, operands, parameter, given), strict=True))
    inputs = moved(operator.inputs)
    return Operator(state, inputs), bound
