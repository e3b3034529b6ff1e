"""DenseNet-121: every layer of a block reads the outputs of all earlier layers of the block.

Source: Huang, Liu, van der Maaten, Weinberger, Densely Connected Convolutional Networks, CVPR 2017, table 1 (growth
rate 32, compression 1/2). Reference implementation: torchvision's ``densenet121``, with the same parameters (7,978,856
at 1000 classes) and multiply-adds (2.83e9 on 224 x 224). Shapes: B images, C channels, H rows, W columns.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from syno_lab.models.parts import check_counts, draw_weights

GROWTH = 32
BOTTLENECK = 4 * GROWTH
STEM = 64


class DenseLayer(nn.Module):
    """[B, C, H, W] to [B, C + 32, H, W]: the input, then the 32 channels of a 1x1 and a 3x3 convolution.

    The 1x1 convolution has 128 channels. Normalisation and ReLU come before each convolution.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, BOTTLENECK, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(BOTTLENECK)
        self.conv2 = nn.Conv2d(BOTTLENECK, GROWTH, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to [B, C, H, W]."""
        y = self.conv1(functional.relu(self.norm1(x)))
        return torch.cat((x, self.conv2(functional.relu(self.norm2(y)))), dim=1)


class Transition(nn.Module):
    """[B, C, H, W] to [B, C/2, H/2, W/2]: normalisation, ReLU, 1x1 convolution, mean over 2 x 2 pixels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, channels // 2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the transition to [B, C, H, W]."""
        return functional.avg_pool2d(self.conv(functional.relu(self.norm(x))), 2)


class DenseNet(nn.Module):
    """A 7x7 convolution, a pooling, four blocks of ``layers`` dense layers with transitions between, a linear layer.

    The input is [B, ``in_channels``, H, W] with H and W of at least 29 (224 in the paper). The output is the logits [B,
    ``num_classes``]. Raises SpecError for numbers below 1.
    """

    def __init__(self, layers: tuple[int, ...], num_classes: int = 1000, in_channels: int = 3) -> None:
        super().__init__()
        check_counts("a dense network", num_classes=num_classes, in_channels=in_channels)
        self.conv0 = nn.Conv2d(in_channels, STEM, 7, stride=2, padding=3, bias=False)
        self.norm0 = nn.BatchNorm2d(STEM)
        self.pool0 = nn.MaxPool2d(3, stride=2, padding=1)
        self.blocks = nn.ModuleList()
        channels = STEM
        for number, count in enumerate(layers):
            block: list[nn.Module] = [DenseLayer(channels + GROWTH * place) for place in range(count)]
            channels += GROWTH * count
            if number < len(layers) - 1:
                block.append(Transition(channels))
                channels //= 2
            self.blocks.append(nn.Sequential(*block))
        self.norm = nn.BatchNorm2d(channels)
        self.classifier = nn.Linear(channels, num_classes)
        draw_weights(self, nn.Conv2d, mode="fan_in")
        nn.init.zeros_(self.classifier.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, C, H, W] to logits [B, num_classes]."""
        x = self.pool0(functional.relu(self.norm0(self.conv0(x))))
        for block in self.blocks:
            x = block(x)
        return self.classifier(functional.relu(self.norm(x)).mean(dim=(2, 3)))


def densenet121(num_classes: int = 1000, in_channels: int = 3, layers: int = 24) -> DenseNet:
    """Return DenseNet-121: 7,978,856 parameters at 1000 classes, as torchvision's ``densenet121``.

    ``layers``: an upper bound on the dense layers of a block.
    """
    check_counts("a dense network", layers=layers)
    return DenseNet(tuple(min(layers, count) for count in (6, 12, 24, 16)), num_classes, in_channels)
