"""The file of a network with an operator: its modules answer as slots do, and need torch alone."""

import copy
import importlib

import pytest
import torch
from torch import nn

from syno_lab import operators
from syno_lab.experiments.own_file import network_file
from syno_lab.models import Selection, put_in, survey


class Encoder(nn.Module):
    """Torch's encoder behind a convolution, asked for the type of its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(4, 8, 3, padding=1, stride=2)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(input=x.to(self.patches.weight.dtype)).flatten(2).transpose(1, 2)
        padded = torch.arange(tokens.shape[1]) > torch.tensor([[20], [11]])
        return self.encoder(tokens, src_key_padding_mask=padded)


def test_a_patched_network_answers_as_one_with_slots(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    net, x = Encoder(), torch.randn(2, 4, 8, 8)
    handle = net.encoder.layers[1].linear2.register_forward_hook(lambda module, given, y: y * 3)
    for selection, operator in (
        (Selection(names=("patches",)), operators.conv2d()),
        (Selection(kinds=("linear",), names=("encoder.layers.1.*",)), operators.grouped_linear()),
    ):
        sites = survey(net, x).select(selection)
        changed, places = put_in(net, sites, operator)
        text = network_file(operator, list(zip(sites, places, strict=True)), 3, "pool")
        assert "syno_lab" not in text
        name = f"operator_for_{selection.kinds[0]}"
        (tmp_path / f"{name}.py").write_text(text)
        file = importlib.import_module(name)
        patched = file.patch(copy.deepcopy(net))
        patched.load_state_dict(changed.state_dict())
        assert torch.equal(patched(x), changed(x))
        compiled = torch.compile(patched.train(), backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), patched(x))
    handle.remove()
    changed, patched = put_in(net, sites, operator)[0], file.patch(copy.deepcopy(net))
    patched.load_state_dict(changed.state_dict())
    with torch.no_grad():  # without a hook, torch's fused way would be open
        torch.testing.assert_close(patched.eval()(x), patched.train()(x), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(patched.eval()(x), changed.eval()(x))
    with pytest.raises(
        RuntimeError, match=r"calls its layer encoder.layers.1.linear1, found norm of encoder.layers.1."
    ):
        torch.norm(patched.encoder.layers[1].linear1.weight)


def test_lazy_layers_are_patched_once_they_have_shapes():
    def make() -> nn.Module:
        return nn.Sequential(nn.LazyConv2d(8, 3, padding=1), nn.ReLU(), nn.LazyConv2d(8, 3, padding=1))

    net, x = make(), torch.randn(2, 4, 8, 8)
    net(x)
    sites = survey(net, x).select()
    changed, places = put_in(net, sites, operators.separable())
    file: dict[str, object] = {}
    exec(network_file(operators.separable(), list(zip(sites, places, strict=True)), 3, "pool"), file)
    fresh = make()
    with pytest.raises(RuntimeError, match="found the lazy 0: run one example through it first"):
        file["patch"](fresh)
    fresh(x)
    patched = file["patch"](fresh)
    patched.load_state_dict(changed.state_dict())
    assert torch.equal(patched(x), changed(x))
