"""The search loop (Syno, Algorithm 1): ask, train, record, tell. A killed search continues from the store.

The loop writes every outcome to the store before it tells the search, so a search that continues in another process has
all earlier outcomes. The loop asks for an operator whenever a worker is idle, and tells outcomes in the order in which
trainings end. With several workers the loop asks for the next operator while all workers train, so that no worker
waits. Such a choice cannot use the outcomes of the running trainings. With one worker each choice uses all outcomes.

If the latency is an objective, the network of a trained trial is tuned and measured (:mod:`.tunings`) before its
outcome is recorded and told.
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

#: The search is for faster operators, so a training ends after this multiple of the baseline's time.
TIMES_THE_BASELINE = 2.0
#: The largest number of earlier curves for a rule of early termination.
MOST_RIVALS = 50


@dataclass
class _Pending:
    candidate: Candidate | None  # None if the space no longer has the operator
    number: int
    running: Running
    trained: dict[str, JSON] | None = None  # the training's outcome, while the network's tuning runs


@dataclass
class Driver(Loop):
    """A search that trains each operator in the network itself.

    Attributes:
        runner: runs the trainings, as jobs or in threads.
        board: the writer of the search files, for the runs view.
        baseline_s: the seconds of the baseline's training. A trial ends after :data:`TIMES_THE_BASELINE` times these
            seconds, but not before one minute.
        tunings: the tunings of accurate trials; they may still run when the search has ended.
        baseline_accuracy: the mean accuracy of the baseline, for settings that lower the limit of FLOPs.
        lowered: the trials after which the limit of FLOPs was lowered, in order: their ``number``, and the new limit as
            ``replaced_ratio``, a share of the replaced layers' FLOPs.
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
    _ended: list[tuple[int, str, str]] = field(default_factory=list)  # trials that ended here, for check_failures

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
        """Search until the time is over, or no trial or operator is left; then wait for the running trainings.

        Raises:
            Stopped: ``should_stop`` returned True; trainings and tunings that are jobs continue.
            DiskFullError: there is no room for a training in this process.
        """
        started, before = self.clock(), self.times.search_s
        pending = self._pending
        pending += self._resumed()
        while True:
            self.times.search_s = before + self.clock() - started
            if self.should_stop():
                self._show(now=True)
                raise Stopped(f"stopped after {self.standing.total} trials; they are in the store")
            while len(pending) < self.settings.workers and not self._is_over():
                begun_trial = self._start_next()
                if begun_trial is None:
                    break
                pending.append(begun_trial)
            if pending and self._looks_ahead and self._ahead is None and not self._is_over():
                self._ahead = self._choose(self._has_news)
                # If the search found no operator, ask again only when a worker is idle, not in every round.
                self._looks_ahead = self._ahead is not None or self._has_news()
            if not pending and not self.should_stop():
                break
            futures = [entry.running.future for entry in pending if entry.trained is None]
            if len(futures) < len(pending) and self.tunings is not None:
                futures += self.tunings.futures
            wait(futures, timeout=LOOK_S, return_when=FIRST_COMPLETED)
            if self.tunings is not None:
                with self._spending("store_s"):
                    self.tunings.look()
            for entry in [other for other in pending if self._is_ready(other)]:
                outcome = self._outcome(entry)
                if outcome is not None:
                    pending.remove(entry)
                    self._record(entry, outcome)
            self._show()
        self.times.search_s = before + self.clock() - started
        self._show(now=True)
        check_failures(self._ended, least=1)

    def _has_news(self) -> bool:
        return any(self._is_ready(trial) for trial in self._pending)

    def _is_ready(self, trial: _Pending) -> bool:
        """Whether the trial's training has ended, or the tuning of its network if that was started."""
        if trial.trained is None or self.tunings is None:
            return trial.running.future.done()
        return self.tunings.is_settled(trial.number)

    def _outcome(self, pending: _Pending) -> dict[str, JSON] | None:
        """Return the outcome of a ready trial; if its network must be tuned first, start the tuning and return None."""
        outcome = pending.running.result() if pending.trained is None else pending.trained
        tunings, ended = self.tunings, told(Outcome, outcome)
        if tunings is None or LATENCY not in self.settings.objectives or ended.trained is None:
            return outcome
        if not tunings.is_settled(pending.number):
            pending.trained = outcome
            tunings.consider(pending.number, ended)
            return None
        latency = tunings.latency_ms(pending.number)
        return outcome if latency is None else outcome | {"network_ms": latency}

    @contextmanager
    def _spending(self, on: str) -> Iterator[None]:
        """Add the time of a ``with`` block, as overhead, to the field of :class:`.Times` named ``on``."""
        free = max(0, self.settings.workers - len(self._pending))
        start, start_cpu = self.clock(), self.cpu_clock()
        try:
            yield
        finally:
            spent = self.clock() - start
            setattr(self.times, on, getattr(self.times, on) + spent)
            # Idle workers wait during the block. Busy workers lose at most this thread's CPU time.
            self.times.held_s += free * spent if free else self.cpu_clock() - start_cpu

    # -- from the store ----------------------------------------------------------------------------------------------

    def _resumed(self) -> list[_Pending]:
        """Tell the search the stored outcomes, and find or restart the trainings that were running."""
        trials = self.log.trials()
        by_text = {trial.operator: trial for trial in trials}
        waiting = {operator for operator in self._upcoming if operator.to_json() in by_text}

        def lower(operator: Operator) -> None:
            waiting.discard(operator)
            self._lower(by_text[operator.to_json()], waits=bool(waiting))

        ended = {trial.operator: told(Outcome, trial.outcome) for trial in trials if trial.outcome is not None}
        known = [(read_operator(text), reward, _measures(ended[text])) for text, reward in self.log.told()]
        self.search.resume(known, self._upcoming, lower)
        self._upcoming = [operator for operator in self._upcoming if operator.to_json() not in by_text]
        for trial in sorted((t for t in trials if t.position is not None), key=lambda t: t.position or 0):
            self._count(trial, ended[trial.operator])
        pending = []
        for trial in trials:
            if trial.position is None:
                candidate = self.search.adopt(read_operator(trial.operator))
                request = self._request_of(trial.number, trial.operator)
                pending.append(
                    _Pending(candidate, trial.number, self.runner.find(*request) or self.runner.submit(*request))
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
            return True  # an interrupted trial is not counted
        return bool(self.end_reason)

    def _start_next(self) -> _Pending | None:
        """Store the next operator and start its training; None if the search found no operator in time."""
        candidate, self._ahead = self._ahead, None
        if candidate is not None and not self.space.accepts(candidate.operator):  # False after a lower limit of FLOPs
            self.search.drop(candidate)
            candidate = None
        gives_up = self.out_of_patience()
        if candidate is None:
            candidate = self._choose(gives_up)
        if candidate is None:
            if not self.should_stop():
                self.end_reason = self.nothing_new if gives_up() else "every operator of the space is evaluated"
            return None
        with self._spending("store_s"):
            number = self.keep(candidate.operator, candidate.taken)
            running = self.runner.submit(*self._request_of(number, candidate.operator.to_json()))
            return _Pending(candidate, number, running)

    def _choose(self, is_enough: Callable[[], bool]) -> Candidate | None:
        """Return the next candidate, known operators first; None if none is left or ``is_enough`` returns True."""
        with self._spending("asking_s"):
            known = self.next_known(self.search)
            return known or self.search.ask(lambda: self.should_stop() or is_enough())

    def _request_of(self, number: int, operator: str) -> tuple[str, TrialRequest]:
        """Return the name and the request of a trial's training."""
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

    def _record(self, item: _Pending, outcome: dict[str, JSON]) -> None:
        """Record the outcome of a trial, then tell the search."""
        ended = told(Outcome, outcome)
        if ended.state != "interrupted":
            outcome = outcome | self.space.probed(read_operator(self.log.trial(item.number).operator))
        with self._spending("store_s"):
            is_new = self.log.record(item.number, outcome, item.running.job, reward=self._reward(item.number, ended))
            if is_new and ended.latency_ms:
                self.log.record_latency(item.number, TORCH, {"latency_ms": ended.latency_ms})
            trial = self.log.trial(item.number)
            if is_new:
                self._count(trial, ended)
                self._ended.append((item.number, trial.state, trial.reason))
                check_failures(self._ended)
        with self._spending("asking_s"):
            if item.candidate is not None and trial.reward is None:  # an interrupted trial has no reward
                self.search.drop(item.candidate)
            elif item.candidate is not None and trial.reward is not None:
                self.search.tell(item.candidate, trial.reward, _measures(ended))
            self._lower(trial, waits=bool(self._upcoming))

    def _reward(self, number: int, ended: Outcome) -> float | None:
        """Return a trial's reward; None: the store's default (the accuracy, or 0 without an accuracy)."""
        if ended.accuracy is None:
            return None
        trial = self.log.trial(number)
        latency = ended.latency_ms if ended.network_ms is None else ended.network_ms
        return self.space.reward(ended.accuracy, trial.flops, trial.params, latency)

    def _lower(self, trial: SearchTrial, *, waits: bool) -> None:
        """Lower the limit of FLOPs if a trial is accurate enough.

        ``waits`` delays a lower limit while known operators are left, so that the first limit holds for all of them.
        """
        points, baseline = self.settings.lower_within, self.baseline_accuracy
        if points is None or baseline is None:
            return
        if trial.state == "finished" and trial.accuracy is not None and trial.accuracy >= baseline - points / 100:
            self._accurate.append(trial)
        while self._accurate and not waits:
            accurate = self._accurate.pop(0)
            if self.space.lower(accurate.flops):
                share = self.space.replaced_share(self.space.most_flops)
                self.lowered.append({"number": accurate.number, "replaced_ratio": share})

    def _count(self, trial: SearchTrial, ended: Outcome) -> None:
        self.standing.add(trial.number, trial.flops, trial.params, ended, self.known.get(trial.operator), trial.reward)
        if self.tunings is not None:
            self.tunings.consider(trial.number, ended)
        curve = [epoch.accuracy for epoch in ended.curve if epoch.accuracy is not None]
        if curve and ended.state in ("finished", "pruned"):
            self._curves.append(curve)
            if len(self._curves) > MOST_RIVALS:  # the rule of Canvas compares with the best curve
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
        """Return the search's status in the phase ``phase``."""
        return msgspec.structs.replace(
            self.standing.said(self.times),
            phase=phase,
            under_way=tuple([trial.number for trial in self._pending]),
            end=self.end_reason,
            lowered=tuple(self.lowered) or None,
            tuning=None if self.tunings is None else self.tunings.said(),
        )


def _measures(ended: Outcome) -> dict[str, float]:
    """Return the latencies of a trial, by the names of objectives."""
    values = {LATENCY: ended.network_ms, TORCH_LATENCY: ended.latency_ms}
    return {name: value for name, value in values.items() if value is not None}
