"""Tensors of generated PyTorch code: the coordinates of their axes, and the lines that rearrange them.

Views stay pending as long as possible: a window as an :class:`~syno_lab.codegen.stage_kinds.Axis` with several terms, a
flattening as a pair of axes. Several pending views become one call and at most one copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, takewhile
from math import prod
from typing import Literal, NamedTuple

import numpy as np

from syno_lab.codegen.stage_kinds import Axis, span
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding

INDENT = " " * 8
SHORT_RUN = 8  # The least number of adjacent elements that are copied fast.
SHORT_RUN_COST = 4  # The time of copying an element in shorter runs, relative to a fast copy (measured on a CPU).


class Form(NamedTuple):
    """The form of a module's source: choices between programs with the same result.

    Attributes:
        order: the lowering plan of the module.
        matrices: whether windows and few channels become matrices (:mod:`.torch_band`).
        late: whether a flattened axis has the position of its last part; else the position of its first part.
        pool: the rows and columns of an average pooling behind the operator, which the method ``pooled`` computes too;
            None: there is no such method.
    """

    order: Literal["best", "naive"] = "best"
    matrices: bool = True
    late: bool = False
    pool: tuple[int, int] | None = None


@dataclass
class Copies:
    """Pending copies of each element along an axis: ``x[((position + steps) % all) // copies]``.

    The copies come from flattening an axis together with a coordinate along which the tensor is constant. Written
    copies are ``copies`` times the tensor's size. If the copies are summed, the tensor and its roll by 1 are enough.

    Attributes:
        axis: the coordinate of the axis whose elements are copied.
        digits: the digits of the position; all digits but the first only number copies.
        copies: the number of copies of each element.
        steps: the number of positions of the roll, less than ``copies``.
    """

    axis: Coordinate
    digits: list[Coordinate]
    copies: int
    steps: int = 0


@dataclass
class Factor:
    """A tensor of the current stage.

    Attributes:
        name: the variable or attribute that holds the tensor.
        axes: the axes of the tensor, each with its index.
        merged: coordinates whose flattening is pending, each with the two parts that form it.
        weight: the number of the weight; None for data.
        copied: the pending copies along axes of the tensor.
    """

    name: str
    axes: list[Axis]
    merged: dict[Coordinate, tuple[Coordinate, Coordinate]] = field(default_factory=dict)
    weight: int | None = None
    copied: list[Copies] = field(default_factory=list)

    @property
    def coordinates(self) -> set[Coordinate]:
        """The coordinates of all written axes, without coordinates whose flattening is pending."""
        return {c for axis in self.axes for c in axis.coordinates}

    @property
    def elements(self) -> int:
        """The number of elements of the tensor, for the binding's batch size."""
        return prod(axis.length for axis in self.axes)

    def has(self, coordinate: Coordinate) -> bool:
        """Check whether the coordinate is an index of the tensor, pending coordinates included."""
        return (
            coordinate in self.merged
            or coordinate in self.coordinates
            or any(coordinate in copies.digits for copies in self.copied)
        )

    def varies(self, coordinate: Coordinate) -> bool:
        """Check whether the tensor varies along the coordinate, or along a part of a flattened coordinate."""
        if coordinate in self.merged:
            return any(self.varies(part) for part in self.merged[coordinate])
        return self.has(coordinate)

    def axis_of(self, coordinate: Coordinate) -> int:
        """Return the number of the axis whose index contains the coordinate."""
        return next(i for i, axis in enumerate(self.axes) if coordinate in axis.coordinates)


class Lines:
    """The lines of a module's ``forward``, with methods that rearrange tensors."""

    def __init__(self, operator: Operator, binding: Binding, form: Form) -> None:
        self.form = form
        self.operator = operator
        self.binding = binding
        self.lines: list[str] = []
        self.intermediates = 0
        self.matters = False  # Whether ``form.late`` changes the position of some flattened axis.
        self.copying = 0  # The cost of elements copied in another order or as slices.
        self.largest = 0  # The number of elements of the largest tensor in this stage.
        self.layouts: dict[int, tuple[int, ...]] = {}  # The order of axes in the memory of each weight.

    def size(self, coordinate: Coordinate) -> int:
        """Return the number of values of a coordinate."""
        return coordinate.size.at(self.binding)

    def plain(self, coordinate: Coordinate) -> Axis:
        """Return a plain axis of a coordinate."""
        return Axis.plain(coordinate, self.size(coordinate))

    def emit(self, line: str) -> None:
        """Write a line."""
        self.lines.append(INDENT + line)

    def assign(self, factor: Factor, expression: str) -> None:
        """Write an assignment to ``factor``. The variable's name is reused, except for ``x`` and weights."""
        if factor.name == "x" or factor.name.startswith("self."):
            self.intermediates += 1
            factor.name = f"z{self.intermediates}" if factor.weight is None else f"w{self.intermediates}"
        self.emit(f"{factor.name} = {expression}")

    def fresh(self, stem: str) -> str:
        """Return a new variable name."""
        self.intermediates += 1
        return f"{stem}{self.intermediates}"

    def grew(self, elements: int) -> None:
        """Record that the module stores a new tensor of this number of elements."""
        self.largest = max(self.largest, elements)

    # -- shapes ------------------------------------------------------------------------------------------------------

    def is_batch(self, axis: Axis) -> bool:
        """Check whether the axis's length is unknown until the module runs."""
        return any(c in self.operator.state.fixed for c in axis.coordinates)

    def lengths(self, groups: Iterable[Sequence[Axis]]) -> str:
        """Return the arguments of a ``reshape`` that makes each group one axis; -1 is the group with the batch."""
        texts: list[str] = []
        for group in groups:
            fixed = [a for a in group if self.is_batch(a)]
            if not fixed:
                texts.append(str(prod(a.length for a in group)))
            elif "-1" not in texts:
                texts.append("-1")
            else:  # the length of a second axis of any size comes from the input
                rest = prod(a.length for a in group if a not in fixed)
                places = [self.operator.inputs.index(a.coordinates[0]) for a in fixed]
                texts.append(" * ".join([str(rest)] * (rest > 1) + [f"x.shape[{p}]" for p in places]))
        return ", ".join(texts) or "()"

    def regroup(self, factor: Factor, groups: Sequence[Sequence[Axis]]) -> str:
        """Return an expression of ``factor`` with one axis for each group of its axes."""
        axes = [axis for group in groups for axis in group]
        order = tuple(factor.axes.index(axis) for axis in axes)
        assert sorted(order) == list(range(len(factor.axes)))
        if factor.weight is not None and factor.name.startswith("self."):
            self.layouts.setdefault(factor.weight, order)
        expression = factor.name
        if order != tuple(range(len(order))):
            expression += f".permute({', '.join(map(str, order))})"
        if any(len(group) != 1 for group in groups):
            expression += f".reshape({self.lengths(groups)})"
            self.copies_in_order(factor, order)
        return expression

    def copies_in_order(self, factor: Factor, order: Sequence[int]) -> None:
        """Record the cost of copying ``factor`` with its axes in ``order``; an unchanged order needs no copy."""
        if factor.weight is None and list(order) != sorted(order):
            unmoved = takewhile(lambda place: order[place] == place, range(len(order) - 1, -1, -1))
            run = prod(factor.axes[place].length for place in unmoved)
            self.copying += factor.elements * (SHORT_RUN_COST if run < SHORT_RUN else 1)

    def ungrouped(self, groups: Sequence[Sequence[Axis]]) -> str:
        """Return a call that splits the axis of each group into the group's axes; empty if nothing changes."""
        if all(len(group) == 1 for group in groups):
            return ""
        return f".reshape({self.lengths([[axis] for group in groups for axis in group])})"

    def become(self, factor: Factor, call: str, groups: Sequence[Sequence[Axis]]) -> None:
        """Assign to ``factor`` a call's result, whose axes are ``groups``, and divide each group into its members."""
        self.assign(factor, call + self.ungrouped(groups))
        factor.axes = [axis for group in groups for axis in group]
        self.grew(factor.elements)

    def open(self, factor: Factor, place: int, sizes: Sequence[int]) -> None:
        """Split the axis at ``place`` into axes of ``sizes``, if there are several sizes."""
        if len(sizes) > 1:
            self.assign(factor, f"{factor.name}.unflatten({place}, {tuple(sizes)})")

    # -- write pending views -----------------------------------------------------------------------------------------

    def pad(self, factor: Factor, pads: dict[int, tuple[int, int]]) -> None:
        """Write ``F.pad`` with zeros for each axis; a negative number removes elements."""
        pads = {place: pair for place, pair in pads.items() if any(pair)}
        if not pads:
            return
        if any(-min(pair) > factor.axes[place].length for place, pair in pads.items()):
            # F.pad removes elements before it adds zeros. Add zeros first, so that enough elements exist.
            self.pad(factor, {place: (max(0, left), max(0, right)) for place, (left, right) in pads.items()})
            self.pad(factor, {place: (min(0, left), min(0, right)) for place, (left, right) in pads.items()})
            return
        rank = len(factor.axes)
        first = min(pads)
        # F.pad counts from the last axis.
        amounts = [n for place in range(rank - 1, first - 1, -1) for n in pads.get(place, (0, 0))]
        self.assign(factor, f"F.pad({factor.name}, ({', '.join(map(str, amounts))}))")
        for place, (left, right) in pads.items():
            axis = factor.axes[place]
            factor.axes[place] = Axis(axis.terms, axis.offset + left, axis.length + left + right)
        self.grew(factor.elements)

    def take_apart(self, factor: Factor, place: int) -> None:
        """Give each coordinate of an axis a separate axis: by a reshape, a slice, or windows as a view."""
        axis = factor.axes[place]
        if axis.is_plain:
            return
        if axis.is_split:
            digits = sorted(axis.terms, key=lambda t: (t.size == 1, -t.coefficient))
            opened = [Axis.plain(t.coordinate, t.size) for t in digits]
            self.open(factor, place, [axis.length for axis in opened])
            factor.axes[place : place + 1] = opened
            return
        self.pad(factor, {place: (axis.left, axis.right)})
        terms = sorted(axis.terms, key=lambda t: -t.coefficient)
        expression, last = factor.name, place
        appended: list[Axis] = []
        for number, term in enumerate(terms[:-1]):
            rest = terms[number + 1 :]
            expression += f".unfold({last}, {span(rest)}, {term.coefficient})"
            if number:
                appended.append(Axis.plain(term.coordinate, term.size))
            last = len(factor.axes) + len(appended)
        inner = terms[-1]
        if inner.coefficient > 1 and inner.size > 1:
            expression += f"[{', '.join([':'] * last + [f'::{inner.coefficient}'])}]"
        if len(terms) > 1:
            appended.append(Axis.plain(inner.coordinate, inner.size))
        factor.axes[place] = Axis.plain(terms[0].coordinate, terms[0].size)
        factor.axes += appended
        if expression != factor.name:
            self.assign(factor, expression)
        self.grew(factor.elements)  # a later product copies the view's windows

    def expand(self, factor: Factor, coordinates: Sequence[Coordinate]) -> None:
        """Add axes at the end along which the tensor is constant."""
        if not coordinates:
            return
        sizes = [self.size(c) for c in coordinates]
        index = ", ".join(["..."] + ["None"] * len(sizes))
        kept = ", ".join(["-1"] * len(factor.axes) + [str(n) for n in sizes])
        self.assign(factor, f"{factor.name}[{index}].expand({kept})")
        factor.axes += [self.plain(c) for c in coordinates]

    def unroll(self, factor: Factor, coordinate: Coordinate) -> list[Coordinate]:
        """Return the coordinates whose axes are flattened into the axis of ``coordinate``; missing axes are added."""
        if coordinate not in factor.merged:
            self.write_copies_of(factor, coordinate)
            return [coordinate]
        high, low = factor.merged[coordinate]
        missing = [c for c in (high, low) if not factor.has(c)]
        self.expand(factor, missing)
        return [*self.unroll(factor, high), *self.unroll(factor, low)]

    def make_real(self, factor: Factor, coordinate: Coordinate) -> None:
        """Give a coordinate a plain axis, and write its pending views."""
        if coordinate in factor.merged:
            parts = self.unroll(factor, coordinate)
            for part in parts:
                self.take_apart(factor, factor.axis_of(part))
            places = [factor.axis_of(part) for part in parts]
            groups: list[list[Axis]] = [[a] for i, a in enumerate(factor.axes) if i not in places]
            first = max(places) if self.form.late else min(places)
            self.matters |= max(places) - min(places) >= len(places)
            at = sum(1 for i in range(first) if i not in places)
            groups.insert(at, [factor.axes[i] for i in places])
            self.assign(factor, self.regroup(factor, groups))
            factor.axes = [g[0] for g in groups]
            factor.axes[at] = self.plain(coordinate)
            self._forget(factor, coordinate)
        else:
            self.write_copies_of(factor, coordinate)
            self.take_apart(factor, factor.axis_of(coordinate))

    def _forget(self, factor: Factor, coordinate: Coordinate) -> None:
        """Remove a pending flattening of ``coordinate`` and the pending flattenings of its parts."""
        for part in factor.merged.pop(coordinate, ()):
            self._forget(factor, part)

    # -- pending copies ----------------------------------------------------------------------------------------------

    def copies_of(self, factor: Factor, coordinate: Coordinate) -> Copies | None:
        """Return the pending copies whose first digit is ``coordinate``; None if there are no such copies."""
        for pending in factor.copied:
            if pending.digits[0] == coordinate:
                return pending
        high, low = factor.merged.get(coordinate, (coordinate, coordinate))
        if coordinate not in factor.merged or factor.varies(low):
            return None
        self.make_real(factor, high)
        self._forget(factor, coordinate)
        pending = Copies(high, [coordinate], self.size(low))
        factor.copied.append(pending)
        return pending

    def write_copies_of(self, factor: Factor, coordinate: Coordinate) -> None:
        """If a coordinate is a digit of pending copies, write the copies, with an axis for the coordinate."""
        for pending in factor.copied:
            if coordinate in pending.digits:
                self.write_copies(factor, pending)
                return

    def write_copies(self, factor: Factor, found: Copies, summed: Collection[Coordinate] = ()) -> None:
        """Write pending copies: each digit gets a separate axis, or is summed if it is in ``summed``."""
        factor.copied.remove(found)
        place = factor.axis_of(found.axis)
        first, others = found.digits[0], found.digits[1:]
        sizes = [found.copies // prod(self.size(c) for c in others), *(self.size(c) for c in others)]
        gone = tuple(i for i, c in enumerate(found.digits) if c in summed)
        # For each value of the remaining digits: how many of the summed copies belong to the next element.
        following = (np.arange(found.copies) >= found.copies - found.steps).reshape(sizes).sum(gone, dtype=int).ravel()
        first_copies = first not in summed and sizes[0] > 1
        lengths_left = [sizes[0]] * first_copies + [self.size(c) for c in others if c not in summed]
        expression = self._copied(factor, place, following.tolist(), found.copies // len(following), bool(lengths_left))
        if len(lengths_left) > 1:
            expression += f".unflatten({place + 1}, {tuple(lengths_left)})"
        if first_copies:
            expression += f".flatten({place}, {place + 1})"
        length = factor.axes[place].length * (sizes[0] if first_copies else 1)
        factor.axes[place : place + 1] = [
            Axis.plain(first, length),
            *(self.plain(c) for c in others if c not in summed),
        ]
        if expression != factor.name:
            self.assign(factor, expression)
        if first_copies or (lengths_left and following.any()):  # other results are views, or not larger
            self.grew(factor.elements)

    def _copied(self, factor: Factor, place: int, following: Sequence[int], count: int, is_axis: bool) -> str:
        """Return sums of ``count`` copies, of which ``following`` are rolled; ``is_axis`` adds an axis of copies."""
        here, rolled = factor.name, ""
        if any(following):
            rolled = self.fresh("r")
            self.emit(f"{rolled} = {here}.roll(-1, {place})")
        pieces = []
        for number, run in groupby(following):
            terms = [
                name if times == 1 else f"{name} * {times}"
                for name, times in ((here, count - number), (rolled, number))
                if times
            ]
            piece = " + ".join(terms)
            if is_axis:
                length = len(list(run))
                lengths = [-1] * (place + 1) + [length] + [-1] * (len(factor.axes) - place - 1)
                piece = f"({piece})" if " " in piece else piece
                piece += f".unsqueeze({place + 1})"
                piece += f".expand({', '.join(map(str, lengths))})" if length > 1 else ""
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else f"torch.cat([{', '.join(pieces)}], {place + 1})"

    def arrange(self, factor: Factor, out: Sequence[Coordinate]) -> None:
        """Bring the axes into the order of ``out``, by one permutation and one reshape."""
        self.expand(factor, [c for c in out if not factor.has(c)])
        groups = [self.unroll(factor, c) for c in out]
        windows = {i: axis for i, axis in enumerate(factor.axes) if not axis.is_plain and not axis.is_split}
        self.pad(factor, {i: (axis.left, axis.right) for i, axis in windows.items()})  # pad before windows enlarge it
        for part in [c for group in groups for c in group]:
            self.take_apart(factor, factor.axis_of(part))
        axes = [[factor.axes[factor.axis_of(c)] for c in group] for group in groups]
        expression = self.regroup(factor, axes)
        if expression.endswith(")") and ".reshape(" not in expression and factor.weight is None:
            # The next layer, above all a normalisation, would read a permuted tensor several times.
            expression += ".contiguous()"
            self.copies_in_order(factor, [factor.axes.index(axis) for group in axes for axis in group])
        factor.axes, factor.merged = [self.plain(c) for c in out], {}
        if expression != factor.name:
            self.assign(factor, expression)
