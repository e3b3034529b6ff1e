"""Loop nests as values, for Python and C texts, equations and tables of coordinates.

A :class:`Program` is one nest, or a nest for each stage of the lowering plan (Syno, section 8). Every index is an
:class:`Expression` that the primitives themselves write, so that all texts of an operator agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from math import lcm, prod
from typing import Literal

from syno_lab.codegen.text import Names, Style
from syno_lab.codegen.walk import climb, is_view
from syno_lab.common.layers import CHANNELS, COEFFICIENTS, LAYER
from syno_lab.common.size import Size
from syno_lab.common.size import product as size_product
from syno_lab.errors import SpecError
from syno_lab.inputs import count_of
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.plan import Stage, plan
from syno_lab.ir.spec import Binding
from syno_lab.ir.state import Step
from syno_lab.synthesis.expressions import Expression, name, size


@dataclass(frozen=True)
class Array:
    """A tensor's name and the sizes of its axes."""

    name: str
    shape: tuple[Size, ...]


@dataclass(frozen=True)
class Access:
    """One element of an array."""

    array: str
    index: tuple[Expression, ...]


@dataclass(frozen=True)
class Loop:
    """A loop: the iterator ``name`` runs over ``0 <= name < size``, the values of ``coordinate``."""

    name: str
    size: Size
    coordinate: Coordinate


@dataclass(frozen=True)
class Condition:
    """A condition: a term counts only where ``0 <= value < size`` (``inside``), or where ``size`` divides ``value``.

    Conditions are checked in order: where one fails, the next may be undefined.
    """

    value: Expression
    size: Size
    kind: Literal["inside", "divides"] = "inside"


@dataclass(frozen=True)
class Nest:
    """A loop nest: ``result = 0``; loop over ``sums``; if ``conditions`` hold, ``result +=`` product of ``factors``.

    Attributes:
        result: the element that is written.
        over: the outer loops, one for each axis of the result; if the nest scatters, all loops.
        sums: the inner loops.
        conditions: the conditions in the order of their checks.
        factors: the elements that are multiplied.
        scatters: whether several iterations add to the same element, so that all elements must start at zero.
        note: a comment for readers of the generated code.
    """

    result: Access
    over: tuple[Loop, ...]
    sums: tuple[Loop, ...]
    conditions: tuple[Condition, ...]
    factors: tuple[Access, ...]
    scatters: bool = False
    note: str = ""


@dataclass(frozen=True)
class Program:
    """A sequence of loop nests that compute ``result`` from ``arguments`` by way of ``intermediates``.

    ``variables`` are the variables in the sizes of the nests, in the order of declaration.
    """

    name: str
    arguments: tuple[Array, ...]
    result: Array
    nests: tuple[Nest, ...]
    variables: tuple[str, ...]
    intermediates: tuple[Array, ...] = ()
    note: str = ""


def array_name(operator: Operator, text: str) -> str:
    """Return ``text`` as an array's name: append underscores while a variable has this name."""
    while text in operator.spec.symbols.position:
        text += "_"
    return text


def tensors(operator: Operator) -> dict[str, tuple[Coordinate, ...]]:
    """Return the coordinates of each tensor's axes by its name: ``X``, ``W1``, … and ``Y``."""
    weights = {f"W{i + 1}": weight.coordinates for i, weight in enumerate(operator.weights)}
    return {"X": operator.inputs, **weights, "Y": operator.output}


def sizes_of(coordinates: Iterable[Coordinate]) -> tuple[Size, ...]:
    """Return the symbolic sizes of coordinates."""
    return tuple(c.size for c in coordinates)


def evaluate(operator: Operator, steps: Iterable[Step], found: dict[Coordinate, Expression]) -> list[Condition]:
    """Add the expressions of the results of ``steps``, bottom-up, to ``found``; return the conditions of UNFOLDs."""
    return [Condition(found[c], c.size) for c in climb(operator, steps, found, size)]


def loop_over(coordinates: Iterable[Coordinate], names: Names, prefix: str = "z") -> tuple[Loop, ...]:
    """Return a loop for each coordinate, with the coordinate's name or a new name."""
    return tuple(Loop(names.give(c, prefix), c.size, c) for c in coordinates)


def forward(operator: Operator, style: Style = "words") -> Program:
    """Return the loop nest that defines ``operator``: a single nest with every loop."""
    names = Names(operator, style)
    arrays = {key: Array(array_name(operator, key), sizes_of(c)) for key, c in tensors(operator).items()}
    over, sums = loop_over(operator.output, names), loop_over(operator.reductions, names)
    values = {loop.coordinate: name(loop.name) for loop in (*over, *sums)}
    conditions = evaluate(operator, operator.steps, values)
    *reads, result = (
        Access(arrays[key].name, tuple(values[c] for c in axes)) for key, axes in tensors(operator).items()
    )
    *arguments, written = arrays.values()
    nest = Nest(result, over, sums, tuple(conditions), tuple(reads))
    return Program("operator", tuple(arguments), written, (nest,), variables(operator))


def staged(operator: Operator, binding: Binding | None = None, style: Style = "words") -> Program:
    """Return one nest for each stage of the lowering plan, with the intermediates ``Z1``, ``Z2``, … between them.

    The best stages depend on the sizes. The sizes are those of ``binding``, else of the spec's first binding, else of
    :func:`layer_binding`.
    """
    bound = operator.complete_binding(binding) if binding is not None or operator.spec.bindings else None
    bound = bound or layer_binding(operator)
    stages = plan(operator, bound).stages
    names = Names(operator, style)
    arrays = {key: Array(array_name(operator, key), sizes_of(c)) for key, c in tensors(operator).items()}
    *arguments, written = arrays.values()
    between = [Array(array_name(operator, f"Z{i + 1}"), sizes_of(stage.out)) for i, stage in enumerate(stages[:-1])]
    nests, before, axes = [], arguments[0], operator.inputs
    for number, (stage, after) in enumerate(zip(stages, [*between, written], strict=True), 1):
        nests.append(_stage(operator, stage, names, (before, axes), after, f"stage {number} of {len(stages)}: "))
        before, axes = after, stage.out
    chosen = ", ".join(f"{variable}={number}" for variable, number in bound.items())
    note = f"stages with the fewest FLOPs for {chosen}"
    return Program("operator", tuple(arguments), written, tuple(nests), variables(operator), tuple(between), note)


def _stage(
    operator: Operator,
    stage: Stage,
    names: Names,
    before: tuple[Array, tuple[Coordinate, ...]],
    after: Array,
    title: str,
) -> Nest:
    over, sums = loop_over(stage.out, names), loop_over(stage.summed, names)
    expressions = {loop.coordinate: name(loop.name) for loop in (*over, *sums)}
    conditions = evaluate(operator, reversed(stage.undo), expressions)
    factors = [Access(before[0].name, tuple(expressions[c] for c in before[1]))]
    for number in stage.weights:
        coordinates = operator.weights[number].coordinates
        factors.append(Access(array_name(operator, f"W{number + 1}"), tuple(expressions[c] for c in coordinates)))
    result = Access(after.name, tuple(expressions[c] for c in stage.out))
    iterations = size_product(sizes_of(stage.domain), operator.spec.symbols)
    flops = 2 if stage.weights else 1 if stage.summed else 0
    note = f"{title}{iterations.code} iterations, {count_of(flops, 'FLOP')} each"
    return Nest(result, over, sums, tuple(conditions), tuple(factors), note=note)


def variables(operator: Operator) -> tuple[str, ...]:
    """Return the variables that occur in a loop nest of ``operator``, in the order of declaration."""
    symbols = operator.spec.symbols
    used = {n for s in all_sizes(operator) for n, power in zip(symbols.names, s.exponents, strict=True) if power}
    return tuple(n for n in symbols.names if n in used)


def all_sizes(operator: Operator) -> Iterator[Size]:
    """Yield the sizes of all coordinates and the parameters of all steps, some values several times."""
    yield from sizes_of((*operator.output, *operator.reductions))
    for step in operator.steps:
        yield from sizes_of(step.operands + step.given)
        if step.parameter is not None:
            yield step.parameter
        if is_view(step):
            yield from sizes_of(operator.state.results(step))


def generic_binding(operator: Operator, scale: int = 1) -> dict[str, int]:
    """Return typical sizes: a size with a primary variable is larger than every size without a primary variable.

    Coefficients keep their defaults. Coefficients without a default are the smallest numbers from 2 up that make every
    size an integer, if possible above 1. Primary variables are all different, and multiples of their divisors.
    ``scale`` makes the primaries larger. Raises SpecError when no small coefficients make all sizes integers.
    """
    symbols, defaults = operator.spec.symbols, operator.spec.defaults
    every = set(all_sizes(operator))
    free = [n for n in symbols.coefficient if n not in defaults]
    choices = sorted(product(range(2, 9), repeat=min(len(free), 4)), key=lambda c: (prod(c), c))
    possible = None
    for chosen in choices:
        coefficients = {n: defaults.get(n, 2) for n in symbols.coefficient} | dict(zip(free, chosen, strict=False))
        small = [s for s in every if not s.has_primary]
        if not all(s.is_integral(coefficients) for s in small):
            continue
        numbers = [s.at(coefficients) for s in small]
        primaries = _primaries(operator, every, coefficients, 2 * scale * max(numbers, default=1))
        binding = {n: (primaries | coefficients)[n] for n in symbols.names}
        possible = possible or binding
        if all(s.is_one or number > 1 for s, number in zip(small, numbers, strict=True)):
            return binding
    if possible is None:
        raise SpecError(f"no small sizes make every size of {operator} an integer: give a binding")
    return possible


def layer_binding(operator: Operator) -> dict[str, int]:
    """Return the sizes of a real layer, :data:`syno_lab.common.layers.LAYER`; other variables get typical sizes.

    A length that the operator divides is the next multiple of its divisors. A coefficient keeps its default if that
    differs from the known operators' default. Raises SpecError as :func:`generic_binding`.
    """
    spec, typical = operator.spec, generic_binding(operator)
    batch = {name for axis, _ in spec.fixed_io_pairs for name in spec.input_shape[axis].variables}
    layer = {n: size for n, size in LAYER.items() if n != "N" or n in batch} | dict.fromkeys(CHANNELS, LAYER["C_in"])
    wanted = {n: layer.get(n, typical[n]) for n in spec.symbols.primary}
    named = ((n, *COEFFICIENTS[n]) for n in spec.symbols.coefficient if n in COEFFICIENTS)
    real = {n: value for n, usual, value in named if spec.defaults.get(n, usual) == usual}
    every = set(all_sizes(operator))
    for coefficients in ({n: real.get(n, typical[n]) for n in spec.symbols.coefficient}, typical):
        if all(size.is_integral(coefficients) for size in every if not size.has_primary):
            steps = _steps(operator, every, coefficients)
            at = {n: -(-size // steps[n]) * steps[n] for n, size in wanted.items()}
            if at == wanted:
                break
    return {**typical, **coefficients, **at}


def _primaries(operator: Operator, sizes: set[Size], coefficients: dict[str, int], more_than: int) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for variable, step in _steps(operator, sizes, coefficients).items():
        number = step * (more_than + 1)
        while number in numbers.values():
            number += step
        numbers[variable] = number
    return numbers


def _steps(operator: Operator, sizes: set[Size], coefficients: dict[str, int]) -> dict[str, int]:
    """Return for each primary variable the number of which it must be a multiple, so that all sizes are integers."""
    symbols = operator.spec.symbols
    steps = {}
    for position, variable in enumerate(symbols.primary):
        below = [
            prod(coefficients[n] ** -p for n, p in zip(symbols.names, s.exponents, strict=True) if p < 0)
            for s in sizes
            if s.exponents[position]
        ]
        steps[variable] = lcm(1, *below)
    return steps
