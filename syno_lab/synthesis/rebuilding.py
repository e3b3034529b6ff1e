"""A pGraph built anew: over another spec's variables, with its steps in another order, and otherwise the same.

And whether two pGraphs are the same that way: names of variables and the order of steps make no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, permutations, product

from syno_lab.common.size import Size, Symbols
from syno_lab.errors import SynoError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.keys import Key
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.space import reduce_sizes

#: A step and the coordinates that it makes.
Taken = tuple[Step, tuple[Coordinate, ...]]


def rebuilt(
    operator: Operator, spec: Spec, names: Mapping[str, str] | None = None, taken: Sequence[Taken] | None = None
) -> Operator:
    """The operator over ``spec``, with its variables called by ``names`` there; without it as they are.

    The input match is as it was, whatever the spec's input shape. ``taken``: what is done instead of its steps, with
    its coordinates.

    Raises:
        KeyError: for a variable that the spec does not have.
        SynoError: where a step is not legal over the spec.
        ValueError: for an output with another number of axes.
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
    """The operator over ``spec`` in ways that compute the same and that a space may have it in; see :func:`rebuilt`.

    Its REDUCEs come first and in the order of :func:`.reduce_sizes`, those of equal sizes in every order; none where it
    has one of another size. A weight over two coordinates that a SPLIT puts together afterwards is one over what they
    make, as the rule view-above-share wants it. It raises as :func:`rebuilt` does.
    """
    taken = _shared_when_made(steps_taken(operator))
    others = [one for one in taken if one[0].primitive != "REDUCE"]
    names = {name: name for name in operator.spec.symbols.names}
    alike: dict[Size, list[Taken]] = {size: [] for size in reduce_sizes(spec)}
    for one in taken:
        if one[0].primitive == "REDUCE" and one[0].parameter is not None:
            size = translated(one[0].parameter, spec.symbols, names)
            if size not in alike:
                return
            alike[size].append(one)
    for orders in product(*(permutations(group) for group in alike.values())):
        yield rebuilt(operator, spec, taken=[*chain.from_iterable(orders), *others])


def over(step: Step, new: Mapping[Coordinate, Coordinate]) -> Step:
    """A step with its coordinates replaced by those that stand for them."""
    return step._replace(operands=tuple([new[c] for c in step.operands]), given=tuple([new[c] for c in step.given]))


def steps_taken(whole: Operator | State) -> list[Taken]:
    """The steps of an operator or a state in their order, each with the coordinates that it makes."""
    state = State.root(whole.spec)
    taken = []
    for step in whole.steps:
        taken.append((step, state.results(step)))
        state = state.apply(step)
    return taken


def translated(size: Size, symbols: Symbols, names: Mapping[str, str]) -> Size:
    """A size over other variables, each called by its name there; KeyError where there is none."""
    exponents = [0] * len(symbols.names)
    for name, power in zip(size.symbols.names, size.exponents, strict=True):
        if power:
            exponents[symbols.position[names[name]]] = power
    return Size(symbols, tuple(exponents))


def _shared_when_made(taken: list[Taken]) -> list[Taken]:
    """``taken`` with each SPLIT whose operands both go into the same weights done before these, and its result there.

    A weight over (a, b) has an element for each pair, and so has one over the coordinate that a and b make.
    """
    for place, (split, results) in enumerate(taken):
        if split.primitive != "SPLIT":
            continue
        operands = set(split.operands)
        weights = [i for i, (step, _) in enumerate(taken[:place]) if operands & set(step.operands)]
        if not weights or not all(operands <= set(taken[i][0].operands) for i in weights):
            continue
        changed = list(taken)
        for i in weights:
            step, made = taken[i]
            changed[i] = (step._replace(operands=(*(c for c in step.operands if c not in operands), *results)), made)
        del changed[place]
        changed.insert(weights[0], (split, results))
        return _shared_when_made(changed)
    return taken


def recognise(operator: Operator, known: Mapping[str, Callable[[], Operator]]) -> str | None:
    """The name of the first known operator with the same pGraph, up to renaming variables; None for none."""
    for name, make in known.items():
        if is_same_pgraph(operator, make()):
            return name
    return None


def is_same_pgraph(operator: Operator, other: Operator) -> bool:
    """Whether two operators have the same pGraph and input match, up to renaming variables and reductions.

    Budgets, bindings and variables that do not occur make no difference, and neither do axes marked as fixed.
    """
    if _outline(operator) != _outline(other):
        return False
    return any(_key_after(other, operator, names) == operator.key for names in _renamings(other, operator))


def _outline(operator: Operator) -> tuple[object, ...]:
    """Cheap and independent of names: axes, and how often each primitive is used with how many operands."""
    steps = sorted((s.primitive, len(s.operands), len(s.given)) for s in operator.steps)
    return len(operator.inputs), len(operator.output), len(operator.reductions), tuple(steps)


def _used(operator: Operator) -> tuple[list[str], list[str]]:
    """The primary and the coefficient variables that occur."""
    symbols = operator.spec.symbols
    sizes = [c.size for c in (*operator.inputs, *operator.output)]
    sizes += [step.parameter for step in operator.steps if step.parameter is not None]
    occurs = [any(size.exponents[i] for size in sizes) for i in range(len(symbols.names))]
    used = [name for name, is_used in zip(symbols.names, occurs, strict=True) if is_used]
    return [n for n in used if n in symbols.primary], [n for n in used if n in symbols.coefficient]


def _renamings(source: Operator, target: Operator) -> Iterator[dict[str, str]]:
    """All ways to call the source's variables by the target's names; the output's plain axes settle most of them."""
    settled: dict[str, str] = {}
    pairs = [*zip(source.output, target.output, strict=True), *zip(source.inputs, target.inputs, strict=True)]
    for one, other in pairs:
        left, right = _factors(one.size), _factors(other.size)
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


def _factors(size: Size) -> dict[str, int]:
    return {name: power for name, power in zip(size.symbols.names, size.exponents, strict=True) if power}


def _key_after(source: Operator, target: Operator, names: dict[str, str]) -> Key | None:
    """The key of ``source`` built anew over the target's spec; None where that is not possible."""
    try:
        return rebuilt(source, target.spec, names).key
    except SynoError:  # not legal over the other spec, so it is not the same
        return None
