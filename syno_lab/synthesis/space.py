"""The space: which steps a synthesis may propose in a state, by Table 1 and the budgets of the spec.

Every proposal is legal for the IR and within the budgets; whether it is canonical is for the rules to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, product

from syno_lab.errors import PrimitiveError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.parameters import coefficient_products, merge_blocks, reduce_sizes


def proposals(state: State) -> Iterator[Step]:
    """Every legal step within the budgets, by primitive in a fixed order."""
    limits = state.spec.limits
    if len(state.steps) >= limits.max_primitives:
        return
    used = Counter(step.primitive for step in state.steps)
    for primitive, propose in _PROPOSERS.items():
        budget = limits.of(primitive)
        if budget is None or used[primitive] < budget:
            yield from propose(state)


def sums_no_weights(state: State) -> bool:
    """Whether every reduction reaches the data or at least two weights, of those left when absorbed ones are merged.

    A restriction of the space: a reduction in one weight alone sums elements of that weight, which by algebra is again
    a weight, though the fingerprint tells the two apart (DESIGN, section 3).
    """
    weights = [set(weight.coordinates) for weight in state.weights]
    weights = [w for i, w in enumerate(weights) if not any(w < v or (w == v and j < i) for j, v in enumerate(weights))]
    reach = [{leaf for c in coordinates for leaf in c.leaves()} for coordinates in weights]
    data = {leaf for c in state.data for leaf in c.leaves()}
    return all(r in data or sum(r in found for found in reach) != 1 for r in state.reductions)


def occurrences(state: State) -> tuple[int, ...]:
    """How often each variable occurs: absolute exponents in REDUCEs, STRIDEs and the cheaper side of MERGEs."""
    total = [0] * len(state.spec.symbols.names)
    for step in state.steps:
        for i, number in enumerate(step_cost(step)):
            total[i] += number
    if state.spec.weight_limits == "strict":
        for weight in state.weights:
            for size in weight.shape:
                total = [a + abs(b) for a, b in zip(total, size.exponents, strict=True)]
    return tuple(total)


def step_cost(step: Step) -> tuple[int, ...]:
    """The occurrences that a step's parameter costs, for each variable; empty for none."""
    if step.parameter is None:
        return ()
    sides = [step.parameter]
    if step.primitive == "MERGE":
        sides.append(step.operands[0].size / step.parameter)
    cheapest = min(sides, key=lambda side: (sum(map(abs, side.exponents)), side.exponents))
    return tuple(map(abs, cheapest.exponents))


def _within_limits(state: State, step: Step) -> bool:
    spec = state.spec
    spent = occurrences(state)
    more = list(step_cost(step)) or [0] * len(spent)
    if spec.weight_limits == "strict" and step.primitive == "SHARE":
        for coordinate in step.operands + step.given:
            more = [a + abs(b) for a, b in zip(more, coordinate.size.exponents, strict=True)]
    return all(
        limit is None or a + b <= limit
        for a, b, limit in zip(spent, more, spec.occurrence_limits.values(), strict=True)
    )


def _free(state: State) -> list[Coordinate]:
    return [c for c in state.data if c not in state.fixed]


def _unstrided(state: State) -> list[Coordinate]:
    return [c for c in _free(state) if c.node.primitive != "STRIDE"]


def _reduces(state: State) -> Iterator[Step]:
    for size in reduce_sizes(state.spec):
        step = Step("REDUCE", (), size)
        if _within_limits(state, step):
            yield step


def _merges(state: State) -> Iterator[Step]:
    for coordinate in _unstrided(state):
        for block in merge_blocks(state.spec, coordinate.size):
            step = Step("MERGE", (coordinate,), block)
            if _within_limits(state, step):
                yield step


def _splits(state: State) -> Iterator[Step]:
    for block, offset in product(_unstrided(state), repeat=2):
        if block is not offset:
            yield Step("SPLIT", (block, offset))


def _shifts(state: State) -> Iterator[Step]:
    for coordinate in _unstrided(state):
        yield Step("SHIFT", (coordinate,))


def _expands(state: State) -> Iterator[Step]:
    for coordinate in _free(state):
        yield Step("EXPAND", (coordinate,))


def _unfolds(state: State) -> Iterator[Step]:
    for main, window in product(_free(state), repeat=2):
        if main is not window:
            yield Step("UNFOLD", (main, window))


def _strides(state: State) -> Iterator[Step]:
    for coordinate in _unstrided(state):
        for size in coefficient_products(state.spec):
            step = Step("STRIDE", (coordinate,), size)
            if not size.is_one and min(size.exponents) >= 0 and _within_limits(state, step):
                try:
                    state.check(step)
                except PrimitiveError:
                    continue
                yield step


def _contractions(state: State) -> Iterator[Step]:
    coordinates = _unstrided(state)
    for shared_count in range(1, len(coordinates) + 1):
        for shared in combinations(coordinates, shared_count):
            rest = [c for c in coordinates if c not in shared]
            for given_count in range(len(rest) + 1):
                for given in combinations(rest, given_count):
                    step = Step("SHARE", shared, given=given)
                    if state.spec.weight_limits == "free" or _within_limits(state, step):
                        yield step


_PROPOSERS = {
    "REDUCE": _reduces,
    "SHARE": _contractions,
    "UNFOLD": _unfolds,
    "SPLIT": _splits,
    "MERGE": _merges,
    "SHIFT": _shifts,
    "STRIDE": _strides,
    "EXPAND": _expands,
}
