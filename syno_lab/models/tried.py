"""Try a network before its use: one evaluation and one training step; the random generators are restored."""

from __future__ import annotations

import contextlib
import random
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from syno_lab.blame import is_theirs, said_by
from syno_lab.effort import is_out_of_memory
from syno_lab.errors import SpecError


def mean_square(output: Any) -> Tensor:
    """Return the sum of the mean squares of all floating-point tensors in a network's output."""
    parts = output if isinstance(output, Tensor | Sequence | Mapping) else vars(output)
    leaves = tree_leaves(list(parts.values()) if isinstance(parts, Mapping) else parts)
    values = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.numel()]
    return sum((value.float().square().mean() for value in values), torch.zeros(()))


def try_network(net: nn.Module, call: Callable[[nn.Module], Any], loss: Callable[[Any], Tensor] = mean_square) -> None:
    """Run ``net`` once in evaluation, and once in training with a backward pass. The run changes ``net``: pass a copy.

    ``call`` runs the network on an example and returns its output; ``loss`` turns the output into a scalar. The
    generators of torch, NumPy and Python are restored. Raises SpecError with one line: the module that failed, the
    error, and its line of code.
    """
    tried = "an evaluation"
    try:
        with generators_kept():
            with torch.no_grad():
                call(net.eval())
            tried = "a training step"
            with torch.enable_grad():
                scalar = loss(call(net.train()))
                if scalar.requires_grad:
                    scalar.backward()
    except BaseException as error:
        if not is_theirs(error) and not is_out_of_memory(error):
            raise
        raise SpecError(f"expected a network that takes {tried}, found: {blame(net, error)}") from error


def blame(net: nn.Module, error: BaseException) -> str:
    """Return the innermost module of ``net`` that raised ``error``, and the error in one line with file and line."""
    names = {id(module): name.partition(".placeholder")[0] for name, module in net.named_modules()}
    owners = (frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__))
    part = next((names[id(owner)] for owner in reversed([*owners]) if names.get(id(owner))), "")
    message = said_by(error)
    return f"{part}: {message}" if part and part not in message else message


@contextlib.contextmanager
def generators_kept() -> Iterator[None]:
    """Restore the random generators of torch on all devices, of NumPy and of Python at the end of the block."""
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002 - a network of the user's may draw from it
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
