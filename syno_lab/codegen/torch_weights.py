"""The scale of a generated module's initial weights, so that the output has the variance of the input."""

from __future__ import annotations

from collections.abc import Set
from math import prod, sqrt

import numpy as np

from syno_lab.codegen.receptive_field import bounds, leaves_of, reach
from syno_lab.codegen.walk import value_of
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.plan import plan
from syno_lab.ir.spec import Binding


def weight_stds(operator: Operator, binding: Binding) -> tuple[float, ...]:
    """Return the standard deviations of the weights that give the output the input's variance.

    Assume independent input elements of variance 1. The variance of an output element is the number of its non-zero
    terms times the product of the weights' variances. Each weight compensates for the sums of its stage, so that
    intermediates keep the variance too. The last weight compensates for the terms that padding sets to zero.
    """
    stages = plan(operator, binding).stages
    variances = [1.0] * len(operator.weights)
    owed = 1.0 / _share_inside(operator, binding)
    used = [*operator.inputs, *(c for weight in operator.weights for c in weight.coordinates)]
    read = {leaf for coordinate in used for leaf in coordinate.leaves()}
    # If no tensor depends on a reduction, the sum over the reduction only multiplies the result.
    copies = {reduction for reduction in operator.reductions if reduction not in read}
    last = None
    for stage in stages:
        fan_in = prod(float(c.size.at(binding)) ** (2 if c in copies else 1) for c in stage.summed)
        owed /= fan_in
        if stage.weights:
            for weight in stage.weights:
                variances[weight] *= owed ** (1 / len(stage.weights))
            owed, last = 1.0, stage.weights[-1]
    if last is not None:
        variances[last] *= owed
    return tuple(sqrt(v) for v in variances)


def _share_inside(operator: Operator, binding: Binding) -> float:
    """Return the share of terms that no UNFOLD sets to zero; a group of iterators with over 2^20 points has share 1."""
    bounded = bounds(operator)
    groups: dict[Set[Coordinate], list[Coordinate]] = {}  # the results of UNFOLDs by the iterators that they share
    for result in bounded:
        iterators = reach(leaves_of(result), bounded)
        groups[iterators] = [*groups.pop(iterators, ()), result]
    share = 1.0
    for iterators, results in groups.items():
        order = sorted(iterators, key=lambda c: (c.node.primitive, c.node.tag))
        shape = tuple(c.size.at(binding) for c in order)
        if prod(shape) <= 1 << 20:
            grids = dict(zip(order, np.ogrid[tuple(slice(n) for n in shape)], strict=True))
            inside = np.ones(shape, dtype=bool)
            for result in results:
                index = value_of(result, grids, lambda size: size.at(binding))
                inside &= (index >= 0) & (index < result.size.at(binding))
            share *= float(inside.mean())
    return share or 1.0
