"""The hooks of a layer that an operator replaces, and networks that are tried with it before they are changed."""

import copy
import pickle
import random

import pytest
import torch
from torch import nn

from syno_lab import operators
from syno_lab.errors import SpecError
from syno_lab.models import Selection, find_convolutions, put_in, slots, survey, take_out


class Two(nn.Module):
    """Two convolutions with a normalisation between, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(4, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.b = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.b(self.norm(self.a(x)).relu()).mean((2, 3)))


CALLED: list[str] = []


def said(word):
    """A hook of any kind that notes its word and changes nothing."""

    def hook(*_):
        CALLED.append(word)

    return hook


def changed_by_hooks(net: nn.Module) -> list:
    CALLED.clear()
    b = net.b
    return [
        b.register_forward_hook(lambda module, given, y: CALLED.append("forward") or y * 10),
        b.register_forward_hook(said("kwargs"), with_kwargs=True),
        b.register_forward_hook(said("always"), always_call=True),
        b.register_forward_pre_hook(said("before")),
        b.register_forward_pre_hook(said("before, kwargs"), with_kwargs=True),
        b.register_full_backward_hook(said("backward")),
        b.register_full_backward_pre_hook(said("before backward")),
    ]


ALL = ["always", "backward", "before", "before backward", "before, kwargs", "forward", "kwargs"]


def sites_of(net: nn.Module, **selection):
    return survey(net, (4, 8, 8)).select(Selection(names=("b",), **selection))


@pytest.mark.parametrize("in_place", [True, False])
def test_hooks_stay_where_the_layer_was_and_go_back_with_it(in_place):
    net = Two().eval()
    handles, sites = changed_by_hooks(net), sites_of(net)
    changed, _ = put_in(net, sites, operators.conv2d(), in_place=in_place)
    x = torch.randn(2, 4, 8, 8)

    def heard(one: nn.Module) -> list[str]:
        CALLED.clear()
        one(x).sum().backward()
        return sorted(CALLED)

    assert heard(changed) == ALL
    inner = changed.b.placeholder(changed.norm(changed.a(x)).relu()) + changed.b.bias[:, None, None]
    torch.testing.assert_close(changed(x), changed.head(10 * inner.mean((2, 3))))
    assert heard(copy.deepcopy(changed)) == ALL
    again, _ = put_in(changed, sites, operators.separable(), in_place=in_place)  # another one there
    assert heard(again) == ALL
    later = again.b.register_forward_hook(said("later"))
    assert heard(again) == sorted([*ALL, "later"])
    later.remove()
    if in_place:
        handles[0].remove()
    back = take_out(again)
    assert heard(back) == ([word for word in ALL if word != "forward"] if in_place else ALL)
    assert isinstance(back.b, nn.Conv2d)


def test_hooks_are_pickled_with_the_network():
    net = Two().eval()
    net.b.register_forward_hook(_noted)
    changed, _ = put_in(net, sites_of(net), operators.conv2d())
    CALLED.clear()
    pickle.loads(pickle.dumps(changed))(torch.randn(2, 4, 8, 8))
    assert CALLED == ["noted"]


def _noted(*_):
    CALLED.append("noted")


def test_hooks_that_make_a_weight_stay_with_the_layer():
    net = Two().eval()
    with pytest.warns(FutureWarning, match="deprecated"):
        nn.utils.weight_norm(net.b)
    net.b.register_forward_pre_hook(said("before"))
    CALLED.clear()
    changed, _ = put_in(net, sites_of(net), operators.conv2d(), in_place=True)
    CALLED.clear()
    assert changed(torch.randn(2, 4, 8, 8)).shape == (2, 4)
    assert CALLED == ["before"]
    assert changed.b.weight_g.shape == (8, 1, 1, 1)
    assert len(take_out(changed).b._forward_pre_hooks) == 2


# -- tried before it is changed ----------------------------------------------------------------------------------------


class Refuses(Two):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert isinstance(self.b, nn.Conv2d), "b is no convolution"
        return super().forward(x)


class Penalised(Two):
    """Its loss takes a weight, in training alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        return y + self.b.weight.norm() if self.training else y


class InPlace(Two):
    """A change in place of what the operator's gradient needs: a convolution keeps its input, not its output."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.b(self.a(x)).sigmoid().mul_(2).mean((2, 3)))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Refuses, r"an evaluation, found: AssertionError: b is no convolution \(test_slot_hooks.py, line \d+\)$"),
        (Penalised, "a training step, found: expected a network that calls its layer b, found norm of b.weight"),
        (InPlace, "a training step, found: RuntimeError: one of the variables .* fails without an operator too$"),
    ],
)
@pytest.mark.parametrize("in_place", [True, False])
def test_what_cannot_work_is_said_and_nothing_is_changed(make, reason, in_place):
    net = make()
    state = copy.deepcopy(net.state_dict())
    sites = find_convolutions(net, (4, 8, 8))
    with pytest.raises(SpecError, match=f"expected a network that takes {reason}") as refusal:
        put_in(net, sites, operators.conv2d(), in_place=in_place, example=(4, 8, 8))
    assert "\n" not in str(refusal.value)
    assert not slots(net)
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize("example", [(4, 8, 8), torch.randn(3, 4, 8, 8), {"x": torch.randn(3, 4, 8, 8)}])
@pytest.mark.parametrize("in_place", [True, False])
def test_trying_leaves_nothing_behind(example, in_place):
    net = Two()
    net.norm.eval()
    net.a.weight.grad = torch.ones_like(net.a.weight)
    sites = sites_of(net)
    outcomes = []
    for tried in (None, example):
        torch.manual_seed(3)
        random.seed(3)
        one = copy.deepcopy(net)
        one.a.weight.grad = torch.ones_like(net.a.weight)
        changed, places = put_in(one, sites, operators.conv2d(), in_place=in_place, example=tried)
        assert places[0].replaced
        outcomes.append((changed, torch.rand(1), random.random()))
    (plain, *chance), (tried, *chance_of_tried) = outcomes
    assert chance == chance_of_tried
    assert [module.training for module in tried.modules()] == [module.training for module in plain.modules()]
    for name, value in plain.state_dict().items():
        assert torch.equal(value, tried.state_dict()[name]), name
    if in_place:  # torch copies no gradients
        assert torch.equal(tried.a.weight.grad, torch.ones_like(net.a.weight))
    assert tried.b.bias.grad is None
