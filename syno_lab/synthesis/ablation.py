"""The paper's ablations, measured again (Syno, section 9.4): canonical rates by size, and trials with and without
shape distance.

Where the paper is not specific, this module decides, and the results state the decision. A random step draws a
primitive uniformly among the primitives with a step in the space, then a step of it uniformly. A walk of the first
ablation takes random steps and ignores the rules. Alternatively, a walk draws each step uniformly from all legal steps,
even those that the space refuses, like a sampler without rules and space. A pGraph is canonical if its steps have an
order in which every step is canonical. A pGraph with a step that the space refuses is not canonical.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import NormalDist
from typing import Literal

from syno_lab.effort import Effort, Stop, end_if
from syno_lab.errors import SpecError, StoppedError, SynoError
from syno_lab.ir.fingerprint import distinct_key
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import Key, State, Step
from syno_lab.synthesis.distance import distance
from syno_lab.synthesis.orders import is_operator, judge
from syno_lab.synthesis.rules import RULES, Rule, rejecting_rule
from syno_lab.synthesis.space import proposals, room_for_contractions

#: The unit of a uniform draw: a primitive and then one of its steps, or one of all steps.
Evenly = Literal["primitives", "steps"]


def random_walk(
    spec: Spec,
    rules: tuple[Rule, ...],
    guided: bool,
    rng: random.Random,
    effort: Effort | None = None,
    *,
    evenly: Evenly = "primitives",
) -> Iterator[State]:
    """Yield the states after 1, 2, … ``max_primitives`` random steps; stop earlier if no step is possible.

    Args:
        spec: the spec of the first state, with its budgets.
        rules: the rules that reject steps.
        guided: whether to take only steps after which the shape distance is at most the number of remaining steps.
        rng: the random generator.
        effort: the limits of memory and time; by default half of the machine's free memory and any time.
        evenly: the unit of a uniform draw.

    Raises EffortError when a limit of ``effort`` is exceeded.
    """
    watched = effort or Effort()
    state = State.root(spec)
    for remaining in reversed(range(spec.limits.max_primitives)):

        def accepts(here: State, step: Step, remaining: int = remaining) -> State | None:
            if rejecting_rule(here, step, rules) is not None:
                return None
            after = here.apply(step)
            return after if not guided or _is_within_reach(after, remaining, watched) else None

        following = _random_step(state, accepts, rng, watched, evenly)
        if following is None:
            return
        state = following
        yield state


def _random_step(
    state: State, accepts: Callable[[State, Step], State | None], rng: random.Random, effort: Effort, evenly: Evenly
) -> State | None:
    """Return the state after a random accepted step; None if no step is accepted."""
    by_primitive: dict[str, list[Step]] = {}
    effort.make_room(*room_for_contractions(state))
    for step in proposals(state):
        effort.tick("listing the next steps")
        by_primitive.setdefault(step.primitive if evenly == "primitives" else "", []).append(step)
    while by_primitive:
        primitive = rng.choice(list(by_primitive))
        steps = by_primitive[primitive]
        while steps:
            effort.tick("looking for a next step")
            place = rng.randrange(len(steps))
            steps[place], steps[-1] = steps[-1], steps[place]
            following = accepts(state, steps.pop())
            if following is not None:
                return following
        del by_primitive[primitive]
    return None


def _is_within_reach(state: State, remaining: int, effort: Effort) -> bool:
    needed = distance(state, effort=effort)
    return needed is not None and max(needed, state.spec.limits.min_weights - len(state.weights)) <= remaining


Report = Callable[[str, float, str], None]

PAPER = "Zhuo, Su, Zhao and Gao, Syno, ASPLOS 2025, section 9.4"
#: Table 2: the share of canonical pGraphs by size; from size 8 on it is 0.
PAPER_RATES = {2: 1.0, 3: 0.1818, 4: 0.1397, 5: 0.0440, 6: 0.0122, 7: 0.0008}
PAPER_SAMPLES, PAPER_CANONICAL = 6452, 86
LARGEST_IN_TABLE = 8  # the last column is ">= 8"


@dataclass(frozen=True)
class PaperTrials:
    """The numbers that section 9.4 reports for a run on a machine with 192 virtual cores."""

    trials: int
    distinct: int
    seconds: float


PAPER_TRIALS = {True: PaperTrials(5_000_000, 253, 68.33), False: PaperTrials(500_000_000, 0, 180.51)}


def paper_rate(size: int) -> float | None:
    """Return the paper's canonical rate for pGraphs of ``size`` primitives; None if Table 2 lacks the size."""
    return 0.0 if size >= LARGEST_IN_TABLE else PAPER_RATES.get(size)


def wilson(hits: int, total: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the score interval of a share, valid even for shares 0 and 1 (E. B. Wilson, JASA 22, 1927, 209-212).

    Raises ValueError when ``hits`` is not between 0 and ``total``.
    """
    if not 0 <= hits <= total:
        raise ValueError(f"expected hits between 0 and {total}, found {hits}")
    if not total:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, weight = hits / total, z * z / total
    middle = (share + weight / 2) / (1 + weight)
    half = z * sqrt(share * (1 - share) / total + weight / (4 * total)) / (1 + weight)
    return (0.0 if hits == 0 else middle - half), (1.0 if hits == total else middle + half)


# -- canonical rates -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SizeRow:
    """The counts for the drawn pGraphs of one size.

    Attributes:
        size: the number of primitives; a CONTRACTION counts as one.
        pgraphs: the number of drawn pGraphs, with repetitions.
        canonical: the number of pGraphs with an order in which all their steps are canonical.
        distinct: the number of different pGraphs.
        fingerprints: the number of different functions; None for partial pGraphs and for bindings with too many terms.
        seconds: the time to draw the steps (for partial pGraphs the last step) and to look for a canonical order.
    """

    size: int
    pgraphs: int
    canonical: int
    distinct: int
    fingerprints: int | None
    seconds: float

    @property
    def share(self) -> float | None:
        """Return the share of canonical pGraphs; None if no pGraph was drawn."""
        return self.canonical / self.pgraphs if self.pgraphs else None


@dataclass(frozen=True)
class CanonicalRates:
    """Table 2 of the paper, measured again.

    Attributes:
        rows: one row for each size.
        rejected_by: the number of pGraphs by the first rule that rejects a step in the drawn order, even if another
            order is canonical.
        trials: the number of walks; a walk that ends early has no pGraph of the larger sizes.
        seconds: the wall time, including fingerprints.
        seed: the seed of the walks.
    """

    rows: tuple[SizeRow, ...]
    rejected_by: dict[str, int]
    trials: int
    seconds: float
    seed: int


class _Tally:
    def __init__(self) -> None:
        self.pgraphs = self.canonical = 0
        self.keys: set[Key] = set()
        self.names: set[object] | None = set()
        self.seconds = 0.0


def canonical_rates(
    spec: Spec,
    sizes: Sequence[int],
    *,
    trials: int,
    seed: int,
    complete: bool = False,
    evenly: Evenly = "primitives",
    rules: tuple[Rule, ...] = RULES,
    report: Report | None = None,
    should_stop: Stop | None = None,
) -> CanonicalRates:
    """Measure the share of canonical pGraphs by size among random legal steps.

    Args:
        spec: shapes, variables and budgets; ``sizes`` replace its ``max_primitives``.
        sizes: the numbers of primitives of the measured pGraphs.
        trials: the number of walks: one walk serves all sizes of partial pGraphs, or one size of complete pGraphs.
        seed: the seed of the walks.
        complete: whether to count only operators that reach the input in exactly the given number of steps. If so, the
            shape distance keeps the walk within reach. If False, every partial pGraph counts.
        evenly: ``primitives`` draws within the space of ``spec``: a primitive, then one of its steps. ``steps`` draws
            uniformly from all legal steps; a pGraph with a step that the space refuses is not canonical.
        rules: the rules that canonical steps obey; with ``primitives``, rules of kind ``space`` limit the walk instead.
        report: a callback with ``(stage, share done, message)``.
        should_stop: a callback that is called often; True drops the current walk and ends the measurement.

    Raises SpecError for sizes or trials below 1.
    """
    if not sizes or min(sizes) < 1 or trials < 1:
        raise SpecError(f"expected sizes and trials of 1 or more, found sizes {list(sizes)} and {trials} trials")
    start = time.perf_counter()
    rng = random.Random(seed)  # noqa: S311 - for sampling, not for secrets
    wanted = sorted(set(sizes))
    tallies = {size: _Tally() for size in wanted}
    first_rejections: Counter[str] = Counter()
    bounding = tuple(rule for rule in rules if rule.kind == "space") if evenly == "primitives" else ()
    limits = {size: replace(spec, limits=replace(spec.limits, max_primitives=size)) for size in wanted}
    done, stopped = 0, False
    effort = Effort(should_stop=should_stop)
    for done in range(1, trials + 1):
        try:
            for most in wanted if complete else wanted[-1:]:
                before = time.perf_counter()
                for state in random_walk(limits[most], bounding, complete, rng, effort, evenly=evenly):
                    size = len(state.steps)
                    if size not in tallies or (complete and (size < most or not is_operator(state))):
                        continue
                    canonical, rule = judge(state, rules, effort=effort)
                    tally = tallies[size]
                    tally.pgraphs += 1
                    tally.canonical += canonical
                    tally.keys.add(state.key)
                    if rule is not None:
                        first_rejections[rule] += 1
                    tally.seconds += time.perf_counter() - before
                    if complete:
                        _name(tally, state)
                    before = time.perf_counter()
                end_if(should_stop, "walking at random")
        except StoppedError:
            stopped = True
        if report is not None:
            rates = ", ".join(f"{size}: {t.canonical}/{t.pgraphs}" for size, t in tallies.items())
            report("ablate", done / trials, f"canonical by size {rates}")
        if stopped:
            break
    rows = []
    for size, tally in tallies.items():
        functions = None if not complete or tally.names is None else len(tally.names)
        rows.append(SizeRow(size, tally.pgraphs, tally.canonical, len(tally.keys), functions, tally.seconds))
    return CanonicalRates(tuple(rows), dict(first_rejections.most_common()), done, time.perf_counter() - start, seed)


def _name(tally: _Tally, state: State) -> None:
    """Add the function of a complete state to the count; drop the count if a function is too large to compare."""
    if tally.names is not None:
        try:
            tally.names.add(distinct_key(state.operator()))
        except SynoError:
            tally.names = None


# -- trials with and without shape distance --------------------------------------------------------------------------


@dataclass(frozen=True)
class Trials:
    """The result of random walks by canonical steps.

    Attributes:
        guided: whether the shape distance after each step had to be at most the number of remaining steps.
        trials: the number of walks.
        valid: the number of walks that ended at an operator within all budgets.
        distinct: the number of different pGraphs at the ends of valid walks.
        first: the number of the first valid trial; None if no trial was valid.
        seconds: the wall time.
        seed: the seed of the walks.
        operators: the distinct operators, in the order of discovery.
    """

    guided: bool
    trials: int
    valid: int
    distinct: int
    first: int | None
    seconds: float
    seed: int
    operators: tuple[Operator, ...]


def distance_trials(
    spec: Spec,
    *,
    guided: bool,
    trials: int,
    seed: int,
    rules: tuple[Rule, ...] = RULES,
    report: Report | None = None,
    should_stop: Stop | None = None,
) -> Trials:
    """Count random walks that end at an operator, with the shape distance (``guided``) or without it.

    A trial is one walk from the output by canonical steps. A walk ends at the first operator within all budgets, after
    ``max_primitives`` steps, or when no step is possible. Without the distance, only the final match decides whether a
    trial is valid. Raises SpecError for less than 1 trial.
    """
    if trials < 1:
        raise SpecError(f"expected 1 trial or more, found {trials}")
    start = time.perf_counter()
    rng = random.Random(seed)  # noqa: S311 - for sampling, not for secrets
    operators: dict[Operator, None] = {}
    first: int | None = None
    valid = done = 0
    stage = "with" if guided else "without"
    effort = Effort(should_stop=should_stop)
    for number in range(1, trials + 1):
        try:
            last = next(filter(is_operator, random_walk(spec, rules, guided, rng, effort)), None)
        except StoppedError:
            break
        done = number
        if last is not None:
            valid += 1
            first = first or done
            operators.setdefault(last.operator())
        if report is not None:
            report(stage, done / trials, f"{len(operators)} operators after {done} trials")
        if should_stop is not None and should_stop():
            break
    return Trials(guided, done, valid, len(operators), first, time.perf_counter() - start, seed, tuple(operators))
