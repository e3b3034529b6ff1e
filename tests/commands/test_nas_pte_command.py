"""NAS-PTE's operators by command: listed, shown, trained, tuned, stored, exported and read again."""

from __future__ import annotations

import json
import subprocess
import sys
from math import prod
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from command_line import answered, refused

from syno_lab.codegen.export import load_weights
from syno_lab.codegen.export_record import read_operator as read_exported
from syno_lab.commands.detach import working_in
from syno_lab.jobs import Lab
from syno_lab.nas_pte.operator import nas_pte_1, nas_pte_2
from syno_lab.reports import LabReader
from syno_lab.store import Store
from syno_lab.systems import builder_of, read_operator
from syno_lab.trial import TrialRequest, run_trial

SIZES = {"N": 1, "C_in": 8, "C_out": 16, "H": 6, "W": 5}
BIND = [part for name, number in SIZES.items() for part in ("--bind", f"{name}={number}")]
WIDE = [part for name in SIZES for part in ("--bind", f"{name}=32")]
TRAIN = ["--data", "digits", "--epochs", "1", "--width", "8", "--train-images", "64", "--test-images", "32"]
#: Channels of the layers that are replaced: 8 to 8 twice, and each stage's two.
CHANNELS = [(8, 8), (8, 8), (8, 16), (16, 16), (16, 32), (32, 32)]


def test_shown_in_the_forms_that_any_operator_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(answered(capsys, "show", "nas_pte_1", *BIND, "--json", "-"))
    operator = nas_pte_1()
    assert facts["binding"] == SIZES
    assert (facts["flops"], facts["params"], facts["memory_bytes"]) == (
        operator.flops(SIZES),
        operator.params(SIZES),
        operator.memory(SIZES),
    )
    assert (facts["steps"], facts["weights"]) == (None, 2)
    assert "class SynoOperator(nn.Module)" in answered(capsys, "show", "nas_pte_1", *BIND, "--as", "source")
    assert "4 groups" in answered(capsys, "show", "nas_pte_1", "--as", "dot")
    assert answered(capsys, "show", "nas_pte_1", "--as", "svg").startswith("<svg")
    path = tmp_path / "mine.json"
    answered(capsys, "show", "nas_pte_1", "--as", "file", "--out", str(path))
    assert read_operator(path.read_text()) == operator
    assert "nas_pte_1 of NAS-PTE" in answered(capsys, "show", str(path))
    assert "for its latency alone" in answered(capsys, "show", "nas_pte_3")


@pytest.mark.parametrize("form", ["loops", "python", "c", "latex", "table", "mixing"])
def test_forms_of_pgraphs_alone_are_refused_in_one_line(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "show", "nas_pte_1", *BIND, "--as", form)
    assert f"--as {form}: expected a pGraph, found nas_pte_1, an operator of NAS-PTE; other forms: --as summary" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "nas_pte_1", "--bind", "N=1"], "nas_pte_1: expected a whole number from 1 up for C_in, found None"),
        (["show", "nas_pte_1", *BIND, "--bind", "Q=1"], "unknown variable 'Q'; declared are N, C_in, C_out, H, W"),
        (["tune", "nas_pte_1", *BIND, "--bind", "Q=1"], "unknown variable 'Q'; declared are N, C_in, C_out, H, W"),
        (["tune", "nas_pte_1", *BIND[2:]], "expected a whole number from 1 up for N"),
        (["train", "nas_pte_3", *TRAIN], "nas_pte_3: expected an operator that fits some of 6 layers of resnet20"),
        (["export", "nas_pte_1", *BIND, "--out", "a.py", "--scale", "2"], "scale: expected 1 for nas_pte_1"),
        (
            ["export", "nas_pte_1", "--out", "a.json", "--scale", "2"],
            "--scale: expected another format, found --as json",
        ),
        (["show", "nas_pte_9"], "did you mean nas_pte_"),
    ],
)
def test_refusals(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capsys, *arguments)


def test_trained_by_command_and_by_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["train", "nas_pte_1", *TRAIN, "--folder", str(tmp_path / "kept"), "--json", "-"]
    told = json.loads(answered(capsys, *arguments))
    (trial,) = told["trials"]
    assert trial["state"] == "finished"
    assert [place["replaced"] for place in trial["sites"]] == [True] * len(CHANNELS)
    dense = sum(9 * into * out for into, out in CHANNELS)
    assert trial["baseline_params"] - trial["params"] == dense - dense * 3 // 8  # half of 1/2 and half of 1/4
    request = TrialRequest.from_dict(told["request"] | {"operator": nas_pte_1().to_json()})
    outcome = run_trial(request, folder=tmp_path / "again")
    assert outcome.accuracy == trial["accuracy"]
    assert (outcome.flops, outcome.params) == (trial["flops"], trial["params"])
    # An operator's file is as good as its name.
    path = tmp_path / "file.json"
    path.write_text(nas_pte_1().to_json())
    (from_file,) = json.loads(answered(capsys, "train", str(path), *TRAIN, "--json", "-"))["trials"]
    assert from_file["accuracy"] == trial["accuracy"]


def test_kept_in_a_store_and_read_again(tmp_path: Path) -> None:
    operator = nas_pte_1()
    name = operator.fingerprint(SIZES)
    with Store.open(tmp_path) as store:
        log = store.search("mine", {})
        number = log.add(name, operator.to_json(), (), operator.flops(SIZES), operator.params(SIZES))
        log.record(number, {"state": "finished", "accuracy": 0.5})
        log.record_latency(number, "local", {"latency_ms": 2.0})
    with LabReader(tmp_path) as reader:
        (row,) = reader.read().rows
    assert (row.label, row.accuracy, dict(row.latencies)) == ("trial 0", 0.5, {"local": 2.0})
    assert read_operator(row.operator) == operator


@pytest.mark.parametrize("suffix", [".json", ".py", ".safetensors", ".pt2", ".onnx"])
def test_exported_and_read_again(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"mine{suffix}"
    facts = json.loads(answered(capsys, "export", "nas_pte_1", *BIND, "--out", str(path), "--json", "-"))
    assert facts["bytes"] == path.stat().st_size
    assert facts["binding"] == SIZES
    if suffix == ".json":
        assert read_operator(path.read_bytes()) == nas_pte_1()
        return
    assert read_exported(path) == (nas_pte_1(), SIZES)
    if suffix == ".py":
        done = subprocess.run(
            [sys.executable, "-I", str(path)], capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "an operator of NAS-PTE" in path.read_text()
        broken = tmp_path / "broken.py"
        broken.write_text(path.read_text().replace("groups=4", "groups=2").replace("(8, 2, 3, 3)", "(8, 4, 3, 3)"))
        done = subprocess.run([sys.executable, "-I", str(broken)], capture_output=True, timeout=240, check=False)
        assert done.returncode != 0, "the check of itself looks at the numbers"
    if suffix == ".onnx":
        assert facts["compared_with"] == "NumPy reference"


def test_exported_weights_go_into_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights, program = tmp_path / "w.safetensors", tmp_path / "mine.onnx"
    answered(capsys, "export", "nas_pte_1", *BIND, "--out", str(weights), "--seed", "3")
    answered(capsys, "export", "nas_pte_1", *BIND, "--out", str(program), "--weights", str(weights))
    module = load_weights(nas_pte_1(), weights)
    x = np.random.default_rng(0).standard_normal(nas_pte_1().input_sizes(SIZES)).astype(np.float32)
    (found,) = onnxruntime.InferenceSession(str(program), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    with torch.no_grad():
        np.testing.assert_allclose(found, module(torch.from_numpy(x)).numpy(), rtol=0, atol=1e-4)
    assert sum(prod(weight.shape) for weight in module.parameters()) == nas_pte_1().params(SIZES)
    into = ["--weights", str(weights), "--out", str(tmp_path / "a.pt2")]
    assert "expected weights of nas_pte_2" in refused(capsys, "export", "nas_pte_2", *WIDE, *into)


def test_a_detached_tuning_names_its_builder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Lab.open(tmp_path, start=False) as lab, working_in(lab):
        answered(capsys, "tune", "nas_pte_1", "conv2d", *BIND, "--trials", "2", "--detach")
        (job,) = lab.jobs(kind="tune")
    first, _ = job.params["tasks"]
    assert first["builder"] == builder_of(nas_pte_1().to_json()) == "syno_lab.nas_pte.tvm:lower_json"
    assert read_operator(first["operator"]) == nas_pte_1()


@pytest.mark.tvm
@pytest.mark.timeout(300)
@pytest.mark.warm
def test_tuned_and_kept(tmp_path: Path) -> None:
    def tune() -> dict[str, object]:
        words = ["tune", "nas_pte_1", *BIND, "--trials", "2", "--out", str(tmp_path), "--json", "-"]
        done = subprocess.run(
            [sys.executable, "-m", "syno_lab.cli", *words], capture_output=True, text=True, timeout=280, check=False
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, object] = json.loads(done.stdout)
        return found

    told = tune()
    assert told["verified"]
    assert told["trials"] == 2
    assert not told["from_records"]
    again = tune()
    assert again["from_records"]
    assert again["latency_ms"] == told["latency_ms"]


def test_the_second_fits_where_its_channels_do(capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(answered(capsys, "train", "nas_pte_2", *TRAIN, "--width", "32", "--json", "-"))
    (trial,) = told["trials"]
    assert [place["replaced"] for place in trial["sites"]] == [True] * 6
    assert trial["baseline_params"] > trial["params"]
    assert read_operator(nas_pte_2().to_json()) == nas_pte_2()
