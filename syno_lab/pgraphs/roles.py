"""The meaning of the axes of a spec: channels, and positions that an operator moves along."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from syno_lab.common.size import Size
from syno_lab.ir.spec import Spec


class Roles(NamedTuple):
    """The meaning of the axes that are not fixed: output channels, input channels, and input axes of positions."""

    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    offsets: tuple[int, ...]


@lru_cache(maxsize=256)
def roles_of(spec: Spec) -> Roles:
    """The roles of the axes of a spec's shapes.

    Channels are the axes of a primary variable that the other side does not have (``C_in``, ``C_out``). Where there is
    none on either side and a batch is fixed, the first axis after it is taken for channels.
    """
    fixed_in = {into for into, _ in spec.fixed_io_pairs}
    fixed_out = {out for _, out in spec.fixed_io_pairs}
    ins = [axis for axis in range(len(spec.input_shape)) if axis not in fixed_in]
    outs = [axis for axis in range(len(spec.output_shape)) if axis not in fixed_out]
    of_ins = {name for axis in ins for name in primaries(spec, spec.input_shape[axis])}
    of_outs = {name for axis in outs for name in primaries(spec, spec.output_shape[axis])}
    inputs = tuple(axis for axis in ins if not primaries(spec, spec.input_shape[axis]) <= of_outs)
    outputs = tuple(axis for axis in outs if not primaries(spec, spec.output_shape[axis]) <= of_ins)
    if not inputs and not outputs and spec.fixed_io_pairs:
        inputs, outputs = tuple(ins[:1]), tuple(outs[:1])
    return Roles(outputs, inputs, tuple(axis for axis in ins if axis not in inputs))


def primaries(spec: Spec, size: Size) -> set[str]:
    """The primary variables in a size."""
    powers = dict(zip(spec.symbols.names, size.exponents, strict=True))
    return {name for name in spec.symbols.primary if powers[name]}


@lru_cache(maxsize=256)
def mirrors_of(spec: Spec) -> tuple[tuple[int, int], ...]:
    """The input axes of positions, each with the output axis of the same primary variables; none for another number."""
    roles = roles_of(spec)
    outs = [axis for axis in range(len(spec.output_shape)) if axis not in roles.outputs]
    found = []
    for axis in roles.offsets:
        names = primaries(spec, spec.input_shape[axis])
        same = [out for out in outs if primaries(spec, spec.output_shape[out]) == names]
        if len(same) == 1:
            found.append((axis, same[0]))
    return tuple(found)
