"""Make the request of a trial on a rung's proxy, and compute the reward of the trial.

A backbone declares its rungs (:attr:`syno_lab.models.registry.Backbone.proxies`). Rewards are measured on held-out
training images; the test images are for the finals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from syno_lab.errors import SpecError
from syno_lab.models.registry import backbone
from syno_lab.models.rungs import Rung
from syno_lab.store.outcomes import Measure
from syno_lab.trial.facts import CONTEXT, facts_of
from syno_lab.trial.request import TrialOutcome, TrialRequest

#: The default share of the training images that are held out, to measure rewards.
HOLDOUT = 0.2

#: The number of batches after which an operator's pace is measured. The time limit on a rung is a multiple of the
#: baseline's time, but not below a second, because libraries prepare the first batch.
PROBE_STEPS = 7
TIMES_THE_BASELINE = 2.0
LEAST_LIMIT_S = 1.0

#: Options that are not sizes: a rung's value always replaces the request's value.
_NO_SIZES = ("strides", "pointwise", "match", "leave", "kinds", "tokens", "dropout")


def rungs_of(request: TrialRequest) -> tuple[Rung, ...]:
    """Return the rungs of the request's backbone, the cheapest rung first and the network itself last.

    Raises SpecError if the backbone has no rungs.
    """
    rungs = backbone(request.backbone).proxies
    if not rungs:
        raise SpecError(
            f"expected a backbone with proxies, which rungs train, found {request.backbone}, which declares none; "
            "search without rungs, or declare proxies in its row of syno_lab.models.registry"
        )
    return rungs


def rung_request(request: TrialRequest, rung: Rung, *, seed: int = 0, baseline_s: float | None = None) -> TrialRequest:
    """Return the request that trains the operator of ``request`` on the rung, with the seed ``seed``.

    The trial is measured on held-out training images (by default a share of :data:`HOLDOUT`). No rule may end the trial
    early, because trials on a rung are compared only at the end. ``baseline_s`` has the seconds of the baseline's
    training on this rung (:attr:`.TrialOutcome.work_s`). An operator that takes :data:`TIMES_THE_BASELINE` times as
    long then ends as ``timeout`` after :data:`PROBE_STEPS` batches.

    Raises SpecError if the rung changes a field that requests do not have.
    """
    changes: dict[str, Any] = {"holdout": HOLDOUT if request.holdout is None else request.holdout, "seed": seed}
    if not rung.is_full:
        changes |= _smaller(request, rung)
    changes |= {"folds": None, "stopping": None, "rivals": [], "keep_predictions": False, "budget_s": None}
    if baseline_s is not None:
        limit = max(LEAST_LIMIT_S, TIMES_THE_BASELINE * baseline_s)
        changes |= {"time_limit_s": limit, "gives_up": True, "probe_steps": PROBE_STEPS}
    return msgspec.structs.replace(request, **changes)


def reward_of(measure: Measure, outcome: TrialOutcome) -> float:
    """Return the reward, from 0 to 1, of a training by a measure; higher is better; 0 for an unfinished training.

    A loss has the reward exp(-loss): 1 for a perfect prediction, 0.1 for a guess among ten classes.
    """
    if outcome.state != "finished":
        return 0.0
    if measure == "accuracy":
        return outcome.accuracy or 0.0
    loss = outcome.loss if measure == "loss" else outcome.train_loss
    return 0.0 if loss is None or not math.isfinite(loss) else math.exp(-max(0.0, loss))


def _smaller(request: TrialRequest, rung: Rung) -> dict[str, Any]:
    unknown = rung.changes.keys() - set(TrialRequest.__struct_fields__)
    if unknown:
        raise SpecError(f"rung {rung.name}: a request has no {', '.join(sorted(unknown))}")
    changes = dict(rung.changes)
    resolution = changes.get("resolution")
    if resolution is not None and (facts := facts_of(request)).domain == "images":
        changes["resolution"] = request.resolution if facts.size <= resolution else resolution
    changes["options"] = _options(request, rung.changes.get("options", {}))
    if request.steps is not None and "steps" in changes:
        changes["steps"] = min(request.steps, changes["steps"])
    return changes


def _options(request: TrialRequest, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request's options, with the rung's sizes where they are smaller than the request's."""
    usual: dict[str, Any] = {**backbone(request.backbone).options, "context": CONTEXT}
    merged = dict(request.options)
    for name, value in changes.items():
        before = merged.get(name, usual.get(name))
        if name in _NO_SIZES or before is None or value < before:
            merged[name] = value
    return merged
