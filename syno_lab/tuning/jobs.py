"""Functions that run in workers: compile a candidate, measure it over RPC, and compute its expected output."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from syno_lab.codegen.tvm_trace import check_trace
from syno_lab.effort import NO_MEMORY, check_room
from syno_lab.errors import TuningError
from syno_lab.inputs import quoted
from syno_lab.processes.board_server import MOMENT_FUNCTION
from syno_lab.tuning.board import Board
from syno_lab.tuning.options import Effort
from syno_lab.tuning.tracker import request_device
from syno_lab.tuning.values import TraceData

if TYPE_CHECKING:
    import numpy as np
    import tvm
    from tvm.rpc import RPCSession
    from tvm.runtime import Module
    from tvm.s_tir import Schedule

    from syno_lab.tuning.targets import ResolvedTarget

#: The key that stands for this machine without a tracker. The key has a blank, which a board's key cannot have.
HERE = "this machine"

#: The largest number of characters of a board's state.
_LONGEST_MOMENT = 1 << 16
#: Shape and dtype of one argument of a PrimFunc.
Argument = tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class Device:
    """The device of a measurement: a board, or the calling process; ``wait_s`` limits the wait, ``session_s`` the use.

    ``kind``: TVM's name of the device (``cpu``); ``tvm``: the version of TVM that the device must have; ``machine``:
    the architecture of the code for ``target``. A device with another version or architecture is refused before
    anything is sent. Without a board there is no tracker, server or socket.
    """

    board: Board | None
    kind: str = ""
    wait_s: float = 30.0
    session_s: float = 20.0
    tvm: str | None = None
    machine: str = ""
    target: str = ""

    @property
    def key(self) -> str:
        """The board's key, or `HERE`."""
        return HERE if self.board is None else self.board.key

    @property
    def is_near(self) -> bool:
        """Whether the device is this machine, with or without a tracker, so that load here disturbs measurements."""
        return self.board is None or self.board.host in ("127.0.0.1", "localhost", "::1")

    def of(self, target: ResolvedTarget) -> Device:
        """Return the device for code that is compiled for ``target``."""
        return replace(self, kind=target.device, machine=target.machine)


_MISFIT = "the trace does not fit this operator: it is of another program, or of none"


def apply_trace(module: tvm.ir.IRModule, trace: TraceData, misfit: str = _MISFIT) -> Schedule:
    """Apply ``trace`` to a schedule of ``module``. Raises TuningError, with ``misfit`` if the trace does not fit."""
    from tvm.s_tir import Schedule, Trace

    check_trace(trace)
    schedule = Schedule(module)
    try:
        Trace.apply_json_to_schedule(trace, schedule)
    except Exception as error:  # TVM raises many types of exceptions
        raise TuningError(misfit) from error
    return schedule


def compile_candidate(module: tvm.ir.IRModule, target: tvm.target.Target, path: str, linker: str | None = None) -> str:
    """Compile a scheduled module into ``path``, a shared library (``.so``) or objects to link elsewhere (``.tar``).

    ``linker`` is a C++ compiler for another machine's architecture.
    """
    import tvm
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    from syno_lab.codegen.tvm_device import export

    module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
    return export(tvm.compile(module, target=target), path, linker)


def read_database(folder: str) -> int:
    """Return the number of records in MetaSchedule's database; a damaged database may crash this process."""
    from tvm.s_tir import meta_schedule as ms

    return len(ms.database.JSONDatabase(work_dir=folder).get_all_tuning_records())


def draw(arguments: list[Argument], seed: int) -> list[np.ndarray]:
    """Draw random inputs around zero, none of them denormal or NaN (denormals take a processor's slow path).

    Integers are 0, because they may be indices, and only the index 0 is valid for every table.
    """
    import numpy as np

    check_room("random tensors to measure with", sum(8 * math.prod(shape) for shape, _ in arguments))
    generator = np.random.default_rng(seed)
    drawn = []
    for shape, dtype in arguments:
        magnitude = generator.uniform(0.1, 1.0, shape)
        drawn.append(np.where(generator.random(shape) < 0.5, -magnitude, magnitude).astype(dtype))
    return drawn


def reference(
    module: tvm.ir.IRModule, target: tvm.target.Target, inputs: list[np.ndarray], output: Argument
) -> np.ndarray:
    """Return the output of the unscheduled ``module`` for ``inputs`` on this machine, as an array."""
    import tvm

    device = tvm.cpu()
    buffers = [tvm.runtime.tensor(array, device) for array in inputs]
    result = tvm.runtime.empty(*output, device=device)
    tvm.compile(module, target=target)["main"](*buffers, result)
    return result.numpy()


class Measured(NamedTuple):
    """The seconds of a call in each repeat, the device's address, and the output if inputs were passed."""

    seconds: list[float]
    address: str
    output: np.ndarray | None


def measure(
    device: Device, artifact: str, arguments: list[Argument], effort: Effort, inputs: list[np.ndarray] | None = None
) -> Measured:
    """Measure the compiled candidate on ``device``, with ``inputs`` or with random numbers that the device draws."""
    import numpy as np
    import tvm

    session, address = open_session(device)
    with in_words(device.key):
        remote = session.device(device.kind, 0)
        library = upload(session, artifact)
        buffers = [tvm.runtime.tensor(array, remote) for array in inputs or ()]
        # Uniform in [1, 10): see RandomFillForMeasure in TVM's random engine.
        fill = None if inputs is not None else session.get_function("tvm.contrib.random.random_fill_for_measure")
        for shape, dtype in arguments[len(buffers) :]:
            if not dtype.startswith("float"):  # It may be an index; only 0 is valid for every table.
                buffers.append(tvm.runtime.tensor(np.zeros(shape, dtype), remote))
                continue
            buffers.append(tvm.runtime.empty(shape, dtype, remote))
            if fill is not None:
                fill(buffers[-1])
        evaluator = library.time_evaluator("main", remote, number=1, repeat=effort.repeat, min_repeat_ms=effort.min_ms)
        remote.sync()
        seconds = [float(result) for result in evaluator(*buffers).results]
        if not seconds or not all(math.isfinite(value) and value > 0 for value in seconds):
            raise TuningError(f"the device reports latencies of {seconds} seconds")
        return Measured(seconds, address, None if inputs is None else buffers[-1].numpy())


@contextlib.contextmanager
def in_words(key: str) -> Iterator[None]:
    """Raise a TuningError for TVM's errors in the block that mean a lack of memory or a dead session.

    TVM's messages contain ``std::bad_alloc`` for memory and ``code=kShutdown`` for the session.
    """
    try:
        yield
    except Exception as error:
        text = f"{type(error).__name__} {error}".lower()
        if "sessiontimeout" in text:
            raise
        if "memoryerror" in text or NO_MEMORY.search(text):
            raise TuningError(
                f"{quoted(key)} ran out of memory: expected room for the arguments and for what the candidate stores "
                "between its stages, found none; take smaller sizes or a device with more memory"
            ) from error
        if "code=kshutdown" in text:
            raise TuningError(
                f"the session on {quoted(key)} ended in the middle of a call: the candidate crashed it, or the "
                "device's system ended it for lack of memory"
            ) from error
        raise


def board_moment(device: Device) -> str:
    """Return the board's current state as JSON text. Raises an error if the board's server is TVM's own."""
    session, _ = open_session(device)
    state = str(session.get_function(MOMENT_FUNCTION)())
    if len(state) > _LONGEST_MOMENT:
        raise TuningError(
            f"{device.key}: expected at most {_LONGEST_MOMENT} characters of its state, found {len(state)}"
        )
    return state


def open_session(device: Device) -> tuple[RPCSession, str]:
    """Open a session on the device; return the session and the device's address. Raises TrackerError."""
    from tvm import rpc

    if device.board is None:
        rpc.server.logger.setLevel(logging.WARNING)  # without this, the server logs every candidate
        return rpc.LocalSession(), HERE
    host, port, matchkey = request_device(
        *device.board.address, device.key, device.wait_s, tvm=device.tvm, machine=device.machine, target=device.target
    )
    return rpc.connect(host, port, matchkey, session_timeout=device.session_s), f"{host}:{port}"


def upload(session: RPCSession, artifact: str) -> Module:
    """Load the library in the file ``artifact`` in the session, and return it."""
    name = artifact.replace("\\", "/").rpartition("/")[2]
    session.upload(artifact, name)
    return session.load_module(name)
