"""The wish that a search derives from the layers it replaces."""

from dataclasses import replace

import pytest

from syno_lab.common.wants import RANK, parse_wants
from syno_lab.errors import SpecError
from syno_lab.models import backbone
from syno_lab.models.sites import Site, derived_wants
from syno_lab.operators import conv1x1, conv2d, depthwise, grouped, separable
from syno_lab.pgraphs.of_network import NetworkSpace, for_layer
from syno_lab.protocol import SpaceRequest

SITE = Site("layer", 16, 32, 12, 14, (3, 3), 1, 1)


def space_of(sites: list[Site], strides: str = "pool", **request: object) -> NetworkSpace:
    return NetworkSpace(SpaceRequest(sites, strides, 10**12, None, {}, {}, **request))  # type: ignore[arg-type]


def wants_of(*sites: Site, strides: str = "pool") -> str:
    return space_of(list(sites), strides).wants


@pytest.mark.parametrize(
    ("sites", "wants"),
    [
        ([SITE], "C_in>=m, H>=m, W>=m"),
        ([replace(SITE, groups=4)], "C_in>=m, H>=m, W>=m"),
        ([replace(SITE, groups=16)], "C_in>=o, H>=m, W>=m"),
        ([replace(SITE, kernel_size=(1, 1))], "C_in>=m, H>=o, W>=o"),
        ([replace(SITE, kernel_size=(1, 7))], "C_in>=m, H>=o, W>=m"),
        ([replace(SITE, stride=(2, 2), kernel_size=(1, 1))], "C_in>=m, H>=o, W>=o"),
        ([SITE, replace(SITE, kernel_size=(1, 1)), replace(SITE, groups=16)], "C_in>=m, H>=m, W>=m"),
        ([replace(SITE, kind="linear", kernel_size=(1, 1), positions=7)], "C_in>=m"),
    ],
)
def test_the_wish_of_layers(sites: list[Site], wants: str) -> None:
    assert wants_of(*sites) == wants


def test_a_stride_in_the_shape() -> None:
    strided = replace(SITE, stride=(2, 2))
    assert wants_of(strided, strides="shape") == "C_in>=m, s*H>=m, s*W>=m"
    assert wants_of(replace(strided, kernel_size=(1, 1)), strides="shape") == "C_in>=m"


@pytest.mark.parametrize(
    "site",
    [SITE, replace(SITE, kernel_size=(1, 1)), replace(SITE, stride=(2, 2)), replace(SITE, kind="linear", positions=7)],
)
def test_it_is_the_mixing_property_of_the_layers_own_operator(site: Site) -> None:
    """m where it has a: compared with every element of the operator of :func:`for_layer`."""
    operator, sizes = for_layer(site)
    found = operator.mixing(sizes)
    wished = {wish.axis: wish.least for wish in derived_wants([site], "shape")}
    for axis in range(1, len(operator.inputs)):
        mark = max((row[axis] for row in found.marks), key=RANK.__getitem__)
        assert wished.get(axis, "x") == {"a": "m"}.get(mark, mark)


def test_known_operators_that_meet_it() -> None:
    spec = space_of([SITE]).spec
    wants = parse_wants("C_in>=m, H>=m, W>=m", spec.input_shape, spec.output_shape, spec.symbols)
    assert wants == spec.wants
    assert [make().meets(wants) for make in (conv2d, separable, grouped, conv1x1, depthwise)] == [
        True, True, True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "wants"),
    [
        ("resnet20", "C_in>=m, H>=m, W>=m"),
        ("resnext29_2x64d", "C_in>=m, H>=m, W>=m"),
        ("gpt_tiny", "C_in>=m"),
    ],
)
def test_backbones(name: str, wants: str) -> None:
    known = backbone(name)
    seen = known.survey(size=32)
    assert wants_of(*seen.select(known.selection)) == wants


def test_a_wish_that_is_given() -> None:
    assert space_of([SITE], wants="").wants == ""
    assert space_of([SITE], wants="").spec.wants == ()
    assert space_of([SITE], wants="H≥m").wants == "H>=m"
    with pytest.raises(SpecError, match=r"wants: expected an input axis of \[N, C_in, H, W\], found 'K'"):
        space_of([SITE], wants="K>=m")
    request = SpaceRequest([SITE], "pool", 10**12, None, {}, {"max_unfolds": 0, "max_splits": 0})
    with pytest.raises(SpecError, match="wants H>=m: no operator of this space can have it: no REDUCE may have H"):
        NetworkSpace(request)
