"""Compile one operator here, run it on a device behind a tracker, and compare it with its loop nest."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from syno_lab.errors import TuningError
from syno_lab.processes.process import last_line
from syno_lab.scratch import scratch
from syno_lab.tuning import jobs
from syno_lab.tuning.board import Board
from syno_lab.tuning.jobs import Device, Effort
from syno_lab.tuning.targets import check_target
from syno_lab.tuning.worker import CallFailedError, Worker

#: Seconds for the operator's own work, without MetaSchedule's schedules.
_EFFORT = Effort(repeat=3, min_ms=1)
#: Seconds for importing NumPy and compiling, in addition to the device's.
_HOST_S = 60.0


@dataclass(frozen=True)
class RemoteRun:
    """The result of one run: ``error`` is the largest difference from the loop nest, relative to the largest output.

    ``machine`` is the architecture that the code was compiled for (``aarch64``), ``latency_ms`` the median of a few
    calls of TVM's unscheduled loops.
    """

    error: float
    machine: str
    latency_ms: float


def run_remotely(
    operator: str,
    binding: Mapping[str, int],
    *,
    board: Board,
    target: str,
    dtype: str = "float32",
    seed: int = 0,
    wait_s: float = 30.0,
    session_s: float = 60.0,
) -> RemoteRun:
    """Compile the operator file's text ``operator`` for ``target``, run it on ``board``, compare it on random inputs.

    ``wait_s`` is the time to wait for a busy device and ``session_s`` the time to hold it, in seconds. TVM runs in its
    own process. Raises :class:`TrackerError` for the tracker and the device, :class:`TuningError` for all else.
    """
    check_target(target)
    device = Device(board.host, board.port, board.key, "", wait_s, session_s)
    with scratch("syno-remote-") as folder, closing(Worker(folder / "log")) as worker:
        try:
            found = worker.call(
                _run, device, operator, dict(binding), dtype, target, seed, str(folder),
                deadline_s=wait_s + session_s + _HOST_S,
            )  # fmt: skip
        except CallFailedError as failure:
            said = last_line(folder / "log")
            raise TuningError(f"a kernel for {target} did not run on {board.key}: {failure} {said}".rstrip()) from None
    return RemoteRun(**found)


def _run(
    device: Device, operator: str, binding: dict[str, int], dtype: str, target: str, seed: int, folder: str
) -> dict[str, Any]:
    import dataclasses

    import numpy as np

    from syno_lab.codegen.tvm_device import find_target, for_target, machine
    from syno_lab.systems import read_operator
    from syno_lab.tuning.targets import resolve

    wanted = resolve(target)
    value = read_operator(operator)
    bound = value.complete_binding(binding)
    shapes = [value.input_sizes(bound), *value.weight_sizes(bound)]
    inputs = jobs.draw([(tuple(shape), dtype) for shape in shapes], seed)
    path = os.path.join(folder, f"kernel.{wanted.artifact}")  # noqa: PTH118 - TVM needs a string
    module = for_target(value.to_tvm(bound, dtype), find_target(wanted.tvm))
    jobs.compile_candidate(module, wanted.tvm, path)
    output = tuple(value.output_sizes(bound)), dtype
    device = dataclasses.replace(device, kind=wanted.device, machine=wanted.machine, target=target)
    seconds, got = jobs.measure_and_run(device, path, inputs, output, _EFFORT)
    expected = value.reference(*(one.astype("float64") for one in inputs), binding=bound)
    error = float(np.abs(got - expected).max() / max(float(np.abs(expected).max()), 1e-30))
    return {"error": error, "machine": machine(wanted.tvm), "latency_ms": statistics.median(seconds) * 1e3}
