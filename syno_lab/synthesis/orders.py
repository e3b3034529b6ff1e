"""Rebuild a pGraph over other variables or with another order of steps, and look for a canonical order.

Names of variables and the order of steps do not change a pGraph. A pGraph is canonical if its steps have an order in
which no rule rejects any step (Syno, section 9.4).

Unordered input axes: of pGraphs that differ only in the inner order of an unordered axis, search keeps one.

Positions along an unordered axis may be renamed. Only the parts of the axis's coordinate matter, not their order. The
coordinate of an unordered axis contains no SHIFT, and not both digits of a MERGE that no weight shares, because the
undivided coordinate is equivalent. If a weight shares only the low digit of a SHIFT, the coordinate does not contain
both digits. Of all orders in which SPLITs may join the parts, the least canonical order represents all. Permutations
change no shape, so the distance to an unordered axis is the distance to any other axis of its size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain, permutations, product

from syno_lab.common.size import Size, Symbols
from syno_lab.effort import Effort
from syno_lab.errors import PrimitiveError, SynoError
from syno_lab.ir.coordinate import Coordinate, Node
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import Key, State, Step
from syno_lab.synthesis.budgets import fits
from syno_lab.synthesis.rules import RULES, Rule, rejecting_rule
from syno_lab.synthesis.space import reduce_sizes, sums_no_weights

#: A step and the coordinates that it adds.
Taken = tuple[Step, tuple[Coordinate, ...]]


def rebuilt(
    operator: Operator, spec: Spec, names: Mapping[str, str] | None = None, taken: Sequence[Taken] | None = None
) -> Operator:
    """Rebuild the operator over ``spec``; ``names`` maps its variables to the spec's variables (default: equal names).

    The input match stays the same for any input shape of the spec. ``taken`` holds steps to take instead of the
    operator's own, each with its coordinates.

    Raises:
        KeyError: a variable is missing in the spec.
        SynoError: a step is not legal over the spec.
        ValueError: the outputs have different numbers of axes.
    """
    known = {name: name for name in operator.spec.symbols.names} if names is None else names
    state = State.root(spec)
    new: dict[Coordinate, Coordinate] = dict(zip(operator.output, state.output, strict=True))
    for step, results in steps_taken(operator) if taken is None else taken:
        parameter = None if step.parameter is None else translated(step.parameter, spec.symbols, known)
        moved = over(step, new)._replace(parameter=parameter)
        new.update(zip(results, state.results(moved), strict=True))
        state = state.apply(moved)
    return Operator(state, tuple([new[c] for c in operator.inputs]))


def arrangements(operator: Operator, spec: Spec) -> Iterator[Operator]:
    """Yield equal forms of the operator over ``spec`` that a space may contain; see :func:`rebuilt`.

    The REDUCEs come first, in the order of :func:`.reduce_sizes`; REDUCEs of equal sizes come in every order. If the
    space lacks a REDUCE of a size, no form is yielded. A weight over two coordinates that a later SPLIT joins gets the
    joined coordinate instead, as the rule view-above-share demands. Errors are those of :func:`rebuilt`.
    """
    steps = _shared_when_made(steps_taken(operator))
    rest = [item for item in steps if item[0].primitive != "REDUCE"]
    names = {name: name for name in operator.spec.symbols.names}
    alike: dict[Size, list[Taken]] = {size: [] for size in reduce_sizes(spec)}
    for item in steps:
        if item[0].primitive == "REDUCE" and item[0].parameter is not None:
            size = translated(item[0].parameter, spec.symbols, names)
            if size not in alike:
                return
            alike[size].append(item)
    for orders in product(*(permutations(group) for group in alike.values())):
        yield rebuilt(operator, spec, taken=[*chain.from_iterable(orders), *rest])


def over(step: Step, new: Mapping[Coordinate, Coordinate]) -> Step:
    """Replace the coordinates of a step by the mapping ``new``."""
    return step._replace(operands=tuple([new[c] for c in step.operands]), given=tuple([new[c] for c in step.given]))


def steps_taken(whole: Operator | State) -> list[Taken]:
    """Return the steps of an operator or a state in their order, each with the coordinates that it adds."""
    state = State.root(whole.spec)
    steps = []
    for step in whole.steps:
        steps.append((step, state.results(step)))
        state = state.apply(step)
    return steps


def translated(size: Size, symbols: Symbols, names: Mapping[str, str]) -> Size:
    """Rename a size's variables; raise KeyError for a variable without a new name."""
    exponents = [0] * len(symbols.names)
    for name, power in size.factors.items():
        exponents[symbols.position[names[name]]] = power
    return Size(symbols, tuple(exponents))


def _shared_when_made(steps: list[Taken]) -> list[Taken]:
    """Move each SPLIT before the weights that share both its operands, and let them share its result.

    A weight over (a, b) and a weight over the coordinate that joins a and b both have an element for each pair.
    """
    for place, (split, results) in enumerate(steps):
        if split.primitive != "SPLIT":
            continue
        operands = set(split.operands)
        weights = [i for i, (step, _) in enumerate(steps[:place]) if operands & set(step.operands)]
        if not weights or not all(operands <= set(steps[i][0].operands) for i in weights):
            continue
        changed = list(steps)
        for i in weights:
            step, old = steps[i]
            changed[i] = (step._replace(operands=(*(c for c in step.operands if c not in operands), *results)), old)
        del changed[place]
        changed.insert(weights[0], (split, results))
        return _shared_when_made(changed)
    return steps


def recognise(operator: Operator, known: Mapping[str, Callable[[], Operator]]) -> str | None:
    """Return the name of the first known operator with the same pGraph up to variables' names, or None."""
    return next((name for name, make in known.items() if is_same_pgraph(operator, make())), None)


def is_same_pgraph(operator: Operator, other: Operator) -> bool:
    """Return whether two operators have the same pGraph and input match, up to names of variables and reductions.

    Budgets, bindings, unused variables and the marks of fixed axes make no difference.
    """
    if _outline(operator) != _outline(other):
        return False
    return any(_key_after(other, operator, names) == operator.key for names in _renamings(other, operator))


def _outline(operator: Operator) -> tuple[object, ...]:
    """Return facts without names for a quick comparison: the numbers of axes, and each step's numbers of operands."""
    steps = sorted((s.primitive, len(s.operands), len(s.given)) for s in operator.steps)
    return len(operator.inputs), len(operator.output), len(operator.reductions), tuple(steps)


def _used(operator: Operator) -> tuple[list[str], list[str]]:
    """Return the primary and the coefficient variables that occur."""
    symbols = operator.spec.symbols
    sizes = [c.size for c in (*operator.inputs, *operator.output)]
    sizes += [step.parameter for step in operator.steps if step.parameter is not None]
    occurs = [any(size.exponents[i] for size in sizes) for i in range(len(symbols.names))]
    used = [name for name, is_used in zip(symbols.names, occurs, strict=True) if is_used]
    return [n for n in used if n in symbols.primary], [n for n in used if n in symbols.coefficient]


def _renamings(source: Operator, target: Operator) -> Iterator[dict[str, str]]:
    """Yield all renamings of the source's variables; the plain axes of output and input fix most of the names."""
    settled: dict[str, str] = {}
    pairs = [*zip(source.output, target.output, strict=True), *zip(source.inputs, target.inputs, strict=True)]
    for a, b in pairs:
        left, right = a.size.factors, b.size.factors
        if sorted(left.values()) != sorted(right.values()):
            return
        if len(left) == 1:
            (name,), (called,) = left, right
            if settled.setdefault(name, called) != called:
                return
    if len(set(settled.values())) != len(settled):
        return
    (primary, coefficient), (to_primary, to_coefficient) = _used(source), _used(target)
    if len(primary) != len(to_primary) or len(coefficient) != len(to_coefficient):
        return
    for first in _complete(primary, to_primary, settled):
        for second in _complete(coefficient, to_coefficient, settled):
            yield {**first, **second}


def _complete(names: list[str], to: list[str], settled: dict[str, str]) -> Iterator[dict[str, str]]:
    fixed = {name: settled[name] for name in names if name in settled}
    if not set(fixed.values()) <= set(to):
        return
    open_names = [name for name in names if name not in fixed]
    rest = [name for name in to if name not in fixed.values()]
    for chosen in permutations(rest):
        yield {**fixed, **dict(zip(open_names, chosen, strict=True))}


def _key_after(source: Operator, target: Operator, names: dict[str, str]) -> Key | None:
    """Return the key of ``source`` rebuilt over the target's spec; None if this is impossible."""
    try:
        return rebuilt(source, target.spec, names).key
    except SynoError:  # A step is illegal over the other spec, so the operators differ.
        return None


def has_canonical_order(state: State, rules: tuple[Rule, ...] = RULES, *, effort: Effort | None = None) -> bool:
    """Return whether the steps of ``state`` have an order in which no rule rejects any step.

    Raises EffortError when ``effort`` is exceeded.
    """
    watched = effort or Effort()
    items = steps_taken(state)
    everything = (1 << len(items)) - 1
    hopeless: set[tuple[int, int]] = set()  # sets of taken steps, each with its last step, as rules read a state's top

    def walk(current: State, known: dict[Coordinate, Coordinate], done: int) -> bool:
        watched.tick("looking for a canonical order of steps")
        if done == everything:
            return True
        for place, (step, results) in enumerate(items):
            after_this = done | 1 << place
            if done >> place & 1 or (after_this, place) in hopeless:
                continue
            if not all(c in known for c in step.operands + step.given):
                continue
            moved = over(step, known)
            try:
                after = current.apply(moved)
            except PrimitiveError:
                continue  # a coordinate of the step is no longer on top
            if rejecting_rule(current, moved, rules) is None:
                added = dict(zip(results, current.results(moved), strict=True))
                if walk(after, known | added, after_this):
                    return True
            hopeless.add((after_this, place))
        return False

    root = State.root(state.spec)
    return walk(root, {c: c for c in root.data}, 0)


def judge(state: State, rules: tuple[Rule, ...], *, effort: Effort | None = None) -> tuple[bool, str | None]:
    """Return whether an order is canonical, and the name of the first rule that rejects a step in ``state``'s order."""
    current = State.root(state.spec)
    for step in state.steps:
        rule = rejecting_rule(current, step, rules)
        if rule is not None:
            return has_canonical_order(state, rules, effort=effort), rule.name
        current = current.apply(step)
    return True, None


def is_in_order(operator: Operator, rules: tuple[Rule, ...] = RULES, *, effort: Effort | None = None) -> bool:
    """Return whether a canonical operator represents all inner orders of its unordered axes.

    Raises EffortError when ``effort`` is exceeded.
    """
    watched = effort or Effort()
    return all(
        _stands_for_all(operator, axis, rules, watched)
        for axis in operator.spec.free_axes
        if axis in operator.spec.matched
    )


def is_operator(state: State) -> bool:
    """Return whether search would find this state, apart from rules: complete, in the space, within all budgets."""
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
        # Only a weight indexes the low digit, and the elements of a weight have no order either.
        if is_pair and (not digits[node, 1] or node.operands[0].node.primitive == "SHIFT"):
            return False
    for twin in tree.twins():
        effort.tick("comparing inner orders of an unordered axis")
        if twin.key < operator.key and has_canonical_order(twin.state, rules, effort=effort):
            return False
    return True


class _Tree:
    """The SPLITs that build an input axis from parts. A part is no SPLIT, or a weight shares it."""

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
        """Yield the operators that join the same parts in another order, with the same nesting of SPLITs."""
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
        # Place the SPLITs as late as possible: before a weight shares the axis.
        for step in self.operator.steps:
            if step.primitive == "SPLIT" and Node("SPLIT", step.operands, None) in self._nodes:
                continue
            if self.root in step.operands:
                state, splits = reduce(State.apply, splits, state), []
                step = step._replace(operands=tuple(root if c == self.root else c for c in step.operands))
            state = state.apply(step)
        inputs = tuple(root if c == self.root else c for c in self.operator.inputs)
        return Operator(reduce(State.apply, splits, state), inputs)
