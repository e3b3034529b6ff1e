"""Trace the steps of pGraphs, so that several pGraphs can be aligned.

Two steps are equal if they apply one primitive with equal parameters to equal coordinates. Coordinates are equal if
their expressions are equal, down to the axes of the output and the reductions. The steps that two pGraphs have in
common are their common sub-pGraph from the output. Reductions have no names, so two pGraphs' reductions of equal size
can be paired in several ways. The pairing with the most equal steps is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice, permutations, product
from typing import Any

from syno_lab.codegen.drawing import coordinate_ids, describe_step
from syno_lab.codegen.text import expressions
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.state import State
from syno_lab.protocol import TracedStep
from syno_lab.synthesis.orders import Taken, steps_taken

Name = tuple[str, int]
#: The limit of tried pairings of reductions, for pGraphs with many reductions of one size.
_MOST_PAIRINGS = 5040


def traces(values: Sequence[Operator | State]) -> list[list[TracedStep]]:
    """Return the steps of each pGraph, in order; reductions are paired with the reductions of earlier pGraphs."""
    keys: dict[Any, int] = {}
    names: Counter[str] = Counter()  # the number of names for each size so far
    seen: Counter[int] = Counter()
    traced = []
    for graph in values:
        state = graph.state if isinstance(graph, Operator) else graph
        # max returns the first of several maxima, so reductions keep their order unless another pairing is better.
        best = max(_pairings(state, names), key=lambda pairing: sum(seen[key] for key in _keys(state, pairing, keys)))
        named = _keys(state, best, keys)
        seen.update(set(named))
        for size, number in best.values():
            names[size] = max(names[size], number + 1)
        traced.append(_trace(graph, state, named, best, keys))
    return traced


def _pairings(state: State, names: Counter[str]) -> Iterator[dict[int, Name]]:
    """Yield each assignment of names to the numbers of reductions; a name is a size and an index among equal sizes."""
    groups: dict[str, list[int]] = {}
    for reduction in state.reductions:
        groups.setdefault(reduction.size.pretty, []).append(reduction.node.tag)
    orders = (permutations(range(max(len(numbers), names[size])), len(numbers)) for size, numbers in groups.items())
    for chosen in islice(product(*orders), _MOST_PAIRINGS):
        yield {
            number: (size, name)
            for (size, numbers), order in zip(groups.items(), chosen, strict=True)
            for number, name in zip(numbers, order, strict=True)
        }


def _keys(state: State, pairing: dict[int, Name], keys: dict[Any, int]) -> list[int]:
    """Return the key of each step; ``keys`` maps the values of equal steps and coordinates to equal numbers."""
    memo: dict[Coordinate, int] = {}
    return [_key_of_step(step, state, pairing, keys, memo) for step in steps_taken(state)]


def _key_of_step(
    taken: Taken, state: State, pairing: dict[int, Name], keys: dict[Any, int], memo: dict[Coordinate, int]
) -> int:
    step, results = taken
    if step.primitive == "REDUCE":
        return _key(results[0], pairing, keys, memo)
    operands = [_key(c, pairing, keys, memo) for c in step.operands]
    if step.primitive == "SHARE":  # the order of a weight's dimensions is irrelevant
        given = [_key(c, pairing, keys, memo) for c in step.given]
        return keys.setdefault(("SHARE", tuple(sorted(operands)), tuple(sorted(given))), len(keys))
    parameter = "" if step.parameter is None else step.parameter.pretty
    return keys.setdefault((step.primitive, parameter, tuple(operands)), len(keys))


def _key(coordinate: Coordinate, pairing: dict[int, Name], keys: dict[Any, int], memo: dict[Coordinate, int]) -> int:
    key = memo.get(coordinate)
    if key is None:
        node = coordinate.node
        leaf: Any = pairing[node.tag] if coordinate.is_reduction else (node.tag, coordinate.size.pretty)
        operands = tuple([_key(c, pairing, keys, memo) for c in node.operands])
        parameter = "" if node.parameter is None else node.parameter.pretty
        described = (node.primitive, parameter, operands, coordinate.index) if operands else (node.primitive, leaf)
        memo[coordinate] = key = keys.setdefault(described, len(keys))
    return key


def _trace(
    graph: Operator | State, state: State, named: Sequence[int], pairing: dict[int, Name], keys: dict[Any, int]
) -> list[TracedStep]:
    words = expressions(graph)
    ids = {coordinate: name for name, coordinate in coordinate_ids(graph).items()}
    memo: dict[Coordinate, int] = {}
    traced: list[TracedStep] = []
    weight = 0
    for number, (step, results) in enumerate(steps_taken(state)):
        nodes = [f"s{number}", *(ids[c] for c in results)]
        kind = step.primitive
        if kind == "SHARE":
            nodes = [f"s{number}", f"w{weight}", *(f"s{number}_{ids[c]}" for c in step.operands)]
            kind, weight = "CONTRACTION", weight + 1
        takes = [_key(c, pairing, keys, memo) for c in chain(step.operands, step.given)]
        text = describe_step(state, step, words)
        traced.append(TracedStep(kind, text, named[number], frozenset(takes), tuple(nodes)))
    return traced
