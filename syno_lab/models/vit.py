"""A vision transformer that is small enough for two cores, for images of 32 x 32 pixels.

Source: A. Dosovitskiy et al., An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale, ICLR 2021,
with the changes of Beyer, Zhai, Kolesnikov, Better plain ViT baselines for ImageNet-1k, 2022: positions as fixed sines
and cosines, and the mean over the tokens instead of a class token. The lab chose the size: patches of 4 x 4 pixels, and
the layer sizes of the small GPT. Shapes: B images, H rows and W columns of patches, T = H W tokens, D the width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from syno_lab.errors import SpecError
from syno_lab.models.gpt import Attention
from syno_lab.models.parts import check_counts

#: The longest wavelength of the positions, as in Better plain ViT baselines.
_LONGEST = 10_000.0


class Positions(nn.Module):
    """[B, D, H, W] to the same shape, with each patch's position added: D/4 sines and cosines of its column and row."""

    def forward(self, x: Tensor) -> Tensor:
        """Add the positions to [B, D, H, W]."""
        _, width, rows, columns = x.shape
        waves = torch.arange(width // 4, dtype=x.dtype, device=x.device) / max(1, width // 4 - 1)
        waves = _LONGEST**-waves
        parts = []
        for axis, size in ((-1, columns), (-2, rows)):
            angles = waves[:, None] * torch.arange(size, dtype=x.dtype, device=x.device)
            parts += [angles.sin().unsqueeze(-3 - axis), angles.cos().unsqueeze(-3 - axis)]
        return x + torch.cat([part.expand(-1, rows, columns) for part in parts])


class Mlp(nn.Module):
    """Two linear layers with a GELU between: [B, T, D] to [B, T, D] by way of 4 D."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layers to [B, T, D]."""
        return self.down(functional.gelu(self.up(x)))


class Layer(nn.Module):
    """Attention and two linear layers, each after a normalisation and with a shortcut: [B, T, D] to [B, T, D]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, 0.0, causal=False)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to [B, T, D]."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """Patches as tokens, ``layers`` layers of attention, the mean over the tokens, a linear layer.

    The input is [B, ``in_channels``, H, W] with H and W of at least ``patch``; rows and columns that do not fill a
    patch are left out. The output is the logits [B, ``num_classes``]. Raises SpecError for numbers below 1, and for a
    width that 4 and the heads do not divide.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 3,
        width: int = 128,
        layers: int = 4,
        heads: int = 4,
        patch: int = 4,
    ) -> None:
        super().__init__()
        check_counts(
            "a vision transformer",
            num_classes=num_classes,
            in_channels=in_channels,
            width=width,
            layers=layers,
            heads=heads,
            patch=patch,
        )
        if width % heads or width % 4:
            raise SpecError(
                f"a vision transformer needs a width that 4 and its heads divide, found width={width} and heads={heads}"
            )
        self.patches = nn.Conv2d(in_channels, width, patch, stride=patch)
        self.positions = Positions()
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, num_classes)
        for module in self.layers.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, C, H, W] to logits [B, num_classes]."""
        x = self.positions(self.patches(x)).flatten(2).transpose(1, 2)
        return self.linear(self.norm(self.layers(x)).mean(dim=1))


def vit_tiny(
    num_classes: int = 10, in_channels: int = 3, width: int = 128, layers: int = 4, heads: int = 4, patch: int = 4
) -> VisionTransformer:
    """Return a vision transformer small enough for two cores: 800,906 parameters at 10 classes."""
    return VisionTransformer(num_classes, in_channels, width, layers, heads, patch)
