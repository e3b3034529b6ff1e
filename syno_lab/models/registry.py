"""The backbones by name: how to build each, its arguments, its published figures, and the layers that are replaced.

A new backbone needs a file and a row of ``BACKBONES``. The first six backbones are the paper's workloads (section 9.1),
the others are small enough for two cores. :func:`offer` adds a user's own network for the current process alone.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from syno_lab.errors import SpecError
from syno_lab.inputs import quoted
from syno_lab.models import cnn, densenet, efficientnet, gpt, resnet, vit
from syno_lab.models.layers import Survey, survey
from syno_lab.models.parts import check_counts
from syno_lab.models.rungs import Rung, own_proxies, proxies, text_proxies
from syno_lab.models.sites import Selection

Domain = Literal["images", "text"]

#: First convolutions stay: they read 1 or 3 channels, which no coefficient divides.
_DENSE = Selection(leave=("conv", "conv0", "conv1", "stem.*"))
_QKV = Selection(kinds=("linear",), names=("*.qkv",))
#: The arguments that every builder for images or text accepts; a builder's other arguments are options.
_ALWAYS = ("num_classes", "in_channels", "vocabulary", "context")


@dataclass(frozen=True)
class Backbone:
    """A network that can be built by name.

    Attributes:
        name: the name on the command line.
        builder: a function of ``num_classes`` and ``in_channels`` (images), or of ``vocabulary`` and ``context``
            (text).
        domain: ``images`` or ``text``.
        size: the height and width of the images, or the tokens of a text, for which the figures are published.
        outputs: the number of classes or of tokens for which the figures are published.
        params: the parameters of the reference implementation.
        flops: 2 for each multiply-add of one example of ``size``, convolutions and matrix products alone.
        reference: the source of the figures.
        paper: the source of the network.
        selection: the layers that are replaced by default.
        proxies: the rungs of its trials in a search, the cheapest first, the network itself last; may be empty.
    """

    name: str
    builder: Callable[..., nn.Module] = field(repr=False)
    domain: Domain
    size: int
    outputs: int
    params: int
    flops: int
    reference: str
    paper: str
    selection: Selection = _DENSE
    proxies: tuple[Rung, ...] = ()

    @property
    def options(self) -> dict[str, int | float]:
        """The builder's other arguments, which set its size, with their default values."""
        arguments = inspect.signature(self.builder).parameters.values()
        return {argument.name: argument.default for argument in arguments if argument.name not in _ALWAYS}

    def build(
        self,
        *,
        outputs: int | None = None,
        in_channels: int = 3,
        size: int | None = None,
        device: str | torch.device | None = None,
        options: Mapping[str, int | float] | None = None,
    ) -> nn.Module:
        """Build a network with ``outputs`` classes or tokens; weights are drawn from torch's global generator.

        ``in_channels``: the channels of images. ``size``: the tokens of a text's context; networks for images take any
        size. ``device="meta"``: shapes without values, for counting. ``options``: some of :attr:`options`. Raises
        SpecError for numbers below 1.
        """
        sizes = {**self.options, **(options or {})}
        outputs = self.outputs if outputs is None else outputs
        with torch.device("cpu" if device is None else device):
            if self.domain == "text":
                return self.builder(vocabulary=outputs, context=self.size if size is None else size, **sizes)
            return self.builder(num_classes=outputs, in_channels=in_channels, **sizes)

    def example(self, *, in_channels: int = 3, size: int | None = None) -> tuple[int, int, int] | Tensor:
        """Return the example for :func:`.layers.survey`: the shape of an image, or zeros as tokens [1, T].

        Raises SpecError for numbers below 1.
        """
        size = self.size if size is None else size
        check_counts("an example", size=size, in_channels=in_channels)
        return (in_channels, size, size) if self.domain == "images" else torch.zeros(1, size, dtype=torch.int64)

    def survey(self, *, outputs: int | None = None, in_channels: int = 3, size: int | None = None) -> Survey:
        """Return a survey of the layers for an input of ``size``, without memory for weights."""
        net = self.build(outputs=outputs, in_channels=in_channels, size=size, device="meta")
        return survey(net, self.example(in_channels=in_channels, size=size))


#: The prefix of names of users' own networks and data, which exist in this process alone.
OWN = "own:"


@dataclass(frozen=True)
class OwnNetwork(Backbone):
    """A user's own network; the builder takes no arguments, so classes and sizes cannot be chosen."""

    @property
    def options(self) -> dict[str, int | float]:
        """An empty dictionary, because the network has one size."""
        return {}

    def build(self, **_: object) -> nn.Module:
        """Build a network on the device that its builder chooses; the arguments are ignored."""
        return self.builder()


_OFFERED: dict[str, OwnNetwork] = {}


def offer(name: str, builder: Callable[[], nn.Module]) -> None:
    """Make a user's own network a backbone of this process, with the name ``own:NAME``.

    A name in a file or store cannot build a network that the user has not offered in this process. The rungs of the
    network's trials are shorter trainings of the network itself (:func:`.rungs.own_proxies`).
    """
    _OFFERED[name] = OwnNetwork(
        name, builder, "images", 1, 1, 0, 0, "the user's own", "none", Selection(), proxies=own_proxies()
    )


_HE = "He et al., Deep Residual Learning for Image Recognition, CVPR 2016"
_JIN = "Jin, Phothilimthana and Roy, Neural Architecture Search using Property Guided Synthesis, OOPSLA 2022"
_RADFORD = "Radford et al., Language Models are Unsupervised Multitask Learners, 2019"

BACKBONES: dict[str, Backbone] = {
    backbone.name: backbone
    for backbone in (
        Backbone("resnet18", resnet.resnet18, "images", 224, 1000, 11_689_512, 3_628_146_688,
                 "torchvision resnet18", _HE, proxies=proxies(resolution=64, blocks=1)),
        Backbone("resnet34", resnet.resnet34, "images", 224, 1000, 21_797_672, 7_327_522_816,
                 "torchvision resnet34", _HE, proxies=proxies(resolution=64, blocks=1)),
        Backbone("densenet121", densenet.densenet121, "images", 224, 1000, 7_978_856, 5_668_323_328,
                 "torchvision densenet121", "Huang et al., Densely Connected Convolutional Networks, CVPR 2017",
                 proxies=proxies(resolution=64, layers=3)),
        # All convolutions larger than 1x1 of this network have two groups.
        Backbone("resnext29_2x64d", resnet.resnext29_2x64d, "images", 32, 10, 9_128_778, 2_818_985_984,
                 "kuangliu/pytorch-cifar ResNeXt29_2x64d",
                 "Xie et al., Aggregated Residual Transformations for Deep Neural Networks, CVPR 2017",
                 Selection(groups=None, leave=("conv1",)), proxies(resolution=16, blocks=1)),
        Backbone("efficientnet_v2_s", efficientnet.efficientnet_v2_s, "images", 384, 1000, 21_458_488, 16_731_234_304,
                 "torchvision efficientnet_v2_s",
                 "Tan and Le, EfficientNetV2: Smaller Models and Faster Training, ICML 2021",
                 proxies=proxies(resolution=96, blocks=2)),
        # A proxy of the same width does not train faster on a CPU, so GPT-2 has no proxies.
        Backbone("gpt2", gpt.gpt2, "text", 1024, 50_257, 124_439_808, 291_648_307_200,
                 "openai/gpt-2 117M, transformers GPT2LMHeadModel", _RADFORD, _QKV),
        Backbone("resnet20", resnet.resnet20, "images", 32, 10, 269_722, 81_102_080,
                 "He et al., section 4.2: 0.27M", _HE, proxies=proxies(resolution=16, blocks=1)),
        Backbone("gpt_tiny", gpt.gpt_tiny, "text", 64, 256, 834_304, 113_246_208, "our own", _RADFORD, _QKV,
                 text_proxies(context=32, steps=(60, 200), layers=2)),
        Backbone("cnn", cnn.cnn, "images", 32, 10, 94_538, 77_269_504, "our own, after αNAS, section 5", _JIN),
        Backbone("vit_tiny", vit.vit_tiny, "images", 32, 10, 800_906, 109_840_896, "our own",
                 "Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021", _QKV),
    )
}  # fmt: skip


def backbone(name: str) -> Backbone:
    """Return the backbone ``name``; letter case, - and . are ignored (``ResNeXt-29-2x64D``).

    Raises SpecError for an unknown name, with the nearest names, and for a user's network not offered in this process.
    """
    if name.startswith(OWN):
        if name not in _OFFERED:
            raise SpecError(
                f"expected a network that this process has loaded, found {quoted(name)}; name it again, by --model or "
                "as the model of syno_lab.improve"
            )
        return _OFFERED[name]
    by_plain_name = {_plain(name_known): name_known for name_known in BACKBONES}
    if _plain(name) in by_plain_name:
        return BACKBONES[by_plain_name[_plain(name)]]
    similar = [by_plain_name[match] for match in difflib.get_close_matches(_plain(name), by_plain_name, 2)]
    hint = f"did you mean {' or '.join(similar)}?" if similar else f"there are {', '.join(BACKBONES)}"
    raise SpecError(f"expected the name of a backbone, found {quoted(name)}; {hint}")


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
