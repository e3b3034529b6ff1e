"""Classes of generated source: importable, one for each text, compiled inside anything, and freed."""

from __future__ import annotations

import gc
import importlib
import inspect
import linecache
import re
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import syno_lab as sl
from syno_lab.alpha import Graph, operation
from syno_lab.alpha.known import KNOWN as NETWORKS
from syno_lab.alpha.operator import NetworkOperator
from syno_lab.canvas.fitted import Fitted
from syno_lab.canvas.known import KNOWN as KERNELS
from syno_lab.cli import main
from syno_lab.effort import memory_error
from syno_lab.errors import TooLargeError
from syno_lab.generated import class_of
from syno_lab.nas_pte.operator import NAS_PTE
from syno_lab.protocol import Operator

SIZES = {"N": 2, "C_in": 8, "C_out": 8, "H": 6, "W": 4}
OPERATORS: dict[str, Callable[[], Operator]] = {
    **sl.operators.KNOWN,
    **NAS_PTE,
    **{f"canvas_{name}": lambda make=make: Fitted(make()) for name, make in KERNELS.items()},  # type: ignore[misc]
    **NETWORKS,
}
SYSTEMS = ("operator_1", "nas_pte_1", "canvas_figure_6", "attention_block", "separable_block")


def made(name: str) -> tuple[nn.Module, torch.Tensor]:
    """The module of a known operator and an input."""
    operator: Any = OPERATORS[name]()
    values = {**SIZES, "C": 8, "M": 3, "K": 6, "L": 6, "T": 5, "groups": 2, "kernel_size": 3}
    if name in NAS_PTE:
        values |= {"C_in": 32, "C_out": 64}
    spec = getattr(operator, "spec", None)
    names = spec.symbols.names if spec is not None else tuple(values)
    known = {} if spec is None else spec.defaults
    binding = {v: values.get(v, known.get(v, 4)) for v in names}
    if name in NETWORKS:
        binding = {"N": 2}
    elif name.startswith("canvas_"):
        binding = {v: binding[v] for v in (*SIZES, "groups", "kernel_size")}
    torch.manual_seed(0)
    return operator.to_torch(binding), torch.randn(operator.input_sizes(operator.complete_binding(binding)))


def all_of(module: Callable[[torch.Tensor], torch.Tensor], net: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """The output, and the gradients of the input and of all weights."""
    given = x.clone().requires_grad_()
    y = module(given)
    return [y, *torch.autograd.grad((y * y.detach().cos()).sum(), [given, *net.parameters()])]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# -- torch.compile -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_module_compiles_inside_another(name: str) -> None:
    module, x = made(name)
    net = nn.Sequential(module, nn.Tanh())
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    for mode in (True, False):
        net.train(mode)
        torch.testing.assert_close(all_of(compiled, net, x), all_of(net, net, x), rtol=1e-4, atol=1e-5)
    for batch in (3, 5):  # the second one is compiled for any batch
        larger = torch.randn(batch, *x.shape[1:])
        torch.testing.assert_close(compiled(larger), net(larger), rtol=1e-4, atol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(x), net(x), rtol=3e-2, atol=3e-2)


def test_what_is_computed_again_compiles_too() -> None:
    operator = sl.operators.operator_1()
    net = nn.Sequential(operator.to_torch(SIZES, recompute=True), nn.Tanh())
    x = torch.randn(2, 8, 6, 4)
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(all_of(compiled, net, x), all_of(net, net, x), rtol=1e-4, atol=1e-5)


HELPER = """
from torch import nn

def helper(x):
    return x * {factor}

class SynoOperator(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return helper(x) + 1
"""


def test_helpers_of_the_same_name_are_told_apart() -> None:
    """A compiled network that reads another text's helper gives another number, and no error."""
    one, two = (class_of(HELPER.format(factor=factor))() for factor in (2, 5))
    x = torch.ones(3)
    compiled = torch.compile(lambda x: two(one(x)) - one(two(x)), fullgraph=True, backend="eager")
    assert compiled(x).tolist() == [16.0 - 13.0] * 3
    with torch.no_grad():
        both = nn.Sequential(two, one)
        assert torch.compile(both, fullgraph=True, backend="eager")(x).tolist() == [13.0] * 3


def test_two_networks_and_two_operators_in_one_compiled_function() -> None:
    convolved = operation("conv", features=8)
    pooled = operation("average_pool", window=2, stride=2)
    shape = (2, 8, 8, 4)
    chains = [
        NetworkOperator.of_graph(Graph.chain(shape, [convolved, operation("relu"), pooled])),
        NetworkOperator.of_graph(Graph.chain(shape, [convolved, operation("max_pool", window=2, stride=2)])),
    ]
    first, second = (chain.to_torch().eval() for chain in chains)
    sizes = {"N": 2, "C_in": 8, "C_out": 8, "H": 4, "W": 4}
    third, fourth = (made.to_torch(sizes) for made in (sl.operators.conv2d(), Fitted(KERNELS["figure_6"]())))

    def all_four(x: torch.Tensor) -> torch.Tensor:
        images = (first(x) - second(x)).movedim(-1, 1)
        return fourth(third(images)) + third(images)

    x = torch.randn(shape)
    torch.testing.assert_close(torch.compile(all_four, fullgraph=True, backend="aot_eager")(x), all_four(x))


@pytest.mark.parametrize("name", ["conv2d", "nas_pte_1", "canvas_convolution"])
def test_as_many_sizes_compile_as_there_are(name: str) -> None:
    """Dynamo compiles one function eight times at most; each text has a function of its own."""
    operator = OPERATORS[name]()
    for height in range(3, 13):
        module: Any = operator.to_torch({**SIZES, "C_in": 16, "C_out": 16, "H": height})
        x = torch.randn(2, 16, height, 4)
        torch.testing.assert_close(torch.compile(module, fullgraph=True, backend="eager")(x), module(x))


# -- a name, and a life ------------------------------------------------------------------------------------------------


def test_a_class_is_found_by_its_name() -> None:
    one, other = (sl.operators.conv2d().to_torch({**SIZES, "H": height}) for height in (6, 7))
    again = sl.operators.conv2d().to_torch(SIZES)
    assert type(one) is type(again)
    assert one.weight_1 is not again.weight_1
    assert type(one) is not type(other)
    for module in (one, other):
        found = importlib.import_module(type(module).__module__)
        assert found.SynoOperator is type(module)
        assert found.nn is nn
        assert not hasattr(found, "of_no_text")
        assert inspect.getsource(type(module)).startswith("class SynoOperator(nn.Module):")


def test_a_traceback_shows_the_line() -> None:
    module: Any = sl.operators.conv2d().to_torch(SIZES)
    with pytest.raises(ValueError, match="expected an input of shape") as caught:
        module(torch.zeros(1, 2, 3, 4))
    assert "raise ValueError(f" in "".join(traceback.format_exception(caught.value))


def test_threads_get_the_same_class() -> None:
    with ThreadPoolExecutor(8) as pool:
        for factor in range(20):
            text = HELPER.format(factor=factor + 0.25)
            assert len(set(pool.map(class_of, [text] * 8))) == 1


def names_held() -> set[str]:
    gc.collect()
    return {name for name in (*sys.modules, *linecache.cache) if "syno_lab.generated." in name}


def test_a_class_is_freed_with_its_last_module() -> None:
    before = names_held()
    kinds: list[weakref.ref[type]] = []
    for height in range(60):
        for name in ("conv2d", "nas_pte_1", "canvas_convolution"):
            sizes = {**SIZES, "C_in": 16, "C_out": 16, "H": 20 + height}
            kinds.append(weakref.ref(type(OPERATORS[name]().to_torch(sizes))))
        graph = Graph.chain((1, 20 + height, 4, 8), [operation("conv", features=8), operation("relu")])
        kinds.append(weakref.ref(type(NetworkOperator.of_graph(graph).to_torch())))
    assert len(kinds) == 240
    assert not names_held() - before
    assert not any(kind() for kind in kinds)


@pytest.mark.parametrize("name", ["conv2d", "canvas_convolution", "separable_block"])
def test_a_compiled_class_is_freed_and_made_again(name: str) -> None:
    """Dynamo keeps what it imported for good; that keeps no class, and a class of the same text is not the old one."""
    before = names_held()
    for _ in range(2):
        module, x = made(name)
        net = nn.Sequential(module).eval()
        compiled = torch.compile(net, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), module(x))
        kind = weakref.ref(type(module))
        del module, net, compiled
        torch._dynamo.reset()
        assert not names_held() - before
        assert kind() is None


# -- memory formats ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("form", [torch.channels_last, torch.channels_last_3d], ids=["2d", "3d"])
def test_memory_formats_are_for_weights_that_can_have_them(name: str, form: torch.memory_format) -> None:
    module, x = made(name)
    axes = 4 if form is torch.channels_last else 5
    with torch.no_grad():
        wanted = module.eval()(x)
        module.to(memory_format=form)
        torch.testing.assert_close(module(x), wanted, rtol=1e-4, atol=1e-5)
        if x.dim() == axes:
            torch.testing.assert_close(module(x.to(memory_format=form)), wanted, rtol=1e-4, atol=1e-5)
    for weight in module.parameters():
        assert weight.dim() != axes or weight.is_contiguous(memory_format=form)
    module.to(torch.float64, memory_format=form)
    assert {weight.dtype for weight in module.parameters()} <= {torch.float64}


def test_source_for_other_projects_has_memory_formats_too() -> None:
    operator = sl.operators.operator_1()
    names: dict[str, Any] = {}
    exec(operator.to_torch_source(SIZES), names)
    module = names["SynoOperator"]()
    module.load_state_dict(operator.to_torch(SIZES).state_dict())
    x = torch.randn(2, 8, 6, 4)
    wanted = module(x)
    assert torch.equal(module.to(torch.float32, memory_format=torch.channels_last)(x), wanted)
    assert module.to(torch.float64, memory_format=torch.channels_last).weight_1.dtype is torch.float64


def test_other_faults_of_a_conversion_stay() -> None:
    module: Any = sl.operators.operator_1().to_torch(SIZES)

    def refuse(tensor: torch.Tensor) -> torch.Tensor:
        raise RuntimeError(f"no room for {tensor.dim()} axes")

    with pytest.raises(RuntimeError, match="no room"):
        module._apply(refuse)


# -- more than there is room for ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["conv2d", "nas_pte_1"])
def test_weights_that_no_memory_holds_are_refused_with_their_size(name: str) -> None:
    sizes = {**SIZES, "C_in": 1 << 20, "C_out": 1 << 20}
    operator = OPERATORS[name]()
    size = f"{4 * operator.params(sizes) / 2**30:,.1f} GiB"
    with pytest.raises(TooLargeError, match=rf"^weights: expected at most .* is free here, found {size}; bind smaller"):
        operator.to_torch(sizes)
    with torch.device("meta"):
        assert sum(weight.numel() for weight in operator.to_torch(sizes).parameters()) == operator.params(sizes)


def test_a_network_that_no_memory_holds_is_refused() -> None:
    graph = Graph.chain((1, 4), [operation("dense", features=4), operation("dense", features=1 << 43)])
    with pytest.raises(TooLargeError, match=r"found 163,840\.0 GiB"):
        NetworkOperator.of_graph(graph).to_torch()
    with pytest.raises(TooLargeError, match=r"the weights of node 1: .*, found 163,840\.0 GiB"):
        graph.to_torch()


def test_an_output_that_no_memory_holds_is_refused() -> None:
    operator = sl.operators.upsample_nearest()
    binding = {"N": 1, "C": 1, "H": 2, "W": 2, "s": 1 << 20}
    with pytest.raises(TooLargeError, match=r"the output: .* found 32,768.0 GiB"):
        operator.reference(np.ones((1, 1, 2, 2)), binding=binding)


@pytest.mark.parametrize(
    "arguments",
    [
        "export conv2d --bind N=1 --bind C_in=1000003 --bind C_out=1000003 --bind H=4 --bind W=4 --out FILE.onnx",
        "export conv2d --bind N=1 --bind C_in=1000003 --bind C_out=1000003 --bind H=4 --bind W=4 --out FILE.py",
        "export conv1x1 --bind N=1 --bind C_in=4 --bind C_out=4 --bind H=1000000 --bind W=1000003 --out FILE.pt2",
        "show conv1x1 --bind N=1 --bind C_in=4 --bind C_out=4 --bind H=1000000 --bind W=1000003 --as receptive-field",
    ],
)
def test_commands_refuse_what_no_memory_holds(
    arguments: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments.replace("FILE", str(tmp_path / "big")).split()) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    too_large = (
        r"(found [\d,.]+ GiB|allocate [\d.]+ \w+).*; bind smaller sizes|at most [\d,]+ elements .*: give smaller sizes"
    )
    assert re.search(f"({too_large})$", said)
    assert not list(tmp_path.iterdir())


def test_failed_allocations_of_libraries_are_told() -> None:
    with pytest.raises(RuntimeError) as torchs:
        torch.empty(1 << 50)
    with pytest.raises(MemoryError) as numpys:
        np.empty(1 << 50)
    for caught in (torchs, numpys):
        assert re.search(r"found: .*allocate.*; bind smaller sizes$", str(memory_error(caught.value)))
    assert memory_error(RuntimeError("expected 4 axes")) is None
    assert memory_error(ValueError("out of memory")) is None
