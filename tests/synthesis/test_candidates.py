"""Candidates made lazily are those that are listed one by one, with their verdicts and distances."""

import random
from collections.abc import Iterator

import pytest

from syno_lab.commands.pgraphs.specs import load_spec
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.pgraphs import menu
from syno_lab.synthesis.budgets import excess
from syno_lab.synthesis.candidates import candidates
from syno_lab.synthesis.distance import distance
from syno_lab.synthesis.rules import Rule, rejecting_rule
from syno_lab.synthesis.space import occurrences, proposals

SHAPES = ("[C, H]", "[D, H]", ["C=12: 1", "D=10: 1", "H=6: 0"], ["k=3: 1", "s=2: 1"])
SMALL = [
    Spec.parse(*SHAPES, max_primitives=4, max_tensors=3, weight_limits="free"),
    Spec.parse(*SHAPES, max_primitives=4, max_tensors=3, weight_limits="primary"),
    Spec.parse(*SHAPES, max_primitives=4, max_tensors=3, max_flops=2_000, max_params=60),
]


def contractions(state: State) -> Iterator[Step]:
    """Every CONTRACTION by its definition: each coordinate is shared, given or neither, and one at least is shared."""
    limits = state.spec.limits
    used = sum(step.primitive == "SHARE" for step in state.steps)
    if len(state.steps) >= limits.max_primitives or used >= (limits.of("SHARE") or 0):
        return
    free = [c for c in state.data if c not in state.fixed and c.node.primitive != "STRIDE"]
    spent = occurrences(state)
    for number in range(3 ** len(free)):
        digits = [number // 3**place % 3 for place in range(len(free))]
        shared = tuple(c for c, digit in zip(free, digits, strict=True) if digit == 1)
        given = tuple(c for c, digit in zip(free, digits, strict=True) if digit == 2)
        total = list(spent)
        if state.spec.weight_limits == "primary":
            for c in shared + given:
                for place, power in enumerate(c.size.primary_exponents):  # primaries come first
                    total[place] += abs(power)
        limited = zip(total, state.spec.occurrence_limits.values(), strict=True)
        if shared and all(limit is None or amount <= limit for amount, limit in limited):
            yield Step("SHARE", shared, None, given)


def budget(state: State) -> str | None:
    """The budget that no operator from here on meets; None for none."""
    found = excess(state)
    return None if found is None else found.name


def check(state: State, picks: random.Random, most: int = 10**9) -> None:
    found = candidates(state)
    every = list(found)
    assert len(found) == len(every)
    for place in range(-len(every), len(every)):
        assert (found[place].step, found[place].distance) == (every[place].step, every[place].distance)
    steps = list(proposals(state))
    assert len(steps) == len(set(steps))
    assert {c.step for c in every} == set(steps)
    assert len(every) == len(steps)
    assert {s for s in steps if s.primitive == "SHARE"} == set(contractions(state))
    far = [(c.distance is None, c.distance or 0) for c in every]
    assert far == sorted(far)
    for primitive, ranges in found.places().items():
        mine = [place for some in ranges for place in some]
        assert mine == [place for place, c in enumerate(every) if c.primitive == primitive]
    for c in every if len(every) <= most else picks.sample(every, most):
        rule = rejecting_rule(state, c.step)
        after = state.apply(c.step)
        assert c.distance == distance(after)
        if rule is not None or c.verdict.canonical:
            assert c.verdict.rejected_by == rule
        if c.verdict.canonical:
            assert rule is None
        elif rule is None:
            assert c.verdict.rejected_by is not None
            assert c.verdict.rejected_by.kind == "budget"
            # After this step no REDUCE may come, so bounds can be higher than those of the state by itself.
            assert c.primitive != "REDUCE" or c.verdict.rule == budget(after)
        if c.primitive == "SHARE":
            same = found.of_contraction(c.operands[::-1], c.given[::-1])
            assert same is not None
            assert (same.step, same.distance, same.verdict.rule) == (c.step, c.distance, c.verdict.rule)
    assert found.of_contraction((), ()) is None


@pytest.mark.parametrize("spec", SMALL, ids=["free", "primary", "budgets"])
def test_every_state_of_a_small_space(spec: Spec) -> None:
    rng = random.Random(1)
    states = {State.root(spec)}
    for depth in range(spec.limits.max_primitives + 1):
        print(f"{len(states)} states after {depth} steps")
        for state in states:
            check(state, rng, 25)
        behind = {state.apply(step) for state in states for step in proposals(state)}
        # From the third step on there are too many: some of them.
        states = behind if len(behind) <= 60 else set(rng.sample(sorted(behind, key=repr), 60))


def test_states_on_random_ways_through_the_conv_spec() -> None:
    rng = random.Random(2)
    spec = load_spec("conv", max_primitives=10, weight_limits="free")[0]
    for _ in range(4):
        state = State.root(spec)
        while len(state.steps) < 6:
            check(state, rng, 20)
            steps: dict[str, list[Step]] = {}
            for step in proposals(state):
                steps.setdefault(step.primitive, []).append(step)
            state = state.apply(rng.choice(steps[rng.choice(sorted(steps))]))


def test_no_step_is_left_in_the_budget() -> None:
    state = State.root(SMALL[0])
    for _ in range(4):
        state = state.apply(next(iter(proposals(state))))
    found = candidates(state)
    assert len(found) == 0
    assert list(found) == found[:5] == []
    with pytest.raises(IndexError):
        found[0]


def test_a_verdict_is_worked_out_once_when_it_is_asked_for() -> None:
    asked: list[Step] = []

    def match(_: State, step: Step) -> bool:
        asked.append(step)
        return True

    found = candidates(State.root(SMALL[0]), (Rule("mine", "X", "-", "I want none.", "mine", "exact", match),))
    first, last = found[0], found[len(found) - 1]
    assert (len(asked), len(list(found))) == (0, len(found))
    assert (first.verdict.rule, first.verdict.rule, last.primitive) == ("mine", "mine", "SHARE")
    assert asked == [first.step]


# -- the menu ----------------------------------------------------------------------------------------------------------


def wide_state() -> State:
    """A state with some hundreds of CONTRACTIONs."""
    state = State.root(load_spec("conv", max_primitives=10, weight_limits="free")[0])
    for _ in range(3):
        state = state.apply(next(s for s in proposals(state) if s.primitive == "REDUCE"))
    return state


def test_a_menu_judges_the_nearest_and_all_when_it_is_asked_to() -> None:
    state = wide_state()
    found = candidates(state)
    number = {primitive: sum(map(len, ranges)) for primitive, ranges in found.places().items()}
    assert number["SHARE"] > 3 * menu.JUDGED
    for group in menu.menu(state, found):
        judged = len(group.canonical) + len(group.pruned) + group.more_canonical + group.more_pruned
        assert judged == min(number[group.primitive], menu.JUDGED)
        assert judged + group.unjudged == number[group.primitive]
    (whole,) = (g for g in menu.menu(state, found, whole=["SHARE"]) if g.primitive == "SHARE")
    assert len(whole.canonical) + len(whole.pruned) == number["SHARE"]
    assert whole.more_canonical == whole.more_pruned == whole.unjudged == 0
    assert {item.index for item in whole.canonical} == {
        place for place, c in enumerate(found) if c.primitive == "SHARE" and c.verdict.canonical
    }
    listed = menu.menu(state, list(found))
    assert listed == menu.menu(state, found)
