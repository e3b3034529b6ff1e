"""Algorithm 1 of Syno as a loop: ask, train, record, tell; and again from the store after any kill.

Whatever has happened is in the store before the search is told of it, so a search that goes on in another process knows
what this one knew. Trainings are asked for while evaluators are free, and told in the order in which they end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, CancelledError, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from syno_lab.errors import SynoError
from syno_lab.evaluate.searching.evaluators import Evaluators, Running
from syno_lab.evaluate.searching.settings import SearchSettings
from syno_lab.evaluate.searching.space import Space, name_of
from syno_lab.evaluate.searching.standing import Standing, Times
from syno_lab.evaluate.searching.tunings import Tunings
from syno_lab.evaluate.searching.watching import PERIOD_S, Board
from syno_lab.ir.operator import Operator
from syno_lab.search import Candidate

if TYPE_CHECKING:
    from syno_lab.evaluate.store import SearchLog

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
        clock: seconds.
        baseline_s: how long a training of the baseline took; trials that take more than :data:`TIMES_THE_BASELINE` as
            long, and more than a minute, are ended.
        tunings: of the trials that are accurate enough; they go on when this has returned.
    """

    settings: SearchSettings
    space: Space
    log: SearchLog
    evaluators: Evaluators
    board: Board
    report: Report = lambda fraction, message: None
    should_stop: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    times: Times = field(default_factory=Times)
    baseline_s: float | None = None
    tunings: Tunings | None = None
    end_reason: str = ""
    _curves: list[list[float]] = field(default_factory=list)
    _next_report: float = -float("inf")

    def __post_init__(self) -> None:
        self.search = self.space.search(self.settings)
        self.standing = Standing(self.space.baseline.flops, self.settings.workers)

    def run(self) -> None:
        """Search until the time is up, the trials are used up, or the space is; then wait for what is being trained.

        Raises:
            Stopped: when ``should_stop`` says so; trainings and tunings that are jobs go on meanwhile.
        """
        begun, before = self.clock(), self.times.search_s
        pending = self._resumed()
        while True:
            self.times.search_s = before + self.clock() - begun
            if self.should_stop():
                self._show(pending, now=True)
                raise Stopped(f"stopped after {self.standing.total} trials; they are in the store")
            while len(pending) < self.settings.workers and not self._is_over(pending):
                asked = self._asked()
                if asked is None:
                    break
                pending.append(asked)
            if not pending and not self.should_stop():
                break
            wait([one.running.future for one in pending], timeout=LOOK_S, return_when=FIRST_COMPLETED)
            for one in [one for one in pending if one.running.future.done()]:
                pending.remove(one)
                self._told(one)
            if self.tunings is not None:
                start = self.clock()
                self.tunings.look()
                self.times.store_s += self.clock() - start
            self._show(pending)
        self.times.search_s = before + self.clock() - begun
        self._show(pending, now=True)

    # -- from the store ----------------------------------------------------------------------------------------------

    def _resumed(self) -> list[_Pending]:
        """Tell the search what the store knows, and take up what was under way."""
        trials = self.log.trials()
        self.search.resume([(Operator.from_json(text), reward) for text, reward in self.log.told()])
        for trial in sorted((t for t in trials if t.position is not None), key=lambda t: t.position or 0):
            self._count(trial.number, trial.flops, trial.params, trial.outcome or {})
        pending = []
        for trial in trials:
            if trial.position is None:
                candidate = self.search.adopt(Operator.from_json(trial.operator))
                running = self.evaluators.find(self._name(trial.number)) or self._submit(trial.number, trial.operator)
                pending.append(_Pending(candidate, trial.number, running))
        return pending

    # -- ask and tell ------------------------------------------------------------------------------------------------

    def _is_over(self, pending: list[_Pending]) -> bool:
        if self.end_reason:
            return True
        minutes, trials = self.settings.minutes, self.settings.trials
        if minutes is not None and self.times.search_s >= 60 * minutes:
            self.end_reason = f"{minutes:g} minutes are over"
        elif trials is not None and self.standing.total + len(pending) >= trials:
            return True  # unless one of them turns out to be none
        return bool(self.end_reason)

    def _asked(self) -> _Pending | None:
        """The next operator, written down and begun; None where there is none, or the time is up."""
        start = self.clock()
        deadline = start + PATIENCE_S

        def should_stop() -> bool:
            return self.should_stop() or self.clock() > deadline

        candidate = self.search.ask(should_stop)
        asked = self.clock()
        self.times.asking_s += asked - start
        if candidate is None:
            if self.should_stop():
                return None
            self.end_reason = (
                f"no new operator within {self.settings.max_flops_ratio:.0%} of the FLOPs in {PATIENCE_S:g} s"
                if asked > deadline
                else "every operator of the space is evaluated"
            )
            return None
        operator: Operator = candidate.operator
        costs = self.space.costs(operator)
        assert costs is not None  # the space has asked
        text = operator.to_json()
        number = self.log.add(name_of(operator), text, candidate.steps, costs.flops, costs.params)
        self.times.store_s += self.clock() - asked
        return _Pending(candidate, number, self._submit(number, text))

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
        )
        return self.evaluators.submit(self._name(number), request)

    def _told(self, one: _Pending) -> None:
        """Write down how a training ended, then tell the search."""
        outcome = outcome_of(one.running)
        start = self.clock()
        is_new = self.log.record(one.number, outcome, one.running.job)
        self.times.store_s += self.clock() - start
        trial = self.log.trial(one.number)
        if is_new:
            self._count(trial.number, trial.flops, trial.params, outcome)
        if one.candidate is None:
            return
        start = self.clock()
        if trial.reward is None:  # interrupted
            self.search.drop(one.candidate)
        else:
            self.search.tell(one.candidate, trial.reward)
        self.times.asking_s += self.clock() - start

    def _count(self, number: int, flops: int, params: int, outcome: dict[str, Any]) -> None:
        self.standing.add(number, flops, params, outcome)
        if self.tunings is not None:
            self.tunings.consider(number, outcome)
        curve = [row["accuracy"] for row in outcome.get("curve") or () if row.get("accuracy") is not None]
        if curve and outcome.get("state") in ("finished", "pruned"):
            self._curves.append(curve)
            if len(self._curves) > MOST_RIVALS:  # the best stays, for the rule of Canvas
                self._curves.remove(min(self._curves[:-1], key=max))

    def _name(self, number: int) -> str:
        return f"{self.settings.name}: trial {number}"

    # -- shown -------------------------------------------------------------------------------------------------------

    def _show(self, pending: list[_Pending], *, now: bool = False) -> None:
        start = self.clock()
        if not now and start < self._next_report:
            return
        self._next_report = start + PERIOD_S
        minutes, trials = self.settings.minutes, self.settings.trials
        shares = [] if trials is None else [self.standing.total / trials]
        shares += [] if minutes is None else [self.times.search_s / (60 * minutes)]
        line = self.standing.line(self.times)
        status: dict[str, Any] = {
            "phase": "search",
            "under_way": [one.number for one in pending],
            "end": self.end_reason,
        }
        if self.tunings is not None:
            line += f"; {self.tunings.line()}"
            status["tuning"] = self.tunings.to_dict()
        self.report(min(1.0, max(shares)), line)
        self.board.show({**status, **self.standing.to_dict(self.times)}, self.search, now=now)
        self.times.store_s += self.clock() - start


def outcome_of(running: Running) -> dict[str, Any]:
    """The outcome of a training that has ended; where it gave none, one that says why."""
    try:
        return running.future.result()
    except CancelledError:
        return {"state": "interrupted", "reason": "its job was cancelled", "accuracy": None}
    except SynoError as error:  # a job that failed or was given up
        return {"state": "failed", "reason": str(error), "accuracy": None}
