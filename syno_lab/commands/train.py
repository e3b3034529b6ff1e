"""``syno-lab train``: trains a network with operators instead of its convolutions or projections, each alike."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from syno_lab.commands.detach import DetachOption, detach_all
from syno_lab.commands.helping import complete_operator
from syno_lab.commands.operands import load_operator
from syno_lab.commands.options import backbone_options, flag
from syno_lab.commands.output import Reporter, say, say_table, write_json
from syno_lab.errors import DataError, SpecError, SynoError
from syno_lab.scratch import scratch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from syno_lab.trial import TrialRequest

BASELINE = "baseline"
_USABLE = ("finished", "pruned", "timeout")


#: The precision of matrix products and convolutions; ``fastest`` is measured on the processor.
Precision = Literal["float32", "bfloat16", "float16", "fastest"]


def precision_of(chosen: Precision, device: str) -> Literal["float32", "bfloat16", "float16"]:
    """The precision that a request has."""
    if chosen != "fastest":
        return chosen
    from syno_lab.training.precision import fastest_precision

    return fastest_precision(device)


#: The changes of training images.
Augment = Literal["none", "crop", "resized-crop"]


#: The rules for early termination.
Rule = Literal["canvas", "median", "percentile", "halving"]


def command(
    operators: Annotated[
        list[str],
        typer.Argument(
            help="Known operators' names, operator files, or 'baseline' for the network as it is.",
            autocompletion=complete_operator,
        ),
    ],
    backbone: Annotated[
        str | None,
        typer.Option(help="A network of `syno-lab backbone`. [default: a ResNet of 8 layers; of a text, gpt_tiny]"),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="A folder with CIFAR or with images in class folders, a text file, or 'digits'. "
            "[default: $SYNO_LAB_DATA, else digits]"
        ),
    ] = None,
    download: Annotated[bool, typer.Option("--download", help="Download CIFAR-10 first if it is missing.")] = False,
    resolution: Annotated[int | None, typer.Option(min=1, help="Scale images to this height and width.")] = None,
    train_images: Annotated[int | None, typer.Option(min=1, help="Train on the first so many images.")] = None,
    test_images: Annotated[
        int | None, typer.Option(min=1, help="Test on the first so many images, or windows of a text.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1)] = 3,
    batch_size: Annotated[int, typer.Option(min=1)] = 64,
    learning_rate: Annotated[
        float | None, typer.Option(help="The highest learning rate of the cycle. [default: 0.1; for a text, 0.001]")
    ] = None,
    patience: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many epochs without a better test.")
    ] = None,
    stop_early: Annotated[
        Rule | None, typer.Option(help="Prune a training that falls behind earlier ones, by this rule.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="The most seconds of a training; a longer one ends as a timeout.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Seconds after which a training stops and is tested.")] = None,
    augment: Annotated[
        Augment | None,
        typer.Option(
            help="Changes of training images: shifted and mirrored, or a part of each scaled and mirrored. [default: "
            "crop for CIFAR, resized-crop for folders that are too large to be held in memory, else none]"
        ),
    ] = None,
    width: Annotated[int | None, typer.Option(min=1, help="Channels of the network. [default: its own, or 16]")] = None,
    blocks: Annotated[int | None, typer.Option(min=1, help="Residual blocks in each stage. [default: 1]")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="Another option of the network, as in layers=2, context=128, tokens=bpe, strides=shape."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    seeds: Annotated[
        int, typer.Option(min=1, max=10_000, help="Train each operator on so many seeds, from --seed on.")
    ] = 1,
    against_baseline: Annotated[
        bool,
        typer.Option("--against-baseline", help="Train the baseline too, and give the difference."),
    ] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, …")] = "cpu",
    precision: Annotated[Precision, typer.Option()] = "float32",
    steps: Annotated[
        int | None, typer.Option(min=1, help="Train for so many batches and then measure, instead of --epochs.")
    ] = None,
    holdout: Annotated[
        float | None,
        typer.Option(help="Hold this share of the training images out and measure on them, not on the test images."),
    ] = None,
    channels_last: Annotated[
        bool, flag("--channels-last", "Keep images in memory with the channels last, which is faster on most CPUs.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="The folder for checkpoints and outcomes; the same command again continues from them. "
            "With --detach, the lab's folder."
        ),
    ] = None,
    detach: DetachOption = False,
) -> None:
    """Train a network for images or text in which an operator replaces the convolutions or projections.

    Without --backbone the network is a ResNet of 8 layers for images, or a tiny GPT for a text. A layer whose sizes the
    operator cannot have stays.
    """
    if detach and (against_baseline or stop_early is not None):
        raise SynoError("--detach: expected independent trainings; leave --against-baseline and --stop-early out")
    loaded = _loaded(operators)
    with Reporter() as report, ExitStack() as stack:
        place = _data(data, download, report)
        from syno_lab.data.datasets import DIGITS
        from syno_lab.data.text import is_text_file
        from syno_lab.trial import TrialRequest, places_of, run_stage

        is_text = place != DIGITS and is_text_file(place)
        options = _options(option or [], width, blocks, is_default=backbone is None and not is_text)
        base = TrialRequest(
            backbone=backbone or ("gpt_tiny" if is_text else "resnet20"),
            options=options,
            data=place,
            resolution=resolution,
            train_images=train_images,
            test_images=test_images,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            device=device,
            precision=precision_of(precision, device),
            steps=steps,
            holdout=holdout,
            channels_last=channels_last,
            time_limit_s=time_limit,
            budget_s=budget,
            augment=augment,
            stopping=_rule(patience, stop_early),
        )
        if detach:
            _submit(loaded, base, range(seed, seed + seeds), folder)
            return
        where = folder or stack.enter_context(scratch("syno-train-"))
        stage = run_stage(
            loaded,
            base,
            range(seed, seed + seeds),
            folder=where,
            against_baseline=against_baseline,
            report=lambda fraction, message: report("train", fraction, message),
        )
        trials = [
            {
                "label": trial.label,
                **trial.outcome.to_dict(),
                "sites": [place.to_dict() for place in places_of(trial.request)],
            }
            for trial in stage.trials
        ]
    comparisons = [{"label": label, **found.to_dict()} for label, found in stage.comparisons.items()]
    if not any(trial["state"] in _USABLE for trial in trials):
        raise SynoError("; ".join(f"{trial['label']}: {trial['state']}: {trial['reason']}" for trial in trials))
    _say(base, trials, comparisons)
    write_json({"request": base.to_dict(), "trials": trials, "comparisons": comparisons})


def _submit(operators: Mapping[str, str | None], base: TrialRequest, seeds: Iterable[int], folder: Path | None) -> None:
    """Each training as its own job. It runs in another folder, so the path of its data must be absolute."""
    from syno_lab.data.datasets import DIGITS
    from syno_lab.trial import costs_of

    data = base.data if base.data == DIGITS else str(Path(base.data).expanduser().absolute())
    numbers = list(seeds)
    jobs = []
    for label, operator in operators.items():
        request = msgspec.structs.replace(base, operator=operator, data=data)
        try:
            costs_of(request)
        except SpecError as error:
            raise SpecError(f"{label}: {error}") from None
        for seed in numbers:
            params = msgspec.structs.replace(request, seed=seed).to_dict()
            jobs.append(("train", params, label if len(numbers) == 1 else f"{label}, seed {seed}"))
    detach_all(jobs, folder)


def _loaded(names: Iterable[str]) -> dict[str, str | None]:
    """Operators as JSON by label, in order; files of one name in several folders are told apart by numbers."""
    found: dict[str, str | None] = {}
    for name in names:
        if name == BASELINE:
            found[BASELINE] = None
            continue
        label, operator = load_operator(name, besides=[BASELINE])
        copies = 1 + sum(known == label or known.startswith(f"{label} (") for known in found)
        found[label if copies == 1 else f"{label} ({copies})"] = operator.to_json()
    return found


def _data(data: str | None, download: bool, report: Reporter) -> str:
    """The path of the data, downloaded first if the user asks for it."""
    from syno_lab.data.datasets import DATA_VARIABLE, DIGITS, data_path, load_dataset

    named = data or os.environ.get(DATA_VARIABLE) or DIGITS
    if download:
        report("data", 0.0, "fetching images")
        dataset = load_dataset(
            data,
            download=True,
            progress=lambda done, total: report("data", done / total if total else 0.0, f"{done:,} bytes"),
        )
        report("data", 1.0, f"{dataset.name} in {dataset.source}")
        return dataset.source
    if not data and named != DIGITS and not data_path(named).exists():
        raise DataError(
            f"expected a data folder at {named}, found nothing there (the path comes from the environment variable "
            f"{DATA_VARIABLE})"
        )
    return named


def _options(texts: Iterable[str], width: int | None, blocks: int | None, *, is_default: bool) -> dict[str, Any]:
    """The backbone's options; of the default one, width 16 and a single block."""
    options: dict[str, Any] = {"width": 16, "blocks": 1} if is_default else {}
    options |= {name: value for name, value in (("width", width), ("blocks", blocks)) if value is not None}
    return options | backbone_options(texts)


def _rule(patience: int | None, stop_early: Rule | None) -> dict[str, Any] | None:
    if patience is not None and stop_early is not None:
        raise SpecError("expected --patience or --stop-early, found both")
    if patience is not None:
        return {"rule": "patience", "patience": patience}
    return None if stop_early is None else {"rule": stop_early}


def _say(request: TrialRequest, trials: list[dict[str, Any]], comparisons: list[dict[str, Any]]) -> None:
    from syno_lab.trial.examples import plan_of_images

    for line in (f"{request.backbone} on {request.data}", *plan_of_images(request)):
        say(line)
    measure = "perplexity" if any(trial["perplexity"] is not None for trial in trials) else "accuracy"
    say_table(
        [
            {
                "operator": trial["label"],
                "seed": trial["seed"],
                "places": f"{trial['replaced']} of {trial['places']}",
                "FLOPs": trial["flops"],
                "parameters": trial["params"],
                measure: trial[measure],
                **({"per byte": trial["perplexity_per_byte"]} if measure == "perplexity" else {}),
                "epochs": len(trial["curve"]),
                "seconds": trial["wall_s"],
                "MiB": trial["peak_mib"],
                "ended": trial["state"] + (f": {trial['reason']}" if trial["reason"] else ""),
            }
            for trial in trials
        ]
    )
    for one in comparisons:
        interval = one["interval"]
        say(
            f"{one['label']} - baseline: {one['measure']} {interval['difference']:+.4f}, "
            f"{interval['confidence']:.0%} interval {interval['low']:+.4f} to {interval['high']:+.4f} "
            f"(over the test examples, {len(one['seeds'])} seeds), {one['flops_ratio']:.3f} of the FLOPs"
        )
