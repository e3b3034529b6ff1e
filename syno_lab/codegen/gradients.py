"""The gradients of an operator with respect to its input and its weights, as loop nests.

An operator is linear in each of its tensors, so a gradient is the exact transpose. ``dX`` has the same terms as ``Y``,
and each term is added to the element of ``X`` that it reads. The *scatter* form adds the terms in the forward order.
The *gather* form instead loops over the elements of the gradient. Table 1 (Syno, section 5) expresses each top
coordinate of a primitive by its bottom coordinates. A primitive needs at most one more loop and one condition. The loop
is over the other digit of a MERGE or the window of an UNFOLD. The condition is an UNFOLD's bounds or a STRIDE's
divisor. So every pGraph of the primitives in Table 1 has a gather form. A pGraph with a primitive that :func:`undo`
does not support gets the scatter form.
"""

from __future__ import annotations

from typing import Literal, get_args

from syno_lab.codegen.nest import (
    Access,
    Array,
    Condition,
    Loop,
    Nest,
    Program,
    array_name,
    evaluate,
    loop_over,
    sizes_of,
    tensors,
    variables,
)
from syno_lab.codegen.text import Names, Style
from syno_lab.codegen.walk import is_view
from syno_lab.errors import SpecError
from syno_lab.inputs import quoted
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.synthesis.expressions import Expression, name, size

Form = Literal["gather", "scatter"]
_UNDONE = ("SPLIT", "MERGE", "SHIFT", "EXPAND", "UNFOLD", "STRIDE", "REDUCE", "SHARE")


def gradient(operator: Operator, wrt: str, form: Form = "gather", style: Style = "words") -> Program:
    """Return the nest of ``d<wrt>`` (``wrt``: ``X``, ``W1``, …) from ``dY`` and the operator's other tensors.

    The form ``gather`` writes each element of the result once; ``scatter`` adds terms to the elements in the forward
    order. ``style`` is the style of the iterators' names. Raises SpecError for an unknown tensor or form.
    """
    every = tensors(operator)
    names_of_tensors = [key for key in every if key != "Y"]
    if wrt not in names_of_tensors:
        raise SpecError(f"wrt: expected {' or '.join(names_of_tensors)}, found {quoted(wrt)}")
    if form not in get_args(Form):
        raise SpecError(f"form: expected gather or scatter, found {quoted(form)}")
    names = Names(operator, style)
    if form == "gather" and all(step.primitive in _UNDONE for step in operator.steps):
        over = loop_over(every[wrt], names, "x" if wrt == "X" else "w")
        expressions = {loop.coordinate: name(loop.name) for loop in over}
        sums, conditions = undo(operator, expressions, names)
    else:
        over = loop_over((*operator.output, *operator.reductions), names)
        expressions = {loop.coordinate: name(loop.name) for loop in over}
        sums, conditions = [], []
        form = "scatter"
    conditions += evaluate(operator, operator.steps, expressions)
    read = {("dY" if key == "Y" else key): c for key, c in every.items() if key != wrt}
    read = {"dY": read.pop("dY"), **read}
    arguments = tuple(Array(array_name(operator, key), sizes_of(c)) for key, c in read.items())
    factors = tuple(Access(array_name(operator, key), tuple(expressions[c] for c in cs)) for key, cs in read.items())
    result = Array(array_name(operator, f"d{wrt}"), sizes_of(every[wrt]))
    target = Access(result.name, tuple(expressions[c] for c in every[wrt]))
    nest = Nest(target, over, tuple(sums), tuple(conditions), factors, scatters=form == "scatter")
    return Program(f"gradient_{wrt}", arguments, result, (nest,), variables(operator))


def undo(operator: Operator, found: dict[Coordinate, Expression], names: Names) -> tuple[list[Loop], list[Condition]]:
    """Express every iterator by the coordinates in ``found`` where possible, else by a new loop.

    At first ``found`` has the axes of one tensor; the call adds every iterator. Returns the added loops, and the
    conditions under which the iterators are inside their domains. Check the conditions in order: where one fails, a
    later condition or a division may be undefined.
    """
    sums: list[Loop] = []
    conditions: list[Condition] = []

    def add_loop(coordinate: Coordinate) -> Expression:
        (loop,) = loop_over((coordinate,), names, "j")
        sums.append(loop)
        found[coordinate] = name(loop.name)
        return found[coordinate]

    for step in reversed(operator.steps):
        if not is_view(step):
            continue
        results = operator.state.results(step)
        if not any(c in found for c in results) or all(c in found for c in step.operands):
            continue
        main, *others = step.operands
        top = found.get(results[0])
        match step.primitive:
            case "SPLIT":
                assert top is not None
                found[main], found[others[0]] = top // size(others[0].size), top % size(others[0].size)
            case "MERGE":
                high, low = (found[c] if c in found else add_loop(c) for c in results)
                assert step.parameter is not None
                found[main] = size(step.parameter) * high + low
            case "SHIFT":
                assert top is not None
                found[main] = (top + size(main.size) - 1) % size(main.size)
            case "STRIDE":
                assert top is not None
                assert step.parameter is not None
                conditions.append(Condition(top, step.parameter, "divides"))
                found[main] = top // size(step.parameter)
            case "UNFOLD":
                assert top is not None
                window = others[0]
                if window.node.primitive == "STRIDE":  # loop over the multiples of the stride
                    assert window.node.parameter is not None
                    found[window] = size(window.node.parameter) * add_loop(window.node.operands[0])
                else:
                    add_loop(window)
                found[main] = top - found[window] + size(window.size) // 2
                conditions.append(Condition(found[main], main.size))
    for leaf in (*operator.output, *operator.reductions):
        if leaf not in found:
            add_loop(leaf)
    rank = {leaf: i for i, leaf in enumerate((*operator.output, *operator.reductions))}
    return sorted(sums, key=lambda loop: rank.get(loop.coordinate, len(rank))), conditions
