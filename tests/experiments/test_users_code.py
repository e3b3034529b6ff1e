"""A network of the user's own that fails with each operator: the search ends with its line, and the store has it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
import torch
from command_line import answered
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from syno_lab.cli import main
from syno_lab.errors import SynoError
from syno_lab.experiments.own import choose, with_data, with_layers, with_model
from syno_lab.operators import separable
from syno_lab.store import Store
from syno_lab.trial import TrialRequest, TrialWorker, run_trial

FILE = """
import sys
import torch
from torch import nn
from torch.utils.data import TensorDataset

class Net(nn.Module):
    calls = 0

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        x = self.a(x).relu()
        Net.calls += not isinstance(self.b, nn.Conv2d)
        if Net.calls > 12:  # not yet, where the network is tried
            FAILS
        return self.head(self.b(x).mean((2, 3)))

make_model = Net

def make_dataset():
    whole = TensorDataset(torch.randn(60, 4, 8, 8), torch.arange(60) % 4)
    return whole, whole
"""
#: Where it fails.
LINE = 1 + FILE.splitlines().index("            FAILS")
SHORT = (
    *("--seeds", "0", "--to-the-end", "--epochs", "1", "--images", "16", "--batch-size", "2", "--in-process"),
    *("--max-primitives", "4", "--wants", "none"),
)


def written(folder: Path, fails: str) -> tuple[str, ...]:
    (folder / "net.py").write_text(FILE.replace("FAILS", fails))
    return ("--model", f"{folder}/net.py:make_model", "--dataset", f"{folder}/net.py:make_dataset")


def last_line(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The last line of a command that ends with status 2; the plan stands before it."""
    assert main(arguments) == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_a_search_whose_operators_all_fail_ends_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, the line, and the line for each trial in the store; a search of few operators is no success either."""
    own = written(tmp_path, "assert isinstance(self.b, nn.Conv2d), 'b is no convolution'")
    said = f"the network: AssertionError: b is no convolution (net.py, line {LINE})"
    line = last_line(capsys, "search", *own, "--trials", "20", *SHORT, "--folder", str(tmp_path / "lab"))
    assert line == f"syno-lab: 5 operators failed alike, and none was trained: {said}"
    with Store.open(tmp_path / "lab") as store:
        trials = [one for one in store.searches()[0].trials() if one.state == "failed"]
    assert [one.reason for one in trials] == [said] * 5
    own = written(tmp_path, "raise KeyError('gone')")
    line = last_line(capsys, "search", *own, "--trials", "1", *SHORT, "--folder", str(tmp_path / "few"))
    said = f"the network: KeyError: 'gone' (net.py, line {LINE})"
    assert line == f"syno-lab: one operator failed, and none was trained: {said}"


def test_a_lab_stays_where_it_is_when_code_goes_to_another_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    own = written(here, "raise KeyError('gone')")
    file = here / "net.py"
    file.write_text(f"import os\nos.chdir({str(there)!r})\n{file.read_text()}")
    monkeypatch.chdir(here)
    last_line(capsys, "search", *own, "--trials", "20", *SHORT, "--folder", "lab")
    assert Path.cwd() == there
    assert not [*there.iterdir()]
    with Store.open(here / "lab") as store:
        assert len(store.searches()[0].trials()) >= 5


def test_what_is_mended_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that was missing is there again: what failed before does not end the search at once."""
    own = written(tmp_path, f"open({str(tmp_path / 'mean')!r}).close()")
    where = ("--in-process", "--folder", str(tmp_path / "lab"))
    assert "FileNotFoundError" in last_line(capsys, "search", *own, "--trials", "20", *SHORT, *where)
    (tmp_path / "mean").touch()
    found = json.loads(answered(capsys, "search", "--continue", *own, "--trials", "6", *where, "--json", "-"))
    assert found["states"] == {"failed": 5, "finished": 1}


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.b(self.a(x).relu()).mean((2, 3)))


class Odd(nn.Module):
    """A network that raises something in training, with an operator in it or without."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Conv2d(4, 16, 1), nn.Conv2d(16, 16, 3, padding=1), nn.Linear(16, 4)
        self.error = error

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.requires_grad is False and len(x) == 8:
            raise self.error
        return self.head(self.b(self.a(x)).mean((2, 3)))


@pytest.mark.parametrize("error", [SystemExit(3), AssertionError("odd"), StopIteration(), RuntimeError("one\ntwo")])
def test_a_trial_whose_network_raises_has_failed_with_its_line(error: BaseException, tmp_path: Path) -> None:
    whole = TensorDataset(torch.randn(16, 4, 8, 8), torch.arange(16) % 4)
    request = TrialRequest(backbone="", batch_size=8, epochs=1, threads=1)
    request = with_layers(with_data(with_model(request, lambda: Odd(error)), (whole, whole)))[0]
    for operator in (None, separable().to_json()):
        outcome = run_trial(
            msgspec.structs.replace(request, operator=operator), folder=tmp_path / str(operator is None)
        )
        assert outcome.state == "failed"
        assert outcome.reason.startswith(f"the network: {type(error).__name__}")
        assert re.search(r"\(test_users_code.py, line \d+\)$", outcome.reason)
    error = KeyboardInterrupt()
    request = with_layers(with_data(with_model(request, lambda: Odd(error)), (whole, whole)))[0]
    with pytest.raises(KeyboardInterrupt):
        run_trial(request, folder=tmp_path / "interrupted")


def test_another_process_says_what_went_wrong_and_goes_on(tmp_path: Path) -> None:
    """Not only that its exit status was 1; and code that is another than when it was named does not run."""
    (tmp_path / "net.py").write_text("from parts import make\n\ndef make_model():\n    return make()\n")
    parts = tmp_path / "parts.py"
    parts.write_text(
        "from torch import nn\ndef make(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Linear(8, 10))\n"
    )
    request = TrialRequest(backbone="", data="digits", epochs=1, batch_size=256, threads=1)
    request, _ = with_layers(with_model(request, f"{tmp_path}/net.py:make_model"))
    with TrialWorker(tmp_path / "log") as worker:
        outcome = worker.run(request, folder=tmp_path / "first")
    assert outcome.state == "finished", outcome.reason
    parts.write_text(parts.read_text().replace("64, 8", "64, 9").replace("(8, 10", "(9, 10"))
    with TrialWorker(tmp_path / "log") as worker:
        outcome = worker.run(request, folder=tmp_path / "second")
    assert (outcome.state, outcome.accuracy) == ("failed", None)
    assert "net.py: expected the modules that it imports as they were when it was named, found parts" in outcome.reason
    assert with_model(request, f"{tmp_path}/net.py:make_model").backbone != request.backbone


KINDS = """
import functools
from torch import nn

class Net(nn.Sequential):
    def __init__(self, width=8):
        super().__init__(nn.Flatten(), nn.Linear(64, width), nn.Linear(width, 10))

class Maker:
    def __call__(self): return Net()

def wide(width): return Net(width)

part = functools.partial(wide, 12)
short = lambda: Net()
ready = Net()
made = Maker()
if True:
    other = Net
number = 3
"""


@pytest.mark.parametrize("name", ["Net", "part", "short", "ready", "made", "other"])
def test_whatever_makes_a_network_is_taken(name: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(KINDS)
    _, sites = with_layers(with_model(TrialRequest(backbone="", data="digits"), f"{tmp_path}/net.py:{name}"))
    assert [site.name for site in sites] == ["1"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wide", r"wide of .*net.py: TypeError: wide\(\) missing 1 required positional argument: 'width'"),
        ("number", "expected a torch.nn.Module from number of .*net.py, found 3"),
        ("nn", "expected a torch.nn.Module from nn of .*net.py, found <module 'torch.nn'"),
        ("gone", "expected a function 'gone' in .*net.py, found none; it has Net, Maker, wide"),
    ],
)
def test_what_makes_none_is_said(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(KINDS)
    with pytest.raises(SynoError, match=said) as refusal:
        with_layers(with_model(TrialRequest(backbone="", data="digits"), f"{tmp_path}/net.py:{name}"))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("state_dict", "ValueError: not today"),
        ("named_parameters", "ValueError: not today"),
        ("named_modules", "ValueError: not today"),
        ("_apply", "ValueError: not today"),
        ("train", "expected a network that takes a training step, found: ValueError: not today"),
    ],
)
def test_a_method_of_torch_s_that_raises_is_said(method: str, expected: str) -> None:
    """Whatever the lab asks of a network, and the network refuses, is the network's."""

    class Raises(Plain):
        pass

    def refuse(self: nn.Module, *given: object, **named: object) -> nn.Module:
        if given == (False,):  # an evaluation works
            return nn.Module.train(self, False)
        raise ValueError("not today")

    setattr(Raises, method, refuse)
    whole = TensorDataset(torch.randn(8, 4, 8, 8), torch.arange(8) % 4)
    with pytest.raises(SynoError) as refusal:
        choose(with_data(with_model(TrialRequest(backbone="", epochs=1, batch_size=4), Raises), (whole, whole)))
    assert expected in str(refusal.value)
    assert "(test_users_code.py, line " in str(refusal.value)


def test_a_network_that_does_not_fit_is_said_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(KINDS.replace("64, width", "63, width"))
    with pytest.raises(
        SynoError, match=r"^Net of .*net.py: expected a network that takes images \[1, 8, 8\], found: mat1"
    ):
        with_layers(with_model(TrialRequest(backbone="", data="digits"), f"{tmp_path}/net.py:Net"))


def test_data_of_a_file_are_the_same_in_each_process(tmp_path: Path) -> None:
    """What a file draws without a seed, a split into parts above all, is drawn from one seed each time."""
    (tmp_path / "data.py").write_text(
        "import torch\nfrom torch.utils.data import TensorDataset, random_split\n"
        "labels = torch.arange(8) % 2\n"
        "pair = TensorDataset(torch.randn(8, 3), labels), TensorDataset(torch.randn(8, 3), labels)\n"
        "def split():\n    return random_split(pair[0], [4, 4])\n"
    )
    from syno_lab.data.own import own_data
    from syno_lab.trial import own as given

    seen = []
    for name in ("pair", "split", "pair", "split"):
        request = with_data(TrialRequest(backbone=""), f"{tmp_path}/data.py:{name}")
        seen.append(torch.stack([own_data(request.data).train.data[index][0] for index in range(4)]))
        given._BROUGHT.clear()  # as a new process is
    assert torch.equal(seen[0], seen[2])
    assert torch.equal(seen[1], seen[3])
