"""The fast fingerprint against the whole table of terms: the same classes both ways, however an operator is written."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations, permutations
from math import prod

import pytest
from conv_operators import conv_operators
from strategies import random_operator, repro
from whole_fingerprint import whole_fingerprint

from syno_lab.commands.pgraphs.specs import load_spec
from syno_lab.common.size import Size
from syno_lab.errors import PrimitiveError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.fingerprint import distinct_key, fingerprint, fingerprint_binding
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import MAX_STEPS, Spec
from syno_lab.ir.state import State, Step

TINY_CONV = [
    {"N": 1, "C_in": 4, "C_out": 8, "H": 4, "W": 8, "k_1": 3, "k_2": 5, "s": 2, "g": 2},
    {"N": 1, "C_in": 2, "C_out": 4, "H": 6, "W": 4, "k_1": 2, "k_2": 3, "s": 2, "g": 2},  # even windows, K > g
]


def assert_same_classes(operators: Iterable[Operator], binding: dict[str, int]) -> int:
    """Two operators share the fast fingerprint exactly when they share the slow one; the number of classes."""
    slow_of: dict[str, dict[str, Operator]] = defaultdict(dict)
    fast_of: dict[str, dict[str, Operator]] = defaultdict(dict)
    for operator in operators:
        fast, slow = fingerprint(operator, binding), whole_fingerprint(operator, binding)
        slow_of[fast][slow] = fast_of[slow][fast] = operator
    for kind, classes in (("joined", slow_of), ("parted", fast_of)):
        for found in classes.values():
            texts = "\n".join(repro(operator, binding) for operator in found.values())
            assert len(found) == 1, f"the fast fingerprint {kind} what the whole table says otherwise:\n{texts}"
    return len(slow_of)


# -- all operators of small specs ------------------------------------------------------------------------------------

PRIMARY = ["C=4", "D=6", "H=8"]
EVERY = [
    # spec, sizes of REDUCEs, blocks of MERGEs, most steps, most views that cost most (SHIFT, EXPAND, STRIDE)
    (Spec.parse("[H]", "[H]", ["H=8"], ["s=2"]), ("s", "s^-1*H"), ("s", "s^-1*H"), 4),
    (Spec.parse("[C, H]", "[D, H]", PRIMARY, ["k=3"]), ("C", "k"), (), 4),
    (Spec.parse("[C, H]", "[D, H]", PRIMARY, ["s=2"], unordered=["C"]), ("s", "s^-1*C"), (), 4),
    (Spec.parse("[s*H]", "[H]", ["H=6"], ["s=2"]), ("s",), ("s",), 4),
    (Spec.parse("[]", "[H]", ["H=3"], ["k=2"]), ("k", "H"), (), 4),
]


@pytest.mark.parametrize(
    ("spec", "reduces", "blocks", "most"), EVERY, ids=lambda v: str(v) if isinstance(v, int) else ""
)
def test_all_operators_of_a_small_spec(spec: Spec, reduces: tuple, blocks: tuple, most: int) -> None:
    operators = list(every_operator(spec, reduces, blocks, most))
    classes = assert_same_classes(operators, spec.binding_maps[0])
    print(f"{len(operators)} operators, {classes} functions")
    assert 10 < classes < len(operators)


def every_operator(spec: Spec, reduces: tuple[str, ...], blocks: tuple[str, ...], most: int) -> Iterator[Operator]:
    """Every legal operator of at most ``most`` steps and two weights with these parameters, REDUCEs first."""
    level = {State.root(spec)}
    for taken in range(most + 1):
        for state in level:
            yield from (Operator(state, match) for match in state.matches())
        if taken < most:
            level = {after for state in level for after in followers(state, reduces, blocks)}


def followers(state: State, reduces: tuple[str, ...], blocks: tuple[str, ...]) -> Iterator[State]:
    size = state.spec.symbols.size
    steps = [Step("SPLIT", pair) for pair in permutations(state.data, 2)]
    steps += [Step("UNFOLD", pair) for pair in permutations(state.data, 2)]
    if len(state.reductions) == len(state.steps):
        steps += [Step("REDUCE", (), size(text)) for text in reduces]
    for coordinate in state.data:
        steps += [Step("MERGE", (coordinate,), size(text)) for text in blocks]
        steps += [Step(primitive, (coordinate,)) for primitive in ("SHIFT", "EXPAND")]
        steps += [Step("STRIDE", (coordinate,), size(name)) for name in state.spec.symbols.coefficient]
    if len(state.weights) < 2:
        for number in range(1, len(state.data) + 1):
            for shared in combinations(state.data, number):
                rest = [c for c in state.data if c not in shared]
                steps += [Step("SHARE", shared, given=g) for n in range(len(rest) + 1) for g in combinations(rest, n)]
    for step in steps:
        try:
            yield state.apply(step)
        except PrimitiveError:
            continue


# -- operators by chance ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("binding", TINY_CONV, ids=["odd", "even"])
def test_many_operators_of_the_conv_spec(rng: random.Random, binding: dict[str, int]) -> None:
    spec, _ = load_spec("conv-authors", weight_limits="free", max_primitives=12)
    drawn = conv_operators(spec, rng, 1200, least=1)
    few = [o for o in drawn if prod(c.size.at(binding) for c in (*o.output, *o.reductions)) < 20_000]
    assert assert_same_classes(few[:500], binding) > 150


def test_operators_alike_on_the_usual_binding_are_alike_on_others(rng: random.Random) -> None:
    spec, _ = load_spec("conv-authors", weight_limits="free", max_primitives=12)
    drawn = conv_operators(spec, rng, 600)
    tiny = TINY_CONV[0]
    few = [o for o in drawn if prod(c.size.at(tiny) for c in (*o.output, *o.reductions)) < 20_000]
    found: dict[object, str] = {}
    for operator in few:
        slow = whole_fingerprint(operator, tiny)
        assert found.setdefault(distinct_key(operator), slow) == slow, repro(operator, tiny)


@pytest.mark.parametrize("case", range(60))
def test_mutants_of_random_operators(rng: random.Random, case: int) -> None:
    """An operator, ways to write it, and small changes of it: what is equal and what is not, the table decides."""
    rng = random.Random(rng.random() + case)
    operator, binding = random_operator(rng, max_terms=800)
    family = [operator, *(rewritten(operator, binding, rng) for _ in range(3))]
    family += [m for m in (mutant(operator, rng) for _ in range(12)) if m is not None]
    if rng.random() < 0.3 and operator.spec.input_shape:
        free = (str(rng.choice(operator.spec.input_shape)),)
        family = [on_spec(o, replace(o.spec, unordered=free)) for o in family]
    assert_same_classes(family, binding)


@pytest.mark.parametrize("case", range(60))
def test_rewriting_does_not_show(rng: random.Random, case: int) -> None:
    rng = random.Random(rng.random() + case)
    operator, binding = random_operator(rng, max_terms=2000)
    other = rewritten(operator, binding, rng)
    assert fingerprint(other, binding) == fingerprint(operator, binding), repro(other, binding)


def test_rewriting_does_not_show_on_the_conv_spec(rng: random.Random) -> None:
    spec, _ = load_spec("conv-authors", weight_limits="free", max_primitives=12)
    binding = fingerprint_binding(spec)
    for operator in conv_operators(spec, rng, 40):
        other = rewritten(operator, binding, rng, most_shifts=0)
        assert distinct_key(other) == distinct_key(operator), repro(other, binding)


def on_spec(operator: Operator, spec: Spec) -> Operator:
    """The same steps on another spec of the same shapes."""
    state = State.root(spec)
    for step in operator.steps:
        state = state.apply(step)
    return Operator(state, operator.inputs)


def rewritten(operator: Operator, binding: dict[str, int], rng: random.Random, most_shifts: int = 8) -> Operator:
    """The same function: idle steps in between, that connect what was apart and are not always undone in symbols."""
    state = State.root(operator.spec)
    now: dict[Coordinate, Coordinate] = {c: c for c in operator.output}
    reductions = iter(operator.reductions)
    weights_first = rng.random() < 0.5
    todo = list(operator.steps)
    while todo:
        number = 0
        if weights_first:  # contractions as early as their coordinates are there, which renumbers the weights
            ready = [
                i
                for i, step in enumerate(todo)
                if step.primitive == "SHARE" and all(now.get(c) in state.data for c in step.operands + step.given)
            ]
            crossed = [i for i in ready if not any(set(todo[i].given) & set(s.operands) for s in todo[:i])]
            number = crossed[-1] if crossed else 0
        step = todo.pop(number)
        moved = step._replace(operands=tuple(now[c] for c in step.operands), given=tuple(now[c] for c in step.given))
        olds = (next(reductions),) if step.primitive == "REDUCE" else operator.state.results(step)
        news = state.results(moved)
        state = state.apply(moved)
        now.update(zip(olds, news, strict=True))
        if rng.random() < 0.5 and len(state.steps) + len(todo) + most_shifts + 2 <= MAX_STEPS:
            state = idle(state, now, binding, rng, most_shifts)
    return Operator(state, tuple(now[c] for c in operator.inputs))


def idle(
    state: State, now: dict[Coordinate, Coordinate], binding: dict[str, int], rng: random.Random, most_shifts: int
) -> State:
    """Steps that change nothing: MERGE and SPLIT back, SPLIT, as many SHIFTs as the size is, and MERGE back."""
    names = {new: old for old, new in now.items()}
    usable = [c for c in state.data if c not in state.fixed and c.node.primitive != "STRIDE" and c in names]
    rng.shuffle(usable)
    try:
        if len(usable) > 1 and rng.random() < 0.6:
            one, two = usable[:2]
            whole = one.size * two.size
            after = state.apply(Step("SPLIT", (one, two)))
            top = after.data[-1]
            if rng.random() < 0.7 and whole.at(binding) <= most_shifts:
                for _ in range(whole.at(binding)):
                    after = after.apply(Step("SHIFT", (top,)))
                    top = after.data[-1]
            after = after.apply(Step("MERGE", (top,), two.size))
            now[names[one]], now[names[two]] = after.data[-2:]
            return after
        block = blocks_of(usable[0], binding)
        if block is None:
            return state
        after = state.apply(Step("MERGE", (usable[0],), block))
        after = after.apply(Step("SPLIT", after.data[-2:]))
        now[names[usable[0]]] = after.data[-1]
        return after
    except (PrimitiveError, IndexError):
        return state


def blocks_of(coordinate: Coordinate, binding: dict[str, int]) -> Size | None:
    symbols = coordinate.size.symbols
    for name in symbols.coefficient:
        block = symbols.size(name)
        if (coordinate.size / block).is_plausible and (coordinate.size / block).is_integral(binding):
            return block
    return None


def mutant(operator: Operator, rng: random.Random) -> Operator | None:
    """A small change of meaning, most of the time: one step changed, left out or added, an input axis shifted."""
    steps = list(operator.steps)
    place = rng.randrange(len(steps) + 1)
    change = rng.choice(("swap", "share", "unshare", "give", "shift"))
    state = State.root(operator.spec)
    now = {c: c for c in operator.output}
    reductions = iter(operator.reductions)
    try:
        for i, step in enumerate([*steps, None]):
            if i == place and change == "shift":
                old = rng.choice([c for c in now if now[c] in state.data and now[c] not in state.fixed])
                state = state.apply(Step("SHIFT", (now[old],)))
                now[old] = state.data[-1]
            if step is None:
                break
            operands, given = tuple(now[c] for c in step.operands), tuple(now[c] for c in step.given)
            if i == place and change == "swap" and step.primitive != "SHARE":
                operands = operands[::-1]
            if step.primitive == "SHARE" and change == "share" and i >= place:
                more = [c for c in state.data if c not in operands + given and c not in state.fixed]
                operands += tuple(c for c in more if rng.random() < 0.3)
            if step.primitive == "SHARE" and change == "unshare" and i >= place:
                operands = operands[:-1]
            moved = step._replace(operands=operands, given=given)
            olds = (next(reductions),) if step.primitive == "REDUCE" else operator.state.results(step)
            news = state.results(moved)
            state = state.apply(moved)
            now.update(zip(olds, news, strict=True))
            if i == place and change == "give" and len(state.data) > 1:
                shared = rng.choice([c for c in state.data if c not in state.fixed])
                state = state.apply(Step("SHARE", (shared,)))
        inputs = tuple(now[c] for c in operator.inputs)
        return Operator(state, inputs) if state.is_match(inputs) else None
    except (PrimitiveError, IndexError):
        return None
