"""Jobs of code generation that need TVM, each in a process of its own: TVM may take its process down.

This side imports neither TVM nor, but for :func:`measure_network`, torch. The other side is
:mod:`syno_lab.codegen.tvm_child`.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno_lab.errors import SynoError
from syno_lab.inputs import quoted
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
    deadline_s: float = DEADLINE_S,
) -> NetworkMeasurement:
    """Compile ``net`` with TVM, check its output against torch's on a random input, and measure its latency here.

    Without ``records`` (a folder that a tuning wrote, see :func:`compile_network
    <syno_lab.codegen.tvm_network.compile_network>`) every function has TVM's unscheduled loops, which are slow.
    ``threads`` are those that TVM runs in, all processors by default.

    Raises:
        SpecError: where the network does not take that shape.
        SynoError: for a target that is not this machine's processor, for what TVM cannot take over, and where the
            process dies or is not done by the deadline.
    """
    import numpy as np
    import torch

    with scratch("syno-network-") as folder:
        request = _export(net, example_shape, folder)
        x = torch.randn(tuple(example_shape), generator=torch.Generator().manual_seed(0))
        quiet = copy.deepcopy(net, _kept(net)).eval().cpu()
        with torch.no_grad():
            x = x.to(next((p.dtype for p in quiet.parameters() if p.is_floating_point()), x.dtype))
            expected = quiet(x)
        np.savez(folder / "check.npz", x=x.numpy(), expected=expected.numpy())
        request |= {
            "check": str(folder / "check.npz"),
            "target": target,
            "records": None if records is None else os.fspath(Path(records).resolve()),
            "repeats": repeats,
        }
        answer = run_job("measure", request, deadline_s, threads)
    return NetworkMeasurement(**answer)


def network_tasks(
    net: nn.Module, example_shape: Sequence[int], *, target: str = "local", deadline_s: float = DEADLINE_S
) -> list[dict[str, Any]]:
    """The different functions of the network as ``{"name", "calls", "module"}``: what a tuning of it tunes.

    ``module`` is TVM's JSON text; ``syno_lab.codegen.tvm_network:task_module`` is the builder that reads it.
    """
    with scratch("syno-network-") as folder:
        request = _export(net, example_shape, folder) | {"target": target}
        found: list[dict[str, Any]] = run_job("tasks", request, deadline_s)["tasks"]
    return found


def _export(net: nn.Module, example_shape: Sequence[int], folder: Path) -> dict[str, Any]:
    import torch

    from syno_lab.codegen.tvm_export import export_network

    path = str(folder / "network.pt2")
    with warnings.catch_warnings():
        # torch looks for the whole of which each weight is a part, and says so where it finds none; ours are whole.
        warnings.filterwarnings("ignore", message="No complete tensor found in the group")
        torch.export.save(export_network(net, example_shape), path)
    return {"program": path}


def _kept(net: nn.Module) -> dict[int, Any]:
    from syno_lab.codegen.tvm_export import syno_modules

    return {id(one.operator): one.operator for _, one in syno_modules(net)}


def run_job(
    kind: str, request: Mapping[str, Any], deadline_s: float = DEADLINE_S, threads: int | None = None
) -> dict[str, Any]:
    """The answer of a child process to one request. Raises SynoError with the child's one line."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {**os.environ, "PYTHONPATH": path}
    if threads is not None:
        environment["TVM_NUM_THREADS"] = str(threads)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", CHILD, kind],
            input=json.dumps(dict(request)),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=deadline_s,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise SynoError(f"{kind}: the TVM process was not done after {deadline_s:g} s") from None
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"')]
    if done.returncode or not lines:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise SynoError(
            f"{kind}: the TVM process ended with status {done.returncode}"
            + (f", saying {quoted(said[-1][:300])}" if said else "")
        )
    answer: dict[str, Any] = json.loads(lines[-1])
    if "error_message" in answer:
        raise SynoError(answer["error_message"])
    return answer
