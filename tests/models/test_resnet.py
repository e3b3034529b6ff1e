"""The residual networks against the paper's numbers."""

import pytest
import torch
from torch import nn

from syno_lab.errors import SpecError
from syno_lab.models import BasicBlock, resnet20, resnet_tiny


def count(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def test_resnet20_is_the_one_of_the_paper():
    """Table 6 of He et al. gives 0.27 million parameters; counted by hand: 269,722 with parameter-free shortcuts.

    With projections (1x1 convolution and normalisation) at the two transitions, option B, it would be 272,474.
    """
    net = resnet20()
    by_hand = 3 * 16 * 9 + 6 * 16 * 16 * 9 + 16 * 32 * 9 + 5 * 32 * 32 * 9 + 32 * 64 * 9 + 5 * 64 * 64 * 9
    by_hand += 2 * (7 * 16 + 6 * 32 + 6 * 64) + 64 * 10 + 10
    assert count(net) == by_hand == 269_722
    assert by_hand + (16 * 32 + 2 * 32) + (32 * 64 + 2 * 64) == 272_474
    layers = [module for module in net.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    assert len(layers) == 20


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8), (2, 7, 9), (3, 4, 4)])
def test_it_takes_images_of_any_size(blocks, shape):
    net = resnet_tiny(7, shape[0], width=4, blocks=blocks)
    assert net(torch.randn(2, *shape)).shape == (2, 7)
    assert sum(isinstance(module, nn.Conv2d | nn.Linear) for module in net.modules()) == 6 * blocks + 2


def test_the_stages_halve_and_double():
    net = resnet_tiny(10)
    sizes = []
    for stage in (net.stage1, net.stage2, net.stage3):
        stage.register_forward_hook(lambda _module, _inputs, output: sizes.append(tuple(output.shape[1:])))
    net(torch.zeros(2, 3, 32, 32))
    assert sizes == [(16, 32, 32), (32, 16, 16), (64, 8, 8)]


def test_the_shortcut_is_option_a():
    """With the convolutions' path at zero, a block gives every second pixel and zeros in the new channels."""
    block = BasicBlock(4, 8, stride=2)
    nn.init.zeros_(block.bn2.weight)
    x = torch.rand(2, 4, 6, 6)
    y = block(x)
    assert torch.equal(y[:, 2:6], x[:, :, ::2, ::2])
    assert not y[:, :2].any()
    assert not y[:, 6:].any()


def test_every_parameter_gets_a_gradient():
    net = resnet_tiny(10, 1, width=4)
    net(torch.randn(4, 1, 8, 8)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in net.parameters())


@pytest.mark.parametrize("name", ["num_classes", "in_channels", "width", "blocks"])
def test_numbers_below_one_are_refused(name):
    with pytest.raises(SpecError, match=f"a residual network needs {name} as a whole number from 1 up, found 0"):
        resnet_tiny(**{"num_classes": 10, name: 0})
