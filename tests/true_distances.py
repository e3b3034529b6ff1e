"""How far the states of a small space are from its operators: the truth that distances are held against."""

from collections.abc import Callable, Iterator

from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.rules import RULES, Rule, rejecting_rule
from syno_lab.synthesis.space import proposals

SPACE = tuple(rule for rule in RULES if rule.kind == "space")  # the distance counts steps within the space


def canonical_successors(state: State, rules: tuple[Rule, ...] = RULES) -> Iterator[tuple[Step, State]]:
    """The canonical next steps with the states they lead to."""
    for step in proposals(state):
        if rejecting_rule(state, step, rules) is None:
            yield step, state.apply(step)


def true_distances(spec: Spec, is_end: Callable[[State], bool]) -> tuple[list[State], dict[State, int]]:
    """All states within the budgets, and the fewest legal steps from each to an end, going backwards from the ends.

    States from which no end can be reached are not in the latter.
    """
    successors: dict[State, set[State]] = {}
    level = {State.root(spec)}
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
    truth = {state: 0 for state in successors if is_end(state)}
    for length in range(1, spec.limits.max_primitives + 1):
        for state, following in successors.items():
            if state not in truth and any(truth.get(after) == length - 1 for after in following):
                truth[state] = length
    return list(successors), truth
