"""FLOPs, memory and fingerprint of an operator: methods of :class:`syno_lab.Operator`."""

from __future__ import annotations

from syno_lab.common.size import value
from syno_lab.ir import fingerprint as fingerprints
from syno_lab.ir.operator import Operator
from syno_lab.ir.plan import plan
from syno_lab.ir.spec import Binding
from syno_lab.protocol import FLOAT32_BYTES


def flops(operator: Operator, binding: Binding | None = None) -> int:
    """The method :meth:`.Operator.flops`."""
    return plan(operator, operator.complete_binding(binding)).flops


def memory(operator: Operator, binding: Binding | None = None) -> int:
    """The method :meth:`.Operator.memory`."""
    bound = operator.complete_binding(binding)
    ends = value((c.size for c in operator.inputs), bound) + value((c.size for c in operator.output), bound)
    return FLOAT32_BYTES * (ends + operator.params(bound) + plan(operator, bound).live_elements)


def fingerprint(operator: Operator, binding: Binding | None = None) -> str:
    """The method :meth:`.Operator.fingerprint`."""
    return fingerprints.fingerprint(operator, operator.complete_binding(binding))
