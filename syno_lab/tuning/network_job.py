"""A whole network's tuning as a job of kind ``tune``: the network of a trial, tuned and measured where it runs.

A job that was paused or killed continues from its records. The networks of one lab are tuned one after another: they
share the records of the functions that they have in common, and would disturb each other's measurements.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno_lab import private
from syno_lab.errors import CodeError, FormatError, TrackerError, TuningError
from syno_lab.inputs import quoted
from syno_lab.processes.alone import alone
from syno_lab.store.courses import COURSE_FILE, write_course
from syno_lab.trial import TrialRequest
from syno_lab.trial.backbone import build, one_example
from syno_lab.trial.facts import facts_of
from syno_lab.trial.own import bring
from syno_lab.tuning.board import Board
from syno_lab.tuning.network import facts_of as facts_of_network
from syno_lab.tuning.network import tune_network
from syno_lab.tuning.options import Budget
from syno_lab.tuning.presets import enough_s
from syno_lab.tuning.targets import check_target
from syno_lab.tuning.tracker import parse_address
from syno_lab.tuning.tune import TuningStopped
from syno_lab.tuning.values import TuningProgress

if TYPE_CHECKING:
    from syno_lab.tuning.job import Workplace

#: What the latency is of, as the store keeps it.
OF = "whole network"
#: In the records of a lab: held by the tuning of a network.
LOCK_FILE = "network.lock"

_NUMBER = (int, float)
_BUDGET: dict[str, type | tuple[type, ...]] = {
    "trials": int,
    "total": int,
    "preset": str,
    "scheduler": str,
    "seed": int,
    "deadline_s": _NUMBER,
}
_PARAMETERS = ("network", "target", "tracker", "key", *_BUDGET)


def run(params: Mapping[str, Any], context: Workplace, records: Path) -> dict[str, Any]:
    """Tune and measure the network of ``params["network"]``, a :class:`.TrialRequest` as a dictionary.

    ``target``, ``tracker`` and ``key`` are as for operators, ``trials``, ``total``, ``preset``, ``scheduler``, ``seed``
    and ``deadline_s`` fields of :class:`~syno_lab.tuning.options.TuningOptions`. Returns the facts of
    :func:`.network.facts_of`, with ``of``, ``target`` and ``seconds``.

    Raises:
        TuningError: for other parameters, and where the network cannot be tuned or measured.
        JobFailed: the tracker or the board is away; the job is retried.
        JobStopped: the job was paused or cancelled; the records have all measured trials.
    """
    from syno_lab.jobs.records import JobFailed, JobStopped

    request, board, target, budget = _read(params)
    courses: dict[str, list[tuple[int, float]]] = {}

    def progress(now: TuningProgress) -> None:
        if now.best_ms is not None:
            courses.setdefault(now.label, []).append((now.trial, now.best_ms))
            write_course(context.folder / COURSE_FILE, courses)
        context.report(now.trial / now.trials, f"{now.label}: {now}")

    started = time.monotonic()
    if not records.is_dir():
        private.folder(records)
    busy = f"another network is being tuned in {records} ({{who}}): try again when it is done"
    example = one_example(facts_of(request))
    try:
        with alone(records / LOCK_FILE, busy, budget.get("deadline_s") or enough_s(64, 64)):
            found = tune_network(
                build(request).module.eval(),
                tuple(example.shape),
                board=board,
                records=records,
                target=target,
                tokens=not example.is_floating_point(),
                on_progress=progress,
                should_stop=context.should_stop,
                **budget,
            )
    except TuningStopped as stopped:
        raise JobStopped(str(stopped)) from None
    except TrackerError as away:
        raise JobFailed(str(away), retry=True) from None
    facts = dict(facts_of_network(found, of=OF, target=target, seconds=time.monotonic() - started))
    context.log(describe(facts))
    return facts


def describe(facts: Mapping[str, Any]) -> str:
    """The facts in one line: what was measured, where, and with how many trials."""
    return (
        f"whole network through Relax: {facts['latency_ms']:.4f} ms on {facts['where']} for {facts['target']}, "
        f"{facts['tuned']} of {facts['functions']} functions tuned by {facts['trials']} trials in all, "
        f"{facts['known']} of them from the records; {facts['seconds']:.0f} s"
    )


def _read(params: Mapping[str, Any]) -> tuple[TrialRequest, Board | None, str, Budget]:
    unknown = sorted(params.keys() - set(_PARAMETERS))
    if unknown:
        raise TuningError(f"tune: expected the parameters {', '.join(_PARAMETERS)}, found {', '.join(unknown)}")
    try:
        request = TrialRequest.from_dict(params["network"])
        bring(request)  # the user has signed the job, and its code with it
    except (FormatError, CodeError) as error:
        raise TuningError(f"tune: {error}") from None
    for name, kind in _BUDGET.items():
        value = params.get(name)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise TuningError(f"tune: parameter {quoted(name)} holds {quoted(value)}")
    target = check_target(str(params.get("target", "local")))
    tracker, key = params.get("tracker"), params.get("key")
    if (tracker is None) != (key is None):
        raise TuningError("tune: expected tracker and key together, or neither to tune on this machine")
    board = None if tracker is None else Board(*parse_address(str(tracker)), str(key))
    budget: Any = {name: params[name] for name in _BUDGET if params.get(name) is not None}
    return request, board, target, budget
