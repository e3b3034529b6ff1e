"""Operators in the places of layers: what a place adds to them, and the way back."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

import syno_lab as sl
from syno_lab import operators
from syno_lab.errors import SpecError, SynoError
from syno_lab.models import (
    Selection,
    Slot,
    backbone,
    costs,
    placeholders,
    put_in,
    resnet20,
    resnet_tiny,
    slots,
    survey,
    take_out,
    with_slots,
)
from syno_lab.nas_pte.operator import nas_pte_1
from syno_lab.pgraphs.of_network import derive_spec


class Strided(nn.Module):
    """A convolution of stride 2 with a bias, and one without either, used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(4, 8, 3, stride=2, padding=1)
        self.flat = nn.Conv2d(8, 8, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.flat(self.flat(self.down(x)))


def sites_of(net: nn.Module, shape: tuple[int, int, int], **selection):
    return survey(net, shape).select(Selection(**selection))


def test_conv2d_with_the_old_weights_gives_the_old_network():
    net = resnet_tiny(10, width=4).eval()
    sites = sites_of(net, (3, 8, 8), stride=(1, 1))
    filled, places = put_in(net, sites, operators.conv2d())
    assert [(place.flops, place.params) for place in places] == [(site.flops, site.params) for site in sites]
    with torch.no_grad():
        for (name, slot), site in zip(slots(filled), sites, strict=True):
            assert name == site.name
            (weight,) = slot.placeholder.parameters()
            old = slot.original.weight  # [C_out, C_in, 3, 3]; ours is [C_in, 3, 3, C_out]
            weight.copy_(old.permute(1, 2, 3, 0))
        x = torch.randn(2, 3, 8, 8)
        torch.testing.assert_close(filled(x), net(x))


@pytest.mark.parametrize("shape", [(4, 12, 8), (4, 11, 7)])
def test_a_stride_is_the_operator_at_full_size_and_a_pooling(shape):
    net = Strided()
    (down, flat) = sites_of(net, shape)
    assert (down.name, down.stride) == ("down", (2, 2))
    assert down.mapping == {"C_in": 4, "C_out": 8, "H": shape[1], "W": shape[2]}
    filled, places = put_in(net, [down, flat], operators.conv2d())
    x = torch.randn(3, *shape)
    full = filled.down.placeholder(x)
    assert full.shape == (3, 8, *shape[1:])
    expected = torch.stack([row.mean(dim=2) for row in full.split(2, dim=2)], dim=2)
    expected = torch.stack([column.mean(dim=3) for column in expected.split(2, dim=3)], dim=3)
    torch.testing.assert_close(filled.down(x), expected + net.down.bias[:, None, None])
    assert filled(x).shape == net(x).shape
    # Four times the FLOPs of the strided convolution, exactly so where 2 divides; the second layer counts twice.
    assert places[0].flops == 2 * 9 * 4 * 8 * shape[1] * shape[2]
    assert places[1].flops == flat.flops == 2 * 2 * 9 * 8 * 8 * -(-shape[1] // 2) * -(-shape[2] // 2)
    assert [place.params for place in places] == [9 * 4 * 8 + 8, 9 * 8 * 8]


def test_a_stride_may_be_in_the_shape():
    net = Strided()
    (down,) = sites_of(net, (4, 12, 8), stride=(2, 2), strides="shape")
    filled, (place,) = put_in(net, [down], operators.strided(), strides="shape")
    assert place.binding == {"N": 1, "C_in": 4, "C_out": 8, "H": 6, "W": 4, "k_1": 3, "s": 2}
    assert place.flops == down.flops
    assert filled.down.pool is None
    assert placeholders(filled)[0][1].mapping == {"C_in": 4, "C_out": 8, "H": 6, "W": 4, "s": 2}
    x = torch.randn(2, 4, 12, 8)
    torch.testing.assert_close(filled.down(x), filled.down.placeholder(x) + net.down.bias[:, None, None])
    assert filled(x).shape == net(x).shape
    with pytest.raises(SpecError, match="something to replace in this Strided, found down: its stride 2 does not"):
        survey(net, (4, 11, 8)).select(Selection(names=("down",), strides="shape"))
    with pytest.raises(SpecError, match="found down: its stride 2 does not divide 11x8"):
        with_slots(net, sites_of(net, (4, 11, 8)), strides="shape")


def test_out_again_the_network_is_the_old_one():
    net = resnet20().eval()
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        before = net(x)
    names = [name for name, _ in net.named_modules()]
    filled, _ = put_in(net, sites_of(net, (3, 32, 32), leave=("conv",)), operators.operator_1())
    assert len(slots(filled)) == 18
    optimiser = torch.optim.SGD(filled.parameters(), lr=0.1)
    filled(x).square().sum().backward()
    optimiser.step()
    assert take_out(filled) is filled
    assert [name for name, _ in filled.named_modules()] == names
    # What was learnt outside of the slots stays; the convolutions are as they were.
    for name, parameter in filled.named_parameters():
        old = net.get_parameter(name)
        assert parameter is not old
        is_kept = ".conv" in name
        assert torch.equal(parameter, old) == is_kept, name
    filled.load_state_dict(net.state_dict())
    with torch.no_grad():
        assert torch.equal(filled(x), before)
    with pytest.raises(SpecError, match="expected a network with operators in slots, found none in this CifarResNet"):
        take_out(filled)


def test_a_bias_is_learnt_apart_from_the_originals():
    net = Strided()
    filled, _ = put_in(net, sites_of(net, (4, 8, 8)), operators.conv2d(), in_place=True)
    assert filled is net
    before = net.down.original.bias.detach().clone()
    with torch.no_grad():
        net.down.bias += 1
    assert torch.equal(take_out(net).down.bias, before)


def test_the_original_follows_but_is_no_part():
    net = Strided()
    sites = sites_of(net, (4, 8, 8))
    filled, places = put_in(net, sites, operators.conv2d())
    assert sum(parameter.numel() for parameter in filled.parameters()) == sum(place.params for place in places)
    assert not any("original" in name for name in filled.state_dict())
    twin = copy.deepcopy(filled).double()
    assert twin.down.original.weight.dtype == torch.float64
    assert twin.down.original is not filled.down.original
    assert filled.down.original.weight.dtype == torch.float32
    assert not take_out(twin.eval()).down.training
    assert twin(torch.zeros(1, 4, 8, 8, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize(("device", "dtype"), [("cpu", torch.float64), ("meta", torch.bfloat16)])
def test_new_weights_are_where_and_what_the_old_ones_were(device, dtype):
    net = Strided().to(device, dtype)
    filled, _ = put_in(net, sites_of(net, (4, 8, 8)), operators.conv2d())
    assert {(parameter.device.type, parameter.dtype) for parameter in filled.parameters()} == {(device, dtype)}
    assert filled(torch.zeros(1, 4, 8, 8, device=device, dtype=dtype)).dtype == dtype


def test_a_second_operator_takes_the_place_of_the_first():
    net = Strided()
    sites = sites_of(net, (4, 8, 8))
    first, _ = put_in(net, sites, operators.conv2d())
    second, _ = put_in(first, sites, operators.grouped())
    sizes = [next(slot.placeholder.parameters()).numel() for _, slot in slots(second)]
    assert sizes == [9 * 4 * 8 // 4, 9 * 8 * 8 // 4]
    assert torch.equal(take_out(second).flat.weight, net.flat.weight)
    assert isinstance(second.down, nn.Conv2d)


def test_a_network_that_is_one_layer():
    layer = nn.Conv2d(2, 2, 3, padding=1)
    filled, _ = put_in(layer, sites_of(layer, (2, 5, 5)), operators.conv2d())
    assert isinstance(filled, Slot)
    assert isinstance(take_out(filled), nn.Conv2d)


def test_an_operator_where_it_fits_alone():
    net = resnet20()
    sites = sites_of(net, (3, 32, 32))
    with pytest.raises(
        SpecError, match=r"for 19 layers, found one that does not fit 1 of them: conv: size .* C_in=3, g=4"
    ):
        put_in(net, sites, operators.grouped())
    filled, places = put_in(net, sites, operators.grouped(), partial=True)
    assert [place.name for place in places if not place.replaced] == ["conv"]
    first = places[0]
    assert (first.binding, first.flops, first.params) == (None, sites[0].flops, sites[0].params)
    assert first.to_dict()["replaced"] is False
    assert isinstance(filled.conv, nn.Conv2d)
    assert filled(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
    assert not slots(net)


def test_what_fits_nowhere_changes_nothing():
    net = resnet20()
    sites = sites_of(net, (3, 32, 32))
    with pytest.raises(
        SpecError, match=r"fits none of them: conv: expected an operator whose input is \[1, 3, 32, 32\]"
    ):
        put_in(net, sites, operators.grouped_linear(), partial=True, in_place=True)
    with pytest.raises(
        SpecError, match=r"conv: expected an operator from \[1, 3, 32, 32\] to \[1, 16, 32, 32\], found one"
    ):
        put_in(net, sites, operators.sum_pool(), partial=True, in_place=True)
    assert not slots(net)
    with pytest.raises(SpecError, match="expected at least one layer to put an operator into, found none"):
        put_in(net, [], operators.conv2d())
    with pytest.raises(SpecError, match="expected sites of this Strided, found 'conv'"):
        with_slots(Strided(), sites[:1])
    with pytest.raises(SpecError, match="strides: expected 'pool' or 'shape', found 'skip'"):
        with_slots(net, sites, strides="skip")


def test_an_operator_of_nas_pte_goes_the_same_way():
    net = resnet_tiny(10, width=8)
    sites = sites_of(net, (3, 8, 8), leave=("conv",))
    filled, places = put_in(net, sites, nas_pte_1())
    assert all(place.params < site.params for place, site in zip(places, sites, strict=True))
    assert filled(torch.zeros(2, 3, 8, 8)).shape == (2, 10)


def test_costs_are_counted_without_building_the_network():
    known = backbone("resnet18")
    net = known.build(device="meta")
    seen = survey(net, known.example(size=64))
    sites = seen.select(known.selection)
    places = costs(operators.operator_1(), sites)
    saved = sum(site.params for site in sites) - sum(place.params for place in places)
    small = known.build(outputs=10)
    filled, _ = put_in(small, sites, operators.operator_1(), in_place=True)
    assert sum(parameter.numel() for parameter in filled.parameters()) == seen.params - 990 * 513 - saved


def test_empty_slots_say_so_and_the_sampler_finds_and_fills_them():
    """Syno's README with its slots made by extraction: specification, bindings, operator, replacement."""
    net = resnet_tiny(10, width=4)
    sites = sites_of(net, (3, 8, 8), leave=("conv",))
    slotted = with_slots(net.eval(), sites)
    x = torch.randn(2, 3, 8, 8)
    with pytest.raises(SynoError, match="is empty"):
        slotted(x)
    mappings = [slot.mapping for _, slot in placeholders(slotted)]
    assert mappings == [site.mapping for site in sites]
    sampler = sl.Sampler(
        "[N, C_in, H, W]",
        "[N, C_out, H, W]",
        ["N=1: 0", "C_in: 2", "C_out: 2", "H: 0", "W: 0"],
        ["g=4: 2"],
        fixed_io_pairs=[(0, 0)],
        max_primitives=5,
        net=slotted,
        seed=0,
    )
    assert set(sampler.spec.bindings) == set(derive_spec(sites, coefficients=["g=4: 2"]).bindings)
    sampler.replace(slotted, sampler.sample().construct_kernel_packs())
    assert slotted(x).shape == (2, 10)
    assert torch.equal(take_out(slotted)(x), net(x))


def test_pooling_is_torchs_where_the_stride_divides():
    net = Strided()
    filled, _ = put_in(net, sites_of(net, (4, 8, 8)), operators.conv2d())
    x = torch.randn(1, 4, 8, 8)
    pooled = functional.avg_pool2d(filled.down.placeholder(x), 2)
    torch.testing.assert_close(filled.down(x), pooled + net.down.bias[:, None, None])
