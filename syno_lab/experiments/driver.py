"""The search loop (Syno, Algorithm 1): ask, train, record, tell. After a kill it continues from the store.

The loop writes every outcome to the store before it tells the search, so a search that continues in another process
knows all earlier outcomes. It asks for an operator whenever a worker is idle, and tells outcomes in the order in which
trainings end. With several workers it chooses the next operator while all of them train, so that no worker waits; that
choice uses the outcomes known by then, as if one more training were under way. With one worker every choice uses all
earlier outcomes.

Where the latency is an objective, a trained trial's network is tuned and measured (:mod:`.tunings`) before its outcome
is recorded and told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field

import msgspec

from syno_lab.experiments.loop import Loop
from syno_lab.experiments.runner import LOOK_S, Runner, Running, Stopped
from syno_lab.experiments.settings import LATENCY, TORCH_LATENCY
from syno_lab.experiments.standing import Standing, Times
from syno_lab.experiments.tunings import Tunings
from syno_lab.experiments.watching import Board
from syno_lab.protocol import Operator
from syno_lab.reports.searched import TRAINED_STATUS, Outcome, Searched, told
from syno_lab.search import Candidate
from syno_lab.store import SearchTrial
from syno_lab.store.latencies import TORCH
from syno_lab.systems import read_operator
from syno_lab.trial import TrialRequest
from syno_lab.trial.failures import check_failures
from syno_lab.versioned import JSON

#: The search is for faster operators: a training that takes so many times the baseline's is ended.
TIMES_THE_BASELINE = 2.0
#: The most earlier curves that a rule of early termination gets.
MOST_RIVALS = 50


@dataclass
class _Pending:
    candidate: Candidate | None  # None: the space no longer has this operator
    number: int
    running: Running
    trained: dict[str, JSON] | None = None  # the training's result, while the network is being tuned


@dataclass
class Driver(Loop):
    """A search that trains each operator in the network itself.

    Attributes:
        runner: runs the trainings.
        board: writes the search's state to files, for the runs view.
        baseline_s: the seconds of the baseline's training; a trial is ended when it takes more than
            :data:`TIMES_THE_BASELINE` as long and more than a minute.
        tunings: tunes the trials that are accurate enough; tunings may still run when the search has ended.
        baseline_accuracy: of the baseline's seeds on average; where the settings lower the limit, it is needed.
        lowered: the trials for which the limit was lowered, in order: ``number``, and as ``replaced_ratio`` the limit
            since then, a share of the replaced layers' FLOPs.
    """

    runner: Runner
    board: Board
    _: KW_ONLY
    times: Times = field(default_factory=Times)
    baseline_s: float | None = None
    tunings: Tunings | None = None
    baseline_accuracy: float | None = None
    lowered: list[dict[str, float]] = field(default_factory=list)
    _accurate: list[SearchTrial] = field(default_factory=list)
    _pending: list[_Pending] = field(default_factory=list)
    _ahead: Candidate | None = None
    _looks_ahead: bool = False
    _curves: list[list[float]] = field(default_factory=list)
    _ended: list[tuple[int, str, str]] = field(default_factory=list)  # what this process has told, for check_failures

    def __post_init__(self) -> None:
        with self._spending("asking_s"):
            self.search = self.start()
        self._looks_ahead = self.settings.workers > 1
        self.standing = Standing(
            self.space.baseline.flops,
            self.settings.workers,
            None if self.space.is_whole else self.space.replaced_flops,
        )

    def run(self) -> None:
        """Search until the time, the trials or the space are used up; then wait for the trainings under way.

        Raises:
            Stopped: ``should_stop`` returned True; trainings and tunings that are jobs continue.
            DiskFullError: there is no room for a training in this process.
        """
        begun, before = self.clock(), self.times.search_s
        pending = self._pending
        pending += self._resumed()
        while True:
            self.times.search_s = before + self.clock() - begun
            if self.should_stop():
                self._show(now=True)
                raise Stopped(f"stopped after {self.standing.total} trials; they are in the store")
            while len(pending) < self.settings.workers and not self._is_over():
                asked = self._asked()
                if asked is None:
                    break
                pending.append(asked)
            if pending and self._looks_ahead and self._ahead is None and not self._is_over():
                self._ahead = self._chosen(self._has_news)
                # Ask a used-up space once more when a worker is idle, instead of repeating the question all the time.
                self._looks_ahead = self._ahead is not None or self._has_news()
            if not pending and not self.should_stop():
                break
            futures = [one.running.future for one in pending if one.trained is None]
            if len(futures) < len(pending) and self.tunings is not None:
                futures += self.tunings.futures
            wait(futures, timeout=LOOK_S, return_when=FIRST_COMPLETED)
            if self.tunings is not None:
                with self._spending("store_s"):
                    self.tunings.look()
            for one in [one for one in pending if self._is_ready(one)]:
                outcome = self._outcome(one)
                if outcome is not None:
                    pending.remove(one)
                    self._told(one, outcome)
            self._show()
        self.times.search_s = before + self.clock() - begun
        self._show(now=True)
        check_failures(self._ended, least=1)

    def _has_news(self) -> bool:
        return any(self._is_ready(one) for one in self._pending)

    def _is_ready(self, one: _Pending) -> bool:
        """Whether its training has ended, or, where its network is being tuned, that."""
        if one.trained is None or self.tunings is None:
            return one.running.future.done()
        return self.tunings.is_settled(one.number)

    def _outcome(self, one: _Pending) -> dict[str, JSON] | None:
        """The outcome of a trial that is ready; None where its network is to be tuned first: that begins."""
        outcome = one.running.result() if one.trained is None else one.trained
        tunings, ended = self.tunings, told(Outcome, outcome)
        if tunings is None or LATENCY not in self.settings.objectives or ended.trained is None:
            return outcome
        if not tunings.is_settled(one.number):
            one.trained = outcome
            tunings.consider(one.number, ended)
            return None
        found = tunings.latency_ms(one.number)
        return outcome if found is None else outcome | {"network_ms": found}

    @contextmanager
    def _spending(self, on: str) -> Iterator[None]:
        """Count the time inside the block as overhead of a kind, a field of :class:`.Times`."""
        free = max(0, self.settings.workers - len(self._pending))
        start, start_cpu = self.clock(), self.cpu_clock()
        try:
            yield
        finally:
            spent = self.clock() - start
            setattr(self.times, on, getattr(self.times, on) + spent)
            # Idle workers wait meanwhile; where all workers are busy, they lose at most this thread's CPU time.
            self.times.held_s += free * spent if free else self.cpu_clock() - start_cpu

    # -- from the store ----------------------------------------------------------------------------------------------

    def _resumed(self) -> list[_Pending]:
        """Tell the search the stored outcomes, and find the trainings that were under way."""
        trials = self.log.trials()
        by_text = {trial.operator: trial for trial in trials}
        given = {operator for operator in self._given if operator.to_json() in by_text}

        def lower(operator: Operator) -> None:
            given.discard(operator)
            self._lower(by_text[operator.to_json()], waits=bool(given))

        ended = {trial.operator: told(Outcome, trial.outcome) for trial in trials if trial.outcome is not None}
        known = [(read_operator(text), reward, _measures(ended[text])) for text, reward in self.log.told()]
        self.search.resume(known, self._given, lower)
        self._given = [operator for operator in self._given if operator.to_json() not in by_text]
        for trial in sorted((t for t in trials if t.position is not None), key=lambda t: t.position or 0):
            self._count(trial, ended[trial.operator])
        pending = []
        for trial in trials:
            if trial.position is None:
                candidate = self.search.adopt(read_operator(trial.operator))
                asked = self._asked_as(trial.number, trial.operator)
                pending.append(
                    _Pending(candidate, trial.number, self.runner.find(*asked) or self.runner.submit(*asked))
                )
        return pending

    # -- ask and tell ------------------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        if self.end_reason:
            return True
        minutes, trials = self.settings.minutes, self.settings.trials
        if minutes is not None and self.times.search_s >= 60 * minutes:
            self.end_reason = f"{minutes:g} minutes are over"
        elif trials is not None and self.standing.total + len(self._pending) >= trials:
            return True  # a trial may still turn out to be interrupted, and then not count
        return bool(self.end_reason)

    def _asked(self) -> _Pending | None:
        """Record the next operator and begin its training; None where there is none, or the time is over."""
        candidate, self._ahead = self._ahead, None
        if candidate is not None and not self.space.accepts(candidate.operator):  # the limit was lowered since
            self.search.drop(candidate)
            candidate = None
        gives_up = self.out_of_patience()
        if candidate is None:
            candidate = self._chosen(gives_up)
        if candidate is None:
            if not self.should_stop():
                self.end_reason = self.nothing_new if gives_up() else "every operator of the space is evaluated"
            return None
        with self._spending("store_s"):
            number = self.keep(candidate.operator, candidate.taken)
            running = self.runner.submit(*self._asked_as(number, candidate.operator.to_json()))
            return _Pending(candidate, number, running)

    def _chosen(self, is_enough: Callable[[], bool]) -> Candidate | None:
        """The search's next candidate, known operators first; None if there is none or ``is_enough`` returned True."""
        with self._spending("asking_s"):
            known = self.next_known(self.search)
            return known or self.search.ask(lambda: self.should_stop() or is_enough())

    def _asked_as(self, number: int, operator: str) -> tuple[str, TrialRequest]:
        """The name and the request of a trial's training."""
        training = self.settings.training
        limit = training.time_limit_s
        if limit is None and self.baseline_s is not None:
            limit = max(60.0, TIMES_THE_BASELINE * self.baseline_s)
        request = msgspec.structs.replace(
            training,
            operator=operator,
            rivals=[] if training.stopping is None else list(self._curves),
            keep_predictions=False,
            measure_latency=TORCH_LATENCY in self.settings.objectives,
            time_limit_s=limit,
            gives_up=True,
        )
        return f"{self.settings.name}: trial {number}", request

    def _told(self, one: _Pending, outcome: dict[str, JSON]) -> None:
        """Record the outcome of a trial, then tell the search."""
        ended = told(Outcome, outcome)
        if ended.state != "interrupted":
            outcome = outcome | self.space.probed(read_operator(self.log.trial(one.number).operator))
        with self._spending("store_s"):
            is_new = self.log.record(one.number, outcome, one.running.job, reward=self._reward(one.number, ended))
            if is_new and ended.latency_ms:
                self.log.record_latency(one.number, TORCH, {"latency_ms": ended.latency_ms})
            trial = self.log.trial(one.number)
            if is_new:
                self._count(trial, ended)
                self._ended.append((one.number, trial.state, trial.reason))
                check_failures(self._ended)
        with self._spending("asking_s"):
            if one.candidate is not None and trial.reward is None:  # interrupted
                self.search.drop(one.candidate)
            elif one.candidate is not None and trial.reward is not None:
                self.search.tell(one.candidate, trial.reward, _measures(ended))
            self._lower(trial, waits=bool(self._given))

    def _reward(self, number: int, ended: Outcome) -> float | None:
        """What the search is told; None: the store's default, the accuracy, 0 where there is none."""
        if ended.accuracy is None:
            return None
        trial = self.log.trial(number)
        latency = ended.latency_ms if ended.network_ms is None else ended.network_ms
        return self.space.reward(ended.accuracy, trial.flops, trial.params, latency)

    def _lower(self, trial: SearchTrial, *, waits: bool) -> None:
        """Lower the limit of FLOPs where a trial is accurate enough.

        ``waits``: not yet, as known operators are still to come: all of them are compared within the limit that was
        asked for.
        """
        points, baseline = self.settings.lower_within, self.baseline_accuracy
        if points is None or baseline is None:
            return
        if trial.state == "finished" and trial.accuracy is not None and trial.accuracy >= baseline - points / 100:
            self._accurate.append(trial)
        while self._accurate and not waits:
            one = self._accurate.pop(0)
            if self.space.lower(one.flops):
                share = self.space.replaced_share(self.space.most_flops)
                self.lowered.append({"number": one.number, "replaced_ratio": share})

    def _count(self, trial: SearchTrial, ended: Outcome) -> None:
        self.standing.add(trial.number, trial.flops, trial.params, ended, self.known.get(trial.operator), trial.reward)
        if self.tunings is not None:
            self.tunings.consider(trial.number, ended)
        curve = [one.accuracy for one in ended.curve if one.accuracy is not None]
        if curve and ended.state in ("finished", "pruned"):
            self._curves.append(curve)
            if len(self._curves) > MOST_RIVALS:  # keep the best curve, which the rule of Canvas needs
                self._curves.remove(min(self._curves[:-1], key=max))

    # -- shown -------------------------------------------------------------------------------------------------------

    def _show(self, *, now: bool = False) -> None:
        if self.is_due(now=now):
            with self._spending("store_s"):
                self._shown(now)

    def _shown(self, now: bool) -> None:
        line = self.standing.line(self.times)
        if self.lowered:
            line += f"; limit lowered to {self.space.replaced_share(self.space.most_flops):.3f}"
        if self.tunings is not None:
            line += f"; {self.tunings.line()}"
        self.report(self.fraction(self.standing.total, self.times.search_s), line)
        self.board.show(self.status("search"), TRAINED_STATUS, self.search, now=now)

    def status(self, phase: str) -> Searched:
        """What the search says of itself in this part of it."""
        return msgspec.structs.replace(
            self.standing.said(self.times),
            phase=phase,
            under_way=tuple([one.number for one in self._pending]),
            end=self.end_reason,
            lowered=tuple(self.lowered) or None,
            tuning=None if self.tunings is None else self.tunings.said(),
        )


def _measures(ended: Outcome) -> dict[str, float]:
    """What was measured of a trial beside its accuracy, by the names of objectives."""
    found = {LATENCY: ended.network_ms, TORCH_LATENCY: ended.latency_ms}
    return {name: value for name, value in found.items() if value is not None}
