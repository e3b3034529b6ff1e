"""What a network does beside calls of layers and functions is kept by its graph, or refused by name."""

from __future__ import annotations

import copy
import random
import sys
import threading
from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.checkpoint import checkpoint

import syno_lab as sl
from syno_lab.alpha.blocks import find_blocks, why_none
from syno_lab.alpha.compared import _difference, _Pass, check_same
from syno_lab.alpha.space import NetworkSpace
from syno_lab.alpha.tracing import uncompared
from syno_lab.errors import SpecError
from syno_lab.protocol import SpaceRequest

Made = Callable[[], nn.Module]
SHAPE = (4, 8, 8)


class Net(nn.Module):
    """Two convolutions, and a function of them and an image."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.a, self.b = conv(), conv()
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def conv() -> nn.Conv2d:
    return nn.Conv2d(4, 4, 3, padding=1)


def chain(net: Any, x: Tensor) -> Tensor:
    return net.b(net.a(x).relu())


def one_pass(net: nn.Module, x: Tensor, training: bool) -> tuple[list[Tensor], dict[str, Tensor | None]]:
    net.train(training).zero_grad()
    torch.manual_seed(3)
    given = net(x)
    outputs = [given] if isinstance(given, Tensor) else list(given)
    with_gradients = [y for y in outputs if y.requires_grad]
    if with_gradients:
        sum((y * torch.linspace(0.5, 1.5, y.numel()).view(y.shape)).abs().sum() for y in with_gradients).backward()
    return outputs, {name: each.grad for name, each in net.named_parameters()}


def check(net: nn.Module, inner: nn.Module | None = None) -> Any:
    """The graph has the outputs and gradients of the network, none where it has none; ``inner``: without wrappers."""
    graph = sl.alpha.trace(net.eval(), SHAPE)
    made, x = graph.to_torch(), torch.randn(3, *SHAPE)
    for training in (False, True):
        (wanted, gradients), (found, others) = (one_pass(each, x, training) for each in (inner or net, made))
        for one, two in zip(wanted, found, strict=True):
            assert torch.allclose(one, two, atol=1e-4)
        for name, gradient in gradients.items():
            other = others.get(name)
            assert (gradient is None) == (other is None), name
            assert gradient is None or torch.allclose(gradient, other, rtol=1e-3, atol=1e-3), name
    return graph


# -- networks ----------------------------------------------------------------------------------------------------------


@torch.jit.script
def softplus(x):  # type: ignore[no-untyped-def]
    return torch.log(1 + torch.exp(x))


def scripted_part() -> nn.Module:
    part = torch.jit.script(nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.SiLU()))
    return Net(lambda net, x: net.part(chain(net, x)), part=part)


def traced_part() -> nn.Module:
    part = torch.jit.trace(nn.Sequential(nn.Conv2d(4, 4, 1), nn.SiLU()), torch.randn(2, *SHAPE))
    return Net(lambda net, x: net.part(chain(net, x)), part=part)


def with_hook(name: str, hook: Callable[..., Any], on: str = "b", **options: Any) -> nn.Module:
    net = Net(lambda net, x: net.part(net.b(input=net.a(x))), part=nn.Sequential(conv(), nn.ReLU()))
    getattr(net.get_submodule(on), name)(hook, **options)
    return net


def called_by_name(module: nn.Module, args: Any, named: dict[str, Tensor]) -> Any:
    return args, {"input": named["input"] * 3}


def in_region(region: Callable[[], Any], after: Callable[[Tensor], Tensor] = lambda x: x) -> nn.Module:
    def function(net: Any, x: Tensor) -> Tensor:
        with region():
            x = net.a(x).relu()
        return net.b(after(x))

    return Net(function)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return -gradients[0] * ctx.factor, None


class InNumpy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.from_numpy(x.detach().numpy() * 2)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * 7


class TakesLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: nn.Module) -> Tensor:
        return layer(x)


@torch.library.custom_op("syno_lab_tests::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return torch.from_numpy(x.detach().numpy() * 2)


twice.register_autograd(lambda ctx, gradient: gradient * 2)


def in_encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def function(net: Any, x: Tensor) -> Tensor:
        x = net.a(x).flatten(2)[:, :, :8]
        return net.part(x, src_key_padding_mask=x.sum(-1) < -9)

    return Net(function, part=nn.TransformerEncoder(layer, 2))


def profiled(net: Any, x: Tensor) -> Tensor:
    with torch.profiler.record_function("stem"), torch.autograd.profiler.record_function("a"):
        x = net.a(x)
    return net.b(x)


def with_zeros() -> nn.Module:
    """A head of zeros hides all that is before it."""
    net = Net(lambda net, x: net.head(softplus(chain(net, x)).mean((2, 3))), head=nn.Linear(4, 3))
    nn.init.zeros_(net.head.weight)
    return net


def weighted(kind: Callable[[nn.Module], nn.Module]) -> nn.Module:
    net = Net(lambda net, x: net.part(chain(net, x)), part=kind(conv()))
    net(torch.randn(2, *SHAPE))  # its weight is now what a forward computed
    return net


KEPT: dict[str, tuple[Made, str | None]] = {
    "a scripted function": (lambda: Net(lambda net, x: net.b(softplus(net.a(x)))), "softplus"),
    "a scripted module": (scripted_part, "RecursiveScriptModule"),
    "a traced module": (traced_part, "TopLevelTracedModule"),
    "a hook": (lambda: with_hook("register_forward_hook", lambda m, x, y: y * 10), "Conv2d"),
    "a hook of a block": (
        lambda: with_hook("register_forward_hook", lambda m, x, y: y + x[0], "part"),
        "Sequential",
    ),
    "a hook of all": (lambda: with_hook("register_forward_hook", lambda m, x, y: y * 3 + x[0], ""), "Conv2d"),
    "a hook before": (
        lambda: with_hook("register_forward_pre_hook", called_by_name, with_kwargs=True),
        "Conv2d",
    ),
    "a backward hook": (
        lambda: with_hook("register_full_backward_hook", lambda m, x, y: (x[0] * 5,), "part.0"),
        "Conv2d",
    ),
    "no_grad": (lambda: in_region(torch.no_grad), "Conv2d"),
    "set_grad_enabled": (lambda: in_region(lambda: torch.set_grad_enabled(False)), "Conv2d"),
    "inference_mode": (lambda: in_region(torch.inference_mode, torch.clone), "clone"),
    "autocast": (
        lambda: in_region(lambda: torch.autocast("cpu", torch.bfloat16), torch.Tensor.float),
        "float",
    ),
    "detach": (lambda: Net(lambda net, x: net.b(net.a(x).detach()) + net.a(x).data), "detach"),
    "an autograd function": (lambda: Net(lambda net, x: net.b(Reversed.apply(net.a(x), 2.0))), "Reversed"),
    "one in NumPy": (lambda: Net(lambda net, x: net.b(InNumpy.apply(net.a(x)))), "InNumpy"),
    "an operator of one's own": (lambda: Net(lambda net, x: net.b(twice(net.a(x)))), "twice"),
    "an operator of torch.ops": (lambda: Net(lambda net, x: torch.ops.aten.exp(chain(net, x))), "exp"),
    "checkpoint": (lambda: Net(lambda net, x: checkpoint(net.b, net.a(x), use_reentrant=False)), None),
    "reentrant checkpoint": (lambda: Net(lambda net, x: checkpoint(net.b, net.a(x), use_reentrant=True)), None),
    "vmap": (lambda: Net(lambda net, x: torch.vmap(lambda y: y.relu().sum(0) * y)(chain(net, x))), "sum"),
    "constants of NumPy": (
        lambda: Net(lambda net, x: chain(net, x) * torch.from_numpy(np.linspace(0, 1, 8, dtype="f"))),
        None,
    ),
    "weight_norm": (lambda: weighted(nn.utils.weight_norm), "Conv2d"),
    "spectral_norm": (lambda: weighted(nn.utils.spectral_norm), "Conv2d"),
    "a parametrization": (lambda: weighted(nn.utils.parametrizations.weight_norm), "ParametrizedConv2d"),
    "momentum None": (lambda: Net(lambda net, x: net.part(chain(net, x)), part=nn.BatchNorm2d(4, momentum=None)), None),
    "running statistics": (
        lambda: Net(lambda net, x: net.part(chain(net, x)), part=nn.InstanceNorm2d(4, track_running_stats=True)),
        "InstanceNorm2d",
    ),
    "an encoder with a mask": (in_encoder, "TransformerEncoder"),
    "complex numbers": (lambda: Net(lambda net, x: torch.fft.rfft(chain(net, x)).abs()), "fft_rfft"),
    "a cache that is empty": (
        lambda: Net(lambda net, x: net.b(torch.cat([torch.tensor([], dtype=x.dtype, device=x.device), net.a(x)], 1))),
        "cat",
    ),
    "profiling": (lambda: Net(profiled), None),
    "a head of zeros": (with_zeros, "softplus"),
    "chance": (lambda: Net(lambda net, x: functional.dropout(chain(net, x), 0.3, net.training)), None),
}


@pytest.mark.parametrize("name", KEPT)
def test_it_is_kept(name: str) -> None:
    make, what = KEPT[name]
    graph = check(make())
    opaque = [node.operation["what"] for node in graph.nodes if node.operation.name == "opaque"]
    assert what in opaque if what else not {"Conv2d", "Sequential"} & set(opaque)


def counted(net: Any, x: Tensor) -> Tensor:
    net.count = net.count + 1
    return chain(net, x)


def remembering(net: Any, x: Tensor) -> Tensor:
    y = chain(net, x) + (0 if net.last is None else net.last)
    net.last = y.detach()
    return y


def differentiated(net: Any, x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(chain(net, x).square().sum(), x, create_graph=True)[0]


def failing_later() -> nn.Module:
    """It is another with values, and its copies fail where they are called once more."""
    calls: list[int] = []

    def function(net: Any, x: Tensor) -> Tensor:
        calls.extend([] if x.is_meta else [1])
        return chain(net, x) * (1 if x.is_meta else 2 if len(calls) < 2 else {}["late\nfault"])

    return Net(function)


def hooked(net: Any, x: Tensor) -> Tensor:
    y = chain(net, x)
    if y.requires_grad:
        y.register_hook(lambda gradient: gradient * 2)
    return y


def with_weight_hook() -> nn.Module:
    net = Net(chain)
    net.a.weight.register_hook(lambda gradient: gradient * 2)
    return net


REFUSED: dict[str, tuple[Made, str]] = {
    "a buffer": (lambda: Net(counted, count=torch.zeros(())), "that the network sets count"),
    "a state": (lambda: Net(remembering, last=None), "in training .* its outputs depend on earlier calls"),
    "training": (
        lambda: Net(lambda net, x: chain(net, x) * 2 if net.training else chain(net, x)),
        "in training what the network does, found outputs that are .* of their spread apart",
    ),
    "more outputs in training": (
        lambda: Net(lambda net, x: (net.a(x), chain(net, x)) if net.training else net.a(x)),
        r"in training .*, found outputs of \[\[2, 4, 8, 8\]\] for",
    ),
    "gradients": (lambda: Net(differentiated), "computes no gradients, found torch.autograd.grad"),
    "a hook of a tensor": (lambda: Net(hooked), "no hook of a tensor"),
    "a hook of a weight": (with_weight_hook, "found a hook of a.weight: remove it first"),
    "a hook of all": (
        lambda: with_hook("register_full_backward_hook", lambda *_: None, ""),
        "no backward hook of the whole network",
    ),
    "a function that takes a layer": (
        lambda: Net(lambda net, x: TakesLayer.apply(net.a(x), net.b)),
        "for TakesLayer, found a Conv2d",
    ),
    "weights that are put in": (
        lambda: Net(lambda net, x: torch.func.functional_call(net.b, {"weight": net.b.weight * 2}, (net.a(x),))),
        "in evaluation .*, first in b: ",
    ),
    "values": (lambda: Net(lambda net, x: torch.from_numpy(net.a(x).detach().numpy())), "no decision by the values"),
    "TorchScript": (lambda: torch.jit.script(nn.Sequential(conv(), nn.ReLU())), "before torch.jit"),
    "lazy": (lambda: nn.Sequential(nn.LazyConv2d(4, 3)), "run one example through it first"),
    "an error of its own": (lambda: Net(lambda net, x: {}["key"]), r"found: KeyError: 'key', at test_kept_in_traces"),
    "an error of a later call": (failing_later, "in evaluation what the network does, found outputs that are"),
    "an exit": (lambda: Net(lambda net, x: sys.exit(3)), "found: SystemExit: 3, at test_kept_in_traces"),
    "a lock": (
        lambda: Net(chain, lock=threading.Lock()),
        "a network that can be copied, found this Net: TypeErr.*; take that out",
    ),
}


class Method(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = conv()

    @torch.jit.export
    def linear(self, x: Tensor) -> Tensor:
        return self.conv(x)


def with_a_foreign_weight() -> nn.Module:
    other, net = conv(), Net(chain)
    net.b.register_forward_hook(lambda module, given, y: y * other.weight.sum())
    return net


REFUSED |= {
    "chance in evaluation": (
        lambda: Net(lambda net, x: functional.dropout(chain(net, x), 0.5, training=True)),
        "in evaluation .*, found that it draws at random in another way",
    ),
    "a weight from elsewhere": (with_a_foreign_weight, "a foreign weight in a function or a hook, in b"),
    "a method of TorchScript": (
        lambda: Net(lambda net, x: net.part.linear(chain(net, x)), part=torch.jit.script(Method())),
        "in evaluation what the network does, found",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(SpecError, match=message) as refused:
        sl.alpha.trace(make(), SHAPE)
    assert "\n" not in str(refused.value)


# -- around and within -------------------------------------------------------------------------------------------------


def test_what_adds_nothing_is_looked_through() -> None:
    net = Net(chain)
    for wrapper in (nn.DataParallel(net), torch.compile(net, backend="eager"), torch.compile(nn.DataParallel(net))):
        assert check(wrapper, net) == sl.alpha.trace(net, SHAPE)
    for part in (nn.DataParallel(conv()), torch.compile(nn.Sequential(conv(), nn.ReLU()), backend="eager")):
        graph = check(Net(lambda net, x: net.part(chain(net, x)), part=part))
        assert "opaque" not in [node.operation.name for node in graph.nodes]
    assert check(nn.Sequential(nn.Identity(), nn.Sequential(Net(chain)))).nodes


def test_hooks_of_all_modules_stay_out_of_graphs() -> None:
    handle = register_module_forward_hook(lambda module, given, y: None)
    try:
        graph = check(Net(chain))
    finally:
        handle.remove()
    assert [node.operation.name for node in graph.nodes] == ["conv", "relu", "conv"]


def test_a_network_is_afterwards_as_before() -> None:
    net = Net(
        lambda net, x: net.part(net.norm(chain(net, x))), part=nn.utils.weight_norm(conv()), norm=nn.BatchNorm2d(4)
    )
    net(torch.randn(2, *SHAPE)).sum().backward()
    net.train().a.eval()
    net.b.requires_grad_(False)

    def state() -> list[Any]:
        tensors = [*net.state_dict().values(), net.part.weight, *(each.grad for each in net.parameters())]
        return [None if each is None else each.detach().clone() for each in tensors]

    before, modes = state(), [each.training for each in net.modules()]
    chance = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    with torch.no_grad():
        sl.alpha.trace(net, SHAPE)
    for one, two in zip(before, state(), strict=True):
        assert one is two is None or torch.equal(one, two)
    assert [each.training for each in net.modules()] == modes
    assert [each.requires_grad for each in net.b.parameters()] == [False, False]
    assert torch.equal(chance[0], torch.get_rng_state())
    assert chance[1] == random.getstate()
    assert np.array_equal(chance[2], np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (lambda net, x: net.b(net.a(x).relu()) * 1.01, "outputs that are"),
        (lambda net, x: net.b(net.a(x).relu().detach()), "a gradient of input 0 where the network has none"),
        (lambda net, x: net.b(net.a(x).relu().expand(-1, 4, -1, -1))[:, :2], "outputs of"),
        (lambda net, x: net.b(net.a(x).relu()).double(), "outputs that are"),
    ],
)
def test_a_graph_of_another_network_is_told(after: Callable[..., Any], found: str) -> None:
    """The comparison itself: a network that changes after its graph was made."""
    net = Net(chain)
    graph, seen = uncompared(net, SHAPE)
    check_same(graph, seen, SHAPE)
    net.function = after
    with pytest.raises(SpecError, match=f"does in evaluation what the network does, found {found}"):
        check_same(graph, seen, SHAPE)


def test_networks_without_values_are_compared_with_drawn_ones() -> None:
    with torch.device("meta"):
        net = Net(lambda net, x: net.norm(chain(net, x)), norm=nn.BatchNorm2d(4))
    graph, seen = uncompared(net, SHAPE)
    check_same(graph, seen, SHAPE)
    net.function = lambda net, x: chain(net, x)
    with pytest.raises(SpecError, match="outputs that are"):
        check_same(graph, seen, SHAPE)


def test_tokens_are_drawn_as_embeddings_take_them() -> None:
    net = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 3))
    made = sl.alpha.trace(net, torch.zeros(1, 5, dtype=torch.int64)).to_torch()
    x = torch.randint(7, (2, 5))
    assert torch.allclose(made(x), net(x), atol=1e-6)


# -- blocks ------------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = conv()

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).relu()


def test_blocks_before_a_scripted_function_are_found() -> None:
    net = Net(lambda net, x: softplus(net.second(net.first(net.a(x)))), first=Block(), second=Block())
    assert [block.kind for block in find_blocks(check(net)).blocks] == ["Block", "Block"]


def test_why_there_are_no_blocks_is_true() -> None:
    def of(block: Made, function: Callable[..., Any] = lambda net, x: net.second(net.first(x))) -> str:
        net = Net(function, first=block(), second=block())
        return why_none(sl.alpha.trace(net, SHAPE))

    def with_a_hook() -> nn.Module:
        block = Block()
        block.register_forward_hook(lambda module, given, y: y * 2)
        return block

    assert of(with_a_hook) == "first (Block) is kept as it is, for it has TorchScript, hooks or unknown calls: 'Block'"
    assert "first (RecursiveScriptModule) is kept as it is" in of(lambda: torch.jit.script(Block()))
    assert "no such class has parts" in of(conv)
    net = Net(lambda net, x: net.second(net.first(x)), first=with_a_hook(), second=with_a_hook())
    with pytest.raises(SpecError, match=r"that may be changed, found none: first \(Block\) is kept as it is"):
        NetworkSpace(SpaceRequest([], "pool", 10**12, None, {}, {}, network=lambda: (net, SHAPE)))
    around = of(Block, lambda net, x: torch.cat((net.first(x), net.second(x), x), 1))
    assert around == "first (Block) has several input or output tensors, or shares tensors"


def test_what_a_network_keeps_in_evaluation_stays_there() -> None:
    class Frozen(Net):
        def train(self, mode: bool = True) -> Frozen:
            super().train(mode)
            self.norm.eval()
            return self

    check(Frozen(lambda net, x: net.norm(chain(net, x)), norm=nn.BatchNorm2d(4)))

    class Answers(Net):
        def train(self, mode: bool = True) -> Answers:
            super().train(False)
            return self

    check(Answers(lambda net, x: functional.dropout(chain(net, x), 0.5, net.training)))


def test_chance_that_a_graph_does_not_have_is_said() -> None:
    def function(net: Any, x: Tensor) -> Tensor:
        y = chain(net, x)
        return y * y.new_empty(len(x), 4, 1, 1).bernoulli_(0.5) if net.training else y

    with pytest.warns(UserWarning, match="Net draws at random in training"):
        sl.alpha.trace(Net(function), SHAPE)


def test_tensors_without_elements_are_constants() -> None:
    check(Net(lambda net, x: torch.cat((torch.tensor([]), chain(net, x)))))


@pytest.mark.parametrize("region", [torch.no_grad, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_regions_compile(region: Callable[[], Any]) -> None:
    made, x = sl.alpha.trace(in_region(region, torch.Tensor.float), SHAPE).to_torch(), torch.randn(2, *SHAPE)
    compiled = torch.compile(made, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(x), made(x), atol=1e-2)


def test_copies_of_a_module_keep_what_is_kept() -> None:
    made = sl.alpha.trace(in_region(torch.no_grad), SHAPE).to_torch()
    x = torch.randn(2, *SHAPE)
    assert torch.equal(copy.deepcopy(made)(x), made(x))


def test_a_network_that_has_answered_before_is_traced() -> None:
    """It keeps for evaluations what it computes from a weight, until it is trained, as attention with biases does."""

    class Keeping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.biases = conv(), nn.Parameter(torch.zeros(4))
            self.kept: Tensor | None = None

        def train(self, mode: bool = True) -> nn.Module:
            if mode:
                self.kept = None
            return super().train(mode)

        def forward(self, x: Tensor) -> Tensor:
            biases = self.biases.exp() if self.kept is None else self.kept
            if not self.training:
                self.kept = biases
            return self.a(x) * biases[:, None, None]

    net = Keeping().eval()
    with torch.no_grad():
        net(torch.randn(1, *SHAPE))
    kept = net.kept
    sl.alpha.trace(net, SHAPE)
    assert net.kept is kept


def test_an_infinite_gradient_hides_no_other_difference() -> None:
    outputs = [torch.tensor([1.0, 2.0])]
    endless = torch.tensor([inf, 0.0])
    wanted = _Pass(outputs, {"a": endless, "b": torch.tensor([1.0, 2.0])})
    assert _difference(wanted, _Pass(outputs, {"a": endless, "b": torch.tensor([1.0, 2.0])}))[0] == ""
    assert "gradient of b" in _difference(wanted, _Pass(outputs, {"a": endless, "b": torch.tensor([9.0, -5.0])}))[0]


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_what_only_training_does_is_refused_beside_dropout_too(rate: float) -> None:
    class Doubles(nn.Module):
        def __init__(self, doubles: bool) -> None:
            super().__init__()
            self.body, self.head, self.doubles = nn.Conv2d(SHAPE[0], 4, 3), nn.Linear(4, 2), doubles
            self.drop = nn.Dropout(rate)

        def forward(self, x: Tensor) -> Tensor:
            y = self.drop(self.body(x).mean((2, 3)))
            return self.head(self.drop(y * 2 if self.training and self.doubles else y))

    with pytest.raises(SpecError, match="does in training what the network does"):
        sl.alpha.trace(Doubles(True), SHAPE)
    sl.alpha.trace(Doubles(False), SHAPE)
