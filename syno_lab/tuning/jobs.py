"""The calls that run in workers: compile a candidate, measure it over RPC, compute its expected output."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syno_lab.errors import TuningError
from syno_lab.processes.board_server import MOMENT_FUNCTION
from syno_lab.tuning.presets import Effort
from syno_lab.tuning.tracker import request_device

if TYPE_CHECKING:
    import numpy as np
    import tvm

#: The host and key of this machine without a tracker. It has a blank, which real hosts and keys cannot have.
HERE = "this machine"

#: The most characters of a board's state.
_LONGEST_MOMENT = 1 << 16
#: Shape and dtype of one argument of a PrimFunc.
Argument = tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class Device:
    """A device behind a tracker: how to ask for it and how long to wait for it and to hold it, in seconds.

    ``tvm`` is the version that it must have; a device with another version is refused before anything is sent. With
    `HERE` as its host, the calling process itself is the device.
    """

    host: str
    port: int
    key: str
    kind: str
    wait_s: float
    session_s: float
    tvm: str | None = None

    @property
    def is_here(self) -> bool:
        """Whether the calls run in the calling process, without a tracker, server or socket."""
        return self.host == HERE


def compile_candidate(module: tvm.ir.IRModule, target: tvm.target.Target, path: str, linker: str | None = None) -> str:
    """Compile a scheduled module into ``path``, a shared library (``.so``) or objects to link elsewhere (``.tar``).

    ``linker`` is a C++ compiler for another machine's architecture.
    """
    import tvm
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock
    from tvm.support.tar import tar

    module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
    library = tvm.compile(module, target=target)
    if path.endswith(".tar"):
        library.export_library(path, fcompile=tar)
    elif linker is not None:
        from tvm.support import cc

        library.export_library(path, fcompile=cc.cross_compiler(linker))
    else:
        library.export_library(path)
    return path


def read_database(folder: str) -> int:
    """Read MetaSchedule's whole database, in a process that it may crash; return the number of its records."""
    from tvm.s_tir import meta_schedule as ms

    return len(ms.database.JSONDatabase(work_dir=folder).get_all_tuning_records())


def draw(arguments: list[Argument], seed: int) -> list[np.ndarray]:
    """Random inputs around zero, none of them denormal or NaN (denormals take a processor's slow path)."""
    import numpy as np

    generator = np.random.default_rng(seed)
    drawn = []
    for shape, dtype in arguments:
        magnitude = generator.uniform(0.1, 1.0, shape)
        drawn.append(np.where(generator.random(shape) < 0.5, -magnitude, magnitude).astype(dtype))
    return drawn


def reference(module: tvm.ir.IRModule, target: tvm.target.Target, inputs: list[np.ndarray], output: Argument) -> Any:
    """The output of the unscheduled ``module`` for ``inputs`` on this machine, as an array."""
    import tvm

    device = tvm.cpu()
    buffers = [tvm.runtime.tensor(one, device) for one in inputs]
    result = tvm.runtime.empty(*output, device=device)
    tvm.compile(module, target=target)["main"](*buffers, result)
    return result.numpy()


def measure(device: Device, artifact: str, arguments: list[Argument], effort: Effort) -> tuple[list[float], str]:
    """Seconds for a call of the compiled candidate on ``device``, one for each repeat, and the device's address."""
    session, address = open_session(device)
    remote = session.device(device.kind, 0)
    library = upload(session, artifact)
    # Uniform in [1, 10): see RandomFillForMeasure in TVM's random engine.
    fill = session.get_function("tvm.contrib.random.random_fill_for_measure")
    import tvm

    buffers = []
    for shape, dtype in arguments:
        buffer = tvm.runtime.empty(shape, dtype, remote)
        fill(buffer)
        buffers.append(buffer)
    return _time(library, remote, buffers, effort), address


def measure_and_run(
    device: Device, artifact: str, inputs: list[np.ndarray], output: Argument, effort: Effort
) -> tuple[list[float], Any]:
    """Like :func:`measure`, on given inputs; also returns the device's output."""
    import tvm

    session, _ = open_session(device)
    remote = session.device(device.kind, 0)
    library = upload(session, artifact)
    buffers = [tvm.runtime.tensor(one, remote) for one in inputs]
    buffers.append(tvm.runtime.empty(*output, device=remote))
    seconds = _time(library, remote, buffers, effort)
    return seconds, buffers[-1].numpy()


def board_moment(device: Device) -> str:
    """The board's state at this moment, as JSON text; raises if its server is not the lab's."""
    session, _ = open_session(device)
    said = str(session.get_function(MOMENT_FUNCTION)())
    if len(said) > _LONGEST_MOMENT:
        raise TuningError(
            f"{device.key}: expected at most {_LONGEST_MOMENT} characters of its state, found {len(said)}"
        )
    return said


def open_session(device: Device) -> tuple[Any, str]:
    """A session on the device and the device's address. Raises TrackerError."""
    from tvm import rpc

    if device.is_here:
        rpc.server.logger.setLevel(logging.WARNING)  # it would log every candidate that it loads
        return rpc.LocalSession(), HERE
    host, port, matchkey = request_device(device.host, device.port, device.key, device.wait_s, tvm=device.tvm)
    return rpc.connect(host, port, matchkey, session_timeout=device.session_s), f"{host}:{port}"


def upload(session: Any, artifact: str) -> Any:
    """The library in the file ``artifact``, loaded in the session."""
    name = artifact.replace("\\", "/").rpartition("/")[2]
    session.upload(artifact, name)
    return session.load_module(name)


def _time(library: Any, remote: Any, buffers: list[Any], effort: Effort) -> list[float]:
    evaluator = library.time_evaluator("main", remote, number=1, repeat=effort.repeat, min_repeat_ms=effort.min_ms)
    remote.sync()
    seconds = [float(one) for one in evaluator(*buffers).results]
    if not seconds or not all(math.isfinite(one) and one > 0 for one in seconds):
        raise TuningError(f"the device reports latencies of {seconds} seconds")
    return seconds
