"""Tuning as a job of kind ``tune``, by the queue of :mod:`~syno_lab.tuning.tune`.

A job that was paused or killed, or whose machine went down, continues from its records after the last trial.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from syno_lab.errors import TrackerError, TuningError
from syno_lab.inputs import quoted
from syno_lab.store.courses import COURSE_FILE, write_course
from syno_lab.systems import builders
from syno_lab.tuning.method import from_job
from syno_lab.tuning.options import TuningOptions
from syno_lab.tuning.targets import check_target
from syno_lab.tuning.tune import TuningStopped, tune_queue
from syno_lab.tuning.values import NETWORK_BUILDER, TuningProgress, TuningResult, TuningTask

#: The folder in a lab with the records of all its tunings.
FOLDER = "tuning"
_NUMBER = (int, float)
_OPTIONS: dict[str, type | tuple[type, ...]] = {
    "trials": int,
    "preset": str,
    "seed": int,
    "deadline_s": _NUMBER,
    "wait_s": _NUMBER,
    "session_s": _NUMBER,
}
_METHOD = ("rules", "space", "strategy", "cost_model", "mutators", "postprocessors")
_PARAMETERS = ("tasks", "target", "tracker", "key", *_OPTIONS, *_METHOD)


class Workplace(Protocol):
    """The part of a :class:`~syno_lab.jobs.context.JobContext` that a tuning needs; other callers pass their own."""

    @property
    def root(self) -> Path:
        """The lab's folder; its subfolder ``tuning`` has the records."""

    @property
    def folder(self) -> Path:
        """The folder for the tuning's own files."""

    @property
    def should_stop(self) -> Callable[[], bool]:
        """Whether to stop."""

    def report(self, fraction: float, message: str = "") -> None:
        """Report the progress, from 0 to 1."""

    def log(self, line: str) -> None:
        """Write a line to the log."""


def run(params: dict[str, Any], context: Workplace) -> dict[str, Any]:
    """Tune the operators of ``params["tasks"]``, each ``{"label", "operator", "binding", "dtype"?, "builder"?}``.

    ``target`` is ``local`` unless given; without ``tracker`` (``"host:port"``) and ``key`` candidates are measured in
    child processes of this machine. ``trials``, ``preset``, ``seed``, ``deadline_s``, ``wait_s`` and ``session_s`` are
    fields of :class:`~syno_lab.tuning.options.TuningOptions`; ``rules``, ``space``, ``strategy``, ``cost_model``,
    ``mutators`` and ``postprocessors`` are those of :class:`~syno_lab.tuning.method.Method`, with the user's own code
    as text, which is signed with the whole request. Records go to the folder ``tuning`` of the lab.

    Returns ``{"results": [TuningResult as a dict, …], "failed": {label: reason}}``. With ``network`` in place of
    ``tasks`` it is a whole network that is tuned and measured: :func:`syno_lab.tuning.network_job.run`.

    Raises:
        TuningError: for other parameters, and if every operator failed.
        JobFailed: the tracker or the board is away; the job is retried.
        JobStopped: the job was paused or cancelled; the records have all measured trials.
    """
    from syno_lab.jobs.records import JobFailed, JobStopped

    if "network" in params:
        from syno_lab.tuning import network_job

        return network_job.run(params, context, Path(context.root) / FOLDER)
    tasks, options, method = _tasks(params), _options(params), from_job(params)
    target = check_target(str(params.get("target", "local")))
    tracker, key = params.get("tracker"), params.get("key")
    if (tracker is None) != (key is None):
        raise TuningError("tune: expected tracker and key together, or neither to tune on this machine")
    store = Path(context.root) / FOLDER
    trials: dict[str, float] = {}
    courses: dict[str, list[tuple[int, float]]] = {}

    def progress(now: TuningProgress) -> None:
        trials[now.label] = now.trial / now.trials
        if now.best_ms is not None:
            courses.setdefault(now.label, []).append((now.trial, now.best_ms))
            write_course(context.folder / COURSE_FILE, courses)
        name = f"{now.label}: " if len(tasks) > 1 else ""
        context.report(sum(trials.values()) / len(tasks), f"{name}{now}")

    def finished(result: TuningResult) -> None:
        trials[result.label] = 1.0
        context.log(describe(result))

    try:
        tuning = TuningOptions(
            work_dir=context.folder,
            store=store,
            tracker=None if tracker is None else str(tracker),
            key=None if key is None else str(key),
            target=target,
            method=method,
            **options,
        )
        done = tune_queue(tasks, tuning, on_progress=progress, on_result=finished, should_stop=context.should_stop)
    except TuningStopped as stopped:
        raise JobStopped(str(stopped)) from None
    except TrackerError as away:
        raise JobFailed(str(away), retry=True) from None
    if not done.results:
        raise TuningError("; ".join(f"{label}: {reason}" for label, reason in done.failed.items()))
    return {"results": [result.to_dict() for result in done.results.values()], "failed": done.failed}


def allowed_builders() -> tuple[str, ...]:
    """The builders that a job may name. A builder is code and a job may come from a file, so no other is allowed."""
    return *builders(), NETWORK_BUILDER


def describe(result: TuningResult) -> str:
    """Describe a result in one line, with its source."""
    trials = f"{result.trials} trials, {result.failed} failed"
    if result.from_records:
        how = f"from the records of {trials}: nothing was measured again"
    else:
        known = f", {result.known} of them from the records" if result.known else ""
        how = f"after {trials}{known}, {result.seconds:.1f} s, {result.seconds_per_trial:.2f} s a trial"
    why = {"space": "; the space has no more", "time": "; the time was over"}.get(result.stopped, "")
    unsure = "" if result.verified else "; not compared with the unscheduled program, which was too slow"
    return (
        f"{result.label}: {result.latency_ms:.4f} ms (median of {result.repeats}, best {result.best_ms:.4f} ms) "
        f"{how}{why}{unsure}, for {result.target}"
    )


def _tasks(params: Mapping[str, Any]) -> list[TuningTask]:
    unknown = sorted(params.keys() - set(_PARAMETERS))
    if unknown:
        raise TuningError(f"tune: expected the parameters {', '.join(_PARAMETERS)}, found {', '.join(unknown)}")
    entries = params.get("tasks")
    if not isinstance(entries, list) or not entries:
        raise TuningError("tune: expected tasks as a list of operators, found none")
    tasks = []
    allowed = allowed_builders()
    for entry in entries:
        try:
            task = TuningTask(**entry)
        except (TypeError, ValueError) as error:
            raise TuningError(f"tune: expected label, operator and binding of a task ({error})") from None
        if task.builder not in allowed:
            raise TuningError(
                f"{task.label}: expected a builder among {', '.join(allowed)}, found {quoted(task.builder)}"
            )
        tasks.append(task)
    return tasks


def _options(params: Mapping[str, Any]) -> dict[str, Any]:
    options = {name: params[name] for name in _OPTIONS if params.get(name) is not None}
    for name, value in options.items():
        if not isinstance(value, _OPTIONS[name]) or isinstance(value, bool):
            raise TuningError(f"tune: parameter {quoted(name)} holds {quoted(value)}")
    return options
