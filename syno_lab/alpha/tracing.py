"""Networks of PyTorch as graphs: the calls of a network become nodes on tensors with channels last.

A tensor of the graph is a tensor of the network with the axes in another order (:class:`Placed`). Images (N, C, H, W)
are (N, H, W, C) in the graph. Permutations in the network need no node. A `transpose` is added where an operation needs
its input's axes in another order.

A call that a row of OPERATIONS computes (:mod:`.torch_rows`) becomes a node of this row. Any other call becomes one
opaque node for each resulting tensor. If several calls use the weights of a module, these calls become opaque too,
because an edit of one call would change the other calls.
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

_LONGEST = 200  # The limit of characters of an opaque node's description.
#: Operations whose modules have axes as attributes. Axes have other numbers in the graph, so new modules are made.
_OF_AXES = ("softmax", "reshape")


@dataclass(frozen=True)
class Placed:
    """A tensor of the graph that stands for a tensor of the network.

    Attributes:
        tensor: the number of the tensor in the graph.
        axes: for each axis in the graph, the axis of the network's tensor.
        number: the number of the tensor in the record of the network; None for a parameter.
    """

    tensor: int
    axes: tuple[int, ...]
    number: int | None = None


@dataclass(frozen=True, eq=False)
class Opaque:
    """The call of an opaque node, with all that is needed to repeat the call.

    Attributes:
        call: the call; a :class:`.Value` stands for each input tensor. The tensors are the last inputs of the node.
        number: the index of the node's tensor among the results of the call.
        taken: for each input tensor of the call, the order of axes, as in :class:`Placed`.
        axes: the order of axes of the node's tensor, as in :class:`Placed`.
    """

    call: Call
    number: int
    taken: tuple[tuple[int, ...], ...]
    axes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Made:
    """The origin of a node of a traced graph; a module gets the node's weights from the origin.

    Attributes:
        operation: the node's operation, with all sizes as numbers.
        shapes: the shapes of the input tensors, for a batch of one.
        what: the path of the called module, or the name of the weight; for an opaque node, the call.
    """

    operation: Operation
    shapes: tuple[Shape, ...]
    what: str | Opaque


@dataclass(frozen=True, eq=False)
class Origin:
    """The network that a graph was traced from; the edited graphs have the same origin.

    Attributes:
        net: the network itself; :meth:`.Graph.to_torch` copies the weights that the network has at that time.
        example: the inputs without values, for a batch of one.
        made: the origins of nodes, by :attr:`.Node.source`.
        inputs, outputs: the order of axes of each input and output, as in :class:`Placed`.
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

    The network is traced in evaluation mode. Random computations that only run in training are not traced, except
    dropout and stochastic depth. :attr:`.Node.source` is the path of a module, or the path and a called function, as in
    ``layers.0.relu()``. The graph keeps the network, so that :meth:`.Graph.to_torch` can copy its weights.

    Modules of TorchScript, modules with hooks, calls under ``no_grad`` or autocast, and autograd functions become
    opaque nodes, which repeat the calls. At the end, the graph's module and the network are compared on a random batch:
    outputs and gradients, in both modes (:mod:`.compared` has the limits for large networks).

    Args:
        net: the network, which stays unchanged.
        example: the shape of an input without the batch, [C, H, W] for images; or one or several tensors whose first
            axis is the batch. The trace uses only the shapes and dtypes of the tensors.

    Raises SpecError in one line for a network that fails on the example or cannot be traced. The causes of the error
    are branches on values of tensors, changes in place of tensors that are used later, and a graph with other results
    than the network. The message names the operation and its position.
    """
    from syno_lab.alpha.compared import check_same

    with kept_chance():
        graph, seen = uncompared(net, example)
        check_same(graph, seen, example)
    return graph


def uncompared(net: nn.Module, example: Example) -> tuple[Graph, Record]:
    """Run :func:`trace` without the final comparison, for a network with a known graph; return the record too."""
    net = unwrapped(net)
    seen, examples = record(net, example)
    return Tracer(net, seen).graph(examples), seen


@dataclass
class Tracer:
    """The builder of a graph from the record of a network."""

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
        #: Whether dtypes may differ from the record: autocast changes dtypes, which the meta device does not show.
        self.is_mixed = any(context is not torch.no_grad for call in self._calls for context, *_ in call.region)
        self._uses = Counter(id(weight) for call in self._calls for weight in self.weights_of(call))
        #: The weights of called modules; these weights are no nodes.
        owners = [call for call in self._calls if isinstance(call.target, str)]
        self._owned = {id(weight) for call in owners for weight in self.weights_of(call)}
        self._counted: set[int] = set()

    def graph(self, examples: tuple[Tensor, ...]) -> Graph:
        """Return the graph of all calls that the outputs depend on."""
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
        """Add a node; return the number of its tensor. Raises SpecError where the operation does not fit."""
        self.shapes.append(made.shape(*(self.shapes[tensor] for tensor in tensors)))
        self.nodes.append(Node(made, tensors, source))
        return len(self.shapes) - 1

    def ordered(self, value: Placed, axes: tuple[int, ...], source: str = "") -> int:
        """Return the number of the tensor with axes in this order; no node is added if only axes of size 1 move."""
        order = tuple([value.axes.index(axis) for axis in axes])
        shape = self.shapes[value.tensor]
        wide = [axis for axis in order if shape[axis] != 1]
        if wide == sorted(wide) and tuple([shape[axis] for axis in order]) == shape:
            return value.tensor
        return self.put(operation("transpose", axes=order), value.tensor, source=source)

    def operand(self, leaf: Any) -> Placed | None:
        """Return the graph's tensor for an argument: a value, or a parameter outside of called modules; else None."""
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
        """Return a tensor's sizes, relative to ``like`` if they grow with the batch. None if ``like`` does not grow."""
        shape, grows = self.seen.shape(number), self.seen.grows(number)
        if not any(grows):
            return tuple([shape[axis] for axis in axes])
        known = [axis for axis, grows_too in enumerate(self._grows(like)) if grows_too]
        if not known:
            return None
        base = self.shapes[like.tensor][known[0]]
        return tuple([Rel(shape[axis], base, known[0]) if grows[axis] else shape[axis] for axis in axes])

    def source_of(self, call: Call) -> str:
        """Return a unique name for a call: the path of its module, and the function."""
        if isinstance(call.target, str):
            name = call.target
        else:
            name = f"{call.path}.{call.name}()" if call.path else f"{call.name}()"
        self._sources[name] += 1
        return name if self._sources[name] == 1 else f"{name}#{self._sources[name]}"

    # -- calls -------------------------------------------------------------------------------------------------------

    def _grows(self, value: Placed) -> tuple[bool, ...]:
        """Return, for each axis of a tensor in the graph, whether the axis grows with the batch."""
        if value.number is None:
            return (False,) * len(value.axes)
        grows = self.seen.grows(value.number)
        return tuple([grows[axis] for axis in value.axes])

    def has_batch(self, value: Placed) -> bool:
        """Return whether an axis of the tensor grows with the batch."""
        return any(self._grows(value))

    def _is_inner(self, weight: Tensor) -> bool:
        """Return whether a weight gets no node, because it belongs to a called module or has no axes."""
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
        # If the result has a batch axis and the call's inputs have none, an input of the network gives the batch size.
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
    """Return the order of axes in the graph: (N, C, H, W) becomes (N, H, W, C); with fewer than 4 axes, no change."""
    return second(rank) if rank >= 4 else tuple(range(rank))


def second(rank: int) -> tuple[int, ...]:
    """Return the order of axes for a graph's tensor whose channels are the second axis in the network."""
    return (0, *range(2, rank), 1) if rank > 2 else tuple(range(rank))


def groups(before: Sequence[Any], after: Sequence[Any]) -> list[tuple[list[int], list[int]]]:
    """Return pairs of groups of axes before and after a reshape: the smallest consecutive groups with equal products.

    A size is a tuple with a number for each batch size of the record; the products must agree for each batch size.
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
