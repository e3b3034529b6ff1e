"""Tune operators from the calling process, which never imports TVM, survives TVM's crashes, and writes the records."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from syno_lab import private
from syno_lab.codegen.target_names import local_threads
from syno_lab.errors import FormatError, TrackerError, TuningError
from syno_lab.inputs import quoted
from syno_lab.processes.board_server import power_mode
from syno_lab.processes.process import cores, last_line
from syno_lab.processes.worker import CallFailedError, CrashedError, Worker
from syno_lab.scratch import scratch
from syno_lab.tuning.child import Earlier, Failed, Found, Inside, Request, Started, Tried, Turn, tune_in_worker
from syno_lab.tuning.jobs import Device
from syno_lab.tuning.method import Method
from syno_lab.tuning.options import SCHEDULERS, Preset, TuningOptions, find_preset
from syno_lab.tuning.records import (
    STARTED,
    Record,
    Trial,
    key_of,
    known_target,
    open_record,
    remember_target,
    start_from,
)
from syno_lab.tuning.targets import architecture, check_target
from syno_lab.tuning.tracker import (
    DeviceInfo,
    check_machines,
    check_tracker,
    check_versions,
    host_version,
    tracker_summary,
)
from syno_lab.tuning.values import TuningProgress, TuningResult, TuningTask

#: Seconds between two calls of ``should_stop``.
_POLL_S = 0.1
#: The share of the deadline for the search; the rest is for measuring the best candidates again.
_SEARCH_SHARE = 0.8
#: The largest number of boards that are used at once.
_MOST_BOARDS = 16


class TuningStopped(TuningError):  # noqa: N818 - not a failure, but the caller's request
    """The caller's ``should_stop`` returned True. The records have all measured trials."""


@dataclass(frozen=True)
class QueueResult:
    """The outcome of each operator of a queue, by its label: a result, or the reason of a failure in one line."""

    results: dict[str, TuningResult] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def tune(
    task: TuningTask,
    options: TuningOptions | None = None,
    /,
    *,
    on_progress: Callable[[TuningProgress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    **named: Any,
) -> TuningResult:
    """Search for the fastest schedule of ``task``: ``tune(task, work_dir="tuning", trials=32)``.

    A child process and its workers do the tuning. The processes are killed as a group when the tuning has ended, at the
    deadline, when ``should_stop`` returns True, and on every exception, including Ctrl-C.

    Args:
        task: the operator to tune, and its sizes.
        options: the options of the tuning.
        on_progress: a callback that is called after each trial.
        should_stop: a callback that is called ten times a second.
        named: fields of :class:`~syno_lab.tuning.options.TuningOptions`, instead of ``options`` or to change them.

    Raises:
        TrackerError: for faults of the tracker or the device.
        TuningStopped: if ``should_stop`` returned True.
        TuningError: for all other faults, before the deadline, with a message of one line.
    """
    outcome = _Queue(
        [task], TuningOptions.of(options, named), deadline_s=900.0, attempts=1,
        on_progress=on_progress, should_stop=should_stop,
    ).run()  # fmt: skip
    for reason in outcome.failed.values():
        raise TuningError(f"{task.label}: {reason}")
    return outcome.results[task.label]


def tune_queue(
    tasks: Sequence[TuningTask],
    options: TuningOptions | None = None,
    /,
    *,
    on_progress: Callable[[TuningProgress], None] | None = None,
    on_result: Callable[[TuningResult], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    **named: Any,
) -> QueueResult:
    """Tune several operators with different labels like :func:`tune`, with one batch for each operator in turn.

    The number of trials is for each operator, or an average with the scheduler ``gradient``. The deadline is for all
    operators together. An operator that fails is listed in ``failed`` and does not stop the others. If an operator
    crashes the tuning process, the process is started again; after a second crash the operator counts as failed.
    ``on_result`` is called with each result as soon as it exists. Raises as :func:`tune` does if all operators fail.
    """
    return _Queue(
        list(tasks), TuningOptions.of(options, named), deadline_s=3600.0, attempts=2,
        on_progress=on_progress, on_result=on_result, should_stop=should_stop,
    ).run()  # fmt: skip


@dataclass
class _Operator:
    """An operator in the queue."""

    task: TuningTask
    trials: int
    record: Record | None = None
    tried: list[Trial] = field(default_factory=list)
    start: list[Trial] = field(default_factory=list)
    known: int = 0
    crashes: int = 0
    answer: TuningResult | None = None

    @property
    def new(self) -> int:
        """The number of trials measured in this tuning."""
        return len(self.tried) - self.known

    def earlier(self) -> Earlier:
        """Return the operator's trials so far, and whether the record has their result, for the tuning process."""
        answer = self.answer if not self.new else None
        is_whole = answer is not None and answer.stopped == "space"
        return Earlier(tuple(self.tried), tuple(self.start), answer is not None, is_whole)


def _find_devices(options: TuningOptions, deadline_s: float, threads: int) -> tuple[Device, int, str]:
    """Return the device that measures candidates, its number of boards, and the conditions on which latencies depend.

    Raises TrackerError, and TuningError for wrong options.
    """
    board = options.board
    waits = min(options.wait_s, deadline_s), min(options.session_s, deadline_s)
    device = Device(board, "", *waits, tvm=host_version(), target=options.target)
    if board is None:
        own_facts = DeviceInfo("", "", 0, tvm=host_version(), threads=threads, power=power_mode())
        return device, 1, own_facts.conditions
    if options.threads is not None:
        raise TuningError("a board runs operators in threads of its own: leave threads out")
    check_tracker(*board.address, board.key, min(5.0, deadline_s), need_free=False)
    devices = tracker_summary(*board.address).of(board.key)
    check_versions(devices, host_version())
    check_machines(devices, architecture(options.target), options.target)
    return device, min(max(len(devices), 1), _MOST_BOARDS), conditions_of(devices, board.key)


class _Queue:
    """A tuning of one or several operators; ``run`` is called once."""

    def __init__(
        self,
        tasks: list[TuningTask],
        options: TuningOptions,
        *,
        deadline_s: float,
        attempts: int,
        on_progress: Callable[[TuningProgress], None] | None,
        on_result: Callable[[TuningResult], None] | None = None,
        should_stop: Callable[[], bool] | None,
    ) -> None:
        self._started = time.monotonic()
        labels = [task.label for task in tasks]
        self._name = labels[0] if len(labels) == 1 else f"{len(labels)} operators"
        self._options = options
        self._preset: Preset = find_preset(options.preset)
        self._method = options.method or Method()
        self._deadline_s = deadline_s if options.deadline_s is None else options.deadline_s
        self._inside: str | None = None
        budget = self._preset.trials if options.trials is None else options.trials
        if options.scheduler not in SCHEDULERS:
            raise TuningError(f"expected a scheduler among {', '.join(SCHEDULERS)}, found {quoted(options.scheduler)}")
        self._is_shared = options.scheduler == "gradient"
        if self._is_shared and options.records is not None:
            raise TuningError("expected a store of records with the scheduler gradient, found `records`: leave it out")
        if not labels or len(set(labels)) != len(labels):
            raise TuningError(f"expected operators with different labels, found {', '.join(labels) or 'none'}")
        if budget < 1 or self._deadline_s <= 0:
            raise TuningError(
                f"{self._name}: expected at least one trial and second, found {budget} and {self._deadline_s}"
            )
        if options.total is not None and options.total < len(labels):
            raise TuningError(
                f"{self._name}: expected a trial in total for each of {len(labels)} operators, found {options.total}"
            )
        self._total = budget * len(labels) if options.total is None else options.total
        self._target = check_target(options.target)
        self._tvm = host_version()
        self._threads = options.threads or local_threads(options.target) or cores()
        try:
            self._device, self._boards, self._conditions = _find_devices(options, self._deadline_s, self._threads)
        except TrackerError:
            raise
        except TuningError as error:
            raise TuningError(f"{self._name}: {error}") from None
        trials_each = self._total if self._is_shared else self._total // len(labels)
        self._operators = [_Operator(task, trials_each) for task in tasks]
        self._attempts = attempts
        self._on_progress, self._on_result, self._should_stop = on_progress, on_result, should_stop
        self._store = None if options.store is None else Path(options.store)
        self._work_dir = Path(options.work_dir)
        self._log = self._work_dir / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', self._name)[:80] or 'tuning'}.log"
        try:
            if not self._work_dir.is_dir():
                private.folder(self._work_dir)
            private.create(self._log).close()
        except OSError as error:
            reason = error.strerror or error
            raise TuningError(f"{self._name}: expected to write the log {self._log}, found: {reason}") from None
        self._crashed = -1
        self._results: dict[str, TuningResult] = {}
        self._failed: dict[str, str] = {}

    def run(self) -> QueueResult:
        with contextlib.ExitStack() as stack:
            if self._store is not None:
                text = known_target(self._store, self._target, self._tvm)
                if text is not None:  # a known target's records are read without TVM
                    self._open(text, self._tvm, stack)
            while self._waiting():
                if not self._converse(stack):
                    break
        return QueueResult(self._results, self._failed)

    def _is_done(self, operator: _Operator) -> bool:
        return operator.task.label in self._results or operator.task.label in self._failed

    def _waiting(self) -> list[int]:
        numbers = [number for number, operator in enumerate(self._operators) if not self._is_done(operator)]
        # After a crash the next operators come first.
        return sorted(numbers, key=lambda number: number <= self._crashed)

    def _converse(self, stack: contextlib.ExitStack) -> bool:
        """Run a tuning process from start to end; return whether another process may be needed."""
        self._inside = None
        turn: int | None = None
        with scratch(".tuning-", self._work_dir) as folder:
            environment = {"TMPDIR": str(folder.resolve())}
            try:
                with contextlib.closing(Worker(self._log, environment, has_tvm=False)) as child:
                    for message in child.talk(tune_in_worker, self._request(), period_s=_POLL_S):
                        self._check_time()
                        match message:
                            case Started(target, tvm):
                                self._open(target, tvm, stack)
                                if not self._waiting():
                                    return False
                                child.tell({number: self._operators[number].earlier() for number in self._waiting()})
                            case Turn(task):
                                turn = task
                            case Inside(code):
                                self._inside = code
                            case Tried():
                                self._take_trial(self._operators[message.task], message)
                            case Found(task, result):
                                self._take_result(self._operators[task], result)
                            case Failed(task, reason):
                                self._failed[self._operators[task].task.label] = reason
            except CrashedError as crash:
                return self._blame(turn, crash)
            except (CallFailedError, TrackerError) as error:
                kind = TrackerError if isinstance(error, TrackerError) else TuningError
                raise kind(f"{self._name}: {error}") from None
        return False

    def _request(self) -> Request:
        options = self._options
        remaining = self._started + self._deadline_s - time.monotonic()
        return Request(
            tasks=tuple(operator.task for operator in self._operators),
            trials=tuple(operator.trials for operator in self._operators),
            device=self._device,
            threads=self._threads,
            boards=self._boards,
            preset=self._preset,
            method=self._method,
            scheduler=options.scheduler,
            total=self._total - sum(len(operator.tried) for operator in self._operators if self._is_done(operator)),
            seed=options.seed,
            log=self._log.resolve(),
            code=self._work_dir / "code",
            budget_s=max(remaining - (1 - _SEARCH_SHARE) * self._deadline_s, 0.0),
            records=None if options.records is None else Path(options.records).resolve(),
        )

    @property
    def _how(self) -> str:
        """The method as text, a part of records' keys."""
        return str(self._method) + (STARTED if self._options.start is not None else "")

    def _check_time(self) -> None:
        tried = sum(operator.new for operator in self._operators)
        if time.monotonic() - self._started > self._deadline_s:
            when = f"after {self._deadline_s:g} s and {tried} trials{self._where()}"
            raise TuningError(f"{self._name}: no result {when}; see {self._log}")
        if self._should_stop is not None and self._should_stop():
            raise TuningStopped(f"{self._name}: stopped on request after {tried} trials{self._where()}")

    def _where(self) -> str:
        return f", in {self._inside}" if self._inside else ""

    def _open(self, target: str, tvm: str, stack: contextlib.ExitStack) -> None:
        """Open the records of ``target``, and use the results in them."""
        if self._store is not None:
            remember_target(self._store, self._target, self._tvm, target)
        elif self._options.start is None:
            return
        for number in self._waiting():
            operator = self._operators[number]
            try:
                key = key_of(operator.task, target, tvm, self._conditions, self._how)
                if self._options.start is not None:
                    operator.start = start_from(self._options.start, operator.task, key, [str(self._method)])
            except (FormatError, TuningError) as error:  # only this operator's tuning fails
                self._failed[operator.task.label] = str(error)
                continue
            if self._store is None:
                continue
            if operator.record is None or operator.record.key != key:
                operator.record = stack.enter_context(open_record(self._store, key))
                operator.tried = list(operator.record.trials)
                operator.known = len(operator.tried)
                operator.answer = operator.record.answer(len(operator.tried) if self._is_shared else operator.trials)
                if operator.answer is not None and not self._is_shared:
                    self._keep_recorded(operator, operator.answer)
        waiting = [self._operators[number] for number in self._waiting()]
        if self._is_shared and sum(operator.known for operator in waiting) >= self._total:
            answers = [(operator, operator.answer) for operator in waiting if operator.answer is not None]
            for operator, answer in answers if len(answers) == len(waiting) else ():
                self._keep_recorded(operator, answer)

    def _keep_recorded(self, operator: _Operator, answer: TuningResult) -> None:
        self._keep(replace(answer, label=operator.task.label, known=answer.trials, from_records=True))

    def _take_trial(self, op: _Operator, event: Tried) -> None:
        if op.record is not None:
            op.record.add_trial(event.trial)
        op.tried.append(event.trial)
        if self._on_progress is None:
            return
        tried = sum(operator.new for operator in self._operators)
        pace = (time.monotonic() - self._started) / max(tried, 1)
        waiting = [self._operators[n] for n in self._waiting()]
        if self._is_shared:  # the counts cover all operators; the number of recorded trials is known only at the end
            now, todo = tried, max(self._total - tried, 0)
        else:
            now, todo = len(op.tried), sum(max(operator.trials - len(operator.tried), 0) for operator in waiting)
        self._on_progress(
            TuningProgress(op.task.label, now, op.trials, event.failed, event.best_ms, pace, op.known, todo * pace)
        )

    def _take_result(self, op: _Operator, measured: TuningResult | None) -> None:
        if measured is None:
            assert op.answer is not None
            self._keep_recorded(op, op.answer)
            return
        result = replace(
            measured,
            seconds=time.monotonic() - self._started,
            known=op.known,  # without trials of this tuning's earlier processes
            method=self._how,
            conditions=self._conditions,
        )
        if op.record is not None:
            op.record.add_result(result)
        self._keep(result)

    def _keep(self, result: TuningResult) -> None:
        self._results[result.label] = result
        if self._on_result is not None:
            self._on_result(result)

    def _blame(self, turn: int | None, crash: CrashedError) -> bool:
        """Count a crash of the process for the operator that was tuned. Raises TuningError if no operator was tuned."""
        tried = sum(operator.new for operator in self._operators)
        tail = f", saying {last!r}" if (last := last_line(self._log)) else ""
        reason = f"the tuning process ended ({crash.ended}) after {tried} trials{self._where()}{tail}; see {self._log}"
        if turn is None:
            raise TuningError(f"{self._name}: {reason}")
        self._crashed = turn
        failing = self._operators[turn]
        failing.crashes += 1
        if failing.crashes >= self._attempts:
            self._failed[failing.task.label] = reason
        return True


def conditions_of(devices: Sequence[DeviceInfo], key: str) -> str:
    """Return the conditions of all devices under a key, which must be equal: the devices' latencies are compared.

    Raises :class:`TrackerError` if two devices have different conditions.
    """
    addresses = {device.conditions: device.address for device in devices}
    if len(addresses) > 1:
        listed = ", ".join(f"{address} has {conditions}" for conditions, address in sorted(addresses.items()))
        raise TrackerError(
            f"the devices registered as {quoted(key)} differ: {listed}; give each its own key, or the same settings"
        )
    return next(iter(addresses), "unknown")
