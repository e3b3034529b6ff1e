"""What a search has in its space when nothing is said: the known convolutions, for every backbone."""

from __future__ import annotations

from pathlib import Path

import pytest

from syno_lab import operators
from syno_lab.experiments import SearchSettings, Space
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator
from syno_lab.models import backbone
from syno_lab.models.registry import BACKBONES
from syno_lab.pgraphs.of_network import NetworkSpace, derive_spec, placed
from syno_lab.pgraphs.space import synthesis_space
from syno_lab.protocol import SpaceRequest
from syno_lab.trial import TrialRequest

WANTED = ("conv2d", "separable", "grouped", "operator_1", "operator_2")
CONVOLUTIONAL = [known.name for known in BACKBONES.values() if known.selection.kinds == ("conv2d",)]
LINEAR = [known.name for known in BACKBONES.values() if known.selection.kinds == ("linear",)]


def space_of(name: str) -> NetworkSpace:
    """The space for a backbone at its own resolution, without a limit of FLOPs."""
    known = backbone(name)
    sites = known.survey().select(known.selection)
    return NetworkSpace(SpaceRequest(sites, "pool", 10**18 - 1, None, {}, {}))


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_the_known_convolutions_are_in_the_space_of_every_backbone_with_convolutions(name: str) -> None:
    space = space_of(name)
    spec = space.spec
    assert (spec.weight_limits, spec.limits.max_primitives) == ("primary", 10)
    divisor = spec.defaults["g"] * spec.defaults["s"]
    assert all(bound["C_in"] % divisor == bound["C_out"] % divisor == 0 for bound in spec.binding_maps)
    root = synthesis_space(spec, countable_nodes=0)
    found = {wanted: placed(root, operators.KNOWN[wanted](), spec) for wanted in WANTED}
    assert [wanted for wanted, operator in found.items() if operator is None] == []
    # The chain that did best of those found without training: its middle a part of the input's channels.
    assert placed(root, chain(), spec) is not None


def chain() -> Operator:
    """``[k, C_in, C_in/g]``, then ``[k, k, C_in/g, C_out]``."""
    build = Build(
        "[N, C_in, H, W]",
        "[N, C_out, H, W]",
        ["N", "C_in", "C_out", "H", "W"],
        ["k_1=3", "g=4"],
        fixed_io_pairs=[(0, 0)],
    )
    n, c_out, h, w = build.output
    c, m, p, q, r = (build.reduce(size) for size in ("C_in", "g^-1*C_in", "k_1", "k_1", "k_1"))
    build.contract(share=[m, p, q], give=[c_out])
    above = build.unfold(w, q)
    build.contract(share=[c, r], give=[m])
    return build.finish(n, c, build.unfold(build.unfold(h, p), r), above)


def grouped_projection() -> Operator:
    build = Build("[N, C_in]", "[N, C_out]", ["N", "C_in", "C_out"], ["g=4"], fixed_io_pairs=[(0, 0)])
    n, c_out = build.output
    c = build.reduce("g^-1*C_in")
    group, o = build.merge(c_out, "g^-1*C_out")
    channel = build.split(group, c)
    build.contract(share=[channel], give=[o])
    return build.finish(n, channel)


def low_rank_projection(rank: str) -> Operator:
    build = Build("[N, C_in]", "[N, C_out]", ["N", "C_in", "C_out"], ["g=4", "s=2"], fixed_io_pairs=[(0, 0)])
    n, c_out = build.output
    c, r = build.reduce("C_in"), build.reduce(rank)
    build.contract(share=[r], give=[c_out])
    build.contract(share=[c], give=[r])
    return build.finish(n, c)


@pytest.mark.parametrize("name", LINEAR)
def test_grouped_and_low_rank_projections_are_in_the_space_of_every_backbone_with_projections(name: str) -> None:
    spec = space_of(name).spec
    assert (spec.weight_limits, spec.occurrence_limits["N"]) == ("primary", 0)
    root = synthesis_space(spec, countable_nodes=0)
    for operator in (grouped_projection(), *map(low_rank_projection, ("g^-1*C_in", "g^-1*s^-1*C_out"))):
        assert placed(root, operator, spec) is not None


@pytest.mark.parametrize("name", ["densenet121", "resnext29_2x64d", "efficientnet_v2_s", "gpt2"])
def test_networks_most_of_which_stays_have_a_space(name: str, tmp_path: Path) -> None:
    """A limit of the replaced layers' FLOPs leaves room whatever the rest takes."""
    known = backbone(name)
    if known.domain == "images":
        training = TrialRequest(backbone=name, data="digits", resolution=known.size)
    else:
        text = tmp_path / "text.txt"
        text.write_text("to be or not to be, " * 500)
        training = TrialRequest(backbone=name, data=str(text))
    space = Space(SearchSettings(training=training, trials=1, max_replaced_ratio=0.4, weight_limits="primary"))
    assert space.replaced_flops < space.baseline.flops / 2
    assert space.most_flops == space.baseline.flops - space.replaced_flops + int(0.4 * space.replaced_flops)


def test_weights_may_be_free() -> None:
    known = backbone("resnet20")
    sites = known.survey().select(known.selection)
    old = NetworkSpace(SpaceRequest(sites, "pool", 10**18, None, {}, {}, "free")).spec
    assert (old.weight_limits, old.limits.max_primitives) == ("free", 8)
    assert {name: old.occurrence_limits[name] for name in ("C_in", "C_out", "H")} == {"C_in": 3, "C_out": 2, "H": 0}
    assert derive_spec(sites).weight_limits == "primary"
