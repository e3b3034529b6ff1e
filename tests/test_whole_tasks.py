"""What a user does with one call: read, step, train, tune, and open a lab, each on real data."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import syno_lab as sl
from syno_lab.errors import FormatError, SearchError, StoreError

ROOT = Path(__file__).parents[1]
Data = tuple[TensorDataset, TensorDataset]


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


@pytest.fixture
def data() -> Data:
    torch.manual_seed(1)
    classes = torch.arange(80) % 4
    rows = torch.randn(80, 16) + 4 * nn.functional.one_hot(classes, 16)
    return TensorDataset(rows[:60], classes[:60]), TensorDataset(rows[60:], classes[60:])


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    stored = ROOT / "notebooks" / "tour-lab" / "results.sqlite.gz"
    (tmp_path / "results.sqlite").write_bytes(gzip.decompress(stored.read_bytes()))
    return tmp_path


@pytest.mark.parametrize(
    "source",
    [
        lambda folder: "conv2d",
        lambda folder: folder / "operator.json",
        lambda folder: str(folder / "operator.json"),
        lambda folder: sl.operators.conv2d().to_json(),
    ],
)
def test_an_operator_is_read_by_name_path_and_text(source: Callable[[Path], str | Path], tmp_path: Path) -> None:
    (tmp_path / "operator.json").write_text(sl.operators.conv2d().to_json())
    assert sl.read(source(tmp_path)) == sl.operators.conv2d()


def test_operators_of_other_systems_are_read_and_stepped_through() -> None:
    kernel = sl.canvas.known.residual()
    assert sl.read(kernel.to_json()).to_json() == kernel.to_json()
    assert sl.session(kernel).to_json() != sl.session(sl.operators.conv2d()).to_json()
    assert sl.session(sl.operators.conv2d().spec).state.steps == ()


def test_what_is_no_operator_is_refused() -> None:
    with pytest.raises(sl.SynoError, match=r"an operator file or a trial .SEARCH#12., found 'conv3e'"):
        sl.read("conv3e")
    with pytest.raises(FormatError, match="operator file"):
        sl.read("{}")


def test_a_network_is_trained_as_it_is_and_with_an_operator(data: Data, capsys: pytest.CaptureFixture[str]) -> None:
    network, result = sl.train(make_model, data, epochs=12, batch_size=20, optimizer="adamw", learning_rate=0.01)
    assert result.accuracy is not None
    assert result.accuracy > 0.7  # chance is 0.25
    assert len(result.curve) == 12
    assert network(data[1].tensors[0]).shape == (20, 4)
    changed, _ = sl.train(make_model, data, operator="grouped_linear", epochs=1, batch_size=20)
    count = [sum(one.numel() for one in trained.parameters()) for trained in (network, changed)]
    assert count[1] == count[0] - 2 * 16 * 16 * 3 // 4  # g=4: a quarter of the weights of two layers
    assert "epoch 12 of 12" in capsys.readouterr().err


def test_a_training_with_an_unknown_setting_is_refused(data: Data) -> None:
    with pytest.raises(FormatError, match=r"a trial's request, found: .*`epoch`"):
        sl.train(make_model, data, epoch=1)  # type: ignore[call-arg]


def test_an_improvement_with_a_setting_of_the_wrong_type_is_refused(data: Data, tmp_path: Path) -> None:
    for name, text in (("equal_within", "2"), ("anyway", "yes")):
        with pytest.raises(FormatError, match=rf"the settings of a search, found: Expected .*{name}`"):
            sl.improve(make_model, data, folder=tmp_path, **{name: text})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"epoch": 1}, "the settings of a training, found: .*`epoch`"),
        ({"epochs": "3"}, "the settings of a training, found: Expected `int`"),
        ({"epochs": 0}, "epochs: expected 1 or more, found 0"),
        ({"optimizer": "sdg"}, "the settings of a training, found: .*'sdg'"),
        ({"minutes": "3"}, "the settings of a search, found: Expected `float"),
        ({"minutes": 0}, "minutes: expected a number above 0, found 0"),
        ({"anyway": "yes"}, "the settings of a search, found: Expected `bool`"),
        ({"equal_within": -1}, "equal_within: expected a number above 0, found -1"),
    ],
)
def test_a_search_with_settings_that_are_none_is_refused(how: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises((FormatError, SearchError), match=message):
        sl.search("resnet20", untrained=True, folder=tmp_path, in_process=True, **how)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_a_search_leaves_a_lab_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import syno_lab.search.mcts  # noqa: F401 - the room of this name does not take its place

    how = {"untrained": True, "trials": 2, "max_primitives": 6, "folder": tmp_path, "in_process": True}
    found = sl.search(
        "resnet20", **how, anyway=True, equal_within=1.0
    )  # a space without an operator that may be discovered: it ends at once
    assert "none trained" in capsys.readouterr().out
    assert found.folder == tmp_path
    assert list(found.trials()["number"]) == []
    with pytest.raises(sl.SynoError, match=r"there is a search 'search' in .* already"):
        sl.search("resnet20", **how)
    sl.search(trials=3, folder=tmp_path, go_on=True, in_process=True)
    assert "none trained" in capsys.readouterr().out


@pytest.mark.tvm
def test_an_operator_is_tuned_and_the_records_answer(tmp_path: Path) -> None:
    how = {"trials": 2, "folder": tmp_path}
    first = sl.tune("matmul", {"M": 16, "K": 16, "N": 16}, **how)
    again = sl.tune(sl.operators.matmul(), {"M": 16, "K": 16, "N": 16}, **how)
    assert first.latency_ms == again.latency_ms > 0
    assert again.from_records


def test_a_lab_is_read(lab: Path) -> None:
    found = sl.open_lab(lab)
    trials = found.trials()
    front = found.front()
    assert 0 < len(front) < len(trials)
    assert front["is_baseline"].iloc[0], "what all are compared with comes first"
    assert not front["is_baseline"].iloc[1:].any()
    front = front.iloc[1:]
    assert set(front["number"]) == set(trials[trials["on_front"]]["number"])
    assert list(found.front(all=True)["number"])[: 1 + len(front)] == [-1, *front["number"]]
    assert sorted(found.front(all=True)["number"]) == sorted(trials["number"])
    best = front.sort_values("accuracy").iloc[-1]
    assert found.operator(f"trial {best['number']}").to_json() == best["operator"]
    assert found.operator(f"{best['source']}#{best['number']}").to_json() == best["operator"]
    ordered = front.sort_values("flops")["accuracy"]
    assert list(ordered) == sorted(ordered), "more FLOPs that are not more accurate are on no front"


def test_a_lab_or_a_trial_that_is_not_there_is_refused(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match="is not there: expected the folder of a lab"):
        sl.open_lab(tmp_path / "none")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert sl.open_lab("~").folder == lab
    with pytest.raises(StoreError, match="no trial 'trial 99999'"):
        sl.open_lab(lab).operator("trial 99999")
    with pytest.raises(StoreError, match="no search 'other'"):
        sl.open_lab(lab).trials("other")
