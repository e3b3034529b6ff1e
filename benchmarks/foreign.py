"""Networks that are not ours in the steps of ``syno_lab.improve``, and in a search of a few minutes.

``python foreign.py`` takes a ResNet and a ViT that ``transformers`` builds from a configuration, and networks of
``monai`` and ``efficientnet_pytorch`` where these are installed (``pip install --no-deps --target FOLDER monai
efficientnet_pytorch``, and FOLDER in ``PYTHONPATH``; neither needs torchvision). On scikit-learn's digits, scaled to
three channels of 32 x 32, each is trained for a few batches as it is and with the known operator that fits most of its
layers; the losses are those of the last batches. Then ``syno_lab.improve`` searches operators for it, for ``--minutes``
(0: no search); at the end the network with the best operator is compared with the one that the written file patches.

``--only`` runs some of the networks; the stored results of the others stay.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import metadata, util
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
import torch
from common import about, say, typed
from torch import nn
from torch.utils.data import TensorDataset

import syno_lab as sl
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
    """EfficientNet-B0 of efficientnet_pytorch.

    Its averages for the test follow about 10 batches; its own setting of 100 is more than are trained on here. So
    short a training leaves it at chance level all the same.
    """
    from efficientnet_pytorch import EfficientNet

    return EfficientNet.from_name("efficientnet-b0", num_classes=CLASSES, batch_norm_momentum=0.9)


class Foreign(NamedTuple):
    """A network: its package, what makes it, and the epochs of a whole training in the search."""

    package: str
    make: Callable[[], nn.Module]
    epochs: int


#: So many epochs that five seeds of the baseline and of two operators leave half of four minutes on one core.
MODELS = {
    "ResNet": Foreign("transformers", resnet, 8),
    "ViT": Foreign("transformers", vit, 8),
    "ResNet-10": Foreign("monai", monai, 1),
    "EfficientNet-B0": Foreign("efficientnet_pytorch", efficientnet, 1),
}
BATCH_SIZE = 32
#: What is kept of a comparison with the baseline: no curves.
COMPARED = ("baseline", "operator", "interval", "by_seed", "flops_ratio", "params_ratio", "seeds", "verdict")


def digits() -> tuple[TensorDataset, TensorDataset]:
    """scikit-learn's digits as three channels of 32 x 32."""
    whole = sl.load_dataset("digits")

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
    plain = TrialRequest(backbone="", batch_size=BATCH_SIZE, steps=steps, optimizer="adamw", threads=1, test_images=64)
    request, sites = with_layers(with_data(with_model(plain, make), digits()))
    check_fit(request)
    seen = survey_of(request)
    fits, operator, with_it = max(requests_with(request), key=lambda one: one[0])
    with TemporaryDirectory() as folder:
        outcomes = [run_trial(one, folder=Path(folder) / str(at)) for at, one in enumerate((request, with_it))]
        file = Path(folder) / "operator_file.py"
        written(with_it, file)
        difference = differs(build(with_it).module, file, make)
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


def written(request: TrialRequest, file: Path) -> None:
    """Write the file of torch alone with which a request's network is patched."""
    from syno_lab.systems import read_operator

    assert request.operator is not None
    sites = {site.name: site for site in survey_of(request).sites}
    places = [(sites[place.name], place) for place in places_of(request)]
    file.write_text(network_file(read_operator(request.operator), places, 0, "pool"), encoding="utf-8")


def differs(ours: nn.Module, file: Path, make: Callable[[], nn.Module]) -> float:
    """The largest difference between a patched network and the one that a file patches, with the same weights."""
    spec = util.spec_from_file_location("operator_file", file)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    ours, theirs = ours.eval(), module.patch(make()).eval()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        one, other = ours(x), theirs(x)
    return float((getattr(one, "logits", one) - getattr(other, "logits", other)).abs().max())


def searched(one: Foreign, minutes: float, folder: Path) -> dict[str, Any]:
    """What a search by ``improve`` came to, with the load of the machine before and after it (1 and 5 minutes)."""
    load, begun, begun_cpu = os.getloadavg()[:2], time.monotonic(), time.process_time()
    how: dict[str, Any] = {"epochs": one.epochs, "batch_size": BATCH_SIZE, "optimizer": "adamw", "folder": folder}
    found = sl.improve(one.make, digits, minutes=minutes, say=say, anyway=True, **how)
    wall_s, cpu_s = time.monotonic() - begun, time.process_time() - begun_cpu
    result = found.result
    recorded = result["recorded"]
    discovered = [trial for trial in recorded if trial["known"] is None]
    best = {share: dict(row) for share, row in result["best"].items() if row is not None}
    for row in best.values():
        operator = sl.Operator.from_json(row.pop("operator"))
        row["primitives"] = dict(Counter(step.primitive for step in operator.state.steps))
    return {
        "minutes": minutes,
        "epochs": one.epochs,
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "load": [load, os.getloadavg()[:2]],
        "trials": result["trials"],
        "states": result["states"],
        "discovered": len(discovered),
        "with_windows": sum(any("UNFOLD" in step for step in trial["steps"]) for trial in discovered),
        "funnel": result["funnel"],
        "baseline": result["baseline"],
        "best": best,
        "comparisons": {name: {field: row[field] for field in COMPARED} for name, row in result["comparisons"].items()},
        "verdict": result["verdict"],
        "file_differs_by": differs(found.network(), found.files[found.best], one.make) if found.operators else None,
    }


def main() -> None:
    """Examine the networks whose packages are installed, and store what became of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--minutes", type=float, default=4.0, help="of a search for each network (4; 0: none)")
    parser.add_argument("--only", choices=tuple(MODELS), action="append", help="may be given several times")
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args()
    earlier = msgspec.json.decode(asked.out.read_bytes())["rows"] if asked.out.exists() else []
    rows = {row["network"]: row for row in earlier}
    for name, one in MODELS.items():
        if asked.only and name not in asked.only:
            continue
        if util.find_spec(one.package) is None:
            say(f"{name}: {one.package} is not installed")
            continue
        row = rows[name] = examined(name, one.package, one.make, asked.steps) | {"about": about(typed(), None)}
        if asked.minutes:
            with TemporaryDirectory() as folder:
                row["search"] = searched(one, asked.minutes, Path(folder))
        say(str({key: value for key, value in row.items() if key != "search"}))
        kept = [rows[each] for each in MODELS if each in rows]
        found = {"abouts": [each["about"] for each in kept], "rows": kept}
        asked.out.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


if __name__ == "__main__":
    main()
