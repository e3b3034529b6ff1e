"""A network and data of the user's own in ``syno-lab search``, and that a lab's folder alone runs nothing."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from command_line import answered, refused

from syno_lab.experiments import SETTINGS_FILE, SearchSettings, search_folder

FILE = """
import torch
from torch import nn
from torch.utils.data import Subset, TensorDataset

def make_model():
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))

def make_dataset():
    classes = torch.arange(80) % 4
    whole = TensorDataset(torch.randn(80, 16) + nn.functional.one_hot(classes, 16), classes)
    return Subset(whole, range(60)), Subset(whole, range(60, 80))

def make_images():
    whole = torch.utils.data.TensorDataset(torch.zeros(40, 3, 8, 8), torch.arange(40) % 10)
    return whole, whole
"""
SHORT = ("--trials", "2", "--seeds", "0", "--to-the-end", "--epochs", "1", "--in-process", "--from-nothing")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def test_a_search_goes_on_only_where_its_files_are_named_again(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ("--model", f"{file}:make_model", "--dataset", f"{file}:make_dataset")
    place = ("--folder", str(tmp_path / "lab"))
    found = json.loads(answered(capsys, "search", *own, *SHORT, *place, "--json", "-"))
    assert found["trials"] == 2
    assert found["settings"]["training"]["options"]["match"] == ["0", "2"]
    assert all(one["accuracy"] is not None for one in found["recorded"])
    go_on = ("search", "--continue", "--in-process", "--trials", "3", *place)
    line = refused(capsys, *go_on)
    assert "code in a lab's folder is not run" in line
    assert f"--model {file}:make_model" in line
    assert "--dataset" in refused(capsys, *go_on, *own[:2])
    more = json.loads(answered(capsys, *go_on, *own, "--json", "-"))
    assert more["trials"] == 3
    assert more["recorded"][:2] == found["recorded"]
    file.write_text(FILE.replace("Linear(16, 4)", "Linear(16, 5)"))
    assert "the file has changed since the search began" in refused(capsys, *go_on, *own)


def test_a_strangers_search_runs_none_of_its_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mark, mine = tmp_path / "ran", tmp_path / "mine.py"
    mine.write_text(FILE)
    own = ("--model", f"{mine}:make_model", "--dataset", f"{mine}:make_dataset")
    place = ("--folder", str(tmp_path / "lab"))
    answered(capsys, "search", *own, *SHORT, *place)
    stored = search_folder(tmp_path / "lab", "search") / SETTINGS_FILE
    settings = SearchSettings.from_dict(msgspec.json.decode(stored.read_bytes()))
    assert settings.training.own is not None
    code = msgspec.to_builtins(settings.training.own["model"])
    # Their text below the name of the user's own function, as if it were that.
    theirs = {**code, "source": f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n" + code["source"]}
    changed = {**settings.to_dict(), "trials": 3}
    changed["training"]["own"]["model"] = theirs
    stored.write_bytes(msgspec.json.encode(changed))
    for request in (tmp_path / "lab").rglob("request.json"):
        request.write_bytes(request.read_bytes().replace(b"import torch", b"import pathlib; open('ran', 'w')", 1))
    assert "is not run" in refused(capsys, "search", "--continue", "--in-process", *place)
    answered(capsys, "search", "--continue", "--in-process", "--trials", "3", *place, *own)
    assert not mark.exists()
    assert not Path("ran").exists()


def test_data_of_ones_own_train_a_network_of_the_lab(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ("--dataset", f"{file}:make_images", "--width", "4", "--blocks", "1", "--folder", str(file.parent / "lab"))
    few = ("--max-primitives", "4", "--wants", "none", "--trials", "1", *SHORT[2:])
    found = json.loads(answered(capsys, "search", *data, *few, "--json", "-"))
    assert found["trials"] == 1
    assert found["recorded"][0]["accuracy"] == 0.1  # of images that are all alike


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "mine"), "--model: expected FILE.py:FUNCTION, found 'mine'"),
        (("--dataset", "mine.py"), "--dataset: expected FILE.py:FUNCTION, found 'mine.py'"),
        (("--model", "{file}:other"), "expected a function 'other' in"),
        (("--layers", "conv*"), "--layers: expected --model beside it"),
        (("--model", "{file}:make_model", "--data", "digits"), "expected a network that takes"),
        (("--dataset", "{file}:make_dataset"), "found: "),
        (
            ("--model", "{file}:make_model", "--dataset", "{file}:make_dataset", "--layers", "conv*"),
            "no pattern of conv* has its name",
        ),
    ],
)
def test_what_is_wrong_is_one_line(
    arguments: tuple[str, ...], message: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [one.format(file=file) for one in arguments]
    assert message in refused(capsys, "search", *named, "--folder", str(file.parent / "lab"))
