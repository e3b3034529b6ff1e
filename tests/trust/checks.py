"""What "agrees with the loop nest" means: functions whose very source goes into the program that reproduces a failure.

Each takes ``(operator, binding, seed)`` and returns None, or in one line how the two ways differ. They use public names
of ``syno_lab`` and import torch and TVM on use, because the two never share a process here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: Of a float64 result, relative to its largest element where that is more than 1.
TOLERANCE = 1e-10
#: Gradients with at most this many elements are compared with the whole Jacobian, larger ones along random directions.
DENSE = 24
DIRECTIONS = 3


def arrays(operator: Any, binding: dict[str, int], seed: int) -> tuple[np.random.Generator, list[np.ndarray]]:
    """A generator, and with it a random input and random weights in float64."""
    rng = np.random.default_rng(seed)
    shapes = (operator.input_sizes(binding), *operator.weight_sizes(binding))
    return rng, [np.asarray(rng.standard_normal(shape)) for shape in shapes]


def difference(found: np.ndarray, want: np.ndarray) -> float:
    """The largest difference, relative to the largest element of ``want`` where that is more than 1."""
    assert found.shape == want.shape, f"expected shape {want.shape}, found {found.shape}"
    scale = max(1.0, float(np.abs(want).max(initial=0.0)))
    return float(np.abs(found - want).max(initial=0.0)) / scale


def torch_module(operator: Any, binding: dict[str, int], weights: list[np.ndarray]) -> Any:
    """The generated module in float64 with these weights."""
    import torch

    module = operator.to_torch(binding).double()
    with torch.no_grad():
        for number, weight in enumerate(weights, 1):
            getattr(module, f"weight_{number}").copy_(torch.from_numpy(weight))
    return module


def values(operator: Any, binding: dict[str, int], seed: int) -> str | None:
    """The torch module gives the loop nest's output, at a batch larger by one than it was made for."""
    import torch

    batch = [str(operator.spec.input_shape[axis]) for axis, _ in operator.spec.fixed_io_pairs]
    larger = binding | {name: binding[name] + 1 for name in batch}
    _, (x, *weights) = arrays(operator, larger, seed)
    want = operator.reference(x, *weights, binding=larger)
    given = torch.from_numpy(x.copy())
    with torch.no_grad():
        found = torch_module(operator, binding, weights)(given).numpy()
    if not np.array_equal(given.numpy(), x):
        return "the torch module changes its input"
    error = difference(found, want)
    return None if error <= TOLERANCE else f"torch differs from the loop nest by {error:.3g}"


def gradients(operator: Any, binding: dict[str, int], seed: int) -> str | None:
    """The torch module's gradients by the input and by each weight are those of the loop nest.

    The operator is linear in each argument v, so for every direction u the gradient G of <Y, g> has
    <G, u> = <Y(v = u), g>. Small arguments are checked along every axis, that is by the whole Jacobian.
    """
    import torch

    rng, (x, *weights) = arrays(operator, binding, seed)
    module = torch_module(operator, binding, weights)
    leaf = torch.from_numpy(x.copy()).requires_grad_()
    result = module(leaf)
    g = np.asarray(rng.standard_normal(tuple(result.shape)))
    (result * torch.from_numpy(g)).sum().backward()
    arguments = [x, *weights]
    leaves = [leaf, *(getattr(module, f"weight_{i}") for i in range(1, len(arguments)))]
    for place, (value, tensor) in enumerate(zip(arguments, leaves, strict=True)):
        gradient = np.zeros(value.shape) if tensor.grad is None else tensor.grad.numpy()
        if value.size <= DENSE:
            directions = np.eye(value.size).reshape(value.size, *value.shape)
        else:
            directions = rng.standard_normal((DIRECTIONS, *value.shape))
        found, want = np.zeros(len(directions)), np.zeros(len(directions))
        for i, direction in enumerate(directions):
            others = [*arguments[:place], np.asarray(direction), *arguments[place + 1 :]]
            want[i] = np.sum(operator.reference(*others, binding=binding) * g)
            found[i] = np.sum(gradient * direction)
        error = difference(found, want)
        if not error <= TOLERANCE:
            what = f"weight {place}" if place else "the input"
            return f"torch's gradient by {what} differs from the loop nest's by {error:.3g}"
    return None


def compiled(operator: Any, binding: dict[str, int], seed: int, dtype: str = "float64", order: str = "best") -> float:
    """How far compiled TVM code is from the loop nest; not-a-number where it leaves elements unwritten.

    Raises:
        AssertionError: when it changes its arguments.
    """
    import tvm

    from syno_lab.codegen.tvm_target import to_tvm

    _, numbers = arrays(operator, binding, seed)
    numbers = [a.astype(dtype) for a in numbers]
    want = operator.reference(*(a.astype("float64") for a in numbers), binding=binding)
    # Every element must be written, and nothing but the output: not-a-number would show the one, a copy the other.
    buffers = [tvm.runtime.tensor(a) for a in (*numbers, np.full(want.shape, np.nan, dtype))]
    tvm.compile(to_tvm(operator, binding, dtype, order=order), target="llvm")["main"](*buffers)
    *inputs, found = (b.numpy() for b in buffers)
    assert all(np.array_equal(a, b) for a, b in zip(numbers, inputs, strict=True)), "the code changes its arguments"
    return difference(found, want)


def tvm_values(operator: Any, binding: dict[str, int], seed: int) -> str | None:
    """Compiled TVM code gives the loop nest's output and writes nothing else."""
    error = compiled(operator, binding, seed)
    return None if error <= TOLERANCE else f"TVM differs from the loop nest by {error:.3g}"
