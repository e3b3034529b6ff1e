"""Networks as graphs and back: the same outputs, weights and costs, whatever layers they have."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from alpha_in_torch import InTorch, draw
from torch import Tensor, nn
from torch.nn import functional

import syno_lab as sl
from syno_lab.alpha import Graph, Node, Rel, operation
from syno_lab.alpha.blocks import find_blocks
from syno_lab.alpha.operations import OPERATIONS
from syno_lab.errors import SpecError
from syno_lab.models.layers import survey
from syno_lab.models.registry import BACKBONES

#: The smallest sizes that backbones take: their options, and of images or texts.
SMALLEST: dict[str, tuple[dict[str, Any], int]] = {
    "resnet18": ({"blocks": 1}, 8),
    "resnet34": ({"blocks": 1}, 8),
    "densenet121": ({"layers": 1}, 32),
    "resnext29_2x64d": ({"blocks": 1}, 4),
    "efficientnet_v2_s": ({"blocks": 2}, 8),
    "gpt2": ({"width": 8, "layers": 2, "heads": 2, "dropout": 0.1}, 6),
    "resnet20": ({"width": 2, "blocks": 2}, 8),
    "gpt_tiny": ({"width": 8, "layers": 2, "heads": 2}, 6),
    "cnn": ({"width": 4}, 8),
    "vit_tiny": ({"width": 8, "layers": 2, "heads": 2}, 8),
}


def small(name: str) -> tuple[nn.Module, Any, Tensor]:
    """A backbone with drawn state, an example, and a batch of three."""
    known = BACKBONES[name]
    options, size = SMALLEST[name]
    net = known.build(outputs=5, size=size, options=options).double().eval()
    for buffer in net.buffers():  # means and variances that are not those of new networks
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    x = torch.randint(5, (3, size)) if known.domain == "text" else torch.randn(3, 3, size, size).double()
    return net, known.example(size=size), x


def check(net: nn.Module, x: Tensor, *others: Tensor) -> Graph:
    """Trace, make the module, compare; float64 and the same kernels, so 1e-9 leaves room for another order alone."""
    net = net.double().eval()
    graph = sl.alpha.trace(net, (x, *others))
    made = graph.to_torch()
    with torch.no_grad():
        wanted, found = net(x, *others), made(x, *others)
    for one, two in zip(*((each,) if isinstance(each, Tensor) else each for each in (wanted, found)), strict=True):
        assert torch.allclose(one, two, rtol=1e-9, atol=1e-9)
    assert graph.params() == sum(weight.numel() for weight in net.parameters())
    return graph


@pytest.mark.parametrize("name", BACKBONES)
def test_backbones_come_back_with_outputs_weights_and_costs(name: str) -> None:
    net, example, x = small(name)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    graph = sl.alpha.trace(net, example)
    made = graph.to_torch()
    with torch.no_grad():
        assert torch.allclose(made(x), net(x), rtol=0, atol=1e-5)
    state = made.state_dict()
    assert list(state) == list(before)
    assert all(torch.equal(state[key], before[key]) for key in before)
    assert sum(weight.numel() for weight in made.parameters()) == graph.params()
    seen = survey(net, example)
    assert (graph.params(), graph.flops()) == (seen.params, seen.flops)
    assert not any(weight is other for weight in made.parameters() for other in net.parameters())
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())


@pytest.mark.parametrize("name", ["resnet20", "gpt2", "vit_tiny"])
def test_modules_learn_as_the_network_does(name: str) -> None:
    """Equal gradients in training, with batch statistics and dropout drawn alike."""
    net, example, x = small(name)
    made = sl.alpha.trace(net, example).to_torch()
    for module in (net, made):
        module.train()
        torch.manual_seed(3)
        module(x).square().sum().backward()
    named = dict(made.named_parameters())
    for key, weight in net.named_parameters():
        assert torch.allclose(named[key].grad, weight.grad, rtol=1e-7, atol=1e-9), key
    assert all(torch.allclose(a, b) for a, b in zip(made.buffers(), net.buffers(), strict=True))


def test_shapes_are_of_one_example_with_channels_last() -> None:
    graph = sl.alpha.trace(*small("resnet20")[:2])
    assert graph.inputs == ((1, 8, 8, 3),)
    assert graph.output_shapes == ((1, 5),)
    assert [node.operation.name for node in graph.nodes[:4]] == ["conv", "batch_norm", "relu", "conv"]
    assert graph.shapes[1] == (1, 8, 8, 2)
    assert {n.operation["what"] for n in graph.nodes if n.operation.name == "opaque"} == {"getitem", "pad"}
    assert not any(node.operation.name == "transpose" for node in graph.nodes)
    assert graph.at((7, 8, 8, 3)).output_shapes == ((7, 5),)
    assert [node.source for node in graph.nodes[3:6]] == [f"stage1.0.{name}" for name in ("conv1", "bn1", "relu()")]


# -- layers of all kinds -----------------------------------------------------------------------------------------------


class Calls(nn.Module):
    """A function of tensors and of modules."""

    def __init__(self, function: Callable[..., Any], **modules: nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(self, *inputs)


IMAGES = torch.randn(2, 4, 6, 6, dtype=torch.float64)
TOKENS = torch.randn(2, 5, 8, dtype=torch.float64)


@pytest.mark.parametrize(
    ("function", "x", "names"),
    [
        (lambda net, x: x.permute(0, 2, 3, 1).softmax(-1).permute(0, 3, 1, 2), IMAGES, ["softmax"]),
        (lambda net, x: x.softmax(2), IMAGES, ["transpose", "softmax"]),
        (lambda net, x: x.flatten(2).transpose(1, 2), IMAGES, ["reshape"]),
        (lambda net, x: x.flatten(1), IMAGES, ["transpose", "reshape"]),
        (lambda net, x: x.view(x.shape[0] * x.shape[1], -1), TOKENS, ["reshape"]),
        (lambda net, x: x.mean((2, 3), keepdim=True) * x, IMAGES, ["mean", "mul"]),
        (lambda net, x: (2 - x) / 4 + 3 * x - 1, IMAGES, None),
        (lambda net, x: x @ x.mT, TOKENS, ["transpose", "dot"]),
        (lambda net, x: functional.max_pool2d(x, 3, 2, 1), IMAGES, ["max_pool"]),
        (lambda net, x: functional.avg_pool2d(x, 3, 1, 1), IMAGES, ["opaque"]),
        (lambda net, x: functional.adaptive_avg_pool2d(x, 1), IMAGES, ["average_pool"]),
        (lambda net, x: functional.adaptive_avg_pool2d(x, 4), IMAGES, ["opaque"]),
        (lambda net, x: functional.gelu(x, approximate="tanh"), IMAGES, ["gelu"]),
        (lambda net, x: torch.cat(x.chunk(2, 1)[::-1], 1), IMAGES, ["opaque"] * 3),
        (lambda net, x: x + torch.ones(x.shape[0], 1, 1, 1, dtype=x.dtype), IMAGES, ["opaque", "add"]),
        (lambda net, x: x.movedim(1, -1).relu().movedim(-1, 1), IMAGES, ["relu"]),
        (lambda net, x: tuple(x.unbind(1))[:2], IMAGES, ["opaque"] * 2),
    ],
)
def test_functions(function: Callable[..., Any], x: Tensor, names: list[str] | None) -> None:
    graph = check(Calls(function), x)
    if names is not None:
        assert [node.operation.name for node in graph.nodes] == names


def test_changes_in_place_are_seen() -> None:
    def changed(net: Any, x: Tensor) -> Tensor:
        y = x * 2
        y += x
        z = y.relu() + 1
        z[:, 0] = 0.0
        return z.mul_(3)

    graph = check(Calls(changed), IMAGES)
    assert [node.operation.name for node in graph.nodes].count("opaque") == 1

    def shared(net: Any, x: Tensor) -> Tensor:
        y = x * 2
        part = y[:, :2]
        y.relu_()
        return part

    with pytest.raises(
        SpecError, match=r"Calls: expected no change in place of a tensor that is used again, found one"
    ):
        sl.alpha.trace(Calls(shared), (4, 6, 6))


def test_layers_of_torch() -> None:
    for module, shape, name in (
        (nn.Conv2d(4, 6, 3, padding="same", dilation=2), (4, 7, 7), "conv"),
        (nn.Conv2d(4, 6, (3, 1)), (4, 7, 7), "opaque"),
        (nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), (4, 7, 7), "opaque"),
        (nn.GroupNorm(2, 4), (4, 5, 5), "group_norm"),
        (nn.LayerNorm((5, 5)), (4, 5, 5), "opaque"),
        (nn.InstanceNorm2d(4), (4, 5, 5), "opaque"),
        (nn.MaxPool2d(3, 2, ceil_mode=True), (4, 6, 6), "opaque"),
        (nn.LSTM(8, 4, batch_first=True), (5, 8), "opaque"),
    ):
        found = check(Calls(lambda net, x: y if isinstance(y := net.inner(x), Tensor) else y[0], inner=module),
                      torch.randn(2, *shape, dtype=torch.float64))  # fmt: skip
        assert found.nodes[-1].operation.name == name, module
    names = [
        node.operation.name
        for node in check(
            Calls(lambda net, x: net.a(x), a=nn.Conv1d(4, 6, 3)), torch.randn(2, 4, 9, dtype=torch.float64)
        ).nodes
    ]
    assert names == ["transpose", "conv"]
    assert [node.operation.name for node in check(nn.Linear(8, 3), TOKENS).nodes] == [
        "parameter",
        "parameter",
        "opaque",
    ]


@pytest.mark.parametrize("module", [nn.Softmax(1), nn.Softmax(2), nn.Unflatten(1, (2, 2)), nn.Flatten(2)])
def test_layers_that_name_axes_are_not_copied(module: nn.Module) -> None:
    """The graph has its axes in another order than the network."""
    check(Calls(lambda net, x: net.b(net.a(x)), a=nn.Conv2d(4, 4, 3), b=module), IMAGES)


def test_shared_weights_are_counted_once_and_stay_shared() -> None:
    layer = nn.Linear(8, 8)
    tied = check(Calls(lambda net, x: net.a(net.a(x)), a=layer), TOKENS)
    assert [(node.operation.name, node.operation["params"]) for node in tied.nodes] == [("opaque", 72), ("opaque", 0)]
    made = tied.to_torch()
    assert list(made.state_dict()) == ["a.weight", "a.bias"]
    net = Calls(lambda net, x: x + net.pos.relu() * net.pos)
    net.pos = nn.Parameter(torch.randn(5, 8))
    graph = check(net, TOKENS)
    assert [node.operation.name for node in graph.nodes] == ["parameter", "relu", "mul", "add"]
    assert graph.nodes[0].source == "pos"


def test_decisions_by_sizes_are_made_and_those_by_values_are_refused() -> None:
    assert len(check(Calls(lambda net, x: x.relu() if x.shape[1] > 3 and len(x) else x), IMAGES).nodes) == 1

    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    message = (
        r"Calls: expected no decision by the values of a tensor, found one \(.*\), at test_tracing.py:\d+, in inner$"
    )
    with pytest.raises(SpecError, match=message):
        sl.alpha.trace(Calls(lambda net, x: net.inner(x), inner=Inner()), (4, 6, 6))
    with pytest.raises(SpecError, match=r"Calls: expected a network that takes \[2, 3, 6, 6\], found: .*, in a$"):
        sl.alpha.trace(Calls(lambda net, x: net.a(x), a=nn.Conv2d(4, 4, 3)), (3, 6, 6))
    with pytest.raises(SpecError, match="expected a tensor or a tuple of tensors as the result, found dict"):
        sl.alpha.trace(Calls(lambda net, x: {"y": x}), (3, 6, 6))
    with pytest.raises(SpecError, match=r"sizes that are multiples of the batch, found 3 and 4"):
        sl.alpha.trace(Calls(lambda net, x: torch.cat((x, x[:1]))), (3, 6, 6))
    with pytest.raises(SpecError, match=r"expected the shape of an input as \[C, H, W\]"):
        sl.alpha.trace(nn.ReLU(), (3, 0))
    # An input of another rank.
    for shape, found in (((3, 6), r"\[2, 3, 6\]"), ((1, 3, 6, 6), r"\[2, 1, 3, 6, 6\]")):
        with pytest.raises(SpecError, match=rf"Calls: expected a network that takes {found}, found: .*, in a$"):
            sl.alpha.trace(Calls(lambda net, x: net.a(x), a=nn.Conv2d(4, 4, 3)), shape)


def test_several_inputs_and_outputs() -> None:
    graph = check(Calls(lambda net, x, y: (x + y, x)), IMAGES, IMAGES[:, :1] * 2)
    assert graph.inputs == ((1, 6, 6, 4), (1, 6, 6, 1))


# -- graphs of no network ----------------------------------------------------------------------------------------------


# An operation of another system is held against its own system: test_operator_node.
@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - {"opaque", "operator", "parameter", "none"}))
def test_operations_are_what_their_rows_say(name: str, rng: random.Random) -> None:
    """Shapes and numbers of weights of rows, and outputs of another implementation with the same weights."""
    for _ in range(8):
        made, shapes = draw(rng, name)
        if name in ("conv", "max_pool", "average_pool", "batch_norm") and len(shapes[0]) == 2:
            continue
        graph = Graph(shapes, (Node(made, tuple(range(len(shapes)))),), (len(shapes),))
        net, other = graph.to_torch().double().eval(), InTorch(graph).double().eval()
        inputs = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
        found = net(*inputs)
        assert tuple(found.shape) == graph.output_shapes[0]
        assert sum(weight.numel() for weight in net.parameters()) == graph.params()
        if name != "self_attention":  # whose weights lie otherwise
            for mine, its in zip(net.parameters(), other.parameters(), strict=True):
                mine.data.copy_(its.data)
            assert torch.allclose(found if not graph.params() else net(*inputs), other(*inputs)[0])


def test_an_opaque_node_needs_the_network() -> None:
    net, example, x = small("resnet20")
    traced = sl.alpha.trace(net, example)
    read = Graph.from_json(traced.to_json())
    assert read == traced
    with pytest.raises(SpecError, match=r"\(getitem of stage2.0.getitem\(\)\): expected a node of the traced network"):
        read.to_torch()
    assert torch.equal(read.to_torch(traced)(x), net(x))
    with pytest.raises(SpecError, match=r"expected a graph of sl.alpha.trace to take weights from"):
        read.to_torch(read)
    assert pickle.loads(pickle.dumps(traced)).origin is None
    assert copy.deepcopy(traced).origin is traced.origin


# -- edits -------------------------------------------------------------------------------------------------------------


def edited(graph: Graph, source: str, new: Graph) -> Graph:
    (number,) = (number for number, node in enumerate(graph.nodes) if node.source == source)
    return graph.replace(graph.region([number]), new)


def test_an_edited_network_keeps_the_weights_of_what_stays(rng: random.Random) -> None:
    net, example, x = small("resnet20")
    graph = sl.alpha.trace(net, example)
    chain = [operation("conv", features=Rel(), kernel=1), operation("silu")]
    changed = edited(graph, "stage1.1.conv2", Graph.chain((1, 8, 8, 2), chain))
    made = changed.to_torch()
    state, old = made.state_dict(), net.state_dict()
    gone = set(old) - set(state)
    assert gone == {"stage1.1.conv2.weight"}
    assert all(torch.equal(state[key], old[key]) for key in set(old) & set(state))
    assert len(set(state) - set(old)) == 2  # weight and bias of the new convolution
    assert sum(weight.numel() for weight in made.parameters()) == changed.params()
    # By hand: the network with the new layers in the place of the old one.
    other = copy.deepcopy(net)
    new = nn.Conv2d(2, 2, 1).double()
    new.load_state_dict({key.rpartition(".")[2]: state[key] for key in set(state) - set(old)})
    other.stage1[1].conv2 = nn.Sequential(new, nn.SiLU())
    assert torch.allclose(made(x), other(x))
    assert copy.deepcopy(made)(x).equal(made(x))


def test_a_layer_of_other_channels_is_drawn_anew() -> None:
    net, example, x = small("cnn")
    graph = sl.alpha.trace(net, example)
    wider = edited(graph, "conv", Graph.chain((1, 8, 8, 3), [operation("conv", features=6)]))
    made = wider.to_torch()
    assert made(x).shape == (3, 5)
    # The first block takes 6 channels in place of 4, so its convolution is another one; those after it are the same.
    old = net.state_dict()
    assert "blocks.0.conv.weight" not in made.state_dict()
    assert all(torch.equal(value, old[key]) for key, value in made.state_dict().items() if key in old)
    assert "blocks.1.conv.weight" in made.state_dict()


def test_a_block_that_stands_twice_has_weights_of_its_own() -> None:
    net, example, x = small("vit_tiny")
    found = find_blocks(sl.alpha.trace(net, example))
    twice = found.with_blocks([*found.blocks, *found.blocks[-2:]])
    made = twice.graph.to_torch()
    more = sum(weight.numel() for weight in net.layers[-1].parameters())
    assert sum(weight.numel() for weight in made.parameters()) == twice.graph.params()
    assert twice.graph.params() == more + sum(weight.numel() for weight in net.parameters())
    other = copy.deepcopy(net)
    other.layers.append(copy.deepcopy(other.layers[-1]))
    assert torch.allclose(made(x), other(x))


@pytest.mark.parametrize(
    ("name", "kinds", "nodes"),
    [
        # The first blocks of stages have their own channels in what fills them up with zeros, so a type each.
        (
            "resnet20",
            {"BasicBlock": (0, 1, 2, 4, 5, 7, 8), "BasicBlock 2": (3,), "BasicBlock 3": (6,)},
            ["conv", "batch_norm", "relu", "conv", "batch_norm"],
        ),
        ("cnn", {"ConvBlock": (0, 1)}, ["conv", "relu", "average_pool"]),
        ("vit_tiny", {"Layer": (0, 2, 4, 6), "Layer 2": (1, 3, 5, 7)}, ["layer_norm", "self_attention"]),
    ],
)
def test_blocks_of_traced_networks(name: str, kinds: dict[str, tuple[int, ...]], nodes: list[str]) -> None:
    known = BACKBONES[name]
    net = known.build().eval()
    found = find_blocks(sl.alpha.trace(net, known.example()))
    assert found.kinds == kinds
    first = found.blocks[0]
    assert [first.graph.nodes[number].operation.name for number in sorted(first.mutable)] == nodes
    x = torch.randn(2, 3, 32, 32)
    # float32: another order of sums in 20 layers of values around 1.
    assert torch.allclose(found.graph.to_torch()(x), net(x), rtol=1e-4, atol=1e-4)


def test_blocks_need_a_network() -> None:
    with pytest.raises(SpecError, match=r"expected a graph of sl.alpha.trace, or the classes of modules"):
        find_blocks(Graph.chain((2, 3), [operation("relu")]))
