"""A search is tried before it is promised: what its network does not let operators do is said before it trains."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import syno_lab as sl
from syno_lab.commands.search_options import Network
from syno_lab.commands.search_own import with_own
from syno_lab.errors import SpecError
from syno_lab.experiments import trying
from syno_lab.experiments.own import choose, with_data, with_layers, with_model
from syno_lab.trial import TrialRequest, run_trial

REQUEST = TrialRequest(backbone="", batch_size=8, epochs=1, threads=1)


class Row(nn.Module):
    """Convolutions one after the other, and a head; what is asked of them is up to the classes below."""

    def __init__(self, count: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(4 if not one else 8, 8, 3, padding=1) for one in range(count))
        self.head = nn.Linear(8, 4)

    def ask(self, number: int, layer: nn.Module) -> None:
        """Asked before each layer is called."""

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            self.ask(number, layer)
            x = layer(x).relu()
        return self.head(x.mean((2, 3)))


class TakesNoOther(Row):
    """Its second layer has to be a convolution."""

    def ask(self, number: int, layer: nn.Module) -> None:
        assert number != 1 or isinstance(layer, nn.Conv2d), f"layer {number} is no convolution"


class OnlyInTraining(Row):
    """In training it takes no other layer either."""

    def ask(self, number: int, layer: nn.Module) -> None:
        if self.training and number == 1 and not isinstance(layer, nn.Conv2d):
            raise RuntimeError("no convolution\nto train")


class Ends(Row):
    """It ends the process where its first layer is another."""

    def ask(self, number: int, layer: nn.Module) -> None:
        if number == 0 and not isinstance(layer, nn.Conv2d):
            sys.exit("another layer")


class Backward(Row):
    """The gradient of its second layer's weight is what fails."""

    def ask(self, number: int, layer: nn.Module) -> None:
        if number == 1 and not isinstance(layer, nn.Conv2d) and self.training:
            next(layer.parameters()).register_hook(lambda gradient: gradient[99999])


class Several(Row):
    """Of 11 layers the third, the fourth and the last have to be convolutions."""

    def __init__(self) -> None:
        super().__init__(11)

    def ask(self, number: int, layer: nn.Module) -> None:
        assert number not in (2, 3, 10) or isinstance(layer, nn.Conv2d), f"layer {number} is no convolution"


class AtLeastOne(Row):
    """Any layer may be another, but not all of them."""

    def __init__(self) -> None:
        super().__init__(6)

    def ask(self, number: int, layer: nn.Module) -> None:
        assert any(isinstance(one, nn.Conv2d) for one in self.layers), "no convolution is left"


class NoOther(Row):
    """No layer may be another."""

    def ask(self, number: int, layer: nn.Module) -> None:
        assert isinstance(layer, nn.Conv2d), "no convolution"


class NeverTrains(Row):
    """It has no training."""

    def ask(self, number: int, layer: nn.Module) -> None:
        if self.training:
            raise KeyError("training")


def data() -> Any:
    examples = torch.randn(32, 4, 6, 6, generator=torch.Generator().manual_seed(0))
    return (TensorDataset(examples, torch.arange(32) % 4),) * 2


def asked(model: Any) -> TrialRequest:
    return with_data(with_model(REQUEST, model), data())


@pytest.mark.parametrize(
    ("model", "stay", "reason"),
    [
        (Row, [], ""),
        (TakesNoOther, [1], r"an evaluation, found: AssertionError: layer 1 is no convolution \(test_trying\.py, line"),
        (OnlyInTraining, [1], r"a training step, found: RuntimeError: no convolution \(test_trying\.py, line \d+\)$"),
        (Ends, [0], r"found: SystemExit: another layer"),
        (Backward, [1], r"a training step, found: IndexError: "),
        (Several, [2, 3, 10], r"AssertionError: layer (2|3|10) is no convolution"),
        (AtLeastOne, [5], "no convolution is left"),
    ],
)
def test_just_the_layers_that_break_stay_and_the_search_trains(
    model: type[Row], stay: list[int], reason: str, tmp_path: Path
) -> None:
    chosen = choose(asked(model))
    broken = {name: why for name, why in chosen.reasons.items() if why is not None and name != "head"}
    assert list(broken) == [f"layers.{number}" for number in stay]
    pattern = f"^with an operator in its place: expected a network that takes .*{reason}"
    assert all(re.search(pattern, why) and "\n" not in why for why in broken.values()), broken
    assert [site.name for site in chosen.sites] == chosen.request.options["match"]
    assert len(chosen.sites) == len(model().layers) - len(stay)
    request = TrialRequest.from_dict(chosen.request.to_dict() | {"operator": sl.operators.separable().to_json()})
    assert run_trial(request, folder=tmp_path).state == "finished"


def test_the_plan_has_the_reason(tmp_path: Path) -> None:
    lines: list[str] = []

    def say(line: str) -> None:
        if not line.startswith("trying "):
            lines.append(line)
        if line.startswith("operators "):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sl.improve(TakesNoOther, data(), minutes=0.1, folder=tmp_path, say=say, anyway=True)
    assert lines[2].startswith("1 of 3 layers are replaced")
    pattern = (
        r"^2 layers stay: layers\.1: with an operator in its place: .* is no convolution .*; head: it is a layer of"
    )
    assert re.search(pattern, lines[3]), lines


def test_nothing_is_searched_where_no_layer_can_be_replaced() -> None:
    with pytest.raises(SpecError) as refusal:
        choose(asked(NoOther))
    assert "layers.0 and 1 more: with an operator in its place: expected" in str(refusal.value)
    assert "AssertionError: no convolution" in str(refusal.value)
    assert "head: it is the last linear layer" in str(refusal.value)
    with pytest.raises(SpecError, match=r"^expected a network that takes a training step, found: KeyError: 'training'"):
        choose(asked(NeverTrains))


def test_a_command_says_which_layers_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\nfrom torch.utils.data import TensorDataset\n\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)\n"
        "        self.head = nn.Linear(8, 4)\n\n"
        "    def forward(self, x):\n"
        "        assert type(self.b) is nn.Linear, 'b is not linear'\n"
        "        return self.head(self.b(self.a(x)))\n\n"
        "def make_model():\n    return Net()\n\n"
        "def make_dataset():\n    return (TensorDataset(torch.zeros(8, 8), torch.arange(8) % 4),) * 2\n"
    )
    named = Network(model=f"{tmp_path}/net.py:make_model", dataset=f"{tmp_path}/net.py:make_dataset")
    assert with_own(REQUEST, named).options["match"] == ["a"]
    said = capsys.readouterr().err
    assert re.search(r"2 layers stay: b: with .*AssertionError: b is not linear \(net\.py, line 12\)", said), said
    assert with_own(REQUEST, named, tries=False).options["match"] == ["a", "b"]


class Drawing(Dataset[Any]):
    """Examples that draw from every generator."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.rand(4, 6, 6) + random.random() + np.random.random(), index % 4  # noqa: NPY002


class Draws(Row):
    """A network that draws from every generator, when it is made and when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.by = random.random() + np.random.random()  # noqa: NPY002

    def ask(self, number: int, layer: nn.Module) -> None:
        self.by += torch.rand(()).item() + random.random() + np.random.random()  # noqa: NPY002


def test_generators_weights_and_buffers_are_as_before() -> None:
    net = nn.Sequential(Draws(), nn.BatchNorm1d(4), nn.Dropout())
    before = {name: value.clone() for name, value in net.state_dict().items()}
    requests = [with_data(with_model(REQUEST, model), (Drawing(), Drawing())) for model in (net, Draws)]
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index] # noqa: NPY002
    for request in requests:
        with_layers(request)
    assert states[0] == random.getstate()
    assert states[1] == np.random.get_state()[1].tolist()  # type: ignore[index] # noqa: NPY002
    assert torch.equal(states[2], torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_ctrl_c_passes_through() -> None:
    class Stopped(Row):
        def ask(self, number: int, layer: nn.Module) -> None:
            if not isinstance(layer, nn.Conv2d):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        choose(asked(Stopped))


def test_layers_that_are_not_told_apart_in_time_stay_together() -> None:
    now = iter(range(0, 10**6, 25))  # over after the halves of the halves
    request, sites = with_layers(asked(lambda: Row(11)))
    request = TrialRequest.from_dict(with_model(request, Several).to_dict())
    broken = trying.broken_layers(request, sites, clock=lambda: next(now))
    assert list(broken) == [f"layers.{number}" for number in range(2, 11)]


@pytest.mark.parametrize(("model", "wanted"), [(Row, ["trying an operator in 2 layers, on two examples"]), ("cnn", [])])
def test_a_line_says_what_is_tried_and_networks_of_our_own_need_no_try(model: Any, wanted: list[str]) -> None:
    said: list[str] = []
    chosen = choose(asked(model), None, said.append)
    assert said == wanted
    assert chosen.sites


def test_a_try_asks_for_nothing_that_the_search_does_not() -> None:
    """Networks of our own are not run in training: in that mode this one would fail."""
    request = with_data(TrialRequest(backbone="cnn", batch_size=8, epochs=1, threads=1), data())
    calls: list[bool] = []
    hook = nn.modules.module.register_module_forward_pre_hook(lambda module, given: calls.append(module.training))
    try:
        choose(request)
    finally:
        hook.remove()
    assert calls
    assert not any(calls)
