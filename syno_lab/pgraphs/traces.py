"""The steps of pGraphs, so that those of several can be put side by side.

Two steps are equal where they apply a primitive with one parameter to equal coordinates, and coordinates are equal
where their expressions are, down to the axes of the output and the reductions. So the equal steps of two pGraphs are
their common sub-pGraph from the output. Which reduction of one is which of another is nowhere written: of all ways to
pair reductions of equal size, the one with the most equal steps is taken.
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
from syno_lab.ir.state import State, Step
from syno_lab.protocol import TracedStep

Name = tuple[str, int]
#: Ways to pair reductions that are tried at most, for pGraphs with many reductions of one size.
_MOST_PAIRINGS = 5040


def traces(values: Sequence[Operator | State]) -> list[list[TracedStep]]:
    """The steps of each pGraph, in its order; reductions are paired with those of the pGraphs before it."""
    keys: dict[Any, int] = {}
    names: Counter[str] = Counter()  # so many reductions of each size have a name
    seen: Counter[int] = Counter()
    found = []
    for graph in values:
        state = graph.state if isinstance(graph, Operator) else graph
        # Python's max takes the first of the best, which leaves the order as it is.
        best = max(_pairings(state, names), key=lambda pairing: sum(seen[key] for key in _keys(state, pairing, keys)))
        named = _keys(state, best, keys)
        seen.update(set(named))
        for size, number in best.values():
            names[size] = max(names[size], number + 1)
        found.append(_trace(graph, state, named, best, keys))
    return found


def _pairings(state: State, names: Counter[str]) -> Iterator[dict[int, Name]]:
    """Every way to name the reductions, by their numbers: a size, and the how-manieth of that size."""
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
    """The key of each step; equal things get equal numbers in ``keys``."""
    memo: dict[Coordinate, int] = {}
    return [_key_of_step(step, state, pairing, keys, memo) for step in _numbered(state)]


def _numbered(state: State) -> Iterator[tuple[Step, tuple[Coordinate, ...]]]:
    """The steps with the coordinates that each adds."""
    replay = State.root(state.spec)
    for step in state.steps:
        yield step, replay.results(step)
        replay = replay.apply(step)


def _key_of_step(
    numbered: tuple[Step, tuple[Coordinate, ...]],
    state: State,
    pairing: dict[int, Name],
    keys: dict[Any, int],
    memo: dict[Coordinate, int],
) -> int:
    step, results = numbered
    if step.primitive == "REDUCE":
        return _key(results[0], pairing, keys, memo)
    operands = [_key(one, pairing, keys, memo) for one in step.operands]
    if step.primitive == "SHARE":  # the order of a weight's dimensions says nothing
        given = [_key(one, pairing, keys, memo) for one in step.given]
        return _number(keys, ("SHARE", tuple(sorted(operands)), tuple(sorted(given))))
    parameter = "" if step.parameter is None else step.parameter.pretty
    return _number(keys, (step.primitive, parameter, tuple(operands)))


def _key(coordinate: Coordinate, pairing: dict[int, Name], keys: dict[Any, int], memo: dict[Coordinate, int]) -> int:
    found = memo.get(coordinate)
    if found is None:
        node = coordinate.node
        leaf: Any = pairing[node.tag] if coordinate.is_reduction else (node.tag, coordinate.size.pretty)
        operands = tuple([_key(one, pairing, keys, memo) for one in node.operands])
        parameter = "" if node.parameter is None else node.parameter.pretty
        what = (node.primitive, parameter, operands, coordinate.index) if operands else (node.primitive, leaf)
        memo[coordinate] = found = _number(keys, what)
    return found


def _number(keys: dict[Any, int], what: Any) -> int:
    return keys.setdefault(what, len(keys))


def _trace(
    graph: Operator | State, state: State, named: Sequence[int], pairing: dict[int, Name], keys: dict[Any, int]
) -> list[TracedStep]:
    words = expressions(graph)
    ids = {coordinate: name for name, coordinate in coordinate_ids(graph).items()}
    memo: dict[Coordinate, int] = {}
    found: list[TracedStep] = []
    weight = 0
    for number, (step, results) in enumerate(_numbered(state)):
        nodes = [f"s{number}", *(ids[one] for one in results)]
        kind = step.primitive
        if kind == "SHARE":
            nodes = [f"s{number}", f"w{weight}", *(f"s{number}_{ids[one]}" for one in step.operands)]
            kind, weight = "CONTRACTION", weight + 1
        takes = [_key(one, pairing, keys, memo) for one in chain(step.operands, step.given)]
        text = describe_step(state, step, words)
        found.append(TracedStep(kind, text, named[number], frozenset(takes), tuple(nodes)))
    return found
