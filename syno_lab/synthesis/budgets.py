"""Whether a whole operator is within the budgets that no single step decides: FLOPs, parameters and memory."""

from __future__ import annotations

from math import prod

from syno_lab.ir.operator import Operator


def fits(operator: Operator) -> bool:
    """Whether FLOPs, parameters and memory are within the budgets of its spec, under the first binding.

    Without a binding there is nothing to count, and everything fits.
    """
    limits, maps = operator.spec.limits, operator.spec.binding_maps
    if not maps:
        return True
    binding = maps[0]
    if limits.max_params is not None and operator.params(binding) > limits.max_params:
        return False
    if limits.max_flops is not None or limits.min_flops is not None:
        # Without any plan an operator takes at most so many, and with the best one no more: planning is what costs.
        most = prod(size.at(binding) for size in operator.spec.output_shape) * (1 + max(1, len(operator.weights)))
        for reduction in operator.reductions:
            most *= reduction.size.at(binding)
        if limits.min_flops is not None and most < limits.min_flops:
            return False
        if limits.min_flops is not None or (limits.max_flops is not None and most > limits.max_flops):
            flops = operator.flops(binding)
            if limits.max_flops is not None and flops > limits.max_flops:
                return False
            if limits.min_flops is not None and flops < limits.min_flops:
                return False
    return limits.max_memory is None or operator.memory(binding) <= limits.max_memory
