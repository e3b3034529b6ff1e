"""Networks of PyTorch as graphs: the calls of a network become nodes, channels last.

A graph's tensor is a tensor of the network with another order of axes (:class:`Placed`). Images (N, C, H, W) are (N, H,
W, C) in the graph. So permutations in the network need no node; a `transpose` is added where an operation needs another
order than its input has.

A call with a row in OPERATIONS (:mod:`.torch_rows`) becomes a node of the row. Another call becomes one opaque node for
each resulting tensor. Calls of a module become opaque too if several calls use its weights. An edit of one call would
change the other calls, or their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.node import map_aggregate

from syno_lab.alpha.graph import Graph, Node
from syno_lab.alpha.operations import OPAQUE, Operation, Rel, Shape, operation
from syno_lab.alpha.recording import BATCHES, Call, Example, Record, Value, Weight, record
from syno_lab.alpha.twins import kept_chance, unwrapped
from syno_lab.errors import SpecError

_LONGEST = 200  # Characters of an opaque node's description.
#: Operations whose modules name axes of the network; the graph has other axes, so that it needs new modules.
_OF_AXES = ("softmax", "reshape")


@dataclass(frozen=True)
class Placed:
    """A tensor of the network in the graph.

    Attributes:
        tensor: the number of the graph's tensor.
        axes: for each axis of the graph's tensor the axis of the network's tensor.
        number: the number of the network's tensor; None for a parameter.
    """

    tensor: int
    axes: tuple[int, ...]
    number: int | None = None


@dataclass(frozen=True, eq=False)
class Opaque:
    """The call of an opaque node, from which it can be repeated.

    Attributes:
        call: the call, with :class:`.Value` for its input tensors, which are the last inputs of the node.
        number: the number of the node's tensor among the results of the call.
        taken: the order of axes of these inputs, as in :class:`Placed`.
        axes: the order of axes of the node's tensor.
    """

    call: Call
    number: int
    taken: tuple[tuple[int, ...], ...]
    axes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Made:
    """The origin of a node of a traced graph, from which it can be made again with its weights.

    Attributes:
        operation: the node's operation, with all sizes as numbers.
        shapes: the shapes of the input tensors, for a batch of one.
        what: the path of a module or the name of a weight; for an opaque node the call.
    """

    operation: Operation
    shapes: tuple[Shape, ...]
    what: str | Opaque


@dataclass(frozen=True, eq=False)
class Origin:
    """The network that a graph was traced from. Edited graphs keep the origin.

    Attributes:
        net: the network in its present state; its weights are copied when a module is made.
        example: the inputs without values, for a batch of one.
        made: the origins of nodes, by :attr:`.Node.source`.
        inputs, outputs: the order of axes, as in :class:`Placed`.
        single: whether the network returns a tensor, not a tuple.
    """

    net: nn.Module
    example: tuple[Tensor, ...]
    made: dict[str, Made]
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    single: bool

    @property
    def classes(self) -> dict[str, str]:
        """The class names of the network's modules by path, for :func:`.find_blocks`."""
        return {path: type(module).__name__ for path, module in self.net.named_modules()}

    def __deepcopy__(self, memo: object) -> Origin:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # pickled graphs omit the network


def trace(net: nn.Module, example: Example) -> Graph:
    """Trace a network as a graph with shapes for one example: (1, spatial axes…, channels).

    The network is traced in evaluation mode. Random computations in training alone are not traced, but for dropout and
    stochastic depth. :attr:`.Node.source` is the path of a module, or the path of a module and a function that it
    calls, as ``layers.0.relu()``. The graph keeps the network, so that :meth:`.Graph.to_torch` can copy its weights.

    Modules of TorchScript, modules with hooks, calls under ``no_grad`` or autocast, and autograd functions become
    opaque nodes, which repeat the calls. At the end, outputs and gradients of the graph's module and the network are
    compared on a random batch, in both modes (:mod:`.compared` has the limits for large networks).

    Args:
        net: the network, which stays unchanged.
        example: the shape of an input without the batch, [C, H, W] for images; or one or several tensors whose first
            axis is the batch. Only shapes and dtypes count.

    Raises SpecError in one line for a network that refuses the example, and for a network that cannot be traced. The
    reasons are decisions by values of tensors, changes in place of tensors in use, and a graph with other results. The
    message names the operation and its position.
    """
    from syno_lab.alpha.compared import check_same

    with kept_chance():
        graph, seen = uncompared(net, example)
        check_same(graph, seen, example)
    return graph


def uncompared(net: nn.Module, example: Example) -> tuple[Graph, Record]:
    """Run :func:`trace` without the comparison, for a network with a known graph; return the record too."""
    net = unwrapped(net)
    seen, examples = record(net, example)
    return Tracer(net, seen).graph(examples), seen


@dataclass
class Tracer:
    """A graph under construction."""

    net: nn.Module
    seen: Record
    nodes: list[Node] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    placed: dict[int, Placed] = field(default_factory=dict)
    made: dict[str, Made] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.modules = dict(self.net.named_modules())
        self.weights = {**dict(self.net.named_parameters()), **dict(self.net.named_buffers())}
        self._sources = Counter[str]()
        self._parameters: dict[str, Placed] = {}
        self._live = set(self.seen.outputs)
        self._calls: list[Call] = []
        for call in reversed(self.seen.calls):
            if self._live & set(call.results):
                self._calls.insert(0, call)
                self._live.update(value.number for value in call.leaves(Value))
        #: Whether copies may have other dtypes: autocast changes dtypes, which the meta device does not show.
        self.is_mixed = any(context is not torch.no_grad for call in self._calls for context, *_ in call.region)
        self._uses = Counter(id(weight) for call in self._calls for weight in self.weights_of(call))
        #: Weights of called modules, which are no nodes.
        owners = [call for call in self._calls if isinstance(call.target, str)]
        self._owned = {id(weight) for call in owners for weight in self.weights_of(call)}
        self._counted: set[int] = set()

    def graph(self, examples: tuple[Tensor, ...]) -> Graph:
        """Return the graph of all calls."""
        for number in self.seen.inputs:
            axes = last_of(len(self.seen.shape(number)))
            self.placed[number] = Placed(len(self.shapes), axes, number)
            self.shapes.append(tuple([self.seen.shape(number)[axis] for axis in axes]))
        inputs = tuple(self.shapes)
        for call in self._calls:
            self._put_call(call)
        outputs = [self.placed[number] for number in self.seen.outputs]
        input_axes = tuple([self.placed[number].axes for number in self.seen.inputs])
        ends = tuple([value.axes for value in outputs])
        origin = Origin(self.net, examples, self.made, input_axes, ends, self.seen.single)
        return Graph.live(inputs, self.nodes, [value.tensor for value in outputs], origin)

    def weights_of(self, call: Call) -> list[Tensor]:
        """Return the parameters that a call uses."""
        if isinstance(call.target, str):
            return list(self.modules[call.target].parameters())
        used = [self.weights[leaf.name] for leaf in call.leaves(Weight)]
        return [weight for weight in used if isinstance(weight, nn.Parameter)]

    # -- for the rows ------------------------------------------------------------------------------------------------

    def put(self, made: Operation, *tensors: int, source: str = "") -> int:
        """Add a node; return the number of its tensor. Raises SpecError where the operation does not apply."""
        self.shapes.append(made.shape(*(self.shapes[tensor] for tensor in tensors)))
        self.nodes.append(Node(made, tensors, source))
        return len(self.shapes) - 1

    def ordered(self, value: Placed, axes: tuple[int, ...], source: str = "") -> int:
        """Return the tensor with its axes in this order, without a new node if only axes of size 1 move."""
        order = tuple([value.axes.index(axis) for axis in axes])
        shape = self.shapes[value.tensor]
        wide = [axis for axis in order if shape[axis] != 1]
        if wide == sorted(wide) and tuple([shape[axis] for axis in order]) == shape:
            return value.tensor
        return self.put(operation("transpose", axes=order), value.tensor, source=source)

    def operand(self, leaf: Any) -> Placed | None:
        """Return an argument as a tensor of the graph: a tensor, or a parameter outside of called modules; or None."""
        if isinstance(leaf, Value):
            return self.placed[leaf.number]
        if isinstance(leaf, Weight):
            weight = self.weights[leaf.name]
            if isinstance(weight, nn.Parameter) and not self._is_inner(weight):
                if leaf.name not in self._parameters:
                    op = operation("parameter", shape=tuple(weight.shape))
                    self.made[leaf.name] = Made(op, (), leaf.name)
                    tensor = self.put(op, source=leaf.name)
                    self._parameters[leaf.name] = Placed(tensor, tuple(range(weight.ndim)))
                return self._parameters[leaf.name]
        return None

    def sizes(self, number: int, like: Placed, axes: Sequence[int]) -> tuple[int | Rel, ...] | None:
        """Return the sizes of axes, as :class:`.Rel` of an axis of ``like`` where they grow with the batch, or None."""
        shape, grows = self.seen.shape(number), self.seen.grows(number)
        if not any(grows):
            return tuple([shape[axis] for axis in axes])
        known = [axis for axis, grows_too in enumerate(self._grows(like)) if grows_too]
        if not known:
            return None
        base = self.shapes[like.tensor][known[0]]
        return tuple([Rel(shape[axis], base, known[0]) if grows[axis] else shape[axis] for axis in axes])

    def source_of(self, call: Call) -> str:
        """Return a unique name of a call, below the path of its module."""
        if isinstance(call.target, str):
            name = call.target
        else:
            name = f"{call.path}.{call.name}()" if call.path else f"{call.name}()"
        self._sources[name] += 1
        return name if self._sources[name] == 1 else f"{name}#{self._sources[name]}"

    # -- calls -------------------------------------------------------------------------------------------------------

    def _grows(self, value: Placed) -> tuple[bool, ...]:
        """Return for each axis of the graph's tensor whether its size grows with the batch."""
        if value.number is None:
            return (False,) * len(value.axes)
        grows = self.seen.grows(value.number)
        return tuple([grows[axis] for axis in value.axes])

    def has_batch(self, value: Placed) -> bool:
        """Return whether a size of the tensor grows with the batch."""
        return any(self._grows(value))

    def _is_inner(self, weight: Tensor) -> bool:
        """Return whether a weight is no node: it belongs to a called module, or it has no axes."""
        return id(weight) in self._owned or not weight.ndim

    def _put_call(self, call: Call) -> None:
        from syno_lab.alpha.torch_rows import row_of

        before = len(self.nodes)
        shared = any(self._uses[id(weight)] > 1 and id(weight) in self._owned for weight in self.weights_of(call))
        source = self.source_of(call)
        is_plain = not shared and not call.region and len(call.results) == 1
        if is_plain and self.seen.dtypes[call.results[0]].is_floating_point:
            parameters = dict(self._parameters)
            try:
                result = row_of(self, call, source)
            except SpecError:
                result = None
            shape = self.seen.shape(call.results[0])
            if result is not None and self.shapes[result.tensor] == tuple([shape[axis] for axis in result.axes]):
                self.placed[call.results[0]] = replace(result, number=call.results[0])
                op = self.nodes[-1].operation if len(self.nodes) > before else None
                if isinstance(call.target, str) and op is not None and op.name not in _OF_AXES:
                    shapes = tuple([self.shapes[tensor] for tensor in self.nodes[-1].inputs])
                    self.made[source] = Made(op.at(*shapes), shapes, call.target)
                    self._counted.update(map(id, self.weights_of(call)))
                return
            del self.nodes[before:], self.shapes[len(self.seen.inputs) + before :]
            self._parameters = parameters
        for index, number in enumerate(call.results):
            if number in self._live:
                self._put_opaque(call, number, source if len(call.results) == 1 else f"{source}[{index}]")

    def _put_opaque(self, call: Call, number: int, source: str) -> None:
        operands: list[Placed] = []

        def given(leaf: Any) -> Any:
            operand = self.operand(leaf)
            if operand is None:
                return leaf
            operands.append(operand)
            return Value(len(operands) - 1)

        arguments = map_aggregate(call.arguments, given)
        rank = len(self.seen.shape(number))
        axes = next((value.axes for value in operands if len(value.axes) == rank), tuple(range(rank)))
        of_batch = any(self.seen.grows(number)) and not any(map(self.has_batch, operands[:1]))
        # A batch size that the call's inputs lack comes from an input of the network.
        inputs = [self.placed[self.seen.inputs[0]], *operands] if of_batch else operands
        sizes = self.sizes(number, inputs[0], axes) if inputs else self.seen.shape(number)
        assert sizes is not None
        new = {id(weight): weight for weight in self.weights_of(call) if self._is_inner(weight)}
        params = sum(weight.numel() for key, weight in new.items() if key not in self._counted)
        self._counted.update(new)
        flops = call.flops if number == next(result for result in call.results if result in self._live) else 0
        name = type(self.modules[call.target]).__name__ if isinstance(call.target, str) else call.name
        op = operation(OPAQUE, what=name[:_LONGEST], shape=sizes, params=params, flops=flops)
        self.placed[number] = Placed(self.put(op, *(value.tensor for value in inputs), source=source), axes, number)
        shapes = tuple([self.shapes[value.tensor] for value in inputs])
        call = replace(call, arguments=arguments)
        again = Opaque(call, call.results.index(number), tuple([value.axes for value in operands]), axes)
        self.made[source] = Made(op.at(*shapes), shapes, again)


def last_of(rank: int) -> tuple[int, ...]:
    """Return the order of axes in the graph: (N, C, H, W) becomes (N, H, W, C); with fewer axes nothing changes."""
    return second(rank) if rank >= 4 else tuple(range(rank))


def second(rank: int) -> tuple[int, ...]:
    """Return the order of axes for modules with the channels in the second place."""
    return (0, *range(2, rank), 1) if rank > 2 else tuple(range(rank))


def groups(before: Sequence[Any], after: Sequence[Any]) -> list[tuple[list[int], list[int]]]:
    """Return the groups of axes that a reshape exchanges: the smallest consecutive groups with equal products.

    A size is a tuple with a number for each batch size; the products are compared for each batch size.
    """

    def product(sizes: Sequence[Any], axes: Sequence[int]) -> tuple[int, ...]:
        return tuple([prod(sizes[axis][batch] for axis in axes) for batch in range(len(BATCHES))])

    matched: list[tuple[list[int], list[int]]] = []
    left, right = 0, 0
    while left < len(before) and right < len(after):
        old, new = [left], [right]
        while (a := product(before, old)) != (b := product(after, new)):
            if a[0] <= b[0] and old[-1] + 1 < len(before):
                old.append(old[-1] + 1)
            elif new[-1] + 1 < len(after):
                new.append(new[-1] + 1)
            else:
                return [(list(range(len(before))), list(range(len(after))))]
        matched.append((old, new))
        left, right = old[-1] + 1, new[-1] + 1
    if matched:
        matched[-1][0].extend(range(left, len(before)))
        matched[-1][1].extend(range(right, len(after)))
    return matched or [(list(range(len(before))), list(range(len(after))))]


def successive(axes: Sequence[int]) -> bool:
    """Return whether the axes are consecutive and increasing."""
    return all(b == a + 1 for a, b in pairwise(axes))
