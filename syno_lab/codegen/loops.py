"""The loop nest as text: Python that runs as it is printed.

>>> import syno_lab as sl
>>> print(sl.operators.matmul().loops())
def operator(X, W1, Y, M, K, N):
    # X: [M, K], W1: [K, N] -> Y: [M, N]
    for i_M in range(M):
        for i_N in range(N):
            Y[i_M, i_N] = 0
            for r_K in range(K):
                Y[i_M, i_N] += X[i_M, r_K] * W1[r_K, i_N]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from syno_lab.codegen.text import expressions, names, text
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import Binding

_INDENT = "    "


def loops(operator: Operator, binding: Binding | None = None) -> str:
    """The loop nest of ``operator``, the definition of what it computes.

    A function of the arrays ``X``, ``W1``, … and ``Y``, which is written, and of the variables of the sizes. With a
    ``binding`` the variables are no arguments but set to its numbers in the first lines. A term is left out where any
    UNFOLD's own coordinate is outside its domain.
    """
    return "\n".join(_lines(operator, binding)) + "\n"


def _lines(operator: Operator, binding: Binding | None) -> Iterator[str]:
    variables = _variables(operator)
    arrays = [_array(operator, name) for name in ("X", *(f"W{i + 1}" for i in range(len(operator.weights))), "Y")]
    x, *w, y = arrays
    yield f"def operator({', '.join(arrays if binding is not None else [*arrays, *variables])}):"
    weights = "".join(f", {name}: {_shape(v.coordinates)}" for name, v in zip(w, operator.weights, strict=True))
    yield f"{_INDENT}# {x}: {_shape(operator.inputs)}{weights} -> {y}: {_shape(operator.output)}"
    if binding is not None:
        bound = operator.complete_binding(binding)
        for name in variables:
            yield f"{_INDENT}{name} = {bound[name]}"
    iterators, found = names(operator), expressions(operator)
    depth = 1
    for leaf in operator.output:
        yield f"{_INDENT * depth}for {iterators[leaf]} in range({text(leaf.size)}):"
        depth += 1
    target = f"{y}[{_index(operator.output, found)}]"
    yield f"{_INDENT * depth}{target} = 0"
    for leaf in operator.reductions:
        yield f"{_INDENT * depth}for {iterators[leaf]} in range({text(leaf.size)}):"
        depth += 1
    for condition in _guards(operator, found):
        yield f"{_INDENT * depth}if {condition}:"
        depth += 1
    term = [f"{x}[{_index(operator.inputs, found)}]"]
    term += [f"{name}[{_index(v.coordinates, found)}]" for name, v in zip(w, operator.weights, strict=True)]
    yield f"{_INDENT * depth}{target} += {' * '.join(term)}"


def _array(operator: Operator, name: str) -> str:
    """``name``, with an underscore where a variable of the sizes is called so too."""
    return _array(operator, name + "_") if name in operator.spec.symbols.position else name


def _guards(operator: Operator, found: dict[Coordinate, str]) -> Iterator[str]:
    for step in operator.steps:
        if step.primitive not in ("REDUCE", "SHARE") and PRIMITIVES[step.primitive].clips:
            for result in operator.state.results(step):
                yield f"0 <= {found[result]} < {text(result.size)}"


def _index(coordinates: Iterable[Coordinate], found: dict[Coordinate, str]) -> str:
    # A scalar is indexed by the empty tuple.
    return ", ".join(found[c] for c in coordinates) or "()"


def _shape(coordinates: Iterable[Coordinate]) -> str:
    return "[" + ", ".join(str(c.size) for c in coordinates) + "]"


def _variables(operator: Operator) -> list[str]:
    """The variables that the loop nest mentions, in the order of declaration."""
    sizes = {c.size for c in (*operator.output, *operator.reductions)}
    for step in operator.steps:
        sizes.update(c.size for c in step.operands + step.given)
        sizes.update(() if step.parameter is None else (step.parameter,))
        if step.primitive not in ("REDUCE", "SHARE"):
            sizes.update(c.size for c in operator.state.results(step))
    symbols = operator.spec.symbols
    used = {name for size in sizes for name, power in zip(symbols.names, size.exponents, strict=True) if power}
    return [name for name in symbols.names if name in used]
