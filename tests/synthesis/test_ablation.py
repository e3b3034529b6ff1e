"""The ablations: intervals against scipy, canonical orders against exhaustion, trials against enumeration."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import fmean

import pytest
from scipy.stats import binomtest

from syno_lab.errors import SpecError
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State
from syno_lab.synthesis.ablation import canonical_rates, distance_trials, paper_rate, wilson
from syno_lab.synthesis.orders import has_canonical_order
from syno_lab.synthesis.rules import RULES, Rule, rejecting_rule
from syno_lab.synthesis.sampler import Sampler
from syno_lab.synthesis.space import proposals

OF_SPACE = tuple(rule for rule in RULES if rule.kind == "space")
SMALL = Spec.parse("[C, H]", "[D, H]", ["C=4: 2", "D=6: 1", "H=8: 0"], ["k=3: 2"], max_primitives=4, max_tensors=2)
TINY = Spec.parse("[H]", "[H]", ["H=12: 0"], ["k=3: 2", "s=2: 1"], max_primitives=3, max_tensors=2)
NOTHING_GOES = Rule("nothing", "X", "-", "Nothing goes.", "-", "exact", lambda state, step: True)


def reached(spec: Spec, depth: int, rules: tuple[Rule, ...]) -> list[set[State]]:
    """All states after 0, 1, … ``depth`` steps that no rule rejects, by exhaustion."""
    levels = [{State.root(spec)}]
    for _ in range(depth):
        steps = ((state, step) for state in levels[-1] for step in proposals(state))
        levels.append({s.apply(step) for s, step in steps if rejecting_rule(s, step, rules) is None})
    return levels


@pytest.mark.parametrize(("hits", "total"), [(0, 10), (10, 10), (1, 10), (86, 6452), (0, 500), (1, 2), (499, 1000)])
def test_wilson_is_scipy_s(hits: int, total: int) -> None:
    theirs = binomtest(hits, total).proportion_ci(0.95, method="wilson")
    assert wilson(hits, total) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    theirs = binomtest(hits, total).proportion_ci(0.5, method="wilson")
    assert wilson(hits, total, 0.5) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_wilson_of_nothing_and_of_nonsense() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="hits between 0 and 3, found 4"):
        wilson(4, 3)


def test_the_paper_s_rates() -> None:
    assert [paper_rate(size) for size in (1, 2, 5, 7, 8, 12)] == [None, 1.0, 0.044, 0.0008, 0.0, 0.0]


@pytest.mark.parametrize("spec", [TINY, replace(TINY, limits=replace(TINY.limits, max_shifts=0, max_expands=0))])
def test_a_canonical_order_is_found_exactly_where_one_exists(spec: Spec, rng: random.Random) -> None:
    canonical = reached(spec, 3, RULES)
    for size, legal in enumerate(reached(spec, 3, OF_SPACE)):
        assert canonical[size] <= legal
        # Whatever order a legal pGraph was built in, it is canonical exactly when canonical steps reach it.
        for state in rng.sample(sorted(legal, key=lambda s: repr(s.key)), min(len(legal), 150)):
            assert has_canonical_order(state) == (state in canonical[size])
    assert 0 < len(canonical[3]) < len(legal)


def test_rates_of_one_step_are_those_of_the_draw() -> None:
    root = State.root(SMALL)
    by_primitive: dict[str, list[bool]] = {}
    for step in proposals(root):
        if rejecting_rule(root, step, OF_SPACE) is None:
            by_primitive.setdefault(step.primitive, []).append(rejecting_rule(root, step) is None)
    expected = sum(sum(found) / len(found) for found in by_primitive.values()) / len(by_primitive)
    (row,) = canonical_rates(SMALL, [1], trials=1500, seed=11).rows
    assert row.pgraphs == 1500
    low, high = wilson(row.canonical, row.pgraphs, 0.9999)
    assert low <= expected <= high
    assert row.distinct == len(reached(SMALL, 1, OF_SPACE)[1])


def test_the_rules_decide_the_rates() -> None:
    every = canonical_rates(SMALL, [2, 3], trials=20, seed=1, rules=OF_SPACE)
    assert [(row.pgraphs, row.canonical) for row in every.rows] == [(20, 20), (20, 20)]
    assert every.rejected_by == {}
    none = canonical_rates(SMALL, [2, 3], trials=20, seed=1, rules=(*OF_SPACE, NOTHING_GOES))
    assert [(row.pgraphs, row.canonical) for row in none.rows] == [(20, 0), (20, 0)]
    assert none.rejected_by == {"nothing": 40}


def test_rates_are_reproducible_and_rules_reject_more_of_larger_pgraphs() -> None:
    def run(seed: int) -> list[tuple[int, int, int]]:
        found = canonical_rates(SMALL, [2, 5], trials=80, seed=seed)
        return [(row.size, row.canonical, row.distinct) for row in found.rows]

    assert run(5) == run(5)
    assert run(5) != run(6)
    (_, small, _), (_, large, _) = run(5)
    assert wilson(large, 80)[1] < wilson(small, 80)[0]


def test_complete_pgraphs_are_operators_of_exactly_that_size() -> None:
    said: list[tuple[str, float, str]] = []
    found = canonical_rates(SMALL, [2, 3], trials=600, seed=2, complete=True, report=lambda *args: said.append(args))
    by_size = {size: {o for o in Sampler.from_spec(SMALL).enumerate(3) if len(o.steps) == size} for size in (2, 3)}
    for row in found.rows:
        assert row.pgraphs >= row.canonical > 0
        assert row.fingerprints is not None
        assert 0 < row.fingerprints <= row.distinct
    # Of two steps there are only REDUCE(C) and a CONTRACTION, in one order: the paper's first column is 1 as well.
    assert found.rows[0].canonical == found.rows[0].pgraphs
    assert found.rows[0].distinct == len(by_size[2])
    assert said[-1][1] == 1.0


def test_guided_trials_find_what_enumeration_gives_and_far_more_than_unguided_ones() -> None:
    guided, unguided = (distance_trials(SMALL, guided=flag, trials=200, seed=4) for flag in (True, False))
    every = set(Sampler.from_spec(SMALL).enumerate())
    for found in (guided, unguided):
        assert set(found.operators) <= every
        assert found.trials == 200
        assert found.distinct == len(set(found.operators)) <= found.valid
        assert (found.first is None) == (found.valid == 0)
    assert wilson(unguided.valid, 200)[1] < wilson(guided.valid, 200)[0]
    assert distance_trials(SMALL, guided=True, trials=200, seed=4).operators == guided.operators
    assert guided.first is not None
    assert distance_trials(SMALL, guided=True, trials=guided.first, seed=4).valid == 1


def test_trials_end_only_at_operators_of_the_space() -> None:
    """Without exact rules there are pGraphs that sum elements of one weight: neither trials nor search give them."""
    found = distance_trials(SMALL, guided=True, trials=150, seed=4, rules=OF_SPACE).operators
    assert len(found) > 10
    assert set(found) <= set(Sampler.from_spec(SMALL, rules=OF_SPACE).enumerate())


def test_budgets_bind_trials() -> None:
    small = replace(SMALL, limits=replace(SMALL.limits, max_params=30))
    binding = small.binding_maps[0]
    found = distance_trials(small, guided=True, trials=60, seed=4).operators
    assert found
    assert all(operator.params(binding) <= 30 for operator in found)
    tight = replace(SMALL, limits=replace(SMALL.limits, min_flops=10**9))
    assert not distance_trials(tight, guided=True, trials=20, seed=4).operators


def test_a_stop_is_heard_between_trials() -> None:
    assert canonical_rates(SMALL, [2], trials=100, seed=0, should_stop=lambda: True).trials == 1
    assert (
        distance_trials(SMALL, guided=True, trials=100, seed=0, should_stop=lambda: True).trials == 0
    )  # the one under way does not count


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(SpecError, match=r"expected sizes and trials of 1 or more, found sizes \[0\]"):
        canonical_rates(SMALL, [0], trials=5, seed=0)
    with pytest.raises(SpecError, match=r"found sizes .* and 0 trials"):
        canonical_rates(SMALL, [2], trials=0, seed=0)
    with pytest.raises(SpecError, match="expected 1 trial or more, found 0"):
        distance_trials(SMALL, guided=True, trials=0, seed=0)


def test_evenly_over_all_legal_steps_counts_what_the_space_refuses() -> None:
    """The oracle is exhaustion: every legal pair of steps with its chance, judged by the order-free truth."""
    root = State.root(TINY)
    firsts = list(proposals(root))
    expected = 0.0
    for first in firsts:
        middle = root.apply(first)
        seconds = list(proposals(middle))
        expected += fmean(has_canonical_order(middle.apply(second)) for second in seconds) / len(firsts)
    found = canonical_rates(TINY, [2], trials=500, seed=3, evenly="steps")
    (row,) = found.rows
    low, high = wilson(row.canonical, row.pgraphs, 0.9999)
    assert row.pgraphs == 500
    assert low <= expected <= high
    assert {rule.name for rule in OF_SPACE} & set(found.rejected_by), "refusals of the space are counted"
