"""The backbones by name against the figures that their references publish."""

import inspect

import pytest
import torch
from torch import nn

from syno_lab.errors import SpecError
from syno_lab.models import BACKBONES, backbone, densenet, efficientnet, gpt, resnet, survey

# Parameters and 1e9 multiply-adds as published: torchvision's table of weights for five, He et al. (0.27M parameters;
# 40.55M multiply-adds by hand) for ResNet-20, kuangliu/pytorch-cifar's model for ResNeXt, openai/gpt-2's for GPT-2.
PUBLISHED = {
    "resnet18": (11_689_512, 1.81),
    "resnet34": (21_797_672, 3.66),
    "densenet121": (7_978_856, 2.83),
    "efficientnet_v2_s": (21_458_488, 8.37),
    "resnext29_2x64d": (9_128_778, None),
    "gpt2": (124_439_808, None),
    "resnet20": (269_722, 0.04),
}


def count(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_multiply_adds_are_the_published_ones(name):
    params, billions = PUBLISHED[name]
    seen = BACKBONES[name].survey()
    assert seen.params == BACKBONES[name].params == params
    assert seen.flops == BACKBONES[name].flops
    if billions is not None:
        assert round(seen.flops / 2e9, 2) == billions


def test_resnext_by_hand():
    """Nine blocks of 1x1, 3x3 in two groups and 1x1, three shortcuts, as kuangliu's ``ResNeXt29_2x64d``."""
    params, macs = 3 * 64 + 2 * 64 + 1024 * 10 + 10, 3 * 64 * 32**2 + 1024 * 10
    channels, side = 64, 32
    for stage, inner in enumerate((128, 256, 512)):
        for place in range(3):
            if stage and not place:
                before, side = side, side // 2
            else:
                before = side
            wide = inner * channels
            grouped, last = inner * inner // 2 * 9, inner * 2 * inner
            shortcut = 0 if place else channels * 2 * inner
            params += wide + grouped + last + 2 * (inner + inner + 2 * inner)
            params += shortcut + (0 if place else 2 * 2 * inner)
            macs += wide * before**2 + (grouped + last + shortcut) * side**2
            channels = 2 * inner
    assert (params, 2 * macs) == (9_128_778, BACKBONES["resnext29_2x64d"].flops)


def test_the_tiny_gpt_by_hand():
    width, layers, tokens = 128, 4, 64
    block = 12 * width**2 + 13 * width
    assert BACKBONES["gpt_tiny"].survey().params == (256 + tokens) * width + layers * block + 2 * width
    # The linear layers of each block, queries with keys, their weights with values, and the last layer.
    macs = layers * (12 * width**2 * tokens + 2 * tokens**2 * width) + tokens * width * 256
    assert BACKBONES["gpt_tiny"].survey().flops == 2 * macs == BACKBONES["gpt_tiny"].flops


@pytest.mark.parametrize("known", BACKBONES.values(), ids=BACKBONES)
def test_each_gives_logits_for_other_data_too(known):
    if known.domain == "text":
        net = known.build(outputs=65, size=16, device="meta")
        assert net(torch.zeros(2, 16, dtype=torch.int64, device="meta")).shape == (2, 16, 65)
    else:
        net = known.build(outputs=100, in_channels=1, device="meta")
        assert net(torch.zeros(2, 1, 64, 64, device="meta")).shape == (2, 100)
        assert known.survey(outputs=7, in_channels=1, size=48).sites[-1].out_channels == 7


@pytest.mark.parametrize("name", ["resnet18", "densenet121", "resnext29_2x64d", "efficientnet_v2_s"])
def test_each_trains(name):
    net = backbone(name).build(outputs=5)
    net(torch.randn(2, 3, 32, 32)).square().sum().backward()
    gradients = [parameter.grad for parameter in net.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


def test_a_dropped_block_passes_its_input_on():
    block = efficientnet.InvertedResidual(4, 4, 2, 1, fused=True, drop=1 - 1e-7)
    x = torch.randn(3, 4, 5, 5)
    assert torch.equal(block(x), x)
    assert not torch.equal(block.eval()(x), x)


def test_dense_layers_keep_what_they_read():
    layer = densenet.DenseLayer(6).eval()
    x = torch.randn(2, 6, 4, 4)
    y = layer(x)
    assert y.shape == (2, 38, 4, 4)
    assert torch.equal(y[:, :6], x)


@pytest.mark.parametrize("name", ["ResNet-18", "RESNET18", "ResNeXt-29-2x64D", "EfficientNet-V2-S", "GPT-2"])
def test_names_may_be_written_as_in_the_paper(name):
    assert backbone(name).name in BACKBONES


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(SpecError, match=r"found 'resnet81'; did you mean resnet18"):
        backbone("resnet81")
    with pytest.raises(SpecError, match=r"found 'x'; there are resnet18, .*, gpt_tiny"):
        backbone("x")


def test_what_is_replaced_and_the_sources():
    """The paper replaces dense convolutions: 16 of ResNet-18's are 3x3, 32 of ResNet-34's, 58 of DenseNet-121's."""
    found = {name: known.survey(size=None if known.domain == "text" else 64) for name, known in BACKBONES.items()}
    number = {name: len(seen.select(BACKBONES[name].selection)) for name, seen in found.items()}
    assert (number["resnet18"], number["resnet34"], number["densenet121"], number["gpt2"]) == (16, 32, 58, 12)
    for name, known in BACKBONES.items():
        sites = found[name].select(known.selection)
        assert all(site.obstacle is None for site in sites)
        transformer = known.domain == "text" or name == "vit_tiny"
        assert {site.kind for site in sites} == ({"linear"} if transformer else {"conv2d"})
        module = inspect.getmodule(known.builder)
        assert "Source: " in module.__doc__
    for module in (densenet, efficientnet, gpt, resnet):
        assert "eference" in module.__doc__


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outputs": 0}, "a residual network needs num_classes as a whole number from 1 up, found 0"),
        ({"in_channels": 0}, "needs in_channels as a whole number from 1 up, found 0"),
    ],
)
def test_numbers_below_one_are_refused(options, message):
    with pytest.raises(SpecError, match=message):
        backbone("resnet18").build(**options)
    with pytest.raises(SpecError, match="an example needs size as a whole number from 1 up, found 0"):
        backbone("resnet18").example(size=0)


@pytest.mark.parametrize("name", ["densenet121", "resnext29_2x64d", "efficientnet_v2_s"])
def test_others_refuse_them_too(name):
    with pytest.raises(SpecError, match="needs num_classes as a whole number from 1 up, found 0"):
        backbone(name).build(outputs=0, device="meta")


def test_a_network_with_weights_counts_as_on_the_meta_device():
    known = backbone("gpt_tiny")
    seen = survey(known.build(), known.example())
    assert (seen.flops, seen.params) == (known.flops, known.params)
