"""EfficientNet-V2-S: inverted residual blocks; the early blocks have a dense 3x3 convolution.

Source: Tan, Le, EfficientNetV2: Smaller Models and Faster Training, ICML 2021, table 4. Reference implementation:
torchvision's ``efficientnet_v2_s``, with the same parameters (21,458,488 at 1000 classes) and multiply-adds (8.37e9 on
384 x 384). Dropout (0.2), stochastic depth (up to 0.2) and the normalisations' epsilon (1e-3) are torchvision's.
Shapes: B images, C channels, H rows, W columns.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from syno_lab.models.parts import check_counts, draw_weights

#: Table 4: (dense 3x3 convolution, expansion, stride, output channels, blocks) of each stage.
STAGES = (
    (True, 1, 1, 24, 2),
    (True, 4, 2, 48, 4),
    (True, 4, 2, 64, 4),
    (False, 4, 2, 128, 6),
    (False, 6, 1, 160, 9),
    (False, 6, 2, 256, 15),
)
STEM = 24
HEAD = 1280
DROPOUT = 0.2
STOCHASTIC_DEPTH = 0.2


def _convolution(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, *, activation: bool = True
) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3),
    ]
    return nn.Sequential(*layers, nn.SiLU()) if activation else nn.Sequential(*layers)


class SqueezeExcitation(nn.Module):
    """[B, C, H, W] times a factor for each channel, computed from the channels' means by two 1x1 convolutions."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Scale the channels of [B, C, H, W]."""
        factors = self.fc2(functional.silu(self.fc1(x.mean(dim=(2, 3), keepdim=True))))
        return x * factors.sigmoid()


class StochasticDepth(nn.Module):
    """In training, set each example of [B, ...] to 0 with probability ``rate``, and scale up the remaining examples.

    Source: G. Huang, Y. Sun, Z. Liu, D. Sedra, K. Weinberger, Deep Networks with Stochastic Depth, ECCV 2016.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Apply stochastic depth to the branch ``x`` beside a shortcut."""
        if not (self.training and self.rate):
            return x
        mask = torch.empty(len(x), *[1] * (x.ndim - 1), dtype=x.dtype, device=x.device).bernoulli_(1 - self.rate)
        return x * mask / (1 - self.rate)


class InvertedResidual(nn.Module):
    """[B, C_in, H, W] to [B, C_out, ⌈H/stride⌉, ⌈W/stride⌉] by way of ``expansion`` C_in channels.

    ``fused``: a dense 3x3 convolution expands the channels (Fused-MBConv). Without ``fused``, a 1x1 convolution expands
    the channels, and a depthwise 3x3 convolution and a scaling of channels follow (MBConv). In training a block with a
    shortcut is skipped for an image with probability ``drop``.
    """

    def __init__(
        self, in_channels: int, out_channels: int, expansion: int, stride: int, *, fused: bool, drop: float
    ) -> None:
        super().__init__()
        inner = expansion * in_channels
        if fused and expansion == 1:
            layers: list[nn.Module] = [_convolution(in_channels, out_channels, 3, stride)]
        elif fused:
            layers = [
                _convolution(in_channels, inner, 3, stride),
                _convolution(inner, out_channels, 1, activation=False),
            ]
        else:
            layers = [
                _convolution(in_channels, inner, 1),
                _convolution(inner, inner, 3, stride, groups=inner),
                SqueezeExcitation(inner, max(1, in_channels // 4)),
                _convolution(inner, out_channels, 1, activation=False),
            ]
        self.block = nn.Sequential(*layers)
        self.has_shortcut = stride == 1 and in_channels == out_channels
        self.drop = StochasticDepth(drop)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block to [B, C_in, H, W]."""
        y = self.block(x)
        return x + self.drop(y) if self.has_shortcut else y


class EfficientNetV2(nn.Module):
    """A 3x3 convolution of stride 2, six stages of inverted residual blocks, a 1x1 convolution, a linear layer.

    The input is [B, ``in_channels``, H, W] with H and W of at least 1 (384 in the reference). The output is the logits
    [B, ``num_classes``]. ``blocks``: an upper bound on the blocks of a stage. Raises SpecError for numbers below 1.
    """

    def __init__(self, num_classes: int = 1000, in_channels: int = 3, blocks: int = 15) -> None:
        super().__init__()
        check_counts("an EfficientNet", num_classes=num_classes, in_channels=in_channels, blocks=blocks)
        self.stem = _convolution(in_channels, STEM, 3, stride=2)
        self.stages = nn.ModuleList()
        total = sum(min(blocks, count) for *_, count in STAGES)
        channels, number = STEM, 0
        for fused, expansion, stride, width, count in STAGES:
            stage = []
            for place in range(min(blocks, count)):
                drop = STOCHASTIC_DEPTH * number / total
                stage.append(
                    InvertedResidual(channels, width, expansion, 1 if place else stride, fused=fused, drop=drop)
                )
                channels, number = width, number + 1
            self.stages.append(nn.Sequential(*stage))
        self.head = _convolution(channels, HEAD, 1)
        self.dropout = nn.Dropout(DROPOUT)
        self.classifier = nn.Linear(HEAD, num_classes)
        draw_weights(self, nn.Conv2d, mode="fan_out")
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
        nn.init.uniform_(self.classifier.weight, -(num_classes**-0.5), num_classes**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, C, H, W] to logits [B, num_classes]."""
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.classifier(self.dropout(self.head(x).mean(dim=(2, 3))))


def efficientnet_v2_s(num_classes: int = 1000, in_channels: int = 3, blocks: int = 15) -> EfficientNetV2:
    """Return EfficientNet-V2-S: 21,458,488 parameters at 1000 classes, as torchvision's ``efficientnet_v2_s``."""
    return EfficientNetV2(num_classes, in_channels, blocks)
