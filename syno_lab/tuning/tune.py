"""Tune operators: the calling process, which never imports TVM, survives TVM's crashes, and keeps the records."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from syno_lab import private
from syno_lab.errors import FormatError, TrackerError, TuningError
from syno_lab.inputs import quoted
from syno_lab.processes.board_server import power_mode
from syno_lab.processes.process import cores
from syno_lab.scratch import scratch
from syno_lab.tuning.conversation import Conversation
from syno_lab.tuning.jobs import HERE
from syno_lab.tuning.method import Method
from syno_lab.tuning.options import SCHEDULERS, TuningOptions
from syno_lab.tuning.presets import Preset, find_preset
from syno_lab.tuning.records import Record, Trial, key_of, known_target, open_record, remember_target
from syno_lab.tuning.starting import STARTED, start_from
from syno_lab.tuning.targets import architecture, check_target, threads_of
from syno_lab.tuning.tracker import (
    Address,
    DeviceInfo,
    TrackerSummary,
    check_machines,
    check_tracker,
    check_versions,
    host_version,
    parse_address,
    tracker_summary,
)
from syno_lab.tuning.values import TuningProgress, TuningResult, TuningTask

#: Seconds between two calls of ``should_stop``.
_POLL_S = 0.1
#: The part of the deadline that the search may use; the rest is for measuring the best again.
_SEARCH_SHARE = 0.8
#: The most boards that are used at once.
_MOST_BOARDS = 16


class TuningStopped(TuningError):  # noqa: N818 - not a failure: the caller asked for it
    """The caller's ``should_stop`` returned True. The records have all measured trials."""


@dataclass(frozen=True)
class QueueResult:
    """The outcome of each operator of a queue, by its label: a result, or one line that says why there is none."""

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

    A child process and its workers do the tuning. They are killed as a group when they are done, at the deadline, when
    ``should_stop`` returns True and on every exception, including Ctrl-C.

    Args:
        task: the operator and its sizes.
        options: where and how it is tuned.
        on_progress: called after each trial.
        should_stop: asked ten times a second.
        named: fields of :class:`~syno_lab.tuning.options.TuningOptions`, instead of ``options``, or to change some of
        them.

    Raises:
        TrackerError: for the tracker and the device.
        TuningStopped: ``should_stop`` returned True.
        TuningError: for all other faults; the message is one line, and it comes before the deadline.
    """
    done = _Queue(
        [task], TuningOptions.of(options, named), deadline_s=900.0, attempts=1,
        on_progress=on_progress, should_stop=should_stop,
    ).run()  # fmt: skip
    for reason in done.failed.values():
        raise TuningError(f"{task.label}: {reason}")
    return done.results[task.label]


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
    """Like :func:`tune` for several operators with different labels, fair between them: one batch of each in turn.

    The number of trials is for each operator, on average with the scheduler ``gradient``; the deadline is for all
    together. An operator that fails is named in ``failed`` and does not stop the others; if it crashes the tuning
    process, the process is started again, and after a second crash the operator counts as failed. ``on_result`` is
    called with each result as it comes. Raises as :func:`tune` does if all operators fail.
    """
    return _Queue(
        list(tasks), TuningOptions.of(options, named), deadline_s=3600.0, attempts=2,
        on_progress=on_progress, on_result=on_result, should_stop=should_stop,
    ).run()  # fmt: skip


def recorded(
    tasks: Sequence[TuningTask],
    *,
    store: str | os.PathLike[str],
    target: str,
    trials: int,
    conditions: str,
    method: Method | None = None,
) -> dict[str, TuningResult]:
    """The results that a folder of records already has for a budget of ``trials``, by label: needs no board and no TVM.

    ``conditions`` are the board's; :func:`local_conditions` gives this machine's. Raises as :func:`tune` does.
    """
    version = host_version()
    text = known_target(store, check_target(target), version)
    found: dict[str, TuningResult] = {}
    for task in tasks if text is not None else ():
        with open_record(store, key_of(task, str(text), version, conditions, str(method or Method()))) as record:
            answer = record.answer(trials)
        if answer is not None:
            found[task.label] = replace(answer, label=task.label, known=answer.trials, from_records=True)
    return found


def local_conditions(threads: int | None = None) -> str:
    """The conditions of this machine with operators in ``threads`` threads (all processors by default)."""
    return DeviceInfo("", "", 0, tvm=host_version(), threads=threads or cores(), power=power_mode()).conditions


@dataclass
class _Operator:
    """One operator in the queue."""

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

    def request(self) -> dict[str, Any]:
        """The trials so far, and those of earlier tunings, for the process that continues; what their result says."""
        found = {"known": self.tried, "start": self.start}
        answer = self.answer if not self.new else None
        return {
            name: [{"trace": one.trace, "seconds": list(one.seconds)} for one in trials]
            for name, trials in found.items()
        } | {"answered": answer is not None, "whole": answer is not None and answer.stopped == "space"}


@dataclass(frozen=True)
class _Device:
    """The devices that measure candidates: those under ``key`` at ``tracker``, or this machine if that is None."""

    tracker: Address | None
    key: str
    threads: int
    boards: int
    conditions: str


def _find_device(options: TuningOptions, deadline_s: float) -> _Device:
    """The device that the options name; asks the tracker. Raises TrackerError, and TuningError for wrong options."""
    threads = options.threads or threads_of(options.target) or cores()
    if (options.tracker is None) != (options.key is None):
        raise TuningError("expected tracker and key together, or neither to tune on this machine")
    if options.tracker is None or options.key is None:
        return _Device(None, HERE, threads, 1, local_conditions(threads))
    if options.threads is not None:
        raise TuningError("a board runs operators in threads of its own: leave threads out")
    tracker, key = parse_address(options.tracker), options.key
    check_tracker(*tracker, key, min(5.0, deadline_s), need_free=False)
    summary = tracker_summary(*tracker)
    check_versions(summary.of(key), host_version())
    check_machines(summary.of(key), architecture(options.target), options.target)
    boards = min(max(len(summary.of(key)), 1), _MOST_BOARDS)
    return _Device(tracker, key, threads, boards, conditions_of(summary, key))


class _Queue:
    """A tuning of one or several operators; an object is run once."""

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
            raise TuningError("expected a store of records with the scheduler gradient, found records: leave them out")
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
        try:
            self._device = _find_device(options, self._deadline_s)
        except TrackerError:
            raise
        except TuningError as error:
            raise TuningError(f"{self._name}: {error}") from None
        each = self._total if self._is_shared else self._total // len(labels)
        self._operators = [_Operator(task, each) for task in tasks]
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
        self._told: dict[str, Any] = {}
        self._crashed = -1
        self._results: dict[str, TuningResult] = {}
        self._failed: dict[str, str] = {}

    def run(self) -> QueueResult:
        with contextlib.ExitStack() as stack:
            if self._store is not None:
                text = known_target(self._store, self._target, self._tvm)
                if text is not None:  # operators that the records answer need no TVM
                    self._open(text, self._tvm, stack)
            while self._waiting():
                if not self._converse(stack):
                    break
        return QueueResult(self._results, self._failed)

    def _is_done(self, one: _Operator) -> bool:
        return one.task.label in self._results or one.task.label in self._failed

    def _waiting(self) -> list[int]:
        found = [number for number, one in enumerate(self._operators) if not self._is_done(one)]
        # After a crash the next operator has its turn.
        return sorted(found, key=lambda number: number <= self._crashed)

    def _converse(self, stack: contextlib.ExitStack) -> bool:
        """Run one tuning process from start to end; return whether another one may be needed."""
        self._inside = None
        with (
            scratch(".tuning-", self._work_dir) as folder,
            Conversation("syno_lab.tuning.child", self._log, {"TMPDIR": str(folder.resolve())}) as child,
        ):
            child.send(self._request())
            turn: int | None = None
            for message in child.messages(_POLL_S):
                self._check_time()
                if message is None:
                    continue
                match message.pop("event"):
                    case "start":
                        self._open(message["target"], message["tvm"], stack)
                        if not self._waiting():
                            return False
                        child.send({str(n): self._operators[n].request() for n in self._waiting()})
                    case "turn":
                        turn = message["task"]
                    case "inside":
                        self._inside = message["code"]
                    case "trial":
                        self._take_trial(self._operators[message["task"]], message)
                    case "kept":
                        one = self._operators[message["task"]]
                        assert one.answer is not None
                        self._keep_recorded(one, one.answer)
                    case "result":
                        self._take_result(self._operators[message.pop("task")], message)
                    case "failed":
                        self._failed[self._operators[message["task"]].task.label] = message["message"]
                    case "error":
                        raise (TrackerError if message["tracker"] else TuningError)(
                            f"{self._name}: {message['message']}"
                        )
                    case "end":
                        return False
            return self._blame(turn, child)

    def _request(self) -> dict[str, Any]:
        options = self._options
        left = self._started + self._deadline_s - time.monotonic()
        return {
            "tasks": [{"task": one.task.request(), "trials": one.trials} for one in self._operators],
            "tracker": self._device.tracker,
            "key": self._device.key,
            "threads": self._device.threads,
            "target": self._target,
            "tvm": self._tvm,
            "preset": self._preset.name,
            "method": self._method.request(self._work_dir / "code"),
            "boards": self._device.boards,
            "scheduler": options.scheduler,
            "total": self._total - sum(len(one.tried) for one in self._operators if self._is_done(one)),
            "seed": options.seed,
            "log": str(self._log.resolve()),
            "budget_s": max(left - (1 - _SEARCH_SHARE) * self._deadline_s, 0.0),
            "wait_s": min(options.wait_s, self._deadline_s),
            "session_s": min(options.session_s, self._deadline_s),
            "records": None if options.records is None else str(Path(options.records).resolve()),
        }

    @property
    def _how(self) -> str:
        """The method as text, by which records are keyed."""
        return str(self._method) + (STARTED if self._options.start is not None else "")

    def _check_time(self) -> None:
        tried = sum(one.new for one in self._operators)
        if time.monotonic() - self._started > self._deadline_s:
            when = f"after {self._deadline_s:g} s and {tried} trials{self._where()}"
            raise TuningError(f"{self._name}: no result {when}; see {self._log}")
        if self._should_stop is not None and self._should_stop():
            raise TuningStopped(f"{self._name}: stopped on request after {tried} trials{self._where()}")

    def _where(self) -> str:
        return f", in {self._inside}" if self._inside else ""

    def _open(self, target: str, tvm: str, stack: contextlib.ExitStack) -> None:
        """With the target known, open the records, and take the results that they already have."""
        self._told = {"target": target, "tvm_version": tvm}
        if self._store is not None:
            remember_target(self._store, self._target, self._tvm, target)
        elif self._options.start is None:
            return
        for number in self._waiting():
            one = self._operators[number]
            try:
                key = key_of(one.task, target, tvm, self._device.conditions, self._how)
                if self._options.start is not None:
                    one.start = start_from(self._options.start, one.task, key, [str(self._method)])
            except (FormatError, TuningError) as error:  # the other operators' tunings continue
                self._failed[one.task.label] = str(error)
                continue
            if self._store is None:
                continue
            if one.record is None or one.record.key != key:
                one.record = stack.enter_context(open_record(self._store, key))
                one.tried = list(one.record.trials)
                one.known = len(one.tried)
                one.answer = one.record.answer(len(one.tried) if self._is_shared else one.trials)
                if one.answer is not None and not self._is_shared:
                    self._keep_recorded(one, one.answer)
        waiting = [self._operators[number] for number in self._waiting()]
        if self._is_shared and sum(one.known for one in waiting) >= self._total:
            answers = [(one, one.answer) for one in waiting if one.answer is not None]
            for one, answer in answers if len(answers) == len(waiting) else ():
                self._keep_recorded(one, answer)

    def _keep_recorded(self, one: _Operator, answer: TuningResult) -> None:
        self._keep(replace(answer, label=one.task.label, known=answer.trials, from_records=True))

    def _take_trial(self, one: _Operator, message: dict[str, Any]) -> None:
        facts = message["facts"]
        trial = Trial(facts["trace"], tuple(facts["seconds"]), facts["reason"], facts["board"])
        if one.record is not None:
            one.record.add_trial(trial)
        one.tried.append(trial)
        if self._on_progress is None:
            return
        tried = sum(other.new for other in self._operators)
        pace = (time.monotonic() - self._started) / max(tried, 1)
        waiting = [self._operators[n] for n in self._waiting()]
        if self._is_shared:  # the trials are those of all operators; how many are of the records shows only at the end
            now, left = tried, max(self._total - tried, 0)
        else:
            now, left = len(one.tried), sum(max(other.trials - len(other.tried), 0) for other in waiting)
        best = message["best_ms"]
        self._on_progress(
            TuningProgress(one.task.label, now, one.trials, message["failed"], best, pace, one.known, left * pace)
        )

    def _take_result(self, one: _Operator, message: dict[str, Any]) -> None:
        try:
            message["known"] = one.known  # without the trials of an earlier process of this tuning
            message["history"] = tuple((int(trial), float(best)) for trial, best in message["history"])
            result = TuningResult(
                label=one.task.label,
                seed=self._options.seed,
                seconds=time.monotonic() - self._started,
                preset=self._preset.name,
                method=self._how,
                conditions=self._device.conditions,
                **self._told,
                **message,
            )
        except (TypeError, KeyError, ValueError) as error:
            raise TuningError(
                f"{one.task.label}: the tuning process gave no result but something else ({error})"
            ) from None
        if one.record is not None:
            one.record.add_result(result)
        self._keep(result)

    def _keep(self, result: TuningResult) -> None:
        self._results[result.label] = result
        if self._on_result is not None:
            self._on_result(result)

    def _blame(self, turn: int | None, child: Conversation) -> bool:
        """The process died: count it against the operator whose turn it was. Raises if it was no operator's turn."""
        tried = sum(one.new for one in self._operators)
        ending, said = child.last_words()
        reason = f"the tuning process ended ({ending}) after {tried} trials{self._where()}{said}; see {child.log}"
        if turn is None:
            raise TuningError(f"{self._name}: {reason}")
        self._crashed = turn
        one = self._operators[turn]
        one.crashes += 1
        if one.crashes >= self._attempts:
            self._failed[one.task.label] = reason
        return True


def conditions_of(summary: TrackerSummary, key: str) -> str:
    """The conditions of all devices under a key, which must be equal, because their latencies are compared.

    Raises :class:`TrackerError`.
    """
    devices: tuple[DeviceInfo, ...] = summary.of(key)
    found = {device.conditions: device.address for device in devices}
    if len(found) > 1:
        listed = ", ".join(f"{address} has {conditions}" for conditions, address in sorted(found.items()))
        raise TrackerError(
            f"the devices registered as {quoted(key)} are not alike: {listed}; give each its own key, or set them alike"
        )
    return next(iter(found), "unknown")
