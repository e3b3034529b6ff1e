"""The portrait of an operator: its sentences follow from its function and from the figures of its search."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from syno_lab.alpha.known import KNOWN
from syno_lab.canvas.known import FITTED
from syno_lab.operators import grouped, grouped_linear, separable
from syno_lab.protocol import Operator
from syno_lab.reports.portrait import HEADINGS, Reading, portrait
from syno_lab.store.outcomes import Comparison
from syno_lab.systems import read_operator, system_of

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
HALF_HOURS = json.loads((RESULTS / "half_hours.json").read_text(encoding="utf-8"))["rows"]
SIZES = {"N": 1, "C_in": 16, "C_out": 16, "H": 16, "W": 16}
READS, TRAINS, FIGURES, RELATED, LACKS = HEADINGS


def stored(row: int, share: str) -> tuple[Operator, Comparison]:
    """The best operator of a stored search within a share of the FLOPs, and its finals."""
    search = HALF_HOURS[row]
    return read_operator(search["best"][share]["operator"]), msgspec.convert(search["comparisons"][share], Comparison)


def told(operator: Operator, *figures: Any) -> dict[str, list[str]]:
    return portrait(operator, operator.complete_binding(SIZES), *figures)


def test_two_operators_have_two_texts() -> None:
    first, second, third = (told(*stored(row, share)) for row, share in ((0, "0.4"), (5, "0.25"), (0, "0.25")))
    # Groups whose outputs are taken in turns; the first, word for word, but for the steps of its relative.
    steps, *relative = first.pop(RELATED)
    assert steps.startswith("grouped, 2.52 steps away: MERGE i_C_out with B = g where grouped has ")
    assert relative == [
        (
            "Of grouped: Each output element reads 4 of 16 input channels, 3 rows (-1..1 from its own), 3 columns "
            "(-1..1 from its own)."
        ),
        "Of grouped: The input channels form 4 groups, and adjacent output channels read the same group.",
        "Of grouped: Any number of such layers in sequence mixes at most 4 of 16 channels.",
    ]
    assert first == {
        READS: [
            (
                "Each output element reads 4 of 16 input channels, 3 rows (-1..1 from its own), 4 columns (-2..1 from "
                "its own)."
            ),
            "The input channels form 4 groups, and adjacent output channels read different groups.",
            "2 such layers in sequence mix all 16 channels.",
        ],
        TRAINS: [
            "It is linear in its input, so its gradient does not depend on the input's values.",
            "It has 768 parameters in 1 tensor in a layer with N=1, C_in=16, C_out=16, H=16, W=16, k_1=3, g=4, s=2.",
            "The gradient reaches 16 of 16 input channels.",
            (
                "Its kernel for random weights has, of the effective rank of a convolution with a window of 3, 100% "
                "over the positions, 102% over the output channels, 103% over the input channels."
            ),
        ],
        FIGURES: [
            "The verdict of the finals: undecided, +1.4 points (95% interval -0.7 to +3.7; 5 seeds).",
            "With it, on 5 seeds: accuracy 0.488 (as it is 0.473), 0.399 of the FLOPs, 0.339 of the parameters.",
        ],
        LACKS: ["A convolution with a window of 3 mixes all 16 input channels in one layer, this operator at most 4."],
    }
    assert second[READS][1:] == [
        "The input channels form 8 groups, and adjacent output channels read different groups.",
        "4 such layers in sequence mix all 16 channels.",
    ]
    # A slice of the picture and a quarter of the channels, which no layer behind it can mend.
    assert third[READS][1:] == [
        "All output channels read the same input channels.",
        "Any number of such layers in sequence mixes at most 4 of 16 channels.",
    ]
    assert "The gradient reaches 4 of 16 input channels." in third[TRAINS]
    assert "It does not read the rows -1..1 from its own." in third[LACKS]
    assert "In the finals it differs from the baseline by -4.8 points." in third[LACKS]
    for heading in (READS, TRAINS, FIGURES, LACKS):
        assert first[heading] != second[heading] != third[heading]


@pytest.mark.parametrize(("row", "share"), [(0, "0.4"), (0, "0.25"), (1, "0.25"), (2, "0.25"), (7, "0.4")])
def test_what_it_reads_is_the_exact_receptive_field(row: int, share: str) -> None:
    operator, _ = stored(row, share)
    bound = operator.complete_binding(SIZES)
    reading = Reading.of(operator, bound)
    assert reading is not None
    rows, columns = set[int](), set[int]()
    for channel in range(16):
        _, channels, *places = operator.receptive_field((0, channel, 8, 8), bound).axes  # type: ignore[attr-defined]
        assert tuple(np.flatnonzero(reading.channels[channel])) == channels.positions
        rows, columns = rows | set(places[0].positions), columns | set(places[1].positions)
    assert reading.offsets == {
        name: tuple(place - 8 for place in sorted(at)) for name, at in (("rows", rows), ("columns", columns))
    }


@pytest.mark.parametrize(("row", "share", "layers"), [(0, "0.4", 2), (5, "0.25", 4), (0, "0.4", 1), (5, "0.25", 3)])
def test_layers_in_sequence_mix_what_it_says(row: int, share: str, layers: int) -> None:
    operator, _ = stored(row, share)
    net = torch.nn.Sequential(*(operator.to_torch(operator.complete_binding(SIZES)) for _ in range(layers))).double()
    x = torch.randn(1, 16, 16, 16, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(net(x)[0, 0, 8, 8], x)
    is_said = f"{layers} such layers in sequence mix all 16 channels." in told(operator)[READS]
    assert bool((gradient.abs().amax((0, 2, 3)) > 0).all()) == is_said


def test_a_sentence_without_its_figure_is_left_out() -> None:
    operator, final = stored(0, "0.4")
    assert FIGURES not in told(operator)
    assert FIGURES not in told(operator, msgspec.structs.replace(final, interval=None, over_seeds=None))
    assert " ms " not in str(told(operator, final))
    times = {"forward": 3.0, "step-batch": 90.0}
    timed = msgspec.structs.replace(final, baseline_times=times, times={"forward": 4.5, "step-batch": 60.0})
    rival = msgspec.structs.replace(timed, operator=0.46, seeds=(1000,), times={"forward": 2.0})
    said = told(operator, timed, {"grouped, 4 groups": rival})
    assert said[FIGURES][1:] == [
        (
            "With it, on 5 seeds: accuracy 0.488 (as it is 0.473), 0.399 of the FLOPs, 0.339 of the parameters, 4.5 ms "
            "for a forward pass of one example (as it is 3, slower), 60 ms for a training step of a batch (as it is "
            "90)."
        ),
        (
            "With grouped, 4 groups, on 1 seed: accuracy 0.460 (as it is 0.473), 0.399 of the FLOPs, 0.339 of the "
            "parameters, 2 ms for a forward pass of one example (as it is 3)."
        ),
    ]
    assert said[LACKS][-1] == "It is slower than the network as it is."


def test_known_operators_and_linear_layers() -> None:
    assert told(separable())[RELATED] == ["It is a known operator: separable."]
    assert told(grouped())[READS][1].endswith("adjacent output channels read the same group.")
    layer = grouped_linear()
    said = portrait(layer, system_of(layer).small_binding(layer))
    assert "columns" not in str(said)
    assert "of the effective rank of a linear layer" in str(said)


@pytest.mark.parametrize("name", FITTED)
def test_kernels_of_canvas_have_what_is_measured(name: str) -> None:
    kernel = FITTED[name]()
    said = portrait(kernel, system_of(kernel).small_binding(kernel))
    assert said[READS][0].startswith("Each output element reads ")
    assert "linear in its input" not in str(said)
    assert said[RELATED] == [f"It is a known operator: {name}."]


@pytest.mark.parametrize("name", KNOWN)
def test_whole_networks_have_their_figures_alone(name: str) -> None:
    network, (_, final) = KNOWN[name](), stored(0, "0.4")
    assert set(portrait(network, network.complete_binding(), final)) == {FIGURES, RELATED}
