"""Jobs of code generation that need TVM, each in a process of its own: TVM may take its process down.

This side imports neither TVM nor, but for :func:`measure_network`, torch. The other side is
:mod:`syno_lab.codegen.tvm_child`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno_lab.errors import SynoError
from syno_lab.inputs import quoted
from syno_lab.processes.process import describe_exit, module_command, own_environment
from syno_lab.scratch import scratch

if TYPE_CHECKING:
    from torch import nn

DEADLINE_S = 300.0
CHILD = "syno_lab.codegen.tvm_child"


@dataclass(frozen=True)
class NetworkMeasurement:
    """A whole network as TVM compiled it for this machine's processor.

    ``latency_ms`` is the median and ``best_ms`` the least of ``repeats`` measurements of one call, by TVM's time
    evaluator. ``error`` is the largest difference between its output and torch's, relative to the largest output.
    ``functions`` is the number of different functions that it calls, ``tuned`` of them with a schedule from a tuning.
    """

    latency_ms: float
    best_ms: float
    repeats: int
    error: float
    functions: int
    tuned: int
    target: str


def measure_network(
    net: nn.Module,
    example_shape: Sequence[int],
    *,
    target: str = "local",
    records: str | os.PathLike[str] | None = None,
    repeats: int = 10,
    threads: int | None = None,
    tokens: bool = False,
    deadline_s: float = DEADLINE_S,
) -> NetworkMeasurement:
    """Compile ``net`` with TVM, check its output against torch's on a random input, and measure its latency here.

    Without ``records`` (a folder that a tuning wrote, see :func:`compile_network
    <syno_lab.codegen.tvm_network.compile_network>`) every function has TVM's unscheduled loops, which are slow.
    ``threads`` are those that TVM runs in, all processors by default. ``tokens`` says that the input is whole numbers,
    the tokens of texts: ``example_shape`` is ``(texts, tokens of each)`` then.

    Raises:
        SpecError: where the network does not take that shape.
        SynoError: for a target that is not this machine's processor, for what TVM cannot take over, and where the
            process dies or is not done by the deadline.
    """
    with scratch("syno-network-") as folder:
        request = export_to(net, example_shape, folder, tokens=tokens)
        request |= {
            "check": write_check(net, example_shape, folder / "check.npz", tokens=tokens),
            "target": target,
            "records": None if records is None else os.fspath(Path(records).resolve()),
            "repeats": repeats,
        }
        answer = run_job("measure", request, deadline_s, threads)
    return NetworkMeasurement(**answer)


def network_tasks(
    net: nn.Module,
    example_shape: Sequence[int],
    *,
    target: str = "local",
    tokens: bool = False,
    deadline_s: float = DEADLINE_S,
) -> list[dict[str, Any]]:
    """The different functions of the network as ``{"name", "calls", "module", "digest"}``: what a tuning of it tunes.

    ``module`` is TVM's JSON text; ``syno_lab.codegen.tvm_network:task_module`` is the builder that reads it.
    """
    with scratch("syno-network-") as folder:
        request = export_to(net, example_shape, folder, tokens=tokens) | {"target": target}
        found: list[dict[str, Any]] = run_job("tasks", request, deadline_s)["tasks"]
    return found


def write_check(net: nn.Module, example_shape: Sequence[int], path: Path, *, tokens: bool = False) -> str:
    """Write a random input ``x`` and torch's output for it, ``expected``, as arrays in an ``.npz``; its path as text.

    The input is of the weights' dtype, or ``tokens``: 0 and 1, which every vocabulary has.

    Raises:
        SpecError: the network does not take that shape.
    """
    import numpy as np
    import torch

    from syno_lab.codegen.tvm_export import quiet_copy

    generator, shape = torch.Generator().manual_seed(0), tuple(example_shape)
    quiet = quiet_copy(net).cpu()
    with torch.no_grad():
        if tokens:
            x = torch.randint(0, 2, shape, generator=generator)
        else:
            x = torch.randn(shape, generator=generator)
            x = x.to(next((p.dtype for p in quiet.parameters() if p.is_floating_point()), x.dtype))
        np.savez(path, x=x.numpy(), expected=quiet(x).numpy())
    return str(path)


def export_to(net: nn.Module, example_shape: Sequence[int], folder: Path, *, tokens: bool = False) -> dict[str, Any]:
    """Write the exported program of ``net`` to a file; ``{"program": its path}``, as requests of child processes have.

    Raises:
        SpecError: the network does not take that shape.
    """
    import torch

    from syno_lab.codegen.tvm_export import export_network

    path = str(folder / "network.pt2")
    with warnings.catch_warnings():
        # torch looks for the whole of which each weight is a part, and says so where it finds none; ours are whole.
        warnings.filterwarnings("ignore", message="No complete tensor found in the group")
        torch.export.save(export_network(net, example_shape, torch.int64 if tokens else None), path)
    return {"program": path}


def run_job(
    kind: str,
    request: Mapping[str, Any],
    deadline_s: float = DEADLINE_S,
    threads: int | None = None,
    *,
    child: str = CHILD,
) -> dict[str, Any]:
    """The answer of a child process to one request. Raises SynoError with the child's one line.

    ``child`` is the module that answers: its ``main`` is :func:`syno_lab.codegen.tvm_child.answer_one` of its kinds.
    """
    try:
        done = subprocess.run(
            module_command(child, kind),
            input=json.dumps(dict(request)),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=deadline_s,
            check=False,
            env=own_environment(**({} if threads is None else {"TVM_NUM_THREADS": str(threads)})),
        )
    except subprocess.TimeoutExpired:
        raise SynoError(f"{kind}: the TVM process was not done after {deadline_s:g} s") from None
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"')]
    if done.returncode or not lines:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        cause = describe_exit(done.returncode)
        if done.returncode == -signal.SIGKILL:
            cause += ", as the system does where memory runs out"
        last = f", saying {quoted(said[-1][:300])}" if said else ""
        raise SynoError(f"{kind}: the TVM process gave no answer ({cause}){last}")
    answer: dict[str, Any] = json.loads(lines[-1])
    if "error_message" in answer:
        raise SynoError(answer["error_message"])
    return answer
