"""``syno-lab backbone``: tables for people, JSON for programs, one line for what is wrong."""

from __future__ import annotations

import json

import pytest
from command_line import answered, refused

from syno_lab import operators
from syno_lab.models import BACKBONES


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    return json.loads(answered(capsys, "backbone", *arguments, "--json", "-"))


def replaced(answer: dict) -> list[str]:
    return [row["name"] for row in answer["layers"] if row["replaced"]]


def test_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    table = answered(capsys, "backbone")
    for known in BACKBONES.values():
        assert known.name in table
        assert f"{known.params:,}" in table
    rows = json.loads(answered(capsys, "backbone", "--json", "-"))
    assert [row["name"] for row in rows] == list(BACKBONES)


def test_a_backbone_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    table = answered(capsys, "backbone", "resnet20")
    assert "stage2.0.conv1  16x32x32  32x16x16  3x3          2       1  2,359,296  2.9%    4,608" in table
    assert "linear" not in table
    assert "resnet20: 269,722 parameters, 81,102,080 FLOPs; 18 of 20 layers replaced, 98.9% of the FLOPs" in table
    assert "specification: [N, C_in, H, W] to [N, C_out, H, W] with 5 bindings" in table
    everything = answered(capsys, "backbone", "resnet20", "--all")
    assert "it is a layer of kind linear" in everything
    assert "it is to be left by its name" in everything


def test_what_an_operator_would_cost(capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(capsys, "resnet20", "--operator", "operator_1")
    site = next(row for row in answer["layers"] if row["name"] == "stage3.2.conv2")
    binding = {"N": 1, "C_in": 64, "C_out": 64, "H": 8, "W": 8}
    assert site["operator flops"] == operators.operator_1().flops(operators.operator_1().complete_binding(binding))
    saved = sum(row["flops"] - row["operator flops"] for row in answer["layers"] if row["replaced"])
    assert answer["operator"]["flops"] == answer["flops"] - saved
    assert "with operator_1: " in answered(capsys, "backbone", "resnet20", "--operator", "operator_1")


def test_the_selection_is_the_users(capsys: pytest.CaptureFixture[str]) -> None:
    assert replaced(asked(capsys, "resnet20", "--stride", "2")) == ["stage2.0.conv1", "stage3.0.conv1"]
    assert len(replaced(asked(capsys, "resnet20", "--leave", ""))) == 19
    assert len(replaced(asked(capsys, "resnet20", "--leave", "stage*", "--leave", "nothing"))) == 1
    assert replaced(asked(capsys, "resnet20", "--layers", "linear", "--match", "*")) == ["linear"]
    both = asked(capsys, "resnet20", "--layers", "both")
    assert len(replaced(both)) == 19
    assert both["spec"] is None
    assert len(replaced(asked(capsys, "gpt_tiny"))) == 4
    assert len(replaced(asked(capsys, "gpt_tiny", "--match", "*.up", "--match", "*.down"))) == 8
    assert len(replaced(asked(capsys, "resnext29_2x64d", "--pointwise", "--groups", "1"))) == 21
    assert len(replaced(asked(capsys, "resnext29_2x64d", "--groups", "0"))) == 9


def test_sizes_are_the_users(capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(capsys, "resnet20", "--resolution", "64", "--outputs", "100", "--channels", "1")
    assert answer["params"] == 269_722 + 90 * 65 - 2 * 16 * 9
    assert answer["layers"][0]["input"] == "1x64x64"
    assert asked(capsys, "gpt_tiny", "--context", "32", "--outputs", "65")["params"] == 834_304 - (32 + 191) * 128
    shape = asked(capsys, "resnet20", "--stride", "2", "--strides", "shape", "--operator", "strided")
    assert shape["spec"]["input_shape"] == "[N, C_in, s*H, s*W]"
    assert shape["operator"]["flops"] == shape["flops"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resnet81"], "found 'resnet81'; did you mean resnet18"),
        (["gpt2", "--match", "nothing"], "expected something to replace in this GPT, found blocks.0.attention.qkv and"),
        (
            ["resnet20", "--operator", "matmul"],
            "matmul fits none of the 18 layers to replace: stage1.0.conv1: expected",
        ),
        (["resnet20", "--operator", "conv2f"], "found 'conv2f'; did you mean conv2d?"),
        (["resnet20", "--context", "8"], "--context: expected --resolution for a network that takes images"),
        (["gpt_tiny", "--resolution", "8"], "--resolution: expected --context for a network that takes text"),
        (["densenet121", "--resolution", "8"], "expected a network that takes images [3, 8, 8], found: "),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert message in refused(capsys, "backbone", *arguments)
