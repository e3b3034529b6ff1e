"""Networks of the user's own as they are: why layers stay, networks that are not plain, and other types of examples."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import prune, weight_norm
from torch.utils.data import TensorDataset

import syno_lab as sl
from syno_lab import operators
from syno_lab.errors import SpecError
from syno_lab.experiments.own import check_fit, choose, with_data, with_model
from syno_lab.trial import TrialRequest, run_trial
from syno_lab.trial.backbone import build

REQUEST = TrialRequest(backbone="", batch_size=8, epochs=1, threads=1)


class Two(nn.Module):
    """Two convolutions and a head."""

    def __init__(self, channels: int = 4, second: nn.Module | None = None) -> None:
        super().__init__()
        self.a = nn.Conv2d(channels, 16, 3, padding=1)
        self.b = nn.Conv2d(16, 16, 3, padding=1) if second is None else second
        self.head = nn.LazyLinear(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.b(self.a(x).relu()).relu().flatten(2).mean(2))


class Weight(Two):
    """A function takes the weight of ``b``."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.conv2d(self.a(x), self.b.weight, padding=1).mean((2, 3)))


class Sizes(Two):
    """Its second layer is called on planes of two sizes, its third on a plane of one position."""

    def __init__(self) -> None:
        super().__init__(3)
        self.c, self.d = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.d(self.b(self.b(self.a(x))[:, :, 1:])).mean((2, 3), keepdim=True)
        return self.head(self.c(x).flatten(1))


def examples(shape: tuple[int, ...] = (4, 8, 8), kind: torch.dtype = torch.float32) -> tuple[TensorDataset, ...]:
    values = torch.randint(0, 9, (32, *shape), generator=torch.Generator().manual_seed(0)).to(kind)
    return (TensorDataset(values, torch.arange(32) % 4),) * 2


def sequence(*layers: nn.Module, width: int) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, 4))


class PlannedError(Exception):
    """The plan was said."""


def plan(model: Any, data: Any, folder: Path) -> list[str]:
    lines: list[str] = []

    def say(line: str) -> None:
        if not line.startswith("trying "):  # where the machine is busy
            lines.append(line)
        if line.startswith("operators "):
            raise PlannedError

    with pytest.raises(PlannedError):
        sl.improve(model, data, minutes=0.1, folder=folder, say=say, anyway=True)
    return lines


def trained(model: Any, data: Any, folder: Path) -> str:
    """How a training with an operator in the layers ends."""
    request = choose(with_data(with_model(REQUEST, model), data)).request
    check_fit(request)
    operator = operators.grouped_linear() if request.options["kinds"] == ["linear"] else operators.conv1x1()
    request = TrialRequest.from_dict(request.to_dict() | {"operator": operator.to_json()})
    outcome = run_trial(request, folder=folder)
    return outcome.reason or outcome.state


# -- why layers stay ---------------------------------------------------------------------------------------------------

HEAD = "it is the last linear layer, which gives the output"
STEM = "4 does not divide its 3 input channels"
KIND = "its kind is {} (conv2d and linear layers can be replaced)"


@pytest.mark.parametrize(
    ("model", "shape", "reasons"),
    [
        (
            lambda: sequence(nn.Conv1d(4, 16, 3), nn.Conv1d(16, 16, 3), width=64),
            (4, 8),
            {"3": HEAD, "0": KIND.format("Conv1d"), "1": KIND.format("Conv1d")},
        ),
        (
            lambda: sequence(nn.Conv3d(1, 4, 1), nn.ConvTranspose3d(4, 4, 1), width=32),
            (1, 2, 2, 2),
            {"3": HEAD, "0": KIND.format("Conv3d"), "1": KIND.format("ConvTranspose3d")},
        ),
        (
            lambda: Two(3, nn.ConvTranspose2d(16, 16, 1)),
            (3, 8, 8),
            {"a": STEM, "head": HEAD, "b": KIND.format("ConvTranspose2d")},
        ),
        (lambda: Two(3, nn.Conv2d(16, 16, 3, padding=2, dilation=2)), (3, 8, 8), {"b": "its dilation is 2x2"}),
        (lambda: Two(3, nn.Conv2d(16, 16, 3, padding=1, groups=4)), (3, 8, 8), {"b": "it has 4 groups"}),
        (lambda: Two(3, nn.Conv2d(16, 6, 3, padding=1)), (3, 8, 8), {"b": "4 does not divide its 6 output channels"}),
        (
            lambda: Two(3, nn.Conv2d(16, 16, 3)),
            (3, 8, 8),
            {"b": "its output is 6x6, and not 8x8 as its padding would have to make it"},
        ),
        (
            lambda: Weight(3),
            (3, 8, 8),
            {"a": STEM, "b": "a function takes its weight, and the network does not call it"},
        ),
    ],
)
def test_each_layer_says_its_own_reason(
    model: Callable[[], nn.Module], shape: tuple[int, ...], reasons: dict[str, str]
) -> None:
    request = with_data(with_model(REQUEST, model), examples(shape))
    with pytest.raises(SpecError) as refusal:
        choose(request)
    said = str(refusal.value)
    assert "\n" not in said
    first = {reason: name for name, reason in reversed(reasons.items())}
    assert all(re.search(rf"\b{name}( and \d more)?: {re.escape(reason)}", said) for reason, name in first.items()), (
        said
    )


def test_layers_that_are_called_on_several_sizes_or_have_no_room_say_so() -> None:
    reasons = choose(with_data(with_model(REQUEST, Sizes), examples((3, 8, 8)))).reasons
    assert reasons == {
        "a": STEM,
        "b": "it is called on images of several sizes",
        "c": "its plane of 1x1 has no room for a window of 3x3",
        "d": None,
        "head": "it is a layer of kind linear",
    }


def test_the_plan_says_why_each_layer_stays(tmp_path: Path) -> None:
    lines = plan(lambda: Two(3), examples((3, 8, 8)), tmp_path)
    assert lines[2] == "1 of 3 layers are replaced, 84% of the FLOPs: b"
    assert lines[3] == f"2 layers stay: a: {STEM}; head: it is a layer of kind linear"


# -- networks that are not plain ---------------------------------------------------------------------------------------


def pruned() -> nn.Module:
    return prune.l1_unstructured(nn.Conv2d(16, 16, 3, padding=1), "weight", 0.5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [
        Two,
        lambda: Two(second=weight_norm(nn.Conv2d(16, 16, 3, padding=1))),
        lambda: Two(second=pruned()),
        lambda: nn.DataParallel(Two()),
        lambda: torch.compile(Two(), backend="eager"),
    ],
    ids=["lazy", "weight_norm", "pruned", "parallel", "compiled"],
)
@pytest.mark.parametrize("is_called", [False, True], ids=["new", "called before"])
def test_it_trains_as_a_function_and_as_a_module(
    make: Callable[[], nn.Module], is_called: bool, tmp_path: Path
) -> None:
    net = make()
    if is_called:
        net.train()(torch.randn(2, 4, 8, 8))
    else:
        assert trained(make, examples(), tmp_path / "function") == "finished"
    assert trained(net, examples(), tmp_path / "module") == "finished"


def test_lazy_weights_are_drawn_from_the_seed() -> None:
    request = with_data(with_model(REQUEST, Two), examples())
    nets = [build(TrialRequest.from_dict(request.to_dict() | {"seed": seed})).module for seed in (0, 0, 1)]
    first, again, other = (net.head.weight for net in nets)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def locked() -> nn.Module:
    net = Two()
    net.lock = threading.Lock()  # type: ignore[assignment]
    return net


@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_trained_is_one_line_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"'_thread\.lock' object; give a function that makes it$"):
        plan(locked(), examples(), tmp_path)
    assert plan(locked, examples(), tmp_path)
    for meta in (sequence(nn.Linear(4, 4), width=4).to("meta"), lambda: sequence(nn.Linear(4, 4), width=4).to("meta")):
        with pytest.raises(
            SpecError, match=r"found 0\.weight .* on the meta device: make it on the cpu, or .*to_empty"
        ):
            plan(meta, examples((4,)), tmp_path)
    scripted = torch.jit.script(sequence(nn.Linear(4, 4), width=4))
    with pytest.raises(SpecError, match="0 and 1 more: its kind is Linear in TorchScript"):
        plan(scripted, examples((4,)), tmp_path)
    quantized = torch.ao.quantization.quantize_dynamic(sequence(nn.Linear(4, 4), width=4), {nn.Linear})
    with pytest.raises(SpecError, match="0 and 1 more: its kind is a quantized Linear"):
        plan(quantized, examples((4,)), tmp_path)


# -- types of the examples ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_numbers_with_a_point_are_cast(kind: torch.dtype, tmp_path: Path) -> None:
    assert trained(Two, examples(kind=kind), tmp_path / "single") == "finished"
    assert trained(lambda: Two().double(), examples(kind=kind), tmp_path / "double") == "finished"


def tokens() -> nn.Module:
    return nn.Sequential(nn.Embedding(9, 16), nn.Linear(16, 16), nn.ReLU(), nn.Flatten(), nn.Linear(64, 4))


def test_whole_numbers_are_for_networks_that_take_them(tmp_path: Path) -> None:
    for kind in (torch.int32, torch.int64):
        assert trained(tokens, examples((4,), kind), tmp_path / str(kind)) == "finished"
    with pytest.raises(
        SpecError, match=r"expected examples of torch\.float32, which this Two takes, found torch\.uint8"
    ):
        plan(Two, examples(kind=torch.uint8), tmp_path)
    with pytest.raises(
        SpecError, match=r"expected examples of torch\.int64, .*, found torch\.float32 \[1, 4\]: convert"
    ):
        plan(tokens, examples((4,)), tmp_path)
