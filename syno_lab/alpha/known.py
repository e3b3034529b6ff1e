"""Networks that people know, as operators: blocks by themselves on an image of 16 channels."""

from __future__ import annotations

from collections.abc import Callable

from syno_lab.alpha.graph import Graph, Node
from syno_lab.alpha.operations import Operation, Rel, Shape, operation
from syno_lab.alpha.operator import NetworkOperator

_IMAGE: Shape = (1, 8, 8, 16)
_TOKENS: Shape = (1, 16, 32)


def conv_block() -> NetworkOperator:
    """A convolution with twice the channels, ReLU and a pooling: a block of the seed network CNN (appendix B.1)."""
    made = [operation("conv", features=Rel(2)), operation("relu"), operation("average_pool", window=2, stride=2)]
    return NetworkOperator.of_graph(Graph.chain(_IMAGE, made))


def residual_block() -> NetworkOperator:
    """Two convolutions with norms beside a shortcut (He et al., 2016)."""
    conv, norm, relu = operation("conv", features=Rel(), bias=False), operation("batch_norm"), operation("relu")
    return _beside(_IMAGE, [conv, norm, relu, conv, norm], relu)


def separable_block() -> NetworkOperator:
    """A depthwise convolution, then one of 1x1, each with a norm and ReLU (Howard et al., 2017)."""
    made = [
        *(operation("conv", features=Rel(), groups=Rel(), bias=False), operation("batch_norm"), operation("relu")),
        *(operation("conv", features=Rel(), kernel=1, bias=False), operation("batch_norm"), operation("relu")),
    ]
    return NetworkOperator.of_graph(Graph.chain(_IMAGE, made))


def mlp_block() -> NetworkOperator:
    """The half of a transformer's block that has two dense layers, beside a shortcut (Vaswani et al., 2017)."""
    wider, back = operation("dense", features=Rel(4)), operation("dense", features=Rel(1, 4))
    return _beside(_TOKENS, [operation("layer_norm"), wider, operation("gelu"), back])


def attention_block() -> NetworkOperator:
    """The other half: self-attention beside a shortcut."""
    return _beside(_TOKENS, [operation("layer_norm"), operation("self_attention", heads=4)])


def _beside(shape: Shape, inner: list[Operation], *after: Operation) -> NetworkOperator:
    """A chain beside a shortcut, both added up, and what comes after."""
    chain = [*inner, operation("add"), *after]
    nodes = [Node(each, (number, 0) if each.name == "add" else (number,)) for number, each in enumerate(chain)]
    return NetworkOperator.of_graph(Graph((shape,), tuple(nodes), (len(nodes),)))


KNOWN: dict[str, Callable[[], NetworkOperator]] = {
    made.__name__: made for made in (conv_block, residual_block, separable_block, mlp_block, attention_block)
}
