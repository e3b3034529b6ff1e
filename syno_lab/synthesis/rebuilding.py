"""A pGraph built anew: over another spec's variables, with its steps in another order, and otherwise the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, permutations, product

from syno_lab.common.size import Size, Symbols
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.parameters import reduce_sizes

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
        moved = Step(
            step.primitive,
            tuple([new[c] for c in step.operands]),
            None if step.parameter is None else translated(step.parameter, spec.symbols, known),
            tuple([new[c] for c in step.given]),
        )
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


def steps_taken(operator: Operator) -> list[Taken]:
    """Its steps in their order, each with the coordinates that it makes."""
    state = State.root(operator.spec)
    taken = []
    for step in operator.steps:
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
