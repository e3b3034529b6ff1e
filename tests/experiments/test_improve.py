"""Bring your model: any network and any pair of torch datasets go through the same search; a stop keeps all."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import nbformat
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset, TensorDataset

import syno_lab as sl
from syno_lab.data.own import OwnData
from syno_lab.errors import CodeError, DataError, SpecError, StoreError, SynoError, TrainingError
from syno_lab.experiments import LocalRunner, run_here
from syno_lab.experiments.improve import finished
from syno_lab.experiments.own import check_fit, with_data, with_layers, with_model
from syno_lab.store import Store
from syno_lab.training import train
from syno_lab.trial import TrialRequest, TrialWorker, run_trial
from syno_lab.trial.backbone import build, sites_of, survey_of

PAGE = Path(__file__).parents[2] / "docs" / "bring-your-model.md"
REQUEST = TrialRequest(backbone="", batch_size=32, epochs=1, threads=1)
FILE = """
import torch
from torch import nn
from torch.utils.data import Subset, TensorDataset

def make_model():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))

def make_dataset():
    draw = torch.Generator().manual_seed(0)
    classes = torch.randint(4, (400,), generator=draw)
    examples = torch.randn(400, 16, generator=draw) + 3 * nn.functional.one_hot(classes, 16)
    whole = TensorDataset(examples, classes)
    return Subset(whole, range(300)), Subset(whole, range(300, 400))

def fails():
    raise KeyError("gone")

def nothing():
    return None
"""


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def make_data(count: int = 400, shape: tuple[int, ...] = (16,), classes: int = 4) -> tuple[Dataset[Any], Dataset[Any]]:
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % classes
    examples = torch.randn(count, *shape, generator=draw)
    examples.view(count, -1)[torch.arange(count), labels] += 3
    whole = TensorDataset(examples, labels)
    return Subset(whole, range(3 * count // 4)), Subset(whole, range(3 * count // 4, count))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def test_a_network_comes_back_patched_and_a_stopped_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    # CPU seconds of this thread, so that neither a busy machine nor the trainings take the search's minutes away.
    monkeypatch.setattr("syno_lab.experiments.improve.run_here", partial(run_here, clock=time.thread_time))

    def improve(say: Callable[[str], None]) -> Any:
        how: dict[str, Any] = {"epochs": 1, "batch_size": 32, "seeds": 2, "anyway": True}
        return sl.improve(make_model, make_data, minutes=0.1, folder=tmp_path / "lab", say=say, **how)

    def stop(line: str) -> None:
        said.append(line)
        if "network:" in line or "finals:" in line:  # where the machine is busy, the first line may be the finals'
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        improve(stop)
    assert any("2 of 3 layers are replaced" in line for line in said)  # the last one gives the output
    assert said[-1] == f"stopped; all is kept in {tmp_path / 'lab'}: the same call goes on"
    with Store.open(tmp_path / "lab") as store:
        (log,) = store.searches()
        begun = [(one.number, one.rung, one.seed) for one in log.rungs.trainings() if one.is_ended]
    said.clear()
    found = improve(said.append)
    with Store.open(tmp_path / "lab") as store:
        (log,) = store.searches()
        trained = [(one.number, one.rung, one.seed) for one in log.rungs.trainings()]
    assert begun
    assert set(begun) <= set(trained)
    assert len(set(trained)) == len(trained)  # nothing twice
    assert any(line.startswith("front on network (accuracy): trial ") for line in said)
    assert found.operators, found.result["end"]
    assert said[-2].endswith(".py")

    # The case study is a notebook, and its cells make what it shows.
    notebook = nbformat.read(found.notebook, as_version=4)
    nbformat.validate(notebook)
    monkeypatch.chdir(found.folder)
    cells: dict[str, Any] = {}
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert sum("image/svg+xml" in str(cell.outputs) for cell in codes) == 2 + len(
        set(found.result["finalists"].values())
    )
    for cell in codes:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            *lines, last = cell.source.splitlines()
            exec("\n".join(lines), cells)
            if "SVG" in cells:
                cells["SVG"] = str  # IPython's writes the attributes in another order
            shown = exec(last, cells) if last.startswith("study =") else eval(last, cells)
        for output in cell.outputs:
            if output.output_type == "stream":
                assert output.text == printed.getvalue()
            else:
                assert output.data["image/svg+xml"] == shown
    assert found.verdict in str(notebook.cells[2].source)
    assert f"Trial {found.best}" in str(notebook.cells[3].source)
    portrait = str(notebook.cells[5].source)
    assert "### What it reads and mixes\n\nEach output element reads " in portrait
    assert "### Its accuracy and times\n\nThe verdict of the finals: " in portrait
    assert " ms for a forward pass of one example (as it is " in portrait

    # The result is that of these minutes and this margin of equality.
    assert finished(found.settings, tmp_path / "lab") == found.result
    for changed in ({"minutes": 0.2}, {"equal_within": 3.0}):
        assert finished(msgspec.structs.replace(found.settings, **changed), tmp_path / "lab") is None

    # The page's own lines, with a shorter search: it is done, so nothing is trained again.
    first, second = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    how = "minutes=0.1, epochs=1, batch_size=32, seeds=2, folder=folder, anyway=True"
    assert "minutes=30, epochs=5" in first
    train, test = make_data()
    place = {"make_model": make_model, "train": train, "test": test, "folder": tmp_path / "lab"}
    exec(first.replace("minutes=30, epochs=5", how), place)
    again = place["found"]
    assert again.result == msgspec.json.decode(msgspec.json.encode(found.result))
    shutil.copy(again.files[again.best], tmp_path / "operator_file.py")
    monkeypatch.syspath_prepend(tmp_path)
    patched: dict[str, Any] = {"make_model": make_model, "weights": place["net"].state_dict()}
    exec(second, patched)
    assert torch.equal(patched["net"](torch.ones(2, 16)), place["net"](torch.ones(2, 16)))

    # The file alone, in a process without Syno Lab, computes what the trained network computes.
    net, examples = found.trained(seed=1), torch.randn(5, 16)
    torch.save({"weights": net.state_dict(), "examples": examples}, tmp_path / "net.pt")
    program = (
        f"import sys, torch; from torch import nn; sys.path.insert(0, {str(found.folder)!r}); "
        f"from importlib import import_module; mine = import_module('operator-{found.best}'); "
        f"from mine import make_model; saved = torch.load({str(tmp_path / 'net.pt')!r}); "
        "net = mine.patch(make_model()).eval(); net.load_state_dict(saved['weights']); "
        "assert 'syno_lab' not in sys.modules; print(net(saved['examples']).tolist())"
    )
    (tmp_path / "mine.py").write_text(FILE)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=240
    )
    torch.testing.assert_close(torch.tensor(msgspec.json.decode(done.stdout)), net(examples))


def test_an_instance_begins_with_its_own_weights_and_a_function_draws_them_from_the_seed() -> None:
    torch.manual_seed(7)
    net = make_model()
    data = with_data(REQUEST, make_data())
    own, drawn = (with_layers(with_model(data, model))[0] for model in (net, make_model))
    first, again = (build(msgspec.structs.replace(own, seed=seed)).module for seed in (0, 1))
    for module in (first, again):
        assert all(map(torch.equal, module.state_dict().values(), net.state_dict().values()))
        assert module is not net
    first, again, other = (build(msgspec.structs.replace(drawn, seed=seed)).module for seed in (0, 0, 1))
    assert torch.equal(first[0].weight, again[0].weight)
    assert not torch.equal(first[0].weight, other[0].weight)
    with torch.no_grad():
        net[0].weight += 1
    assert with_model(data, net).backbone != own.backbone  # another network is another search
    assert with_model(data, make_model).backbone == drawn.backbone


class Mixed(nn.Module):
    """A network with layers of many kinds, few of which are worth replacing."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.odd = nn.Conv2d(8, 6, 3, padding=1)
        self.back = nn.Conv2d(6, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.point = nn.Conv2d(8, 8, 1)
        self.squeeze = nn.Conv2d(8, 4, 1)
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.point(self.depthwise(self.back(self.odd(self.conv(self.stem(x))))))
        x = self.squeeze(x.mean((2, 3), keepdim=True))
        return self.head(x.flatten(1))


@pytest.mark.parametrize(
    ("without", "expected", "kinds"),
    [
        ((), ["conv"], ["conv2d"]),  # the stem reads 3 channels, 4 divides neither odd's nor back's
        (("conv", "odd", "back"), ["point"], ["conv2d"]),  # the squeezing one takes no time
    ],
)
def test_layers_are_found(without: tuple[str, ...], expected: list[str], kinds: list[str]) -> None:
    net = Mixed()
    for name in without:
        setattr(net, name, nn.Identity())
    request, sites = with_layers(with_data(with_model(REQUEST, net), make_data(8, (3, 8, 8), 3)))
    assert [site.name for site in sites] == expected
    assert sites_of(request) == sites
    assert request.options["match"] == expected
    assert request.options["kinds"] == kinds


def test_patterns_name_layers() -> None:
    request = with_data(with_model(REQUEST, make_model()), make_data())
    assert [site.name for site in with_layers(request, ["2", "4"])[1]] == ["2", "4"]
    with pytest.raises(SpecError, match=r"no pattern of layer\.\* has its name"):
        with_layers(request, ["layer.*"])


class Answers(nn.Module):
    """A network that returns its logits in a field, as those of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = make_model()

    def forward(self, x: Tensor) -> Any:
        return type("Output", (), {"logits": self.net(x)})


class Broken(Dataset[Any]):
    """Examples of which one is longer."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.zeros(16 + (index == 5)), 0


def test_a_field_of_logits_is_taken() -> None:
    check_fit(with_layers(with_data(with_model(REQUEST, Answers()), make_data()))[0])


@pytest.mark.parametrize(
    ("model", "data", "error", "match"),
    [
        (nn.Sequential(nn.Flatten(), nn.ReLU()), make_data(), SpecError, "expected something to replace in this Sequ"),
        (nn.Linear(16, 4), make_data(), SpecError, "the network itself: it is the last linear layer"),
        (make_model(), make_data(40, (3, 8, 8)), SpecError, r"takes an example \[1, 3, 8, 8\], found: mat1 and mat2"),
        (make_model(), make_data(400, (16,), 5), TrainingError, r"expected logits \[2, 5\] .* found \[2, 4\]"),
        (make_model(), [1, 2], DataError, "expected the training part as a torch dataset with a length, found an int"),
        (make_model(), 7, DataError, r"expected two torch datasets \(train, test\), found an int"),
        (
            make_model(),
            (Broken(), Broken()),
            DataError,
            r"example 5 of the test part: expected torch\.float32 \[16\] .* found torch\.float32 \[17\]",
        ),
        (
            make_model(),
            (TensorDataset(torch.zeros(4, 16), torch.zeros(4)),) * 2,
            DataError,
            r"data: example 0 of the test part: expected the label as a whole number, found 0\.0; give int\(label\)",
        ),
        (
            make_model(),
            (TensorDataset(torch.zeros(4, 16)),) * 2,
            DataError,
            "expected examples as pairs of a tensor and a class, found a Tensor",
        ),
        ("{file}:other", make_data(), CodeError, r"expected a function 'other' in .*mine\.py, found none"),
        ("{file}:fails", make_data(), CodeError, r"fails of .*mine\.py: KeyError: 'gone' \(mine\.py, line 17\)"),
        ("{file}:nothing", make_data(), CodeError, r"expected a torch.nn.Module from nothing of .*, found None"),
        ("{file}:make_model", "{file}:nothing", DataError, "nothing: expected two torch datasets .* found a NoneType"),
        ("gone.py:make_model", make_data(), CodeError, "gone.py cannot be read: No such file"),
        (12, make_data(), SpecError, "expected a torch.nn.Module, a function or 'file.py:function', found 12"),
        ("resnet21", make_data(), SpecError, "expected the name of a backbone, found 'resnet21'"),
    ],
)
def test_bad_input_is_one_line(model: Any, data: Any, error: type[SynoError], match: str, file: Path) -> None:
    model, data = (one.format(file=file) if isinstance(one, str) else one for one in (model, data))
    with pytest.raises(error, match=match) as caught:
        check_fit(with_layers(with_data(with_model(REQUEST, model), data))[0])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("system", ["alpha", "αNAS", "pgraphs, alpha", "syno-lab-alpha"])
def test_whole_networks_are_searched_elsewhere(system: str, tmp_path: Path) -> None:
    with pytest.raises(
        SpecError, match="whole networks; search those by `syno-lab search --system syno-lab-alpha --model"
    ) as told:
        sl.improve(make_model(), make_data(), folder=tmp_path, system=system)
    assert "rungs" not in str(told.value)


def test_another_network_under_the_same_name_is_refused(tmp_path: Path) -> None:
    def stop(line: str) -> None:
        if "timing" in line:
            raise KeyboardInterrupt

    how: dict[str, Any] = {"minutes": 1.0, "folder": tmp_path, "batch_size": 32, "say": stop}
    with pytest.raises(KeyboardInterrupt):
        sl.improve(make_model(), make_data(), **how)
    with pytest.raises(StoreError, match=r"other settings.*give this search another name or folder"):
        sl.improve(make_model(), make_data(), **how)


def test_own_data_are_read_alike_for_equal_seeds_and_anew_for_random_ones() -> None:
    class Noisy(Dataset[Any]):
        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            return torch.randn(16) + index % 4, index % 4

    data = OwnData.of((Noisy(), Noisy()), "noisy")
    weights = []
    for seed in (0, 0, 1):
        torch.manual_seed(3)
        net = make_model()
        train(net, data, epochs=1, batch_size=16, seed=seed, optimizer="adamw", learning_rate=0.001)
        weights.append(net[0].weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    held = data.holding_out(0.25)
    assert (len(held.train), len(held.test)) == (48, 16)
    assert sorted([*held.train.indices, *held.test.indices]) == list(range(64))  # type: ignore[attr-defined]
    assert np.array_equal(held.test_labels, [index % 4 for index in held.test.indices])  # type: ignore[attr-defined]


# -- code from files -------------------------------------------------------------------------------------------------


def test_code_of_a_file_that_the_user_names_trains_in_another_process(file: Path, tmp_path: Path) -> None:
    request = with_layers(with_data(with_model(REQUEST, f"{file}:make_model"), f"{file}:make_dataset"))[0]
    assert survey_of(request).params == 1732
    with TrialWorker(tmp_path / "log") as worker:
        outcome = worker.run(request, folder=tmp_path / "trial")
    assert outcome.state == "finished", outcome.reason
    assert outcome.accuracy == run_trial(request, folder=tmp_path / "here").accuracy


def test_code_in_a_file_of_the_lab_runs_nothing(tmp_path: Path) -> None:
    """A request, settings or a job of somebody else's name code; only what the user names is run."""
    mark = tmp_path / "ran"
    source = f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n\ndef make_model(): pass\n"
    from syno_lab.trial.own import name_of
    from syno_lab.user_code import UserCode

    code = UserCode("make_model", source, "theirs.py")
    request = msgspec.structs.replace(REQUEST, backbone=name_of(code), own={"model": code})
    outcome = run_trial(request, folder=tmp_path / "trial")
    assert outcome.state == "failed"
    assert "expected a network that this process has loaded" in outcome.reason
    with TrialWorker(tmp_path / "log") as worker, pytest.raises(CodeError, match="name its file again"):
        worker.run(request, folder=tmp_path / "trial")
    place = tmp_path / "trainings" / "theirs"
    place.mkdir(parents=True)
    (place / "request.json").write_bytes(msgspec.json.encode(request))
    with LocalRunner(tmp_path / "trainings") as runner:
        found = runner.find("theirs", request)
        assert found is not None
        assert found.future.result()["state"] == "failed"
    assert not mark.exists()


class Deep(nn.Module):
    """Convolutions that halve their planes: 8, 4 and 2 high and wide."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = nn.functional.max_pool2d(part(x), 2)
        return x.flatten(1)


def test_planes_without_room_for_a_window_do_not_keep_windows_out_of_all_layers() -> None:
    request = with_data(with_model(REQUEST, Deep), make_data(40, (8, 8, 8)))
    _, sites = with_layers(request)
    assert [site.name for site in sites] == ["parts.0", "parts.1"]
    small = with_data(
        with_model(REQUEST, lambda: nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.Flatten())),
        make_data(40, (8, 2, 2)),
    )
    assert [site.name for site in with_layers(small)[1]] == ["0"], "where no plane has room, all stay in"


class Narrow(nn.Module):
    """1x1 convolutions, one on each of planes 8, 4, 2 and 1 high, with so many channels."""

    def __init__(self, *channels: int) -> None:
        super().__init__()
        widths = (8, *channels)
        self.parts = nn.ModuleList(nn.Conv2d(*pair, 1) for pair in pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = nn.functional.max_pool2d(part(x), 2, ceil_mode=True)
        return x.flatten(1)


@pytest.mark.parametrize(("channels", "replaced"), [((8, 8, 8, 8), 2), ((8, 16, 256, 256), 4)])
def test_small_planes_with_most_of_the_flops_of_1x1_convolutions_are_replaced(
    channels: tuple[int, ...], replaced: int
) -> None:
    request = with_data(with_model(REQUEST, lambda: Narrow(*channels)), make_data(40, (8, 8, 8)))
    _, sites = with_layers(request)
    assert [site.name for site in sites] == [f"parts.{number}" for number in range(replaced)]
