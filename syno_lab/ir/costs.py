"""FLOPs, memory and fingerprint of an operator: methods of :class:`syno_lab.Operator`, bound in `api`."""

from __future__ import annotations

from syno_lab.common.size import value
from syno_lab.ir import fingerprint as fingerprints
from syno_lab.ir.operator import Operator
from syno_lab.ir.plan import plan
from syno_lab.ir.spec import Binding
from syno_lab.protocol import FLOAT32_BYTES


def flops(operator: Operator, binding: Binding | None = None) -> int:
    """FLOPs of the best order of REDUCEs (Figure 4, section 8).

    Two for each iteration of a stage that multiplies, one for a stage that only adds.
    """
    return plan(operator, operator.complete_binding(binding)).flops


def memory(operator: Operator, binding: Binding | None = None) -> int:
    """Bytes in float32: input, output, weights and the largest live intermediates of the best order."""
    bound = operator.complete_binding(binding)
    ends = value((c.size for c in operator.inputs), bound) + value((c.size for c in operator.output), bound)
    return FLOAT32_BYTES * (ends + operator.params(bound) + plan(operator, bound).live_elements)


def fingerprint(operator: Operator, binding: Binding | None = None) -> str:
    """A hash of what it computes under a binding: 32 hexadecimal digits; see :mod:`syno_lab.ir.fingerprint`."""
    return fingerprints.fingerprint(operator, operator.complete_binding(binding))
