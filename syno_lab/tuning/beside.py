"""Time several schedules of one operator in turn on this machine, so that a disturbance affects all of them alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    # Imported here: a worker imports this package and runs that module as its main program.
    from syno_lab.tuning.worker import CallFailedError, Worker

    if rounds < 1 or not traces:
        raise TuningError(f"{task.label}: expected schedules and at least one round, found {len(traces)} and {rounds}")
    try:
        plain = {name: json.loads(trace) for name, trace in traces.items()}
    except ValueError:
        raise TuningError(f"{task.label}: expected traces as TVM's JSON text") from None
    with scratch("syno-beside-") as folder:
        worker = Worker(folder / "log")
        try:
            found: dict[str, list[float]] = worker.call(
                times_job, task.request(), plain, rounds, str(folder), deadline_s=_DEADLINE_S
            )
        except CallFailedError as failure:
            raise TuningError(f"{task.label}: {failure}") from None
        finally:
            worker.close()
    return found


def times_job(task: dict[str, Any], traces: dict[str, Any], rounds: int, folder: str) -> dict[str, list[float]]:
    """:func:`time_schedules`, in a worker."""
    import tvm
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo

    from syno_lab.tuning import jobs
    from syno_lab.tuning.child import load_module
    from syno_lab.tuning.explain import apply_trace
    from syno_lab.tuning.search import shape_and_dtype
    from syno_lab.tuning.targets import LOCAL, resolve

    module, target, device = load_module(TuningTask(**task)), resolve(LOCAL).tvm, tvm.cpu()
    *inputs, output = [shape_and_dtype(one) for one in ArgInfo.from_entry_func(module, remove_preproc=False)]
    buffers = [tvm.runtime.tensor(one, device) for one in jobs.draw(inputs, 0)]
    buffers.append(tvm.runtime.empty(*output, device=device))
    timers = {}
    for number, (name, trace) in enumerate(traces.items()):
        # Each library has its own name: a path is loaded only once in a process.
        path = f"{folder}/{number}.so"
        jobs.compile_candidate(apply_trace(module, trace).mod, target, path)
        library = tvm.runtime.load_module(path)
        timers[name] = library.time_evaluator("main", device, number=1, repeat=1)
    found: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(rounds):
        for name, timer in timers.items():
            found[name].append(float(timer(*buffers).results[0]) * 1e3)
    return found
