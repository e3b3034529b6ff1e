"""Graphs of small networks as a tracer would give them: nodes say from which module they come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from syno_lab.alpha import Graph, Node, Operation, operation
from syno_lab.errors import SpecError


class Builder:
    """A graph in the making, with the classes of modules by their paths."""

    def __init__(self, *shapes: tuple[int, ...]) -> None:
        self.shapes, self.nodes = shapes, list[Node]()
        self.classes: dict[str, str] = {"": "Net"}

    def put(self, source: str, name: str, *inputs: int, **attributes: Any) -> int:
        self.nodes.append(Node(operation(name, **attributes), inputs, source))
        return len(self.shapes) + len(self.nodes) - 1

    def graph(self, *outputs: int) -> Graph:
        return Graph(self.shapes, tuple(self.nodes), outputs)


def resnet() -> tuple[Graph, dict[str, str]]:
    """A stem, blocks of 16, 16, 32 (stride 2), 32, 64 (stride 2) and 64 channels, and a head."""
    net = Builder((2, 16, 16, 3))
    last = net.put("conv1", "conv", 0, features=16, bias=False)
    last = net.put("bn1", "batch_norm", last)
    last = net.put("", "relu", last)
    channels = 16
    for stage, width in enumerate((16, 32, 64), start=1):
        net.classes[f"layer{stage}"] = "Sequential"
        for number in range(2):
            path = f"layer{stage}.{number}"
            net.classes |= {path: "BasicBlock", f"{path}.conv1": "Conv2d", f"{path}.bn1": "BatchNorm2d"}
            start, stride = last, 1 if channels == width else 2
            last = net.put(f"{path}.conv1", "conv", last, features=width, stride=stride, bias=False)
            last = net.put(f"{path}.bn1", "batch_norm", last)
            last = net.put(path, "relu", last)
            last = net.put(f"{path}.conv2", "conv", last, features=width, bias=False)
            last = net.put(f"{path}.bn2", "batch_norm", last)
            if channels != width:
                start = net.put(f"{path}.down.0", "conv", start, features=width, kernel=1, stride=2, bias=False)
                start = net.put(f"{path}.down.1", "batch_norm", start)
            last = net.put(path, "relu", net.put(path, "add", last, start))
            channels = width
    last = net.put("pool", "mean", last, axes=(1, 2))
    return net.graph(net.put("fc", "dense", last, features=10)), net.classes


def vit(layers: int = 2) -> tuple[Graph, dict[str, str]]:
    """Patches with positions, encoder layers of attention and MLP with a residual connection each, and a head."""
    net = Builder((2, 8, 8, 3))
    last = net.put("patch", "conv", 0, features=16, kernel=2, stride=2)
    last = net.put("", "reshape", last, shape=(2, 16, 16))
    last = net.put("", "add", last, net.put("", "parameter", shape=(16, 16)))
    for number in range(layers):
        path = f"layers.{number}"
        net.classes |= {"layers": "ModuleList", path: "Layer", f"{path}.mlp": "Mlp"}
        inner = net.put(f"{path}.attn", "self_attention", net.put(f"{path}.norm1", "layer_norm", last), heads=2)
        last = net.put(path, "add", last, inner)
        inner = net.put(f"{path}.mlp.fc1", "dense", net.put(f"{path}.norm2", "layer_norm", last), features=64)
        inner = net.put(f"{path}.mlp", "gelu", inner)
        last = net.put(path, "add", last, net.put(f"{path}.mlp.fc2", "dense", inner, features=16))
    last = net.put("norm", "layer_norm", last)
    return net.graph(net.put("head", "dense", net.put("", "mean", last, axes=(1,)), features=10)), net.classes


def representatives(operations: Iterable[Operation], shape: tuple[int, ...]) -> dict[Operation, tuple[Operation, ...]]:
    """Those of one name that no property tells apart for an input of a shape, by the first of each kind.

    Operations that do not apply to the shape are left out.
    """
    found: dict[tuple[object, ...], list[Operation]] = {}
    for each in operations:
        try:
            found.setdefault((each.name, each.shape(shape), each.pairings(shape)), []).append(each)
        except SpecError:
            continue
    return {same[0]: tuple(same) for same in found.values()}
