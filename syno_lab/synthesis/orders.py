"""Whether a pGraph is canonical in some order of its steps, and which rule is in the way (Syno, section 9.4).

Unordered input axes: of the pGraphs that differ only in the inner order of such an axis, one is kept.

Positions along an unordered axis may be renamed, so what matters of the coordinate that indexes it is which coordinates
it is put together from, not how. Hence no SHIFT ends there; nor do both digits of one MERGE where no weight shares them
(the coordinate they are digits of says the same), or of a SHIFT where a weight shares the low one alone; and of the
orders in which SPLITs may put the parts together the least that is canonical stands for all. Permutations change no
shape: the distance to an unordered axis is that to any other of its size.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import permutations

from syno_lab.effort import Effort
from syno_lab.errors import PrimitiveError
from syno_lab.ir.coordinate import Coordinate, Node
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.budgets import fits
from syno_lab.synthesis.rebuilding import over, steps_taken
from syno_lab.synthesis.rules import RULES, Rule, rejecting_rule
from syno_lab.synthesis.space import sums_no_weights


def has_canonical_order(state: State, rules: tuple[Rule, ...] = RULES, *, effort: Effort | None = None) -> bool:
    """Whether the steps of ``state`` can be taken in an order in which no rule rejects any of them.

    Raises:
        EffortError: for what exceeds ``effort``.
    """
    watched = effort or Effort()
    items = steps_taken(state)
    whole = (1 << len(items)) - 1
    hopeless: set[tuple[int, int]] = set()  # steps taken, and the last of them: rules look at the top of a state

    def walk(current: State, known: dict[Coordinate, Coordinate], taken: int) -> bool:
        watched.tick("looking for a canonical order of steps")
        if taken == whole:
            return True
        for place, (step, results) in enumerate(items):
            after_this = taken | 1 << place
            if taken >> place & 1 or (after_this, place) in hopeless:
                continue
            if not all(c in known for c in step.operands + step.given):
                continue
            moved = over(step, known)
            try:
                after = current.apply(moved)
            except PrimitiveError:
                continue  # a coordinate that another step shares is gone
            if rejecting_rule(current, moved, rules) is None:
                added = dict(zip(results, current.results(moved), strict=True))
                if walk(after, known | added, after_this):
                    return True
            hopeless.add((after_this, place))
        return False

    root = State.root(state.spec)
    return walk(root, {c: c for c in root.data}, 0)


def judge(state: State, rules: tuple[Rule, ...], *, effort: Effort | None = None) -> tuple[bool, str | None]:
    """Whether canonical in some order, and the first rule that rejects a step in the order of ``state``."""
    current = State.root(state.spec)
    for step in state.steps:
        rule = rejecting_rule(current, step, rules)
        if rule is not None:
            return has_canonical_order(state, rules, effort=effort), rule.name
        current = current.apply(step)
    return True, None


@lru_cache(maxsize=64)
def free_axes(spec: Spec) -> tuple[int, ...]:
    """The input axes whose inner order is free, but for those that take part in nothing."""
    fixed = {inp for inp, _ in spec.fixed_io_pairs}
    return tuple(a for a, size in enumerate(spec.input_shape) if str(size) in spec.unordered and a not in fixed)


def is_in_order(operator: Operator, rules: tuple[Rule, ...] = RULES, *, effort: Effort | None = None) -> bool:
    """Whether a canonical operator is the one that stands for all inner orders of its unordered axes.

    Raises:
        EffortError: for what exceeds ``effort``.
    """
    watched = effort or Effort()
    return all(_stands_for_all(operator, axis, rules, watched) for axis in free_axes(operator.spec))


def is_operator(state: State) -> bool:
    """Whether search would give this state, rules apart: complete, in the space, within all budgets."""
    return (
        len(state.weights) >= state.spec.limits.min_weights
        and state.is_complete
        and sums_no_weights(state)
        and fits(state.operator())
        and (not state.spec.unordered or any(is_in_order(Operator(state, match)) for match in state.matches()))
    )


def _stands_for_all(operator: Operator, axis: int, rules: tuple[Rule, ...], effort: Effort) -> bool:
    tree = _Tree(operator, operator.inputs[axis])
    if any(part.node.primitive == "SHIFT" for part in tree.parts):
        return False
    sharing = operator.state.sharing
    digits = {(part.node, part.index): part in sharing for part in tree.parts if part.node.primitive == "MERGE"}
    for node, index in digits:
        is_pair = index == 0 and (node, 1) in digits and not digits[node, 0]
        # Only a weight tells the low digit apart, and the elements of a weight have no order either.
        if is_pair and (not digits[node, 1] or node.operands[0].node.primitive == "SHIFT"):
            return False
    for twin in tree.twins():
        effort.tick("comparing inner orders of an unordered axis")
        if twin.key < operator.key and has_canonical_order(twin.state, rules, effort=effort):
            return False
    return True


class _Tree:
    """The SPLITs that put an input axis together, of parts that are anything else, or that a weight shares."""

    def __init__(self, operator: Operator, root: Coordinate) -> None:
        self.operator = operator
        self.root = root
        self.parts: list[Coordinate] = []
        self._nodes: set[Node] = set()
        self._take_apart(root)

    def _take_apart(self, coordinate: Coordinate) -> None:
        is_shared = coordinate in self.operator.state.sharing
        if coordinate.node.primitive == "SPLIT" and (coordinate is self.root or not is_shared):
            self._nodes.add(coordinate.node)
            for operand in coordinate.node.operands:
                self._take_apart(operand)
        else:
            self.parts.append(coordinate)

    def twins(self) -> Iterator[Operator]:
        """The operators that put the same parts together in another order, by SPLITs nested alike."""
        for order in permutations(self.parts):
            if list(order) != self.parts:
                yield self._put_together(iter(order))

    def _put_together(self, parts: Iterator[Coordinate]) -> Operator:
        splits: list[Step] = []

        def made(coordinate: Coordinate) -> Coordinate:
            if coordinate.node not in self._nodes:
                return next(parts)
            high, low = (made(operand) for operand in coordinate.node.operands)
            splits.append(Step("SPLIT", (high, low)))
            (size,) = PRIMITIVES["SPLIT"].result_sizes((high.size, low.size), None)
            return Coordinate(Node("SPLIT", (high, low), None), 0, size)

        root = made(self.root)
        state = State.root(self.operator.spec)
        # The SPLITs come as late as can be: before a weight shares the axis.
        for step in self.operator.steps:
            if step.primitive == "SPLIT" and Node("SPLIT", step.operands, None) in self._nodes:
                continue
            if self.root in step.operands:
                state = _applied(state, splits)
                splits = []
                step = step._replace(operands=tuple(root if c == self.root else c for c in step.operands))
            state = state.apply(step)
        inputs = tuple(root if c == self.root else c for c in self.operator.inputs)
        return Operator(_applied(state, splits), inputs)


def _applied(state: State, steps: list[Step]) -> State:
    for step in steps:
        state = state.apply(step)
    return state
