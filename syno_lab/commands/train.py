"""``syno-lab train``: train a network with operators in place of convolutions or projections, all in the same way."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from syno_lab.commands.detach import DetachOption, detach_all
from syno_lab.commands.operands import OPERATOR, complete_operator, load_operator
from syno_lab.commands.options import Built, DataOption, Rule, whole_path
from syno_lab.commands.output import Reporter, say, say_table, write_json
from syno_lab.errors import DataError, SpecError, SynoError
from syno_lab.scratch import scratch
from syno_lab.settings import TrialSettings
from syno_lab.store.verdicts import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from syno_lab.trial import TrialRequest
    from syno_lab.trial.stage import Stage

BASELINE = "baseline"
_USABLE = ("finished", "pruned", "timeout")


def command(
    operators: Annotated[
        list[str],
        typer.Argument(
            help=f"{OPERATOR}, or 'baseline' for the network as it is; several may be given.",
            autocompletion=complete_operator,
        ),
    ],
    *,
    backbone: Annotated[
        str | None,
        typer.Option(help="A network of `syno-lab backbone`. [default: a ResNet of 8 layers; of a text, gpt_tiny]"),
    ] = None,
    data: DataOption = None,
    training: TrialSettings,
    built: Built,
    download: Annotated[bool, typer.Option("--download", help="Download CIFAR-10 first if it is missing.")] = False,
    patience: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many epochs without a better test.")
    ] = None,
    stop_early: Annotated[
        Rule | None, typer.Option(help="Prune a training that falls behind earlier ones, by this rule.")
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, max=10_000, help="Train each operator on so many seeds, from --seed on.")
    ] = 1,
    against_baseline: Annotated[
        bool,
        typer.Option("--against-baseline", help="Train the baseline too, and give the difference."),
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

    Without --backbone the network is a ResNet of 8 layers for images, 16 channels wide, or a tiny GPT for a text. A
    layer that the operator does not fit stays.
    """
    if detach and (against_baseline or stop_early is not None):
        raise SynoError("--detach: expected independent trainings; leave --against-baseline and --stop-early out")
    loaded = _loaded(operators, folder if detach else None)
    with Reporter() as report, ExitStack() as stack:
        path = _data(data, download, report)
        from syno_lab.data.datasets import DIGITS
        from syno_lab.data.text import is_text_file
        from syno_lab.trial import TrialRequest, places_of, run_stage

        is_text = path != DIGITS and is_text_file(path)
        is_small = backbone is None and not is_text
        base = TrialRequest(
            **msgspec.structs.asdict(training),
            backbone=backbone or ("gpt_tiny" if is_text else "resnet20"),
            options=({"width": 16, "blocks": 1} if is_small else {}) | built.options(),
            data=path,
            precision=built.precision_on(training.device),
            stopping=_rule(patience, stop_early),
        )
        numbers = range(training.seed, training.seed + seeds)
        if detach:
            _submit(loaded, base, numbers, folder)
            return
        where = folder or stack.enter_context(scratch("syno-train-"))
        stage = run_stage(
            loaded,
            base,
            numbers,
            folder=where,
            against_baseline=against_baseline,
            report=lambda fraction, message: report("train", fraction, message),
        )
    if not any(t.outcome.state in _USABLE for t in stage.trials):
        raise SynoError("; ".join(f"{t.label}: {t.outcome.state}: {t.outcome.reason}" for t in stage.trials))
    _say(base, stage)
    trials = [
        {"label": t.label, **t.outcome.to_dict(), "sites": [place.to_dict() for place in places_of(t.request)]}
        for t in stage.trials
    ]
    comparisons = [{"label": label, **comparison.to_dict()} for label, comparison in stage.comparisons.items()]
    write_json({"request": base.to_dict(), "trials": trials, "comparisons": comparisons})


def _submit(operators: Mapping[str, str | None], base: TrialRequest, seeds: range, folder: Path | None) -> None:
    """Submit each training as a separate job. Jobs run in another folder, so the path of the data must be absolute."""
    from syno_lab.trial import costs_of

    data = whole_path(base.data)
    jobs = []
    for label, operator in operators.items():
        request = msgspec.structs.replace(base, operator=operator, data=data)
        try:
            costs_of(request)
        except SpecError as error:
            raise SpecError(f"{label}: {error}") from None
        for seed in seeds:
            params = msgspec.structs.replace(request, seed=seed).to_dict()
            jobs.append(("train", params, label if len(seeds) == 1 else f"{label}, seed {seed}"))
    detach_all(jobs, folder)


def _loaded(names: Iterable[str], folder: Path | None) -> dict[str, str | None]:
    """Return operators as JSON by label, in order; operators with equal labels get numbers."""
    texts: dict[str, str | None] = {}
    for name in names:
        if name == BASELINE:
            texts[BASELINE] = None
            continue
        label, operator, _ = load_operator(name, folder, besides=[BASELINE])
        copies = 1 + sum(known == label or known.startswith(f"{label} (") for known in texts)
        texts[label if copies == 1 else f"{label} ({copies})"] = operator.to_json()
    return texts


def _data(data: str | None, download: bool, report: Reporter) -> str:
    """Return the path of the data; download them first if the user asks for it."""
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


def _rule(patience: int | None, stop_early: Rule | None) -> dict[str, str | int] | None:
    if patience is not None and stop_early is not None:
        raise SpecError("expected --patience or --stop-early, found both")
    if patience is not None:
        return {"rule": "patience", "patience": patience}
    return None if stop_early is None else {"rule": stop_early}


def _say(request: TrialRequest, stage: Stage) -> None:
    from syno_lab.trial.examples import plan_of_data

    for line in (f"{request.backbone} on {request.data}", *plan_of_data(request)):
        say(line)
    outcomes = [(trial.label, trial.outcome) for trial in stage.trials]
    is_text = any(outcome.perplexity is not None for _, outcome in outcomes)
    say_table(
        [
            {
                "operator": label,
                "seed": outcome.seed,
                "places": f"{outcome.replaced} of {outcome.places}",
                "FLOPs": outcome.flops,
                "parameters": outcome.params,
                **(
                    {"perplexity": outcome.perplexity, "per byte": outcome.perplexity_per_byte}
                    if is_text
                    else {"accuracy": outcome.accuracy}
                ),
                **({} if request.folds is None else {"standard error": outcome.standard_error}),
                "epochs": len(outcome.curve),
                "seconds": outcome.wall_s,
                "MiB": outcome.peak_mib,
                "ended": outcome.state + (f": {outcome.reason}" if outcome.reason else ""),
            }
            for label, outcome in outcomes
        ]
    )
    for label, diff in stage.comparisons.items():
        say(f"{label}, {diff.flops_ratio:.3f} of the FLOPs: {sentence(diff)}")
