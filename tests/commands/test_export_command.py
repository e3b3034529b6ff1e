"""The command ``export``: files that other programs read, and one line for what cannot be exported."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

import syno_lab as sl
from syno_lab.cli import main
from syno_lab.codegen.export import load_weights, read_operator
from syno_lab.codegen.reference import reference

SIZES = {"N": 1, "C_in": 4, "C_out": 6, "H": 5, "W": 3}
BIND = [part for name, number in SIZES.items() for part in ("--bind", f"{name}={number}")]


def exported(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What ``syno-lab export`` prints to standard output."""
    status = main(["export", *arguments])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    return captured.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that ``syno-lab export`` ends with, and status 2."""
    assert main(["export", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("syno-lab: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_weights_go_into_onnx(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights, program = tmp_path / "w.safetensors", tmp_path / "conv.onnx"
    line = exported(capsys, "conv2d", "--as", "weights", *BIND, "--seed", "3", "--out", str(weights))
    assert line.startswith(f"{weights}: weights, ")
    said = exported(capsys, "conv2d", *BIND, "--weights", str(weights), "--out", str(program), "--json", "-")
    facts = json.loads(said)
    assert (facts["label"], facts["format"], facts["batch_axes"]) == ("conv2d", "onnx", [0])
    assert facts["compared_with"] == "loop nest"
    assert facts["bytes"] == program.stat().st_size
    assert facts["binding"] == SIZES | {"k_1": 3}
    operator = sl.operators.conv2d()
    x = np.random.default_rng(0).standard_normal((3, 4, 5, 3)).astype(np.float32)
    weight = load_weights(operator, weights).weight_1.detach().numpy()
    wanted = reference(operator, x, weight, binding=facts["binding"] | {"N": 3})
    (found,) = onnxruntime.InferenceSession(str(program), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)


def test_every_format_holds_the_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "mine.json"
    saved.write_text(sl.operators.conv1x1().to_json())
    for form, suffix in {"torch-export": ".pt2", "python": ".py", "weights": ".safetensors"}.items():
        out = tmp_path / f"new/mine{suffix}"
        line = exported(capsys, str(saved), "--as", form, *BIND, "--out", str(out))
        assert line.startswith(f"{out}: {form}, {out.stat().st_size:,} bytes")
        assert read_operator(out) == (sl.operators.conv1x1(), SIZES)


@pytest.mark.parametrize(
    ("name", "meaning"), [("conv1x1", "loop nest"), ("residual", "NumPy reference"), ("nas_pte_1", "NumPy reference")]
)
def test_the_line_names_what_the_numbers_are_held_against(
    name: str, meaning: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {**SIZES, "C_out": 4, "H": 4, "W": 4} | ({"C_in": 16, "C_out": 16} if name == "nas_pte_1" else {})
    bound = [part for size, number in sizes.items() for part in ("--bind", f"{size}={number}")]
    line = exported(capsys, name, *bound, "--out", str(tmp_path / "mine.onnx"))
    assert f"; read back, it differs from the {meaning} by " in line
    assert all(f"the {other} by" not in line for other in {"loop nest", "NumPy reference", "torch module"} - {meaning})


@pytest.mark.tvm
def test_a_library_for_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "conv.so"
    facts = json.loads(exported(capsys, "conv1x1", *BIND, "--out", str(out), "--json", "-"))
    assert (facts["format"], facts["target"], facts["bytes"]) == ("library", "llvm", out.stat().st_size)
    assert facts["compared_with"] == "loop nest"
    assert 0 < facts["relative_difference"] < 1e-5
    assert read_operator(out) == (sl.operators.conv1x1(), SIZES)
    assert "expected a target" in refused(capsys, "conv1x1", *BIND, "--out", str(out), "--target", "abacus")


@pytest.mark.tvm
def test_a_library_of_a_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An operator of another system; a whole network is no single function."""
    kernel = sl.canvas.known.squeeze_excite().fit([sl.canvas.Place(4, 4, 3, 3)])
    (tmp_path / "kernel.json").write_text(kernel.to_json())
    out, bound = tmp_path / "kernel.so", {"N": 2, "C_in": 4, "C_out": 4, "H": 3, "W": 3}
    sizes = [part for name, size in bound.items() for part in ("--bind", f"{name}={size}")]
    facts = json.loads(exported(capsys, str(tmp_path / "kernel.json"), *sizes, "--out", str(out), "--json", "-"))
    assert (facts["format"], facts["compared_with"]) == ("library", "NumPy reference")
    assert 0 < facts["relative_difference"] < 1e-5
    held, found = read_operator(out)
    assert held == kernel
    assert found.items() >= bound.items()
    assert "found a whole network of αNAS; compile it by" in refused(capsys, "mlp_block", "--out", str(out))


def test_a_seed_gives_the_same_weights_and_leaves_torch_s_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = torch.get_rng_state()
    paths = [tmp_path / f"{i}.safetensors" for i in range(3)]
    for path, seed in zip(paths, "112", strict=True):
        exported(capsys, "conv1x1", *BIND, "--seed", seed, "--out", str(path))
    assert torch.equal(torch.get_rng_state(), before)
    a, b, c = (load_weights(sl.operators.conv1x1(), path).weight_1 for path in paths)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_scale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bind = ["--bind", "N=1", "--bind", "C=2", "--bind", "H=2", "--bind", "W=2", "--bind", "s=2"]
    exported(capsys, "sum_pool", *bind, "--scale", "0.25", "--out", str(tmp_path / "a.pt2"))
    x = torch.randn(3, 2, 4, 4)
    pooled = torch.export.load(tmp_path / "a.pt2").module()(x)
    torch.testing.assert_close(pooled, torch.nn.functional.avg_pool2d(x, 2))


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights, out = tmp_path / "w.safetensors", str(tmp_path / "a.onnx")
    exported(capsys, "conv1x1", *BIND, "--out", str(weights))
    for arguments, why in {
        ("conv3d", "--out", out): "did you mean conv",
        ("conv2d", *BIND, "--out", str(tmp_path / "a.bin")): "expected a file with one of the suffixes",
        ("conv2d", *BIND, "--out", str(tmp_path)): "expected a file, found the folder",
        ("conv2d", *BIND, "--as", "python", "--out", out): "python: expected a file named *.py, found 'a.onnx'",
        ("conv2d", "--out", out): "no value for N",
        ("conv2d", *BIND, "--weights", str(weights), "--out", out): "found those of [N, C_in, H, W]",
        ("conv1x1", *BIND[2:], "--bind", "N=2", "--bind", "H=9", "--weights", str(weights), "--out", out): "H is given",
        ("conv1x1", *BIND, "--weights", str(tmp_path / "no.safetensors"), "--out", out): "expected a readable file",
        ("conv1x1", *BIND, "--weights", str(weights), "--out", str(tmp_path / "a.py")): "expected a format that holds",
        ("conv1x1", *BIND, "--target", "llvm", "--out", out): "--target: expected --as library",
        ("conv1x1", *BIND, "--scale", "2", "--as", "library", "--out", out): "--scale: expected another format",
        ("conv1x1", *BIND, "--as", "library", "--out", out): "to end in .so or .tar, found 'a.onnx'",
        ("conv1x1", *BIND, "--json", str(tmp_path / "no" / "a.json"), "--out", out): "--json: expected a file",
    }.items():
        assert why in refused(capsys, *arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w.safetensors"]
