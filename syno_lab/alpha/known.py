"""Networks that people know, as operators: blocks by themselves on an image of 16 channels."""

from __future__ import annotations

from collections.abc import Callable

from syno_lab.alpha.graph import Graph, Node
from syno_lab.alpha.operations import Rel, Shape, operation
from syno_lab.alpha.operator import NetworkOperator

_IMAGE: Shape = (1, 8, 8, 16)
_TOKENS: Shape = (1, 16, 32)


def conv_block() -> NetworkOperator:
    """A convolution with twice the channels, ReLU and a pooling: a block of the seed network CNN (appendix B.1)."""
    made = [operation("conv", features=Rel(2)), operation("relu"), operation("average_pool", window=2, stride=2)]
    return NetworkOperator.of_graph(Graph.chain(_IMAGE, made))


def residual_block() -> NetworkOperator:
    """Two convolutions with norms beside a shortcut (He et al., 2016)."""
    nodes = (
        Node(operation("conv", features=Rel(), bias=False), (0,)),
        Node(operation("batch_norm"), (1,)),
        Node(operation("relu"), (2,)),
        Node(operation("conv", features=Rel(), bias=False), (3,)),
        Node(operation("batch_norm"), (4,)),
        Node(operation("add"), (5, 0)),
        Node(operation("relu"), (6,)),
    )
    return NetworkOperator.of_graph(Graph((_IMAGE,), nodes, (7,)))


def separable_block() -> NetworkOperator:
    """A depthwise convolution, then one of 1x1, each with a norm and ReLU (Howard et al., 2017)."""
    made = [
        *(operation("conv", features=Rel(), groups=Rel(), bias=False), operation("batch_norm"), operation("relu")),
        *(operation("conv", features=Rel(), kernel=1, bias=False), operation("batch_norm"), operation("relu")),
    ]
    return NetworkOperator.of_graph(Graph.chain(_IMAGE, made))


def mlp_block() -> NetworkOperator:
    """The half of a transformer's block that has two dense layers, beside a shortcut (Vaswani et al., 2017)."""
    nodes = (
        Node(operation("layer_norm"), (0,)),
        Node(operation("dense", features=Rel(4)), (1,)),
        Node(operation("gelu"), (2,)),
        Node(operation("dense", features=Rel(1, 4)), (3,)),
        Node(operation("add"), (4, 0)),
    )
    return NetworkOperator.of_graph(Graph((_TOKENS,), nodes, (5,)))


def attention_block() -> NetworkOperator:
    """The other half: self-attention beside a shortcut."""
    nodes = (
        Node(operation("layer_norm"), (0,)),
        Node(operation("self_attention", heads=4), (1,)),
        Node(operation("add"), (2, 0)),
    )
    return NetworkOperator.of_graph(Graph((_TOKENS,), nodes, (3,)))


KNOWN: dict[str, Callable[[], NetworkOperator]] = {
    made.__name__: made for made in (conv_block, residual_block, separable_block, mlp_block, attention_block)
}
