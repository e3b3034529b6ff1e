"""Networks are split into stem, blocks and head, which put together are the same network."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from alpha_in_torch import InTorch
from alpha_networks import Builder, resnet, vit

from syno_lab.alpha import Block, Graph, Network, Node, Rel, operation
from syno_lab.alpha.blocks import find_blocks, relative
from syno_lab.errors import SpecError

RELU = operation("relu")


@pytest.mark.parametrize("network", [resnet, vit])
def test_the_parts_together_are_the_network(network: Callable[[], tuple[Graph, dict[str, str]]]) -> None:
    graph, classes = network()
    whole = find_blocks(graph, classes).graph
    assert relative(whole).key == relative(graph).key
    assert (whole.params(), whole.flops(), whole.output_shapes) == (graph.params(), graph.flops(), graph.output_shapes)
    sources = [node.source for node in graph.nodes]
    assert sorted(node.source for node in whole.nodes) == sorted(sources)


def test_blocks_of_a_resnet_are_of_one_type_for_each_stride_and_factor() -> None:
    found = find_blocks(*resnet())
    # 16 to 16, 32 to 32 and 64 to 64; 16 to 32 and 32 to 64.
    assert found.kinds == {"BasicBlock": (0, 1, 3, 5), "BasicBlock 2": (2, 4)}
    assert [node.operation.name for node in found.stem.nodes] == ["conv", "batch_norm", "relu"]
    assert [node.operation.name for node in found.head.nodes] == ["mean", "dense"]
    for numbers in found.kinds.values():
        assert len({found.blocks[number].graph.nodes for number in numbers}) == 1
    for block in found.blocks:
        changeable = [block.graph.nodes[number].source.partition(".")[2] for number in sorted(block.mutable)]
        assert [name.partition(".")[2] for name in changeable] == ["conv1", "bn1", "", "conv2", "bn2"]


def test_layers_of_a_transformer_are_attention_and_mlp() -> None:
    found = find_blocks(*vit())
    assert found.kinds == {"Layer": (0, 2), "Layer 2": (1, 3)}
    names = [[each.graph.nodes[n].operation.name for n in sorted(each.mutable)] for each in found.blocks]
    assert names == [["layer_norm", "self_attention"], ["layer_norm", "dense", "gelu", "dense"]] * 2


def test_blocks_may_be_named() -> None:
    graph, classes = vit()
    # The MLP has the one tensor of its norm, but the connection goes around it: no block.
    assert find_blocks(graph, classes, names=["Mlp"]).blocks == ()
    assert len(find_blocks(graph, classes, names=["Layer"]).blocks) == 4


def test_what_stands_between_blocks_is_never_changed() -> None:
    net = Builder((2, 8, 8, 4))
    last = 0
    for number in range(2):
        net.classes[f"block{number}"] = "Block"
        last = net.put(f"block{number}", "relu", net.put(f"block{number}", "conv", last, features=8))
        last = net.put("between", "max_pool", last, stride=2)
    found = find_blocks(net.graph(last), net.classes)
    assert [block.kind for block in found.blocks] == ["Block", "", "Block 2"]
    assert not found.blocks[1].mutable
    assert found.blocks[0].mutable == {0, 1}
    assert [node.operation.name for node in found.head.nodes] == ["max_pool"]


def test_a_module_with_a_way_around_is_no_block() -> None:
    net = Builder((2, 4))
    net.classes |= {"a": "Block", "b": "Block"}
    first = net.put("a", "relu", net.put("a", "dense", 0, features=4))
    second = net.put("b", "relu", net.put("b", "dense", first, features=4))
    assert find_blocks(net.graph(second, first), net.classes).kinds == {"Block": (0,)}
    found = find_blocks(net.graph(net.put("", "add", second, first)), net.classes)
    assert [block.kind for block in found.blocks] == ["Block"]
    assert len(found.head.nodes) == 3


def test_a_network_without_blocks_is_all_stem() -> None:
    graph = Graph.chain((2, 4), [RELU])
    assert find_blocks(graph, {}) == Network(graph, (), Graph(((2, 4),), (), (0,)))


def test_blocks_are_repeated_and_left_out() -> None:
    found = find_blocks(*resnet())
    blocks = found.blocks
    longer = found.with_blocks([*blocks[:2], blocks[1], *blocks[2:]])
    assert longer.graph.params() == found.graph.params() + blocks[1].graph.params()
    # Without the first that halves, all after it have half of the channels and twice the rows and columns.
    shorter = found.with_blocks([*blocks[:2], *blocks[3:]])
    assert shorter.blocks[-1].graph.output_shapes == ((2, 8, 8, 32),)
    assert [block.kind for block in shorter.blocks] == [block.kind for block in blocks if block is not blocks[2]]
    assert InTorch(shorter.graph)(torch.randn(2, 16, 16, 3))[0].shape == (2, 10)


def test_one_edit_suits_all_blocks_of_a_type() -> None:
    found = find_blocks(*resnet())
    region = [0, 1]
    edit = Graph.chain((1, 1, 1, 1), [operation("conv", features=Rel(), groups=Rel(), bias=False), RELU])
    changed = found.edited((0, 1, 3, 5), region, edit)
    assert list(changed.kinds) == ["BasicBlock", "BasicBlock 2"]
    saved = sum(9 * c * c + 2 * c - 9 * c for c in (16, 16, 32, 64))
    assert changed.graph.params() == found.graph.params() - saved
    for number in (0, 1, 3, 5):
        block = changed.blocks[number]
        names = {block.graph.nodes[n].operation.name for n in block.mutable}
        assert names == {"conv", "relu", "batch_norm"}
        assert len(block.mutable) == 5
    some = found.edited((1, 3), region, edit)
    assert some.kinds == {"BasicBlock": (0, 5), "BasicBlock 3": (1, 3), "BasicBlock 2": (2, 4)}


def test_edits_stay_within_what_may_be_changed(rng: random.Random) -> None:
    found = find_blocks(*resnet())
    kept = {2: ["conv", "batch_norm", "add", "relu"], 0: ["add", "relu"]}
    for number, fixed in kept.items():
        network = found
        for _ in range(4):
            block = network.blocks[number]
            region = block.graph.choose_region(rng, among=block.mutable)
            assert region is not None
            if len(region.inputs) != 1 or len(region.outputs) != 1:
                continue
            same = block.graph.subgraph(region)
            more = Graph(same.inputs, (*same.nodes, Node(RELU, same.outputs)), (len(same.nodes) + 1,))
            network = network.edited([number], region.nodes, more)
        block = network.blocks[number]
        immutable = [n.operation.name for i, n in enumerate(block.graph.nodes) if i not in block.mutable]
        assert immutable == fixed


def test_edits_that_do_not_fit_are_refused() -> None:
    found = find_blocks(*resnet())
    relu = Graph.chain((1, 1), [RELU])
    with pytest.raises(SpecError, match="expected blocks of one type, found"):
        found.edited((0, 2), [0], relu)
    with pytest.raises(SpecError, match="expected blocks from 0 to 5, found"):
        found.edited((6,), [0], relu)
    with pytest.raises(SpecError, match="expected blocks from 0 to 5, found"):
        found.edited((), [0], relu)
    with pytest.raises(SpecError, match=r"expected nodes that may be changed, found \[6\]"):
        found.edited((0,), [6], relu)
    with pytest.raises(SpecError, match=r"add of .*: expected axes of one size"):
        found.edited((0,), [0], Graph.chain((1, 1), [operation("dense", features=Rel(3))]))


def test_parts_that_do_not_fit_are_refused() -> None:
    stem, head = Graph.chain((2, 4), [RELU]), Graph.chain((2, 4), [])
    with pytest.raises(SpecError, match="head: expected one input of shape"):
        Network(stem, (), Graph.chain((2, 5), []))
    with pytest.raises(SpecError, match="block 0: expected one input of shape"):
        Network(stem, (Block("a", Graph.chain((2, 5), [])),), head)
    two = Graph(((2, 4), (2, 4)), (Node(operation("add"), (0, 1)),), (2,))
    with pytest.raises(SpecError, match="expected a block of one input and one output, found 2 and 1"):
        Block("a", two)
    with pytest.raises(SpecError, match="expected nodes from 0 to 0 of a block with a type"):
        Block("a", stem, frozenset({1}))
    with pytest.raises(SpecError, match="expected nodes from 0 to 0 of a block with a type"):
        Block("", stem, frozenset({0}))
    with pytest.raises(SpecError, match="expected the name of a type in at most 200 characters"):
        Block("\n", stem)
