"""Residual networks: He et al.'s networks for CIFAR and ImageNet, and ResNeXt-29 with 2 groups of 64 channels.

Source: He, Zhang, Ren, Sun, Deep Residual Learning for Image Recognition, CVPR 2016, section 4.2 (CIFAR) and table 1
(ImageNet, with projections where the shape changes). Reference implementation of the ImageNet networks: torchvision's
``resnet18`` and ``resnet34``. Parameters (11,689,512 and 21,797,672 at 1000 classes), multiply-adds (1.81e9 and 3.66e9
on 224 x 224) and names of layers are torchvision's.

Source of ResNeXt: Xie, Girshick, Dollár, Tu, He, Aggregated Residual Transformations for Deep Neural Networks, CVPR
2017, section 5.3 (networks of 29 layers). The paper's own 29-layer networks have 8 or 16 groups of 64 channels (34.4
and 68.1 million parameters). The paper's blocks have four times as many output channels as channels in their groups.
Syno's ResNeXt-29-2x64D is a smaller variant in kuangliu/pytorch-cifar (``ResNeXt29_2x64d``), which is the reference
here. The variant has a 1x1 convolution as the first layer and three stages of three blocks. A block of the variant has
twice as many output channels as channels in its groups. The variant has 9,128,778 parameters at 10 classes.

Shapes: B images, C channels, H rows, W columns.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from syno_lab.models.parts import check_counts, draw_weights, projection

WIDTHS = (64, 128, 256, 512)
STEM = 64
EXPANSION = 2


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut: [B, C_in, H, W] to [B, C_out, ⌈H/stride⌉, ⌈W/stride⌉].

    The shortcut has no parameters (option A of section 3.3): it reads every ``stride``-th pixel and adds channels of
    zeros.
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

    The stages have ``width``, 2 ``width`` and 4 ``width`` channels; the second and the third begin with stride 2. The
    network has 6 ``blocks`` + 2 layers. The input is [B, ``in_channels``, H, W] with H and W of at least 4 (32 x 32 in
    the paper, 8 x 8 for digits). The output is the logits [B, ``num_classes``]. Weights are drawn as in He et al.
    2015, from torch's global generator. Raises SpecError for numbers below 1.
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
        draw_weights(self, nn.Conv2d, nn.Linear, mode="fan_in")

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


class ProjectionBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut: [B, C_in, H, W] to [B, C_out, ⌈H/stride⌉, ⌈W/stride⌉].

    The shortcut is a :func:`.projection`.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.downsample = projection(in_channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block to [B, C_in, H, W]."""
        y = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class ImageNetResNet(nn.Module):
    """A 7x7 convolution and a pooling of stride 2 each, four stages of ``blocks``, mean over pixels, a linear layer.

    The input is [B, ``in_channels``, H, W] with H and W of at least 1 (224 in the paper). The output is the logits [B,
    ``num_classes``]. Raises SpecError for numbers below 1.
    """

    def __init__(self, blocks: tuple[int, ...], num_classes: int = 1000, in_channels: int = 3) -> None:
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
        draw_weights(self, nn.Conv2d, mode="fan_out")

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, C, H, W] to logits [B, num_classes]."""
        x = self.maxpool(functional.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean(dim=(2, 3)))


def resnet18(num_classes: int = 1000, in_channels: int = 3, blocks: int = 2) -> ImageNetResNet:
    """Return ResNet-18: 11,689,512 parameters at 1000 classes, as torchvision's ``resnet18``.

    ``blocks``: the most blocks in a stage; 1 makes a ResNet-10.
    """
    return ImageNetResNet(_at_most(blocks, (2, 2, 2, 2)), num_classes, in_channels)


def resnet34(num_classes: int = 1000, in_channels: int = 3, blocks: int = 6) -> ImageNetResNet:
    """Return ResNet-34: 21,797,672 parameters at 1000 classes, as torchvision's ``resnet34``.

    ``blocks``: the most blocks in a stage; 1 makes a ResNet-10.
    """
    return ImageNetResNet(_at_most(blocks, (3, 4, 6, 3)), num_classes, in_channels)


def _at_most(most: int, blocks: tuple[int, ...]) -> tuple[int, ...]:
    check_counts("a residual network", blocks=most)
    return tuple(min(most, count) for count in blocks)


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
        self.shortcut = projection(in_channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block to [B, C_in, H, W]."""
        y = functional.relu(self.bn1(self.conv1(x)))
        y = functional.relu(self.bn2(self.conv2(y)))
        return functional.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


class CifarResNeXt(nn.Module):
    """A 1x1 convolution, three stages of ``blocks`` blocks of ``groups`` groups, mean over the pixels, a linear layer.

    The groups have ``width`` channels in the first stage. Each later stage begins with stride 2, with twice as many
    channels. The input is [B, ``in_channels``, H, W] with H and W of at least 1 (32 in the paper). The output is the
    logits [B, ``num_classes``]. Raises SpecError for numbers below 1.
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
        draw_weights(self, nn.Conv2d, mode="fan_out")

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, C, H, W] to logits [B, num_classes]."""
        x = self.blocks(functional.relu(self.bn1(self.conv1(x))))
        return self.linear(x.mean(dim=(2, 3)))


def resnext29_2x64d(num_classes: int = 10, in_channels: int = 3, blocks: int = 3) -> CifarResNeXt:
    """Return ResNeXt-29-2x64D: 9,128,778 parameters at 10 classes, as kuangliu's ``ResNeXt29_2x64d``."""
    return CifarResNeXt(2, 64, num_classes, in_channels, blocks)
