"""The kernel probe of pGraphs (:mod:`syno_lab.common.probe`): their kernels, and the sizes for probing.

The spec determines which axes are channels, and which axes are positions along which an operator moves.

All weights come from one normal distribution, because the effective ranks do not depend on the weights' scale.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from syno_lab.codegen.kernel import MOST_ELEMENTS, kernel
from syno_lab.codegen.nest import all_sizes, generic_binding
from syno_lab.common.probe import SEED, Probe
from syno_lab.common.size import Size
from syno_lab.errors import SynoError
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding, Spec

#: The candidate numbers of channels, and of positions along an axis, for a probe. The smallest fitting number is used.
CHANNELS = (32, 36, 48, 64, 72, 96, 128)
SIDES = (8, 9, 10, 12, 16, 24, 32)
_TRIED = sorted(product(CHANNELS, SIDES), key=prod)


def probe(operator: Operator, binding: Binding | None = None) -> Probe:
    """Probe an operator; repeated calls use the same random weights.

    Args:
        operator: the operator.
        binding: the sizes; None means the sizes of :func:`probe_binding`.

    Raises:
        SpecError: a size is no positive integer under the binding, or no sizes fit.
        SynoError: the kernel is too large to compute at these sizes.
    """
    bound = probe_binding(operator) if binding is None else operator.complete_binding(binding)
    rng = np.random.default_rng(SEED)
    shapes = operator.weight_sizes(bound)
    if sum(map(prod, shapes)) > MOST_ELEMENTS:
        raise SynoError(f"probe: expected at most {MOST_ELEMENTS:,} weight elements, found {sum(map(prod, shapes)):,}")
    weights = [rng.standard_normal(shape) for shape in shapes]
    roles = roles_of(operator.spec)
    middle = {axis: size // 2 for axis, size in enumerate(operator.output_sizes(bound)) if axis not in roles.outputs}
    array = kernel(operator, weights, bound, middle)
    outputs = len(roles.outputs)
    # Along a fixed axis only the element itself is read, so the sum along the axis is that element.
    array = array.sum(axis=tuple(outputs + axis for axis, _ in operator.spec.fixed_io_pairs))
    remaining = [axis for axis in range(len(operator.inputs)) if axis in (*roles.inputs, *roles.offsets)]
    order = [outputs + remaining.index(axis) for axis in (*roles.inputs, *roles.offsets)]
    array = array.transpose(*range(outputs), *order)
    lengths = operator.input_sizes(bound)
    shape = (
        prod(array.shape[:outputs]),
        prod(lengths[axis] for axis in roles.inputs),
        *(lengths[axis] for axis in roles.offsets),
    )
    return Probe.of(array.reshape(shape))


def probe_binding(operator: Operator, base: Binding | None = None) -> dict[str, int]:
    """Return sizes for probing an operator: 32 channels and 8 positions along each axis, or the next fitting sizes.

    Coefficients have the values in ``base`` (None: the spec's first binding); fixed axes have size 1. If no sizes fit,
    the result is ``base`` itself. Raises SpecError where ``base`` does not fit either.
    """
    spec = operator.spec
    symbols = spec.symbols
    if base is None:
        base = operator.complete_binding() if spec.bindings else generic_binding(operator)
    base = {**spec.defaults, **{name: size for name, size in base.items() if name in symbols.names}}
    if not base.keys() >= set(symbols.coefficient):
        return operator.complete_binding(base)  # raises SpecError for the missing value
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


class Roles(NamedTuple):
    """The roles of the axes that are not fixed: output channels, input channels, and input axes of positions."""

    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    offsets: tuple[int, ...]


@lru_cache(maxsize=256)
def roles_of(spec: Spec) -> Roles:
    """Return the roles of the axes of a spec's shapes.

    An axis is a channel axis if it has a primary variable that the other side does not have (``C_in``, ``C_out``).
    If neither shape has such an axis and the batch is fixed, the first axis after the batch counts as channels.
    """
    ins, outs = spec.matched, [axis for axis in range(len(spec.output_shape)) if axis not in spec.fixed_outputs]
    of_ins = {name for axis in ins for name in primaries(spec, spec.input_shape[axis])}
    of_outs = {name for axis in outs for name in primaries(spec, spec.output_shape[axis])}
    inputs = tuple(axis for axis in ins if not primaries(spec, spec.input_shape[axis]) <= of_outs)
    outputs = tuple(axis for axis in outs if not primaries(spec, spec.output_shape[axis]) <= of_ins)
    if not inputs and not outputs and spec.fixed_io_pairs:
        inputs, outputs = ins[:1], tuple(outs[:1])
    return Roles(outputs, inputs, tuple(axis for axis in ins if axis not in inputs))


def primaries(spec: Spec, size: Size) -> set[str]:
    """Return the primary variables in a size."""
    return set(size.variables) & set(spec.symbols.primary)


@lru_cache(maxsize=256)
def mirrors_of(spec: Spec) -> tuple[tuple[int, int], ...]:
    """Pair each input axis of positions with the output axis of the same primary variables, if there is exactly one."""
    roles = roles_of(spec)
    outs = [axis for axis in range(len(spec.output_shape)) if axis not in roles.outputs]
    mirrored = []
    for axis in roles.offsets:
        names = primaries(spec, spec.input_shape[axis])
        same = [out for out in outs if primaries(spec, spec.output_shape[out]) == names]
        if len(same) == 1:
            mirrored.append((axis, same[0]))
    return tuple(mirrored)
