"""What is seen of a network, what speaks against replacing a layer, and what is selected."""

import re
from collections.abc import Callable

import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from syno_lab.errors import SpecError
from syno_lab.models import Selection, backbone, resnet20, survey


class Odd(nn.Module):
    """Layers of every kind that cannot be replaced, and what can."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1)
        self.unused = nn.Conv2d(4, 4, 3, padding=1)
        self.pointwise = nn.Conv2d(4, 4, 1)
        self.grouped = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.dilated = nn.Conv2d(4, 4, 3, padding=2, dilation=2)
        self.strided = nn.Conv2d(4, 4, 5, padding=2, stride=2)
        self.unpadded = nn.Conv2d(4, 4, 3)
        self.alone = nn.Conv2d(4, 4, 3, padding=1)
        self.at_two_sizes = nn.Conv2d(4, 4, 3, padding=1)
        self.tied = nn.Linear(4, 4, bias=False)
        self.twin = nn.Linear(4, 4)
        self.twin.weight = self.tied.weight
        self.last = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.dilated(self.grouped(self.pointwise(self.first(x))))
        x = self.at_two_sizes(self.strided(self.at_two_sizes(x)))
        x = self.unpadded(x)
        x = self.alone(x[0])[None]
        return self.last(self.twin(self.tied(x.permute(0, 2, 3, 1))))


EVERYTHING = Selection(kinds=("conv2d", "linear"), groups=None, pointwise=True)


def test_every_layer_is_there_once_with_its_reason():
    rows = survey(Odd(), (2, 12, 10)).rows(EVERYTHING)
    assert {row["name"]: row["reason"] for row in rows} == {
        "first": None,
        "pointwise": None,
        "grouped": None,
        "dilated": "its dilation is 2x2",
        "at_two_sizes": "it is called on images of several sizes",
        "strided": None,
        "unpadded": "its output is 4x3, and not 6x5 as its padding would have to make it",
        "alone": "it is called on an image without a batch",
        "tied": "it shares its weight with twin",
        "twin": "it shares its weight with tied",
        "last": None,
        "unused": "the network does not call it on this example",
    }
    assert [row["replaced"] for row in rows] == [row["reason"] is None for row in rows]


def test_flops_and_shapes_agree_with_torchs_own_counter():
    net = Odd()
    seen = survey(net, (2, 12, 10))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net(torch.zeros(1, 2, 12, 10))
    assert seen.flops == counter.get_total_flops() == sum(site.flops for site in seen.sites)
    assert seen.params == sum(parameter.numel() for parameter in net.parameters())
    frame = seen.to_frame(EVERYTHING)
    assert isinstance(frame, pd.DataFrame)
    assert frame["share"].sum() == pytest.approx(1)
    strided = frame.set_index("name").loc["strided"]
    assert (strided["input"], strided["output"], strided["kernel"], strided["stride"]) == ("4x12x10", "4x6x5", "5x5", 2)
    last = frame.set_index("name").loc["last"]
    assert (last["kind"], last["input"], last["output"], bool(last["bias"])) == ("linear", "12x4", "12x3", True)
    assert frame.set_index("name").loc["at_two_sizes", "calls"] == 2


def names(selection: Selection) -> list[str]:
    return [site.name for site in survey(Odd(), (2, 12, 10)).select(selection)]


def test_selections():
    assert names(Selection()) == ["first", "strided"]
    assert names(Selection(pointwise=True)) == ["first", "pointwise", "strided"]
    assert names(Selection(kernel_size=(1, 1))) == ["pointwise"]
    assert names(Selection(stride=(2, 2))) == ["strided"]
    assert names(Selection(groups=None)) == ["first", "grouped", "strided"]
    assert names(Selection(groups=2)) == ["grouped"]
    assert names(Selection(kinds=("linear",))) == ["last"]
    assert names(Selection(names=("s*", "[f]irst"))) == ["first", "strided"]
    assert names(Selection(leave=("f*",))) == ["strided"]
    assert names(Selection(predicate=lambda name, module: module.in_channels == 2)) == ["first"]
    assert names(Selection(strides="shape", stride=(2, 2))) == ["strided"]


def test_nothing_to_replace_is_one_line_with_the_reasons():
    with pytest.raises(SpecError, match="to replace in this Sequential, found no convolution and no linear layer"):
        survey(nn.Sequential(nn.ReLU()), (1, 2, 2)).select()
    with pytest.raises(SpecError) as refusal:
        survey(Odd(), (2, 12, 10)).select(Selection(kernel_size=(7, 7), groups=None))
    assert "something to replace in this Odd, found first and 1 more: its kernel is 3x3" in str(refusal.value)
    assert "tied and 2 more: it is a layer of kind linear" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_wrong_selections_are_refused():
    with pytest.raises(SpecError, match=r"kinds of layers: expected some of conv2d, linear, found \['conv3d'\]"):
        Selection(kinds=("conv3d",))
    with pytest.raises(SpecError, match=r"kinds of layers: expected some of conv2d, linear, found \[\]"):
        Selection(kinds=())
    with pytest.raises(SpecError, match="strides: expected 'pool' or 'shape', found 'none'"):
        Selection(strides="none")


def test_looking_changes_nothing_whatever_happens():
    net = Odd()
    net.last.eval()
    net.first.weight.requires_grad = False

    def check() -> None:
        assert [name for name, weight in net.named_parameters() if not weight.requires_grad] == ["first.weight"]
        assert net.training
        assert not net.last.training
        assert not any(module._forward_hooks for module in net.modules())

    survey(net, (2, 12, 10))
    check()
    with pytest.raises(SpecError, match=r"expected a network that takes images \[3, 12, 10\], found: "):
        survey(net, (3, 12, 10))
    check()


def test_a_view_of_a_parameter_may_be_what_a_module_takes():
    class Latents(nn.Module):
        """As Perceiver's: what goes through its layers is learned."""

        def __init__(self) -> None:
            super().__init__()
            self.latents = nn.Parameter(torch.ones(6, 4))
            self.norm, self.layer = nn.LayerNorm(4), nn.Linear(4, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(self.norm(nn.Identity()(self.latents.expand(2, 6, 4)))) * x.mean()

    net = Latents()
    assert [(site.name, site.positions, site.flops) for site in survey(net, (3, 5, 5)).sites] == [("layer", 12, 768)]
    assert all(weight.requires_grad for weight in net.parameters())


def test_examples_may_be_tensors_and_arguments():
    net = backbone("gpt_tiny").build(device="meta")
    tokens = torch.zeros(1, 9, dtype=torch.int64)
    assert survey(net, tokens).flops == survey(net, {"tokens": tokens}).flops
    with pytest.raises(SpecError, match=r"expected a network that takes an example \['words'\], found: .*words"):
        survey(net, {"words": tokens})
    with pytest.raises(
        SpecError, match=r"expected a network that takes an example \[1, 65\], found: expected texts of"
    ):
        survey(net, torch.zeros(1, 65, dtype=torch.int64))


def test_an_unequal_stride_is_pooled_but_not_in_the_shape():
    net = nn.Conv2d(2, 2, 3, stride=(1, 2), padding=1)
    (site,) = survey(net, (2, 6, 6)).select()
    assert site.stride == (1, 2)
    with pytest.raises(SpecError, match="its strides 1 and 2 differ"):
        survey(net, (2, 6, 6)).select(Selection(strides="shape"))


def test_the_shares_of_resnet20():
    frame = survey(resnet20(), (3, 32, 32)).to_frame()
    assert len(frame) == 20
    assert frame["replaced"].sum() == 19
    assert frame.loc[frame["replaced"], "share"].sum() > 0.999


class Called(nn.Module):
    """Layers that are called in all ways, and weights that functions take."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Conv2d(4, 4, 3, padding=1)
        self.named = nn.Conv2d(4, 4, 3, padding=1)
        self.taken = nn.Conv2d(4, 4, 3, padding=1)
        self.penalised = nn.Conv2d(4, 4, 3, padding=1)
        self.pair = Pair(4, 4, 3, padding=1)
        self.masked = Masked(4, 4, 3, padding=1)
        self.direct = nn.Conv2d(4, 4, 3, padding=1)
        self.scaled = nn.Conv2d(4, 4, 3, padding=1)
        self.scaled.register_forward_pre_hook(lambda module, _: (module.weight.norm(), None)[1])
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.scaled(x)
        x = self.plain(x.to(self.plain.weight.dtype).view(-1, self.plain.weight.size(1), 8, 8))
        x = functional.conv2d(self.named(input=x), self.taken.weight.data, padding=1)
        x = self.penalised(x) + self.penalised.weight.flatten().norm()
        x = self.direct.forward(self.masked(self.pair(x)[0], mask=x > 0))
        return self.head(input=x.mean((2, 3)))


class Pair(nn.Conv2d):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        return super().forward(x), None


class Masked(nn.Conv2d):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return super().forward(x * mask)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_each_way_to_use_a_layer_is_seen(device):
    seen = survey(Called().to(device), (4, 8, 8))
    assert {site.name: (site.calls, site.obstacle) for site in seen.sites} == {
        "plain": (1, None),
        "named": (1, None),
        "taken": (0, "a function takes its weight, and the network does not call it"),
        "penalised": (1, "a function takes its weight, besides its calls"),
        "pair": (1, "its output is a tuple, not a tensor"),
        "masked": (1, "it is called with 2 inputs, and an operator takes one"),
        "direct": (1, None),
        "scaled": (1, "a function takes its weight, besides its calls"),
        "head": (1, None),
    }


def test_what_torchs_attention_takes_from_a_layer_is_no_call_of_it():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = nn.TransformerEncoder(layer, 2).eval()
    example = {
        "src": torch.zeros(2, 5, 8),
        "src_key_padding_mask": torch.tensor([[False] * 5, [False] * 3 + [True] * 2]),
    }
    obstacles = {site.name: site.obstacle for site in survey(net, example).sites}
    assert {name: obstacles[f"layers.1.{name}"] for name in ("linear1", "linear2", "self_attn.out_proj")} == {
        "linear1": None,
        "linear2": None,
        "self_attn.out_proj": "a function takes its weight, and the network does not call it",
    }
    assert torch.backends.mha.get_fastpath_enabled()


def test_a_layer_is_seen_as_it_is_whatever_hooks_make_of_it():
    net = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1))
    net[0].register_forward_hook(lambda module, given, y: y[..., ::2, ::2])
    first, second = survey(net, (2, 8, 8)).sites
    assert (first.obstacle, second.obstacle, second.height) == (None, None, 4)
    assert len(net[0]._forward_hooks) == 1
    net[0].forward = lambda x: torch.zeros(1, 4, 8, 8)
    own = net[0].forward
    survey(net, (2, 8, 8))
    assert vars(net[0])["forward"] is own
    assert "forward" not in vars(net[1])


OTHER_KINDS: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "Conv1d": (lambda: nn.Conv1d(4, 8, 3), torch.zeros(1, 4, 9)),
    "Conv3d": (lambda: nn.Conv3d(1, 4, 1), torch.zeros(1, 1, 2, 2, 2)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 8, 1), torch.zeros(1, 4, 2, 2)),
    "LSTM": (lambda: nn.LSTM(4, 8), torch.zeros(1, 3, 4)),
    "GRU": (lambda: nn.GRU(4, 8), torch.zeros(1, 3, 4)),
    "Embedding": (lambda: nn.Embedding(4, 8), torch.zeros(1, 3, dtype=torch.int64)),
    "a quantized Linear": (
        lambda: torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear}),
        torch.zeros(1, 4),
    ),
    "Conv2d in TorchScript": (lambda: torch.jit.script(nn.Sequential(nn.Conv2d(4, 4, 3))), torch.zeros(1, 4, 5, 5)),
}


class Own(nn.Module):
    """A layer of the user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.zeros(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.matrix


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_layers_of_other_kinds_stay_for_their_kind(kind: str) -> None:
    make, example = OTHER_KINDS[kind]
    seen = survey(make(), example)
    (row,) = seen.rows()
    reason = f"its kind is {kind} (conv2d and linear layers can be replaced)"
    assert (row["kind"], row["replaced"], row["reason"]) == (kind, False, reason)
    with pytest.raises(SpecError, match=re.escape(f"{row['name'] or 'the network itself'}: {reason}")):
        seen.select()


def test_each_kind_of_attention_and_of_layers_of_ones_own_is_named() -> None:
    attention = nn.MultiheadAttention(8, 2)
    example = {name: torch.zeros(1, 3, 8) for name in ("query", "key", "value")}
    assert survey(attention, example).others == {"": "MultiheadAttention"}
    assert survey(nn.Sequential(Own()), torch.zeros(1, 4)).others == {"0": "Own"}
    normal = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.PReLU(4))
    assert not survey(normal, torch.zeros(1, 4)).others, "what scales is no layer that could be replaced"


@pytest.mark.parametrize(
    ("net", "given", "taken"),
    [
        (nn.Conv2d(4, 4, 1), torch.uint8, torch.float32),
        (nn.Conv2d(4, 4, 1).double(), torch.int64, torch.float64),
        (nn.Embedding(9, 4), torch.float32, torch.int64),
        (nn.Embedding(9, 4), torch.uint8, torch.int64),
    ],
)
def test_examples_of_another_type_are_said(net: nn.Module, given: torch.dtype, taken: torch.dtype) -> None:
    line = f"expected examples of {taken}, which this {type(net).__name__} takes, found {given} [1, 4, 2, 2]: convert"
    with pytest.raises(SpecError, match=re.escape(line)):
        survey(net, torch.zeros(1, 4, 2, 2, dtype=given))


@pytest.mark.parametrize("given", [torch.float16, torch.bfloat16, torch.float64])
def test_numbers_with_a_point_get_the_type_of_the_network(given: torch.dtype) -> None:
    for wanted in (torch.float32, torch.float64):
        assert survey(nn.Conv2d(4, 4, 1).to(wanted), torch.zeros(1, 4, 2, 2, dtype=given)).sites[0].calls == 1
