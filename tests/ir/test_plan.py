"""The lowering plan: against the paper's example, closed formulas, and every order of REDUCEs."""

import random
from itertools import pairwise, permutations
from math import prod

import pytest
from strategies import random_operator, repro

from syno_lab.ir import plan as plans
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator
from syno_lab.ir.plan import CACHED_ELEMENTS, FLOPS_AN_ELEMENT, Plan, fewest_flops, plan


def figure_4() -> Operator:
    build = Build("[H]", "[s^-1*H]", ["H"], ["k", "s"])
    (i,) = build.output
    k, s = build.reduce("k"), build.reduce("s")
    return build.finish(build.split(s, build.unfold(i, k)))


@pytest.mark.parametrize("binding", [{"H": 64, "k": 4, "s": 2}, {"H": 60, "k": 5, "s": 3}])
def test_figure_4_costs_what_the_paper_says(binding: dict[str, int]) -> None:
    operator = figure_4()
    h, k, s = binding["H"], binding["k"], binding["s"]
    assert plan(operator, binding, "naive").flops == k * h
    assert operator.flops(binding) == h + k * h // s  # (1 + k/s) * H
    assert [len(stage.summed) for stage in plan(operator, binding).stages] == [1, 1]


def conv2d() -> Operator:
    build = Build(
        "[N, C_in, H, W]", "[N, C_out, H, W]", ["N", "C_in", "C_out", "H", "W"], ["k"], fixed_io_pairs=[(0, 0)]
    )
    n, c_out, h, w = build.output
    c, p, q = build.reduce("C_in"), build.reduce("k"), build.reduce("k")
    build.contract(share=[c, p, q], give=[c_out])
    return build.finish(n, c, build.unfold(h, p), build.unfold(w, q))


def test_conv2d_is_one_stage_with_the_usual_flops_params_and_memory() -> None:
    binding = {"N": 2, "C_in": 3, "C_out": 5, "H": 7, "W": 11, "k": 3}
    operator = conv2d()
    assert len(plan(operator, binding).stages) == 1
    assert operator.flops(binding) == 2 * 2 * 5 * 7 * 11 * 3 * 9
    assert operator.params(binding) == 5 * 3 * 9
    assert operator.memory(binding) == 4 * (2 * 3 * 77 + 2 * 5 * 77 + 5 * 3 * 9)


def test_the_largest_live_intermediates_are_those_of_two_neighbouring_stages() -> None:
    binding = {"H": 64, "k": 4, "s": 2}
    operator = figure_4()
    assert operator.memory(binding) == 4 * (64 + 32 + 32)  # input, output, and Z of H/s


def test_a_weight_is_not_multiplied_before_it_pays() -> None:
    """Sum pooling and then a scale for each channel: 1 a summed element and 2 an output element."""
    build = Build("[C, s*H]", "[C, H]", ["C", "H"], ["s"])
    c, h = build.output
    r = build.reduce("s")
    build.contract(share=[c])
    operator = build.finish(c, build.split(h, r))
    assert operator.flops({"C": 3, "H": 5, "s": 4}) == 3 * 5 * 4 + 2 * 3 * 5


def flops_of_order(operator: Operator, binding: dict[str, int], order: tuple[int, ...]) -> int:
    """The paper's greedy lowering for one order of REDUCEs, on its own: only what reaches a REDUCE is lowered."""
    steps = [s for s in operator.steps if s.primitive != "REDUCE"]
    undone: set[int] = set()
    summed: set[int] = set()
    total = 0

    def above(number: int) -> set[int]:
        found = {number}
        step = steps[number]
        makes = set(operator.state.results(step)) if step.primitive != "SHARE" else set()
        for later in range(number + 1, len(steps)):
            named = set(steps[later].operands + steps[later].given)
            uses = bool(named & makes)
            # What takes a coordinate of a contraction away stands above that contraction.
            taken = set(steps[later].given if steps[later].primitive == "SHARE" else steps[later].operands)
            uses |= step.primitive == "SHARE" and bool(taken & set(step.operands))
            if uses and later not in found:
                found |= above(later)
        return found

    def tensor() -> set:
        coordinates = set(operator.inputs)
        for number in sorted(undone, reverse=True):
            step = steps[number]
            if step.primitive == "SHARE":
                coordinates |= set(step.given)
            else:
                coordinates -= set(operator.state.results(step))
                coordinates |= set(step.operands)
        return coordinates - {operator.reductions[i] for i in summed}

    def perform(needed: set[int]) -> None:
        nonlocal total
        fresh = needed - undone
        undone.update(needed)
        ready = set()
        for i, reduction in enumerate(operator.reductions):
            users = [n for n, s in enumerate(steps) if reduction in s.operands + s.given]
            if i not in summed and all(above(n) <= undone for n in users):
                ready.add(i)
        iterations = prod(c.size.at(binding) for c in tensor())
        multiplies = any(steps[n].primitive == "SHARE" for n in fresh)
        summed.update(ready)
        total += iterations * (2 if multiplies else 1 if ready else 0)

    for i in order:
        if i not in summed:
            users = [n for n, s in enumerate(steps) if operator.reductions[i] in s.operands + s.given]
            perform(set().union(*(above(n) for n in users)) if users else set())
    if undone != set(range(len(steps))):
        perform(set(range(len(steps))))
    return total


@pytest.mark.parametrize("seed", range(60))
def test_no_order_of_reduces_is_cheaper(seed: int) -> None:
    operator, binding = random_operator(random.Random(seed))
    best = plan(operator, binding).flops
    assert fewest_flops(operator, operator.complete_binding(binding)) == best, repro(operator, binding)
    assert best <= plan(operator, binding, "naive").flops
    orders = list(permutations(range(len(operator.reductions))))[:120]
    assert all(best <= flops_of_order(operator, binding, order) for order in orders), repro(operator, binding)


def predicted(found: Plan, binding: dict[str, int], cached: int) -> int:
    """FLOPs, and a few more for every element of a stage's tensor that does not fit into the cache."""
    sizes = [prod(c.size.at(binding) for c in stage.out) for stage in found.stages]
    return found.flops + FLOPS_AN_ELEMENT * sum(max(size - cached, 0) for size in sizes)


@pytest.mark.parametrize(("height", "stages"), [(2**12, 2), (2**22, 1)])
def test_an_intermediate_tensor_that_fits_no_cache_must_save_more_than_its_way_to_the_memory(
    height: int, stages: int
) -> None:
    # Two stages have 2.5 H FLOPs in place of 3 H, and an intermediate tensor of H/2 elements.
    operator, binding = figure_4(), {"H": height, "k": 3, "s": 2}
    found = {order: plan(operator, binding, order) for order in ("best", "fastest", "naive")}
    assert len(found["best"].stages) == 2
    assert len(found["fastest"].stages) == stages
    costs = {order: predicted(one, binding, CACHED_ELEMENTS) for order, one in found.items()}
    assert costs["fastest"] == min(costs.values())


@pytest.mark.parametrize("seed", range(100, 140))
def test_no_plan_is_predicted_to_be_faster(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, binding = random_operator(random.Random(seed))
    assert plan(operator, binding, "fastest") == plan(operator, binding)  # everything is small
    monkeypatch.setattr(plans, "CACHED_ELEMENTS", 0)
    plans._plan.cache_clear()
    try:
        fastest, *others = (plan(operator, binding, order) for order in ("fastest", "best", "naive"))
    finally:
        plans._plan.cache_clear()
    cost = predicted(fastest, binding, 0)
    assert all(cost <= predicted(one, binding, 0) for one in others), repro(operator, binding)


@pytest.mark.parametrize("seed", range(60, 100))
def test_stages_fit_together(seed: int) -> None:
    operator, binding = random_operator(random.Random(seed))
    stages = plan(operator, binding).stages
    assert stages[0].inputs == operator.inputs
    assert stages[-1].out == operator.output
    for first, second in pairwise(stages):
        assert set(first.out) == set(second.inputs)
    assert sorted(c.node.tag for s in stages for c in s.summed) == list(range(len(operator.reductions)))
    assert sorted(w for s in stages for w in s.weights) == list(range(len(operator.weights)))
