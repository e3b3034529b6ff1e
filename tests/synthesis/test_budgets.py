"""Budgets of FLOPs, parameters and memory prune partial pGraphs: nothing within them is lost, and walks end early.

By exhaustion: what is found under a budget is what is found without it, and within it. By chance: what is said of a
partial pGraph holds for the whole one, by its lowering plan.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import assume, given, settings

import syno_lab as sl
from syno_lab import Operator
from syno_lab.errors import SpecError
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import Key, State
from syno_lab.operators import conv2d
from syno_lab.synthesis.budgets import bounds, excess
from syno_lab.synthesis.graph import Graph
from syno_lab.synthesis.paths import count
from syno_lab.synthesis.sampler import Sampler
from syno_lab.synthesis.ways import shortest_way
from tests.strategies import random_operators
from tests.synthesis.test_complete import SPECS
from tests.synthesis.test_graph import random_spec

COSTS: dict[str, Callable[[Operator], int]] = {
    "max_flops": Operator.flops,
    "min_flops": Operator.flops,
    "max_params": Operator.params,
    "max_memory": Operator.memory,
}
each_budget = pytest.mark.parametrize("budget", COSTS)


def with_limits(spec: Spec, **limits: int | None) -> Spec:
    """The spec with other limits."""
    return replace(spec, limits=replace(spec.limits, **limits))


@cache
def measured(spec: Spec) -> list[tuple[Key, dict[str, int]]]:
    """Every operator of a spec by its key, with what it costs."""
    try:
        return [(o.key, {name: cost(o) for name, cost in COSTS.items()}) for o in Sampler.from_spec(spec).enumerate()]
    except SpecError:
        return []


def check_filter(spec: Spec, budget: str, limit: int) -> None:
    """What is found under a budget must be the operators of the spec that are within it, each once."""
    is_least = budget == "min_flops"
    wanted = {key for key, cost in measured(spec) if (cost[budget] >= limit if is_least else cost[budget] <= limit)}
    try:
        found = [o.key for o in Sampler.from_spec(with_limits(spec, **{budget: limit})).enumerate()]
    except SpecError:
        found = []
    assert set(found) == wanted, f"{budget} {limit} on {spec}"
    assert len(found) == len(wanted), f"{budget} {limit} on {spec}"


@pytest.mark.parametrize("name", SPECS)
def test_a_budget_excludes_what_exceeds_it_and_nothing_else(name: str) -> None:
    spec = SPECS[name]
    for budget in COSTS:
        costs = sorted(cost[budget] for _, cost in measured(spec))
        assert costs[0] < costs[-1] or budget == "max_params"  # of operators without weights
        for limit in {costs[len(costs) // 20], costs[len(costs) // 4]}:
            check_filter(spec, budget, limit)


@pytest.mark.parametrize("number", range(6))
def test_the_same_on_random_specs(number: int, rng: random.Random) -> None:
    rng.seed(rng.random() + number)
    spec = random_spec(rng)
    for budget in COSTS:
        if measured(spec):
            _, cost = rng.choice(measured(spec))
            check_filter(spec, budget, max(0, cost[budget] + rng.randint(-1, 1)))


@given(random_operators())
@settings(max_examples=100)
def test_what_is_said_of_a_partial_pgraph_holds_for_the_whole(case: tuple[Operator, dict[str, int]]) -> None:
    """For the steps of any operator in which REDUCEs come first, and STRIDE under windows alone (the space)."""
    operator, binding = case
    assume(all(s.primitive != "UNFOLD" or s.operands[0].node.primitive != "STRIDE" for s in operator.steps))
    spec = with_limits(operator.spec, max_reduces=len(operator.reductions), min_weights=0, max_tensors=9)
    state = State.root(spec.bound([binding]))
    whole = (operator.params(binding), operator.memory(binding), operator.flops(binding))
    for step in [None, *sorted(operator.steps, key=lambda step: step.primitive != "REDUCE")]:
        state = state if step is None else state.apply(step)
        params, memory, flops, most_flops = bounds(state)
        assert params <= whole[0]
        assert memory <= whole[1]
        assert flops <= whole[2], f"{state.steps}: {flops} > {whole[2]}"
        assert most_flops is None or most_flops >= whole[2], f"{state.steps}: {most_flops} < {whole[2]}"


def test_the_bound_grows_to_what_conv2d_takes() -> None:
    operator = conv2d()
    binding = {"N": 1, "C_in": 16, "C_out": 32, "H": 8, "W": 8, "k": 3}
    spec = operator.spec.bound([{name: binding.get(name, 3) for name in operator.spec.symbols.names}])
    state, found = State.root(spec), []
    for step in operator.steps:
        state = state.apply(step)
        found.append(bounds(state))
    assert [f.flops for f in found] == sorted(f.flops for f in found)
    assert found[-1].flops == found[-1].most_flops == Operator(state, operator.inputs).flops()
    assert found[-1].params == 16 * 32 * 9


@each_budget
def test_search_is_over_sooner(budget: str) -> None:
    """Fewer nodes than where only whole operators are measured; by parameters every path is an operator."""
    spec = SPECS["1-D, channels and windows"]
    costs = sorted(cost[budget] for _, cost in measured(spec))
    limit = costs[-1] + 1 if budget == "min_flops" else costs[len(costs) // 10]
    spec = with_limits(spec, **{budget: limit})
    pruned, late = Graph(spec), Graph(spec)
    late.meter = None
    most = spec.limits.max_primitives
    paths = count(pruned, pruned.root, most)
    assert paths < count(late, late.root, most)
    assert len(pruned) < len(late)
    if budget == "max_params":
        assert paths == sum(cost <= limit for cost in costs)


def test_a_budget_that_binds_nothing_changes_nothing() -> None:
    spec = SPECS["1-D, channels and windows"]
    roomy = with_limits(spec, max_flops=10**9, max_params=10**9, max_memory=10**9, min_flops=0)
    graphs = Graph(spec), Graph(roomy)
    most = spec.limits.max_primitives
    one, other = (count(graph, graph.root, most) for graph in graphs)
    assert one == other
    assert len(graphs[0]) == len(graphs[1])
    names = [[str(o.key) for o in Sampler.from_spec(s, seed=7).samples()] for s in (spec, roomy)]
    assert names[0] == names[1]


def sampler(**limits: int) -> Sampler:
    """A sampler of operators from 21 channels to 12, on 5 positions."""
    return sl.Sampler("[C, H]", "[D, H]", ["C=12: 1", "D=21: 1", "H=5: 0"], ["k=3: 1"], max_primitives=4, **limits)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_params": 0}, r"max_params 0: every operator from here takes at least 1 parameters"),
        ({"max_memory": 100}, r"max_memory 100: every operator from here takes at least 664 bytes"),
        ({"max_flops": 59}, r"max_flops 59: every operator from here takes at least 60 FLOPs"),
    ],
)
def test_a_budget_that_nothing_meets_is_named_at_once(limits: dict[str, int], message: str) -> None:
    for draw in (lambda s: s.sample(), lambda s: next(s.samples()), lambda s: s.count()):
        with pytest.raises(SpecError, match=rf"no operator found from .* raise max_primitives or a budget \({message}"):
            draw(sampler(**limits))


def test_candidates_name_the_budget_with_bound_and_limit() -> None:
    root = sampler(max_params=250).root()
    (reduce,) = (c for c in root.candidates() if str(c.parameter) == "C")
    assert reduce.verdict.canonical
    state = root.apply(reduce)
    shared = {str(c.given): c for c in state.candidates() if [str(o.size) for o in c.operands] == ["C"] and c.given}
    fits = [c for c in shared.values() if [str(g.size) for g in c.given] == ["H"]]
    over = [c for c in shared.values() if [str(g.size) for g in c.given] == ["D"]]
    assert all(c.verdict.canonical for c in fits)
    assert over
    for candidate in over:
        verdict = candidate.verdict
        assert (verdict.canonical, verdict.rule) == (False, "max_params")
        assert verdict.rejected_by is not None
        assert verdict.rejected_by.kind == "budget"
        assert verdict.reason == "max_params 250: every operator from here takes at least 252 parameters."
        assert (verdict.before, verdict.after) == ("operators of 252 and more", "operators of at most 250")
        assert verdict.latex is None
        beyond = state.apply(candidate)
        found = excess(beyond)
        assert found == ("max_params", 252, 250)
        assert {c.verdict.rule for c in beyond.candidates()} >= {"max_params"}
        assert not any(c.verdict.canonical for c in beyond.candidates())


def test_candidates_with_too_few_flops_say_so() -> None:
    root = sampler(min_flops=2000).root()
    small = next(c for c in root.candidates() if c.primitive == "SHARE")
    assert small.verdict.reason == "min_flops 2,000: every operator from here takes at most 210 FLOPs."
    assert (small.verdict.before, small.verdict.after) == ("operators of at most 210", "operators of 2,000 and more")


def test_without_a_binding_nothing_is_measured() -> None:
    free = sl.Sampler("[C, H]", "[D, H]", ["C: 1", "D: 1", "H: 0"], max_primitives=3, max_params=1)
    assert excess(free.root()) is None
    assert free.sample().steps


def test_a_way_to_the_input_stays_within_the_budgets() -> None:
    """The shortest way takes a large weight; where that is too much another is found."""

    def params(limit: int) -> int:
        state = sampler(max_params=limit).root()
        way = shortest_way(state, seconds=None)
        assert way.is_canonical
        for step in way.steps:
            state = state.apply(step)
        return state.operator().params()

    assert params(10**6) > 50 >= params(50)
