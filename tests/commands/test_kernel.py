"""The command ``kernel``: a kernelspec that Jupyter itself finds, and nobody else's touched."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from command_line import answered, refused
from jupyter_client.kernelspec import KernelSpecManager


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A prefix whose kernels Jupyter finds, and a home that is empty."""
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    return tmp_path


def found(name: str) -> dict[str, object]:
    """What Jupyter reads of a kernel."""
    return KernelSpecManager().get_kernel_spec(name).to_dict()


def test_install_list_and_remove(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = answered(capsys, "kernel", "install", "--prefix", str(prefix))
    folder = prefix / "share" / "jupyter" / "kernels" / "syno-lab"
    assert said == f"Syno Lab: installed as syno-lab in {folder}\n"
    assert {path.name for path in folder.iterdir()} >= {"kernel.json", "logo-svg.svg", "logo-64x64.png"}
    spec = found("syno-lab")
    assert spec["display_name"] == "Syno Lab"
    assert spec["argv"] == [
        sys.executable, "-P", "-Xfrozen_modules=off", "-m", "syno_widgets.kernel", "-f", "{connection_file}"
    ]  # fmt: skip
    (row,) = [r for r in json.loads(answered(capsys, "kernel", "list", "--json", "-")) if r["folder"] == str(folder)]
    assert (row["name"], row["python"], row["env"]) == ("syno-lab", sys.executable, {})
    assert answered(capsys, "kernel", "remove") == f"syno-lab: removed from {folder}\n"
    assert not folder.exists()


def test_folder_and_variables_go_into_its_environment(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--name",
        "gpu-lab",
        "--folder",
        str(prefix / "mine"),
        "--env",
        "CUDA_VISIBLE_DEVICES=1",
        "--env",
        "A=b=c",
    ]
    for _ in range(2):  # a second time replaces the first
        made = json.loads(answered(capsys, "kernel", "install", "--prefix", str(prefix), *options, "--json", "-"))
        assert (made["name"], made["finds"]) == ("gpu-lab", True)
    spec = found("gpu-lab")
    assert spec["display_name"] == "Syno Lab (gpu-lab)"
    assert spec["env"] == {"SYNO_LAB_FOLDER": str(prefix / "mine"), "CUDA_VISIBLE_DEVICES": "1", "A": "b=c"}
    assert "gpu-lab" in answered(capsys, "kernel", "list")


def test_for_this_user(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answered(capsys, "kernel", "install", "--user")
    assert (prefix / "data" / "kernels" / "syno-lab" / "kernel.json").is_file()


def test_where_jupyter_does_not_look(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = answered(capsys, "kernel", "install", "--prefix", str(prefix / "apart"))
    assert f"add {prefix / 'apart' / 'share' / 'jupyter'} to JUPYTER_PATH" in said


def test_another_s_kernel_is_left_alone(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = prefix / "share" / "jupyter" / "kernels" / "mine" / "kernel.json"
    other.parent.mkdir(parents=True)
    text = json.dumps({"argv": ["python", "-m", "mine"], "display_name": "Mine", "language": "python"})
    other.write_text(text)
    line = refused(capsys, "kernel", "install", "--prefix", str(prefix), "--name", "mine")
    assert f"'mine' is another kernel, in {other.parent}; choose another name" in line
    assert "expected a kernel of Syno Lab, found no 'mine'" in refused(capsys, "kernel", "remove", "--name", "mine")
    assert other.read_text() == text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--user", "--sys-prefix"], "expected one of --user, --prefix and --sys-prefix, found several"),
        (["--env", "3"], "--env: expected NAME=VALUE such as CUDA_VISIBLE_DEVICES=0, found '3'"),
        (["--env", "a b=3"], "--env: expected NAME=VALUE"),
        (["--name", "a/b"], "--name: Invalid kernel name 'a/b'"),
        (["--prefix", os.devnull], "expected a folder that can be written to, found"),
    ],
)
def test_one_line_for_bad_input(
    prefix: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    place = [] if {"--user", "--prefix"} & set(options) else ["--prefix", str(prefix)]
    if "--sys-prefix" in options:
        place = []
    assert said in refused(capsys, "kernel", "install", *place, *options)
    assert not list(prefix.rglob("kernel.json"))
