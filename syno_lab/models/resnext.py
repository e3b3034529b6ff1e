"""ResNeXt-29 with 2 groups of 64 channels, for CIFAR.

Source: S. Xie, R. Girshick, P. Dollár, Z. Tu, K. He, Aggregated Residual Transformations for Deep Neural Networks, CVPR
2017, section 5.3 (networks of 29 layers). Their own 29-layer networks have 8 or 16 groups of 64 channels and four times
the channels at the end of a block (34.4 and 68.1 million parameters). The name ResNeXt-29-2x64D that Syno uses is that
of a smaller variant in kuangliu/pytorch-cifar (``ResNeXt29_2x64d``), which is our reference: a 1x1 convolution as the
first layer, three stages of three blocks, blocks that end in twice the channels of their groups; 9,128,778 parameters
at 10 classes.
Shapes: B images, C channels, H rows, W columns.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from syno_lab.models.checks import check_counts

STEM = 64
EXPANSION = 2


class AggregatedBlock(nn.Module):
    """1x1, 3x3 in ``groups`` groups, 1x1, and a shortcut: [B, C_in, H, W] to [B, 2 ``width``, ⌈H/stride⌉, ⌈W/stride⌉].

    ``width`` is the number of channels of all groups together.
    """

    def __init__(self, in_channels: int, width: int, groups: int, stride: int = 1) -> None:
        super().__init__()
        out_channels = EXPANSION * width
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.shortcut = (
            nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False), nn.BatchNorm2d(out_channels)
            )
            if stride > 1 or in_channels != out_channels
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block to [B, C_in, H, W]."""
        y = functional.relu(self.bn1(self.conv1(x)))
        y = functional.relu(self.bn2(self.conv2(y)))
        return functional.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


class CifarResNeXt(nn.Module):
    """A 1x1 convolution, three stages of ``blocks`` blocks of ``groups`` groups, mean over the pixels, a linear layer.

    The groups have ``width`` channels in the first stage and twice as many in each next one, which begins with stride
    2. The input is [B, ``in_channels``, H, W] with any H and W from 1 up (32 in the paper), the output the logits
    [B, ``num_classes``]. Raises SpecError for numbers below 1.
    """

    def __init__(self, groups: int, width: int, num_classes: int = 10, in_channels: int = 3, blocks: int = 3) -> None:
        super().__init__()
        check_counts(
            "a ResNeXt", groups=groups, width=width, num_classes=num_classes, in_channels=in_channels, blocks=blocks
        )
        self.conv1 = nn.Conv2d(in_channels, STEM, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(STEM)
        layers = []
        channels = STEM
        for stage in range(3):
            inner = groups * width * 2**stage
            for place in range(blocks):
                layers.append(AggregatedBlock(channels, inner, groups, stride=2 if stage and not place else 1))
                channels = EXPANSION * inner
        self.blocks = nn.Sequential(*layers)
        self.linear = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, C, H, W] to logits [B, num_classes]."""
        x = self.blocks(functional.relu(self.bn1(self.conv1(x))))
        return self.linear(x.mean(dim=(2, 3)))


def resnext29_2x64d(num_classes: int = 10, in_channels: int = 3, blocks: int = 3) -> CifarResNeXt:
    """Return ResNeXt-29-2x64D: 9,128,778 parameters at 10 classes, as kuangliu's ``ResNeXt29_2x64d``."""
    return CifarResNeXt(2, 64, num_classes, in_channels, blocks)
