"""The networks that ``networks.py`` tries: names, what makes them, where they come from, and an example's shape.

The list was committed before the first run and may only grow; what was added after that says why in ``added``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import networks_by_hand as hand
import networks_of_packages as of
from networks_by_hand import Classifier
from torch import nn

#: Packages that the tests need anyway.
DEVELOPMENT = ("torch.nn", "transformers")


@dataclass(frozen=True)
class Listed:
    """A network.

    Attributes:
        name: in the table, and for ``--only``.
        package: ``torch.nn`` for those by hand.
        family: of which at most four are listed.
        source: the public report that it is after, or the class that its package builds.
        make: gives a new one.
        shape: of an example; numbers drawn at random unless ``tokens``.
        tokens: whole numbers below this are the examples; 0: none.
        inductor: whether it is compiled by inductor too.
        added: why it was added after the first run.
    """

    name: str
    package: str
    family: str
    source: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    tokens: int = 0
    inductor: bool = False
    added: str = ""


def _transformers(
    name: str, family: str, made: str, make: Callable[[], nn.Module], size: int = 32, inductor: bool = False
) -> Listed:
    return Listed(name, "transformers", family, made, make, (3, size, size), inductor=inductor)


def _tokens(name: str, family: str, made: str, make: Callable[[], nn.Module], inductor: bool = False) -> Listed:
    return Listed(name, "transformers", family, made, make, (12,), of.TOKENS, inductor)


def _monai(name: str, family: str, make: Callable[[], nn.Module], size: int = 32) -> Listed:
    return Listed(name, "monai", family, f"monai.networks.nets.{name}", make, (3, size, size))


def _hand(name: str, family: str, source: str, make: Callable[[], nn.Module], inductor: bool = False) -> Listed:
    return Listed(name, "torch.nn", family, source, make, (3, 16, 16), inductor=inductor)


def _body(kind: type[nn.Module], channels: int) -> Callable[[], nn.Module]:
    return lambda: Classifier(kind(), channels)


def _words(name: str, family: str, source: str, make: Callable[[], nn.Module], inductor: bool = False) -> Listed:
    return Listed(name, "torch.nn", family, source, make, (12,), hand.TOKENS, inductor)


LISTED = (
    _tokens("BERT", "BERT", "BertForSequenceClassification", of.bert, True),
    _tokens("DistilBERT", "BERT", "DistilBertForSequenceClassification", of.distilbert),
    _tokens("ALBERT", "BERT", "AlbertForSequenceClassification", of.albert),
    _tokens("ELECTRA", "BERT", "ElectraForSequenceClassification", of.electra),
    _tokens("FNet", "FNet", "FNetForSequenceClassification", of.fnet),
    _tokens("GPT-2", "GPT", "GPT2Model", of.gpt2, True),
    _tokens("Llama", "GPT", "LlamaModel", of.llama),
    _tokens("T5", "T5", "T5EncoderModel", of.t5),
    _transformers("ViT", "ViT", "ViTForImageClassification", of.vit, inductor=True),
    _transformers("DeiT", "ViT", "DeiTForImageClassification", of.deit),
    _transformers("BEiT", "ViT", "BeitForImageClassification", of.beit),
    _transformers("Swin", "Swin", "SwinForImageClassification", of.swin),
    _transformers("ConvNeXt", "ConvNeXt", "ConvNextForImageClassification", of.convnext, inductor=True),
    _transformers("ResNet", "ResNet", "ResNetForImageClassification", of.resnet, inductor=True),
    _transformers("RegNet", "ResNet", "RegNetForImageClassification", of.regnet),
    _transformers("MobileNetV2", "MobileNet", "MobileNetV2ForImageClassification", of.mobilenet_v2),
    _transformers("MobileViT", "MobileNet", "MobileViTForImageClassification", of.mobilevit, 64),
    _transformers("SegFormer", "SegFormer", "SegformerForImageClassification", of.segformer),
    _transformers("Perceiver", "Perceiver", "PerceiverForImageClassificationLearned", of.perceiver, 16),
    _transformers("PoolFormer", "PoolFormer", "PoolFormerForImageClassification", of.poolformer, inductor=True),
    _transformers("LeViT", "LeViT", "LevitForImageClassification", of.levit, 64),
    Listed("Wav2Vec2", "transformers", "Wav2Vec2", "Wav2Vec2ForSequenceClassification", of.wav2vec2, (400,)),
    _monai("ResNet-10", "ResNet", of.monai_resnet),
    _monai("DenseNet", "DenseNet", of.monai_densenet),
    _monai("SENet", "squeeze and excitation", of.monai_senet, 64),
    _monai("EfficientNetBN", "EfficientNet", of.monai_efficientnet, 64),
    _monai("ViT-MONAI", "ViT", of.monai_vit),
    _monai("UNet", "U-Net", of.monai_unet),
    _monai("SegResNet", "U-Net", of.monai_segresnet),
    _monai("HighResNet", "dilated", of.monai_highresnet),
    _monai("SwinUNETR", "Swin", of.monai_swin_unetr, 64),
    Listed(
        "EfficientNet-B0",
        "efficientnet_pytorch",
        "EfficientNet",
        "EfficientNet.from_name('efficientnet-b0')",
        of.efficientnet,
        (3, 64, 64),
    ),
    _hand("encoder", "attention", "pytorch/pytorch #32764", hand.Encoder, True),
    _words("multi-head", "attention", "pytorch/pytorch #78109", lambda: hand.OfTokens(hand.MultiHead(), 32)),
    _words(
        "attention-by-hand", "attention", "pytorch/pytorch #34537", lambda: hand.OfTokens(hand.AttentionByHand(), 32)
    ),
    _hand("keywords", "calls", "pytorch/pytorch #35643", _body(hand.Keywords, 16), True),
    _hand("asks-type", "calls", "GRACE #1", _body(hand.AsksType, 32), True),
    _hand("shared-layer", "calls", "microsoft/nni #5391", _body(hand.SharedLayer, 16)),
    _words("tied", "calls", "huggingface/transformers #14809", hand.Tied),
    _hand("weight-norm", "computed weights", "pytorch/pytorch #121304", hand.normalised),
    _hand("weight-norm-hooks", "computed weights", "pytorch/pytorch #28594", hand.normalised_by_hooks),
    _hand("spectral-norm", "computed weights", "pytorch/pytorch #12737", hand.spectral),
    _hand("standardised", "computed weights", "RED-CNN #8", hand.standardised, True),
    _hand("frozen-stem", "gradients", "pytorch/pytorch #62043", _body(hand.FrozenStem, 16)),
    _hand("checkpointed", "gradients", "pytorch/pytorch #40912", _body(hand.Checkpointed, 16)),
    _hand("own-gradient", "gradients", "pytorch/pytorch #35749", _body(hand.OwnGradient, 32), True),
    _hand("dropped", "gradients", "megvii-research/NAFNet #32", _body(hand.Dropped, 16)),
    _hand("hooked", "wrapped", "pytorch/pytorch #105445", _body(hand.Hooked, 16)),
    _hand("scripted", "wrapped", "huggingface/pytorch-image-models #93", hand.scripted),
    _hand("data-parallel", "wrapped", "pytorch/pytorch #58190", hand.data_parallel),
    _hand("lazy", "wrapped", "pytorch/pytorch #65051", hand.lazy),
    _hand(
        "squeeze-excite",
        "squeeze and excitation",
        "microsoft/nni #4720",
        lambda: nn.Sequential(hand.unit(3, 16), Classifier(hand.SqueezeExcite(), 16)),
        True,
    ),
    _hand("u-net", "U-Net", "qubvel-org/segmentation_models.pytorch #545", _body(hand.UNet, 16), True),
    _hand("multi-scale", "U-Net", "pytorch/TensorRT #2332", _body(hand.MultiScale, 32)),
    _hand("inception", "Inception", "pytorch/pytorch #48813", _body(hand.Inception, 40), True),
    _hand("dense", "DenseNet", "VainF/Torch-Pruning #146", _body(hand.Dense, 40), True),
    _hand("depthwise", "MobileNet", "microsoft/nni #4991", hand.depthwise, True),
    _hand("shuffled", "ShuffleNet", "VainF/Torch-Pruning #14", _body(hand.Shuffled, 32), True),
    _hand("pixel-shuffle", "pixel shuffle", "VainF/Torch-Pruning #98", hand.pixel_shuffled, True),
    _hand("atrous", "dilated", "IntelLabs/distiller #86", _body(hand.Atrous, 32)),
    _hand("group-norm", "normalised", "pytorch/pytorch #94261", hand.group_normalised, True),
    _hand("instance-norm", "normalised", "pytorch/pytorch #183601", hand.instance_normalised),
    _hand("transposed", "transposed", "VainF/Torch-Pruning #99", hand.transposed),
    _hand("mixer", "MLP-Mixer", "lucidrains/mlp-mixer-pytorch #13", hand.Mixer, True),
    Listed("waves", "torch.nn", "Conv1d", "only_train_once #57", hand.Waves, (1, 256)),
    _words("gru", "recurrent", "microsoft/nni #3497", hand.gru, True),
    _words("lstm", "recurrent", "facebookresearch/fvcore #99", hand.lstm),
)
BY_NAME = {one.name: one for one in LISTED}
