"""Networks that are tried: what works leaves nothing behind, what does not is one line."""

import random

import numpy as np
import pytest
import torch
from torch import nn

import syno_lab as sl
from syno_lab.errors import SpecError
from syno_lab.models.layers import survey
from syno_lab.models.slot import put_in
from syno_lab.models.tried import try_network


class Odd(nn.Module):
    """A network that does one thing that cannot work."""

    def __init__(self, does: str) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.Dropout())
        self.does = does

    def forward(self, x: torch.Tensor) -> dict[str, object]:
        if self.does == "assert":
            assert isinstance(self.first, nn.Conv2d), "first is no convolution"
        if self.does == "exit":
            raise SystemExit(3)
        if self.does == "only in training" and self.training:
            raise ZeroDivisionError
        y = self.inner(self.first(x) if self.does != "shape" else torch.zeros(2, 4))
        if self.does == "backward":
            y = y.exp()
            y *= 2
        return {"logits": y, "drawn": [random.random(), np.random.rand(), None]}  # noqa: NPY002 - what users draw from


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("assert", r"an evaluation, found: AssertionError: first is no convolution \(test_tried.py, line \d+\)"),
        ("exit", r"an evaluation, found: SystemExit: 3 \(test_tried.py, line \d+\)"),
        ("only in training", r"a training step, found: ZeroDivisionError \(test_tried.py, line \d+\)"),
        ("shape", r"an evaluation, found: inner.0: RuntimeError: mat1 and mat2 shapes .* \(test_tried.py, line \d+\)"),
        ("backward", "a training step, found: RuntimeError: one of the variables needed for gradient"),
    ],
)
def test_what_does_not_work_is_one_line(does, said):
    with pytest.raises(SpecError, match=f"expected a network that takes {said}") as refusal:
        try_network(Odd(does), lambda net: net(torch.zeros(2, 3)))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("does", ["nothing", "only in training"])
def test_generators_are_as_before(does):
    net = Odd(does)
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002 - what users draw from
    try:
        try_network(net, lambda net: net(torch.zeros(2, 3)))
    except SpecError:
        assert does != "nothing"
    else:
        assert net.training
        assert net.first.weight.grad.abs().sum() == 0  # the input is zero
        assert net.first.bias.grad.abs().sum() > 0
    found = torch.rand(1), random.random(), np.random.rand()  # noqa: NPY002 - what users draw from
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002 - what users draw from
    assert found == (torch.rand(1), random.random(), np.random.rand())  # noqa: NPY002 - what users draw from


@pytest.mark.parametrize("named", [False, True])
def test_an_example_is_as_before(named):
    """Layers may change their input in place, and a training step gives an example that asks for them gradients."""
    net = nn.Sequential(nn.Identity(), nn.Conv2d(4, 8, 3, padding=1))
    examples = torch.linspace(-3, 3, 288).reshape(2, 4, 6, 6), torch.ones(2, 4, 6, 6, requires_grad=True)
    for first, x in zip((nn.Hardtanh(inplace=True), nn.Identity()), examples, strict=True):
        net[0], before = first, x.detach().clone()
        example = {"input": x} if named else x
        put_in(net, survey(net, example).select(), sl.operators.conv1x1(), example=example)
        assert torch.equal(x, before)
        assert x.grad is None
