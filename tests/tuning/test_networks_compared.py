"""A backbone with an operator in every place against the same backbone with convolutions."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import refused
from measured import measured
from torch import nn

import syno_lab as sl
from syno_lab.alpha import (
    Graph,
    NetworkOperator,
    Rel,
    Replacement,
    Variant,
    find_blocks,
    operation,
    operation_of,
    trace,
)
from syno_lab.errors import SpecError
from syno_lab.models import resnet_tiny
from syno_lab.models.registry import BACKBONES
from syno_lab.models.sites import Selection
from syno_lab.models.slot import slots
from syno_lab.nas_pte.operator import nas_pte_1
from syno_lab.tuning import TuningResult, local_board
from syno_lab.tuning.network import tune_functions, tune_network
from syno_lab.tuning.versus import (
    LayerComparison,
    both_networks,
    compare_layers,
    compare_networks,
    geometric_mean,
)

IMAGE = (8, 6, 6)


def small() -> nn.Module:
    """A 3x3 convolution with a bias, and what stands behind it."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()).eval()


def test_both_networks_have_operators_in_the_same_places() -> None:
    torch.manual_seed(0)
    net = resnet_tiny(10, width=8).eval()
    base, replaced, places = both_networks(sl.operators.operator_1(), net, (3, 8, 8), Selection(leave=("conv",)))
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        assert torch.allclose(base(x), net(x), atol=1e-5)
        assert not torch.allclose(replaced(x), net(x), atol=1e-2)
    there = [one.name for one in places if one.replaced]
    assert [name for name, _ in slots(replaced)] == there
    # A strided convolution stays as it is in the one, and is an operator and a pooling in the other.
    strided = [name for name in there if net.get_submodule(name).stride != (1, 1)]
    assert strided
    assert [name for name, _ in slots(base)] == [name for name in there if name not in strided]


@pytest.mark.tvm
def test_a_network_with_an_operator_of_another_system_is_measured() -> None:
    torch.manual_seed(0)
    _, replaced, places = both_networks(
        nas_pte_1(), resnet_tiny(10, width=8).eval(), (3, 8, 8), Selection(leave=("conv",))
    )
    assert all(one.replaced for one in places)
    assert measured(replaced.eval(), (1, 3, 8, 8)).error < 1e-5


@pytest.mark.tvm
def test_an_edited_network_is_measured_as_a_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    net = BACKBONES["cnn"].build(options={"width": 4}).eval()
    seed = Variant(find_blocks(trace(net, (3, 8, 8))))
    block = seed.network.blocks[1].graph
    old = block.subgraph(block.region([0]))
    chain = [operation_of(sl.operators.conv2d()), operation("group_norm"), operation("conv", features=Rel(2), groups=2)]
    operator = NetworkOperator(seed.edited(Replacement((1,), (0,), old, Graph.chain(*old.inputs, chain))))
    base, replaced, places = both_networks(operator, net, (3, 8, 8))
    assert base is net
    assert sum(one.params for one in places) == operator.params()
    assert measured(replaced.eval(), (1, 3, 8, 8)).error < 1e-5
    file = tmp_path / "edited.json"
    file.write_text(operator.to_json())
    words = ("network", str(file), "--backbone", "cnn", "--part", "layers")
    assert "--part: expected whole for a whole network of αNAS, found layers" in refused(capsys, *words)
    with pytest.raises(SpecError, match="expected the network that the edits were made for"):
        both_networks(operator, BACKBONES["cnn"].build(options={"width": 8}), (3, 8, 8))


def test_an_operator_that_fits_nowhere() -> None:
    with pytest.raises(SpecError, match="expected an operator for 1 layers, found one that fits none of them"):
        both_networks(sl.operators.matmul(), small(), IMAGE)
    with pytest.raises(SpecError, match="expected a 3x3 convolution of stride 1 that the operator can replace"):
        compare_layers(sl.operators.matmul(), small(), IMAGE, board=None, folder="nowhere")
    with pytest.raises(SpecError, match="expected at least one round of measurements, found 0"):
        compare_networks(sl.operators.operator_1(), small(), IMAGE, board=None, folder="nowhere", rounds=0)


def result(latency_ms: float) -> TuningResult:
    return TuningResult("x", latency_ms, latency_ms, 15, 8, 0, 9.0, "{}", "0.27", 0, True)


def test_the_mean_counts_each_layer_as_often_as_it_stands_there() -> None:
    layers = [
        LayerComparison("a", ("1", "2", "3"), result(8.0), result(4.0)),
        LayerComparison("b", ("4",), result(1.0), result(2.0)),
        LayerComparison("c", ("5",), "no candidate ran", result(1.0)),
    ]
    assert [one.speedup for one in layers] == [2.0, 0.5, None]
    mean = geometric_mean(layers)
    assert mean is not None
    assert math.isclose(mean, (2.0**3 * 0.5) ** 0.25)
    assert geometric_mean(layers[2:]) is None
    assert layers[2].to_dict()["convolution"] == {"error": "no candidate ran"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--backbone", "gpt2", "--part", "layers"], "expected whole for a backbone without convolutions such as gpt2"),
        (["--preset", "fast"], "expected a preset among quick, normal, thorough, found 'fast'"),
        (["--part", "half"], "Invalid value for '--part'"),
    ],
)
def test_wrong_words(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capsys, "network", "operator_1", *words)


@pytest.mark.tvm
def test_both_are_tuned_and_measured(tmp_path: Path) -> None:
    operator = sl.operators.operator_1()
    told: list[str] = []
    with local_board(threads=1) as board:
        common = {"board": board, "folder": tmp_path, "trials": 2}
        whole = compare_networks(
            operator,
            small(),
            IMAGE,
            threads=1,
            rounds=2,
            repeats=2,
            on_progress=lambda *one: told.append(one[0]),
            **common,
        )
        layers = compare_layers(operator, small(), IMAGE, target="local:1", **common)
        again = compare_layers(operator, small(), IMAGE, target="local:1", **common)
    for one in (whole.convolutions, whole.operator):
        assert one.failed == {}
        assert len(one.measurements) == 2
        assert all(found.error < 1e-5 and found.tuned == one.tuned > 0 for found in one.measurements)
        assert 0 < one.best_ms <= one.latency_ms
    assert whole.where.startswith("127.0.0.1:"), "both ran on the board"
    assert whole.convolutions.trials == 2 * whole.convolutions.tuned
    assert all(part.trials > 0 and part.latency_ms > 0 for part in whole.operator.parts)
    assert whole.speedup == pytest.approx(whole.convolutions.latency_ms / whole.operator.latency_ms)
    assert [one.name for one in whole.places if one.replaced] == ["0"]
    assert list(dict.fromkeys(told)) == ["convolutions", "operator", "measure"]
    assert json.loads(json.dumps(whole.to_dict()))["convolutions"]["latency_ms"] == whole.convolutions.latency_ms
    (layer,) = layers
    assert layer.shape == "8 to 8 channels, 6x6"
    assert layer.speedup is not None
    assert [one.speedup for one in again] == [layer.speedup], "the records answer"


@pytest.mark.tvm
def test_a_network_for_texts_is_compared_with_itself() -> None:
    """A GPT's projections are replaced; its tokens, mask and tied weights compute in TVM what they do in torch."""
    net = BACKBONES["gpt_tiny"].build(outputs=32, size=8, options={"width": 16, "layers": 1, "heads": 2}).eval()
    base, replaced, places = both_networks(
        sl.operators.grouped_linear(), net, torch.zeros(1, 8, dtype=torch.int64), BACKBONES["gpt_tiny"].selection
    )
    assert base is net
    assert [one.name for one in places if one.replaced] == ["blocks.0.attention.qkv"]
    assert measured(replaced.eval(), (1, 8), tokens=True).error < 1e-5


@pytest.mark.tvm
def test_records_of_one_network_fit_another(tmp_path: Path) -> None:
    """TVM names the block of a mean after the layer before it, which has another number in a deeper network."""

    def of_depth(depth: int) -> nn.Module:
        layers = [layer for _ in range(depth) for layer in (nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1)).eval()

    common: dict[str, Any] = {"records": tmp_path, "target": "local:1", "trials": 2}
    shallow = tune_functions(of_depth(1), (1, 4, 8, 8), **common)
    deep = tune_network(of_depth(3), (1, 4, 8, 8), repeats=2, rounds=1, **common)
    assert deep.functions.failed == {}
    assert deep.measurement.tuned == len(shallow.results) == len(deep.functions.results)
    assert deep.functions.known > 0, "the convolution is known"
