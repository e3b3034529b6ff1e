"""Images at another resolution than the data's (Syno, section 9.1: CIFAR-100 at the size of ImageNet's images)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from syno_lab.models.checks import check_counts


def scale_images(images: Tensor, resolution: int) -> Tensor:
    """Images [B, C, H, W] of floating point at ``resolution`` x ``resolution``, bilinear; as they are where they fit.

    Pixels are squares (corners are not aligned), and where images shrink, neighbours are averaged first. Raises
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
    """``network`` on images scaled to ``resolution``: what is stored, moved and augmented stays small."""

    def __init__(self, network: nn.Module, resolution: int) -> None:
        super().__init__()
        check_counts("an image", resolution=resolution)
        self.network = network
        self.resolution = resolution

    def forward(self, x: Tensor) -> Tensor:
        """Scale images [B, C, H, W], then apply the network."""
        return self.network(scale_images(x, self.resolution))
