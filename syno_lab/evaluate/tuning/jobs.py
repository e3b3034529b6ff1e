"""The calls that run in workers: compile a candidate, measure it over RPC, compute what it should give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syno_lab.errors import TuningError
from syno_lab.evaluate.tuning.board_server import MOMENT_FUNCTION
from syno_lab.evaluate.tuning.presets import Effort
from syno_lab.evaluate.tuning.tracker import request_device

if TYPE_CHECKING:
    import numpy as np
    import tvm

#: Shape and dtype of one argument of a PrimFunc.
Argument = tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class Device:
    """A device behind a tracker: how to ask for it and how long to wait for it and to hold it, in seconds.

    ``tvm`` is the version that it must have; a device with another is refused before anything is sent.
    """

    host: str
    port: int
    key: str
    kind: str
    wait_s: float
    session_s: float
    tvm: str | None = None


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
    """Read MetaSchedule's database whole, in a process that it may take down; the number of its records."""
    from tvm.s_tir import meta_schedule as ms

    return len(ms.database.JSONDatabase(work_dir=folder).get_all_tuning_records())


def draw(arguments: list[Argument], seed: int) -> list[np.ndarray]:
    """Random inputs around zero, none of them denormal or not a number (denormals take a processor's slow path)."""
    import numpy as np

    generator = np.random.default_rng(seed)
    drawn = []
    for shape, dtype in arguments:
        magnitude = generator.uniform(0.1, 1.0, shape)
        drawn.append(np.where(generator.random(shape) < 0.5, -magnitude, magnitude).astype(dtype))
    return drawn


def reference(module: tvm.ir.IRModule, target: tvm.target.Target, inputs: list[np.ndarray], output: Argument) -> Any:
    """What the unscheduled ``module`` computes from ``inputs`` on this machine, as an array."""
    import tvm

    device = tvm.cpu()
    buffers = [tvm.runtime.tensor(one, device) for one in inputs]
    result = tvm.runtime.empty(*output, device=device)
    tvm.compile(module, target=target)["main"](*buffers, result)
    return result.numpy()


def measure(device: Device, artifact: str, arguments: list[Argument], effort: Effort) -> tuple[list[float], str]:
    """Seconds a call of the compiled candidate takes on ``device``, one for each repeat, and the device's address."""
    session, address = _open(device)
    remote = session.device(device.kind, 0)
    library = _upload(session, artifact)
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
    """Like :func:`measure` on given inputs, with the output that the device computed."""
    import tvm

    session, _ = _open(device)
    remote = session.device(device.kind, 0)
    library = _upload(session, artifact)
    buffers = [tvm.runtime.tensor(one, remote) for one in inputs]
    buffers.append(tvm.runtime.empty(*output, device=remote))
    seconds = _time(library, remote, buffers, effort)
    return seconds, buffers[-1].numpy()


def board_moment(device: Device) -> str:
    """What the board says of itself at this moment, as JSON text; raises where its server is not ours."""
    session, _ = _open(device)
    return str(session.get_function(MOMENT_FUNCTION)())


def _open(device: Device) -> tuple[Any, str]:
    from tvm import rpc

    host, port, matchkey = request_device(device.host, device.port, device.key, device.wait_s, tvm=device.tvm)
    return rpc.connect(host, port, matchkey, session_timeout=device.session_s), f"{host}:{port}"


def _upload(session: Any, artifact: str) -> Any:
    name = artifact.replace("\\", "/").rpartition("/")[2]
    session.upload(artifact, name)
    return session.load_module(name)


def _time(library: Any, remote: Any, buffers: list[Any], effort: Effort) -> list[float]:
    evaluator = library.time_evaluator("main", remote, number=1, repeat=effort.repeat, min_repeat_ms=effort.min_ms)
    remote.sync()
    seconds = [float(one) for one in evaluator(*buffers).results]
    if not seconds or min(seconds) <= 0:
        raise TuningError(f"the device reports latencies of {seconds} seconds")
    return seconds
