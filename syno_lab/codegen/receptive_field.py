"""The exact set of input elements that an output element reads, from the coordinate expressions.

An input element *contributes to* an output element if its coefficient there is not identically zero as a function of
the weights (αNAS, Definition 3.1). In a pGraph, an element contributes if at least one term of the loop nest reads it.
Terms never cancel, because a term is a plain product of weight elements. :func:`receptive_field` returns the paper's
preimage (Definition 3.2) of one output element, a slice, or the whole output.

The input's axes are divided into :func:`parts` that share no iterator. The elements that are read are the product of
the parts' elements, so no loop runs over all axes at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from itertools import product
from math import prod
from typing import Any

import numpy as np

from syno_lab.codegen.walk import value_of
from syno_lab.common.reach import AxisField, axis_table, index_of
from syno_lab.effort import Stop, end_if
from syno_lab.errors import SpecError
from syno_lab.ir.coordinate import Coordinate, Node
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import Binding
from syno_lab.ir.state import Step

Array = np.ndarray[Any, Any]
_CLIPPING = frozenset(name for name, primitive in PRIMITIVES.items() if primitive.clips)
_CHUNK = 1 << 20  # The number of terms that are evaluated together.
MAX_POINTS = 1 << 30  # The largest number of terms of a part; a run takes some minutes.
MAX_ELEMENTS = 1 << 27  # The largest number of input elements; each has a count of eight bytes.


@dataclass(frozen=True)
class Part:
    """A part of an operator: input axes and bounds whose iterators occur in no axis or bound outside of the part.

    Attributes:
        leaves: the iterators: first of the output, then of the reductions.
        axes: the numbers of the input axes.
        bounded: the results of UNFOLDs that must be inside their domains.
    """

    leaves: tuple[Coordinate, ...]
    axes: tuple[int, ...]
    bounded: tuple[Coordinate, ...]

    @property
    def outputs(self) -> tuple[Coordinate, ...]:
        """The output's iterators in ``leaves``."""
        return tuple(leaf for leaf in self.leaves if leaf.is_output)


def parts(operator: Operator) -> tuple[Part, ...]:
    """Return the parts of an operator. Iterators on which neither an index nor a bound depends are in no part."""
    bounded = bounds(operator)
    parts_found: list[Part] = []
    for coordinate in (*operator.inputs, *bounded):
        leaf = next(coordinate.leaves())
        if not any(leaf in part.leaves for part in parts_found):
            parts_found.append(_close(operator, leaves_of(coordinate), (*operator.inputs, *bounded)))
    return tuple(parts_found)


def bounds(operator: Operator) -> tuple[Coordinate, ...]:
    """Return the results of an operator's UNFOLDs: a term is zero where such a result is outside its domain."""
    return tuple([result for step in operator.steps if step.primitive in _CLIPPING for result in _results(step)])


@lru_cache(maxsize=1 << 14)
def _results(step: Step) -> tuple[Coordinate, ...]:
    """Compute :meth:`.State.results` for a view, cached, because operators with small differences share steps."""
    sizes = PRIMITIVES[step.primitive].result_sizes(tuple(c.size for c in step.operands), step.parameter)
    node = Node(step.primitive, step.operands, step.parameter)
    return tuple(Coordinate(node, i, size) for i, size in enumerate(sizes))


def part_of(operator: Operator, coordinate: Coordinate) -> Part:
    """Return the part of an input coordinate or bound: the bounds that restrict it, and all iterators of these bounds.

    Other input axes that share the iterators do not restrict the coordinate, so the part does not contain them.
    """
    closed = _close(operator, leaves_of(coordinate), bounds(operator))
    axes = tuple(axis for axis in closed.axes if operator.inputs[axis] == coordinate)
    return Part(closed.leaves, axes, closed.bounded)


def _close(operator: Operator, leaves: Set[Coordinate], among: tuple[Coordinate, ...]) -> Part:
    leaves = reach(leaves, among)
    rank = {leaf: i for i, leaf in enumerate((*operator.output, *operator.reductions))}
    axes = tuple(a for a, c in enumerate(operator.inputs) if leaves_of(c) <= leaves)
    bounded = tuple(c for c in bounds(operator) if leaves_of(c) <= leaves)
    return Part(tuple(sorted(leaves, key=rank.__getitem__)), axes, bounded)


def reach(leaves: Set[Coordinate], among: Iterable[Coordinate]) -> Set[Coordinate]:
    """Return ``leaves`` with all iterators of every coordinate in ``among`` that shares an iterator with the result."""
    size = 0
    while size != len(leaves):
        size = len(leaves)
        for coordinate in among:
            own = leaves_of(coordinate)
            if not own.isdisjoint(leaves):
                leaves = leaves | own
    return leaves


@lru_cache(maxsize=1 << 14)
def leaves_of(coordinate: Coordinate) -> frozenset[Coordinate]:
    """Return the iterators of a coordinate's expression, cached."""
    return frozenset(coordinate.leaves())


def points(
    part: Part, read: Sequence[Coordinate], binding: Binding, fixed: Mapping[Coordinate, int]
) -> Iterator[dict[Coordinate, Array]]:
    """Yield the terms of a part in chunks: for each iterator and each ``read`` coordinate an array of its values.

    ``fixed`` iterators have one value; other iterators run over their domains. Terms outside a bound are left out.
    Raises SpecError for more than :data:`MAX_POINTS` terms.
    """
    ranges = [[fixed[c]] if c in fixed else range(c.size.at(binding)) for c in part.leaves]
    total = prod(map(len, ranges))
    if total > MAX_POINTS:
        raise SpecError(f"expected at most {MAX_POINTS} terms to look at, found {total}: give smaller sizes")
    outer = 0
    while prod(map(len, ranges[outer:])) > _CHUNK:
        outer += 1
    heads, last = ranges[: max(0, outer - 1)], ranges[outer - 1] if outer else []
    inner: list[Any] = [np.asarray(r) for r in ranges[outer:]]
    step = max(1, _CHUNK // prod(map(len, inner)))  # the number of positions of the last outer iterator in a chunk
    cuts: list[list[Any]] = [[np.asarray(last[at : at + step])] for at in range(0, len(last), step)] or [[]]
    for head, cut in product(product(*heads), cuts):
        axes = [*cut, *inner]
        values: dict[Coordinate, Any] = dict(zip(part.leaves[: len(heads)], head, strict=True))
        grid = np.meshgrid(*axes, indexing="ij") if axes else []
        values.update(zip(part.leaves[len(heads) :], (g.ravel() for g in grid), strict=True))
        length = prod(map(len, axes))
        for coordinate in (*part.bounded, *read):
            value_of(coordinate, values, lambda size: size.at(binding))
        valid = np.ones(length, dtype=bool)
        for coordinate in part.bounded:
            valid &= (values[coordinate] >= 0) & (values[coordinate] < coordinate.size.at(binding))
        yield {c: np.broadcast_to(values[c], (length,))[valid] for c in (*part.leaves, *read)}


@dataclass(frozen=True, eq=False)
class ReceptiveField:
    """The input elements that contribute to one or several output elements.

    Attributes:
        index: for each output axis its index; None means the whole axis.
        counts: the number of terms that read each element [shape of the input].
        axes: for each input axis a summary of the positions that are read.
    """

    index: tuple[int | None, ...]
    counts: Array
    axes: tuple[AxisField, ...]

    @property
    def mask(self) -> Array:
        """The elements that contribute, as booleans [shape of the input]."""
        mask: Array = self.counts > 0
        return mask

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the mask of read elements; NumPy calls this when a receptive field is used as an array."""
        return np.array(self.mask, dtype=dtype, copy=copy)

    def __str__(self) -> str:
        where = ", ".join(":" if i is None else str(i) for i in self.index)
        title = f"Y[{where}] reads {int(self.mask.sum()):,} of {self.counts.size:,} elements of X"
        title += f" in {int(self.counts.sum()):,} terms"
        return "\n".join([title, *axis_table(self.axes)])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def receptive_field(
    operator: Operator, index: Any = None, binding: Binding | None = None, *, should_stop: Stop | None = None
) -> ReceptiveField:
    """Implement :meth:`.Operator.receptive_field`, for an input of at most :data:`MAX_ELEMENTS`."""
    bound = operator.complete_binding(binding)
    shape = operator.output_sizes(bound)
    where = index_of(index, shape)
    fixed = {leaf: i for leaf, i in zip(operator.output, where, strict=True) if i is not None}
    lengths = operator.input_sizes(bound)
    if prod(lengths) > MAX_ELEMENTS:
        raise SpecError(
            f"expected an input of at most {MAX_ELEMENTS:,} elements to count what is read, found {prod(lengths):,}: "
            "give smaller sizes"
        )
    factors: list[Array] = []
    read_at: dict[int, Array] = {}  # the positions that are read, by input axis
    apart = {*operator.output, *operator.reductions}
    for part in parts(operator):
        apart.difference_update(part.leaves)
        local = tuple(lengths[a] for a in part.axes)
        inputs = [operator.inputs[a] for a in part.axes]
        counted = np.zeros(prod(local), dtype=np.int64)
        for values in points(part, inputs, bound, fixed):
            end_if(should_stop, "counting what is read")
            read = tuple(values[c] for c in inputs)
            number = len(values[part.leaves[0]])
            flat = np.ravel_multi_index(read, local) if read else np.zeros(number, dtype=np.int64)
            counted += np.bincount(flat, minlength=len(counted))
        for number, axis in enumerate(part.axes):
            other_axes = tuple(other for other in range(len(local)) if other != number)
            read_at[axis] = np.flatnonzero(counted.reshape(local).any(axis=other_axes))
        factors.append(counted.reshape([lengths[a] if a in part.axes else 1 for a in range(len(lengths))]))
    # An iterator that no index depends on repeats every term.
    times = prod(leaf.size.at(bound) for leaf in apart if leaf not in fixed)
    counts = _product(factors, times, lengths, should_stop)
    is_read = times > 0 and all(factor.any() for factor in factors)
    fields = []
    for axis, length in enumerate(lengths):
        positions = read_at.get(axis, np.arange(length)) if is_read else ()
        fields.append(_axis_field(operator, axis, length, tuple(map(int, positions)), where, bound))
    return ReceptiveField(where, counts, tuple(fields))


def _product(factors: Sequence[Array], times: int, lengths: tuple[int, ...], should_stop: Stop | None) -> Array:
    """Multiply arrays that broadcast to ``lengths``, slice by slice, so that ``should_stop`` can end the work."""
    counts = np.empty(lengths, dtype=np.int64)
    axis = max(range(len(lengths)), key=lengths.__getitem__, default=None)
    if axis is None:
        counts[...] = times * prod(int(factor) for factor in factors)
        return counts
    step = max(1, _CHUNK * lengths[axis] // max(1, counts.size))
    for start in range(0, lengths[axis], step):
        end_if(should_stop, "counting what is read")
        here = (slice(None),) * axis + (slice(start, start + step),)
        part: Any = times
        for factor in factors:
            part = part * (factor[here] if factor.shape[axis] > 1 else factor)
        counts[here] = part
    return counts


def _axis_field(
    operator: Operator,
    axis: int,
    number: int,
    positions: tuple[int, ...],
    where: tuple[int | None, ...],
    binding: Binding,
) -> AxisField:
    coordinate = operator.inputs[axis]
    followed = [c for c in set(coordinate.leaves()) if c.is_output]
    output_axis = None
    offsets = None
    if followed:
        leaf = min(followed, key=lambda c: (-c.size.at(binding), c.node.tag))
        output_axis = leaf.node.tag
        index = where[output_axis]
        if index is not None:
            stands = index * number // leaf.size.at(binding)
            offsets = tuple(p - stands for p in positions)
    return AxisField(axis, str(coordinate.size), number, positions, output_axis, offsets)
