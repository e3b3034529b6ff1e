"""Compute an operator in several ways: by its reference, by torch, by its source in a new interpreter, by TVM."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from syno_lab.generated import fill
from syno_lab.processes.process import own_environment
from syno_lab.processes.worker import once
from syno_lab.protocol import Binding, Operator
from syno_lab.testing.tvm_child import output_of

Array = np.ndarray[Any, Any]

#: The time limit of a child process in seconds; it imports torch or TVM, perhaps on a busy machine.
DEADLINE_S = 300.0

# The option -I hides everything except installed packages, and the source needs only torch.
_RUN_SOURCE = """
import json, runpy, sys
import numpy as np, torch
module = runpy.run_path(sys.argv[1])["SynoOperator"]().double().eval()
with np.load(sys.argv[2]) as file:
    x, *weights = (torch.from_numpy(file[name]) for name in file.files)
with torch.no_grad():
    for number, weight in enumerate(weights, 1):
        getattr(module, f"weight_{number}").copy_(weight)
    np.save(sys.argv[3], module(x).numpy())
print(*(name for name in sys.modules if name.partition(".")[0] == "syno_lab"))
"""


def arrays_of(operator: Operator, binding: Binding, seed: int = 0) -> list[Array]:
    """Draw an input and weights in float64 from a normal distribution."""
    random = np.random.default_rng(seed)
    shapes = (operator.input_sizes(binding), *operator.weight_sizes(binding))
    return [random.standard_normal(shape) for shape in shapes]


def filled_module(operator: Operator, binding: Binding, weights: Sequence[Array]) -> torch.nn.Module:
    """Return the operator's module in float64 with these weights, in evaluation mode."""
    return fill(operator.to_torch(binding).double().eval(), weights)


def slope(operator: Operator, binding: Binding, arrays: Sequence[Array], moved: int) -> tuple[float, float]:
    """Return the derivative of a random sum of the output in a random direction of a tensor: by torch, by reference.

    The derivative by reference uses two central differences of :meth:`~syno_lab.protocol.Operator.reference` and
    Richardson's extrapolation. The derivative is exact, except for rounding, if the output is a polynomial of at most
    the fourth degree in the tensor. ``moved`` is the number of the tensor: 0 is the input, and weights count from 1.
    """
    random = np.random.default_rng(1)
    direction: Array = np.asarray(random.standard_normal(arrays[moved].shape))
    factors = random.standard_normal(operator.output_sizes(binding))
    module = filled_module(operator, binding, arrays[1:])
    x = torch.from_numpy(arrays[0]).requires_grad_()
    (module(x) * torch.from_numpy(factors)).sum().backward()
    gradient = x.grad if moved == 0 else getattr(module, f"weight_{moved}").grad
    by_torch = 0.0 if gradient is None else float((gradient.numpy() * direction).sum())
    wide, narrow = (_difference(operator, binding, arrays, moved, direction, factors, step) for step in (1e-3, 5e-4))
    return by_torch, (4 * narrow - wide) / 3


def _difference(
    operator: Operator,
    binding: Binding,
    arrays: Sequence[Array],
    moved: int,
    direction: Array,
    factors: Array,
    step: float,
) -> float:
    """Return a central difference; its error shrinks with the square of ``step``."""
    sums = []
    for sign in (1, -1):
        moved_arrays = [array + sign * step * direction if at == moved else array for at, array in enumerate(arrays)]
        sums.append(float((operator.reference(*moved_arrays, binding=binding) * factors).sum()))
    return (sums[0] - sums[1]) / (2 * step)


def by_source(operator: Operator, binding: Binding, arrays: Sequence[Array], folder: Path) -> tuple[Array, str]:
    """Run ``to_torch_source`` in a new interpreter; return the output and the Syno Lab modules that it imported."""
    (folder / "source.py").write_text(operator.to_torch_source(binding), encoding="utf-8")
    np.savez(folder / "arrays.npz", *arrays)
    files = [str(folder / name) for name in ("source.py", "arrays.npz", "output.npy")]
    done = subprocess.run(
        [sys.executable, "-I", "-c", _RUN_SOURCE, *files],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env=own_environment(),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return np.load(folder / "output.npy"), done.stdout.strip()


def by_tvm(operator: Operator, binding: Binding, arrays: Sequence[Array]) -> Array:
    """Run the builder's unscheduled TVM module in float32, in a child process, and return its output."""
    job = (operator.to_json(), dict(binding), [array.astype("float32") for array in arrays])
    return once("TVM", output_of, *job, tuple(operator.output_sizes(binding)), deadline_s=DEADLINE_S)
