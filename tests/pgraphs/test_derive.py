"""From layers to the specification of one operator for all of them."""

import pytest
import torch
from torch import nn

import syno_lab as sl
from syno_lab.errors import SpecError
from syno_lab.models import Selection, backbone, put_in, resnet_tiny, survey
from syno_lab.pgraphs.of_network import derive_spec


def test_the_spec_of_resnet18():
    known = backbone("resnet18")
    sites = known.survey().select(known.selection)
    spec = derive_spec(sites, max_primitives=7)
    assert [str(size) for size in spec.input_shape] == ["N", "C_in", "H", "W"]
    assert [str(size) for size in spec.output_shape] == ["N", "C_out", "H", "W"]
    assert spec.fixed_io_pairs == ((0, 0),)
    assert spec.limits.max_primitives == 7
    found = {tuple(b[name] for name in ("N", "C_in", "C_out", "H", "W")) for b in spec.binding_maps}
    assert found == {
        (1, 64, 64, 56, 56), (1, 64, 128, 56, 56), (1, 128, 128, 28, 28), (1, 128, 256, 28, 28),
        (1, 256, 256, 14, 14), (1, 256, 512, 14, 14), (1, 512, 512, 7, 7),
    }  # fmt: skip
    # Four convolutions of 64 channels against three of each other width: most FLOPs, so budgets count for them.
    assert (spec.binding_maps[0]["C_in"], spec.binding_maps[0]["H"]) == (64, 56)
    assert spec.defaults == {"k_1": 3, "g": 4, "s": 2}


def test_an_operator_of_the_spec_fits_every_site_and_learns():
    net = resnet_tiny(10, width=4)
    sites = survey(net, (3, 8, 8)).select(Selection(leave=("conv",)))
    spec = derive_spec(sites, coefficients=["g=2: 2"], max_primitives=5)
    operator = sl.Sampler.from_spec(spec, seed=1).sample()
    filled, places = put_in(net, sites, operator)
    assert all(place.replaced for place in places)
    filled(torch.randn(4, 3, 8, 8)).square().sum().backward()
    assert all(parameter.grad is not None for parameter in filled.parameters())


def test_the_projections_of_gpt2():
    known = backbone("gpt2")
    spec = derive_spec(known.survey(size=128).select(known.selection), occurrences={"C_in": 1})
    assert [str(size) for size in (*spec.input_shape, *spec.output_shape)] == ["N", "C_in", "N", "C_out"]
    assert spec.binding_maps == ({"N": 128, "C_in": 768, "C_out": 2304, "g": 4, "s": 2},)
    assert spec.occurrence_limits["C_in"] == 1
    assert spec.occurrence_limits["N"] == 0


def test_strides_in_the_shape():
    known = backbone("resnet18")
    seen = known.survey()
    sites = seen.select(Selection(stride=(2, 2), kernel_size=(3, 3), strides="shape"))
    spec = derive_spec(sites, strides="shape")
    assert [str(size) for size in spec.input_shape] == ["N", "C_in", "s*H", "s*W"]
    assert {(b["C_in"], b["H"], b["s"]) for b in spec.binding_maps} == {(64, 28, 2), (128, 14, 2), (256, 7, 2)}
    assert derive_spec(sites, strides="shape", coefficients=["k_1=3: 4"]).defaults == {"k_1": 3, "s": 2}
    assert derive_spec(sites, strides="shape", coefficients=["s: 1"]).occurrence_limits["s"] == 1
    with pytest.raises(SpecError, match="coefficients: s is the stride 2 of these layers, found 's=3: 1'"):
        derive_spec(sites, strides="shape", coefficients=["s=3: 1"])
    mixed = seen.select(Selection(kernel_size=(3, 3), strides="shape"))
    with pytest.raises(SpecError, match=r"of one shape .* s\*W\] to \[N, C_out, H, W\] with s=2 at layer2\.0\.conv1"):
        derive_spec(mixed, strides="shape")


def test_what_cannot_be_one_operator_is_refused():
    with pytest.raises(SpecError, match="expected at least one layer to derive a specification from, found none"):
        derive_spec([])
    seen = survey(nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Linear(4, 4), nn.Conv2d(2, 2, 3)), (1, 4, 4))
    both = seen.select(Selection(kinds=("conv2d", "linear")))
    with pytest.raises(SpecError, match=r"H, W\] to .* at 0, \[N, C_in\] to \[N, C_out\] at 1; select"):
        derive_spec(both)
    with pytest.raises(SpecError, match="layers that an operator can replace, found 2: its output is 2x2"):
        derive_spec(seen.sites)
    with pytest.raises(SpecError, match="occurrences: expected some of N, C_in, C_out, H, W, found Q"):
        derive_spec(both[:1], occurrences={"Q": 1})
    with pytest.raises(SpecError, match="strides: expected 'pool' or 'shape', found 'x'"):
        derive_spec(both[:1], strides="x")
    with pytest.raises(SpecError, match="unknown limit 'max_cost'"):
        derive_spec(both[:1], max_cost=1)
