"""Networks with operators in them through ``torch.compile``: before, after, and when a slot is filled anew."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import syno_lab as sl
from syno_lab.canvas.fitted import Fitted
from syno_lab.canvas.known import KNOWN
from syno_lab.errors import SynoError
from syno_lab.models import Placeholder, find_convolutions, put_in, take_out
from syno_lab.nas_pte.operator import NAS_PTE

SIZES = {"N": 2, "C_in": 16, "C_out": 16, "H": 8, "W": 8}
MAKERS: tuple[Any, ...] = (
    sl.operators.separable,
    sl.operators.operator_1,
    NAS_PTE["nas_pte_1"],
    lambda: Fitted(KNOWN["convolution"]()),
)


class Two(nn.Module):
    """Two convolutions and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(4, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.b(self.a(x).relu()).relu().mean((2, 3)))
        return y


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 4, 8, 8)


@pytest.mark.parametrize("options", [{"backend": "eager"}, {"backend": "aot_eager", "fullgraph": True}], ids=str)
@pytest.mark.parametrize("make", MAKERS[:2])
def test_a_changed_network_compiles(make: Any, options: dict[str, Any], x: torch.Tensor) -> None:
    net = Two().eval()
    changed, _ = put_in(net, find_convolutions(net, (4, 8, 8)), make(), partial=True)
    compiled: Any = torch.compile(changed, **options)
    torch.testing.assert_close(compiled(x), changed(x))
    torch.testing.assert_close(pickle.loads(pickle.dumps(changed))(x), changed(x))
    compiled(x).sum().backward()
    assert all(weight.grad is not None for weight in changed.parameters())


def test_operators_come_into_a_compiled_network_and_leave_it(x: torch.Tensor) -> None:
    net = Two().eval()
    compiled = torch.compile(net, backend="aot_eager")
    before = compiled(x)
    sites = find_convolutions(net, (4, 8, 8))
    for make in MAKERS:
        put_in(net, sites, make(), partial=True, in_place=True)
        torch.testing.assert_close(compiled(x), net(x))
        assert not torch.allclose(compiled(x), before)
    take_out(net)
    torch.testing.assert_close(compiled(x), before)


def test_a_placeholder_is_filled_after_its_network_was_compiled(x: torch.Tensor) -> None:
    """Also by an operator whose class stands where a freed one stood, and by one of the same class."""
    slot = Placeholder({"H": 8, "W": 8})
    net = nn.Sequential(nn.Conv2d(4, 16, 3, padding=1), slot)
    compiled = torch.compile(net, backend="eager")
    with pytest.raises(SynoError, match="is empty; fill it"):
        compiled(x)
    for make in (*MAKERS, MAKERS[0], MAKERS[0]):
        kernel = make().to_torch(SIZES)
        slot.fill(kernel)
        torch.testing.assert_close(compiled(x), kernel(net[0](x)))
    slot.empty()
    with pytest.raises(SynoError, match="is empty; fill it"):
        compiled(x)


def test_a_network_that_was_compiled_first_takes_operators(x: torch.Tensor) -> None:
    net: Any = torch.compile(Two().eval(), backend="aot_eager")
    before = net(x)
    changed, _ = put_in(net, find_convolutions(net, (4, 8, 8)), sl.operators.separable(), partial=True)
    torch.testing.assert_close(changed(x), changed._orig_mod(x))
    assert not torch.allclose(changed(x), before)
    torch.testing.assert_close(net(x), before)


@pytest.mark.parametrize("make", MAKERS)
def test_a_changed_network_has_memory_formats(make: Any, x: torch.Tensor) -> None:
    net = Two().eval()
    changed, _ = put_in(net, find_convolutions(net, (4, 8, 8)), make(), partial=True)
    wanted = changed(x)
    changed.to(memory_format=torch.channels_last)
    torch.testing.assert_close(changed(x.to(memory_format=torch.channels_last)), wanted, rtol=1e-4, atol=1e-5)
    assert take_out(changed).b.weight.is_contiguous(memory_format=torch.channels_last)  # type: ignore[union-attr, operator]
    torch.testing.assert_close(changed(x), net(x), rtol=1e-4, atol=1e-5)
