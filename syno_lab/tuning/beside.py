"""Time several schedules or operators in turn on this machine, so that a disturbance affects all of them alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from syno_lab.errors import TuningError
from syno_lab.scratch import scratch
from syno_lab.tuning.values import TuningTask

_DEADLINE_S = 600.0


def time_schedules(task: TuningTask, traces: Mapping[str, str], rounds: int = 100) -> dict[str, list[float]]:
    """Milliseconds of single calls: in each of ``rounds``, one call of every schedule in turn.

    ``traces`` come from tunings' results. A call is shorter than a scheduler's time slice on a busy machine, so the
    least of many times is the schedule's own. Raises :class:`TuningError`.
    """
    return _timed({name: (task, trace) for name, trace in traces.items()}, rounds, task.label)


def time_operators(tuned: Mapping[str, tuple[TuningTask, str]], rounds: int = 100) -> dict[str, list[float]]:
    """:func:`time_schedules` for different operators: each name has its task and the trace of a tuning of it.

    Raises :class:`TuningError`.
    """
    return _timed(tuned, rounds, "time_operators")


def _timed(tuned: Mapping[str, tuple[TuningTask, str]], rounds: int, label: str) -> dict[str, list[float]]:
    # Imported here: a worker imports this package and runs that module as its main program.
    from syno_lab.tuning.worker import CallFailedError, Worker

    if rounds < 1 or not tuned:
        raise TuningError(f"{label}: expected schedules and at least one round, found {len(tuned)} and {rounds}")
    try:
        plain = {name: (task.request(), json.loads(trace)) for name, (task, trace) in tuned.items()}
    except ValueError:
        raise TuningError(f"{label}: expected traces as TVM's JSON text") from None
    with scratch("syno-beside-") as folder, closing(Worker(folder / "log")) as worker:
        try:
            found: dict[str, list[float]] = worker.call(times_job, plain, rounds, str(folder), deadline_s=_DEADLINE_S)
        except CallFailedError as failure:
            raise TuningError(f"{label}: {failure}") from None
    return found


def times_job(tuned: dict[str, tuple[dict[str, Any], Any]], rounds: int, folder: str) -> dict[str, list[float]]:
    """:func:`time_operators` in a worker: of each name, the task's request and the trace as data."""
    import tvm
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo

    from syno_lab.tuning import jobs
    from syno_lab.tuning.child import load_module
    from syno_lab.tuning.explain import apply_trace
    from syno_lab.tuning.search import shape_and_dtype
    from syno_lab.tuning.targets import LOCAL, resolve

    target, device = resolve(LOCAL).tvm, tvm.cpu()
    calls = {}
    for number, (name, (request, trace)) in enumerate(tuned.items()):
        module = load_module(TuningTask(**request))
        *inputs, output = [shape_and_dtype(one) for one in ArgInfo.from_entry_func(module, remove_preproc=False)]
        buffers = [tvm.runtime.tensor(one, device) for one in jobs.draw(inputs, 0)]
        buffers.append(tvm.runtime.empty(*output, device=device))
        # Each library has its own name: a path is loaded only once in a process.
        path = f"{folder}/{number}.so"
        jobs.compile_candidate(apply_trace(module, trace).mod, target, path)
        library = tvm.runtime.load_module(path)
        calls[name] = library.time_evaluator("main", device, number=1, repeat=1), buffers
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, (timer, buffers) in calls.items():
            found[name].append(float(timer(*buffers).results[0]) * 1e3)
    return found
