"""A small network of two convolutional blocks, without shortcuts.

Source: C. Jin, P. M. Phothilimthana, S. Roy, Neural Architecture Search using Property Guided Synthesis, OOPSLA 2022,
section 5. Each block is convolution, ReLU and pooling; the convolution doubles the channels, the pooling halves height
and width. The paper does not describe the layers before and after the blocks. The lab's layers are a 3x3 convolution to
``width`` channels, the mean over the pixels, and a linear layer. Because of the first convolution, input and output
shapes have the same ratios in both blocks. Shapes: B images, C channels, H rows, W columns.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from syno_lab.models.parts import check_counts, draw_weights


class ConvBlock(nn.Module):
    """[B, C, H, W] to [B, 2 C, ⌊H/2⌋, ⌊W/2⌋]: a 3x3 convolution, ReLU, the mean over 2 x 2 pixels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 2 * channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block to [B, C, H, W]."""
        return functional.avg_pool2d(functional.relu(self.conv(x)), 2)


class ConvNet(nn.Module):
    """A 3x3 convolution to ``width`` channels, ``blocks`` blocks, the mean over the pixels, a linear layer.

    The input is [B, ``in_channels``, H, W] with H and W of at least 2 to the power of ``blocks`` (32 x 32 in the
    paper). The output is the logits [B, ``num_classes``]. Raises SpecError for numbers below 1.
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 3, width: int = 32, blocks: int = 2) -> None:
        super().__init__()
        check_counts("a CNN", num_classes=num_classes, in_channels=in_channels, width=width, blocks=blocks)
        self.conv = nn.Conv2d(in_channels, width, 3, padding=1)
        self.blocks = nn.Sequential(*(ConvBlock(width * 2**number) for number in range(blocks)))
        self.linear = nn.Linear(width * 2**blocks, num_classes)
        draw_weights(self, nn.Conv2d, mode="fan_in")

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, C, H, W] to logits [B, num_classes]."""
        x = self.blocks(functional.relu(self.conv(x)))
        return self.linear(x.mean(dim=(2, 3)))


def cnn(num_classes: int = 10, in_channels: int = 3, width: int = 32, blocks: int = 2) -> ConvNet:
    """Return the two-block CNN of αNAS: 94,538 parameters at 10 classes."""
    return ConvNet(num_classes, in_channels, width, blocks)
