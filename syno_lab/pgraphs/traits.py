"""Traits: an operator in a few numbers, by which a search compares operators that are written differently."""

from __future__ import annotations

from contextlib import suppress
from math import log2, prod

from syno_lab.codegen.receptive_field import parts, points
from syno_lab.codegen.torch_source import Writer
from syno_lab.errors import SynoError
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding
from syno_lab.pgraphs.probe import probe, probe_binding

#: The most terms of a part of an operator whose reads are computed: some milliseconds.
MOST_TERMS = 1 << 16


def traits(operator: Operator, binding: Binding) -> dict[str, int]:
    """Words with numbers, for :meth:`syno_lab.search.protocol.State.traits`; sizes are those of ``binding``.

    For each input axis: how many positions the output element in the middle reads, and whether it reads all of them;
    the effective ranks of the kernel (:mod:`syno_lab.pgraphs.probe`); the multiply-adds for an output element, and the
    parameters. Numbers are logarithms to the base 2 (doubled for positions and ranks), so that equal factors are equal
    differences. Axes that are read in more than :data:`MOST_TERMS` terms, and the ranks of a kernel that is too large,
    are left out.
    """
    bound = operator.complete_binding(binding)
    found: dict[str, int] = {}
    middle = {leaf: leaf.size.at(bound) // 2 for leaf in operator.output}
    read: dict[int, set[int]] = {}
    terms = []  # of each part that is looked at
    for part in parts(operator):
        if prod(leaf.size.at(bound) for leaf in part.leaves if leaf not in middle) > MOST_TERMS:
            continue
        terms.append(0)
        read |= {axis: set() for axis in part.axes}
        fixed = {leaf: place for leaf, place in middle.items() if leaf in part.leaves}
        for some in points(part, [operator.inputs[axis] for axis in part.axes], bound, fixed):
            terms[-1] += len(some[part.leaves[0]])
            for axis in part.axes:
                read[axis].update(some[operator.inputs[axis]].tolist())
    for axis, positions in read.items():
        number = len(positions) if all(terms) else 0  # a part without terms leaves none to the others
        found[f"reads {axis}"] = round(2 * log2(max(1, number)))
        if number == operator.inputs[axis].size.at(bound):
            found[f"reads all of {axis}"] = 1
    with suppress(SynoError):
        ranks = probe(operator, probe_binding(operator, bound))
        for word, rank in (("space", ranks.e_space), ("outputs", ranks.e_out), ("inputs", ranks.e_in)):
            found[f"rank over {word}"] = round(2 * log2(max(1.0, rank)))
    outputs = prod(operator.output_sizes(bound))
    found["multiply-adds"] = round(log2(max(1.0, operator.flops(bound) / 2 / outputs)))
    found["parameters"] = round(log2(1 + operator.params(bound)))
    return found


class _Tally(Writer):
    stored = 0

    def grew(self, elements: int) -> None:
        """See :meth:`syno_lab.codegen.torch_tensor.Lines.grew`."""
        super().grew(elements)
        self.stored += elements


def stored_elements(operator: Operator, binding: Binding) -> int:
    """Elements of all tensors that a forward pass of the operator's PyTorch module makes, for the binding's batch.

    Padding and windows are among them; PyTorch's own convolution makes only its output. Raises SpecError where a size
    is no positive integer under the binding.
    """
    tally = _Tally(operator, operator.complete_binding(binding))
    tally.stages()
    return tally.stored
