"""``syno-lab train``: a small ResNet with an operator in the place of its convolutions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syno_lab.commands.operands import load_operator
from syno_lab.commands.output import JsonTarget, Reporter, check_json, say, say_table, write_json
from syno_lab.errors import SpecError, SynoError

if TYPE_CHECKING:
    from torch import nn

    from syno_lab.evaluate.training import TrainingProgress
    from syno_lab.ir.operator import Operator
    from syno_lab.models.extraction import Site

BASELINE = "baseline"


def command(
    operator: Annotated[
        str, typer.Argument(help="A known operator's name, an operator file, or 'baseline' for the network as it is.")
    ],
    data: Annotated[
        str | None,
        typer.Option(help="A folder with CIFAR-10 or CIFAR-100, or 'digits'. [default: $SYNO_LAB_DATA, else digits]"),
    ] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch CIFAR-10 first where it is not there.")] = False,
    epochs: Annotated[int, typer.Option(min=1)] = 3,
    batch_size: Annotated[int, typer.Option(min=1)] = 64,
    learning_rate: Annotated[float, typer.Option(help="The highest of the cycle.")] = 0.1,
    patience: Annotated[int | None, typer.Option(min=1, help="Epochs to wait for a better test accuracy.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds, all epochs together.")] = None,
    width: Annotated[int, typer.Option(min=1, help="Channels of the network's first stage.")] = 16,
    blocks: Annotated[int, typer.Option(min=1, help="Residual blocks in each stage.")] = 1,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, …")] = "cpu",
    out: Annotated[Path | None, typer.Option(help="Write the training's curve to this JSON file.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Written after each epoch; a training that finds one goes on from it.")
    ] = None,
    json: JsonTarget = None,
) -> None:
    """Train a small ResNet for images in which an operator replaces the 3x3 convolutions of stride 1.

    An operator that cannot have a place's sizes leaves the convolution there.
    """
    check_json(json)
    chosen = None if operator == BASELINE else load_operator(operator, besides=[BASELINE])
    with Reporter() as report:
        report("data", 0.0, "reading images")
        from syno_lab.evaluate.data import load_dataset

        dataset = load_dataset(
            data,
            download=download,
            progress=lambda done, total: report("data", done / total if total else 0.0, f"{done:,} bytes"),
        )
        report(
            "data", 1.0, f"{dataset.name}: {len(dataset.train_images)} training, {len(dataset.test_images)} test images"
        )

        import torch

        from syno_lab.evaluate.training import save_curve, train
        from syno_lab.models.resnet import resnet_tiny

        torch.manual_seed(seed)
        net: nn.Module = resnet_tiny(len(dataset.classes), dataset.image_shape[0], width, blocks)
        places: list[dict[str, Any]] = []
        if chosen is not None:
            net, places = replace_convolutions(net, dataset.image_shape, chosen[1])

        def progress(now: TrainingProgress) -> None:
            share = (now.epoch - 1 + (now.batch / max(now.batches, 1) if now.phase == "train" else 1.0)) / now.epochs
            report("train", min(share, 1.0), f"epoch {now.epoch}: loss {now.loss:.3f}, accuracy {now.accuracy:.3f}")

        result = train(
            net,
            dataset,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            seed=seed,
            time_limit_s=time_limit,
            patience=patience,
            device=device,
            on_progress=progress,
            checkpoint=checkpoint,
            raise_on_divergence=True,
        )
    if out is not None:
        save_curve(result, out)
    label = BASELINE if chosen is None else chosen[0]
    replaced = sum(place["replaced"] for place in places)
    rows = [
        {
            "epoch": record.epoch,
            "train loss": record.train_loss,
            "test loss": record.test_loss,
            "test accuracy": record.test_accuracy,
            "seconds": record.seconds,
        }
        for record in result.curve
    ]
    say_table(rows, json)
    where = f", in {replaced} of {len(places)} places" if chosen is not None else ""
    best = "no epoch was completed" if result.accuracy is None else f"best test accuracy {result.accuracy:.4f}"
    say(f"{label}{where}: {best} on {dataset.name}, {result.parameters:,} parameters, {result.stopped}", json)
    write_json({"label": label, "data": dataset.name, "places": places, "training": result.to_dict()}, json)


def replace_convolutions(
    net: nn.Module, image_shape: tuple[int, int, int], operator: Operator
) -> tuple[nn.Module, list[dict[str, Any]]]:
    """A copy of ``net`` with ``operator`` in every place that it fits, and for each place whether and why not.

    Raises:
        SynoError: when it fits nowhere, with the reason at the first place.
    """
    from syno_lab.codegen.torch_module import to_torch
    from syno_lab.models.extraction import find_convolutions, replace_modules

    sites = find_convolutions(net, image_shape)
    modules: dict[str, nn.Module] = {}
    places: list[dict[str, Any]] = []
    for site in sites:
        try:
            modules[site.name] = to_torch(operator, _binding(operator, site))
            reason = None
        except SpecError as error:
            reason = str(error)
        places.append({"name": site.name, "sizes": site.mapping, "replaced": reason is None, "reason": reason})
    if not modules:
        raise SynoError(f"the operator fits none of the network's {len(places)} convolutions: {places[0]['reason']}")
    return replace_modules(net, modules), places


def _binding(operator: Operator, site: Site) -> dict[str, int]:
    """The operator's variables at a place of the network: a batch of 1, the place's sizes, the spec's defaults."""
    declared = set(operator.spec.symbols.names)
    sizes = {"N": 1, **site.mapping}
    bound = operator.complete_binding({name: number for name, number in sizes.items() if name in declared})
    wanted = (
        (1, site.in_channels, site.height, site.width),
        (1, site.out_channels, site.height, site.width),
    )
    found = (operator.input_sizes(bound), operator.output_sizes(bound))
    if found != wanted:
        raise SpecError(
            f"{site.name} needs an operator from {list(wanted[0])} to {list(wanted[1])}, "
            f"this one is from {list(found[0])} to {list(found[1])}"
        )
    return bound
