"""The search in rungs draws and probes operators, trains many for a short time, and the best for a longer time.

The method is successive halving (Jamieson and Talwalkar 2016) with a time plan. Trainings of the baseline measure the
cost of each rung, the plan shares the minutes, and the parts run one after another. The store has the queue of
trainings, with which a killed search continues.

Two trainings of the baseline come first; they show which differences the finals can detect. An idle worker costs as
much as a busy worker, so some useful training always waits in the queue. During the first rung the untrained search
draws operators. At the end of a rung, idle workers would wait for the last training. Instead, they train the baseline
on seeds of the finals, with the last priority.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from math import ceil, inf

import msgspec

from syno_lab.errors import SearchError
from syno_lab.experiments.evidence import FIRST_TRAININGS, check, evidence_of
from syno_lab.experiments.loop import Loop
from syno_lab.experiments.plan import FEWEST, MORE_SEEDS, Funnel, plan_for, worthwhile
from syno_lab.experiments.rivals import NAMES, rival_of
from syno_lab.experiments.rung_worker import TIMING_STEPS, Workers, is_timed
from syno_lab.experiments.runner import Stopped
from syno_lab.experiments.survivors import Score, survivors
from syno_lab.experiments.watching import Board
from syno_lab.inputs import quoted
from syno_lab.models.rungs import Rung
from syno_lab.reports.searched import RUNGS_STATUS, Evidence, Plan, Searched
from syno_lab.search import Candidate, Elite, EliteSearch, Search
from syno_lab.store.rungs import BASELINE, CONFIRM, FINAL, RIVALS, TAKEN, TIMES, TIMING, WAITING, RungTraining
from syno_lab.systems import read_operator
from syno_lab.training.limits import projected_s
from syno_lab.trial import TrialOutcome, TrialRequest
from syno_lab.trial.examples import batches_of
from syno_lab.trial.failures import ENOUGH, check_failures
from syno_lab.trial.rungs import HOLDOUT, rung_request

#: The number of trainings that wait in the queue beside the running trainings, so that no worker waits for the search.
AHEAD = 8
#: The share of the first rung's operators that are elites of the untrained search; the method proposes the rest.
MOST_ELITES = 0.6
#: The most draws for a new elite. After these draws the search method proposes an operator, in about the same time.
DRAWS_FOR_ONE = 6
#: The most CPU seconds of one draw of the untrained search; the workers are checked after each draw.
DRAW_S = 0.5
#: A search ends after this multiple of its minutes. Trainings that have not ended then wait for its continuation.
LATEST = 1.04
#: Seconds between two checks of workers and outcomes.
PAUSE_S = 0.2
#: The time of a forward pass as a share of a training step.
FORWARD = 1 / 3
#: Priorities in the queue, the lowest number first. Later rungs have lower numbers than earlier rungs.
_FIRST, _RUNGS, _LAST = 0, 10, 99


@dataclass
class RungDriver(Loop):
    """A search in rungs.

    Attributes:
        rungs: the rungs, the cheapest first, the network itself last; the driver leaves out rungs that cost too much.
        workers: the workers that take trainings from the queue of ``log``.
        board: the writer of the search files, for the runs view.
        shares: shares of the replaced layers' FLOPs; the search returns the best operator within each share.
        sleep: a function that waits some seconds.
        uses_probe: whether the score of the probe, if the system has a probe, may choose the proposed operators.
        elapsed_s: wall time of earlier processes of this search.
        begun_at: the number of trainings in the queue when a user continued an ended search with more minutes; all
            parts of the search then run again.
    """

    rungs: tuple[Rung, ...]
    workers: Workers
    board: Board
    shares: Sequence[float]
    _: KW_ONLY
    sleep: Callable[[float], None] = time.sleep
    uses_probe: bool = True
    elapsed_s: float = 0.0
    begun_at: int = 0
    funnel: Funnel = field(default_factory=Funnel)
    phase: str = "timing"

    def __post_init__(self) -> None:
        self.queue = self.log.rungs
        self._start_s = self.clock() - self.elapsed_s
        self._untrained: EliteSearch | None = None
        self._elites = 0  # the number of proposed elites
        self._told_trials: set[int] = set()
        self._candidates: dict[int, Candidate] = {}
        self._numbers: set[int] = set()
        self._known_trials: dict[int, str] = {}  # names of known operators by their trials' numbers
        self._plan: Plan | None = None
        self.evidence: Evidence | None = None
        self._shown: Search | None = None

    # -- the parts, in order -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the whole search, finals included.

        Raises:
            SearchError: the minutes are too few, or the baseline's training does not finish.
            Stopped: ``should_stop`` returned True; the queue has all results.
        """
        self._queue_baselines(gaps=0)  # Workers have trainings during the first draws.
        self._plan = self._planned()
        self._show(now=True)  # The plan is shown before the rungs begin.
        self._train_baseline()
        self._begin()
        if self._has_no_time():
            return
        self._first_rung()
        for rung in self.rungs[1:]:
            self._next_rung(rung)
        self._confirm()
        self._check_failures(least=1)
        self._finals()
        self._show(now=True)

    def _train_baseline(self) -> None:
        """Train the baseline to its end on the first seeds of the finals; raises as ``evidence.check`` does."""
        self.phase, seeds = "baseline", self.settings.seeds[:FIRST_TRAININGS]
        for seed in seeds:
            self.queue.queue(BASELINE, FINAL, seed, _FIRST)

        def ended() -> list[TrialOutcome]:
            rows = [row for row in self._all(FINAL) if row.number == BASELINE and row.seed in seeds and row.is_ended]
            return [TrialOutcome.from_dict(row.outcome) for row in rows]

        self._wait(lambda: len(ended()) == len(seeds))
        self.evidence = evidence_of(self.settings, ended())
        self._show(now=True)
        if not self._trials_on(self.rungs[0].name):
            check(self.settings, self.evidence, ended())

    def _has_no_time(self) -> bool:
        """Whether a continued search has no time for two more operators; ``end_reason`` is then set."""
        rungs_s = sum(FEWEST * self.plan.part(rung.name).each_s for rung in self.rungs)
        needed_s = (rungs_s + self._finals_s()) / self.settings.workers
        is_new = self.begun_at and len(self.queue.current()) == self.begun_at
        left_s = max(0.0, self._remaining_s() / self.settings.workers)
        ends_finals = left_s and not all(training.is_ended for training in self._all(FINAL))
        if not is_new or ends_finals or left_s >= needed_s:
            return False
        takes, left = (f"{one / 60:.1f} minutes" if needed_s >= 60 else f"{one:.0f} s" for one in (needed_s, left_s))
        self.end_reason = (
            f"nothing more is trained, because more operators and their finals take {takes} and {left} are left; "
            f"give --minutes {ceil((self.search_s + needed_s) / 60)} (minutes= in Python)"
        )
        self.report(1.0, self.end_reason)
        return True

    def _queue_baselines(self, gaps: int) -> None:
        """Queue the baseline's final trainings, for times in which workers would otherwise wait.

        At the start there is one seed for each worker. Each of ``gaps`` ends of a stage adds a seed for all workers but
        one: the last worker must not take a seed before the next stage is queued.
        """
        workers = self.settings.workers
        for seed in self.settings.seeds[: workers + gaps * (workers - 1)]:
            self.queue.queue(BASELINE, FINAL, seed, _LAST)

    def _planned(self) -> Plan:
        """Measure the baseline's time, and return the plan of the minutes.

        A timing stops if it would take more than a tenth of the minutes; the plan then has its projected time.
        """
        self.phase = "timing"
        timings = [(TIMING, 0), *((rung.name, 0) for rung in reversed(self.rungs) if is_timed(rung))]  # longest first
        for name, seed in timings:
            self.queue.queue(BASELINE, name, seed, _FIRST)
        self._wait(lambda: all(self._baseline(name) is not None for name, _ in timings))
        each_s = {}
        for name, _ in timings:
            outcome = self._baseline(name)
            assert outcome is not None
            each_s[name] = outcome.work_s
            if outcome.state == "timeout":
                each_s[name] = projected_s(outcome.reason) or TIMING_STEPS * outcome.work_s
            elif outcome.state != "finished":
                raise SearchError(
                    f"expected the baseline to be trained on {quoted(name)}, found {outcome.state}: {outcome.reason}"
                )
        training, seeds, minutes = self.settings.training, len(self.settings.seeds), self.settings.minutes
        assert minutes is not None
        for rung in self.rungs:
            if rung.is_full:
                each_s[rung.name] = self._seconds(each_s[TIMING], msgspec.structs.replace(training, folds=None))
            elif not is_timed(rung):
                each_s[rung.name] = self._seconds(each_s[TIMING], rung_request(training, rung))
        each_s[FINAL] = self._seconds(each_s[TIMING], msgspec.structs.replace(training, fold=training.folds and 1))
        self.rungs = worthwhile(self.rungs, each_s)
        plan = plan_for(minutes, self.settings.workers, self.rungs, each_s, seeds, training.folds or 0)
        for rung in self.rungs[:-1]:  # the baseline's seconds on a rung limit its operators' seconds
            self.queue.queue(BASELINE, rung.name, 0, _FIRST)
        return plan

    def _seconds(self, timed_s: float, request: TrialRequest) -> float:
        """Estimate the seconds of a training of the network, with its tests, from the time of its first batches."""
        with_holdout = msgspec.structs.replace(request, holdout=HOLDOUT, folds=None, fold=None)
        _, timed_tests = batches_of(with_holdout)
        batches, tests = batches_of(request)
        each_s = timed_s / (TIMING_STEPS + FORWARD * timed_tests)
        steps = request.epochs * batches if request.steps is None else request.steps
        return each_s * (steps + (request.epochs if request.steps is None else 1) * FORWARD * tests)

    def _begin(self) -> None:
        """Make the search, and tell it the outcomes from an earlier process."""
        has_probe = self.uses_probe and self.space.has_probe
        self.search = self._shown = self.start(self.space.score if has_probe else None)
        if has_probe:
            self._untrained = self.space.elite_search(random.Random(self.settings.seed))  # noqa: S311 - for choices
        self._resume()

    def _first_rung(self) -> None:
        """Draw operators and train them on the first rung, until the remaining time is needed for later parts."""
        first, later = self.rungs[0], self.rungs[1:]
        self.phase = first.name
        begun = [self._with_more_seeds(self.begun_at), *(self._trials_on(rung.name, self.begun_at) for rung in later)]
        is_over = any(begun)
        reserve, ahead = self._reserve(first), (first.name, WAITING)
        most = inf if self.settings.trials is None else self.settings.trials
        while not is_over:
            self._look()
            busy = [row for row in self.queue.current() if row.state == TAKEN or (row.rung, row.state) == ahead]
            if self._remaining_s() <= reserve + self._finals_s() or len(self._numbers) >= most:
                break
            if len(busy) < self.settings.workers + AHEAD:
                is_over = not self._ask(first)
            elif not self._draw():
                self.sleep(PAUSE_S)
        self._finish(first, gaps=int(first.is_full))
        self._tell()

    def _draw(self) -> bool:
        """Draw and score at most one operator; return False if the time for draws is used or no operator is left."""
        search, most_s = self._untrained, self.plan.part("draws").seconds / self.settings.workers
        if search is None or self.funnel.draws["seconds"] >= most_s:
            return False
        started = self.cpu_clock()
        candidate = search.ask(lambda: self.should_stop() or self.cpu_clock() > started + DRAW_S)
        if candidate is not None:
            search.tell(candidate, self.space.score(candidate.operator))
            search.told.clear()  # saves memory: only the search's elites are used
        spent = self.cpu_clock() - started
        self.funnel.spend(spent)
        # A draw that timed out may continue with the next call. If a draw fails without a timeout, no operator is left.
        return candidate is not None or spent > DRAW_S

    def _next_rung(self, rung: Rung) -> None:
        """Train the best operators of the previous rung on this rung."""
        before = self.rungs[self.rungs.index(rung) - 1]
        self.phase = rung.name
        if not self._trials_on(rung.name, self.begun_at):
            chosen = self._chosen(before, self._room(rung), self._trials_on(rung.name))
            for number in self._longest_first(chosen, before):
                for seed in range(rung.seeds):
                    self.queue.queue(number, rung.name, seed, _RUNGS - self.rungs.index(rung))
        self._finish(rung, gaps=int(rung.is_full))

    def _chosen(self, rung: Rung, count: int, trained: Sequence[RungTraining]) -> list[int]:
        """Return the numbers of ``count`` survivors of a rung, without the operators in ``trained``."""
        earlier = {training.number for training in trained}
        best = survivors(self.scores(rung), count + len(earlier), self.shares)
        return [number for number in best if number not in earlier][:count]

    def _longest_first(self, numbers: Iterable[int], rung: Rung) -> list[int]:
        """Sort trials by the time of their trainings on a rung, the longest first, so that all workers end together."""
        seconds: defaultdict[int, float] = defaultdict(float)
        for training in self._trials_on(rung.name):
            seconds[training.number] += training.spent("work_s")
        return sorted(numbers, key=lambda number: -seconds[number])

    def _finish(self, rung: Rung, gaps: int) -> None:
        """Wait for all trainings on a rung. ``gaps``: the argument of :meth:`_queue_baselines`."""
        self._queue_baselines(gaps)
        self._wait(lambda: all(training.is_ended for training in self._trials_on(rung.name)))

    def _confirm(self) -> None:
        """Train the best operators of the last rung on more seeds: two or more operators, as many as time allows."""
        self.phase, last = CONFIRM, self.rungs[-1]
        seeds = range(last.seeds, last.seeds + MORE_SEEDS)
        if not self._with_more_seeds(self.begun_at):
            count = int((self._remaining_s() - self._finals_s()) / (MORE_SEEDS * self.plan.part(CONFIRM).each_s))
            chosen = self._chosen(last, count, self._with_more_seeds()) if count >= FEWEST else ()
            for number in self._longest_first(chosen, last):
                for seed in seeds:
                    self.queue.queue(number, last.name, seed, _RUNGS - len(self.rungs))
        self._finish(last, gaps=2)

    def _room(self, rung: Rung) -> int:
        """Return the number of operators that the rung can train in the remaining time."""
        seconds = self._remaining_s() - self._finals_s() - self._reserve(rung)
        return max(0 if self.begun_at or self._is_late else FEWEST, int(seconds / self.plan.part(rung.name).each_s))

    def _reserve(self, rung: Rung) -> float:
        """Return the worker seconds for later rungs: their planned share of the remaining time before the finals.

        The first rung also has the time of the draws, which run during it.
        """
        index = self.rungs.index(rung)
        own_s = self.plan.part(rung.name).seconds + (0.0 if index else self.plan.part("draws").seconds)
        later = [*(rest.name for rest in self.rungs[index + 1 :]), CONFIRM]
        later_s = sum(self.plan.part(name).seconds for name in later)
        return max(0.0, self._remaining_s() - self._finals_s()) * later_s / (own_s + later_s)

    def _finals(self) -> None:
        """Train the best operator within each share, and the best known operator, on the seeds of the finals."""
        self.phase = FINAL
        if not self.settings.seeds:
            return
        finalists = self._longest_first(self.finalists(), self.rungs[-1])
        for seed in self.settings.seeds:  # each seed in turn, because time may run out
            for number in (BASELINE, *finalists):
                self.queue.queue(number, FINAL, seed, _FIRST)
        trained = [(row[0], name) for name, row in self.rivals.items() if isinstance(row[2], TrialRequest)]
        for number, name in trained[: self.plan.part(RIVALS).trainings // (self.settings.training.folds or 1)]:
            self.queue.queue(number, f"{RIVALS}: {name}", self.settings.seeds[0], _LAST)
        self._wait(lambda: all(row.is_ended for row in self.queue.current() if row.part in (FINAL, RIVALS)))
        if open_ := sum(not training.is_ended for training in self._all(FINAL)):
            self.end_reason = f"its minutes were over before {open_} of {len(self._all(FINAL))} trainings of the finals"

    def finalists(self) -> list[int]:
        """Return the numbers of the best discovered operator within each share, and of the best known operator."""
        best = [*map(self.best_within, self.shares), self.best_known()]
        return list(dict.fromkeys(score.number for score in best if score is not None))

    @cached_property
    def rivals(self) -> dict[str, tuple[int, str, TrialRequest | str]]:
        """The rivals of the best operator within the largest share, by name: its number, and the :func:`.rival_of`."""
        best = next(filter(None, map(self.best_within, self.shares)), None)
        if best is None or not self.settings.seeds:
            return {}
        texts = {self.log.trial(number).operator: number for number in (best.number, *self.finalists())}
        request = msgspec.structs.replace(self.settings.training, operator=next(iter(texts)))
        found: dict[str, tuple[int, str, TrialRequest | str]] = {}
        for name in NAMES:
            title, rival = rival_of(name, request)
            of = None if isinstance(rival, str) else texts.get(rival.operator or "")
            found[name] = best.number, title, rival if of is None else f"it is trial {of} of the finals"
        return found

    def best_within(self, share: float) -> Score | None:
        """Return the best discovered operator within a share of the FLOPs; of equally good operators, the cheaper.

        Among the operators with additional seeds, the mean measure over all seeds decides. If the share has no operator
        with additional seeds, the scores of all operators on the last rung decide.
        """
        return self._best([row for row in self.scores(self.rungs[-1]) if row.number not in self._known_trials], share)

    def best_known(self) -> Score | None:
        """Return the best known operator, chosen as in :meth:`best_within`; else None."""
        return self._best([row for row in self.scores(self.rungs[-1]) if row.number in self._known_trials], inf)

    def _best(self, scores: Sequence[Score], share: float) -> Score | None:
        within = [row for row in scores if row.ratio <= share]
        more = Counter(training.number for training in self._with_more_seeds() if training.state == "finished")
        means = self.measures(self.rungs[-1])
        sure = [Score(row.number, row.ratio, means[row.number]) for row in within if more[row.number] == MORE_SEEDS]
        return max(sure or within, key=lambda row: (row.value, -row.ratio), default=None)

    def _with_more_seeds(self, since: int = 0) -> list[RungTraining]:
        """Return the trainings with additional seeds on the last rung, from position ``since`` of the queue on."""
        last = self.rungs[-1]
        return [training for training in self._trials_on(last.name, since) if training.seed >= last.seeds]

    # -- scores ------------------------------------------------------------------------------------------------------

    def scores(self, rung: Rung) -> list[Score]:
        """Return the scores of the operators that finished on all seeds of a rung.

        The measure of a single rung is noisy. So from the second rung on, a score is the mean of the standardised
        measures on this rung and the previous rung.
        """
        index = self.rungs.index(rung)
        values = self._standardised(rung)
        before = self._standardised(self.rungs[index - 1]) if index else {}
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
        """Return the mean measure over the seeds, by trial number, for trials that finished on all seeds of a rung."""
        by_number: dict[int, list[float]] = {}
        for training in self._trials_on(rung.name):
            if training.state == "finished" and training.measure is not None:
                by_number.setdefault(training.number, []).append(training.measure)
        return {
            number: self._reward(number, statistics.fmean(values))
            for number, values in by_number.items()
            if len(values) >= rung.seeds
        }

    def _reward(self, number: int, measure: float) -> float:
        """Return the measure, or the user's own reward for this measure."""
        if self.settings.reward is None:
            return measure
        trial = self.log.trial(number)
        return self.space.reward(measure, trial.flops, trial.params)

    # -- ask and tell ------------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        """Tell the search the outcomes of an earlier process, and adopt its running trials."""
        trials = self.log.trials()
        self.search.resume([(read_operator(text), reward) for text, reward in self.log.told()], self._upcoming)
        stored = {trial.operator for trial in trials}
        self._upcoming = [operator for operator in self._upcoming if operator.to_json() not in stored]
        for trial in trials:
            self._number(trial.number, trial.operator)
            if trial.position is not None:
                self._told_trials.add(trial.number)
            else:
                candidate = self.search.adopt(read_operator(trial.operator))
                if candidate is not None:
                    self._candidates[trial.number] = candidate
                for seed in range(self.rungs[0].seeds):
                    self.queue.queue(trial.number, self.rungs[0].name, seed, _RUNGS)
        self._earlier = frozenset(self._told_trials)  # failures of earlier processes do not count

    def _ask(self, rung: Rung) -> bool:
        """Queue the next operator on the first rung; return False if no operator is left."""
        candidate = self._next_candidate()
        if candidate is None:
            self._look()  # raises Stopped if a stop request ended the draws
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
        """Return the next known operator, or a discovered operator when no known operator is left.

        If the plan has few trainings, known and discovered operators alternate, because else none would be discovered.
        """
        is_room = self.plan.part(self.rungs[0].name).trainings >= 2 * len(self.known)
        discovered = len(self._numbers) - len(self._known_trials)
        known = self.next_known(self.search) if is_room or len(self._known_trials) <= discovered else None
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
        started, gives_up = self.cpu_clock(), self.out_of_patience()
        try:
            return self.search.ask(lambda: self.should_stop() or gives_up())
        finally:
            self.funnel.spend(self.cpu_clock() - started)

    def _next_elite(self) -> Elite | None:
        """Return the best elite that was not proposed yet; the ranges of FLOPs take turns."""
        elites = [] if self._untrained is None else self._untrained.elites.in_turn()
        return next((elite for elite in elites if not self.search.knows(elite.operator)), None)

    def _tell(self) -> None:
        """Record the outcomes of the first rung and tell the search."""
        rung = self.rungs[0]
        by_number: dict[int, list[RungTraining]] = {}
        for training in self._trials_on(rung.name):
            if training.number not in self._told_trials:
                by_number.setdefault(training.number, []).append(training)
        for number, trainings in by_number.items():
            if len(trainings) < rung.seeds or not all(training.is_ended for training in trainings):
                continue
            reward = statistics.fmean(training.measure or 0.0 for training in trainings)
            if all(training.state == "finished" for training in trainings):
                reward = self._reward(number, reward)
            outcome = {**trainings[0].outcome, "rung": rung.name}
            outcome |= self.space.probed(read_operator(self.log.trial(number).operator))
            self.log.record(number, outcome, reward=min(1.0, max(0.0, reward)))
            self._told_trials.add(number)
            candidate = self._candidates.pop(number, None)
            if candidate is not None:
                self.search.tell(candidate, reward)

    # -- time --------------------------------------------------------------------------------------------------------

    def _remaining_s(self) -> float:
        """Return the remaining worker seconds."""
        assert self.settings.minutes is not None
        return (60 * self.settings.minutes - self.search_s) * self.settings.workers

    def _finals_s(self) -> float:
        """Return the worker seconds that the finals still need: for the finalists and the baseline's missing seeds."""
        ended = sum(1 for training in self._all(FINAL) if training.is_ended and training.number == BASELINE)
        planned_s = sum(self.plan.part(name).seconds for name in ("finals", RIVALS, TIMES))
        return (1 - ended / max(1, len(self.settings.seeds))) * self.plan.part("baseline").seconds + planned_s

    @property
    def _is_late(self) -> bool:
        return self._plan is not None and self.search_s > 60 * LATEST * (self.settings.minutes or 0)

    @property
    def search_s(self) -> float:
        """The wall seconds of all processes of this search."""
        return self.clock() - self._start_s

    # -- waiting and showing -----------------------------------------------------------------------------------------

    def _all(self, rung: str) -> list[RungTraining]:
        return [training for training in self.queue.current() if training.rung == rung]

    def _trials_on(self, rung: str, since: int = 0) -> list[RungTraining]:
        return [row for row in self.queue.current()[since:] if row.rung == rung and row.number != BASELINE]

    def _baseline(self, rung: str) -> TrialOutcome | None:
        for training in self._all(rung):
            if training.number == BASELINE and training.is_ended:
                return TrialOutcome.from_dict(training.outcome)
        return None

    def _wait(self, is_over: Callable[[], bool]) -> None:
        while not (is_over() or self._is_late):
            self._look()
            self.sleep(PAUSE_S)

    def _look(self) -> None:
        """Stop if the caller requests it, check workers and outcomes, and show progress."""
        if self.should_stop():
            self._show(now=True)
            raise Stopped(f"stopped after {len(self._told_trials)} trials; they are in the store")
        self.workers.look()
        if self.phase == self.rungs[0].name:
            self._tell()
            self._check_failures()
        self._show()

    def _check_failures(self, least: int = ENOUGH) -> None:
        ended = (row for row in self.queue.current() if row.is_ended and row.part != RIVALS)
        new = [row for row in ended if row.number not in {BASELINE, *self._earlier}]
        check_failures(((row.number, row.state, row.reason) for row in new), least)

    def _show(self, *, now: bool = False) -> None:
        if not self.is_due(now=now):
            return
        self.funnel.see(self.space.counts)
        self.funnel.count(self.rungs, self.queue.current(), FINAL)
        self.report(
            min(1.0, self.search_s / 60 / (self.settings.minutes or 1.0)), f"{self.phase}: {self.funnel.line()}"
        )
        self.board.show(self.status(), RUNGS_STATUS, self._shown, now=now)

    def status(self) -> Searched:
        """Return the status of the running search."""
        return Searched(
            phase=self.phase,
            plan=self._plan,
            uses_probe=self.uses_probe,
            evidence=self.evidence,
            funnel=self.funnel,
            known={str(number): name for number, name in self._known_trials.items()},
            search_s=self.search_s,
            begun_at=self.begun_at,
            end=self.end_reason,
        )

    @property
    def plan(self) -> Plan:
        """The plan of the search, which exists after the timing."""
        assert self._plan is not None
        return self._plan
