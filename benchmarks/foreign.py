"""Networks that are not ours in the steps of ``syno_lab.improve``: layers, a short training, the file of torch alone.

``python foreign.py`` takes a ResNet and a ViT that ``transformers`` builds from a configuration, and networks of
``monai`` and ``efficientnet_pytorch`` where these are installed (``pip install --no-deps --target FOLDER monai
efficientnet_pytorch``, and FOLDER in ``PYTHONPATH``; neither needs torchvision). On scikit-learn's digits, scaled to
three channels of 32 x 32, each is trained for a few batches as it is and with the known operator that fits most of its
layers; the losses are those of the last batches. No search is run: these are too few batches to compare operators by.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from importlib import metadata, util
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import torch
from torch import nn
from torch.utils.data import TensorDataset

from syno_lab import load_dataset
from syno_lab.experiments.own import check_fit, with_data, with_layers, with_model
from syno_lab.experiments.own_file import network_file
from syno_lab.operators import KNOWN
from syno_lab.trial import TrialRequest, places_of, run_trial, survey_of
from syno_lab.trial.backbone import build

RESULT = Path(__file__).parent / "results" / "foreign.json"
CLASSES = 10


def resnet() -> nn.Module:
    """A ResNet with basic blocks of transformers, from a configuration."""
    from transformers import ResNetConfig, ResNetForImageClassification

    sizes: dict[str, Any] = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [2, 2], "layer_type": "basic"}
    return ResNetForImageClassification(ResNetConfig(num_labels=CLASSES, **sizes))


def vit() -> nn.Module:
    """A ViT of transformers, from a configuration."""
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    return ViTForImageClassification(ViTConfig(image_size=32, patch_size=8, num_labels=CLASSES, **sizes))


def monai() -> nn.Module:
    """ResNet-10 of MONAI in two dimensions."""
    from monai.networks.nets import resnet10

    return resnet10(spatial_dims=2, n_input_channels=3, num_classes=CLASSES)


def efficientnet() -> nn.Module:
    """EfficientNet-B0 of efficientnet_pytorch."""
    from efficientnet_pytorch import EfficientNet

    return EfficientNet.from_name("efficientnet-b0", num_classes=CLASSES)


MODELS: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "ResNet": ("transformers", resnet),
    "ViT": ("transformers", vit),
    "ResNet-10": ("monai", monai),
    "EfficientNet-B0": ("efficientnet_pytorch", efficientnet),
}


def digits() -> tuple[TensorDataset, TensorDataset]:
    """scikit-learn's digits as three channels of 32 x 32."""
    whole = load_dataset("digits")

    def part(images: Any, labels: Any) -> TensorDataset:
        scaled = torch.tensor(images, dtype=torch.float32).repeat(1, 3, 4, 4) / 127.5 - 1
        return TensorDataset(scaled, torch.tensor(labels))

    return part(whole.train_images[:512], whole.train_labels[:512]), part(whole.test_images, whole.test_labels)


def requests_with(request: TrialRequest) -> Iterator[tuple[int, str, TrialRequest]]:
    """For each known operator that fits some layers: how many, its name, and the request with it."""
    for name, make in KNOWN.items():
        with_it = msgspec.structs.replace(request, operator=make().to_json())
        try:
            fits = sum(place.replaced for place in places_of(with_it))
        except ValueError:  # for layers of another form
            continue
        if fits:
            yield fits, name, with_it


def examined(name: str, package: str, make: Callable[[], nn.Module], steps: int) -> dict[str, Any]:
    """What became of one network."""
    begun = time.process_time()
    plain = TrialRequest(backbone="", batch_size=32, steps=steps, optimizer="adamw", threads=1, test_images=64)
    request, sites = with_layers(with_data(with_model(plain, make), digits()))
    check_fit(request)
    seen = survey_of(request)
    fits, operator, with_it = max(requests_with(request), key=lambda one: one[0])
    with TemporaryDirectory() as folder:
        outcomes = [run_trial(one, folder=Path(folder) / str(at)) for at, one in enumerate((request, with_it))]
        difference = of_the_file(with_it, make, Path(folder))
    return {
        "network": name,
        "package": f"{package} {metadata.version(package)}",
        "layers": len(seen.sites),
        "replaced": len(sites),
        "share_of_flops": sum(site.flops for site in sites) / seen.flops,
        "kinds": sorted({site.kind for site in sites}),
        "operator": operator,
        "fits": fits,
        "states": [one.state for one in outcomes],
        "reasons": [one.reason for one in outcomes],
        "train_losses": [one.train_loss for one in outcomes],
        "flops_ratio": outcomes[1].flops / outcomes[0].flops,
        "file_differs_by": difference,
        "steps": steps,
        "cpu_s": time.process_time() - begun,
    }


def of_the_file(request: TrialRequest, make: Callable[[], nn.Module], folder: Path) -> float:
    """The largest difference between the patched network and the one that the file of torch alone patches."""
    from syno_lab.systems import read_operator

    assert request.operator is not None
    sites = {site.name: site for site in survey_of(request).sites}
    places = [(sites[place.name], place) for place in places_of(request)]
    file = folder / "operator_file.py"
    file.write_text(network_file(read_operator(request.operator), places, 0, "pool"))
    spec = util.spec_from_file_location("operator_file", file)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    ours, theirs = build(request).module.eval(), module.patch(make()).eval()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        one, other = ours(x), theirs(x)
    return float((getattr(one, "logits", one) - getattr(other, "logits", other)).abs().max())


def main() -> None:
    """Examine the networks whose packages are installed, and store what became of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args()
    found = []
    for name, (package, make) in MODELS.items():
        if util.find_spec(package) is None:
            print(f"{name}: {package} is not installed")
            continue
        found.append(examined(name, package, make, asked.steps))
        print(found[-1])
        asked.out.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


if __name__ == "__main__":
    main()
