"""Memory traffic: the elements that an operator stores when it replaces layers, as a cost beside its FLOPs.

FLOPs are not time. An operator that copies windows, or multiplies element by element and sums afterwards, moves many
numbers for few FLOPs, and a training step with it takes many times longer than with a convolution. The traffic is
known before a training: the lowering plan (:mod:`syno_lab.ir.plan`) says which stages become convolutions and matrix
products, which store only their result, and which are written out. All elements of the tensors that its PyTorch code
makes are counted, padding and windows among them. PyTorch's own convolution stores only its output.

Of 17 operators of a search of ten minutes for ResNet-20 on two cores, 10 took more than twice the baseline's time. More
than 4 times the elements that the convolutions put out had 9 of these and 1 of the 7 others, which took 1.6 times the
baseline's time; by FLOPs, all were within half of the baseline's. Among trials below 4 traffic orders times better than
FLOPs do, but loosely, and a lower limit would soon cut the most accurate: ``benchmarks/traffic.py``.
"""

from __future__ import annotations

from syno_lab.codegen.torch_source import Writer
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding


class _Tally(Writer):
    """Writes the code of a module and counts the elements that it stores."""

    stored = 0

    def grew(self, elements: int) -> None:
        """See :meth:`syno_lab.codegen.torch_tensor.Lines.grew`."""
        super().grew(elements)
        self.stored += elements


def stored_elements(operator: Operator, binding: Binding) -> int:
    """Elements of all tensors that a forward pass of the operator's PyTorch module makes, for the binding's batch.

    Raises:
        SpecError: where a size is no positive integer under the binding.
    """
    tally = _Tally(operator, operator.complete_binding(binding))
    tally.stages()
    return tally.stored
