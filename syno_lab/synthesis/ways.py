"""Ways from a partial pGraph to the input: a shortest way, to suggest the next step, and a random way, to complete it.

The two kinds of ways use canonical steps and end in an operator of the sampler, as far as the existing steps allow. The
search is depth first, bounded by the shape distance (a lower bound, so no way is missed), and caches states that are
proved dead. Two states that search cannot distinguish are equal, and have the same ways. The function :func:`instead`
finds canonical steps that replace a step pruned by a rule (Syno, section 6).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from syno_lab.effort import Effort, Stop
from syno_lab.errors import OverTimeError, SynoError, TooLargeError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.budgets import excess
from syno_lab.synthesis.candidates import Verdict
from syno_lab.synthesis.distance import distance, distances_after
from syno_lab.synthesis.graph import Graph
from syno_lab.synthesis.orders import is_operator, over
from syno_lab.synthesis.paths import Builder
from syno_lab.synthesis.rewrites_parts import Side
from syno_lab.synthesis.rules import RULES, Rule, rejecting_rule
from syno_lab.synthesis.space import proposals, room_for_contractions
from syno_lab.synthesis.walks import Walker

#: The default limit of computing time for a suggestion or a completion, in seconds.
PATIENCE_S = 4.0
#: The limit of computing time to find the reason of a failure, in seconds.
_REASON_S = 0.5
#: The limit of states examined from the end of a random walk to the input.
HOMEWARD = 15
#: The limit of walks whose operators a rule or a budget refuses.
MAX_WALKS = 200
#: The factor on the probability of a random step for each step that it leads nearer to the input.
PULL = 3.0


@dataclass(frozen=True)
class Way:
    """Steps that lead from a state to the input.

    Attributes:
        steps: the steps, at least one.
        is_canonical: whether no rule rejects a step, and the end is within all budgets.
        is_shortest: whether it is proved that no way of this kind has fewer steps.
    """

    steps: tuple[Step, ...]
    is_canonical: bool
    is_shortest: bool


def shortest_way(
    state: State,
    rules: tuple[Rule, ...] = RULES,
    *,
    seconds: float | None = PATIENCE_S,
    should_stop: Stop | None = None,
) -> Way:
    """Find a shortest canonical way from ``state`` to an operator of the space.

    Without a canonical way (after a pruned step, for example), find any way within the space that reaches the input. If
    half of the time does not suffice for the proof, take the first way of a nearest-first search.

    Args:
        state: the state where the way begins.
        rules: the rules that define canonical steps.
        seconds: the limit of computing time; None means no limit.
        should_stop: a callback that is called often; True stops the call.

    Raises StoppedError when ``should_stop`` returns True, and SynoError for a complete state and if no way is found.
    """
    if state.is_complete:
        raise SynoError("nothing to suggest: this is an operator already")
    budget = steps_left(state)
    space = tuple(rule for rule in rules if rule.kind == "space")
    attempts: list[tuple[tuple[Rule, ...], Callable[[State], bool], bool]] = [
        (rules, is_operator, True),
        (space, lambda end: end.is_complete, False),
    ]
    for chosen, is_end, is_canonical in attempts:
        for is_proof, share in ((True, 0.35), (False, 0.15)):
            effort = Effort(None if seconds is None else share * seconds, should_stop)
            search = _Search(chosen, is_end, effort)
            try:
                for limit in range(1, budget + 1) if is_proof else (budget,):
                    steps = search.nearest(state, limit)
                    if steps is not None:
                        return Way(steps, is_canonical, is_proof)
            except (OverTimeError, TooLargeError):
                continue
            break  # the search was exhaustive
    raise SynoError(_nothing(state, should_stop))


def random_way(
    state: State,
    rng: random.Random,
    rules: tuple[Rule, ...] = RULES,
    *,
    seconds: float | None = PATIENCE_S,
    should_stop: Stop | None = None,
) -> Way:
    """Find random canonical steps from ``state`` to an operator of the space, at least one step.

    From the output alone, a walk of the sampler finds the steps (:class:`syno_lab.synthesis.walks.Walker`). From
    another state, a random number of random steps comes first. For each step, a primitive is drawn uniformly among
    those that may lead to the input, then one of its steps. Steps that lead nearer are more likely. Last come the steps
    of a shortest path to the input, drawn among equally short paths. If there is none, the walk is repeated with one
    random step less.

    Args:
        state: the state where the way begins; it may be an operator.
        rng: the random generator.
        rules: the rules that define canonical steps.
        seconds: the limit of computing time; None means no limit.
        should_stop: a callback that is called often; True stops the call.

    Raises StoppedError when ``should_stop`` returns True, and SynoError if no way is found.
    """
    budget = steps_left(state)
    effort = Effort(seconds, should_stop)
    search = _Search(rules, is_operator, effort, rng)
    try:
        if not state.steps and budget:
            steps = _sampled(state, rng, rules, effort)
            if steps is not None:
                return Way(steps, is_canonical=True, is_shortest=False)
        for wandering in range(rng.randint(0, max(0, budget - 1)), -1, -1):
            walked, walk = state, []
            for _ in range(wandering):
                step = search.random_step(walked)
                if step is None:
                    break
                walked = walked.apply(step)
                walk.append(step)
            if walk and is_operator(walked):
                return Way(tuple(walk), is_canonical=True, is_shortest=False)
            # If no operator is near, another walk is cheaper than an exhaustive search.
            search.allowance = HOMEWARD if wandering else None
            for limit in range(1, steps_left(walked) + 1):
                rest = search.nearest(walked, limit)
                if rest is not None:
                    return Way((*walk, *rest), is_canonical=True, is_shortest=False)
    except (OverTimeError, TooLargeError):
        pass
    raise SynoError(_nothing(state, should_stop))


def _sampled(root: State, rng: random.Random, rules: tuple[Rule, ...], effort: Effort) -> tuple[Step, ...] | None:
    """Return the steps of an operator from a walk of the sampler; count nothing, as this can take a second or two."""
    graph = Graph(root.spec, rules, effort)
    builder, walker = Builder(graph), Walker(graph, root.spec.limits.max_primitives, rng)
    for _ in range(MAX_WALKS):
        paths = walker.walk(1)
        if not paths:
            return None
        operator = builder.operator(paths[0])
        if operator is not None and operator.steps:
            return operator.steps
    return None


@dataclass(eq=False)
class _Search:
    """A depth-first search from one state."""

    rules: tuple[Rule, ...]
    is_end: Callable[[State], bool]
    effort: Effort
    rng: random.Random | None = None
    allowance: int | None = None  # The number of states that may still be examined; None: no limit.
    #: For each state, a number of steps that does not suffice to reach the end.
    dead: dict[State, int] = field(default_factory=dict)
    #: Equal states can have reductions of other names, so a list is valid only for exactly these coordinates.
    near: dict[tuple[State, tuple[Coordinate, ...]], list[tuple[int, Step]]] = field(default_factory=dict)

    def is_over_budget(self, state: State) -> bool:
        """Return whether the end must be an operator, but no operator from this state is within the budgets."""
        return self.is_end is is_operator and excess(state) is not None

    def nearest(self, state: State, limit: int) -> tuple[Step, ...] | None:
        """Return a way of at most ``limit`` steps, by a nearest-first search; None if there is no way."""
        if limit <= self.dead.get(state, 0) or self.allowance == 0:
            return None
        if self.allowance is not None:
            self.allowance -= 1
        for need, step in self._successors(state):
            if need >= limit:
                break
            if rejecting_rule(state, step, self.rules) is not None:
                continue
            after = state.apply(step)
            if self.is_over_budget(after):
                continue
            if need == 0 and self.is_end(after):
                return (step,)
            rest = self.nearest(after, limit - 1)
            if rest is not None:
                return (step, *rest)
        if self.allowance != 0:
            self.dead[state] = limit
        return None

    def random_step(self, state: State) -> Step | None:
        """Draw a random canonical step after which the input may still be reached; None if there is none."""
        assert self.rng is not None
        limit = steps_left(state) - 1
        by_primitive: dict[str, list[tuple[int, Step]]] = {}
        for need, step in self._successors(state):
            if need < limit:  # with a spare step, as the distance is a lower bound
                by_primitive.setdefault(step.primitive, []).append((need, step))
        while by_primitive:
            primitive = self.rng.choice(list(by_primitive))
            steps = by_primitive[primitive]
            (place,) = self.rng.choices(range(len(steps)), [PULL**-need for need, _ in steps])
            _, step = steps.pop(place)
            if rejecting_rule(state, step, self.rules) is None and not self.is_over_budget(state.apply(step)):
                return step
            if not steps:
                del by_primitive[primitive]
        return None

    def _successors(self, state: State) -> list[tuple[int, Step]]:
        """Return the steps within reach, each with a lower bound of the steps after it, the nearest first."""
        self.effort.tick("looking for a way to the input")
        steps = self.near.get((state, state.data))
        if steps is None:
            after, limit = distances_after(state, effort=self.effort), steps_left(state)
            least = state.spec.limits.min_weights - len(state.weights) if self.is_end is is_operator else 0
            steps = []
            self.effort.make_room(*room_for_contractions(state))
            for step in proposals(state):
                self.effort.tick("looking for a way to the input")
                far = after(step)
                if far is not None:
                    need = max(far, least - (step.primitive == "SHARE"))
                    if need < limit:
                        steps.append((need, step))
            if self.rng is not None:
                self.rng.shuffle(steps)
                chance = {primitive: self.rng.random() for primitive in PRIMITIVES}
                steps.sort(key=lambda pair: (pair[0], chance[pair[1].primitive]))
            else:
                steps.sort(key=lambda pair: pair[0])
            self.near[state, state.data] = steps
        return steps


def steps_left(state: State) -> int:
    """Return the number of further steps that the budget allows."""
    return max(0, state.spec.limits.max_primitives - len(state.steps))


def _nothing(state: State, should_stop: Stop | None) -> str:
    budget = steps_left(state)
    if not budget:
        return (
            f"no step is left in the budget of {state.spec.limits.max_primitives}; undo some, or raise max_primitives"
        )
    try:
        if distance(state, effort=Effort(_REASON_S, should_stop)) is None:
            return "the input is out of reach from here within the budgets; undo some steps"
    except (OverTimeError, TooLargeError):
        pass  # the distance is unknown
    return f"no way to the input was found from here in {budget} steps; undo some, or raise max_primitives"


@dataclass(frozen=True)
class Instead:
    """A canonical replacement of a pruned step.

    Attributes:
        back: the number of steps to undo first, which are the steps that the rule rewrites.
        steps: the steps to take next: the undone steps that the rule does not change, followed by ``canonical``.
        canonical: the steps on the right side of the rule; empty if undoing alone suffices.
        state: the state after all steps.
    """

    back: int
    steps: tuple[Step, ...]
    canonical: tuple[Step, ...]
    state: State


def instead(path: Sequence[State], verdict: Verdict, rules: tuple[Rule, ...] = RULES) -> Instead | None:
    """Find the canonical replacement of a pruned step.

    Args:
        path: the states from the output to the state where the step was proposed, one step apart.
        verdict: the verdict on the step.
        rules: the rules that define canonical steps.

    Returns:
        None if the rule has no formula, if its canonical side begins with a REDUCE, or if a step of the replacement is
        pruned itself.
    """
    rewrite = verdict.rewrite
    if rewrite is None:
        return None
    start = next((n for n in range(len(path) - 1, -1, -1) if set(rewrite.bottoms) <= set(path[n].data)), None)
    before, after = (_real(side, rewrite.bottoms) for side in (rewrite.before, rewrite.after))
    if start is None or before is None or after is None:
        return None
    untouched = [step for step in path[-1].steps[len(path[start].steps) :] if step not in before]
    state = path[start]
    try:
        for step in untouched:
            state = state.apply(step)
        for step in after:
            if rejecting_rule(state, step, rules) is not None:
                return None
            state = state.apply(step)
    except SynoError:  # a step that stays uses a result of a rewritten step
        return None
    return Instead(len(path) - 1 - start, (*untouched, *after), after, state)


def _real(side: Side, bottoms: Sequence[Coordinate]) -> tuple[Step, ...] | None:
    """Return the steps of one side of a rule on the coordinates that its wildcards stand for."""
    real: dict[Coordinate, Coordinate] = dict(zip(side.state.output, bottoms, strict=True))
    steps = []
    for step in side.state.steps:
        if step.primitive == "REDUCE" or not {*step.operands, *step.given} <= set(real):
            return None
        moved = over(step, real)
        real |= zip(side.state.results(step), side.state.results(moved), strict=True)
        steps.append(moved)
    return tuple(steps)
