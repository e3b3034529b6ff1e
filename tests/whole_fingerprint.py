"""All terms of an operator in one table, and the fingerprint read off it: slow, plain, and the judge of the fast one.

The cost is that of the whole iteration space, so use small bindings. :mod:`syno_lab.ir.fingerprint` finds what
:func:`whole_fingerprint` finds without listing the terms.
"""

from __future__ import annotations

from math import prod

import numpy as np

from syno_lab.common.terms import MAX_TERMS, Array, Terms, table_fingerprint, table_of
from syno_lab.errors import SynoError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import Binding


def terms(operator: Operator, binding: Binding) -> Terms:
    """Every non-zero term of ``operator`` under ``binding``, equal ones counted together, absorbed weights merged.

    Raises:
        SynoError: when the binding is too large to list the terms.
    """
    loops = (*operator.output, *operator.reductions)
    shape = tuple(c.size.at(binding) for c in loops)
    total = prod(shape)
    if total > MAX_TERMS:
        raise SynoError(f"fingerprint: expected at most {MAX_TERMS} terms, found {total}; use a smaller binding")
    grids: dict[Coordinate, Array] = dict(zip(loops, np.ogrid[tuple(slice(n) for n in shape)], strict=True))
    valid: Array = np.ones((1,) * len(shape), dtype=bool)
    for step in operator.steps:
        if step.primitive in ("REDUCE", "SHARE"):
            continue
        primitive = PRIMITIVES[step.primitive]
        results = operator.state.results(step)
        args = tuple(grids[c] for c in step.operands)
        sizes = tuple(c.size.at(binding) for c in step.operands)
        parameter = None if step.parameter is None else step.parameter.at(binding)
        for result, index in zip(results, primitive.index(args, sizes, parameter), strict=True):
            if primitive.clips:
                valid = valid & (index >= 0) & (index < result.size.at(binding))
            grids[result] = index

    keep = np.broadcast_to(valid, shape)

    def flat(coordinates: tuple[Coordinate, ...]) -> Array:
        index: Array = np.zeros((1,) * len(shape), dtype=np.int64)
        for coordinate in coordinates:
            index = index * coordinate.size.at(binding) + grids[coordinate]
        return np.broadcast_to(index, shape)[keep]

    shape_in = tuple(c.size.at(binding) for c in operator.inputs)
    return table_of(
        flat(operator.output), flat(operator.inputs), [flat(w.coordinates) for w in operator.weights], shape_in
    )


def whole_fingerprint(operator: Operator, binding: Binding) -> str:
    """A fingerprint by colour refinement over the table of all terms (Weisfeiler and Leman): 32 hexadecimal digits.

    Elements of weights, and positions along unordered axes, start alike and take, round after round, the multiset of
    the terms they occur in as their new colour. The digits are other ones than those of :mod:`syno_lab.ir.fingerprint`.

    Raises:
        SynoError: when the binding is too large; a binding with small, pairwise different sizes tells enough.
    """
    spec = operator.spec
    free = [axis for axis, size in enumerate(spec.input_shape) if str(size) in spec.unordered]
    return table_fingerprint(terms(operator, binding), free)
