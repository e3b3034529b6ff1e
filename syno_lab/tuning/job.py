"""A job of kind ``tune``: it tunes operators by the queue of :mod:`~syno_lab.tuning.tune`, or a whole network.

After a pause, a kill or a crash of its machine, a job continues after the last trial in its records. The networks of a
lab are tuned one after another, because they share the records of common functions, and because their measurements
would disturb each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from syno_lab import private
from syno_lab.errors import CodeError, FormatError, TrackerError, TuningError
from syno_lab.inputs import quoted
from syno_lab.processes.alone import alone
from syno_lab.store.courses import COURSE_FILE, write_course
from syno_lab.systems import builders
from syno_lab.tuning.board import Board
from syno_lab.tuning.method import PARTS, from_job
from syno_lab.tuning.options import Budget, TuningOptions, enough_s
from syno_lab.tuning.targets import check_target
from syno_lab.tuning.tune import TuningStopped, tune_queue
from syno_lab.tuning.values import NETWORK_BUILDER, TuningProgress, TuningResult, TuningTask
from syno_lab.versioned import JSON

#: The folder in a lab with the records of all its tunings.
FOLDER = "tuning"
#: The store's name for a latency that was measured on a whole network.
WHOLE = "whole network"
#: The lock file in a lab's records, which the tuning of a network locks.
LOCK_FILE = "network.lock"

_NUMBER = (int, float)
_BUDGET: dict[str, type | tuple[type, ...]] = {"trials": int, "preset": str, "seed": int, "deadline_s": _NUMBER}
_OF_OPERATORS = _BUDGET | {"wait_s": _NUMBER, "session_s": _NUMBER}
_OF_NETWORKS = _BUDGET | {"total": int, "scheduler": str}


#: The function that does a job's work; its argument is a part of :class:`TuningOptions`.
_Work = Callable[[Budget], dict[str, JSON]]


class Workplace(Protocol):
    """The part of a :class:`~syno_lab.jobs.context.JobContext` that a tuning needs."""

    @property
    def root(self) -> Path:
        """The lab's folder; its subfolder ``tuning`` has the records."""

    @property
    def folder(self) -> Path:
        """The folder for the tuning's own files."""

    @property
    def should_stop(self) -> Callable[[], bool]:
        """A function that returns whether to stop."""

    def report(self, fraction: float, message: str = "") -> None:
        """Report the progress, from 0 to 1."""

    def log(self, line: str) -> None:
        """Write a line to the log."""


def run(params: Mapping[str, JSON], context: Workplace) -> dict[str, JSON]:
    """Tune the operators of ``params["tasks"]``, each ``{"label", "operator", "binding", "dtype"?, "builder"?}``.

    ``target`` is ``local`` by default. Without ``tracker`` (``"host:port"``) and ``key``, child processes of this
    machine measure candidates. ``trials``, ``preset``, ``seed``, ``deadline_s``, ``wait_s`` and ``session_s`` are
    fields of :class:`~syno_lab.tuning.options.TuningOptions`. ``rules``, ``space``, ``strategy``, ``cost_model``,
    ``mutators`` and ``postprocessors`` are fields of :class:`~syno_lab.tuning.method.Method`. The user's own code is
    text, and the signature of the job includes it. The records are in the lab's folder ``tuning``. Returns
    ``{"results": [TuningResult as a dict, …], "failed": {label: reason}}``.

    With ``network`` (a :class:`.TrialRequest` as a dictionary) instead of ``tasks``, a network is tuned and measured on
    the device where it runs; ``total`` and ``scheduler`` are then also options. Returns :class:`.network.NetworkFacts`.

    Raises:
        TuningError: for invalid parameters, if every operator failed, or if a network cannot be tuned or measured.
        JobFailed: if the tracker or the board is unreachable; the job is retried.
        JobStopped: if the job was paused or cancelled; the records have all measured trials.
    """
    from syno_lab.jobs.records import JobFailed, JobStopped

    is_network = "network" in params
    kinds, more = (_OF_NETWORKS, ()) if is_network else (_OF_OPERATORS, PARTS)
    allowed = ("network" if is_network else "tasks", "target", "tracker", "key", *kinds, *more)
    if unknown := sorted(params.keys() - set(allowed)):
        raise TuningError(f"tune: expected the parameters {', '.join(allowed)}, found {', '.join(unknown)}")
    settings = {name: params[name] for name in kinds if params.get(name) is not None}
    for name, value in settings.items():
        if not isinstance(value, kinds[name]) or isinstance(value, bool):
            raise TuningError(f"tune: parameter {quoted(name)} holds {quoted(value)}")
    work = _network(params, context) if is_network else _operators(params, context)
    budget = cast("Budget", settings | {"target": check_target(str(params.get("target", "local")))})
    tracker, key = (None if (given := params.get(name)) is None else str(given) for name in ("tracker", "key"))
    budget["board"] = Board.of(tracker, key)
    try:
        return work(budget)
    except TuningStopped as stopped:
        raise JobStopped(str(stopped)) from None
    except TrackerError as away:
        raise JobFailed(str(away), retry=True) from None


def _courses(context: Workplace) -> Callable[[TuningProgress], None]:
    """Return a callback that adds the best latency so far to the file of the tuning's curves."""
    courses: dict[str, list[tuple[int, float]]] = {}

    def note(now: TuningProgress) -> None:
        if now.best_ms is not None:
            courses.setdefault(now.label, []).append((now.trial, now.best_ms))
            write_course(context.folder / COURSE_FILE, courses)

    return note


def _operators(params: Mapping[str, JSON], context: Workplace) -> _Work:
    tasks, method, note = _tasks(params), from_job(params), _courses(context)
    trials: dict[str, float] = {}

    def progress(now: TuningProgress) -> None:
        trials[now.label] = now.trial / now.trials
        note(now)
        name = f"{now.label}: " if len(tasks) > 1 else ""
        context.report(sum(trials.values()) / len(tasks), f"{name}{now}")

    def finished(result: TuningResult) -> None:
        trials[result.label] = 1.0
        context.log(describe(result))

    def work(budget: Budget) -> dict[str, JSON]:
        store = Path(context.root) / FOLDER
        settings: dict[str, Any] = {**budget}
        board = settings.pop("board")
        options = TuningOptions(work_dir=context.folder, store=store, method=method, **settings).on(board)
        stop = context.should_stop
        outcome = tune_queue(tasks, options, on_progress=progress, on_result=finished, should_stop=stop)
        if not outcome.results:
            raise TuningError("; ".join(f"{label}: {reason}" for label, reason in outcome.failed.items()))
        return {"results": [result.to_dict() for result in outcome.results.values()], "failed": {**outcome.failed}}

    return work


def _network(params: Mapping[str, JSON], context: Workplace) -> _Work:
    from syno_lab.trial import TrialRequest, facts
    from syno_lab.trial.backbone import build, one_example
    from syno_lab.trial.own import bring
    from syno_lab.tuning.network import facts_of, tune_network

    try:
        request = TrialRequest.from_dict(params["network"])
        bring(request)  # the user's signature of the job covers the code
    except (FormatError, CodeError) as error:
        raise TuningError(f"tune: {error}") from None
    note = _courses(context)

    def progress(now: TuningProgress) -> None:
        note(now)
        context.report(now.trial / now.trials, f"{now.label}: {now}")

    def work(budget: Budget) -> dict[str, JSON]:
        started, records = time.monotonic(), Path(context.root) / FOLDER
        if not records.is_dir():
            private.folder(records)
        busy = f"another network is being tuned in {records} ({{who}}): try again when it is done"
        example = one_example(facts.facts_of(request))
        with alone(records / LOCK_FILE, busy, budget.get("deadline_s") or enough_s(64, 64)):
            tuned = tune_network(
                build(request).module.eval(),
                tuple(example.shape),
                records=records,
                tokens=not example.is_floating_point(),
                on_progress=progress,
                should_stop=context.should_stop,
                **budget,
            )
        network_facts = facts_of(tuned, WHOLE, budget["target"], time.monotonic() - started)
        context.log(str(network_facts))
        plain: dict[str, JSON] = msgspec.to_builtins(network_facts)
        return plain

    return work


def describe(result: TuningResult) -> str:
    """Describe a tuning's result in one line, with the source of its trials."""
    trials = f"{result.trials} trials, {result.failed} failed"
    if result.from_records:
        how = f"from the records of {trials}: nothing was measured again"
    else:
        reused = f", {result.known} of them from the records" if result.known else ""
        how = f"after {trials}{reused}, {result.seconds:.1f} s, {result.seconds_per_trial:.2f} s a trial"
    why = {"space": "; the space has no more", "time": "; the time was over"}.get(result.stopped, "")
    unsure = "" if result.verified else "; not compared with the unscheduled program, which was too slow"
    return (
        f"{result.label}: {result.latency_ms:.4f} ms (median of {result.repeats}, best {result.best_ms:.4f} ms) "
        f"{how}{why}{unsure}, for {result.target}"
    )


def _tasks(params: Mapping[str, JSON]) -> list[TuningTask]:
    entries = params.get("tasks")
    if not isinstance(entries, list) or not entries:
        raise TuningError("tune: expected tasks as a list of operators, found none")
    tasks = []
    # A builder is code, and a job may come from a file, so no other builders are allowed.
    allowed = *builders(), NETWORK_BUILDER
    for entry in entries:
        try:
            task = TuningTask(**cast("dict[str, Any]", entry))
        except (TypeError, ValueError) as error:
            raise TuningError(f"tune: expected label, operator and binding of a task ({error})") from None
        if task.builder not in allowed:
            raise TuningError(
                f"{task.label}: expected a builder among {', '.join(allowed)}, found {quoted(task.builder)}"
            )
        tasks.append(task)
    return tasks
