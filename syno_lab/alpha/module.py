"""Graphs as modules of PyTorch: nodes of a traced network keep the network's weights, new nodes get new weights.

The module of a traced graph has the inputs, the outputs and the module paths of the network, so state dicts agree. The
module of a graph without a traced network has inputs and outputs with channels last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.node import map_aggregate

from syno_lab.alpha import layers
from syno_lab.alpha.blocks import find_blocks
from syno_lab.alpha.edits import Variant
from syno_lab.alpha.graph import Graph, Node
from syno_lab.alpha.operations import OPAQUE, Shape
from syno_lab.alpha.recording import Constant, Here, Times, Value, Weight, is_whole, leaves, within
from syno_lab.alpha.tracing import Made, Opaque, Origin, uncompared
from syno_lab.alpha.twins import twin
from syno_lab.copies import computed, deep_copied
from syno_lab.effort import check_room
from syno_lab.errors import SpecError
from syno_lab.models.slot import Place


@dataclass(frozen=True)
class _Part:
    """A node that runs a module or is a weight: the name of this module or weight, and the node's operation."""

    name: str
    operation: str

    def run(self, owner: GraphModule, inputs: Sequence[Tensor], batch: int, device: torch.device) -> Tensor:
        if self.operation == "parameter":
            return owner.get_parameter(self.name)
        part = owner.get_submodule(self.name)
        if self.operation not in layers.SECOND:
            return part(*inputs)
        return part(inputs[0].movedim(-1, 1)).movedim(1, -1)


@dataclass(frozen=True)
class _Replay:
    """An opaque node, which repeats a call of the network; the graph's module has the call's constants as buffers."""

    what: Opaque
    target: str  # the path of the called module; empty for a function

    def run(self, owner: GraphModule, inputs: Sequence[Tensor], batch: int, device: torch.device) -> Tensor:
        call, originals = self.what.call, self.what.taken
        tensors = inputs[len(inputs) - len(originals) :]

        def given(leaf: Any) -> Any:
            match leaf:
                case Value():
                    return _as_in_network(tensors[leaf.number], originals[leaf.number])
                case Weight():
                    return owner.tensor(leaf.name)
                case Times():
                    return leaf.factor * batch
                case Here():
                    return device
            return leaf

        args, kwargs = map_aggregate(call.arguments, given)
        if call.in_place:  # other nodes may use the unchanged input
            args = (args[0].clone(), *args[1:])
        target = owner.get_submodule(self.target) if isinstance(call.target, str) else call.target
        result = within(call.region, target, args, kwargs)
        if call.in_place:
            result = args[0]
        return [leaf for leaf in leaves(result) if isinstance(leaf, Tensor)][self.what.number].permute(self.what.axes)

    def __deepcopy__(self, memo: object) -> _Replay:
        return self


@dataclass(frozen=True)
class _Step:
    """A node at run time: what to run, the input tensors, and the inputs to free because no later node needs them."""

    what: _Part | _Replay
    inputs: tuple[int, ...]
    done: tuple[int, ...]


class GraphModule(nn.Module):
    """A graph in PyTorch; :func:`to_torch` makes it.

    The inputs are the graph's inputs; the result is the graph's output, or a tuple if there are several outputs.
    """

    def __init__(self, inputs: Sequence[tuple[int, ...]], outputs: Sequence[tuple[int, ...]], single: bool) -> None:
        super().__init__()
        self._inputs, self._outputs, self._is_single = tuple(inputs), tuple(outputs), single
        self._steps: tuple[_Step, ...] = ()
        self._given: tuple[int, ...] = ()
        self._asleep: tuple[str, ...] = ()

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Run the nodes, for a batch of any size."""
        if len(inputs) != len(self._inputs):
            raise SpecError(f"expected {len(self._inputs)} inputs, found {len(inputs)}")
        batch, device = (inputs[0].shape[0], inputs[0].device) if inputs else (1, torch.device("cpu"))
        tensors: list[Any] = [x.permute(axes) for x, axes in zip(inputs, self._inputs, strict=True)]
        for step in self._steps:
            tensors.append(step.what.run(self, [tensors[number] for number in step.inputs], batch, device))
            for number in step.done:
                tensors[number] = None
        ends = zip(self._given, self._outputs, strict=True)
        results = [_as_in_network(tensors[number], axes) for number, axes in ends]
        return results[0] if self._is_single else tuple(results)

    def train(self, mode: bool = True) -> GraphModule:
        """Set the mode as :meth:`torch.nn.Module.train`, except where the network keeps a module in evaluation."""
        super().train(mode and "" not in self._asleep)
        for path, part in self.named_modules():
            part.training &= path not in self._asleep
        return self

    def tensor(self, name: str) -> Tensor:
        """Return a parameter or buffer by its name."""
        path, _, own = name.rpartition(".")
        return getattr(self.get_submodule(path), own)

    def put(self, name: str, what: nn.Module | Tensor) -> str:
        """Register a module, parameter or buffer under a dotted name, and missing parent modules; return the name."""
        owner: nn.Module = self
        *path, own = name.split(".")
        for step in path:
            if step not in owner._modules:
                owner.add_module(step, nn.Module())
            owner = owner.get_submodule(step)
        if isinstance(what, nn.Module):
            owner.add_module(own, what)
        elif isinstance(what, nn.Parameter):
            owner.register_parameter(own, what)
        else:
            owner.register_buffer(own, what)
        return name


def _as_in_network(tensor: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return a tensor of the graph with its axes in the network's order."""
    return tensor.permute([axes.index(axis) for axis in range(len(axes))])


def to_torch(graph: Graph, traced: Graph | None = None) -> nn.Module:
    """Return the graph as a module.

    A node with a :attr:`.Node.source` becomes a copy of the network's module with the weights, if the operation and the
    channels are unchanged. A second node with the same source, as in a repeated block, gets a second copy. All other
    nodes get random weights from torch's global generator; dtype and device are those of the network's weights.

    Args:
        graph: any graph.
        traced: a graph of :func:`.trace` that provides weights and opaque nodes; None: the traced graph from which
            ``graph`` comes. Without a traced graph all weights are random.

    Raises SpecError for an opaque node that the traced network does not have or calls with other input shapes, and for
    an operation without a module.
    """
    origin = graph.origin if traced is None else traced.origin
    if traced is not None and origin is None:
        raise SpecError("expected a graph of sl.alpha.trace to take weights from, found a graph without a network")
    return _Builder(graph, origin).module


class _Builder:
    def __init__(self, graph: Graph, origin: Origin | None) -> None:
        self.graph, self.origin = graph, origin
        of_inputs = [tuple(range(len(shape))) for shape in graph.inputs]
        of_outputs = [tuple(range(len(shape))) for shape in graph.output_shapes]
        single = len(graph.outputs) == 1
        if origin is not None:
            of_inputs, of_outputs, single = list(origin.inputs), list(origin.outputs), origin.single
            sides = ("inputs", graph.inputs, of_inputs), ("outputs", graph.output_shapes, of_outputs)
            for name, shapes, axes in sides:
                if list(map(len, shapes)) != list(map(len, axes)):
                    expected = " and ".join(f"{len(order)} axes" for order in axes)
                    raise SpecError(f"expected {name} of {expected} as the traced network has, found {list(shapes)}")
        self.module = GraphModule(of_inputs, of_outputs, single)
        self.uses = Counter[str]()
        self.memos: dict[int, dict[int, Any]] = {}
        self.known: set[str] = set()
        nodes = enumerate(graph.nodes)
        steps = [_Step(self._what(number, node), node.inputs, graph.done[number]) for number, node in nodes]
        self.module._steps, self.module._given = tuple(steps), graph.outputs
        if origin is not None:
            if any(type(part).train is not nn.Module.train for part in origin.net.modules()):
                modules = twin(origin.net).train().named_modules()
                self.module._asleep = tuple([path for path, part in modules if not part.training])
            self.module.train(origin.net.training)

    def _what(self, number: int, node: Node) -> _Part | _Replay:
        shapes = self.graph.input_shapes(number)
        original = self.origin.made.get(node.source) if self.origin is not None and node.source else None
        if original is not None and _is_same(node, shapes, original):
            self.uses[node.source] += 1
            return self._again(node, original, self.uses[node.source])
        if node.operation.name == OPAQUE:
            where = f"node {number} ({node.operation['what']}{f' of {node.source}' if node.source else ''})"
            if self.origin is None or original is None:
                raise SpecError(f"{where}: expected a node of the traced network; pass it: graph.to_torch(traced)")
            expected = ", ".join(str(list(shape)) for shape in original.shapes)
            actual = ", ".join(str(list(shape)) for shape in shapes)
            raise SpecError(f"{where}: expected inputs of {expected}, as the network has there, found {actual}")
        name = f"node{number}_{node.operation.name}"
        while name in self.module._modules or (self.origin is not None and name in self.origin.net._modules):
            name += "_"
        weights = map(prod, node.operation.weights(*shapes))
        check_room(f"the weights of node {number}", sum(weights) * torch.get_default_dtype().itemsize)
        known = self.origin.net.parameters() if self.origin is not None else iter(())
        like = next((weight for weight in known if weight.is_floating_point()), torch.empty(0))
        part: nn.Module | Tensor
        if node.operation.name == "parameter":
            part = nn.Parameter(layers.parameter(node.operation).detach().to(like.device, like.dtype))
        else:
            part = layers.module(node.operation, *shapes).to(like.device, like.dtype)
        return _Part(self.module.put(name, part), node.operation.name)

    def _again(self, node: Node, made: Made, use: int) -> _Part | _Replay:
        """Return what to run for an unchanged node: a copy of the network's module or weight, or a repeated call."""
        if isinstance(made.what, str):
            return _Part(self._copied(made.what, use), node.operation.name)
        call = made.what.call
        target = self._copied(call.target, use) if isinstance(call.target, str) else ""

        def named(leaf: Any) -> Any:
            if isinstance(leaf, Weight):
                return Weight(self._copied(leaf.name, use))
            if isinstance(leaf, Constant):
                name = f"constant{len(self.known)}"
                self.known.add(name)
                self.module.register_buffer(name, leaf.tensor.detach().clone(), persistent=False)
                return Weight(name)
            return leaf

        return _Replay(replace(made.what, call=replace(call, arguments=map_aggregate(call.arguments, named))), target)

    def _copied(self, name: str, use: int) -> str:
        """Copy a module or tensor of the network, unless this use of its node has a copy; return the copy's name."""
        assert self.origin is not None
        prefix = "" if use == 1 else f"copy{use}."
        if prefix + name in self.known:
            return prefix + name
        memo = self.memos.setdefault(use, computed(self.origin.net))
        path, _, own = name.rpartition(".")
        modules = dict(self.origin.net.named_modules(remove_duplicate=False))
        if name in modules:
            value: Any = modules[name]
        else:
            owner = modules[path]
            if path and is_whole(owner):
                self._copied(path, use)  # the copy of a called module contains its weights
                return prefix + name
            value = getattr(owner, own)
        self.known.add(prefix + name)
        self.module.put(prefix + name, deep_copied(value, memo))
        if isinstance(value, Tensor) and own in modules[path]._non_persistent_buffers_set:
            self.module.get_submodule((prefix + path).strip("."))._non_persistent_buffers_set.add(own)
        return prefix + name


def _is_same(node: Node, shapes: tuple[Shape, ...], made: Made) -> bool:
    """Return whether a node is unchanged since the trace and its inputs have the same numbers of channels."""
    if node.operation.name != made.operation.name or len(shapes) != len(made.shapes):
        return False
    if node.operation.name == OPAQUE:
        return [shape[1:] for shape in shapes] == [shape[1:] for shape in made.shapes]
    if [shape[-1:] for shape in shapes] != [shape[-1:] for shape in made.shapes]:
        return False
    return node.operation.at(*shapes) == made.operation


# -- an edited network as a placement ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Edited:
    """A placement that replaces a traced network by its edited variant (:class:`syno_lab.protocol.Placement`)."""

    variant: Variant

    @property
    def places(self) -> list[Place]:
        """The nodes with weights or FLOPs before or after the edits: unchanged, removed and new nodes.

        A removed node costs nothing, so that the sum of all costs is the cost of the edited network.
        """
        before, after = self.variant.seed.graph, self.variant.network.graph
        stays: dict[tuple[str, str], int] = {}
        for number, node in enumerate(after.nodes):
            if node.source:
                stays.setdefault((node.source, node.operation.name), number)
        nodes: list[Place] = []
        done: set[int] = set()
        for number, node in enumerate(before.nodes):
            flops, params = before.costs(number)
            if not flops and not params:
                continue
            index = stays.get((node.source, node.operation.name))
            if index is not None and after.costs(index) == (flops, params):
                done.add(index)
                nodes.append(Place(node.source, None, "the edits leave it as it is", flops, params))
            else:
                nodes.append(Place(node.source, {}, None, 0, 0))
        for number, node in enumerate(after.nodes):
            flops, params = after.costs(number)
            if number not in done and (flops or params):
                nodes.append(Place(f"node {number} ({node.operation})", {}, None, flops, params))
        return nodes

    def apply(self, net: nn.Module) -> nn.Module:
        """Return the edited network as a module: unchanged nodes have the weights of ``net``, new nodes random weights.

        Raises SpecError where ``net`` is not the network of the seed.
        """
        (shape, *_) = self.variant.seed.stem.inputs
        traced, _ = uncompared(net, example_of(shape))
        current = find_blocks(traced)
        if current.digest != self.variant.seed.digest:
            expected = f"the network that the edits were made for ({self.variant.seed.digest})"
            current_name = f"another {type(net).__name__} ({current.digest})"
            raise SpecError(f"expected {expected}, found {current_name}: of another size, or changed since")
        return self.variant.network.graph.to_torch(traced)


def example_of(shape: Shape) -> tuple[int, ...] | Tensor:
    """Return an example that :func:`.trace` takes for an input of this shape: an image [C, H, W], or tokens [1, T].

    Raises SpecError for any other shape.
    """
    if len(shape) == 4:
        return (shape[3], shape[1], shape[2])
    if len(shape) == 2:
        return torch.zeros(shape, dtype=torch.int64)
    raise SpecError(f"expected a network for images or tokens, found one for an input of shape {list(shape)}")
