"""The known operators that are similar to an operator, by a distance between pGraphs in steps.

Each pGraph is a multiset of elements: its steps, its input and its output. *Facets* without names of variables describe
an element (:func:`elements`). One facet is the kind of the step's parameter. The other facets describe the coordinates
of the element: the step that made a coordinate, the kind of its size, and its uses. The difference of two elements of
one primitive is the Jaccard distance of their facets, between 0 and 1. The Jaccard distance of two multisets is 1 minus
the size of the intersection over the size of the union. Elements of different primitives are never matched.

The distance is the cost of the cheapest change from one multiset to the other. A matched pair costs its difference, and
an element without a partner costs 1. The distance is the bipartite approximation of the graph edit distance (Riesen and
Bunke, Image and Vision Computing 27(7), 2009). The difference of elements is a metric, so the distance is a metric too:
symmetric, 0 from a pGraph to itself, with the triangle inequality. Names of variables and the order of independent
steps do not change the distance. Different operators can have the distance 0, if no step distinguishes them;
:func:`syno_lab.synthesis.orders.is_same_pgraph` compares them exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from syno_lab.common.size import Size
from syno_lab.errors import SpecError
from syno_lab.inputs import quoted
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.synthesis.orders import is_same_pgraph

INPUT, OUTPUT = "input", "output"
_WORDS = {INPUT: "the input's axes", OUTPUT: "the output's axes", "SHARE": "CONTRACTION"}
Facet = tuple[str, ...]


@dataclass(frozen=True)
class Element:
    """A step, the input or the output, without names of variables.

    Attributes:
        kind: the primitive, ``input`` or ``output``.
        facets: the descriptions of the element, see :func:`elements`.
        words: a description of the element, with the names of variables of its operator.
    """

    kind: str
    facets: tuple[Facet, ...]
    words: str

    def difference(self, other: Element) -> float:
        """Return the Jaccard distance of the facets, from 0 to 1; for different kinds 2, the cost of no match."""
        if self.kind != other.kind:
            return 2.0
        facets, other_facets = Counter(self.facets), Counter(other.facets)
        union = (facets | other_facets).total()
        return 1.0 - (facets & other_facets).total() / union if union else 0.0


@dataclass(frozen=True)
class Neighbour:
    """A known operator and its distance.

    Attributes:
        name: the name of the known operator.
        distance: the distance in steps.
        same: whether the two operators have the same pGraph, up to the names of variables.
        differences: the parts of the distance in words, each with its cost, the most expensive first.
    """

    name: str
    distance: float
    same: bool
    differences: tuple[tuple[str, float], ...]


def elements(operator: Operator) -> tuple[Element, ...]:
    """Return the steps of ``operator``, its input and its output, each with its facets."""
    from syno_lab.codegen.drawing import describe_step
    from syno_lab.codegen.text import expressions

    uses = _uses(operator)
    names = expressions(operator)
    described = []
    reductions = iter(operator.reductions)
    for step in operator.steps:
        primitive = PRIMITIVES[step.primitive]
        facets: list[Facet] = []
        if step.parameter is not None:
            facets.append(("parameter", size_kind(step.parameter)))
        if step.primitive == "SHARE":
            facets += [("share", *_about(operator, c)) for c in step.operands]
            facets += [("give", *_about(operator, c)) for c in step.given]
        else:
            roles = primitive.operands or ("operand",) * len(step.operands)
            facets += [(role, *_about(operator, c)) for role, c in zip(roles, step.operands, strict=True)]
            results = (next(reductions),) if step.primitive == "REDUCE" else operator.state.results(step)
            for place, result in enumerate(results):
                facets += [("result", str(place), use) for use in uses[result]]
        described.append(Element(step.primitive, tuple(facets), describe_step(operator.state, step, names)))
    # The input's facets name its axes that are output axes. Facets of steps name no axes: rows and columns are alike.
    passed = {c: f"output {axis}" for axis, c in enumerate(operator.output)}
    inputs = tuple((str(axis), passed.get(c, ""), *_about(operator, c)) for axis, c in enumerate(operator.inputs))
    outputs = tuple((str(axis), size_kind(c.size), use) for axis, c in enumerate(operator.output) for use in uses[c])
    return (*described, Element(INPUT, inputs, _WORDS[INPUT]), Element(OUTPUT, outputs, _WORDS[OUTPUT]))


def size_kind(size: Size) -> str:
    """Return a size without names: ``P`` for a primary variable, ``c`` for a coefficient, with exponents other than 1.

    ``C_in/g`` and ``D_out/s`` are ``P c^-1``; a size of 1 is ``1``.
    """
    letters = [("P" if name in size.symbols.primary else "c", power) for name, power in size.factors.items()]
    return " ".join(sorted(letter if power == 1 else f"{letter}^{power}" for letter, power in letters)) or "1"


def _about(operator: Operator, coordinate: Coordinate) -> tuple[str, str]:
    """Return the step that made a coordinate, and the kind of its size."""
    if coordinate.is_output:
        return "output", size_kind(coordinate.size)
    return coordinate.node.primitive + (f" {coordinate.index}" if coordinate.index else ""), size_kind(coordinate.size)


def _uses(operator: Operator) -> dict[Coordinate, list[str]]:
    """Return for each coordinate the steps that use it, its role in each step, and whether it is an input axis."""
    uses: dict[Coordinate, list[str]] = {c: [] for c in (*operator.output, *operator.reductions)}
    for step in operator.steps:
        roles = PRIMITIVES[step.primitive].operands if step.primitive != "SHARE" else ()
        for place, coordinate in enumerate(step.operands):
            uses.setdefault(coordinate, []).append(f"{step.primitive} {roles[place] if roles else ''}".strip())
        for coordinate in step.given:
            uses.setdefault(coordinate, []).append("SHARE give")
        for result in () if step.primitive in ("REDUCE", "SHARE") else operator.state.results(step):
            uses.setdefault(result, [])
    for coordinate in operator.inputs:
        uses[coordinate].append("axis of the input")
    return uses


def distance(one: Operator, other: Operator) -> float:
    """Return the distance of two operators in steps, as this module's docstring defines it."""
    return sum(cost for _, _, cost in _matched(elements(one), elements(other)))


def nearest(
    operator: Operator, known: Mapping[str, Callable[[], Operator]] | None = None, *, most: int | None = 5
) -> tuple[Neighbour, ...]:
    """Return the known operators nearest to ``operator``, the nearest first.

    Args:
        operator: the operator to compare.
        known: operators by name; by default :data:`syno_lab.operators.KNOWN`.
        most: the largest number of results; None for all.

    Raises SpecError when ``most`` is less than 1, or when the operator is no pGraph and so has no steps to compare.
    """
    if not isinstance(operator, Operator):
        raise SpecError(
            f"nearest: expected a pGraph, whose steps are compared, found {quoted(type(operator).__name__)}"
        )
    if most is not None and most < 1:
        raise SpecError(f"most: expected a number from 1 up, or None for all, found {quoted(most)}")
    if known is None:
        from syno_lab.operators import KNOWN

        known = KNOWN
    own = elements(operator)
    near = []
    for name, make in known.items():
        other = make()
        pairs = _matched(own, elements(other))
        parts = sorted(_differences(name, pairs), key=lambda entry: -entry[1])
        total = sum(cost for _, _, cost in pairs)
        near.append(Neighbour(name, total, total < _SMALL and is_same_pgraph(operator, other), tuple(parts)))
    near.sort(key=lambda neighbour: (neighbour.distance, not neighbour.same, neighbour.name))
    return tuple(near[:most])


_SMALL = 1e-9


def _matched(
    left: tuple[Element, ...], right: tuple[Element, ...]
) -> list[tuple[Element | None, Element | None, float]]:
    """Return the cheapest matching: pairs with their costs, and elements without a partner."""
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    size = len(left) + len(right)
    costs = np.zeros((size, size))
    costs[: len(left), len(right) :] = 1.0
    costs[len(left) :, : len(right)] = 1.0
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            costs[i, j] = a.difference(b)
    pairs: list[tuple[Element | None, Element | None, float]] = []
    for i, j in zip(*linear_sum_assignment(costs), strict=True):
        from_left = left[i] if i < len(left) else None
        from_right = right[j] if j < len(right) else None
        if from_left is not None and from_right is not None and from_left.kind != from_right.kind:
            pairs += [(from_left, None, 1.0), (None, from_right, 1.0)]  # equal cost, but clearer in a description
        elif from_left is not None or from_right is not None:
            pairs.append((from_left, from_right, float(costs[i, j])))
    return pairs


def _differences(name: str, pairs: list[tuple[Element | None, Element | None, float]]) -> Iterator[tuple[str, float]]:
    for one, other, cost in pairs:
        if cost < _SMALL:
            continue
        if one is None and other is not None:
            yield f"{name} also has {other.words}", cost
        elif other is None and one is not None:
            yield f"{name} has no {one.words}", cost
        elif one is not None and other is not None:
            if one.words == other.words:
                yield f"{one.words}: used or sized otherwise in {name}", cost
            else:
                yield f"{one.words} where {name} has {other.words}", cost
