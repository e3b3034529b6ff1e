"""Networks of transformers, MONAI and efficientnet_pytorch for ``networks.py``: small, random weights, no downloads.

Each is built from its package's own configuration and stands in a module that takes one tensor and returns logits.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

CLASSES = 4
TOKENS = 64  # words of a vocabulary
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


class Logits(nn.Module):
    """A model of transformers that takes ``argument`` and whose answer has ``logits``."""

    def __init__(self, body: nn.Module, argument: str) -> None:
        super().__init__()
        self.body, self.argument = body, argument

    def forward(self, x: Tensor) -> Tensor:
        """Its logits [B, V] alone."""
        return self.body(**{self.argument: x}).logits


class Pooled(nn.Module):
    """A model of transformers without a head: the mean over all positions, and a linear layer."""

    def __init__(self, body: nn.Module, width: int) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, V]."""
        return self.head(self.body(input_ids=x).last_hidden_state.mean(1))


class Headed(nn.Module):
    """A network that gives images [B, C, H, W] (of a tuple the first), as a classifier: their means, a linear layer."""

    def __init__(self, body: nn.Module, channels: int) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(channels, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, V]."""
        y = self.body(x)
        y = y[0] if isinstance(y, tuple) else y
        return self.head(y.mean((2, 3)))


class First(nn.Module):
    """A network that gives logits and something else."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        """The logits alone."""
        return self.body(x)[0]


def _of_tokens(name: str, **sizes: Any) -> nn.Module:
    import transformers

    config = getattr(transformers, f"{name}Config")(vocab_size=TOKENS, num_labels=CLASSES, **sizes)
    return Logits(getattr(transformers, f"{name}ForSequenceClassification")(config), "input_ids")


def _of_images(name: str, model: str = "ForImageClassification", **sizes: Any) -> nn.Module:
    import transformers

    config = getattr(transformers, f"{name}Config")(num_labels=CLASSES, **sizes)
    return Logits(getattr(transformers, f"{name}{model}")(config), "pixel_values")


# -- transformers, of tokens -------------------------------------------------------------------------------------------


def bert() -> nn.Module:
    """An encoder with a pooler."""
    return _of_tokens("Bert", **SMALL, max_position_embeddings=32)


def distilbert() -> nn.Module:
    """An encoder with other names of layers."""
    return _of_tokens("DistilBert", dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=32)


def albert() -> nn.Module:
    """One layer that is called for each depth."""
    return _of_tokens("Albert", **SMALL, embedding_size=16, max_position_embeddings=32)


def electra() -> nn.Module:
    """Embeddings that a linear layer widens."""
    return _of_tokens("Electra", **SMALL, embedding_size=16, max_position_embeddings=32)


def fnet() -> nn.Module:
    """Fourier transforms in the place of attention."""
    sizes = {name: SMALL[name] for name in ("hidden_size", "num_hidden_layers", "intermediate_size")}
    return _of_tokens("FNet", **sizes, max_position_embeddings=32)


def gpt2() -> nn.Module:
    """Linear layers whose weights lie transposed, and a causal mask."""
    from transformers import GPT2Config, GPT2Model

    return Pooled(GPT2Model(GPT2Config(vocab_size=TOKENS, n_positions=32, n_embd=32, n_layer=2, n_head=4)), 32)


def llama() -> nn.Module:
    """Rotary positions, gated layers, and fewer keys than heads."""
    from transformers import LlamaConfig, LlamaModel

    return Pooled(LlamaModel(LlamaConfig(vocab_size=TOKENS, **SMALL, num_key_value_heads=2)), 32)


def t5() -> nn.Module:
    """An encoder with relative positions that asks for the type of a layer's weight."""
    from transformers import T5Config, T5EncoderModel

    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    return Pooled(T5EncoderModel(T5Config(vocab_size=TOKENS, **sizes)), 32)


# -- transformers, of images and sound ---------------------------------------------------------------------------------


def vit() -> nn.Module:
    """Patches and an encoder."""
    return _of_images("ViT", **SMALL, image_size=32, patch_size=8)


def deit() -> nn.Module:
    """With a second token, for distillation."""
    return _of_images("DeiT", **SMALL, image_size=32, patch_size=8)


def beit() -> nn.Module:
    """With relative positions and scaled branches."""
    return _of_images("Beit", **SMALL, image_size=32, patch_size=8, use_relative_position_bias=True)


def swin() -> nn.Module:
    """Windows of attention that shift, and merged patches."""
    sizes = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
    return _of_images("Swin", image_size=32, patch_size=2, **sizes)


def convnext() -> nn.Module:
    """Depthwise convolutions of 7x7, and linear layers on channels last."""
    return _of_images("ConvNext", num_stages=2, hidden_sizes=[16, 32], depths=[2, 2])


def resnet() -> nn.Module:
    """Bottlenecks."""
    return _of_images("ResNet", embedding_size=16, hidden_sizes=[32, 64], depths=[2, 2])


def regnet() -> nn.Module:
    """Grouped convolutions and squeeze-and-excitation."""
    sizes = {"embedding_size": 16, "hidden_sizes": [32, 64], "depths": [1, 2], "groups_width": 8}
    return _of_images("RegNet", **sizes, layer_type="y", downsample_in_first_stage=True)


def mobilenet_v2() -> nn.Module:
    """Inverted residuals, with padding as TensorFlow has it."""
    return _of_images("MobileNetV2", image_size=32, depth_multiplier=0.35)


def mobilevit() -> nn.Module:
    """Convolutions, and transformers on pixels that are unfolded."""
    sizes = {"hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 32, 64]}
    return _of_images("MobileViT", image_size=64, num_attention_heads=4, **sizes)


def segformer() -> nn.Module:
    """Attention over a reduced sequence, and overlapping patches."""
    sizes = {"hidden_sizes": [16, 32], "depths": [1, 1], "num_attention_heads": [1, 2], "sr_ratios": [4, 2]}
    more = {"num_encoder_blocks": 2, "patch_sizes": [7, 3], "strides": [4, 2], "mlp_ratios": [2, 2]}
    return _of_images("Segformer", **sizes, **more)


def perceiver() -> nn.Module:
    """Latents that read all pixels, and a decoder's query."""
    sizes = {"num_latents": 8, "d_latents": 32, "num_blocks": 1, "num_self_attends_per_block": 2}
    more = {"num_self_attention_heads": 4, "num_cross_attention_heads": 4, "image_size": 16}
    return _of_images("Perceiver", "ForImageClassificationLearned", **sizes, **more)


def poolformer() -> nn.Module:
    """Poolings in the place of attention."""
    sizes = {"hidden_sizes": [16, 32], "depths": [1, 1], "num_encoder_blocks": 2}
    more = {"patch_sizes": [7, 3], "strides": [4, 2], "padding": [2, 1]}
    return _of_images("PoolFormer", **sizes, **more)


def levit() -> nn.Module:
    """Linear layers with batch normalisation, and attention that shrinks."""
    sizes = {"hidden_sizes": [32, 48, 64], "num_attention_heads": [2, 3, 4], "key_dim": [8, 8, 8]}
    return _of_images("Levit", image_size=64, depths=[1, 1, 1], **sizes)


def wav2vec2() -> nn.Module:
    """One-dimensional convolutions on sound, one of them with a weight that is normalised."""
    from transformers import Wav2Vec2Config, Wav2Vec2ForSequenceClassification

    sizes = {"conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2}
    more = {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4, "classifier_proj_size": 16}
    config = Wav2Vec2Config(num_labels=CLASSES, **SMALL, **sizes, **more, mask_time_prob=0.0)
    return Logits(Wav2Vec2ForSequenceClassification(config), "input_values")


# -- MONAI -------------------------------------------------------------------------------------------------------------


def monai_resnet() -> nn.Module:
    """ResNet-10 in two dimensions."""
    from monai.networks.nets import resnet10

    return resnet10(spatial_dims=2, n_input_channels=3, num_classes=CLASSES)


def monai_densenet() -> nn.Module:
    """DenseNet with two small blocks."""
    from monai.networks.nets import DenseNet

    sizes = {"init_features": 16, "growth_rate": 8, "block_config": (2, 2)}
    return DenseNet(spatial_dims=2, in_channels=3, out_channels=CLASSES, **sizes)


def monai_senet() -> nn.Module:
    """ResNeXt with squeeze-and-excitation, one block a stage."""
    from monai.networks.nets import SENet

    sizes = {"layers": (1, 1, 1, 1), "groups": 4, "reduction": 8, "inplanes": 16}
    return SENet(spatial_dims=2, in_channels=3, block="se_resnetxt_bottleneck", num_classes=CLASSES, **sizes)


def monai_efficientnet() -> nn.Module:
    """EfficientNet-B0 with padding that is worked out from an image's size."""
    from monai.networks.nets import EfficientNetBN

    return EfficientNetBN("efficientnet-b0", pretrained=False, spatial_dims=2, in_channels=3, num_classes=CLASSES)


def monai_vit() -> nn.Module:
    """ViT with a head of its own."""
    from monai.networks.nets import ViT

    sizes = {"hidden_size": 32, "mlp_dim": 64, "num_layers": 2, "num_heads": 4, "num_classes": CLASSES}
    return First(ViT(in_channels=3, img_size=(32, 32), patch_size=(8, 8), spatial_dims=2, classification=True, **sizes))


def monai_unet() -> nn.Module:
    """U-Net with residual units and transposed convolutions, as a classifier."""
    from monai.networks.nets import UNet

    sizes = {"channels": (8, 16, 32), "strides": (2, 2), "num_res_units": 1}
    return Headed(UNet(spatial_dims=2, in_channels=3, out_channels=16, **sizes), 16)


def monai_segresnet() -> nn.Module:
    """SegResNet, as a classifier."""
    from monai.networks.nets import SegResNet

    sizes = {"init_filters": 8, "blocks_down": (1, 1, 1), "blocks_up": (1, 1)}
    return Headed(SegResNet(spatial_dims=2, in_channels=3, out_channels=16, **sizes), 16)


def monai_highresnet() -> nn.Module:
    """HighResNet with dilated convolutions, as a classifier."""
    from monai.networks.nets import HighResNet

    layers = (
        {"name": "conv_0", "n_features": 16, "kernel_size": 3},
        {"name": "res_1", "n_features": 16, "kernels": (3, 3), "repeat": 1},
        {"name": "res_2", "n_features": 32, "kernels": (3, 3), "repeat": 1},
        {"name": "conv_1", "n_features": 32, "kernel_size": 1},
        {"name": "conv_2", "kernel_size": 1},
    )
    return Headed(HighResNet(spatial_dims=2, in_channels=3, out_channels=16, layer_params=layers), 16)


def monai_swin_unetr() -> nn.Module:
    """SwinUNETR in two dimensions, as a classifier."""
    from monai.networks.nets import SwinUNETR

    sizes = {"feature_size": 12, "depths": (1, 1, 1, 1), "num_heads": (2, 2, 2, 2), "window_size": 4}
    return Headed(SwinUNETR(in_channels=3, out_channels=16, spatial_dims=2, **sizes), 16)


# -- efficientnet_pytorch ----------------------------------------------------------------------------------------------


def efficientnet() -> nn.Module:
    """EfficientNet-B0 with an activation that has a backward of its own."""
    from efficientnet_pytorch import EfficientNet

    return EfficientNet.from_name("efficientnet-b0", num_classes=CLASSES)
