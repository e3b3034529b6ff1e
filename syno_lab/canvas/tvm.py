"""TVM modules of operators: one PrimFunc with a ``te.compute`` for each primitive that computes (Canvas, section 7).

A tensor has the batch as its first axis, then one axis for each filled slot of its shape. If the template runs in
several parts, the parts follow each other on the first of these axes: channel c of part a has index a·C + c. Groups and
windows are views without a stage of their own. A stage reads the tensor before the views, or a copy of that tensor with
a border of zeros. An FC after unfolds and a group is one direct convolution, which MetaSchedule tiles.

Importing this module imports TVM: see :mod:`syno_lab.codegen.tvm_target`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from operator import add, mul, sub
from typing import TYPE_CHECKING, TypeAlias

import tvm
from tvm import te

from syno_lab.canvas.primitives import BROADCASTS, SHIFTS, axes_of, parts_of, span_of
from syno_lab.canvas.reference import EPSILON
from syno_lab.canvas.torch_source import View, view_of

if TYPE_CHECKING:
    from tvm.ir import Expr, IRModule

    from syno_lab.canvas.kernel import Node
    from syno_lab.canvas.places import AtPlaces

#: The types of an index, and of the indices of the filled slots by name.
Index: TypeAlias = "Expr | int"
Indices = dict[str, "Expr | int"]
#: A function from an image, a part and the indices of slots to the value of an element.
Read = Callable[["Expr | int", "Expr | int", Indices], "Expr"]


def to_tvm(operator: AtPlaces, bound: Mapping[str, int], dtype: str = "float32") -> IRModule:
    """Return a module with one unscheduled function ``main(X, W1, ..., Y)`` for a complete binding, for MetaSchedule.

    X is [N, C_in, s·H, s·W], Y is [N, C_out, H, W], and the weights have the shapes of :meth:`.Fitted.weight_sizes`. A
    normalising kernel computes as a new module in evaluation: means of 0 and variances of 1. All tensors have the dtype
    ``"float32"`` or ``"float64"``; in ``"float16"`` LLVM lacks erf, which gelu needs.
    """
    writer = _Writer(operator, dict(bound), dtype)
    function = te.create_prim_func([writer.X, *writer.weights, writer.result()])
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


class _Writer:
    def __init__(self, operator: AtPlaces, bound: dict[str, int], dtype: str) -> None:
        self.kernel, self.dtype = operator.kernel, dtype
        self.place, self.bound = operator.template(bound)
        self.images, self.parts = bound["N"], self.place.parts
        self.out = operator.output_sizes(bound)
        #: Whether all parts read the same input; otherwise each part reads a block of the input's channels.
        self.is_shared = self.place.c_in < self.place.c_out
        #: Whether the results of the parts are averaged; otherwise they are concatenated along the channels.
        self.is_averaged = self.place.c_in > self.place.c_out
        self.X = te.placeholder(operator.input_sizes(bound), dtype, name="X")
        sizes = operator.weight_sizes(bound)
        self.weights = [te.placeholder(size, dtype, name=f"W{i}") for i, size in enumerate(sizes, start=1)]
        self.views = [view_of(self.kernel, number) for number in range(len(self.kernel.shapes))]
        self.padded: dict[View, te.Tensor] = {}
        self.made: dict[int, te.Tensor] = {0: self._pooled()}
        #: The names of stages that MetaSchedule inlines into the next stage: stages without sum, exp and computed
        #: index. Each name has the stages from which the inlined stage is computed.
        self.inlined: dict[str, frozenset[str]] = {}
        self.is_kept = False  # whether MetaSchedule keeps the present stage instead of inlining it

    def result(self) -> te.Tensor:
        """Return the output Y after all stages."""
        last = len(self.kernel.nodes)
        axes, wanted = self._axes(last), (self.place.channels, self.place.h, self.place.w)
        is_output = axes == wanted and not self.is_averaged and self.views[last].of == last > 0
        for tensor, node in enumerate(self.kernel.nodes, start=1):
            if self.views[tensor].of == tensor:
                self.made[tensor] = self._stage(tensor, node, "Y" if is_output and tensor == last else f"T{tensor}")
        return self.made[last] if is_output else self._output(last, wanted)

    def _output(self, last: int, wanted: tuple[int, ...]) -> te.Tensor:
        axes, filled, read = self._axes(last), self.kernel.shapes[last].filled, self._reader(last)

        def element(n: Index, a: Index, place: Sequence[Index]) -> Expr:
            return read(n, a, dict(zip(filled, _viewed(place, wanted, axes), strict=True)))

        if not self.is_averaged:
            return te.compute(self.out, lambda n, *place: element(n, *self._apart(place, wanted)), name="Y")
        a = te.reduce_axis((0, self.parts), "a")
        share = self._constant(1 / self.parts)
        return te.compute(self.out, lambda n, *place: te.sum(element(n, a, place) * share, axis=a), name="Y")

    # -- reading tensors -----------------------------------------------------------------------------------------------

    def _constant(self, number: float) -> Expr:
        return tvm.tirx.const(number, self.dtype)

    def _axes(self, tensor: int) -> tuple[int, ...]:
        return tuple([size.at(self.bound) for size in self.kernel.shapes[tensor].sizes])

    def _size(self, tensor: int, slot: str) -> int:
        return self.kernel.shapes[tensor].size(slot).at(self.bound)

    def _stored(self, axes: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a tensor with these axes, with the parts on the first axis."""
        return (self.images, self.parts * axes[0], *axes[1:]) if axes else (self.images, self.parts)

    def _apart(self, place: Sequence[Index], axes: tuple[int, ...]) -> tuple[Index, list[Index]]:
        """Return an element's part and its index on each axis, from its index in a stored tensor."""
        if not axes:
            return place[0], []
        part, first = _divided(place[0], self.parts, axes[0])
        return part, [first, *place[1:]]

    def _reader(self, tensor: int) -> Read:
        """Return a function that reads the elements of a tensor from the tensor before its groups and windows."""
        view = self.views[tensor]
        of = view.of
        shape, filled = self.kernel.shapes[of], self.kernel.shapes[of].filled
        stored = self._border(view) if view.axes else self.made[of]
        splits = self.kernel.shapes[tensor]["G"] is not None and shape["G"] is None
        channels = self._size(tensor, "C")
        first = int(stored.shape[1]) // self.parts  # size of a part along the first axis, border included

        analyzer = tvm.sym.Analyzer()

        def read(n: Index, a: Index, indices: Indices) -> Expr:
            position = {slot: indices.get(slot, 0) for slot in filled}
            if splits:
                position["C"] = indices["G"] * channels + indices.get("C", 0)
            for axis in view.axes:
                position[axis] = indices[axis] + indices[f"K{axis}"]
            place = [position[slot] for slot in filled] or [0]
            if self.parts > 1 and not (of == 0 and self.is_shared):
                place[0] = a * first + place[0]
            self.is_kept |= any(not isinstance(analyzer.simplify(index), tvm.tirx.Var) for index in place)
            return stored[(n, *place)]

        return read

    def _border(self, view: View) -> te.Tensor:
        """Return a copy of the tensor that a view reads, with a border of zeros for the view's windows."""
        if view in self.padded:
            return self.padded[view]
        tensor, filled = self.made[view.of], self.kernel.shapes[view.of].filled
        axes, borders = list(self._axes(view.of)), {}
        for axis in view.axes:
            place = filled.index(axis)
            borders[place] = self.bound[f"K{axis}"] // 2
            axes[place] += 2 * borders[place]
        # A tensor without channels may have the parts on an axis of the image: then the border surrounds each part.
        parts = int(tensor.shape[1]) // self._axes(view.of)[0]
        is_given = tensor.same_as(self.X)

        def element(n: Index, *places: Index) -> Expr:
            indices, inside, part = list(places), [], 0
            if 0 in borders:
                part, indices[0] = _divided(places[0], parts, axes[0])
            for place, border in borders.items():
                index, size = indices[place], axes[place] - 2 * border
                inside += [index >= border, index < size + border]
                indices[place] = index - border if is_given else te.max(te.min(index - border, size - 1), 0)
            if 0 in borders:
                indices[0] = part * (axes[0] - 2 * borders[0]) + indices[0]
            # No index is out of bounds, but the indices are bounded, and ``likely`` keeps TVM from simplifying the
            # bounds away. Without bounds, MetaSchedule would treat this copy as a write-back of a sum, and move it into
            # loops that do not cover the border.
            conditions = inside if is_given else [tvm.tirx.likely(condition) for condition in inside]
            return te.if_then_else(te.all(*conditions), tensor[(n, *indices)], self._constant(0))

        wanted = (self.images, parts * axes[0], *axes[1:])
        name = f"{tensor.op.name}_padded{''.join(view.axes) if len(view.axes) == 1 else ''}"
        self.padded[view] = te.compute(wanted, element, name=name)
        return self.padded[view]

    def _pooled(self) -> te.Tensor:
        step = self.place.stride
        if step == 1:
            return self.X
        i, j = te.reduce_axis((0, step), "i"), te.reduce_axis((0, step), "j")
        share = self._constant(1 / step**2)
        shape = (self.images, self.place.c_in, self.place.h, self.place.w)

        def element(n: Index, c: Index, h: Index, w: Index) -> Expr:
            return te.sum(self.X[n, c, h * step + i, w * step + j] * share, axis=[i, j])

        return te.compute(shape, element, name="T0", attrs=_UNSCHEDULED)

    def _stages_before(self, tensor: te.Tensor) -> frozenset[str]:
        """Return the stages that a tensor reads after MetaSchedule has inlined stages."""
        before: frozenset[str] = frozenset()
        for source in tensor.op.input_tensors:
            if isinstance(source.op, te.ComputeOp):
                before |= self.inlined.get(source.op.name, {source.op.name})
        return before

    # -- stages --------------------------------------------------------------------------------------------------------

    def _stage(self, tensor: int, node: Node, name: str) -> te.Tensor:
        primitive, parameter = node.primitive
        if primitive == "fc":
            return self._fc(tensor, node.inputs[0], name)
        if primitive in BROADCASTS:
            return self._broadcast(tensor, node, name)
        if primitive == "softmax":
            return self._softmax(tensor, node.inputs[0], axes_of(parameter), name)
        read = self._reader(node.inputs[0])
        if primitive in ("fold_avg", "fold_max"):
            return self._fold(tensor, node.inputs[0], primitive, (parameter,), read, name)
        if primitive == "shift":
            return self._compute(tensor, lambda n, a, at: read(n, a, self._shifted(at, parameter)), name)
        return self._compute(tensor, lambda n, a, at: self._element(primitive, read(n, a, at)), name)

    def _compute(self, tensor: int, element: Read, name: str) -> te.Tensor:
        axes, filled = self._axes(tensor), self.kernel.shapes[tensor].filled

        def at(n: Index, *place: Index) -> Expr:
            a, indices = self._apart(place, axes)
            return element(n, a, dict(zip(filled, indices, strict=True)))

        self.is_kept = False
        stage = te.compute(self._stored(axes), at, name=name)
        if not self.is_kept:
            self.inlined[name] = self._stages_before(stage)
        return stage

    def _shifted(self, indices: Indices, parameter: str) -> Indices:
        shifted = dict(indices)
        for axis, offset in SHIFTS[parameter]:
            size = self.bound[axis]
            if size == 1:
                continue
            # Truncating remainder, because TVM 0.27 merges two flooring shifts wrongly (codegen.tvm_stage).
            shifted[axis] = tvm.tirx.truncmod(shifted[axis] + (size - offset) % size, tvm.tirx.const(size, "int32"))
        return shifted

    def _element(self, primitive: str, x: Index) -> Expr:
        unit, half = self._constant(1), self._constant(0.5)
        if primitive == "relu":
            return te.max(x, self._constant(0))
        if primitive == "gelu":
            return x * (unit + te.erf(x * self._constant(1 / math.sqrt(2)))) * half
        if primitive == "neg":
            return self._constant(0) - x
        if primitive == "sin":
            return te.sin(self._constant(math.pi / 2) * x)
        self.is_kept |= primitive == "exp"
        calls = {"sigmoid": te.sigmoid, "tanh": te.tanh, "abs": te.abs, "exp": te.exp}
        return calls[primitive](x)

    def _fc(self, tensor: int, source: int, name: str) -> te.Tensor:
        """Return the FC as a direct convolution of the tensor before the FC's windows."""
        weight = self.weights[self.kernel.weight_places[tensor]]
        groups, outputs, inputs = (int(size) for size in weight.shape)  # groups of all parts
        shape, read = self.kernel.shapes[source], self._reader(source)
        axes, filled = self._axes(tensor), self.kernel.shapes[tensor].filled
        slots = [slot for slot in ("C", "KH", "KW") if shape[slot] is not None]
        sizes = [self._size(source, slot) for slot in slots]
        summed = [te.reduce_axis((0, size), slot.lower()) for slot, size in zip(slots, sizes, strict=True)]

        def element(n: Index, *place: Index) -> Expr:
            a, indices = self._apart(place, axes)
            slots_at = {slot: index for slot, index in zip(filled, indices, strict=True) if slot != "C"}
            slots_at |= zip(slots, summed, strict=True)
            # The channel axis holds the groups of all parts. Without a channel axis each part is a group.
            channel = place[0] if "C" in filled else a
            group, output = _divided(channel, groups, outputs)
            part, own = _divided(group, self.parts, groups // self.parts)
            if shape["G"] is not None:
                slots_at["G"] = own
            product = read(n, part, slots_at) * weight[group, output, _flat(summed, sizes)]
            return te.sum(product, axis=summed) if summed else product

        stored = self._stored(axes)
        is_normalised = tensor in self.kernel.normalised
        is_last = name == "Y" and not is_normalised
        # MetaSchedule tiles a sum that reads some values several times and has at most as many terms as results.
        pixels = self._size(tensor, "H") * self._size(tensor, "W")
        is_tiled = (outputs > 1 or self.images * pixels > 1) and prod(stored) >= inputs
        attrs = _UNSCHEDULED if summed and not is_tiled and not is_last else None
        result = te.compute(stored, element, name=f"{name}_fc" if is_normalised else name, attrs=attrs)
        return self._normalised(tensor, result, name) if is_normalised else result

    def _normalised(self, tensor: int, of: te.Tensor, name: str) -> te.Tensor:
        """Return a batch normalisation with mean 0 and variance 1, with ReLU if another FC comes later."""
        first = self.kernel.weight_places[tensor]
        scale, offset = self.weights[first + 1 : first + 3]
        share, zero = self._constant(1 / math.sqrt(1 + EPSILON)), self._constant(0)
        has_channels, rows = self.kernel.shapes[tensor]["C"] is not None, self._axes(tensor)

        def element(n: Index, *place: Index) -> Expr:
            channel = place[0] if has_channels else self._apart(place, rows)[0]
            value = of[(n, *place)] * (scale[channel] * share) + offset[channel]
            return te.max(value, zero) if self.kernel.normalised[tensor] else value

        self.inlined[name] = frozenset({of.op.name})
        return te.compute(tuple(of.shape), element, name=name)

    def _fold(
        self, tensor: int, source: int, primitive: str, slots: tuple[str, ...], read: Read, name: str
    ) -> te.Tensor:
        axes = {slot: te.reduce_axis((0, self._size(source, slot)), slot.lower()) for slot in slots}
        share = self._constant(1 / prod(self._size(source, slot) for slot in slots))
        rest = [slot for slot in self.kernel.shapes[source].filled if slot not in slots]
        sizes = tuple([self._size(source, slot) for slot in rest])

        def element(n: Index, *place: Index) -> Expr:
            a, indices = self._apart(place, sizes)
            value = read(n, a, dict(zip(rest, indices, strict=True)) | axes)
            if primitive == "fold_max":
                return te.max(value, axis=list(axes.values()))
            return te.sum(value * share if primitive == "fold_avg" else value, axis=list(axes.values()))

        return te.compute(self._stored(sizes), element, name=name, attrs=None if name == "Y" else _UNSCHEDULED)

    def _softmax(self, tensor: int, source: int, slots: tuple[str, ...], name: str) -> te.Tensor:
        """Return a softmax as four stages: the maximum, the powers, their sum and the shares."""
        read = self._reader(source)
        rest = [slot for slot in self.kernel.shapes[source].filled if slot not in slots]
        sizes = tuple([self._size(source, slot) for slot in rest])
        shape, filled = self._axes(tensor), self.kernel.shapes[tensor].filled

        def folded(of: te.Tensor, n: Index, a: Index, indices: Indices) -> Expr:
            place = [indices[slot] for slot in rest]
            return of[(n, a * sizes[0] + place[0], *place[1:])] if rest else of[n, a]

        def of_powers(n: Index, a: Index, indices: Indices) -> Expr:
            place = [indices[slot] for slot in filled]
            return powers[(n, a * shape[0] + place[0], *place[1:])]

        largest = self._fold(tensor, source, "fold_max", slots, read, f"{name}_max")
        powers = self._compute(
            tensor,
            lambda n, a, at: self._element("exp", read(n, a, at) - folded(largest, n, a, at)),
            f"{name}_exp",
        )
        total = self._fold(tensor, source, "sum", slots, of_powers, f"{name}_sum")
        return self._compute(tensor, lambda n, a, at: of_powers(n, a, at) / folded(total, n, a, at), name)

    def _broadcast(self, tensor: int, node: Node, name: str) -> te.Tensor:
        """Return the blend of RHS and LHS at equal indices, in the parameter's slots modulo the size of LHS."""
        primitive, parameter = node.primitive
        left, right = (self.kernel.shapes[number] for number in node.inputs)
        read_left, read_right = (self._reader(number) for number in node.inputs)
        start, stop = span_of(parameter)
        first, end = (sum(size is not None for size in right.slots[:place]) for place in (start, stop))
        lhs, rhs = (self._axes(number) for number in node.inputs)
        rest = len(lhs) - (len(rhs) - (end - first))  # number of axes of LHS that repeat together
        assert prod(lhs[first : first + rest]) == parts_of(parameter, left, right).lhs.at(self.bound)

        def element(n: Index, a: Index, indices: Indices, bounded: str | None = None) -> Expr:
            place = list(indices.values())
            block = _viewed(place[first:end], rhs[first:end], lhs[first : first + rest])
            beside = dict(zip(left.filled, [*place[:first], *block, *place[end:]], strict=True))
            if bounded is not None:
                last = self._size(tensor, bounded) - 1
                indices = indices | {bounded: te.max(te.min(indices[bounded], last), 0)}
            return _BLENDS[primitive](read_left(n, a, beside), read_right(n, a, indices))

        stage = self._compute(tensor, element, name)
        if len(self._stages_before(stage)) <= 1 or not rhs:
            return stage
        # With several source stages, MetaSchedule would treat this stage as the write-back of each sum. MetaSchedule
        # would move the stage into the loops of one sum, where the other sums are missing (a ScheduleError). Clamping
        # one index, of the longest axis except the vectorized last axis, prevents this and changes no value.
        self.inlined.pop(name, None)
        longest = max(range(len(rhs)), key=lambda axis: (rhs[axis] > 1, axis < len(rhs) - 1, rhs[axis]))
        return self._compute(tensor, lambda n, a, at: element(n, a, at, right.filled[longest]), name)


#: MetaSchedule's rules may generate wrong code for an untiled sum that a later stage reads. The rules move the sum into
#: that stage's loops, and terms count several times (syno_lab.codegen.tvm_stage). "None" turns the rules off.
_UNSCHEDULED = {"schedule_rule": "None"}


_BLENDS = {"add": add, "sub": sub, "mul": mul, "min": te.min, "max": te.max}


def _divided(index: Index, number: int, size: int) -> tuple[Index, Index]:
    """Return which of ``number`` blocks of ``size`` elements contains an index, and the position in this block."""
    # TVM simplifies without the bounds of the index, so the zeros are explicit here.
    if number == 1:
        return 0, index
    return (index, 0) if size == 1 else (index // size, index % size)


def _flat(place: Sequence[Index], sizes: Iterable[int]) -> Expr:
    linear: Index = 0
    for index, size in zip(place, sizes, strict=True):
        linear = linear * size + index
    return linear


def _viewed(place: Sequence[Index], sizes: Sequence[int], wanted: Sequence[int]) -> list[Index]:
    """Return the indices of an element along axes of other sizes, in memory order, modulo the volume of the axes.

    Trailing equal axes keep their index (also leading equal axes, if nothing repeats), so that TVM recognises a view.
    """
    place, sizes, wanted = list(place), list(sizes), list(wanted)
    before: list[Index] = []
    after: list[Index] = []
    while sizes and wanted and sizes[-1] == wanted[-1]:
        after.insert(0, place.pop())
        sizes.pop()
        wanted.pop()
    if prod(sizes) == prod(wanted):
        while sizes and wanted and sizes[0] == wanted[0]:
            before.append(place.pop(0))
            sizes.pop(0)
            wanted.pop(0)
    linear = _flat(place, sizes)
    if prod(sizes) > prod(wanted):
        linear = linear % prod(wanted)
    middle: list[Index] = []
    for size in reversed(wanted[1:]):
        middle.insert(0, linear % size)
        linear = linear // size
    if wanted:
        middle.insert(0, linear)
    return [*before, *middle, *after]
