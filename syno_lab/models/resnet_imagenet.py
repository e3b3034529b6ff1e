"""ResNet-18 and ResNet-34 as He et al. built them for ImageNet.

Source: K. He, X. Zhang, S. Ren, J. Sun, Deep Residual Learning for Image Recognition, CVPR 2016, table 1; shortcuts are
projections where the shape changes (option B of section 3.3). Reference implementation: torchvision's ``resnet18`` and
``resnet34``, whose parameters (11,689,512 and 21,797,672 at 1000 classes), multiply-adds (1.81e9 and 3.66e9 on 224 x
224) and names of layers these have.
Shapes: B images, C channels, H rows, W columns.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from syno_lab.models.checks import check_counts

WIDTHS = (64, 128, 256, 512)


class ProjectionBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut: [B, C_in, H, W] to [B, C_out, ⌈H/stride⌉, ⌈W/stride⌉].

    The shortcut is a 1x1 convolution with normalisation where the shape changes, else nothing.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.downsample = (
            nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False), nn.BatchNorm2d(out_channels)
            )
            if stride > 1 or in_channels != out_channels
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block to [B, C_in, H, W]."""
        y = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class ImageNetResNet(nn.Module):
    """A 7x7 convolution and a pooling of stride 2 each, four stages of ``blocks``, mean over pixels, a linear layer.

    The input is [B, ``in_channels``, H, W] with any H and W from 1 up (224 in the paper), the output the logits
    [B, ``num_classes``]. Raises SpecError for numbers below 1.
    """

    def __init__(self, blocks: tuple[int, int, int, int], num_classes: int = 1000, in_channels: int = 3) -> None:
        super().__init__()
        check_counts("a residual network", num_classes=num_classes, in_channels=in_channels)
        self.conv1 = nn.Conv2d(in_channels, WIDTHS[0], 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        before = WIDTHS[0]
        stages: list[nn.Module] = []
        for number, (width, count) in enumerate(zip(WIDTHS, blocks, strict=True), start=1):
            first = ProjectionBlock(before, width, stride=1 if number == 1 else 2)
            rest = (ProjectionBlock(width, width) for _ in range(count - 1))
            stages.append(nn.Sequential(first, *rest))
            before = width
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = nn.Linear(before, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, C, H, W] to logits [B, num_classes]."""
        x = self.maxpool(functional.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean(dim=(2, 3)))


def resnet18(num_classes: int = 1000, in_channels: int = 3, blocks: int = 2) -> ImageNetResNet:
    """Return ResNet-18: 11,689,512 parameters at 1000 classes, as torchvision's ``resnet18``.

    ``blocks``: the most blocks of a stage; with 1 it is a ResNet-10.
    """
    return ImageNetResNet(_at_most(blocks, (2, 2, 2, 2)), num_classes, in_channels)


def resnet34(num_classes: int = 1000, in_channels: int = 3, blocks: int = 6) -> ImageNetResNet:
    """Return ResNet-34: 21,797,672 parameters at 1000 classes, as torchvision's ``resnet34``.

    ``blocks``: the most blocks of a stage; with 1 it is a ResNet-10.
    """
    return ImageNetResNet(_at_most(blocks, (3, 4, 6, 3)), num_classes, in_channels)


def _at_most(most: int, blocks: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    check_counts("a residual network", blocks=most)
    one, two, three, four = (min(most, count) for count in blocks)
    return one, two, three, four
