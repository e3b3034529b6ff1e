"""What ``--out`` names: nothing is written or lost when a command refuses, and what was found is there at once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import TINY, refused

from syno_lab.commands.operands import operator_lines
from syno_lab.ir.operator import Operator

#: Over two axes there are more operators than a test can wait for.
LARGER = {"input_shape": "[H, W]", "output_shape": "[H, W]", "primary_specs": ["H=4: 0", "W=4: 0"]}


@pytest.mark.parametrize(
    "words",
    [
        ["show", "conv2d", "--as", "figure", "--bind", "N=0"],
        ["show", "conv2d", "--as", "figure", "--bind", "colour=1"],
        ["show", "conv2d", "--as", "figure", "--bind", "H=7"],
        ["show", "conv2d", "--as", "figure", "--width", "a mile"],
        ["show", "conv2d", "--as", "source", "--bind", "N=0"],
        ["export", "conv2d", "--as", "json", "--bind", "N=0"],
        ["export", "conv2d", "--as", "python"],
        ["export", "conv1x1", "--as", "library", "--bind", "N=0"],
        ["export", "mlp_block", "--as", "library"],
        ["sample", "--spec", "{spec}", "--wants", "W>=m"],
        ["sample", "--spec", "{spec}", "--seconds", "0"],
        ["sample", "--system", "canvas", "--flops", "-1"],
        ["enumerate", "--spec", "{spec}", "--seconds", "0"],
    ],
)
@pytest.mark.parametrize("is_there", [True, False])
def test_what_is_refused_writes_nothing(
    words: list[str], is_there: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "tiny.json"
    spec.write_text(json.dumps(TINY))
    form = words[words.index("--as") + 1] if "--as" in words else ""
    suffix = {"figure": "svg", "json": "json", "python": "py", "library": "so"}.get(form, "txt")
    out = tmp_path / "new" / "folder" / f"out.{suffix}"
    if is_there or words[0] in ("sample", "enumerate"):
        out.parent.mkdir(parents=True)
    if is_there:
        out.write_text("kept")
    before = {one: one.stat().st_mtime_ns for one in tmp_path.rglob("*")}
    refused(capsys, *(word.replace("{spec}", str(spec)) for word in words), "--out", str(out))
    assert {one: one.stat().st_mtime_ns for one in tmp_path.rglob("*") if one != out.parent} == {
        one: time for one, time in before.items() if one != out.parent
    }
    assert not is_there or out.read_text() == "kept"


@pytest.mark.parametrize("command", ["sample", "enumerate"])
def test_a_kill_loses_no_operator_that_was_found(command: str, tmp_path: Path) -> None:
    out = tmp_path / "found.jsonl"
    spec = tmp_path / "tiny.json"
    spec.write_text(json.dumps({**TINY, **LARGER}))
    words = [command, "--spec", str(spec), "--max-primitives", "10", "--out", str(out), "--seconds", "200"]
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("syno-lab")), *words], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:  # the first report of operators, with how many there are
        if " operators after " in line or "steps" in line:
            break
    told = int(re.findall(r"% +([\d,]+)", line)[0].replace(",", ""))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, "it was at work"
    lines = out.read_text().splitlines()
    assert len(lines) >= told >= 1
    assert all(Operator.from_json(text) for text in lines[:50])


def test_without_operators_the_file_is_empty(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("of another run\n")
    with operator_lines(out):
        assert out.read_text() == "of another run\n"
    assert out.read_text() == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_full_disk_is_one_line_with_the_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "tiny.json"
    spec.write_text(json.dumps(TINY))
    line = refused(capsys, "sample", "--spec", str(spec), "--count", "3", "--out", "/dev/full")
    assert line == "syno-lab: --out: /dev/full cannot be written to (No space left on device); make room"
    out = tmp_path / "found.jsonl"
    limited = f"ulimit -f 1; exec {Path(sys.executable).with_name('syno-lab')} sample --count 300 --out {out}"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, env={**os.environ}, timeout=240)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"syno-lab: --out: {out} cannot be written to (File too large); make room"
    assert out.read_text().endswith("\n")
    assert all(Operator.from_json(text) for text in out.read_text().splitlines())
