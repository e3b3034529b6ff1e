"""One operator, compiled here, run on a device behind a tracker, and compared with its loop nest."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syno_lab.errors import TrackerError, TuningError
from syno_lab.evaluate.tuning import jobs
from syno_lab.evaluate.tuning.board import Board
from syno_lab.evaluate.tuning.jobs import Device, Effort
from syno_lab.evaluate.tuning.process import last_line
from syno_lab.evaluate.tuning.targets import check_target
from syno_lab.evaluate.tuning.worker import CallFailedError, Worker

#: For what the operator's own work takes: MetaSchedule's schedules are not used here.
_EFFORT = Effort(repeat=3, min_ms=1)
#: Importing numpy and compiling, beside what the device may take.
_HOST_S = 60.0


@dataclass(frozen=True)
class RemoteRun:
    """What came of one run: ``error`` is the largest difference from the loop nest, relative to the largest output.

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

    ``wait_s`` is how long a busy device is waited for and ``session_s`` how long it may be held. TVM runs in a process
    of its own. Raises :class:`TrackerError` for the tracker and the device, :class:`TuningError` for all else.
    """
    check_target(target)
    device = Device(board.host, board.port, board.key, "", wait_s, session_s)
    with tempfile.TemporaryDirectory(prefix="syno-remote-", ignore_cleanup_errors=True) as scratch:
        log = Path(scratch) / "log"
        worker = Worker(log)
        try:
            found = worker.call(
                _run, device, operator, dict(binding), dtype, target, seed, scratch,
                deadline_s=wait_s + session_s + _HOST_S,
            )  # fmt: skip
        except TrackerError:
            raise
        except CallFailedError as failure:
            said = last_line(log)
            raise TuningError(f"a kernel for {target} did not run on {board.key}: {failure} {said}".rstrip()) from None
        finally:
            worker.close()
    return RemoteRun(**found)


def _run(
    device: Device, operator: str, binding: dict[str, int], dtype: str, target: str, seed: int, scratch: str
) -> dict[str, Any]:
    import dataclasses

    import numpy as np

    from syno_lab.codegen.reference import reference
    from syno_lab.codegen.tvm_device import machine
    from syno_lab.codegen.tvm_target import to_tvm
    from syno_lab.evaluate.tuning.targets import resolve
    from syno_lab.ir.files import from_json

    wanted = resolve(target)
    value = from_json(operator)
    bound = value.complete_binding(binding)
    shapes = [value.input_sizes(bound), *value.weight_sizes(bound)]
    inputs = jobs.draw([(tuple(shape), dtype) for shape in shapes], seed)
    path = os.path.join(scratch, f"kernel.{wanted.artifact}")  # noqa: PTH118 - TVM takes texts
    jobs.compile_candidate(to_tvm(value, bound, dtype, target=wanted.tvm), wanted.tvm, path)
    output = tuple(value.output_sizes(bound)), dtype
    device = dataclasses.replace(device, kind=wanted.device)
    seconds, got = jobs.measure_and_run(device, path, inputs, output, _EFFORT)
    expected = reference(value, *(one.astype("float64") for one in inputs), binding=bound)
    error = float(np.abs(got - expected).max() / max(float(np.abs(expected).max()), 1e-30))
    return {"error": error, "machine": machine(wanted.tvm), "latency_ms": statistics.median(seconds) * 1e3}
