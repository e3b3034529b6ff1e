"""The child process that runs an operator's TVM module; it does not import torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syno_lab.systems import builder_of
from syno_lab.tuning.child import load_module
from syno_lab.tuning.values import TuningTask


def output_of(text: str, binding: dict[str, int], arrays: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray:
    """Run the module of the operator's builder on the arrays; return its output, float32 of ``shape``."""
    import tvm

    module = load_module(TuningTask("operator", text, binding, builder=builder_of(text)))
    buffers = [tvm.runtime.tensor(array) for array in arrays]
    output = tvm.runtime.tensor(np.full(shape, np.nan, "float32"))
    tvm.compile(module, target="llvm")["main"](*buffers, output)
    return output.numpy()
