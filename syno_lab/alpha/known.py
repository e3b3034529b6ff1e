"""Known operators of αNAS: blocks of well-known networks, on an image of 16 channels or on tokens."""

from __future__ import annotations

from collections.abc import Callable

from syno_lab.alpha.graph import Graph, Node
from syno_lab.alpha.operations import Operation, Rel, Shape, operation
from syno_lab.alpha.operator import NetworkOperator

_IMAGE: Shape = (1, 8, 8, 16)
_TOKENS: Shape = (1, 16, 32)


def conv_block() -> NetworkOperator:
    """Return a convolution with twice the channels, ReLU and a pool: a block of the seed CNN (appendix B.1)."""
    operations = [operation("conv", features=Rel(2)), operation("relu"), operation("average_pool", window=2, stride=2)]
    return NetworkOperator.of_graph(Graph.chain(_IMAGE, operations))


def residual_block() -> NetworkOperator:
    """Return a residual block: two convolutions with norms, and a shortcut around them (He et al., 2016)."""
    conv, norm, relu = operation("conv", features=Rel(), bias=False), operation("batch_norm"), operation("relu")
    return _beside(_IMAGE, [conv, norm, relu, conv, norm], relu)


def separable_block() -> NetworkOperator:
    """Return a depthwise convolution, then a convolution of 1x1, each with norm and ReLU (Howard et al., 2017)."""
    operations = [
        *(operation("conv", features=Rel(), groups=Rel(), bias=False), operation("batch_norm"), operation("relu")),
        *(operation("conv", features=Rel(), kernel=1, bias=False), operation("batch_norm"), operation("relu")),
    ]
    return NetworkOperator.of_graph(Graph.chain(_IMAGE, operations))


def mlp_block() -> NetworkOperator:
    """Return the MLP half of a transformer block: two dense layers, and a shortcut (Vaswani et al., 2017)."""
    wider, back = operation("dense", features=Rel(4)), operation("dense", features=Rel(1, 4))
    return _beside(_TOKENS, [operation("layer_norm"), wider, operation("gelu"), back])


def attention_block() -> NetworkOperator:
    """Return the attention half of a transformer block: self-attention, and a shortcut around it."""
    return _beside(_TOKENS, [operation("layer_norm"), operation("self_attention", heads=4)])


def _beside(shape: Shape, inner: list[Operation], *after: Operation) -> NetworkOperator:
    """Return a chain whose input is added to the chain's result (a shortcut), then operations after the sum."""
    chain = [*inner, operation("add"), *after]
    nodes = [Node(op, (number, 0) if op.name == "add" else (number,)) for number, op in enumerate(chain)]
    return NetworkOperator.of_graph(Graph((shape,), tuple(nodes), (len(nodes),)))


KNOWN: dict[str, Callable[[], NetworkOperator]] = {
    made.__name__: made for made in (conv_block, residual_block, separable_block, mlp_block, attention_block)
}
