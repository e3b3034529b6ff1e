"""Traits: a few numbers of an operator, by which a search compares operators with different steps."""

from __future__ import annotations

from contextlib import suppress
from math import log2, prod

from syno_lab.codegen.receptive_field import parts, points
from syno_lab.codegen.torch_source import Writer
from syno_lab.errors import SynoError
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding
from syno_lab.pgraphs.probe import probe, probe_binding

#: The limit of terms for computing which positions of an axis are read: some milliseconds.
MOST_TERMS = 1 << 16


def traits(operator: Operator, binding: Binding) -> dict[str, int]:
    """Return traits by name, for :meth:`syno_lab.search.protocol.State.traits`, at the sizes of ``binding``.

    For each input axis two traits are the number of positions that the middle output element reads, and whether these
    are all positions. Further traits are the effective ranks of the kernel (:mod:`syno_lab.pgraphs.probe`), the
    multiply-adds for an output element, and the parameters. Numbers are logarithms to base 2 (doubled for positions and
    ranks), so that equal factors are equal differences. Axes that need more than :data:`MOST_TERMS` terms, and ranks of
    too large kernels, have no traits.
    """
    bound = operator.complete_binding(binding)
    words: dict[str, int] = {}
    middle = {leaf: leaf.size.at(bound) // 2 for leaf in operator.output}
    read: dict[int, set[int]] = {}
    terms = []  # the number of non-zero terms of each part of the operator
    for part in parts(operator):
        if prod(leaf.size.at(bound) for leaf in part.leaves if leaf not in middle) > MOST_TERMS:
            continue
        terms.append(0)
        read |= {axis: set() for axis in part.axes}
        fixed = {leaf: place for leaf, place in middle.items() if leaf in part.leaves}
        for values in points(part, [operator.inputs[axis] for axis in part.axes], bound, fixed):
            terms[-1] += len(values[part.leaves[0]])
            for axis in part.axes:
                read[axis].update(values[operator.inputs[axis]].tolist())
    for axis, positions in read.items():
        number = len(positions) if all(terms) else 0  # if one part has no terms, the product of all parts has none
        words[f"reads {axis}"] = round(2 * log2(max(1, number)))
        if number == operator.inputs[axis].size.at(bound):
            words[f"reads all of {axis}"] = 1
    with suppress(SynoError):
        ranks = probe(operator, probe_binding(operator, bound))
        for word, rank in (("space", ranks.e_space), ("outputs", ranks.e_out), ("inputs", ranks.e_in)):
            words[f"rank over {word}"] = round(2 * log2(max(1.0, rank)))
    outputs = prod(operator.output_sizes(bound))
    words["multiply-adds"] = round(log2(max(1.0, operator.flops(bound) / 2 / outputs)))
    words["parameters"] = round(log2(1 + operator.params(bound)))
    return words


class _Tally(Writer):
    stored = 0

    def grew(self, elements: int) -> None:
        """See :meth:`syno_lab.codegen.torch_tensor.Lines.grew`."""
        super().grew(elements)
        self.stored += elements


def stored_elements(operator: Operator, binding: Binding) -> int:
    """Count the elements of all tensors in a forward pass of the operator's PyTorch module, for the binding's batch.

    Elements of padding and windows count too; but PyTorch's convolution stores only its output. Raises SpecError where
    a size is no positive integer under the binding.
    """
    tally = _Tally(operator, operator.complete_binding(binding))
    tally.stages()
    return tally.stored
