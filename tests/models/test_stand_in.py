"""What a network may ask of a layer that an operator replaced, and what it cannot have."""

import copy
import itertools
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional

from syno_lab import operators
from syno_lab.errors import SpecError
from syno_lab.models import Selection, put_in, slots, survey, take_out, with_slots

ANY = Selection(kinds=("conv2d", "linear"), groups=None, pointwise=True)


class Asks(nn.Module):
    """Two layers; ``ask`` uses the second as some network does."""

    def __init__(self, ask, layer=None) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4) if layer is None else layer
        self.ask = ask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.ask(self.b, self.a(x))


def same(net: nn.Module, name: str = "b") -> nn.Module:
    """The network with a slot in the place of a linear layer that does what the layer did."""
    (site,) = (site for site in survey(net, torch.zeros(3, 4)).sites if site.name == name)
    changed = with_slots(net, [site])
    slot = dict(slots(changed))[name]
    slot.placeholder.fill(copy.deepcopy(slot.original))
    if slot.bias is not None:
        nn.init.zeros_(slot.placeholder.kernel.bias)
    return changed


def t5(b, x):
    if isinstance(b.weight, torch.Tensor) and x.dtype != b.weight.dtype and b.weight.dtype != torch.int8:
        x = x.to(b.weight.dtype)
    return b(x)


# Each is what a network in the wild does with its layer.
QUESTIONS = {
    "dtype": lambda b, x: b(x.double().to(b.weight.dtype)),
    "dtype of data": lambda b, x: b(x.double().to(b.weight.data.dtype)),
    "device": lambda b, x: b(x.to(b.weight.device)),
    "t5": t5,
    "parameter": lambda b, x: b(x) * (2 if isinstance(b.weight, nn.Parameter) else 3),
    "size": lambda b, x: b(x) * b.weight.size(0) * b.weight.shape[1] * len(b.weight) * b.weight.numel(),
    "dimensions": lambda b, x: b(x) / (b.weight.ndim + b.weight.dim() + b.weight.stride(0)),
    "kind": lambda b, x: b(x) * (2 if b.weight.is_floating_point() and not b.weight.is_cuda else 3),
    "gradient": lambda b, x: b(x) * (2 if b.weight.requires_grad else 3),
    "features": lambda b, x: b(x) * b.in_features * b.out_features,
    "first parameter": lambda b, x: b(x.double().to(next(b.parameters()).dtype)),
    "type_as": lambda b, x: b(x.double().type_as(b.weight)),
    "to": lambda b, x: b(x.double().to(b.weight)),
    "zeros": lambda b, x: b(x + torch.zeros_like(b.weight)[0] + b.weight.new_ones(4)),
    "bias": lambda b, x: b(x) + b.bias.sum(),
    "has": lambda b, x: b(x) * (2 if hasattr(b, "weight") and not hasattr(b, "lora_A") else 3),
    "keyword": lambda b, x: b(input=x),
    "element": lambda b, x: b(x) * b.weight.element_size() * b.weight.is_contiguous(),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_slot_answers_as_its_layer(question):
    net = Asks(QUESTIONS[question])
    changed = same(net)
    x = torch.randn(3, 4)
    expected = net(x)
    torch.testing.assert_close(changed(x), expected)
    torch.testing.assert_close(torch.vmap(changed)(x), expected)
    torch.testing.assert_close(torch.func.functional_call(changed, dict(changed.named_parameters()), (x,)), expected)
    torch.compiler.reset()
    compiled = torch.compile(changed, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), expected)


def test_answers_follow_the_network():
    changed = same(Asks(QUESTIONS["dtype"]))
    assert repr(changed.b.weight) == "StandIn(b.weight, [4, 4], torch.float32)"
    half = copy.deepcopy(changed).half()
    assert half.b.weight.dtype == torch.float16
    assert half.b.weight.grad is None
    assert changed.b.weight.dtype == torch.float32
    meta = copy.deepcopy(changed).to("meta")
    assert (meta.b.weight.device.type, meta.b.weight.is_meta, changed.b.weight.is_cpu) == ("meta", True, True)
    changed.requires_grad_(False)
    assert not changed.b.weight.requires_grad
    assert "b.weight" not in changed.state_dict()
    assert not any(name.endswith("b.weight") for name, _ in changed.named_parameters())
    net = Asks(QUESTIONS["dtype"])
    operator, _ = put_in(net, survey(net, torch.zeros(3, 4)).sites, operators.grouped_linear())
    operator.ask = None
    twin = pickle.loads(pickle.dumps(operator))
    assert twin.a.weight.shape == (4, 4)
    assert twin.a.out_features == 4


def test_a_convolution_answers_its_geometry():
    layer = nn.Conv2d(4, 8, (3, 5), stride=2, padding=(1, 2), groups=2, padding_mode="circular", bias=False)
    layer.same = "static"
    (site,) = survey(nn.Sequential(layer), (4, 8, 8)).sites
    slot = with_slots(nn.Sequential(layer), [site])[0]
    for name in ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "same"):
        assert getattr(slot, name) == getattr(layer, name)
    assert (slot.padding_mode, slot.transposed, slot.bias) == ("circular", False, None)
    assert slot.weight.shape == layer.weight.shape
    with pytest.raises(AttributeError, match="'Slot' object has no attribute 'lora'"):
        _ = slot.lora
    with pytest.raises(AttributeError, match="0, which an operator replaces, has no 'reset_parameters'"):
        _ = slot.reset_parameters


@pytest.mark.parametrize(
    "take",
    [
        lambda b, x: functional.linear(x, b.weight, b.bias),
        lambda b, x: b(x) + torch.norm(b.weight),
        lambda b, x: b(x) + b.weight.abs().mean(),
        lambda b, x: x @ b.weight,
        lambda b, x: b.weight @ x.t(),
        lambda b, x: x * b.weight[0],
        lambda b, x: x + b.weight.data.view(-1)[:4],
        lambda b, x: b(x) * float(b.weight.sum()),
        lambda b, x: x if (b.weight == 0).all() else b(x),
        lambda b, x: x + b.weight.T[0],
        lambda b, x: x + torch.cat([b.weight, b.weight])[0],
        lambda b, x: x + torch.tensor(b.weight.tolist())[0],
        lambda b, x: nn.init.zeros_(b.weight),
        lambda b, x: b.weight.data.normal_(),
        lambda b, x: b.weight.requires_grad_(False),
        lambda b, x: setattr(b.weight, "data", x),
        lambda b, x: b.weight.copy_(x),
        lambda b, x: b.weight.to(torch.float64) @ x.t().double(),
        lambda b, x: b.weight.numpy(),
        lambda b, x: torch.optim.SGD([b.weight]),
        lambda b, x: copy.deepcopy(b.weight),
        lambda b, x: nn.Embedding(4, 4).__setattr__("weight", b.weight),
    ],
)
def test_values_of_a_weight_are_refused_in_one_line(take):
    changed = same(Asks(lambda b, x: b(x)))
    changed.ask = take
    with pytest.raises(
        SpecError, match=r"calls its layer b, found \w+ of b.weight: an operator replaces it"
    ) as refusal:
        changed(torch.randn(4, 4))
    assert "\n" not in str(refusal.value)


def test_a_weight_is_not_tied_to_a_slot():
    changed = same(Asks(lambda b, x: b(x)))
    for weight in (nn.Parameter(torch.zeros(4, 4)), torch.zeros(4, 4)):
        with pytest.raises(SpecError, match="expected no other weight for b, found one: an operator replaces it"):
            changed.b.weight = weight
    changed.b.bias = nn.Parameter(torch.ones(4))
    with pytest.raises(SpecError, match="expected one input for b, which an operator replaces, found 2"):
        changed.b(torch.zeros(1, 4), torch.zeros(1, 4))


# -- torch's own transformers ------------------------------------------------------------------------------------------

CAUSAL = nn.Transformer.generate_square_subsequent_mask(6)
PADDED = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
MASKS = (
    {},
    {"src_key_padding_mask": PADDED},
    {"mask": CAUSAL},
    {"mask": CAUSAL, "is_causal": True},
    {"mask": CAUSAL.bool(), "src_key_padding_mask": PADDED},
)


def counted(net: nn.Module) -> list[int]:
    """How often the one operator of a network is called: a list that grows. No hook, which would hide the fault."""
    ((_, slot),) = slots(net)
    calls: list[int] = []
    forward = slot.placeholder.forward
    slot.placeholder.forward = lambda x: (calls.append(1), forward(x))[1]
    return calls


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_an_encoder_of_torch_calls_its_operator(batch_first, norm_first):
    x = torch.randn(2, 6, 8) if batch_first else torch.randn(6, 2, 8)
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=batch_first, norm_first=norm_first)
    sites = {site.name: site for site in survey(nn.TransformerEncoder(layer, 3), x).sites}
    for index, name in itertools.product(range(3), ["linear1", "linear2"]):
        nested = (index, name) != (1, "linear1")
        net = nn.TransformerEncoder(layer, 3, enable_nested_tensor=nested)
        was = net.use_nested_tensor
        changed = with_slots(net, [sites[f"layers.{index}.{name}"]])
        slot = slots(changed)[0][1]
        slot.placeholder.fill(nn.Linear(slot.in_features, slot.out_features))
        calls = counted(changed)
        for masks in MASKS:
            trained = changed.train()(x, **masks).detach()
            for mode in (torch.no_grad, torch.inference_mode):
                calls.clear()
                with mode():
                    evaluated = changed.eval()(x, **masks)
                assert len(calls) == 1
                torch.testing.assert_close(evaluated, trained, atol=1e-5, rtol=1e-5)
        assert take_out(changed).use_nested_tensor == was
        assert net.use_nested_tensor == was


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", ["linear1", "linear2"])
def test_nested_inputs_of_the_users(name):
    net = nn.Sequential(*(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(2))).eval()
    rows = [torch.randn(6, 8), torch.randn(4, 8)]
    sites = survey(net, rows[0][None]).select(Selection(kinds=("linear",), names=(f"1.{name}",)))
    changed, _ = put_in(net, sites, operators.grouped_linear())
    calls = counted(changed)
    with torch.no_grad():
        found = changed(torch.nested.nested_tensor(rows)).unbind()
        assert len(calls) == 1
        for part, row in zip(found, rows, strict=True):
            torch.testing.assert_close(part, changed(row[None])[0], atol=1e-5, rtol=1e-5)
    slot = slots(changed)[0][1]
    rows = [torch.randn(length, slot.in_features) for length in (3, 5)]
    jagged = slot(torch.nested.nested_tensor(rows, layout=torch.jagged))
    for part, row in zip((jagged + jagged).unbind(), rows, strict=True):
        torch.testing.assert_close(part, 2 * slot(row))
    image = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1))
    convolution = with_slots(image, survey(image, (4, 8, 8)).sites)
    with pytest.raises(SpecError, match="expected a plain tensor for 0, found a nested one: pad it"):
        convolution(torch.nested.nested_tensor([torch.zeros(4, 8, 8)]))


class Translator(nn.Module):
    """Torch's encoder and decoder, and attention by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Transformer(8, 2, 1, 2, 16, dropout=0.0, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.both(x, x[:, 1:])
        return self.attention(y, y, y, need_weights=False)[0]


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_decoders_and_attention_of_torch():
    net = Translator()
    x = torch.randn(2, 6, 8)
    seen = survey(net, x)
    stay = [site for site in seen.sites if "out_proj" in site.name]
    assert len(stay) == 6
    assert {site.obstacle for site in stay} == {"a function takes its weight, and the network does not call it"}
    sites = seen.select(Selection(kinds=("linear",)))
    assert len(sites) == 6
    changed, _ = put_in(net, sites, operators.grouped_linear(), example=x)
    with torch.no_grad():
        torch.testing.assert_close(changed.eval()(x), changed.train()(x), atol=1e-5, rtol=1e-5)
