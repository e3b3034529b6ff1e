"""INT8 by torch's quantisation: the twins compute what the operators compute, and INT8 what the twins do, nearly."""

from __future__ import annotations

import pytest
import torch
from int8_twins import compare_int8, int8, twin, with_int8
from torch import nn

import syno_lab as sl
from syno_lab.errors import SynoError
from syno_lab.models import find_convolutions, resnet_tiny
from syno_lab.models.slot import put_in

#: Of eight bits for each number, the error of a sum of many terms; far from what a wrong axis would give (about 1.4).
ERROR = 0.05
CASES = {
    "conv2d": (sl.operators.conv2d, {}),
    "operator_1": (sl.operators.operator_1, {"g": 4, "s": 2}),
    "operator_1, five columns": (sl.operators.operator_1, {"g": 2, "s": 2, "k_1": 5}),
}


def made(name: str, **more: object) -> tuple[nn.Module, list[torch.Tensor]]:
    torch.manual_seed(0)
    operator, sizes = CASES[name]
    module = operator().to_torch({"N": 1, "C_in": 8, "C_out": 16, "H": 6, "W": 10, **sizes}, **more)
    return module.eval(), [torch.randn(2, 8, 6, 10) for _ in range(3)]


@pytest.mark.parametrize("name", CASES)
def test_a_twin_computes_the_same(name: str) -> None:
    module, (x, *_) = made(name, scale=0.5)
    with torch.no_grad():
        assert torch.allclose(twin(module, x)(x), module(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_int8_is_near(name: str) -> None:
    module, examples = made(name)
    before = torch.backends.quantized.engine
    quantised = int8(module, examples)
    assert torch.backends.quantized.engine == before
    weights = [one.weight() for one in quantised.modules() if isinstance(one, torch.ao.nn.quantized.Conv2d)]
    assert weights
    assert {one.dtype for one in weights} == {torch.qint8}
    found = compare_int8(module, examples, rounds=2, calls=1)
    assert 0 < found.error < ERROR
    assert found.speedup == pytest.approx(found.float_ms / found.int8_ms)


def test_a_network_with_int8_in_it() -> None:
    torch.manual_seed(0)
    net = resnet_tiny(10, width=8).eval()
    sites = [site for site in find_convolutions(net, (3, 8, 8)) if site.in_channels > 3]
    net, _ = put_in(net, sites, sl.operators.operator_1())
    images = torch.randn(16, 3, 8, 8)
    found = with_int8(net, images)
    with torch.no_grad():
        expected, got = net(images), found(images)
    assert 0 < float((got - expected).norm() / expected.norm()) < 2 * ERROR
    assert sum(isinstance(one, torch.ao.nn.quantized.Conv2d) for one in found.modules()) == 4 * len(sites)


def test_refusals() -> None:
    torch.manual_seed(0)
    other = sl.operators.conv1x1().to_torch({"N": 1, "C_in": 4, "C_out": 4, "H": 4, "W": 4})
    module, examples = made("conv2d")
    with pytest.raises(
        SynoError, match="INT8: expected a module of conv2d or operator_1, which can be written as conv"
    ):
        twin(other, torch.randn(1, 4, 4, 4))
    with pytest.raises(SynoError, match="INT8: expected at least one input to calibrate on, found none"):
        int8(module, [])
    with pytest.raises(SynoError, match="INT8: expected a network with operators in it, found none in this ReLU"):
        with_int8(nn.ReLU(), examples[0])
    with pytest.raises(SynoError, match="INT8: expected at least one thread, round and call"):
        compare_int8(module, examples, threads=0)
    wrong, examples = made("conv2d")
    wrong.forward = lambda x: x[:, :1].expand(-1, 16, -1, -1)  # type: ignore[method-assign]
    with pytest.raises(SynoError, match="INT8: expected a module that computes its operator, found it"):
        twin(wrong, examples[0])
