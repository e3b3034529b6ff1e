"""A tuning starts from a folder of records: each thing that is wrong with it is a line of its own."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import refused

from syno_lab import operators
from syno_lab.errors import TuningError
from syno_lab.tuning import TuningTask
from syno_lab.tuning.records import Trial, TuningKey, key_of, open_record, start_from

BINDING = {"N": 1, "C_in": 4, "C_out": 8, "H": 6, "W": 6, "k_1": 3}
TASK = TuningTask("conv2d", operators.conv2d().to_json(), BINDING)
KEY = key_of(TASK, '{"kind": "llvm"}', "0.27.0", "threads=2")
RAN = Trial([["x"], []], (2e-3, 1e-3))


def recorded(folder: Path, key: TuningKey, *trials: Trial) -> None:
    with open_record(folder, key) as record:
        for trial in trials:
            record.add_trial(trial)


def said(folder: Path | str) -> str:
    with pytest.raises(TuningError) as refusal:
        start_from(folder, TASK, KEY)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_the_trials_that_ran_are_the_start(tmp_path: Path) -> None:
    recorded(tmp_path, KEY, RAN, Trial([["y"], []], (), reason="broken"))
    assert [one.trace for one in start_from(tmp_path, TASK, KEY)] == [RAN.trace]


OTHERS = {
    "another TVM: '0.26.0' where '0.27.0' is expected": replace(KEY, tvm="0.26.0"),
    'another machine: \'{"kind": "cuda"}\' where': replace(KEY, target='{"kind": "cuda"}'),
    "other threads or another power mode: 'threads=4' where 'threads=2' is": replace(KEY, conditions="threads=4"),
    "another dtype: 'float64' where 'float32' is expected": key_of(
        replace(TASK, dtype="float64"), KEY.target, KEY.tvm, KEY.conditions
    ),
    "other sizes: ": key_of(replace(TASK, binding={**BINDING, "H": 7}), KEY.target, KEY.tvm, KEY.conditions),
    "another operator: ": key_of(
        replace(TASK, operator=operators.conv1x1().to_json(), binding=BINDING), KEY.target, KEY.tvm, KEY.conditions
    ),
    "another program of the same function": replace(KEY, program="0" * 32),
}


@pytest.mark.parametrize("words", OTHERS)
def test_records_of_something_else_say_of_what(tmp_path: Path, words: str) -> None:
    recorded(tmp_path, OTHERS[words], RAN)
    far = replace(OTHERS[words], tvm="0.1", target="far", conditions="far", dtype="float16")  # a record farther off
    recorded(tmp_path, far, RAN)
    line = said(tmp_path)
    assert line.startswith(
        f"expected a tuning record of this program, machine and TVM in {str(tmp_path)!r}, the nearest"
    )
    assert f"is of {words}" in line


def test_a_folder_that_has_no_records_says_what_it_has(tmp_path: Path) -> None:
    assert said(tmp_path / "nowhere").startswith(f"there is no such folder: '{tmp_path}/nowhere'; expected one with")
    assert said(tmp_path).endswith("found nothing there")
    (tmp_path / "notes.txt").write_text("no record")
    assert said(tmp_path / "notes.txt").endswith("notes.txt': Not a directory")
    assert said(tmp_path).endswith("found 'notes.txt' and the like there")
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    assert said(tmp_path).endswith("the nearest is no record: 1 other files, other.jsonl and so on")
    assert "found 'a\\x00b': " in said("a\0b")
    recorded(tmp_path / "failed", KEY, Trial([["y"], []], (), reason="broken"))
    assert said(tmp_path / "failed").endswith("the nearest is of this program, but no trial in it ran")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    assert said(tmp_path).endswith("Permission denied")
    tmp_path.chmod(0o700)


def test_the_command_looks_before_tvm_is_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [f"--bind={name}={size}" for name, size in BINDING.items()]
    words = ["tune", "conv2d", *sizes, "--trials", "1", "--out", str(tmp_path / "out")]
    assert "there is no such folder: 'nowhere'" in refused(capsys, *words, "--start-from", "nowhere")
    assert "there is no target 'jetson_orin_nano'" in refused(capsys, *words, "--target", "jetson_orin_nano")
    assert not (tmp_path / "out").exists()
