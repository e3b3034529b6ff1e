"""Algorithm 1 of Syno as a loop: ask, train, record, tell; and again from the store after any kill.

Whatever has happened is in the store before the search is told of it, so a search that goes on in another process knows
what this one knew. Trainings are asked for while evaluators are free, and told in the order in which they end. With
several hands the next operator is looked for while all of them train, so that none waits for it; it knows of the
results till then, as if one more training were under way. With one hand every operator knows of all results before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from syno_lab.errors import SynoError
from syno_lab.evaluate.searching.evaluators import Evaluators, Running
from syno_lab.evaluate.searching.known import known_operators
from syno_lab.evaluate.searching.settings import SearchSettings
from syno_lab.evaluate.searching.space import Space, name_of
from syno_lab.evaluate.searching.standing import Standing, Times
from syno_lab.evaluate.searching.tunings import Tunings
from syno_lab.evaluate.searching.watching import PERIOD_S, Board
from syno_lab.ir.operator import Operator
from syno_lab.search import Candidate

if TYPE_CHECKING:
    from syno_lab.evaluate.store import SearchLog, SearchTrial

LOOK_S = 0.5
#: Seconds without a new operator after which a search that cannot find one says so and ends.
PATIENCE_S = 120.0
#: An operator is looked for that is faster: one whose training takes so many times the baseline's is none.
TIMES_THE_BASELINE = 2.0
#: Earlier curves that a rule of early termination is given: the best of each epoch is among the best of the last.
MOST_RIVALS = 50

Report = Callable[[float, str], None]


class Stopped(SynoError):  # noqa: N818 - no error, but a way out
    """The search was asked to stop; it goes on from the store."""


@dataclass
class _Pending:
    candidate: Candidate | None  # None: an operator that the space has no more
    number: int
    running: Running


@dataclass
class Driver:
    """One search, from its first question or from where it was.

    Attributes:
        settings, space, log: what is searched for, where, and the search's place in the store.
        evaluators: who trains.
        board: what is shown.
        report, should_stop: of the job.
        clock: seconds; ``cpu_clock``: those of the processor that this thread had.
        baseline_s: how long a training of the baseline took; trials that take more than :data:`TIMES_THE_BASELINE` as
            long, and more than a minute, are ended.
        tunings: of the trials that are accurate enough; they go on when this has returned.
        known: the names of the operators that the search begins with, by their JSON.
    """

    settings: SearchSettings
    space: Space
    log: SearchLog
    evaluators: Evaluators
    board: Board
    report: Report = lambda fraction, message: None
    should_stop: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    cpu_clock: Callable[[], float] = time.thread_time
    times: Times = field(default_factory=Times)
    baseline_s: float | None = None
    tunings: Tunings | None = None
    end_reason: str = ""
    known: dict[str, str] = field(default_factory=dict)
    _pending: list[_Pending] = field(default_factory=list)
    _given: list[Operator] = field(default_factory=list)
    _ahead: Candidate | None = None
    _looks_ahead: bool = False
    _curves: list[list[float]] = field(default_factory=list)
    _next_report: float = -float("inf")

    def __post_init__(self) -> None:
        with self._spending("asking_s"):
            self.search = self.space.search(self.settings)
            if self.settings.starts_with_known:
                found = known_operators(self.search.root, self.space.spec)
                self._given = list(found.values())
                self.known = {operator.to_json(): name for name, operator in found.items()}
        self._looks_ahead = self.settings.workers > 1
        self.standing = Standing(self.space.baseline.flops, self.settings.workers)

    def run(self) -> None:
        """Search until the time is up, the trials are used up, or the space is; then wait for what is being trained.

        Raises:
            Stopped: when ``should_stop`` says so; trainings and tunings that are jobs go on meanwhile.
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
                # A space that is used up is asked once more where a hand is free, and not all the time till then.
                self._looks_ahead = self._ahead is not None or self._has_news()
            if not pending and not self.should_stop():
                break
            wait([one.running.future for one in pending], timeout=LOOK_S, return_when=FIRST_COMPLETED)
            for one in [one for one in pending if one.running.future.done()]:
                pending.remove(one)
                self._told(one)
            if self.tunings is not None:
                with self._spending("store_s"):
                    self.tunings.look()
            self._show()
        self.times.search_s = before + self.clock() - begun
        self._show(now=True)

    def _has_news(self) -> bool:
        return any(one.running.future.done() for one in self._pending)

    @contextmanager
    def _spending(self, on: str) -> Iterator[None]:
        """What happens within is overhead of a kind, a field of :class:`.Times`."""
        free = max(0, self.settings.workers - len(self._pending))
        start, start_cpu = self.clock(), self.cpu_clock()
        try:
            yield
        finally:
            spent = self.clock() - start
            setattr(self.times, on, getattr(self.times, on) + spent)
            # Hands that are free stand still meanwhile; where all are busy, processor time is taken from them at most.
            self.times.held_s += free * spent if free else self.cpu_clock() - start_cpu

    # -- from the store ----------------------------------------------------------------------------------------------

    def _resumed(self) -> list[_Pending]:
        """Tell the search what the store knows, and take up what was under way."""
        trials = self.log.trials()
        self.search.resume([(Operator.from_json(text), reward) for text, reward in self.log.told()], self._given)
        begun = {trial.operator for trial in trials}
        self._given = [operator for operator in self._given if operator.to_json() not in begun]
        for trial in sorted((t for t in trials if t.position is not None), key=lambda t: t.position or 0):
            self._count(trial, trial.outcome or {})
        pending = []
        for trial in trials:
            if trial.position is None:
                candidate = self.search.adopt(Operator.from_json(trial.operator))
                running = self.evaluators.find(self._name(trial.number)) or self._submit(trial.number, trial.operator)
                pending.append(_Pending(candidate, trial.number, running))
        return pending

    # -- ask and tell ------------------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        if self.end_reason:
            return True
        minutes, trials = self.settings.minutes, self.settings.trials
        if minutes is not None and self.times.search_s >= 60 * minutes:
            self.end_reason = f"{minutes:g} minutes are over"
        elif trials is not None and self.standing.total + len(self._pending) >= trials:
            return True  # unless one of them turns out to be none
        return bool(self.end_reason)

    def _asked(self) -> _Pending | None:
        """The next operator, written down and begun; None where there is none, or the time is up."""
        candidate, self._ahead = self._ahead, None
        deadline = self.clock() + PATIENCE_S
        if candidate is None:
            candidate = self._chosen(lambda: self.clock() > deadline)
        if candidate is None:
            if self.should_stop():
                return None
            self.end_reason = (
                f"no new operator {self.space.limits} in {PATIENCE_S:g} s"
                if self.clock() > deadline
                else "every operator of the space is evaluated"
            )
            return None
        with self._spending("store_s"):
            operator: Operator = candidate.operator
            costs = self.space.costs(operator)
            assert costs is not None  # the space has asked
            text = operator.to_json()
            number = self.log.add(name_of(operator), text, candidate.steps, costs.flops, costs.params)
            return _Pending(candidate, number, self._submit(number, text))

    def _chosen(self, is_enough: Callable[[], bool]) -> Candidate | None:
        """The search's next candidate, known operators first; None where there is none, or enough of looking."""
        with self._spending("asking_s"):
            while self._given:
                candidate = self.search.adopt(self._given.pop(0))
                if candidate is not None:
                    return candidate
            return self.search.ask(lambda: self.should_stop() or is_enough())

    def _submit(self, number: int, operator: str) -> Running:
        training = self.settings.training
        limit = training.time_limit_s
        if limit is None and self.baseline_s is not None:
            limit = max(60.0, TIMES_THE_BASELINE * self.baseline_s)
        request = msgspec.structs.replace(
            training,
            operator=operator,
            rivals=[] if training.stopping is None else list(self._curves),
            keep_predictions=False,
            time_limit_s=limit,
            gives_up=True,
        )
        return self.evaluators.submit(self._name(number), request)

    def _told(self, one: _Pending) -> None:
        """Write down how a training ended, then tell the search."""
        outcome = outcome_of(one.running)
        with self._spending("store_s"):
            is_new = self.log.record(one.number, outcome, one.running.job)
            trial = self.log.trial(one.number)
            if is_new:
                self._count(trial, outcome)
        if one.candidate is None:
            return
        with self._spending("asking_s"):
            if trial.reward is None:  # interrupted
                self.search.drop(one.candidate)
            else:
                self.search.tell(one.candidate, trial.reward)

    def _count(self, trial: SearchTrial, outcome: dict[str, Any]) -> None:
        self.standing.add(trial.number, trial.flops, trial.params, outcome, self.known.get(trial.operator))
        if self.tunings is not None:
            self.tunings.consider(trial.number, outcome)
        curve = [row["accuracy"] for row in outcome.get("curve") or () if row.get("accuracy") is not None]
        if curve and outcome.get("state") in ("finished", "pruned"):
            self._curves.append(curve)
            if len(self._curves) > MOST_RIVALS:  # the best stays, for the rule of Canvas
                self._curves.remove(min(self._curves[:-1], key=max))

    def _name(self, number: int) -> str:
        return f"{self.settings.name}: trial {number}"

    # -- shown -------------------------------------------------------------------------------------------------------

    def _show(self, *, now: bool = False) -> None:
        if now or self.clock() >= self._next_report:
            self._next_report = self.clock() + PERIOD_S
            with self._spending("store_s"):
                self._shown(now)

    def _shown(self, now: bool) -> None:
        minutes, trials = self.settings.minutes, self.settings.trials
        shares = [] if trials is None else [self.standing.total / trials]
        shares += [] if minutes is None else [self.times.search_s / (60 * minutes)]
        line = self.standing.line(self.times)
        status: dict[str, Any] = {
            "phase": "search",
            "under_way": [one.number for one in self._pending],
            "end": self.end_reason,
        }
        if self.tunings is not None:
            line += f"; {self.tunings.line()}"
            status["tuning"] = self.tunings.to_dict()
        self.report(min(1.0, max(shares)), line)
        self.board.show({**status, **self.standing.to_dict(self.times)}, self.search, now=now)


def outcome_of(running: Running) -> dict[str, Any]:
    """The outcome of a training that has ended; where it gave none, one that says why."""
    try:
        return running.future.result()
    except CancelledError:
        return {"state": "interrupted", "reason": "its job was cancelled", "accuracy": None}
    except SynoError as error:  # a job that failed or was given up
        return {"state": "failed", "reason": str(error), "accuracy": None}
