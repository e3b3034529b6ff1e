"""Memory traffic: what an operator stores in the places of layers, beside what it computes.

FLOPs are not time. An operator that copies windows, or multiplies element by element and sums afterwards, moves many
numbers for few FLOPs, and a training step of it takes many times a convolution's. What it stores is known before it is
trained: the lowering plan (:mod:`syno_lab.ir.plan`) says which stages become convolutions and matrix products, which
put out nothing but their result, and which are written out; the elements of all tensors that its PyTorch code makes on
the way are counted, padding and windows among them. A convolution of the library stores its output alone.

Of 17 operators of a search of ten minutes for ResNet-20 on two cores, 10 took more than twice the baseline's time. More
than 4 times the elements that the convolutions put out had 9 of these and 1 of the 7 others, which took 1.6 times the
baseline's time; by FLOPs, all were within half of the baseline's. Among trials below 4 traffic orders times better than
FLOPs do, but loosely, and a lower limit would soon cut the most accurate: ``benchmarks/traffic.py``.
"""

from __future__ import annotations

from syno_lab.codegen.torch_source import Writer
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding
from syno_lab.models.sites import Site


class _Tally(Writer):
    """Writes the code of a module and counts what it stores."""

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


def output_elements(site: Site) -> int:
    """Elements that a layer puts out for one example, all calls together: what a library's convolution stores."""
    if site.kind == "linear":
        return site.calls * site.positions * site.out_channels
    rows, columns = (-(-size // step) for size, step in zip((site.height, site.width), site.stride, strict=True))
    return site.calls * site.out_channels * rows * columns
