"""Networks of PyTorch as graphs: what a network calls becomes nodes, channels last.

A graph's tensor is a tensor of the network with its axes in another order, and each :class:`Placed` knows that order:
images (N, C, H, W) are (N, H, W, C) in the graph. So permutations in the network cost no node; a `transpose` stands
where an operation needs another order than its input has.

A call that has a row in OPERATIONS (:mod:`.torch_rows`) becomes a node of it. Any other becomes one opaque node for
each tensor that it gives. So does every call of a module whose weights are used in several calls: an edit of one
of them would change the others, or their number.
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

_LONGEST = 200  # characters of what an opaque node says of itself
#: Operations whose modules name axes of the network, which are others in the graph: their modules are made anew.
_OF_AXES = ("softmax", "reshape")


@dataclass(frozen=True)
class Placed:
    """A tensor of the network in the graph.

    Attributes:
        tensor: its number in the graph.
        axes: for each axis of the graph's tensor the axis of the network's.
        number: of the network's tensor; None for a parameter.
    """

    tensor: int
    axes: tuple[int, ...]
    number: int | None = None


@dataclass(frozen=True, eq=False)
class Opaque:
    """A call that a node is, as it can be made again.

    Attributes:
        call: with :class:`.Value` for the tensors that it takes, which are the last of the node's inputs.
        number: of the tensor among those that it gives.
        taken: the order of axes of these inputs, as in :class:`Placed`.
        axes: the order of axes of the tensor.
    """

    call: Call
    number: int
    taken: tuple[tuple[int, ...], ...]
    axes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Made:
    """How a node of a traced graph came about, so that it can be made again with its weights.

    Attributes:
        operation: of the node, with numbers alone.
        shapes: of the tensors that it takes, for a batch of one.
        what: the path of a module or the name of a weight; for an opaque node the call.
    """

    operation: Operation
    shapes: tuple[Shape, ...]
    what: str | Opaque


@dataclass(frozen=True, eq=False)
class Origin:
    """The network that a graph was traced from. It stays with the graph and all that are made from it by edits.

    Attributes:
        net: as it is now: weights are copied from it when a module is made.
        example: the inputs without values, for a batch of one.
        made: how nodes came about, by :attr:`.Node.source`.
        inputs, outputs: the order of axes, as in :class:`Placed`.
        single: whether the network gives a tensor rather than a tuple.
    """

    net: nn.Module
    example: tuple[Tensor, ...]
    made: dict[str, Made]
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    single: bool

    @property
    def classes(self) -> dict[str, str]:
        """The names of the classes of the network's modules by their paths, as :func:`.find_blocks` takes them."""
        return {path: type(module).__name__ for path, module in self.net.named_modules()}

    def __deepcopy__(self, memo: object) -> Origin:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # a graph that goes to another process goes without its network


def trace(net: nn.Module, example: Example) -> Graph:
    """A network as a graph, with shapes for one example: (1, spatial axes…, channels).

    It is traced in evaluation mode. What a network does at random in training alone is not seen, but for dropout and
    stochastic depth. Nodes say by :attr:`.Node.source` from where they come: the path of a module, or the path of a
    module and a function that it calls, as ``layers.0.relu()``. The graph remembers the network, so that
    :meth:`.Graph.to_torch` copies its weights.

    Modules of TorchScript and modules with hooks, calls under ``no_grad`` or autocast and autograd functions are opaque
    nodes, called again as the network calls them. Before the graph is given back, its module is held against the
    network on a random batch: outputs and gradients, in both modes (:mod:`.compared` says what of large ones).

    Args:
        net: not changed.
        example: the shape of an input without the batch, [C, H, W] for images; or a tensor, or several, whose first
            axis is the batch. Only shapes and types count.

    Raises SpecError in one line, for a network that refuses the example, and one that cannot be traced, as it decides
    by values of tensors or changes them in place while others use them, or as its graph is not what it is: what it does
    and where.
    """
    from syno_lab.alpha.compared import check_same

    with kept_chance():
        graph, seen = uncompared(net, example)
        check_same(graph, seen, example)
    return graph


def uncompared(net: nn.Module, example: Example) -> tuple[Graph, Record]:
    """:func:`trace` of a network that was compared before, or whose graph is known; and what was seen."""
    net = unwrapped(net)
    seen, examples = record(net, example)
    return Tracer(net, seen).graph(examples), seen


@dataclass
class Tracer:
    """A graph in the making."""

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
        #: Whether copies are of another kind: autocast gives other types, which the meta device does not show.
        self.is_mixed = any(context is not torch.no_grad for call in self._calls for context, *_ in call.region)
        self._uses = Counter(id(weight) for call in self._calls for weight in self.weights_of(call))
        #: Weights of modules that are called: those are no nodes.
        owners = [call for call in self._calls if isinstance(call.target, str)]
        self._owned = {id(weight) for call in owners for weight in self.weights_of(call)}
        self._counted: set[int] = set()

    def graph(self, examples: tuple[Tensor, ...]) -> Graph:
        """All calls as nodes."""
        for number in self.seen.inputs:
            axes = last_of(len(self.seen.shape(number)))
            self.placed[number] = Placed(len(self.shapes), axes, number)
            self.shapes.append(tuple([self.seen.shape(number)[axis] for axis in axes]))
        inputs = tuple(self.shapes)
        for call in self._calls:
            self._put_call(call)
        outputs = [self.placed[number] for number in self.seen.outputs]
        placed = tuple([self.placed[number].axes for number in self.seen.inputs])
        ends = tuple([each.axes for each in outputs])
        origin = Origin(self.net, examples, self.made, placed, ends, self.seen.single)
        return Graph.live(inputs, self.nodes, [each.tensor for each in outputs], origin)

    def weights_of(self, call: Call) -> list[Tensor]:
        """The parameters that a call uses."""
        if isinstance(call.target, str):
            return list(self.modules[call.target].parameters())
        used = [self.weights[each.name] for each in call.leaves(Weight)]
        return [weight for weight in used if isinstance(weight, nn.Parameter)]

    # -- for the rows ------------------------------------------------------------------------------------------------

    def put(self, made: Operation, *tensors: int, source: str = "") -> int:
        """A node; the number of its tensor. Raises SpecError where the operation does not apply."""
        self.shapes.append(made.shape(*(self.shapes[tensor] for tensor in tensors)))
        self.nodes.append(Node(made, tensors, source))
        return len(self.shapes) - 1

    def ordered(self, value: Placed, axes: tuple[int, ...], source: str = "") -> int:
        """The tensor with its axes in this order; where only axes of size 1 move it is the same."""
        moved = tuple([value.axes.index(axis) for axis in axes])
        shape = self.shapes[value.tensor]
        wide = [place for place in moved if shape[place] != 1]
        if wide == sorted(wide) and tuple([shape[place] for place in moved]) == shape:
            return value.tensor
        return self.put(operation("transpose", axes=moved), value.tensor, source=source)

    def operand(self, leaf: Any) -> Placed | None:
        """An argument as a tensor of the graph: a tensor, or a parameter that no module that is called has."""
        if isinstance(leaf, Value):
            return self.placed[leaf.number]
        if isinstance(leaf, Weight):
            weight = self.weights[leaf.name]
            if isinstance(weight, nn.Parameter) and not self._is_inner(weight):
                if leaf.name not in self._parameters:
                    made = operation("parameter", shape=tuple(weight.shape))
                    self.made[leaf.name] = Made(made, (), leaf.name)
                    tensor = self.put(made, source=leaf.name)
                    self._parameters[leaf.name] = Placed(tensor, tuple(range(weight.ndim)))
                return self._parameters[leaf.name]
        return None

    def sizes(self, number: int, like: Placed, axes: Sequence[int]) -> tuple[int | Rel, ...] | None:
        """The sizes of a tensor's axes, relative to an axis of another where they grow with the batch; None: none."""
        shape, grows = self.seen.shape(number), self.seen.grows(number)
        if not any(grows):
            return tuple([shape[axis] for axis in axes])
        known = [place for place, grows_too in enumerate(self._grows(like)) if grows_too]
        if not known:
            return None
        base = self.shapes[like.tensor][known[0]]
        return tuple([Rel(shape[axis], base, known[0]) if grows[axis] else shape[axis] for axis in axes])

    def source_of(self, call: Call) -> str:
        """A name for one call, below the path of its module."""
        if isinstance(call.target, str):
            name = call.target
        else:
            name = f"{call.path}.{call.name}()" if call.path else f"{call.name}()"
        self._sources[name] += 1
        return name if self._sources[name] == 1 else f"{name}#{self._sources[name]}"

    # -- calls -------------------------------------------------------------------------------------------------------

    def _grows(self, value: Placed) -> tuple[bool, ...]:
        """For each axis of the graph's tensor whether its size grows with the batch."""
        if value.number is None:
            return (False,) * len(value.axes)
        grows = self.seen.grows(value.number)
        return tuple([grows[axis] for axis in value.axes])

    def has_batch(self, value: Placed) -> bool:
        """Whether a size of it grows with the batch."""
        return any(self._grows(value))

    def _is_inner(self, weight: Tensor) -> bool:
        """Whether a weight is no node: a module that is called has it, or it has no axes."""
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
                found = row_of(self, call, source)
            except SpecError:
                found = None
            shape = self.seen.shape(call.results[0])
            if found is not None and self.shapes[found.tensor] == tuple([shape[axis] for axis in found.axes]):
                self.placed[call.results[0]] = replace(found, number=call.results[0])
                made = self.nodes[-1].operation if len(self.nodes) > before else None
                if isinstance(call.target, str) and made is not None and made.name not in _OF_AXES:
                    shapes = tuple([self.shapes[tensor] for tensor in self.nodes[-1].inputs])
                    self.made[source] = Made(made.at(*shapes), shapes, call.target)
                    self._counted.update(map(id, self.weights_of(call)))
                return
            del self.nodes[before:], self.shapes[len(self.seen.inputs) + before :]
            self._parameters = parameters
        for place, number in enumerate(call.results):
            if number in self._live:
                self._put_opaque(call, number, source if len(call.results) == 1 else f"{source}[{place}]")

    def _put_opaque(self, call: Call, number: int, source: str) -> None:
        taken: list[Placed] = []

        def given(leaf: Any) -> Any:
            found = self.operand(leaf)
            if found is None:
                return leaf
            taken.append(found)
            return Value(len(taken) - 1)

        arguments = map_aggregate(call.arguments, given)
        rank = len(self.seen.shape(number))
        axes = next((each.axes for each in taken if len(each.axes) == rank), tuple(range(rank)))
        of_batch = any(self.seen.grows(number)) and not any(map(self.has_batch, taken[:1]))
        # A size that none of them knows is known from an input of the network.
        inputs = [self.placed[self.seen.inputs[0]], *taken] if of_batch else taken
        sizes = self.sizes(number, inputs[0], axes) if inputs else self.seen.shape(number)
        assert sizes is not None
        new = {id(weight): weight for weight in self.weights_of(call) if self._is_inner(weight)}
        params = sum(weight.numel() for key, weight in new.items() if key not in self._counted)
        self._counted.update(new)
        flops = call.flops if number == next(each for each in call.results if each in self._live) else 0
        what = type(self.modules[call.target]).__name__ if isinstance(call.target, str) else call.name
        made = operation(OPAQUE, what=what[:_LONGEST], shape=sizes, params=params, flops=flops)
        self.placed[number] = Placed(self.put(made, *(each.tensor for each in inputs), source=source), axes, number)
        shapes = tuple([self.shapes[each.tensor] for each in inputs])
        call = replace(call, arguments=arguments)
        again = Opaque(call, call.results.index(number), tuple([each.axes for each in taken]), axes)
        self.made[source] = Made(made.at(*shapes), shapes, again)


def last_of(rank: int) -> tuple[int, ...]:
    """The order of axes of an image of this many axes: (N, C, H, W) as (N, H, W, C); of others the same."""
    return second(rank) if rank >= 4 else tuple(range(rank))


def second(rank: int) -> tuple[int, ...]:
    """The order of axes for modules that have the channels in the second place."""
    return (0, *range(2, rank), 1) if rank > 2 else tuple(range(rank))


def groups(before: Sequence[Any], after: Sequence[Any]) -> list[tuple[list[int], list[int]]]:
    """Which axes become which in a reshape: the finest groups of successive axes of one product.

    Sizes are tuples, one for each batch; products are compared in all of them.
    """

    def product(sizes: Sequence[Any], axes: Sequence[int]) -> tuple[int, ...]:
        return tuple([prod(sizes[axis][batch] for axis in axes) for batch in range(len(BATCHES))])

    found: list[tuple[list[int], list[int]]] = []
    left, right = 0, 0
    while left < len(before) and right < len(after):
        one, two = [left], [right]
        while (a := product(before, one)) != (b := product(after, two)):
            if a[0] <= b[0] and one[-1] + 1 < len(before):
                one.append(one[-1] + 1)
            elif two[-1] + 1 < len(after):
                two.append(two[-1] + 1)
            else:
                return [(list(range(len(before))), list(range(len(after))))]
        found.append((one, two))
        left, right = one[-1] + 1, two[-1] + 1
    if found:
        found[-1][0].extend(range(left, len(before)))
        found[-1][1].extend(range(right, len(after)))
    return found or [(list(range(len(before))), list(range(len(after))))]


def successive(axes: Sequence[int]) -> bool:
    """Whether each is the one after the last."""
    return all(b == a + 1 for a, b in pairwise(axes))
