"""Jobs of code generation that need TVM, each in a child process, because TVM may crash its process.

This module imports no TVM.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from syno_lab.processes.worker import once
from syno_lab.scratch import scratch

if TYPE_CHECKING:
    from torch import nn
    from tvm.ir import IRModule

DEADLINE_S = 300.0


@dataclass(frozen=True)
class NetworkTask:
    """A TIR function of a network, to be tuned; ``calls`` is the number of its calls in the network.

    ``module`` is TVM's JSON of a module with this function as ``main``; :func:`.tvm_network.task_module` reads it.
    ``digest`` has TVM's structural hash of the module, equal in every network, and the names of the module's blocks. A
    trace finds blocks by their names, and TVM names some blocks after the position of a layer in the network.
    """

    name: str
    calls: int
    module: str
    digest: str


def network_tasks(
    net: nn.Module,
    example_shape: Sequence[int],
    *,
    target: str = "local",
    tokens: bool = False,
    deadline_s: float = DEADLINE_S,
) -> list[NetworkTask]:
    """Return the different TIR functions of a network: the functions that a tuning of the network tunes."""
    with scratch("syno-network-") as folder:
        program = export_to(net, example_shape, folder, tokens=tokens)
        return once("reading a network", _tasks, program, target, deadline_s=deadline_s, has_tvm=False)


def write_check(net: nn.Module, example_shape: Sequence[int], path: Path, *, tokens: bool = False) -> str:
    """Write a random input ``x`` and torch's output for it, ``expected``, to an ``.npz`` file; return its path.

    The input has the weights' dtype. With ``tokens`` the input consists of the tokens 0 and 1, which every vocabulary
    has. Raises SpecError when the network does not take that shape.
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


def export_to(net: nn.Module, example_shape: Sequence[int], folder: Path, *, tokens: bool = False) -> str:
    """Write the exported program of ``net`` to a file in ``folder``; return its path.

    Raises SpecError when the network does not take that shape.
    """
    import torch

    from syno_lab.codegen.tvm_export import export_network

    path = str(folder / "network.pt2")
    with warnings.catch_warnings():
        # torch warns that weights may be views of larger tensors; here no weight is a view.
        warnings.filterwarnings("ignore", message="No complete tensor found in the group")
        torch.export.save(export_network(net, example_shape, torch.int64 if tokens else None), path)
    return path


def read_network(program: str) -> IRModule:
    """Return the Relax module of an exported program's file. The call imports torch before TVM, to read the program."""
    import torch

    from syno_lab.codegen.tvm_export import register
    from syno_lab.codegen.tvm_network import from_exported

    register()
    return from_exported(torch.export.load(program))


def _tasks(program: str, name: str) -> list[NetworkTask]:
    import torch  # noqa: F401 - before TVM

    from syno_lab.codegen.tvm_device import find_target
    from syno_lab.codegen.tvm_network import optimized, tuning_tasks

    target = find_target(name)
    return tuning_tasks(optimized(read_network(program), target), target)
