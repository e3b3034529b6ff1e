"""Shape distance against the truth: the shortest path by legal steps, found by breadth-first search."""

import pytest

from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State
from syno_lab.synthesis.distance import distance, explain_distance
from syno_lab.synthesis.rules import RULES, rejecting_rule
from syno_lab.synthesis.space import proposals

SPACE = tuple(rule for rule in RULES if rule.kind == "space")  # the distance counts steps within the space
SPECS = [
    Spec.parse("[H]", "[H]", ["H=12: 0"], ["s=2: 2", "k=3: 1"], max_primitives=3, max_tensors=2, max_reduces=1),
    Spec.parse("[C, H]", "[D, H]", ["C=4: 1", "D=6: 1", "H=10: 0"], ["k=3: 1"], max_primitives=3, max_tensors=2),
    Spec.parse("[s*H]", "[H]", ["H=12: 1"], ["s=2: 2"], max_primitives=3, max_tensors=1, min_weights=0),
    Spec.parse("[s, H]", "[H]", ["H=12: 1"], ["s=2: 2"], max_primitives=3, max_tensors=2, max_reduces=2),
]


def test_the_papers_example_is_three() -> None:
    spec = Spec.parse("[C_in, H, W]", "[C_in, s^-1*H, s*W, k]", ["C_in", "H", "W"], ["s=2", "k=3"])
    explanation = explain_distance(State.root(spec))
    assert explanation.steps == 3
    assert explanation.eliminations == 1
    assert "{s*W, s^-1*H} <- {H, W}: 2 MERGE or SPLIT" in str(explanation)


def test_conv2d_needs_a_reduce_and_a_contraction() -> None:
    spec = Spec.parse(
        "[N, C_in, H, W]", "[N, C_out, H, W]", ["N: 0", "C_in: 1", "C_out", "H", "W"], ["k=3"], fixed_io_pairs=[(0, 0)]
    )
    assert distance(State.root(spec)) == 2
    assert "REDUCE(C_in) first" in str(explain_distance(State.root(spec)))


def test_out_of_reach_is_none_and_says_so() -> None:
    spec = Spec.parse("[C, H]", "[H]", ["C: 0", "H"])
    assert distance(State.root(spec)) is None
    assert "cannot be reached" in str(explain_distance(State.root(spec)))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.input_shape} from {spec.output_shape}")
def test_never_above_the_truth_and_mostly_equal(spec: Spec) -> None:
    """All states within the budgets, with true distances by going backwards from the complete ones."""
    root = State.root(spec)
    successors: dict[State, set[State]] = {}
    level = {root}
    while level:
        for state in level:
            # REDUCEs come first (appendix A), so a REDUCE after other steps is no way.
            early = all(step.primitive == "REDUCE" for step in state.steps)
            successors[state] = {
                state.apply(step)
                for step in proposals(state)
                if (early or step.primitive != "REDUCE") and rejecting_rule(state, step, SPACE) is None
            }
        level = {after for state in level for after in successors[state]} - successors.keys()
    truth = {state: 0 for state in successors if state.is_complete}
    for length in range(1, spec.limits.max_primitives + 1):
        for state, following in successors.items():
            if state not in truth and any(truth.get(after) == length - 1 for after in following):
                truth[state] = length
    assert len(truth) > 10
    equal = 0
    for state, steps in truth.items():
        bound = distance(state)
        assert bound is not None, f"{state.data} after {state.steps} is {steps} steps away, not out of reach"
        assert bound <= steps, f"{[str(c.size) for c in state.data]}: bound {bound}, truth {steps}"
        equal += bound == steps
    print(f"{equal} of {len(truth)} states equal")
    assert equal >= 0.9 * len(truth)
