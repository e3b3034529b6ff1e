"""The process that compiles a tuned network, and the one that runs networks on a device.

``python -m … compile`` or ``run``, a request as JSON on stdin, the answer as one line on stdout: see :mod:`.network`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from syno_lab.codegen.tvm_child import answer_one, read_network
from syno_lab.codegen.tvm_trace import check_trace
from syno_lab.errors import TuningError
from syno_lab.processes.light import import_tvm, tame_intrinsics
from syno_lab.tuning.jobs import Device, in_words, open_session, upload
from syno_lab.tuning.targets import check_here, resolve


def compile_one(request: dict[str, Any]) -> dict[str, Any]:
    """Compile the exported network of the request with its ``schedules`` into ``folder``.

    Each schedule is ``{"module", "trace", "seconds"}``; in the folder ``keep`` they stay, in MetaSchedule's own format.
    """
    import torch  # noqa: F401 - before TVM: the program is read by torch

    target = resolve(request["target"])
    if request["is_here"]:
        check_here(target, request["target"])
    from syno_lab.codegen.tvm_network import called_functions, compile_network, optimized

    tame_intrinsics(*target.intrinsics)
    module = optimized(read_network(request), target.tvm)
    names = called_functions(module)
    folder = Path(request["folder"])
    records = folder / "schedules" if request["keep"] is None else Path(request["keep"])
    _write_database(request["schedules"], records, target.tvm)
    executable, tuned = compile_network(module, target.tvm, records if request["schedules"] else None)
    path = str(folder / f"{request['name']}.{target.artifact}")
    _export(executable, path, target.linker)
    return {
        "path": path,
        "functions": len(names),
        "tuned": tuned,
        "target": target.text,
        "device": target.device,
        "machine": target.machine,
    }


def _write_database(schedules: list[dict[str, Any]], folder: Path, target: Any) -> None:
    import tvm
    from tvm.s_tir import Schedule, Trace
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo

    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.glob("database_*.json"):
        file.unlink()
    database = ms.database.JSONDatabase(work_dir=str(folder))
    for one in schedules:
        module, trace = tvm.ir.load_json(one["module"]), json.loads(one["trace"])
        check_trace(trace)
        schedule = Schedule(module)
        Trace.apply_json_to_schedule(trace, schedule)
        arguments = ArgInfo.from_entry_func(module, remove_preproc=True)
        workload = database.commit_workload(module)
        record = ms.database.TuningRecord(schedule.trace, workload, [one["seconds"]], target, arguments)
        database.commit_tuning_record(record)


def _export(executable: Any, path: str, linker: str | None) -> None:
    from tvm.support import cc
    from tvm.support.tar import tar

    if path.endswith(".tar"):
        executable.export_library(path, fcompile=tar)
    elif linker is not None:
        executable.export_library(path, fcompile=cc.cross_compiler(linker))
    else:
        executable.export_library(path)


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Run the networks in ``artifacts`` in turn on the device: ``rounds`` times each ``repeats`` samples.

    Each artifact has a ``path`` and a ``check``, with whose ``expected`` the device's output is compared. The answer
    has for each the ``error``, relative to the largest output, and the ``seconds`` of one call for each round.
    """
    import_tvm()
    tame_intrinsics()
    device = Device(**request["device"])
    session, address = open_session(device)
    with in_words(device.key):
        errors, seconds = _run_in_turn(session, device.kind, request)
    return {"errors": errors, "seconds": seconds, "address": address}


def _run_in_turn(session: Any, kind: str, request: dict[str, Any]) -> tuple[list[float], list[list[list[float]]]]:
    import numpy as np
    import tvm
    from tvm.runtime.vm import VirtualMachine

    where = session.device(kind, 0)
    timed, errors = [], []
    for one in request["artifacts"]:
        with np.load(one["check"]) as check:
            x, expected = check["x"], check["expected"]
        machine = VirtualMachine(upload(session, one["path"]), where)
        tensor = tvm.runtime.tensor(x, where)
        output = machine["main"](tensor).numpy()
        if output.shape != expected.shape:
            raise TuningError(f"expected an output of {expected.shape}, found one of {output.shape}")
        scale = max(float(np.abs(expected).max()), 1e-30)
        errors.append(float(np.abs(output.astype("float64") - expected).max()) / scale)
        evaluator = machine.time_evaluator(
            "main", where, number=1, repeat=request["repeats"], min_repeat_ms=request["min_ms"]
        )
        timed.append((evaluator, tensor))
    seconds: list[list[list[float]]] = [[] for _ in timed]
    for number in range(request["rounds"]):
        places = range(len(timed)) if number % 2 == 0 else reversed(range(len(timed)))
        for place in places:
            evaluator, tensor = timed[place]
            seconds[place].append([float(one) for one in evaluator(tensor).results])
    return errors, seconds


if __name__ == "__main__":
    answer_one({"compile": compile_one, "run": run})
