"""The command line: results on standard output, one line for each refusal, an exit status that says which."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from command_line import TINY, answered, refused

from syno_lab import canvas, doctor, operators
from syno_lab.cli import app, main
from syno_lab.commands import lab, operands, output
from syno_lab.commands.pgraphs import specs
from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Limits

SIZES = ["--bind", "N=1", "--bind", "C_in=8", "--bind", "C_out=8", "--bind", "H=6", "--bind", "W=6"]
COMMANDS = sorted(command.name or "" for command in app.registered_commands)

# -- all commands ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_and_takes_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--json" in answered(capsys, command, "--help")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert answered(capsys, "--version") == "syno-lab 0.1.0\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frob"], "No such command 'frob'"),
        (["show"], "Missing argument"),
        (["show", "conv2d", "--as", "poem"], "'poem' is not one of"),
        (["sample", "--count", "many"], "Invalid value for '--count'"),
        (["sample", "--nonsense"], "No such option: --nonsense"),
        (["operators", "--json", "/dev/null/all.json"], "--json: expected a file in a folder"),
        (["show", "conv2f"], "found 'conv2f'; did you mean conv2d?"),
        (["show", "conv2d", "--bind", "C_in"], "--bind: expected NAME=NUMBER such as C_in=64, found 'C_in'"),
        (["show", "conv2d", "--bind", "H=1", "--bind", "H=2"], "--bind: H is given twice"),
        (["show", "conv2d", *SIZES, "--bind", "Q=2"], "unknown variable 'Q'"),
        (["show", "conv2d", "--bind", "N=1"], "no value for C_in, C_out, H, W"),
        (["show", "conv2d", "--as", "loops", "--json", "-"], "expected --out FILE for the loops"),
        (["show", "conv2d", "--out", "/dev/null/x"], "expected to write /dev/null/x"),
        (["sample", "--fingerprints-of", "100"], "Invalid value for '--fingerprints-of'"),
        (["sample", "--save", "/dev/null/x"], "--save: expected a file in a folder that can be written to"),
        (["replay", "/dev/null/x"], "/dev/null/x: expected a readable file"),
        (["ablate", "nothing"], "'nothing' is not one of 'canonical', 'distance'"),
        (["ablate", "canonical", "--max-primitives", "8..2"], "expected a size such as 8, or sizes such as 2..8"),
        (["ablate", "distance", "--complete"], "--complete: only for `syno-lab ablate canonical`"),
        (
            ["sample", "--spec", "no"],
            "--spec: expected conv, conv-authors, readme or a JSON file, found 'no'",
        ),
        (["train", "conv2d", "--data", "/dev/null/x"], "expected a data folder at /dev/null/x"),
        (["train", "matmul", "--data", "digits"], "found one that fits none: stage1.0.conv1"),
        (["train", "baseline", "--option", "width"], "--option: expected NAME=VALUE such as layers=2, found 'width'"),
        (["train", "baseline", "--option", "depth=2"], "options of resnet20: expected some of width, blocks"),
        (["train", "baseline", "--data", "digits", "--backbone", "gpt2"], "expected text for the backbone gpt2"),
        (["train", "baseline", "--patience", "2", "--stop-early", "canvas"], "--patience or --stop-early, found both"),
        (["train", "nothing"], "expected baseline, a known operator, an operator file or a trial (SEARCH#12), found"),
        (["demo", "--data", "/dev/null/x", "--out", "/dev/null/out"], "expected a data folder at /dev/null/x"),
        (["tune", "conv2d", *SIZES, "--tracker", "localhost:1"], "--tracker HOST:PORT and --key KEY together"),
        (["tune", "conv2d", *SIZES, "--tracker", "localhost", "--key", "a"], "localhost"),
        (["tune", "conv2d", *SIZES, "--dtype", "int3"], "expected a dtype among float16, float32, float64"),
        (["tune", "conv2d", *SIZES, "--target", "no such"], "expected a target among"),
        (["tune", "conv2d"], "no value for N, C_in, C_out, H, W: give each one, as in `--bind N=1`"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_bad_input_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capsys, *arguments)


def test_a_tracker_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    line = refused(capsys, "tune", "conv2d", *SIZES, "--tracker", f"127.0.0.1:{port}", "--key", "board")
    assert f"127.0.0.1:{port}" in line


# -- operators and show ------------------------------------------------------------------------------------------------


def test_operators_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(answered(capsys, "operators", "--json", "-"))
    assert [row["name"] for row in rows if row["system"] == "pGraphs"] == list(operators.KNOWN)
    assert [row["name"] for row in rows if row["system"] == "NAS-PTE"] == ["nas_pte_1", "nas_pte_2", "nas_pte_3"]
    assert [row["name"] for row in rows if row["system"] == "Canvas"] == list(canvas.known.KNOWN)
    assert all(row["about"] for row in rows)
    table = answered(capsys, "operators").splitlines()
    for row in rows:
        assert any(line.split() == f"{row['name']} {row['system']} {row['shape']}".split() for line in table), row[
            "shape"
        ]


def test_show_gives_every_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conv = operators.conv2d()
    from syno_lab.codegen.drawing import dot, svg
    from syno_lab.codegen.loops import loops
    from syno_lab.codegen.torch_module import to_torch_source

    bound = {"N": 1, "C_in": 8, "C_out": 8, "H": 6, "W": 6, "k_1": 3}
    expected = {"loops": loops(conv, bound), "source": to_torch_source(conv, bound), "dot": dot(conv), "svg": svg(conv)}
    for form, text in expected.items():
        out = tmp_path / form
        answered(capsys, "show", "conv2d", "--as", form, *SIZES, "--out", str(out))
        assert out.read_text(encoding="utf-8").rstrip("\n") == text.rstrip("\n")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_show_counts_by_the_sizes_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "facts.json"
    said = answered(capsys, "show", "conv2d", *SIZES, "--json", str(path))
    facts = json.loads(path.read_text())
    assert facts["params"] == 8 * 8 * 9
    assert facts["flops"] == 2 * 8 * 8 * 9 * 36
    assert "576 parameters" in said
    assert json.loads(answered(capsys, "show", "conv2d", "--json", "-"))["flops"] is None


def test_show_reads_the_file_it_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.json"
    answered(capsys, "show", "operator_1", "--as", "file", "--out", str(path))
    assert Operator.from_json(path.read_text()) == operators.operator_1()
    assert answered(capsys, "show", str(path)).startswith("mine: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "expected JSON"),
        (b"\xff\xfe", "expected text in UTF-8"),
        (b'{"format": "syno-lab-operator", "version": 9}', "expected version 1, found 9"),
        (b" " * ((1 << 20) + 1), "expected at most 1048576 bytes"),
    ],
)
def test_a_broken_operator_file_is_one_line(
    content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    line = refused(capsys, "show", str(path))
    assert message in line
    assert "broken.json" in line


@pytest.mark.tvm
@pytest.mark.warm
def test_show_prints_tir() -> None:
    # In a process of its own, as a user runs it: TVM does not go into ours.
    words = [sys.executable, "-m", "syno_lab.cli", "show", "conv2d", *SIZES, "--as", "tvm"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=True)
    assert "def main(" in done.stdout
    assert "T.grid(1, 8, 6, 6, 8, 3, 3)" in done.stdout


# -- sample ------------------------------------------------------------------------------------------------------------


def test_sample_draws_the_same_for_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sample", "--spec", "readme", "--count", "6", "--seed", "5", "--max-primitives", "6", "--json", "-"]
    first, second = (json.loads(answered(capsys, *arguments)) for _ in range(2))
    assert first["operators"] == second["operators"]
    drawn = [Operator.from_json(json.dumps(entry["operator"])) for entry in first["operators"]]
    assert len(set(drawn)) == first["distinct"] == 6
    assert all(len(operator.steps) <= 6 for operator in drawn)
    assert not first["exhausted"]
    assert first["peak_memory_bytes"] > 1 << 20
    share = first["repeat_share"]
    assert share == 1 - len({entry["fingerprint"] for entry in first["operators"]}) / 6
    assert first["distinct_per_cpu_second"] == pytest.approx(6 * (1 - share) / first["cpu_seconds"])
    other = json.loads(answered(capsys, *arguments[:6], "6", *arguments[7:]))
    assert other["operators"] != first["operators"]


def test_sample_says_when_there_are_no_more(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    from syno_lab.synthesis import sampler

    spec, _ = specs.load_spec(tiny, max_primitives=2)
    whole = set(sampler.Sampler.from_spec(spec).enumerate())
    arguments = ["--spec", tiny, "--max-primitives", "2", "--count", "999", "--json", "-"]
    result = json.loads(answered(capsys, "sample", *arguments))
    assert result["exhausted"]
    assert {Operator.from_json(json.dumps(entry["operator"])) for entry in result["operators"]} == whole


def test_sample_stops_in_time_and_leaves_fingerprints_out(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--spec", "readme", "--seconds", "12", "--no-fingerprints", "--json", "-"]
    result = json.loads(answered(capsys, "sample", *arguments))
    assert result["distinct"] >= len(result["operators"]) > 0
    assert not result["exhausted"]
    assert result["repeat_share"] is None
    assert {entry["fingerprint"] for entry in result["operators"]} == {None}


def test_sample_without_time_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "sample", "--spec", "readme", "--seconds", "0")
    assert "within 0 seconds, found none: stopped while" in said
    assert "raise --seconds" in said


def test_sample_prints_a_line_for_each_operator(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = answered(capsys, "sample", "--spec", tiny, "--count", "2", "--seed", "1").splitlines()
    assert len(lines) == 3
    for line in lines[:2]:
        assert re.fullmatch(r"\[H\] -> \[H\] with .*; [\d,]+ FLOPs; [\d,]+ parameters; [0-9a-f]{32}", line)
    assert lines[2].startswith("2 operators in ")


def test_named_specs_are_those_of_the_design() -> None:
    conv, _ = specs.load_spec("conv")
    assert (conv.weight_limits, conv.limits.max_primitives, conv.limits.max_flops) == ("primary", 10, 10**9)
    assert conv.binding_maps[0] == {
        "N": 1, "C_in": 64, "C_out": 64, "H": 32, "W": 32, "k_1": 3, "k_2": 5, "s": 2, "g": 16,
    }  # fmt: skip
    limits = {name: limit for name, limit in conv.occurrence_limits.items() if limit}
    assert limits == {"C_in": 3, "C_out": 4, "k_1": 4, "k_2": 3, "s": 1, "g": 3}
    authors, _ = specs.load_spec("conv-authors", weight_limits="free", max_primitives=9)
    assert (authors.weight_limits, authors.limits.max_primitives, authors.limits.max_flops) == ("free", 9, 10**9)
    assert authors.binding_maps == conv.binding_maps
    limits = {name: limit for name, limit in authors.occurrence_limits.items() if limit}
    assert limits == {"C_in": 3, "k_1": 4, "k_2": 3, "g": 3}
    readme, _ = specs.load_spec("readme")
    assert [(bound["H"], bound["W"]) for bound in readme.binding_maps] == [(32, 32), (16, 16)]


def test_weight_limits_of_another_name_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "sample", "--weight-limits", "loose")
    assert "Invalid value for '--weight-limits': expected 'free' or 'primary', found 'loose'" in line


def test_a_spec_file_has_every_limit_of_the_sampler() -> None:
    fields = set(specs.SpecFile.__struct_fields__)
    assert set(Limits.__dataclass_fields__) <= fields
    record = replace_limits(specs.SPECS["conv"])
    assert record == specs.SPECS["conv"]


def replace_limits(record: specs.SpecFile) -> specs.SpecFile:
    """Through JSON and back, as a file goes."""
    return msgspec.json.decode(msgspec.json.encode(record), type=specs.SpecFile)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"max_primitive": 3}, FormatError, "unknown field `max_primitive`"),
        ({"primary_specs": "H: 2"}, FormatError, "Expected `array`"),
        ({"weight_limits": "some"}, FormatError, "Invalid enum value 'some'"),
        ({"input_shape": "[Q]"}, SpecError, "Q"),
        ({"mappings": [{"H": 0}]}, SpecError, "H=0"),
        ({"max_primitives": -1}, SpecError, "max_primitives"),
    ],
)
def test_a_wrong_spec_file_is_refused(
    change: dict[str, object], kind: type[SynoError], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(TINY | change))
    with pytest.raises(kind, match=message) as caught:
        specs.load_spec(str(path))
    assert "wrong.json" in str(caught.value)


def test_junk_in_a_spec_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "junk.json"
    path.write_text("[" * 100_000)
    with pytest.raises(FormatError, match="expected JSON with the Sampler's fields"):
        specs.load_spec(str(path))


# -- train and tune ----------------------------------------------------------------------------------------------------

TRAIN = ["--data", "digits", "--epochs", "1", "--width", "4"]


def test_train_replaces_and_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["train", "baseline", "conv1x1", *TRAIN, "--folder", str(tmp_path / "kept"), "--json", "-"]
    result = json.loads(answered(capsys, *arguments))
    baseline, conv1x1 = result["trials"]
    assert [trial["label"] for trial in result["trials"]] == ["baseline", "conv1x1"]
    assert [place["replaced"] for place in conv1x1["sites"]] == [True] * 6
    # Six convolutions of 3x3 became 1x1: channels 4-4 twice, 4-8, 8-8, 8-16 and 16-16; the first one stays.
    fewer = 8 * (2 * 4 * 4 + 4 * 8 + 8 * 8 + 8 * 16 + 16 * 16)
    assert baseline["params"] - conv1x1["params"] == fewer
    assert baseline["accuracy"] > 0.2
    # Once more in the same folder: nothing is trained, and the result is the same, seconds included.
    assert json.loads(answered(capsys, *arguments)) == result


def test_train_leaves_convolutions_that_the_operator_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    # Four groups do not divide the first convolution's single channel.
    result = json.loads(answered(capsys, "train", "grouped", *TRAIN, "--option", "leave=[]", "--json", "-"))
    (trial,) = result["trials"]
    assert [place["replaced"] for place in trial["sites"]] == [False] + [True] * 6
    assert (trial["replaced"], trial["places"]) == (6, 7)
    assert "C_in" in trial["sites"][0]["reason"]


def test_train_against_the_baseline_on_two_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["conv1x1", *TRAIN, "--against-baseline", "--seeds", "2", "--resolution", "4"]
    result = json.loads(answered(capsys, "train", *arguments, "--json", "-"))
    assert [(trial["label"], trial["seed"]) for trial in result["trials"]] == [
        ("baseline", 0),
        ("baseline", 1),
        ("conv1x1", 0),
        ("conv1x1", 1),
    ]
    (found,) = result["comparisons"]
    accuracies = [trial["accuracy"] for trial in result["trials"]]
    assert found["by_seed"] == pytest.approx([accuracies[2] - accuracies[0], accuracies[3] - accuracies[1]])
    assert found["interval"]["low"] <= found["interval"]["difference"] <= found["interval"]["high"]
    assert found["flops_ratio"] < 1


def test_train_on_a_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be, that is the question. " * 100)
    small = ["--width", "16", *(part for one in ("layers=1", "context=8", "steps=30") for part in ("--option", one))]
    result = json.loads(
        answered(capsys, "train", "baseline", "--data", str(text), "--epochs", "2", *small, "--json", "-")
    )
    (trial,) = result["trials"]
    assert result["request"]["backbone"] == "gpt_tiny"
    assert trial["curve"][1]["perplexity"] < trial["curve"][0]["perplexity"] < 256


def test_train_stops_on_divergence(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "train", "baseline", *TRAIN, "--learning-rate", "1e30")
    assert "diverged: expected" in line


@pytest.mark.tvm
def test_tune_on_a_board_of_our_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["tune", "conv1x1", *SIZES, "--trials", "2", "--out", str(tmp_path / "logs"), "--json", "-"]
    result = json.loads(answered(capsys, *arguments))
    assert result["latency_ms"] >= result["best_ms"] > 0
    assert result["verified"]
    assert result["binding"] == {"N": 1, "C_in": 8, "C_out": 8, "H": 6, "W": 6}


# -- doctor ------------------------------------------------------------------------------------------------------------


def cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


@pytest.mark.tvm
def test_doctor_finds_this_machine_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):  # beside other work the same instructions take longer: the least of up to three
        started, report = cpu_seconds(), json.loads(answered(capsys, "doctor", "--json", "-"))
        if (spent := cpu_seconds() - started) < 5:
            break
    assert spent < 5, "it is asked for while somebody waits"
    assert report["healthy"]
    found = {finding["name"]: finding["found"] for finding in report["findings"]}
    assert "apache-tvm-ffi 0.1.14" in found["TVM"]
    assert len(found) == len(doctor.CHECKS)


def test_doctor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (doctor.python, doctor.compiler, doctor.chromium))
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv(doctor.CHROMIUM_VARIABLE, "no-such-browser")
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "MISSING C++ compiler: no no-such-compiler on the PATH" in said
    assert "absent  Chromium" in said
    assert "ok      Python" in said


def test_doctor_survives_what_it_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    # As with apache-tvm-ffi 0.1.15: the process that tries it dies of a segmentation fault.
    monkeypatch.setattr(doctor, "_TVM", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    finding = doctor.run_check(doctor.tvm)
    assert not finding.ok
    assert "killed by SIGSEGV" in finding.found
    assert "0.1.14.post1" in finding.advice
    monkeypatch.setattr(doctor, "_TORCH", "import no_such_module")
    finding = doctor.run_check(doctor.torch)
    assert not finding.ok
    assert "No module named 'no_such_module'" in finding.found


def test_doctor_tries_the_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\necho 'cannot find crti.o' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    assert "cannot link: cannot find crti.o" in doctor.run_check(doctor.compiler).found
    broken.chmod(0o644)  # what can no longer be found
    assert "on the PATH" in doctor.run_check(doctor.compiler).found


def test_doctor_looks_for_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SYNO_LAB_DATA", str(tmp_path / "none"))
    assert not doctor.data().ok
    monkeypatch.delenv("SYNO_LAB_DATA")
    assert doctor.data().ok


# -- lab ---------------------------------------------------------------------------------------------------------------


def test_lab_keeps_the_copies_that_are_there(tmp_path: Path) -> None:
    made = lab.copy_notebooks(tmp_path)
    copy = tmp_path / lab.TOUR
    course = sorted((lab.notebooks_folder() / lab.COURSE).glob("*.ipynb"))
    before, after = (json.loads(path.read_text()) for path in (lab.notebooks_folder() / lab.TOUR, copy))
    assert after["metadata"].pop("kernelspec") == {"name": "syno-lab", "display_name": "Syno Lab", "language": "python"}
    before["metadata"].pop("kernelspec")
    for cell in before["cells"]:  # of a widget the picture stays, which comes after it
        outputs = cell.get("outputs", [])
        for widget in [one for one in outputs if lab.WIDGET in one.get("data", {})]:
            assert "data-syno-static" in "".join(outputs[outputs.index(widget) + 1]["data"]["text/html"])
            outputs.remove(widget)
    assert after == before, "but for its kernel and its widgets it is the tour"
    copies = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.ipynb"))
    notebooks = lab.notebooks_folder()
    every = sorted(path.relative_to(notebooks) for path in notebooks.rglob("*.ipynb") if path.parent.name[0] != ".")
    assert copies == every == sorted(path.relative_to(tmp_path) for path in made) != []
    answered, lost = ((tmp_path / lab.COURSE / path.name) for path in course[:2])
    whole = lost.read_bytes()
    for written in (copy, answered):
        written.write_text("my own notes")
    lost.unlink()
    assert lab.copy_notebooks(tmp_path) == [lost]
    assert copy.read_text() == answered.read_text() == "my own notes"
    assert lost.read_bytes() == whole


def test_lab_offers_its_kernel_unless_there_is_one_of_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "before"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    made = lab.offer_kernel(tmp_path)
    assert made == tmp_path / ".syno-lab" / "jupyter" / "share" / "jupyter" / "kernels" / "syno-lab"
    assert json.loads((made / "kernel.json").read_text())["argv"][0] == sys.executable
    assert os.environ["JUPYTER_PATH"].split(os.pathsep) == [str(made.parents[1]), str(tmp_path / "before")]
    assert lab.offer_kernel(tmp_path / "other") is None, "it finds the one that was made"
    assert not (tmp_path / "other").exists()
    file = made / "kernel.json"
    file.write_text(file.read_text().replace(json.dumps(sys.executable), '"/another/python"'))
    assert lab.offer_kernel(tmp_path) == made, "another Python's is no use here"


def test_lab_says_where_it_cannot_copy(tmp_path: Path) -> None:
    (tmp_path / lab.COURSE).write_text("a file, not a folder")
    with pytest.raises(SynoError, match=rf"expected to copy a notebook to .*{lab.COURSE}.*, found: File exists"):
        lab.copy_notebooks(tmp_path)


def test_lab_without_the_repository_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lab.syno_lab, "__file__", str(tmp_path / "site" / "syno_lab" / "__init__.py"))
    assert "clone the repository" in refused(capsys, "lab", "--folder", str(tmp_path))


def test_lab_opens_jupyterlab(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    environment = os.environ | {"JUPYTER_CONFIG_DIR": str(tmp_path / "config"), "JUPYTER_RUNTIME_DIR": str(tmp_path)}
    arguments = ["lab", "--no-browser", "--port", str(port), "--folder", str(tmp_path)]
    passed_on = ["--", "--allow-root", "--IdentityProvider.token=", "--ip=127.0.0.1"]
    log = tmp_path / "log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", "syno_lab.cli", *arguments, *passed_on], stdout=out, stderr=out, env=environment
        )
        try:
            page = fetch(f"http://127.0.0.1:{port}/api/contents/{lab.TOUR}?content=0", server, log)
        finally:
            server.terminate()
            server.wait(30)
    assert json.loads(page)["type"] == "notebook"


def fetch(url: str, server: subprocess.Popen[bytes], log: Path) -> bytes:
    """The page, as soon as the server gives it."""
    for _ in range(300):
        assert server.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                page: bytes = answer.read()
                return page
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise AssertionError(log.read_text())


# -- interruptions -----------------------------------------------------------------------------------------------------


@pytest.fixture
def sampling() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "syno_lab.cli", "sample", "--spec", "readme", "--seconds", "100"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("sample ")  # it is at work now
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize(
    ("number", "status", "message"), [(signal.SIGINT, 130, "syno-lab: interrupted"), (signal.SIGTERM, 143, "")]
)
def test_interrupted(sampling: subprocess.Popen[str], number: int, status: int, message: str) -> None:
    sampling.send_signal(number)
    out, err = sampling.communicate(timeout=240)
    assert sampling.returncode == status
    assert out == ""
    said = [line for line in err.splitlines() if not line.startswith("sample ")]
    assert said == ([message] if message else [])


def test_a_reader_that_leaves_hears_no_more() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "syno_lab.cli", "operators"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(30) == 1


# -- parts -------------------------------------------------------------------------------------------------------------


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    goal = tmp_path / "result.json"
    output.write_text(goal, "old")
    with pytest.raises(UnicodeEncodeError):
        output.write_text(goal, "half \ud800")
    assert goal.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    (tmp_path / "folder").mkdir()
    with pytest.raises(SynoError, match=r"expected to write .*folder"):
        output.write_text(tmp_path / "folder", "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "result.json"]


@pytest.mark.parametrize("texts", [["=3"], ["H"], ["H=-1"], ["H=0"], ["H=1.5"], ["H=²"]])
def test_bindings_are_names_and_numbers(texts: list[str]) -> None:
    with pytest.raises(SpecError, match="--bind: expected NAME=NUMBER"):
        operands.parse_binding(texts)


def test_bindings_are_completed_by_the_spec_s_own() -> None:
    conv = operators.conv2d()
    bound = operators.conv2d().complete_binding({"N": 1, "C_in": 2, "C_out": 2, "H": 4, "W": 4})
    fixed = replace(conv, state=replace(conv.state, spec=conv.spec.bound([bound])))
    assert operands.complete_binding(fixed, ["H=8"]) == bound | {"H": 8}


def test_a_path_of_any_length_is_cut_in_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "replay", "x" * 100_000)
    assert line.startswith("syno-lab: xxx")
    assert len(line) < 500


def test_words_too_many_are_not_all_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "operators", ", ".join(f"H_{number}" for number in range(300)))
    assert "Got unexpected extra argument" in line
    assert line.endswith("… See `syno-lab --help`.")
    assert len(line) < 500
