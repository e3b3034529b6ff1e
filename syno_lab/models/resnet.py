"""The residual networks that He et al. built for CIFAR.

Source: K. He, X. Zhang, S. Ren, J. Sun, Deep Residual Learning for Image Recognition, CVPR 2016, section 4.2.
Shapes: B images, C channels, H rows, W columns.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from syno_lab.models.checks import check_counts


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut: [B, C_in, H, W] to [B, C_out, ⌈H/stride⌉, ⌈W/stride⌉].

    The shortcut has no parameters (option A of section 3.3): it takes every ``stride``-th pixel and fills the channels
    up with zeros.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.stride = stride
        self.new_channels = out_channels - in_channels

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block to [B, C_in, H, W]."""
        shortcut = x
        if self.stride > 1:
            shortcut = shortcut[:, :, :: self.stride, :: self.stride]
        if self.new_channels:
            before = self.new_channels // 2
            shortcut = functional.pad(shortcut, (0, 0, 0, 0, before, self.new_channels - before))
        y = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(y)) + shortcut)


class CifarResNet(nn.Module):
    """A first 3x3 convolution, three stages of ``blocks`` basic blocks, mean over the pixels, one linear layer.

    The stages have ``width``, 2 ``width`` and 4 ``width`` channels; the second and the third begin with stride 2. That
    is 6 ``blocks`` + 2 layers. The input is [B, ``in_channels``, H, W] with any H and W from 4 up (32 x 32 in the
    paper, 8 x 8 for digits), the output the logits [B, ``num_classes``]. Weights are drawn as in He et al. 2015, from
    torch's global generator. Raises SpecError for numbers below 1.
    """

    def __init__(self, num_classes: int, in_channels: int = 3, width: int = 16, blocks: int = 1) -> None:
        super().__init__()
        check_counts("a residual network", num_classes=num_classes, in_channels=in_channels, width=width, blocks=blocks)
        self.conv = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.stage1 = _stage(width, width, blocks, stride=1)
        self.stage2 = _stage(width, 2 * width, blocks, stride=2)
        self.stage3 = _stage(2 * width, 4 * width, blocks, stride=2)
        self.linear = nn.Linear(4 * width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, C, H, W] to logits [B, num_classes]."""
        x = functional.relu(self.bn(self.conv(x)))
        x = self.stage3(self.stage2(self.stage1(x)))
        return self.linear(x.mean(dim=(2, 3)))


def _stage(in_channels: int, out_channels: int, blocks: int, stride: int) -> nn.Sequential:
    first = BasicBlock(in_channels, out_channels, stride)
    return nn.Sequential(first, *(BasicBlock(out_channels, out_channels) for _ in range(blocks - 1)))


def resnet_tiny(num_classes: int, in_channels: int = 3, width: int = 16, blocks: int = 1) -> CifarResNet:
    """Return a residual network small enough for two cores: 8 layers, or 6 ``blocks`` + 2."""
    return CifarResNet(num_classes, in_channels, width, blocks)


def resnet20(num_classes: int = 10, in_channels: int = 3, width: int = 16, blocks: int = 3) -> CifarResNet:
    """Return ResNet-20 of section 4.2, table 6: 269,722 parameters (0.27 million) with shortcuts of option A."""
    return CifarResNet(num_classes, in_channels, width, blocks)
