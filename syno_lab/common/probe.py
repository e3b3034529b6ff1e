"""The kernel probe: read from an operator's kernel, for random weights and without training, what it can mix.

The kernel for the middle of the output is an array ``K[outputs, inputs, offsets...]``: output channels, input channels,
and the positions that are read. The kernel is unfolded to a matrix along the outputs, the inputs, and the offsets. The
*effective rank* of a matrix is the exponential of the entropy of its squared singular values over their sum. Roy and
Vetterli (The effective rank, EUSIPCO 2007) do not square the values; a bottleneck is then less visible. A bottleneck
lowers the rank over the channels. An operator with the same weights at all offsets has rank 1 over the offsets. Each
rank is divided by the replaced layer's rank at the same sizes; the least of the three shares is the operator's score.

The ranks do not depend on the scale of the weights. A non-linear operator has a kernel for each input: its derivatives
at that input. Kernels at several inputs count as one kernel that has the inputs as a further axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
SEED = 1
#: The default window, along each axis of offsets, of the convolution that an operator is compared with.
WINDOW = 3
#: The result of :meth:`Probe.promise` for an operator that cannot be probed.
NO_PROMISE = dict.fromkeys(("score", "space", "outputs", "inputs", "product"), 0.0)


@dataclass(frozen=True, eq=False)
class Probe:
    """A kernel and its effective ranks.

    Attributes:
        kernel: ``[outputs, inputs, offsets...]`` for the output element in the middle; for several kernels, their root
            mean square.
        e_space: the effective rank over the offsets; 1 for a kernel without offsets.
        e_out: the effective rank over the output channels.
        e_in: the effective rank over the input channels.
    """

    kernel: Array
    e_space: float
    e_out: float
    e_in: float

    @classmethod
    def of(cls, *kernels: Array) -> Probe:
        """Probe a kernel ``[outputs, inputs, offsets...]``, or the kernels at several inputs; zeros have ranks of 0."""
        stacked = np.stack(kernels, axis=2)
        flat = stacked.reshape(*stacked.shape[:3], -1)
        read = flat[..., flat.any(axis=(0, 1, 2))]  # an offset that is not read adds a singular value of 0
        unfolded = (np.moveaxis(read, axis, 0).reshape(read.shape[axis], -1) for axis in (3, 0, 1))
        space, out, into = map(effective_rank, unfolded) if read.size else (0.0, 0.0, 0.0)
        return cls(kernels[0] if len(kernels) == 1 else np.sqrt((stacked**2).mean(2)), space, out, into)

    def shares(self, reference: Probe) -> dict[str, float]:
        """Return the ranks as shares of the reference's: ``space`` (at most 1), ``outputs``, ``inputs``, ``product``.

        A rank of the reference below 1 counts as 1.
        """
        space = min(1.0, self.e_space / max(1.0, reference.e_space))
        outputs = self.e_out / max(1.0, reference.e_out)
        inputs = self.e_in / max(1.0, reference.e_in)
        return {"space": space, "outputs": outputs, "inputs": inputs, "product": space * outputs * inputs}

    def score(self, reference: Probe) -> float:
        """Return the least of the three shares of the reference's ranks, from 0 to about 1."""
        shares = self.shares(reference)
        return min(shares["space"], shares["outputs"], shares["inputs"])

    def promise(self, reference: Probe) -> dict[str, float]:
        """Return the :meth:`score` and the :meth:`shares`, as :meth:`.OperatorSpace.probe` returns them."""
        return {"score": self.score(reference), **self.shares(reference)}


def beside_convolution(probe: Probe) -> tuple[str, Probe]:
    """Return the name and the probe of a convolution of the same sizes, with a window of 3 along each axis of offsets.

    The result is a linear layer for a kernel without offsets. A kernel with one axis of offsets, of which only one
    position is read, is also compared with a linear layer.
    """
    outputs, inputs, *lengths = probe.kernel.shape
    if len(lengths) == 1 and np.count_nonzero(probe.kernel.any(axis=(0, 1))) == 1:
        return "linear layer", convolution_probe(outputs, inputs, tuple(lengths), (1,))
    name = " x ".join([str(WINDOW)] * len(lengths))
    named = f"conv{len(lengths)}d, {name}" if lengths else "linear layer"
    return named, convolution_probe(outputs, inputs, tuple(lengths), (WINDOW,) * len(lengths))


def effective_rank(matrix: Array) -> float:
    """Return the exponential of the entropy of the normalised squared singular values; 0 for a matrix of zeros."""
    rows, columns = matrix.shape
    squares = np.linalg.eigvalsh(matrix @ matrix.T if rows <= columns else matrix.T @ matrix)
    squares = squares[squares > 0]
    if not squares.sum():
        return 0.0
    shares = squares / squares.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


@lru_cache(maxsize=64)
def convolution_probe(
    outputs: int, inputs: int, lengths: tuple[int, ...], window: tuple[int, ...], groups: int = 1
) -> Probe:
    """Probe a convolution (without offsets: a linear layer) with random weights from a fixed seed.

    Args:
        outputs: the number of output channels.
        inputs: the number of input channels.
        lengths: the number of positions along each axis of offsets; a longer window is cut to this length.
        window: the convolution's window along each axis of offsets.
        groups: the number of groups of channels; it must divide the input and the output channels.
    """
    rng = np.random.default_rng(SEED)
    kernel = np.zeros((outputs, inputs, *lengths))
    inside = tuple(slice(max(0, n // 2 - k // 2), n // 2 - k // 2 + k) for n, k in zip(lengths, window, strict=True))
    for group in range(groups):
        rows, columns = (slice(group * n // groups, (group + 1) * n // groups) for n in (outputs, inputs))
        part = kernel[(rows, columns, *inside)]
        part[...] = rng.standard_normal(part.shape)
    return Probe.of(kernel)
