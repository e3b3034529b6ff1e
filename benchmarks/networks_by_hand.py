"""Networks of ``torch.nn`` by hand for ``networks.py``, each after a public report of what such a one broke elsewhere.

They take images [B, 3, 16, 16] unless they say otherwise and return logits [B, 4].
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, spectral_norm, weight_norm
from torch.utils.checkpoint import checkpoint

CLASSES = 4
TOKENS = 64  # words of a vocabulary


def conv(inputs: int, outputs: int, size: int = 3, **more: Any) -> nn.Conv2d:
    """A convolution that keeps the image's size at stride 1."""
    return nn.Conv2d(inputs, outputs, size, padding=more.pop("padding", size // 2), **more)


def unit(inputs: int, outputs: int, size: int = 3, **more: Any) -> nn.Sequential:
    """Convolution, batch normalisation, ReLU."""
    return nn.Sequential(conv(inputs, outputs, size, bias=False, **more), nn.BatchNorm2d(outputs), nn.ReLU())


class Classifier(nn.Module):
    """``body`` gives images [B, C, H, W]: their means, then a linear layer."""

    def __init__(self, body: nn.Module, channels: int) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(channels, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.body(x).mean((2, 3)))


class OfTokens(nn.Module):
    """An embedding, and ``body`` that gives features [B, T, C] (of a tuple the first): their mean, a linear layer."""

    def __init__(self, body: nn.Module, width: int) -> None:
        super().__init__()
        self.embedding, self.body, self.head = nn.Embedding(TOKENS, 32), body, nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Logits for tokens [B, T]."""
        y = self.body(self.embedding(x))
        return self.head((y[0] if isinstance(y, tuple) else y).mean(1))


# -- attention ---------------------------------------------------------------------------------------------------------


class Encoder(nn.Module):
    """PyTorch's own encoder on patches, with a path of its own in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, 4)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.encoder(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


class MultiHead(nn.Module):
    """``nn.MultiheadAttention``, which reads the weight of its output layer, between linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.second = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, C] to [B, T, C]."""
        x = self.first(x)
        return self.second(x + self.attention(x, x, x, need_weights=False)[0]).relu()


class AttentionByHand(nn.Module):
    """One linear layer for queries, keys and values, and matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(32, 96), nn.Linear(32, 32), nn.LayerNorm(32)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, C] to [B, T, C]."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) * (width // 4) ** -0.5).softmax(-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


# -- how layers are called ---------------------------------------------------------------------------------------------


class Keywords(nn.Module):
    """Layers that are called by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = conv(3, 16), conv(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        return self.b(input=self.a(input=x).relu()).relu()


class AsksType(nn.Module):
    """Casts to the type of a layer's weight, as several transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = conv(3, 16), conv(16, 32), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        """Images to images of one pixel."""
        x = self.b(self.a(x).relu().to(self.b.weight.dtype)).mean((2, 3))
        return self.c(x.to(self.c.weight.dtype)).relu()[:, :, None, None]


class SharedLayer(nn.Module):
    """One layer that is called three times."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.layer = conv(3, 16), conv(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        x = self.stem(x)
        for _ in range(3):
            x = x + self.layer(x).relu()
        return x


class Tied(nn.Module):
    """A language model whose output layer has the embedding's weight; the logits of the last place for 4 words."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 32)
        self.hidden, self.more = nn.Linear(32, 64), nn.Linear(64, 32)
        self.out = nn.Linear(32, TOKENS, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        """Logits for tokens [B, T]."""
        y = self.embedding(x).cumsum(1)
        return self.out(self.more(F.gelu(self.hidden(y))))[:, -1, :CLASSES]


# -- weights that are computed -----------------------------------------------------------------------------------------


def normalised() -> nn.Module:
    """``weight_norm`` as a parametrisation."""
    body = nn.Sequential(conv(3, 16), nn.ReLU(), parametrizations.weight_norm(conv(16, 16)), nn.ReLU(), conv(16, 16))
    return Classifier(body, 16)


def normalised_by_hooks() -> nn.Module:
    """``weight_norm`` by hooks, as older code has it."""
    body = nn.Sequential(conv(3, 16), nn.ReLU(), weight_norm(conv(16, 16)), nn.ReLU(), conv(16, 16))
    return Classifier(body, 16)


def spectral() -> nn.Module:
    """``spectral_norm`` by hooks, with a buffer that changes in training."""
    body = nn.Sequential(spectral_norm(conv(3, 16)), nn.LeakyReLU(0.1), conv(16, 32), nn.LeakyReLU(0.1))
    return Classifier(body, 32)


class Standardised(nn.Conv2d):
    """A convolution whose weight is standardised at each call."""

    def forward(self, x: Tensor) -> Tensor:
        """As a convolution's."""
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        weight = weight / (weight.std((1, 2, 3), keepdim=True) + 1e-5)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


def standardised() -> nn.Module:
    """Standardised weights and group normalisation."""
    layers = (conv(3, 16), nn.ReLU(), Standardised(16, 16, 3, padding="same"), nn.GroupNorm(4, 16), conv(16, 16))
    return Classifier(nn.Sequential(*layers), 16)


# -- gradients and random numbers --------------------------------------------------------------------------------------


class FrozenStem(nn.Module):
    """A stem under ``no_grad``."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.a, self.b = unit(3, 16), unit(16, 16), unit(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        with torch.no_grad():
            x = self.stem(x)
        return x + self.b(self.a(x))


class Checkpointed(nn.Module):
    """Bottlenecks that are computed again for the gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 16)
        self.first = nn.Sequential(conv(16, 8, 1), nn.GELU(), conv(8, 16))
        self.second = nn.Sequential(conv(16, 8, 1), nn.GELU(), conv(8, 16))

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        x = self.stem(x)
        for block in (self.first, self.second):
            x = x + checkpoint(block, x, use_reentrant=False)
        return x


class Swish(torch.autograd.Function):
    """x sigmoid(x) that keeps its input alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """As it says."""
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        """The gradient."""
        (x,) = ctx.saved_tensors
        half = torch.sigmoid(x)
        return slope * (half * (1 + x * (1 - half)))


class OwnGradient(nn.Module):
    """Convolutions, and an activation with a backward of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = conv(3, 16), conv(16, 32, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        return Swish.apply(self.b(Swish.apply(self.a(x))))


class Dropped(nn.Module):
    """Residual branches that are left out at random in training."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = unit(3, 16)
        self.blocks = nn.ModuleList(unit(16, 16) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        x = self.stem(x)
        for block in self.blocks:
            if self.training and torch.rand(()).item() < 0.2:
                continue
            x = x + block(x)
        return x


# -- parts of other kinds ----------------------------------------------------------------------------------------------


class Hooked(nn.Module):
    """A hook changes what a layer gives."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = conv(3, 16), conv(16, 16), conv(16, 16)
        self.b.register_forward_hook(_doubled)

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        return self.c(self.b(self.a(x).relu()).relu()).relu()


def _doubled(module: nn.Module, given: tuple[Tensor, ...], found: Tensor) -> Tensor:
    return 2 * found


def scripted() -> nn.Module:
    """A part of TorchScript between layers."""
    part = torch.jit.script(nn.Sequential(nn.Conv2d(16, 16, 1), nn.SiLU()))
    return Classifier(nn.Sequential(conv(3, 16), nn.ReLU(), part, conv(16, 16)), 16)


def data_parallel() -> nn.Module:
    """A network in ``nn.DataParallel``."""
    return nn.DataParallel(Classifier(nn.Sequential(unit(3, 16), unit(16, 32, stride=2), unit(32, 32)), 32))


def lazy() -> nn.Module:
    """Layers that learn their sizes from the first example."""
    layers = (nn.LazyConv2d(16, 3, padding=1), nn.ReLU(), nn.LazyConv2d(16, 3, padding=1), nn.LazyBatchNorm2d())
    return nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(CLASSES))


# -- forms of networks -------------------------------------------------------------------------------------------------


class SqueezeExcite(nn.Module):
    """A block whose channels are weighed by their means."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.down, self.up, self.b = unit(16, 16), nn.Linear(16, 4), nn.Linear(4, 16), unit(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        y = self.a(x)
        scale = torch.sigmoid(self.up(self.down(F.adaptive_avg_pool2d(y, 1).flatten(1)).relu()))
        return x + self.b(y * scale[:, :, None, None])


class UNet(nn.Module):
    """Two levels with skips, and sizes that are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = unit(3, 16), unit(16, 32), unit(32, 32)
        self.up, self.last = unit(64, 32), unit(48, 16)

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        y = self.up(torch.cat([F.interpolate(c, size=b.shape[2:]), b], 1))
        return self.last(torch.cat([F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False), a], 1))


class MultiScale(nn.Module):
    """One trunk on two sizes of the image, each resized back."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = unit(3, 16)
        self.fine, self.coarse, self.join = unit(16, 16), unit(16, 16), unit(32, 32, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        x = self.stem(x)
        small = self.coarse(F.interpolate(x, scale_factor=0.5, mode="bilinear", align_corners=False))
        small = F.interpolate(small, size=(x.shape[2], x.shape[3]), mode="nearest")
        return self.join(torch.cat([self.fine(x), small], 1))


class Inception(nn.Module):
    """Branches in a ModuleDict."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = unit(3, 16)
        self.branches = nn.ModuleDict(
            {
                "one": unit(16, 8, 1),
                "three": nn.Sequential(unit(16, 8, 1), unit(8, 16)),
                "five": nn.Sequential(unit(16, 4, 1), unit(4, 8, 5)),
                "pool": nn.Sequential(nn.MaxPool2d(3, 1, 1), unit(16, 8, 1)),
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        x = self.stem(x)
        return torch.cat([branch(x) for branch in self.branches.values()], 1)


class Dense(nn.Module):
    """Each layer reads all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 16)
        self.layers = nn.ModuleList(unit(16 + 8 * at, 8) for at in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        found = [self.stem(x)]
        for layer in self.layers:
            found.append(layer(torch.cat(found, 1)))
        return torch.cat(found, 1)


def depthwise() -> nn.Module:
    """Depthwise and pointwise convolutions in turn."""
    layers = [unit(3, 16)]
    for inputs, outputs, stride in ((16, 32, 1), (32, 32, 2), (32, 64, 1)):
        layers += [unit(inputs, inputs, stride=stride, groups=inputs), unit(inputs, outputs, 1)]
    return Classifier(nn.Sequential(*layers), 64)


class Shuffled(nn.Module):
    """Half of the channels go through, then all are shuffled."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = unit(3, 32)
        self.blocks = nn.ModuleList(nn.Sequential(unit(16, 16, 1), unit(16, 16)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        x = self.stem(x)
        for block in self.blocks:
            kept, changed = x.chunk(2, dim=1)
            x = torch.cat([kept, block(changed)], 1)
            batch, channels, height, width = x.shape
            x = x.view(batch, 2, channels // 2, height, width).transpose(1, 2).contiguous()
            x = x.view(batch, channels, height, width)
        return x


def pixel_shuffled() -> nn.Module:
    """A pixel shuffle between convolutions."""
    layers = (conv(3, 16), nn.ReLU(), conv(16, 64), nn.PixelShuffle(2), conv(16, 16, stride=2), nn.ReLU())
    return Classifier(nn.Sequential(*layers), 16)


class Atrous(nn.Module):
    """Dilated convolutions side by side, with the image's mean."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = unit(3, 16)
        self.branches = nn.ModuleList(unit(16, 16, padding=rate, dilation=rate) for rate in (1, 2, 4))
        self.mean, self.join = nn.Sequential(nn.AdaptiveAvgPool2d(1), conv(16, 16, 1), nn.ReLU()), unit(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        x = self.stem(x)
        mean = F.interpolate(self.mean(x), size=x.shape[-2:], mode="nearest")
        return self.join(torch.cat([*(branch(x) for branch in self.branches), mean], 1))


def group_normalised() -> nn.Module:
    """Group normalisation."""
    layers = (conv(3, 16), nn.GroupNorm(4, 16), nn.SiLU(), conv(16, 32, stride=2), nn.GroupNorm(8, 32), nn.SiLU())
    return Classifier(nn.Sequential(*layers, conv(32, 32)), 32)


def instance_normalised() -> nn.Module:
    """Instance normalisation and reflected borders."""
    layers = (nn.ReflectionPad2d(1), nn.Conv2d(3, 16, 3), nn.InstanceNorm2d(16, affine=True), nn.ReLU())
    return Classifier(nn.Sequential(*layers, conv(16, 32), nn.InstanceNorm2d(32, affine=True), nn.Hardswish()), 32)


def transposed() -> nn.Module:
    """An autoencoder's form: strides, then transposed convolutions."""
    down = (conv(3, 16, stride=2), nn.ReLU(), conv(16, 32, stride=2), nn.ReLU())
    return Classifier(nn.Sequential(*down, nn.ConvTranspose2d(32, 16, 2, 2), nn.ReLU(), conv(16, 16)), 16)


class Mixer(nn.Module):
    """Linear layers on patches and on channels in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, 4)
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(2))
        self.tokens = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.channels = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return self.head((x + self.channels(self.norms[1](x))).mean(1))


class Waves(nn.Module):
    """One-dimensional convolutions, and linear layers, on sound [B, 1, 256]."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv1d(1, 16, 9, 4, 4), nn.Conv1d(16, 16, 3, padding=1)
        self.hidden, self.head = nn.Linear(16, 32), nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.hidden(self.b(self.a(x).relu()).relu().mean(2)).relu())


class Recurrent(nn.Module):
    """A recurrent layer between linear ones."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.before, self.layer, self.after = nn.Linear(32, 32), kind(32, 32, batch_first=True), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, C] to [B, T, C]."""
        return self.after(self.layer(self.before(x).relu())[0]).relu()


def gru() -> nn.Module:
    """A GRU on tokens."""
    return OfTokens(Recurrent(nn.GRU), 32)


def lstm() -> nn.Module:
    """An LSTM on tokens."""
    return OfTokens(Recurrent(nn.LSTM), 32)
