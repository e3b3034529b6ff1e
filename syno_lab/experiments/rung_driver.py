"""The search in rungs: draw and probe, train many operators a little, and the best of them more and more.

Successive halving (Jamieson and Talwalkar 2016) with a plan of time: the baseline tells what a training costs on each
rung, the plan shares the minutes, and then the parts follow one another. The queue of trainings is in the store, so
that a killed search goes on with what is there.

A worker that waits costs as much as one that trains, so something useful always waits in the queue. The first rung
begins at once, and the search without training draws beside it. At the end of a rung, all but one worker would wait for
the last training of it: they train the baseline on seeds of the finals, which has the last priority.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from math import inf

import msgspec

from syno_lab.errors import SearchError
from syno_lab.experiments.loop import Loop
from syno_lab.experiments.plan import FEWEST, MORE_SEEDS, Funnel, plan_for, worthwhile
from syno_lab.experiments.rung_worker import TIMING_STEPS, Workers
from syno_lab.experiments.runner import Stopped
from syno_lab.experiments.watching import Board
from syno_lab.inputs import quoted
from syno_lab.models.rungs import Rung
from syno_lab.reports.searched import RUNGS_STATUS, Plan, Searched
from syno_lab.search import Candidate, Elite, EliteSearch, Search
from syno_lab.store.rungs import BASELINE, CONFIRM, FINAL, TAKEN, TIMING, WAITING, RungTraining
from syno_lab.systems import read_operator
from syno_lab.trial import TrialOutcome
from syno_lab.trial.examples import batches_of
from syno_lab.trial.failures import ENOUGH, check_failures
from syno_lab.trial.rungs import HOLDOUT

#: Trainings that wait in the queue beside those under way, so that no worker waits for the search.
AHEAD = 8
#: The share of the first rung for the elites of the search without training; the rest is asked for by the method.
MOST_ELITES = 0.6
#: Operators drawn in the hope of a new elite before the method is asked, whose answer takes about as long as these.
DRAWS_FOR_ONE = 6
#: CPU seconds that the search without training may take for one operator before the search looks after its workers.
DRAW_S = 0.5
#: Seconds between two looks at workers and outcomes.
PAUSE_S = 0.2
#: A forward pass takes about this share of a training step.
FORWARD = 1 / 3
#: Priorities: what comes first. Rungs lie between, later rungs before earlier ones.
_FIRST, _RUNGS, _LAST = 0, 10, 99

#: Standard deviations of the measures on a rung that an operator of a kind costs the next one of it. Chosen after
#: seeing three half-hour searches of ResNet-20, whose last rung had up to five variants of one operator.
ALIKE = 0.5


@dataclass(frozen=True)
class Score:
    """An operator on the last rung that it passed.

    Attributes:
        number: of the trial.
        ratio: FLOPs of the replaced layers with it, over theirs without.
        value: higher is better; see :meth:`RungDriver.scores`.
        kind: equal for operators that are likely to be variants of one: those of equal FLOPs and parameters.
    """

    number: int
    ratio: float
    value: float
    kind: Hashable = None


def survivors(scores: Sequence[Score], count: int, shares: Sequence[float]) -> list[int]:
    """The numbers of the ``count`` best operators, with room for each share of the FLOPs and for different kinds.

    Each share in turn, the smallest first, takes its best one that no share has taken, until there are enough. So the
    best within a quarter goes on although operators within a half are better. Each one of a kind that has gone on
    costs the others of that kind :data:`ALIKE`: variants of one operator come to much the same accuracy, and measures
    on a proxy are noisy, so a rung learns more from different ones.
    """
    left = sorted(scores, key=lambda one: (-one.value, one.ratio, one.number))
    taken: list[int] = []
    of_kind: Counter[Hashable] = Counter()

    def take(within: list[Score]) -> None:
        best = max(within, key=lambda one: one.value - ALIKE * of_kind[one.kind])
        left.remove(best)
        taken.append(best.number)
        of_kind[best.kind] += 1

    while left and len(taken) < count:
        before = len(taken)
        for share in sorted(shares):
            within = [one for one in left if one.ratio <= share]
            if within and len(taken) < count:
                take(within)
        if len(taken) == before:  # all that are left cost more than the largest share
            take(left)
    return taken


@dataclass
class RungDriver(Loop):
    """A search in rungs.

    Attributes:
        rungs: the cheapest first, the network itself last; the driver leaves out those that are hardly cheaper.
        workers: take the trainings from the queue of ``log``.
        board: writes the search's state to files, for the runs view.
        shares: of the replaced layers' FLOPs, for each of which a best operator is looked for.
        sleep: waits so many seconds.
        uses_probe: whether the score of the probe, where the system has one, may choose what is asked.
        elapsed_s: wall time that earlier processes of this search took.
    """

    rungs: tuple[Rung, ...]
    workers: Workers
    board: Board
    shares: Sequence[float]
    _: KW_ONLY
    sleep: Callable[[float], None] = time.sleep
    uses_probe: bool = True
    elapsed_s: float = 0.0
    funnel: Funnel = field(default_factory=Funnel)
    phase: str = "timing"

    def __post_init__(self) -> None:
        self.queue = self.log.rungs
        self._begun = self.clock() - self.elapsed_s
        self._untrained: EliteSearch | None = None
        self._elites = 0  # asked for so far
        self._told: set[int] = set()
        self._candidates: dict[int, Candidate] = {}
        self._numbers: set[int] = set()
        self._known_trials: dict[int, str] = {}  # names of the known operators, by the numbers of their trials
        self._plan: Plan | None = None
        self._shown: Search | None = None

    # -- the parts, in order -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Do the whole search, finals included.

        Raises:
            SearchError: the minutes are too few, or the baseline does not train to the end.
            Stopped: ``should_stop`` returned True; the queue keeps what was done.
        """
        self._queue_baselines(gaps=0)  # the last training of the timing, and the draws of the first operators
        plan = self.plan = self._planned()
        self._show(now=True)  # before the search begins, people see its plan
        self._begin()
        self._first_rung(plan)
        for rung in self.rungs[1:]:
            self._next_rung(plan, rung)
        self._confirm(plan)
        self._check_failures(least=1)
        self._finals()
        self._show(now=True)

    def _queue_baselines(self, gaps: int | None = None) -> None:
        """Have the baseline trained on seeds of the finals where workers would wait.

        One seed for each worker, which all wait at the beginning; one for each but one at each of so many later gaps,
        and not more, or the last worker would take one too before the next stage is in the queue. None: all seeds.
        """
        workers = self.settings.workers
        count = None if gaps is None else workers + gaps * (workers - 1)
        for seed in self.settings.seeds[:count]:
            self.queue.queue(BASELINE, FINAL, seed, _LAST)

    def _planned(self) -> Plan:
        """Time the baseline on each rung, and share the minutes."""
        self.phase = "timing"
        asked = [(TIMING, 0), *((rung.name, 0) for rung in reversed(self.rungs) if not rung.is_full)]  # longest first
        for name, seed in asked:
            self.queue.queue(BASELINE, name, seed, _FIRST)
        self._wait(lambda: all(self._baseline(name) is not None for name, _ in asked))
        each_s = {}
        for name, _ in asked:
            outcome = self._baseline(name)
            assert outcome is not None
            if outcome.state != "finished":
                raise SearchError(
                    f"expected the baseline to be trained on {quoted(name)}, found {outcome.state}: {outcome.reason}"
                )
            each_s[name] = outcome.work_s
        timed = self._baseline(TIMING)
        assert timed is not None
        each_s[self.rungs[-1].name] = self._full_seconds(timed)
        minutes = self.settings.minutes
        if minutes is None:
            raise SearchError("minutes: expected the minutes of a search in rungs, which shares them, found none")
        self.rungs = worthwhile(self.rungs, each_s)
        return plan_for(minutes, self.settings.workers, self.rungs, each_s, len(self.settings.seeds))

    def _full_seconds(self, timed: TrialOutcome) -> float:
        """Seconds of the full recipe, from those of its first batches, measuring included."""
        request = self.settings.training
        held = msgspec.structs.replace(request, holdout=HOLDOUT)
        _, timed_tests = batches_of(held)
        batches, tests = batches_of(request)
        each_s = timed.work_s / (TIMING_STEPS + FORWARD * timed_tests)
        steps = request.epochs * batches if request.steps is None else request.steps
        return each_s * (steps + request.epochs * FORWARD * tests)

    def _begin(self) -> None:
        """Make the search, and tell it what an earlier process of it was told."""
        has_probe = self.uses_probe and self.space.has_probe
        self.search = self._shown = self.start(self.space.score if has_probe else None)
        if has_probe:
            self._untrained = self.space.elite_search(random.Random(self.settings.seed))  # noqa: S311 - for choices
        self._resume()

    def _first_rung(self, plan: Plan) -> None:
        """Draw, ask, and train on the first rung until the time of the later parts must begin."""
        first, later = self.rungs[0], self.rungs[1:]
        self.phase = first.name
        is_over = bool(self._with_more_seeds()) or any(self._mine(rung.name) for rung in later)
        reserve, ahead = self._reserve(plan, first), (first.name, WAITING)
        most = inf if self.settings.trials is None else self.settings.trials
        while not is_over:
            self._look()
            held = [one for one in self.queue.current() if one.state == TAKEN or (one.rung, one.state) == ahead]
            if self._left_s() <= reserve + self._finals_s() or len(self._numbers) >= most:
                break
            if len(held) < self.settings.workers + AHEAD:
                is_over = not self._ask(first)
            elif not self._draw():
                self.sleep(PAUSE_S)
        self._finish(first, gaps=int(first.is_full))
        self._tell()

    def _draw(self) -> bool:
        """Go on with the search without training, by one operator at most; False where its part of the plan is over."""
        search, most_s = self._untrained, self.plan.part("draws").seconds / self.settings.workers
        if search is None or self.funnel.draws["seconds"] >= most_s:
            return False
        begun = self.cpu_clock()
        candidate = search.ask(lambda: self.should_stop() or self.cpu_clock() > begun + DRAW_S)
        if candidate is not None:
            search.tell(candidate, self.space.score(candidate.operator))
            search.told.clear()  # its elites are all that is needed
        taken = self.cpu_clock() - begun
        self.funnel.spend(taken)
        # One that was not found in time may be found in the next part of it; else there is none.
        return candidate is not None or taken > DRAW_S

    def _next_rung(self, plan: Plan, rung: Rung) -> None:
        """Train the best of the rung before on this one."""
        before = self.rungs[self.rungs.index(rung) - 1]
        self.phase = rung.name
        if not self._mine(rung.name):
            count = self._room(plan, rung)
            for number in self._longest_first(survivors(self.scores(before), count, self.shares), before):
                for seed in range(rung.seeds):
                    self.queue.queue(number, rung.name, seed, _RUNGS - self.rungs.index(rung))
        self._finish(rung, gaps=int(rung.is_full))

    def _longest_first(self, numbers: Iterable[int], rung: Rung) -> list[int]:
        """Trials by the seconds of their trainings on a rung, the longest first: so workers end together."""
        taken: defaultdict[int, float] = defaultdict(float)
        for one in self._mine(rung.name):
            taken[one.number] += one.spent("work_s")
        return sorted(numbers, key=lambda number: -taken[number])

    def _finish(self, rung: Rung, gaps: int) -> None:
        """Wait for all trainings on a rung; those of the network itself are long, and leave gaps worth filling."""
        self._queue_baselines(gaps)
        self._wait(lambda: all(one.is_ended for one in self._mine(rung.name)))

    def _confirm(self, plan: Plan) -> None:
        """Train the best of the last rung on more seeds, as many as fit; of one alone nothing is to be chosen."""
        self.phase, last = CONFIRM, self.rungs[-1]
        seeds = range(last.seeds, last.seeds + MORE_SEEDS)
        if not self._with_more_seeds():
            count = int((self._left_s() - self._finals_s()) / (MORE_SEEDS * plan.part(CONFIRM).each_s))
            chosen = survivors(self.scores(last), count, self.shares) if count >= FEWEST else ()
            for number in self._longest_first(chosen, last):
                for seed in seeds:
                    self.queue.queue(number, last.name, seed, _RUNGS - len(self.rungs))
        self._finish(last, gaps=2)

    def _room(self, plan: Plan, rung: Rung) -> int:
        """The operators that the rung can train in what is left of the time: as planned, or as many as still fit."""
        left = self._left_s() - self._finals_s() - self._reserve(plan, rung)
        each = plan.part(rung.name).each_s
        return max(FEWEST, int(left / each))

    def _reserve(self, plan: Plan, rung: Rung) -> float:
        """Worker seconds for the rungs after this one: their planned share of what is left without the finals.

        The first rung has the time of the draws too, which it trains beside.
        """
        at = self.rungs.index(rung)
        mine = plan.part(rung.name).seconds + (0.0 if at else plan.part("draws").seconds)
        later = sum(plan.part(name).seconds for name in [*(one.name for one in self.rungs[at + 1 :]), CONFIRM])
        return max(0.0, self._left_s() - self._finals_s()) * later / (mine + later)

    def _finals(self) -> None:
        """Train the best operator within each share, and the best known one, on the seeds of the finals."""
        self.phase = FINAL
        if not self.settings.seeds:
            return
        for number in self._longest_first(self.finalists(), self.rungs[-1]):
            for seed in self.settings.seeds:
                self.queue.queue(number, FINAL, seed, _FIRST)
        self._queue_baselines()
        self._wait(lambda: all(one.is_ended for one in self._all(FINAL)))

    def finalists(self) -> list[int]:
        """The numbers of the best discovered operator within each share, and of the best known one."""
        found = [*map(self.best_within, self.shares), self.best_known()]
        return list(dict.fromkeys(one.number for one in found if one is not None))

    def best_within(self, share: float) -> Score | None:
        """The best discovered operator within a share of the FLOPs; of equals the cheaper one.

        It is chosen among those with more seeds, by the mean measure of all their seeds; where none of these is within
        the share, among all on the last rung.
        """
        return self._best([one for one in self.scores(self.rungs[-1]) if one.number not in self._known_trials], share)

    def best_known(self) -> Score | None:
        """The best known operator, chosen likewise; None where the search does not train them."""
        return self._best([one for one in self.scores(self.rungs[-1]) if one.number in self._known_trials], inf)

    def _best(self, scores: Sequence[Score], share: float) -> Score | None:
        within = [one for one in scores if one.ratio <= share]
        more = Counter(one.number for one in self._with_more_seeds() if one.state == "finished")
        means = self.measures(self.rungs[-1])
        found = [Score(one.number, one.ratio, means[one.number]) for one in within if more[one.number] == MORE_SEEDS]
        return max(found or within, key=lambda one: (one.value, -one.ratio), default=None)

    def _with_more_seeds(self) -> list[RungTraining]:
        """The trainings on the last rung beside those of its own seeds."""
        last = self.rungs[-1]
        return [one for one in self._mine(last.name) if one.seed >= last.seeds]

    # -- scores ------------------------------------------------------------------------------------------------------

    def scores(self, rung: Rung) -> list[Score]:
        """The operators with all their seeds on a rung.

        A measure on one rung is noisy: from the second rung on the value is the mean of the standardised measures on
        this rung and on the one before it.
        """
        at = self.rungs.index(rung)
        values = self._standardised(rung)
        before = self._standardised(self.rungs[at - 1]) if at else {}
        trials = {trial.number: trial for trial in self.log.trials()}
        return [
            Score(
                number,
                self.space.replaced_share(trials[number].flops),
                (value + before[number]) / 2 if number in before else value,
                (trials[number].flops, trials[number].params),
            )
            for number, value in values.items()
        ]

    def _standardised(self, rung: Rung) -> dict[int, float]:
        measures = self.measures(rung)
        if len(measures) < 2:
            return measures
        mean, spread = statistics.fmean(measures.values()), statistics.pstdev(measures.values())
        return {number: (value - mean) / spread if spread else 0.0 for number, value in measures.items()}

    def measures(self, rung: Rung) -> dict[int, float]:
        """The mean measure on a rung, by the trial's number, of those that finished on all its seeds or more."""
        found: dict[int, list[float]] = {}
        for one in self._mine(rung.name):
            if one.state == "finished" and one.measure is not None:
                found.setdefault(one.number, []).append(one.measure)
        return {
            number: self._reward(number, statistics.fmean(each))
            for number, each in found.items()
            if len(each) >= rung.seeds
        }

    def _reward(self, number: int, measure: float) -> float:
        """The measure, or what the user's own reward makes of it."""
        if self.settings.reward is None:
            return measure
        trial = self.log.trial(number)
        return self.space.reward(measure, trial.flops, trial.params)

    # -- ask and tell ------------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        """Tell the search what an earlier process was told, and adopt what was under way."""
        trials = self.log.trials()
        self.search.resume([(read_operator(text), reward) for text, reward in self.log.told()], self._given)
        begun = {trial.operator for trial in trials}
        self._given = [operator for operator in self._given if operator.to_json() not in begun]
        for trial in trials:
            self._number(trial.number, trial.operator)
            if trial.position is not None:
                self._told.add(trial.number)
            else:
                candidate = self.search.adopt(read_operator(trial.operator))
                if candidate is not None:
                    self._candidates[trial.number] = candidate
                for seed in range(self.rungs[0].seeds):
                    self.queue.queue(trial.number, self.rungs[0].name, seed, _RUNGS)
        self._earlier = frozenset(self._told)  # what failed in an earlier process may be mended

    def _ask(self, rung: Rung) -> bool:
        """Queue the next operator on the first rung; False where there is none."""
        candidate = self._next_candidate()
        if candidate is None:
            self._look()  # a wish to stop ends the drawing too; then the space is not at its end
            self.end_reason = self.end_reason or f"no new operator {self.space.limits}"
            return False
        number = self.keep(candidate.operator, candidate.taken)
        self._number(number, candidate.operator.to_json())
        self._candidates[number] = candidate
        for seed in range(rung.seeds):
            self.queue.queue(number, rung.name, seed, _RUNGS)
        return True

    def _number(self, number: int, operator: str) -> None:
        self._numbers.add(number)
        if operator in self.known:
            self._known_trials[number] = self.known[operator]

    def _next_candidate(self) -> Candidate | None:
        """A known operator as long as there are any, then a discovered one.

        Where the plan has few trainings, known operators and others take turns: else none would be discovered.
        """
        is_room = self.plan.part(self.rungs[0].name).trainings >= 2 * len(self.known)
        others = len(self._numbers) - len(self._known_trials)
        known = self.next_known(self.search) if is_room or len(self._known_trials) <= others else None
        return known or self._next_discovered() or self.next_known(self.search)

    def _next_discovered(self) -> Candidate | None:
        wants_elite = self._elites < MOST_ELITES * self.plan.part(self.rungs[0].name).trainings
        for _ in range(DRAWS_FOR_ONE if wants_elite else 0):
            elite = self._next_elite()
            if elite is not None:
                self._elites += 1
                return self.search.adopt(elite.operator, elite.trail)
            if not self._draw():
                break
        begun, gives_up = self.cpu_clock(), self.out_of_patience()
        try:
            return self.search.ask(lambda: self.should_stop() or gives_up())
        finally:
            self.funnel.spend(self.cpu_clock() - begun)

    def _next_elite(self) -> Elite | None:
        """The best one so far that was not asked for, of each range of FLOPs in turn."""
        elites = [] if self._untrained is None else self._untrained.elites.in_turn()
        return next((elite for elite in elites if not self.search.knows(elite.operator)), None)

    def _tell(self) -> None:
        """Record the outcomes of the first rung and tell the search."""
        rung = self.rungs[0]
        found: dict[int, list[RungTraining]] = {}
        for one in self._mine(rung.name):
            if one.number not in self._told:
                found.setdefault(one.number, []).append(one)
        for number, trainings in found.items():
            if len(trainings) < rung.seeds or not all(one.is_ended for one in trainings):
                continue
            reward = statistics.fmean(one.measure or 0.0 for one in trainings)
            if all(one.state == "finished" for one in trainings):
                reward = self._reward(number, reward)
            outcome = {**trainings[0].outcome, "rung": rung.name}
            outcome |= self.space.probed(read_operator(self.log.trial(number).operator))
            self.log.record(number, outcome, reward=min(1.0, max(0.0, reward)))
            self._told.add(number)
            candidate = self._candidates.pop(number, None)
            if candidate is not None:
                self.search.tell(candidate, reward)

    # -- time --------------------------------------------------------------------------------------------------------

    def _left_s(self) -> float:
        """Worker seconds that are left."""
        assert self.settings.minutes is not None
        return (60 * self.settings.minutes - self.search_s) * self.settings.workers

    def _finals_s(self) -> float:
        """Worker seconds that the finals still take: the baseline's trainings that wait, and those of the finalists."""
        ended = sum(1 for one in self._all(FINAL) if one.is_ended and one.number == BASELINE)
        return (len(self.settings.seeds) - ended) * self.plan.part("baseline").each_s + self.plan.part("finals").seconds

    @property
    def search_s(self) -> float:
        """Wall time of all processes of this search."""
        return self.clock() - self._begun

    # -- waiting and showing -----------------------------------------------------------------------------------------

    def _all(self, rung: str) -> list[RungTraining]:
        return [one for one in self.queue.current() if one.rung == rung]

    def _mine(self, rung: str) -> list[RungTraining]:
        return [one for one in self._all(rung) if one.number != BASELINE]

    def _baseline(self, rung: str) -> TrialOutcome | None:
        for one in self._all(rung):
            if one.number == BASELINE and one.is_ended:
                return TrialOutcome.from_dict(one.outcome)
        return None

    def _wait(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            self._look()
            self.sleep(PAUSE_S)

    def _look(self) -> None:
        """Look after workers, outcomes and wishes of the user."""
        if self.should_stop():
            self._show(now=True)
            raise Stopped(f"stopped after {len(self._told)} trials; they are in the store")
        self.workers.look()
        if self.phase == self.rungs[0].name:
            self._tell()
            self._check_failures()
        self._show()

    def _check_failures(self, least: int = ENOUGH) -> None:
        new = [one for one in self.queue.current() if one.is_ended and one.number not in {BASELINE, *self._earlier}]
        check_failures(((one.number, one.state, one.reason) for one in new), least)

    def _show(self, *, now: bool = False) -> None:
        if not self.is_due(now=now):
            return
        self.funnel.see(self.space.counts)
        self.funnel.count(self.rungs, self.queue.current(), FINAL)
        minutes = self.settings.minutes or 1.0
        self.report(min(1.0, self.search_s / (60 * minutes)), f"{self.phase}: {self.funnel.line()}")
        self.board.show(self.status(), RUNGS_STATUS, self._shown, now=now)

    def status(self) -> Searched:
        """What the search says of itself while it runs."""
        return Searched(
            phase=self.phase,
            plan=self._plan,
            uses_probe=self.uses_probe,
            funnel=self.funnel,
            known={str(number): name for number, name in self._known_trials.items()},
            search_s=self.search_s,
            end=self.end_reason,
        )

    @property
    def plan(self) -> Plan:
        """The plan; made first of all."""
        assert self._plan is not None
        return self._plan

    @plan.setter
    def plan(self, plan: Plan) -> None:
        self._plan = plan
