"""Modules that several backbones share, and a network that scales its input images to another resolution.

Shapes: B images, C channels, H rows, W columns.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional

from syno_lab.errors import SpecError
from syno_lab.inputs import positive, quoted

#: The largest number of layers, channels or tokens of a vocabulary; no machine can hold a larger network.
MOST = 1 << 20


def check_counts(whose: str, **counts: int) -> None:
    """Raise SpecError, with the network's name ``whose``, for a value that is no whole number from 1 to `MOST`."""
    for name, value in counts.items():
        number = positive(value)
        if number is None:
            raise SpecError(f"{whose} needs {name} as a whole number from 1 up, found {quoted(value)}")
        if number > MOST:
            raise SpecError(f"{whose} needs {name} of at most {MOST}, found {number}")


def draw_weights(net: nn.Module, *kinds: type[nn.Conv2d | nn.Linear], mode: Literal["fan_in", "fan_out"]) -> None:
    """Initialise the weights of all layers of the kinds as He et al. 2015 do, from torch's global generator."""
    for module in net.modules():
        if isinstance(module, kinds):
            nn.init.kaiming_normal_(module.weight, mode=mode)


def projection(in_channels: int, out_channels: int, stride: int) -> nn.Module:
    """A shortcut [B, C_in, H, W] to [B, C_out, ⌈H/stride⌉, ⌈W/stride⌉] (option B of He et al. 2016, section 3.3).

    The shortcut is a 1x1 convolution with normalisation if the shape changes, else the identity.
    """
    if stride == 1 and in_channels == out_channels:
        return nn.Identity()
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False), nn.BatchNorm2d(out_channels)
    )


def scale_images(images: Tensor, resolution: int) -> Tensor:
    """Scale floating-point images [B, C, H, W] bilinearly to ``resolution`` x ``resolution`` if they have another size.

    Pixels are squares (corners are not aligned). To shrink images, neighbouring pixels are averaged first. Raises
    SpecError for a resolution below 1.
    """
    check_counts("an image", resolution=resolution)
    if tuple(images.shape[-2:]) == (resolution, resolution):
        return images
    shrinks = min(images.shape[-2:]) > resolution
    return functional.interpolate(
        images, (resolution, resolution), mode="bilinear", align_corners=False, antialias=shrinks
    )


class AtResolution(nn.Module):
    """Run ``network`` on images scaled to ``resolution``, so that stored, moved and augmented images stay small.

    Syno's section 9.1 trains on CIFAR-100 at the size of ImageNet's images.
    """

    def __init__(self, network: nn.Module, resolution: int) -> None:
        super().__init__()
        check_counts("an image", resolution=resolution)
        self.network = network
        self.resolution = resolution

    def forward(self, x: Tensor) -> Tensor:
        """Scale images [B, C, H, W], then apply the network."""
        return self.network(scale_images(x, self.resolution))
