"""Make a failing operator smaller while it still fails: fewer axes, steps and weights, then smaller sizes.

Every attempt is built again through the checks of the IR, so that what is left is a legal operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from strategies import on_what_is_left

from syno_lab.common.size import Size, Symbols
from syno_lab.errors import SynoError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from trust.sources import Case, is_small

#: Attempts to fail again, so that a slow failure does not hold up a run.
MAX_ATTEMPTS = 600


@dataclass(frozen=True)
class Edit:
    """One change to an operator; ``place`` numbers steps, axes or operands as the kind says.

    Kinds: ``axis`` drops an output axis, ``step`` a step (``which`` of its coordinates stays in the place of what it
    made), ``operand`` what a SHARE names; ``open`` makes an output axis of what a REDUCE sums; ``size`` gives an output
    axis another size and ``parameter`` a step another parameter; ``variables`` forgets those that nothing uses.
    """

    kind: str
    place: int = 0
    which: int = 0
    size: Size | None = None


def shrink(case: Case, fails: Callable[[Case], bool]) -> Case:
    """The smallest case that greedy changes lead to and for which ``fails`` still holds, as it does for ``case``."""
    attempts = 0
    best, found = case, True
    while found:
        found = False
        for smaller in _smaller(best):
            if attempts == MAX_ATTEMPTS:
                return best
            attempts += 1
            if fails(smaller):
                best, found = smaller, True
                break
    return best


def _smaller(case: Case) -> Iterator[Case]:
    """Legal cases one change away that are smaller, the largest changes first."""
    measure = _measure(case.operator, case.binding)
    for edit in _edits(case.operator):
        try:
            operator = edited(case.operator, edit)
        except SynoError:
            continue
        binding = {name: case.binding[name] for name in operator.spec.symbols.names}
        if _fits(operator, binding) and _measure(operator, binding) < measure:
            yield replace(case, text=operator.to_json(), binding=binding)
    for name, number in case.binding.items():
        for fewer in range(1, number):
            binding = case.binding | {name: fewer}
            if _fits(case.operator, binding):
                yield replace(case, binding=binding)


def _edits(operator: Operator) -> Iterator[Edit]:
    steps, symbols = operator.steps, operator.spec.symbols
    yield from (Edit("axis", axis) for axis in range(len(operator.output)))
    for place in reversed(range(len(steps))):
        yield from (Edit("step", place, which) for which in range(2 if steps[place].primitive in _TWO_WAYS else 1))
    yield from (Edit("open", place) for place, step in enumerate(steps) if step.primitive == "REDUCE")
    for place, step in enumerate(steps):
        if step.primitive == "SHARE":
            yield from (Edit("operand", place, which) for which in range(len(step.operands + step.given)))
    simple = [symbols.one, *(symbols.size(name) for name in symbols.names)]
    for axis in range(len(operator.output)):
        yield from (Edit("size", axis, size=size) for size in simple)
    for place, step in enumerate(steps):
        if step.parameter is not None:
            yield from (Edit("parameter", place, size=size) for size in simple)
    yield Edit("variables")


#: Where a view is left out, either of two coordinates can stand for the other side.
_TWO_WAYS = ("SPLIT", "MERGE")


def edited(operator: Operator, edit: Edit) -> Operator:
    """``operator`` with one change, and with whatever else that makes impossible left out.

    Raises:
        SynoError: when no legal operator is left.
    """
    spec = _edited_spec(operator, edit)
    state = State.root(spec)
    # What stands for each coordinate of the old operator now; None: nothing does.
    now: dict[Coordinate, Coordinate | None] = {}
    kept = [axis for axis in range(len(operator.output)) if not (edit.kind == "axis" and axis == edit.place)]
    now.update(zip((operator.output[axis] for axis in kept), state.output[: len(kept)], strict=True))
    old = State.root(operator.spec)
    for place, step in enumerate(operator.steps):
        results = old.results(step)
        old = old.apply(step)
        if edit.kind == "open" and place == edit.place:
            now[results[0]] = state.output[-1]
            continue
        operands, given = ([now.get(c) for c in named] for named in (step.operands, step.given))
        gone = edit.kind == "step" and place == edit.place
        if edit.kind == "operand" and place == edit.place:
            both = [*operands, *given]
            both[edit.which] = None
            operands, given = both[: len(operands)], both[len(operands) :]
        if step.primitive == "SHARE":
            operands = [c for c in operands if c is not None]
        parameter = edit.size if edit.kind == "parameter" and place == edit.place else step.parameter
        try:
            if gone or None in operands:
                raise SynoError("a step is left out")
            new = Step(step.primitive, tuple(filter(None, operands)), _over(spec, parameter), _present(given))
            after = state.apply(new)
            now.update(zip(results, state.results(new), strict=True))
            state = after
        except SynoError:
            stays = [c for c in operands if c in state.data]
            if step.primitive in _TWO_WAYS and edit.which and gone:
                stays.reverse()
            place_of = edit.which if step.primitive == "MERGE" and gone else 0
            now.update({r: stays[0] if stays and i == place_of else None for i, r in enumerate(results)})
    for coordinate in state.data:
        if coordinate.node.primitive == "STRIDE":
            state = state.apply(Step("EXPAND", (coordinate,)))
    first = [c for c in map(now.get, operator.inputs) if c in state.data]
    inputs = list(dict.fromkeys(c for c in [*first, *state.data] if c is not None))
    return on_what_is_left(state, inputs)


def _present(coordinates: list[Coordinate | None]) -> tuple[Coordinate, ...]:
    return tuple(c for c in coordinates if c is not None)


def _over(spec: Spec, size: Size | None) -> Size | None:
    """The same size over the variables of ``spec``."""
    return None if size is None else spec.symbols.size(str(size))


def _edited_spec(operator: Operator, edit: Edit) -> Spec:
    """Output shape and variables after ``edit``; the input is a stand-in until it is known what is left."""
    spec = operator.spec
    if edit.kind == "variables":
        spec = _with_used_variables(operator)
    outputs = list(spec.output_shape)
    fixed = {out for _, out in spec.fixed_io_pairs}
    if edit.kind == "axis":
        del outputs[edit.place]
        fixed = {out - (out > edit.place) for out in fixed if out != edit.place}
    if edit.kind == "size":
        assert edit.size is not None
        outputs[edit.place] = edit.size
    if edit.kind == "open":
        summed = operator.steps[edit.place].parameter
        assert summed is not None
        outputs.append(summed)
    inputs = [outputs[out] for out in sorted(fixed)]
    return replace(
        spec,
        input_shape=tuple(inputs),
        output_shape=tuple(outputs),
        fixed_io_pairs=tuple((i, out) for i, out in enumerate(sorted(fixed))),
        unordered=(),
        bindings=(),
    )


def _with_used_variables(operator: Operator) -> Spec:
    spec, symbols = operator.spec, operator.spec.symbols
    used = {
        name for size in _sizes(operator) for name, power in zip(symbols.names, size.exponents, strict=True) if power
    }
    fewer = Symbols(
        *(tuple(name for name in names if name in used) for names in (symbols.primary, symbols.coefficient))
    )
    return replace(
        spec,
        symbols=fewer,
        input_shape=tuple(fewer.size(str(size)) for size in spec.input_shape),
        output_shape=tuple(fewer.size(str(size)) for size in spec.output_shape),
        variables=tuple(variable for variable in spec.variables if variable.name in used),
    )


def _sizes(operator: Operator) -> list[Size]:
    """The size of every coordinate, and every parameter."""
    steps = operator.steps
    made = [c.size for step in steps if step.primitive != "REDUCE" for c in operator.state.results(step)]
    made += [step.parameter for step in steps if step.parameter is not None]
    return [*operator.spec.output_shape, *(c.size for c in operator.reductions), *made]


def _fits(operator: Operator, binding: dict[str, int]) -> bool:
    return all(size.is_integral(binding) for size in _sizes(operator)) and is_small(operator, binding)


def _measure(operator: Operator, binding: dict[str, int]) -> tuple[int, ...]:
    """What shrinking makes smaller, what counts most first."""
    return (
        len(operator.steps),
        len(operator.output) + sum(len(step.operands + step.given) for step in operator.steps),
        sum(abs(power) for size in _sizes(operator) for power in size.exponents),
        sum(binding.values()),
        len(operator.spec.symbols.names),
    )
