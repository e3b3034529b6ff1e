"""Tune operators: the side that never imports TVM, outlives whatever TVM does, and keeps the records."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from syno_lab.errors import TrackerError, TuningError
from syno_lab.evaluate.tuning.board_server import power_mode
from syno_lab.evaluate.tuning.conversation import Conversation
from syno_lab.evaluate.tuning.method import Method
from syno_lab.evaluate.tuning.presets import Preset, find_preset
from syno_lab.evaluate.tuning.process import cores
from syno_lab.evaluate.tuning.records import Record, Trial, key_of, known_target, open_record, remember_target
from syno_lab.evaluate.tuning.targets import check_target
from syno_lab.evaluate.tuning.tracker import (
    DeviceInfo,
    TrackerSummary,
    check_tracker,
    check_versions,
    host_version,
    parse_address,
    tracker_summary,
)
from syno_lab.evaluate.tuning.values import TuningProgress, TuningResult, TuningTask

#: How often ``should_stop`` is asked, in seconds.
_POLL_S = 0.1
#: The part of the deadline that the search may use; the rest is for measuring the best again.
_SEARCH_SHARE = 0.8
#: So many boards are used at once, at most.
_MOST_BOARDS = 16


class TuningStopped(TuningError):  # noqa: N818 - not a failure: the caller asked for it
    """The caller's ``should_stop`` said so. What was measured is in the records."""


@dataclass(frozen=True)
class QueueResult:
    """What became of each operator of a queue, by its label: a result, or the one line of why there is none."""

    results: dict[str, TuningResult] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def tune(
    task: TuningTask,
    *,
    tracker: tuple[str, int] | str,
    key: str,
    target: str = "local",
    trials: int | None = None,
    preset: str = "quick",
    method: Method | None = None,
    seed: int = 0,
    work_dir: str | os.PathLike[str],
    on_progress: Callable[[TuningProgress], None] | None = None,
    deadline_s: float = 900.0,
    should_stop: Callable[[], bool] | None = None,
    wait_s: float = 30.0,
    session_s: float = 20.0,
    records: str | os.PathLike[str] | None = None,
    store: str | os.PathLike[str] | None = None,
) -> TuningResult:
    """Search for the fastest schedule of ``task`` in ``trials`` measurements on a device behind an RPC tracker.

    One child process does it all (with its workers) and is killed as a group when it is done, when ``deadline_s``
    seconds are over, when ``should_stop`` returns True and on every exception, Ctrl-C included. At four fifths of the
    deadline the search ends with what it has. ``target`` is what :func:`~syno_lab.codegen.target_names.describe` reads,
    ``preset`` one of :data:`~syno_lab.evaluate.tuning.presets.PRESETS`, which also gives the number of trials unless
    ``trials`` does; ``method`` chooses the space, rules, strategy and cost model, your own code among them
    (:class:`~syno_lab.evaluate.tuning.method.Method`; its records are kept apart). A log named after the label is
    left in ``work_dir``. ``wait_s`` is how long a busy device, or a tracker that is away, is waited for and
    ``session_s`` how long one candidate may hold a device, upload included. All devices under the key are used at
    once.

    ``store`` is a folder of records (:mod:`~syno_lab.evaluate.tuning.records`): every trial is written there before
    ``on_progress`` hears of it; a tuning that was cut short goes on from there; where the trials of the same operator,
    sizes, dtype, target, TVM and board conditions are spent, the recorded result comes back at once
    (``from_records``), and a larger budget measures only the difference. ``records`` is a folder to which the schedules
    are exported as MetaSchedule's own database, for compiling with them later (:func:`save_library
    <syno_lab.codegen.library.save_library>`, :mod:`syno_lab.evaluate.tuning.network`).

    Raises :class:`TrackerError` for the tracker and the device, :class:`TuningStopped`, and :class:`TuningError` for
    all else; each is one line and comes before the deadline.
    """
    done = _Queue(
        [task], tracker, key, target, trials, preset, method, seed, work_dir, on_progress, None, deadline_s,
        should_stop, wait_s, session_s, records, store, attempts=1,
    ).run()  # fmt: skip
    for reason in done.failed.values():
        raise TuningError(f"{task.label}: {reason}")
    return done.results[task.label]


def tune_queue(
    tasks: Sequence[TuningTask],
    *,
    tracker: tuple[str, int] | str,
    key: str,
    target: str = "local",
    trials: int | None = None,
    preset: str = "quick",
    method: Method | None = None,
    seed: int = 0,
    work_dir: str | os.PathLike[str],
    on_progress: Callable[[TuningProgress], None] | None = None,
    on_result: Callable[[TuningResult], None] | None = None,
    deadline_s: float = 3600.0,
    should_stop: Callable[[], bool] | None = None,
    wait_s: float = 30.0,
    session_s: float = 20.0,
    records: str | os.PathLike[str] | None = None,
    store: str | os.PathLike[str] | None = None,
) -> QueueResult:
    """Like :func:`tune` for several operators with different labels, fair between them: one batch of each in turn.

    ``trials`` are those of each operator, ``deadline_s`` is for all. An operator that fails is told in ``failed`` and
    costs the others nothing; where it takes the tuning process down, that is started again, and the operator is given
    up at the second time. ``on_result`` hears of each result when it is there. Raises as :func:`tune` does, for what
    befalls all.
    """
    return _Queue(
        list(tasks), tracker, key, target, trials, preset, method, seed, work_dir, on_progress, on_result, deadline_s,
        should_stop, wait_s, session_s, records, store, attempts=2,
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
    """The results that a folder of records has already for a budget of ``trials``, by label: needs no board, no TVM.

    ``conditions`` are those of the board; for one of our own see :func:`local_conditions`. Raises as :func:`tune` does.
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
    """The conditions of a board of our own with operators in ``threads`` threads (all processors by default)."""
    return DeviceInfo("", "", 0, tvm=host_version(), threads=threads or cores(), power=power_mode()).conditions


@dataclass
class _Operator:
    """One operator in the queue."""

    task: TuningTask
    trials: int
    record: Record | None = None
    tried: list[Trial] = field(default_factory=list)
    known: int = 0
    crashes: int = 0

    @property
    def new(self) -> int:
        """Trials of this tuning."""
        return len(self.tried) - self.known

    def request(self) -> list[dict[str, Any]]:
        """What was tried so far, for the process that goes on."""
        return [{"trace": one.trace, "seconds": list(one.seconds)} for one in self.tried]


class _Queue:
    """A tuning of one or several operators; made and run once."""

    def __init__(
        self,
        tasks: list[TuningTask],
        tracker: tuple[str, int] | str,
        key: str,
        target: str,
        trials: int | None,
        preset: str,
        method: Method | None,
        seed: int,
        work_dir: str | os.PathLike[str],
        on_progress: Callable[[TuningProgress], None] | None,
        on_result: Callable[[TuningResult], None] | None,
        deadline_s: float,
        should_stop: Callable[[], bool] | None,
        wait_s: float,
        session_s: float,
        records: str | os.PathLike[str] | None,
        store: str | os.PathLike[str] | None,
        attempts: int,
    ) -> None:
        self._started = time.monotonic()
        labels = [task.label for task in tasks]
        self._name = labels[0] if len(labels) == 1 else f"{len(labels)} operators"
        self._preset: Preset = find_preset(preset)
        self._method = method or Method()
        self._inside: str | None = None
        budget = self._preset.trials if trials is None else trials
        if not labels or len(set(labels)) != len(labels):
            raise TuningError(f"expected operators with different labels, found {', '.join(labels) or 'none'}")
        if budget < 1 or deadline_s <= 0:
            raise TuningError(f"{self._name}: expected at least one trial and second, found {budget} and {deadline_s}")
        self._target = check_target(target)
        self._host, self._port = parse_address(tracker)
        self._key = key
        check_tracker(self._host, self._port, key, min(5.0, deadline_s), need_free=False)
        self._tvm = host_version()
        summary = tracker_summary(self._host, self._port)
        self._boards = min(max(len(summary.of(key)), 1), _MOST_BOARDS)
        check_versions(summary.of(key), self._tvm)
        self._conditions = conditions_of(summary, key)
        self._operators = [_Operator(task, budget) for task in tasks]
        self._seed, self._attempts = seed, attempts
        self._on_progress, self._on_result, self._should_stop = on_progress, on_result, should_stop
        self._deadline_s, self._wait_s, self._session_s = deadline_s, wait_s, session_s
        self._export = None if records is None else str(Path(records).resolve())
        self._store = None if store is None else Path(store)
        self._work_dir = Path(work_dir)
        self._work_dir.mkdir(parents=True, exist_ok=True)
        self._log = self._work_dir / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', self._name)[:80] or 'tuning'}.log"
        self._log.write_bytes(b"")
        self._told: dict[str, Any] = {}
        self._crashed = -1
        self._results: dict[str, TuningResult] = {}
        self._failed: dict[str, str] = {}

    def run(self) -> QueueResult:
        with contextlib.ExitStack() as stack:
            if self._store is not None:
                text = known_target(self._store, self._target, self._tvm)
                if text is not None:  # what the records can answer needs no TVM
                    self._open(text, self._tvm, stack)
            while self._waiting():
                if not self._converse(stack):
                    break
        return QueueResult(self._results, self._failed)

    def _waiting(self) -> list[int]:
        labels = (one.task.label for one in self._operators)
        found = [n for n, label in enumerate(labels) if label not in self._results and label not in self._failed]
        # After a crash it is the next one's turn.
        return sorted(found, key=lambda number: number <= self._crashed)

    def _converse(self, stack: contextlib.ExitStack) -> bool:
        """One tuning process, from its start to its end; whether there may be need of another."""
        self._inside = None
        with (
            tempfile.TemporaryDirectory(prefix=".tuning-", dir=self._work_dir, ignore_cleanup_errors=True) as scratch,
            Conversation(self._log, str(Path(scratch).resolve())) as child,
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
        left = self._started + self._deadline_s - time.monotonic()
        return {
            "tasks": [{"task": one.task.request(), "trials": one.trials} for one in self._operators],
            "tracker": [self._host, self._port],
            "key": self._key,
            "target": self._target,
            "tvm": self._tvm,
            "preset": self._preset.name,
            "method": self._method.request(self._work_dir / "code"),
            "boards": self._boards,
            "seed": self._seed,
            "log": str(self._log.resolve()),
            "budget_s": max(left - (1 - _SEARCH_SHARE) * self._deadline_s, 0.0),
            "wait_s": min(self._wait_s, self._deadline_s),
            "session_s": min(self._session_s, self._deadline_s),
            "records": self._export,
        }

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
        """Now that the target is known: look into the records, and answer what they can answer."""
        self._told = {"target": target, "tvm_version": tvm}
        if self._store is None:
            return
        remember_target(self._store, self._target, self._tvm, target)
        for number in self._waiting():
            one = self._operators[number]
            key = key_of(one.task, target, tvm, self._conditions, str(self._method))
            if one.record is None or one.record.key != key:
                one.record = stack.enter_context(open_record(self._store, key))
                one.tried = list(one.record.trials)
                one.known = len(one.tried)
                answer = one.record.answer(one.trials)
                if answer is not None:
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
        left = sum(max(other.trials - len(other.tried), 0) for other in waiting) * pace
        self._on_progress(
            TuningProgress(
                one.task.label, len(one.tried), one.trials, message["failed"], message["best_ms"], pace, one.known, left
            )
        )

    def _take_result(self, one: _Operator, message: dict[str, Any]) -> None:
        try:
            message["known"] = one.known  # not what a process before this one measured
            message["history"] = tuple((int(trial), float(best)) for trial, best in message["history"])
            result = TuningResult(
                label=one.task.label,
                seed=self._seed,
                seconds=time.monotonic() - self._started,
                preset=self._preset.name,
                method=str(self._method),
                conditions=self._conditions,
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
        """The process died: whose turn it was has to answer for it. Raises where it was nobody's."""
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
    """The conditions of all devices under a key, which must be the same: their latencies are compared.

    Raises :class:`TrackerError`.
    """
    devices: tuple[DeviceInfo, ...] = summary.of(key)
    found = {device.conditions: device.address for device in devices}
    if len(found) > 1:
        listed = ", ".join(f"{address} has {conditions}" for conditions, address in sorted(found.items()))
        raise TrackerError(
            f"the devices registered as {key!r} are not alike: {listed}; give each its own key, or set them alike"
        )
    return next(iter(found), "unknown")
