"""Finding convolutions by running the network, and replacing them."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from syno_lab.errors import SpecError, SynoError
from syno_lab.models import (
    Placeholder,
    find_convolutions,
    placeholders,
    resnet20,
    resnet_tiny,
    with_slots,
)


class Mixed(nn.Module):
    """Convolutions of every kind that is left out, and two that are found."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1)
        self.unused = nn.Conv2d(4, 4, 3, padding=1)
        self.pointwise = nn.Conv2d(4, 4, 1)
        self.grouped = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.dilated = nn.Conv2d(4, 4, 3, padding=2, dilation=2)
        self.strided = nn.Conv2d(4, 4, 3, padding=1, stride=2)
        self.at_two_sizes = nn.Conv2d(4, 4, 3, padding=1)
        self.twice = nn.Conv2d(4, 4, 3, padding="same", bias=False)
        self.unpadded = nn.Conv2d(4, 4, 3)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.dilated(self.grouped(self.pointwise(self.first(x))))
        x = self.at_two_sizes(self.strided(self.at_two_sizes(x)))
        return self.unpadded(self.norm(self.twice(self.twice(x))))


def test_the_sites_of_resnet20():
    sites = find_convolutions(resnet20(), (3, 32, 32))
    # 19 convolutions, two of them with stride 2.
    assert len(sites) == 17
    assert sites[0].name == "conv"
    assert sites[0].mapping == {"C_in": 3, "C_out": 16, "H": 32, "W": 32}
    assert [site.name for site in sites[-5:]] == [
        "stage3.0.conv2", "stage3.1.conv1", "stage3.1.conv2", "stage3.2.conv1", "stage3.2.conv2",
    ]  # fmt: skip
    assert sites[-1].mapping == {"C_in": 64, "C_out": 64, "H": 8, "W": 8}
    assert sites[-1].params == 9 * 64 * 64
    assert sites[-1].flops == 2 * 9 * 64 * 64 * 64


def test_flops_agree_with_torchs_own_counter():
    net = resnet20()
    sites = find_convolutions(net, (3, 32, 32), stride=None)
    assert len(sites) == 19
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net.eval()(torch.zeros(1, 3, 32, 32))
    linear = 2 * 64 * 10
    assert sum(site.flops for site in sites) + linear == counter.get_total_flops()
    strided = next(site for site in sites if site.name == "stage2.0.conv1")
    assert (strided.height, strided.width) == (32, 32)


def test_only_what_an_operator_can_replace_is_found():
    sites = find_convolutions(Mixed(), (2, 12, 10))
    assert [site.name for site in sites] == ["first", "twice"]
    first, twice = sites
    assert (first.height, first.width, first.kernel_size, first.params, first.calls) == (12, 10, (3, 3), 76, 1)
    assert first.flops == 2 * 9 * 2 * 4 * 120
    assert (twice.calls, twice.flops) == (2, 2 * 2 * 9 * 16 * 30)


def test_the_selection_can_be_widened_and_narrowed():
    net = Mixed()

    def names(**selection):
        return [site.name for site in find_convolutions(net, (2, 12, 10), **selection)]

    assert names(kernel_size=(1, 1)) == ["pointwise"]
    assert names(groups=2) == ["grouped"]
    assert names(stride=(2, 2)) == ["strided"]
    assert names(kernel_size=None, stride=None, groups=None) == ["first", "pointwise", "grouped", "strided", "twice"]
    assert names(predicate=lambda name, conv: conv.bias is not None) == ["first"]


def test_looking_changes_nothing():
    net = Mixed()
    net.norm.eval()
    state = copy.deepcopy(net.state_dict())
    find_convolutions(net, (2, 12, 10))
    assert net.training
    assert net.first.training
    assert not net.norm.training
    assert all(torch.equal(state[name], value) for name, value in net.state_dict().items())
    assert not any(module._forward_hooks for module in net.modules())


def test_a_shape_that_does_not_fit_is_refused_in_one_line():
    net = Mixed()
    with pytest.raises(SpecError, match=r"expected a network that takes images \[3, 12, 10\], found: ") as refusal:
        find_convolutions(net, (3, 12, 10))
    assert "\n" not in str(refusal.value)
    assert net.training
    assert not any(module._forward_hooks for module in net.modules())
    with pytest.raises(SpecError, match=r"shape of one image as \[C, H, W\], found \[1, 2, 12, 10\]"):
        find_convolutions(net, (1, 2, 12, 10))  # type: ignore[arg-type]


def test_double_networks_are_run_in_double():
    assert len(find_convolutions(resnet_tiny(10).double(), (3, 8, 8))) == 5


def test_sites_become_slots_that_their_own_convolutions_fill():
    """Filled with bare convolutions of the old weights, the network computes what it did before."""
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.ReLU())
    sites = find_convolutions(net, (1, 6, 7))
    slotted = with_slots(net, sites)
    slots = placeholders(slotted)
    assert [slot.mapping for _, slot in slots] == [
        {"C_in": 1, "C_out": 4, "H": 6, "W": 7},
        {"C_in": 4, "C_out": 4, "H": 6, "W": 7},
    ]
    with pytest.raises(SynoError, match="is empty"):
        slotted(torch.zeros(1, 1, 6, 7))
    for (_, slot), index in zip(slots, (0, 2), strict=True):
        bare = nn.Conv2d(net[index].in_channels, 4, 3, padding=1, bias=False)
        bare.weight = net[index].weight
        slot.fill(bare)
    x = torch.randn(2, 1, 6, 7)
    torch.testing.assert_close(slotted(x), net(x))
    assert placeholders(net) == []


def test_equal_sites_share_a_mapping():
    slotted = with_slots(net := resnet20(), find_convolutions(net, (3, 32, 32)))
    mappings = [slot.mapping for _, slot in placeholders(slotted)]
    assert len(mappings) == 17
    assert len({tuple(mapping.items()) for mapping in mappings}) == 4
    assert all(isinstance(slot, Placeholder) for _, slot in placeholders(slotted))
