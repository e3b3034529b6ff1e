"""The kernel probe of pGraphs (:mod:`syno_lab.common.probe`): their kernels, and the sizes at which they are probed.

All weights are drawn from one normal distribution, as the ranks do not depend on their scale.
"""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from syno_lab.codegen.kernel import MOST_ELEMENTS, kernel
from syno_lab.codegen.nest import all_sizes, generic_binding
from syno_lab.common.probe import SEED, Probe
from syno_lab.errors import SynoError
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding
from syno_lab.pgraphs.roles import primaries, roles_of

#: Channels and positions along an axis at which operators are probed, the smallest that fit.
CHANNELS = (32, 36, 48, 64, 72, 96, 128)
SIDES = (8, 9, 10, 12, 16, 24, 32)
_TRIED = sorted(product(CHANNELS, SIDES), key=prod)


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
