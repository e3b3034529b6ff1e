"""Tuning as a job of kind ``tune``: the queue of :mod:`~syno_lab.evaluate.tuning.tune` in the lab's job list.

A job that is paused, killed or whose machine went down goes on from its records, trial by trial, when it is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno_lab.errors import TrackerError, TuningError
from syno_lab.evaluate.courses import COURSE_FILE, write_course
from syno_lab.evaluate.tuning.board import local_board
from syno_lab.evaluate.tuning.method import RULES, Method
from syno_lab.evaluate.tuning.targets import check_target, threads_of
from syno_lab.evaluate.tuning.tune import TuningStopped, tune_queue
from syno_lab.evaluate.tuning.values import TuningProgress, TuningResult, TuningTask

if TYPE_CHECKING:
    from syno_lab.evaluate.jobs.context import JobContext

#: The folder of a lab in which the records of all its tunings are.
FOLDER = "tuning"
#: A builder is code: a job, which may come from a file, names one of these and no other.
BUILDERS = (
    "syno_lab.codegen.tvm_target:lower_json",
    "syno_lab.codegen.tvm_network:task_module",
    "syno_lab.operators.nas_pte_tvm:lower_json",
)
_NUMBER = (int, float)
_OPTIONS: dict[str, type | tuple[type, ...]] = {
    "trials": int,
    "preset": str,
    "seed": int,
    "deadline_s": _NUMBER,
    "wait_s": _NUMBER,
    "session_s": _NUMBER,
}
_METHOD = ("rules", "strategy", "cost_model")
_PARAMETERS = ("tasks", "target", "tracker", "key", *_OPTIONS, *_METHOD)


def run(params: dict[str, Any], context: JobContext) -> dict[str, Any]:
    """Tune the operators of ``params["tasks"]``, each ``{"label", "operator", "binding", "dtype"?, "builder"?}``.

    ``target`` is ``local`` unless given; without ``tracker`` (``"host:port"``) and ``key`` a board of our own is
    started on loopback. ``trials``, ``preset``, ``seed``, ``deadline_s``, ``wait_s`` and ``session_s`` are those of
    :func:`~syno_lab.evaluate.tuning.tune.tune_queue`; ``rules`` (names alone: a job runs no code but the lab's own),
    ``strategy`` and ``cost_model`` those of :class:`~syno_lab.evaluate.tuning.method.Method`. Records go to the folder
    ``tuning`` of the lab.

    Returns ``{"results": [TuningResult as a dict, …], "failed": {label: reason}}``.

    Raises:
        TuningError: for other parameters, and where every operator failed.
        JobFailed: to be tried again, where the tracker or the board is away.
        JobStopped: when the job is paused or cancelled; what was measured is in the records.
    """
    from syno_lab.evaluate.jobs.records import JobFailed, JobStopped

    tasks, options, method = _tasks(params), _options(params), _method(params)
    target = check_target(str(params.get("target", "local")))
    tracker, key = params.get("tracker"), params.get("key")
    if (tracker is None) != (key is None):
        raise TuningError("tune: expected tracker and key together, or neither for a board of our own")
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

    with ExitStack() as stack:
        if tracker is None:
            board = stack.enter_context(local_board(threads=threads_of(target)))
            tracker, key = f"{board.host}:{board.port}", board.key
        try:
            done = tune_queue(
                tasks,
                tracker=str(tracker),
                key=str(key),
                target=target,
                method=method,
                work_dir=context.folder,
                store=store,
                on_progress=progress,
                on_result=finished,
                should_stop=context.should_stop,
                **options,
            )
        except TuningStopped as stopped:
            raise JobStopped(str(stopped)) from None
        except TrackerError as away:
            raise JobFailed(str(away), retry=True) from None
    if not done.results:
        raise TuningError("; ".join(f"{label}: {reason}" for label, reason in done.failed.items()))
    return {"results": [result.to_dict() for result in done.results.values()], "failed": done.failed}


def describe(result: TuningResult) -> str:
    """A result in one line, saying where it comes from."""
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
    for entry in entries:
        try:
            task = TuningTask(**entry)
        except (TypeError, ValueError) as error:
            raise TuningError(f"tune: expected label, operator and binding of a task ({error})") from None
        if task.builder not in BUILDERS:
            raise TuningError(f"{task.label}: expected a builder among {', '.join(BUILDERS)}, found {task.builder!r}")
        tasks.append(task)
    return tasks


def _method(params: Mapping[str, Any]) -> Method:
    given = {name: params[name] for name in _METHOD if params.get(name) is not None}
    if any(not isinstance(given[name], str) for name in ("strategy", "cost_model") if name in given):
        raise TuningError(f"tune: expected a strategy and a cost model by their names, found {given}")
    rules = given.pop("rules", None)
    if rules is None:
        return Method(**given)
    if not isinstance(rules, list) or any(not isinstance(one, str) or one not in RULES for one in rules):
        raise TuningError(
            f"tune: expected rules among {', '.join(RULES)}: a job runs no code but ours; found {rules!r}"
        )
    return Method(tuple(rules), **given)


def _options(params: Mapping[str, Any]) -> dict[str, Any]:
    options = {name: params[name] for name in _OPTIONS if params.get(name) is not None}
    for name, value in options.items():
        if not isinstance(value, _OPTIONS[name]) or isinstance(value, bool):
            raise TuningError(f"tune: parameter {name!r} holds {value!r}")
    return options
