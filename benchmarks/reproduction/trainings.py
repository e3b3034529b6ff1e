"""The trainings of Figures 5, 6, 8 and 10: searches, and the networks that are compared."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from reproduction.items import Work
from reproduction.scale import SLOWER, Options, Scale
from syno_lab.errors import SearchError, SpecError, TrainingError
from syno_lab.experiments.job import run_here
from syno_lab.experiments.settings import DEFAULT_SYSTEM, DERIVED, SearchSettings
from syno_lab.reports.searched import searched
from syno_lab.systems import find_system
from syno_lab.trial import TrialOutcome, TrialRequest, full_costs_of, run_trial
from syno_lab.trial.request import ENDLESS

BASELINE = "baseline"
#: Operators of the paper that are trained beside the ones that the search finds.
KNOWN = ("operator_1", "operator_2", "stacked_grouped_convolution")
#: In the place of a language model's projections, beside what the search finds.
KNOWN_LINEAR = "grouped_linear"
#: An operator may take this share of the FLOPs of the layers that it replaces.
_FLOPS = 0.5
_HELD_OUT = 0.1
#: A training of a search may take so many times as long as the baseline's.
_PATIENCE = 4.0
_PROBED_STEPS = (2, 4, 44)


def image_request(options: Options, scale: Scale) -> TrialRequest:
    """The baseline's training on the images."""
    return TrialRequest(
        backbone="resnet20",
        options=dict(scale.options),
        data=options.data,
        batch_size=scale.batch_size,
        steps=scale.steps,
    )


def text_request(options: Options, seconds: float) -> TrialRequest:
    """The training of the language model for so many seconds (Syno, section 9.3: 30 minutes)."""
    if options.text is None:
        raise SpecError("text: expected a text file for the language model, found none")
    return TrialRequest(
        backbone="gpt_tiny",
        options={"width": 64, "layers": 2, "steps": 50},
        data=options.text,
        batch_size=32,
        test_images=256,
        epochs=ENDLESS,
        budget_s=seconds,
    )


def step_seconds(request: TrialRequest, folder: Path) -> float:
    """Seconds of one batch of a training here: of two short ones the difference, after one that warms up."""
    _, few, many = (
        _trained(msgspec.structs.replace(request, steps=steps, test_images=64), folder / f"{steps}-batches").wall_s
        for steps in _PROBED_STEPS
    )
    return max(1e-3, (many - few) / (_PROBED_STEPS[2] - _PROBED_STEPS[1]))


def _trained(request: TrialRequest, folder: Path) -> TrialOutcome:
    outcome = run_trial(request, folder=folder)
    if outcome.state != "finished":
        raise TrainingError(f"{request.backbone} on {request.data}: expected a training, found: {outcome.reason}")
    return outcome


# -- searches --------------------------------------------------------------------------------------------------------


def search(options: Options, scale: Scale, work: Work, step_s: float) -> dict[str, Any]:
    """A search on the images: its best operators within shares of the replaced FLOPs."""
    request = msgspec.structs.replace(
        image_request(options, scale),
        steps=scale.search_steps,
        holdout=_HELD_OUT,
        time_limit_s=max(20.0, _PATIENCE * SLOWER * step_s * scale.search_steps),
    )
    return _searched("images", request, scale.search_s, options, work)


def text_search(options: Options, scale: Scale, work: Work) -> dict[str, Any]:
    """A search for the language model's projections; each training has a sixteenth of the time."""
    if options.text is None:
        return {"left_out": "no text was given"}
    request = text_request(options, max(1.0, scale.text_search_s / 16))
    request = msgspec.structs.replace(request, holdout=_HELD_OUT)
    return _searched("text", request, scale.text_search_s, options, work)


def _searched(name: str, request: TrialRequest, seconds: float, options: Options, work: Work) -> dict[str, Any]:
    settings = SearchSettings(
        training=request,
        name=name,
        minutes=seconds / 60,
        seed=options.seed,
        max_replaced_ratio=_FLOPS,
        max_traffic_ratio=4.0,
        seeds=(),
        limits={"max_primitives": 10},
        weight_limits="primary",
        wants=DERIVED,
    )
    try:
        result = searched(run_here(settings, work.folder, report=work.report, should_stop=work.should_stop))
    except SearchError as error:
        return {"trials": 0, "found": [], "reason": str(error)}
    best = {one.number: one for one in result.best.values() if one is not None}
    found = [
        {"label": f"found, trial {number}", "operator": one.operator, "flops_ratio": one.flops_ratio}
        | {"accuracy": one.accuracy, "params_ratio": None}
        for number, one in best.items()
    ]
    return {
        "trials": result.trials,
        "states": result.states,
        "minutes": settings.minutes,
        "training": {key: value for key, value in request.to_dict().items() if key not in ("data", "rivals")},
        "found": found,
    }


# -- networks --------------------------------------------------------------------------------------------------------


def compared(found: dict[str, Any], known: tuple[str, ...] = KNOWN) -> dict[str, str | None]:
    """The operators to compare by label, as JSON: the baseline (None), known ones, those that a search found."""
    made = find_system(DEFAULT_SYSTEM).known
    operators: dict[str, str | None] = {BASELINE: None}
    operators |= {name: made[name]().to_json() for name in known}
    return operators | {one["label"]: one["operator"] for one in found.get("found", ())}


def accuracy(options: Options, scale: Scale, work: Work, found: dict[str, Any]) -> dict[str, Any]:
    """The accuracy on the test images of the baseline and of each operator, alike in everything, for each seed."""
    rows: list[dict[str, Any]] = []
    operators = compared(found)
    total = len(operators) * scale.seeds
    tested: int | None = None
    for label, operator in operators.items():
        request = msgspec.structs.replace(image_request(options, scale), operator=operator, keep_predictions=True)
        try:
            costs = full_costs_of(request)
        except SpecError as error:
            rows.append({"label": label, "accuracies": {}, "reason": str(error)})
            continue
        accuracies: dict[str, float] = {}
        reasons = []
        for seed in range(scale.seeds):
            one = msgspec.structs.replace(request, seed=seed)
            done = len(rows) * scale.seeds + seed
            outcome = work.item(f"{label}, seed {seed}", partial(_run, one, work, done, total))
            if outcome["state"] == "finished":
                accuracies[str(seed)] = outcome["accuracy"]
                tested = outcome.get("tested", tested)
            else:
                reasons.append(f"seed {seed}: {outcome['state']}: {outcome['reason']}")
        row: dict[str, Any] = {"label": label, "accuracies": accuracies, "reason": "; ".join(reasons)}
        row |= {"flops": costs.flops, "params": costs.params, "replaced": costs.replaced, "places": costs.places}
        rows.append(row)
    kept = {"steps": scale.steps, "batch_size": scale.batch_size, "seeds": scale.seeds, "options": scale.options}
    about = {"backbone": "resnet20", "data": Path(options.data).name, "test_images": tested}
    return {**about, **kept, "rows": rows}


def text(options: Options, scale: Scale, work: Work, found: dict[str, Any]) -> dict[str, Any]:
    """Perplexity against steps of the language model as it is and with operators, each trained for equal seconds."""
    if options.text is None:
        return {"left_out": "no text was given"}
    request = text_request(options, scale.text_s)
    trials = []
    operators = dict(list(compared(found, (KNOWN_LINEAR,)).items())[:3])
    for number, (label, operator) in enumerate(operators.items()):
        one = msgspec.structs.replace(request, operator=operator)
        outcome = work.item(label, partial(_run, one, work, number, len(operators)))
        trials.append({"name": label, "seed": 0, **outcome})
    settings = {"options": request.options, "budget_s": scale.text_s, "data": Path(options.text).name}
    return {"settings": settings, "trials": trials}


def _run(request: TrialRequest, work: Work, done: int, total: int) -> dict[str, Any]:
    """One training; its checkpoints are kept while it runs, so that a second attempt goes on."""
    folder = work.folder / f"training-{done}"
    outcome = run_trial(
        request,
        folder=folder,
        report=lambda fraction, message: work.report((done + fraction) / total, message),
        should_stop=work.should_stop,
    )
    kept = ("epoch", "accuracy", "perplexity")
    curve = [{key: round(row[key], 5) for key in kept if key in row} for row in outcome.curve]
    return {
        "state": outcome.state,
        "reason": outcome.reason,
        "accuracy": outcome.accuracy,
        "perplexity": outcome.perplexity,
        "perplexity_per_byte": outcome.perplexity_per_byte,
        "flops": outcome.flops,
        "params": outcome.params,
        "wall_s": outcome.wall_s,
        "curve": curve,
        "tested": None if outcome.predictions is None else len(outcome.predictions),
    }
