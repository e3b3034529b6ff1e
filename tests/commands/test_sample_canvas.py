"""``syno-lab sample`` and ``search`` with Canvas: kernels within their budget, and one line for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import TINY, answered, refused

from syno_lab.canvas.fitted import Fitted
from syno_lab.canvas.mixing import pairing_of, parse_wishes
from syno_lab.canvas.places import places_of
from syno_lab.models.registry import backbone
from syno_lab.systems import read_operator

DRAW = ("sample", "--system", "canvas", "--backbone", "resnet20")


def test_kernels_are_drawn_within_the_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = tmp_path / "kernels.jsonl"
    asked = ("--count", "12", "--seed", "3", "--flops", "0.3", "--params", "0.5", "--max-primitives", "7")
    more = (
        "--fcs",
        "1-2",
        "--groups",
        "4",
        "--wants",
        "C_in>=a",
        "--include",
        "fc,unfold,add,fold_avg,group,relu,shift",
    )
    found = json.loads(answered(capsys, *DRAW, *asked, *more, "--out", str(lines), "--json", "-"))
    assert found["distinct"] == len(found["operators"]) == 12
    assert found["attempts"] >= found["drawn"] >= 12
    assert sum(found["outcomes"].values()) == found["attempts"]
    chosen = backbone("resnet20")
    places = places_of(chosen.survey().select(chosen.selection))
    flops, params = (sum(getattr(place, what) for place in places) for what in ("flops", "params"))
    written = [read_operator(line) for line in lines.read_text().splitlines()]
    for entry, operator in zip(found["operators"], written, strict=True):
        assert read_operator(json.dumps(entry["operator"])) == operator
        assert isinstance(operator, Fitted)
        # The costs at every place, added up one by one.
        spent = [operator.flops({**operator.binding(place), **_sizes(place)}) * place.layers for place in places]
        assert entry["flops"] == sum(spent) <= 0.3 * flops
        assert entry["flops_ratio"] == pytest.approx(entry["flops"] / flops)
        assert entry["params"] <= 0.5 * params
        nodes = [node.primitive.name for node in operator.kernel.nodes]
        assert 3 <= len(nodes) <= 7
        assert 1 <= nodes.count("fc") <= 2
        assert set(nodes) <= set(found["include"].split(","))
        assert "G" not in operator.kernel.variables or operator.groups == 4
        assert pairing_of(operator.kernel).meets(parse_wishes("C_in>=a"))
    assert len({operator.kernel.key for operator in written if isinstance(operator, Fitted)}) == 12
    again = json.loads(answered(capsys, *DRAW, *asked, *more, "--json", "-"))
    assert again["operators"] == found["operators"]
    text = answered(capsys, *DRAW, "--seconds", "0.5", "--seed", "3")
    assert "distinct a CPU-second" in text
    assert "attempts valid, seed 3" in text


def _sizes(place: object) -> dict[str, int]:
    names = {"C_in": "c_in", "C_out": "c_out", "H": "h", "W": "w", "KH": "kh", "KW": "kw", "s": "stride"}
    return {name: getattr(place, own) for name, own in names.items()}


def test_pgraphs_are_written_as_lines_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, lines = tmp_path / "spec.json", tmp_path / "pgraphs.jsonl"
    spec.write_text(json.dumps(TINY))
    asked = ("sample", "--spec", str(spec), "--count", "4", "--out", str(lines), "--system", "syno", "--json", "-")
    found = json.loads(answered(capsys, *asked))
    assert [json.loads(line) for line in lines.read_text().splitlines()] == [
        entry["operator"] for entry in found["operators"]
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--spec", "readme"), "--spec: expected --system pgraphs beside it, found 'canvas'"),
        (("--save", "x.json"), "--save: expected --system pgraphs beside it, found 'canvas'"),
        (("--fcs", "few"), "--fcs: expected the fewest and the most, such as 1-4, found 'few'"),
        (("--include", "fc,mix"), "include: expected primitives among group, shift"),
        (("--groups", "7"), "groups: expected a common divisor of the channels, 2, 4, 8, 16; found 7"),
        (("--wants", "K>=m"), "wants: expected an input axis of [N, C_in, H, W], found 'K'"),
        (("--flops", "-1"), "budget: expected a share above 0 for max_flops, found -1"),
        (("--backbone", "gpt2"), "--backbone: expected a network for images, found gpt2, one for text"),
        (("--flops", "1e-9", "--seconds", "0.2"), "expected a kernel within 0.2 seconds, found none"),
        (("--system", "nas-pte"), "--system: expected pgraphs or canvas, found 'nas-pte', which draws no operators"),
        (("--system", "pgraphs", "--groups", "2"), "--groups: expected --system canvas beside it, found 'pgraphs'"),
    ],
)
def test_one_line_for_what_is_wrong(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, "sample", "--system", "canvas", *arguments)


def test_canvas_is_not_enumerated(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "enumerate", "--system", "canvas")
    assert "expected pgraphs, found canvas, which has no enumeration" in line


def test_a_search_of_both_systems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ("--backbone", "resnet20", "--data", "digits", "--width", "4", "--blocks", "1", "--epochs", "1")
    small += ("--images", "64", "--test-images", "32", "--max-primitives", "4", "--in-process", "--wants", "none")
    place = ("--folder", str(tmp_path), "--name", "both")
    new = ("--trials", "5", "--seeds", "1", "--to-the-end", "--method", "random", "--lower-within", "0", "--flops", "1")
    found = json.loads(answered(capsys, "search", *small, *place, *new, "--system", "canvas, syno", "--json", "-"))
    assert found["settings"]["system"] == "syno-lab-operator,syno-lab-canvas"
    assert {one["system"] for one in found["recorded"]} == {"pGraphs", "Canvas"}
    assert isinstance(found["lowered"], list)
    text = answered(capsys, "search", "--continue", "--in-process", *place)
    assert "5 trials" in text
    assert not any(found["best"].values()) or "system" in text
