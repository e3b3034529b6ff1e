"""The kernel probe: what an operator can mix, read off its kernel for random weights, without training.

The kernel of the middle of the output (:mod:`syno_lab.codegen.kernel`) is an array ``K[outputs, inputs, offsets...]``:
output channels, input channels, and the positions that are read. Unfolded along each of the three, it is a matrix whose
*effective rank* says how many directions it really has: the exponential of the entropy of its squared singular values
over their sum, the shares of the kernel's energy. (Roy and Vetterli, The effective rank, EUSIPCO 2007, take the values
without squaring them, which tells a narrow middle less sharply.) An operator through a narrow middle has a low rank
over the channels, one that reads the same everywhere a rank of 1 over the offsets. As shares of the replaced layer's
own ranks at the same sizes, the least of the three is the operator's weakest link.

The ranks do not depend on the scale of the weights, so all are drawn from one normal distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from syno_lab.codegen.kernel import MOST_ELEMENTS, kernel
from syno_lab.codegen.nest import all_sizes, generic_binding
from syno_lab.errors import SynoError
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding
from syno_lab.pgraphs.roles import primaries, roles_of

Array = np.ndarray[Any, Any]
SEED = 1
#: Channels and positions along an axis at which operators are probed, the smallest that fit.
CHANNELS = (32, 36, 48, 64, 72, 96, 128)
SIDES = (8, 9, 10, 12, 16, 24, 32)
_TRIED = sorted(product(CHANNELS, SIDES), key=prod)
#: Along each axis of offsets, the window of the convolution that an operator is compared with by default.
WINDOW = 3


@dataclass(frozen=True, eq=False)
class Probe:
    """A kernel and its effective ranks.

    Attributes:
        kernel: ``[outputs, inputs, offsets...]``, of the output element in the middle.
        e_space: the effective rank over the offsets; 1 where there are none.
        e_out: the effective rank over the output channels.
        e_in: the effective rank over the input channels.
    """

    kernel: Array
    e_space: float
    e_out: float
    e_in: float

    @classmethod
    def of(cls, found: Array) -> Probe:
        """The probe of a kernel ``[outputs, inputs, offsets...]``; where it is zero all ranks are 0."""
        flat = found.reshape(*found.shape[:2], -1)
        read = flat[:, :, flat.any(axis=(0, 1))]  # an offset that is not read adds a singular value of 0
        space, out, into = (effective_rank(_unfolded(read, axis)) if read.size else 0.0 for axis in (2, 0, 1))
        return cls(found, space, out, into)

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


def probe(operator: Operator, binding: Binding | None = None) -> Probe:
    """The probe of an operator, with weights that are the same each time.

    Args:
        operator: what is probed.
        binding: the sizes; None takes those of :func:`probe_binding`.

    Raises:
        SpecError: where a size is no positive integer under the binding, or no sizes fit.
        SynoError: the kernel is too large to be computed at these sizes.
    """
    bound = probe_binding(operator) if binding is None else operator.complete_binding(binding)
    rng = np.random.default_rng(SEED)
    shapes = operator.weight_sizes(bound)
    if sum(map(prod, shapes)) > MOST_ELEMENTS:
        raise SynoError(f"probe: expected at most {MOST_ELEMENTS:,} weight elements, found {sum(map(prod, shapes)):,}")
    weights = [rng.standard_normal(shape) for shape in shapes]
    roles = roles_of(operator.spec)
    middle = {axis: size // 2 for axis, size in enumerate(operator.output_sizes(bound)) if axis not in roles.outputs}
    found = kernel(operator, weights, bound, middle)
    outputs = len(roles.outputs)
    # Of a fixed axis only the element itself is read, so that the sum along it is what is read.
    found = found.sum(axis=tuple(outputs + axis for axis, _ in operator.spec.fixed_io_pairs))
    left = [axis for axis in range(len(operator.inputs)) if axis in (*roles.inputs, *roles.offsets)]
    order = [outputs + left.index(axis) for axis in (*roles.inputs, *roles.offsets)]
    found = found.transpose(*range(outputs), *order)
    lengths = operator.input_sizes(bound)
    shape = (
        prod(found.shape[:outputs]),
        prod(lengths[axis] for axis in roles.inputs),
        *(lengths[axis] for axis in roles.offsets),
    )
    return Probe.of(found.reshape(shape))


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


def probe_binding(operator: Operator, base: Binding | None = None) -> dict[str, int]:
    """Sizes at which an operator is probed: 32 channels and 8 positions along each axis, or the next that fit.

    Coefficients are those of ``base`` (None: of the spec's first binding), fixed axes have the size 1; where no sizes
    fit, ``base`` itself is taken.

    Raises:
        SpecError: where these do not fit either.
    """
    spec = operator.spec
    symbols = spec.symbols
    if base is None:
        base = operator.complete_binding() if spec.bindings else generic_binding(operator)
    base = {**spec.defaults, **{name: size for name, size in base.items() if name in symbols.names}}
    if not base.keys() >= set(symbols.coefficient):
        return operator.complete_binding(base)  # which says what is missing
    roles = roles_of(spec)
    channels = {name for axis in roles.inputs for name in primaries(spec, spec.input_shape[axis])}
    channels |= {name for axis in roles.outputs for name in primaries(spec, spec.output_shape[axis])}
    fixed = {name for axis, _ in spec.fixed_io_pairs for name in primaries(spec, spec.input_shape[axis])}
    sizes = set(all_sizes(operator))
    for number, side in _TRIED:
        bound = {name: 1 if name in fixed else number if name in channels else side for name in symbols.primary}
        bound |= {name: base[name] for name in symbols.coefficient}
        if all(size.is_integral(bound) for size in sizes):
            return bound
    return operator.complete_binding(base)
