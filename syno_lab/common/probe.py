"""The kernel probe: what an operator can mix, read off its kernel for random weights, without training.

The kernel of the middle of the output is an array ``K[outputs, inputs, offsets...]``: output channels, input channels,
and the positions that are read. Unfolded along each of the three, it is a matrix whose *effective rank* says how many
directions it really has: the exponential of the entropy of its squared singular values over their sum, the shares of
the kernel's energy. (Roy and Vetterli, The effective rank, EUSIPCO 2007, take the values without squaring them, which
tells a narrow middle less sharply.) An operator through a narrow middle has a low rank over the channels, one that
reads the same everywhere a rank of 1 over the offsets. As shares of the replaced layer's own ranks at the same sizes,
the least of the three is the operator's weakest link.

The ranks do not depend on the scale of the weights. A non-linear operator has a kernel for each input, its derivatives
there; several of them count as one kernel that has the inputs as a further axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
SEED = 1
#: Along each axis of offsets, the window of the convolution that an operator is compared with by default.
WINDOW = 3
#: The numbers of :meth:`Probe.promise` of an operator that cannot be probed.
NO_PROMISE = dict.fromkeys(("score", "space", "outputs", "inputs", "product"), 0.0)


@dataclass(frozen=True, eq=False)
class Probe:
    """A kernel and its effective ranks.

    Attributes:
        kernel: ``[outputs, inputs, offsets...]``, of the output element in the middle; of several, their root mean
            square.
        e_space: the effective rank over the offsets; 1 where there are none.
        e_out: the effective rank over the output channels.
        e_in: the effective rank over the input channels.
    """

    kernel: Array
    e_space: float
    e_out: float
    e_in: float

    @classmethod
    def of(cls, *kernels: Array) -> Probe:
        """The probe of a kernel ``[outputs, inputs, offsets...]``, or of those at several inputs; 0 for zeros."""
        found = np.stack(kernels, axis=2)
        flat = found.reshape(*found.shape[:3], -1)
        read = flat[..., flat.any(axis=(0, 1, 2))]  # an offset that is not read adds a singular value of 0
        space, out, into = (effective_rank(_unfolded(read, axis)) if read.size else 0.0 for axis in (3, 0, 1))
        return cls(kernels[0] if len(kernels) == 1 else np.sqrt((found**2).mean(2)), space, out, into)

    def shares(self, reference: Probe) -> dict[str, float]:
        """The ranks as shares of the reference's: ``space`` (at most 1), ``outputs``, ``inputs``; their ``product``.

        A rank below 1 of the reference is taken for 1.
        """
        space = min(1.0, self.e_space / max(1.0, reference.e_space))
        outputs = self.e_out / max(1.0, reference.e_out)
        inputs = self.e_in / max(1.0, reference.e_in)
        return {"space": space, "outputs": outputs, "inputs": inputs, "product": space * outputs * inputs}

    def score(self, reference: Probe) -> float:
        """The least share, from 0 to about 1: the weakest link beside the reference."""
        shares = self.shares(reference)
        return min(shares["space"], shares["outputs"], shares["inputs"])

    def promise(self, reference: Probe) -> dict[str, float]:
        """The :meth:`score` and the :meth:`shares`: what a space says of an operator (:meth:`.OperatorSpace.probe`)."""
        return {"score": self.score(reference), **self.shares(reference)}


def _unfolded(array: Array, axis: int) -> Array:
    matrix: Array = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    return matrix


def beside_convolution(found: Probe) -> tuple[str, Probe]:
    """The name and the probe of a convolution of the same sizes, with a window of 3 along each axis of offsets.

    Without such an axis, or with a single one along which one position is read (rows that are taken one by one), it is
    a linear layer.
    """
    outputs, inputs, *lengths = found.kernel.shape
    if len(lengths) == 1 and np.count_nonzero(found.kernel.any(axis=(0, 1))) == 1:
        return "linear layer", convolution_probe(outputs, inputs, tuple(lengths), (1,))
    name = " x ".join([str(WINDOW)] * len(lengths))
    named = f"conv{len(lengths)}d, {name}" if lengths else "linear layer"
    return named, convolution_probe(outputs, inputs, tuple(lengths), (WINDOW,) * len(lengths))


def effective_rank(matrix: Array) -> float:
    """The exponential of the entropy of the normalised squares of the singular values; 0 for a matrix of zeros."""
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
    """The probe of a convolution (without offsets: of a linear layer), with weights that are the same each time.

    Args:
        outputs: output channels.
        inputs: input channels.
        lengths: positions along each axis of offsets; what does not fit of the window is cut off.
        window: of the convolution, along each of these axes.
        groups: of channels; each must divide into so many.
    """
    rng = np.random.default_rng(SEED)
    found = np.zeros((outputs, inputs, *lengths))
    inside = tuple(slice(max(0, n // 2 - k // 2), n // 2 - k // 2 + k) for n, k in zip(lengths, window, strict=True))
    for group in range(groups):
        rows, columns = (slice(group * n // groups, (group + 1) * n // groups) for n in (outputs, inputs))
        part = found[(rows, columns, *inside)]
        part[...] = rng.standard_normal(part.shape)
    return Probe.of(found)
