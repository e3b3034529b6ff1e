"""Trainings of the baseline before a search trains operators: they show which differences its finals can detect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from syno_lab.errors import SearchError
from syno_lab.experiments.settings import SearchSettings
from syno_lab.reports.searched import Evidence
from syno_lab.trial import TrialOutcome
from syno_lab.trial.compare import guess_of, is_guess, least_difference, scores_of

#: The number of trainings of the baseline before any operator is trained: two show the effect of another seed.
FIRST_TRAININGS = 2
#: A search is refused if its finals cannot detect this difference, in percentage points (for a text: nat / 100).
MOST_POINTS = 10.0


def evidence_of(settings: SearchSettings, baselines: Sequence[TrialOutcome]) -> Evidence | None:
    """Return the evidence from trainings of the baseline on seeds of the finals; None unless all have finished."""
    if not baselines or any(outcome.state != "finished" for outcome in baselines):
        return None
    request = settings.training
    scores, labels = scores_of(request, baselines)
    value, count, chance = float(scores.mean()), scores.shape[1], guess_of(request, labels)
    name, sign = ("accuracy", 1) if labels is not None else ("test_loss", -1)
    curves = [[row[name] for row in outcome.curve if name in row] for outcome in baselines]
    third = min(map(len, curves)) // 3
    return Evidence(
        measure="accuracy" if labels is not None else "loss",
        value=value,
        chance=chance,
        is_at_chance=is_guess(value, chance, labels),
        gain=fmean(sign * (curve[-1] - curve[-1 - third]) for curve in curves) if third else None,
        least=least_difference(scores, len(settings.seeds)),
        examples=count,
        seeds=len(settings.seeds),
        trainings=len(baselines),
    )


def check(settings: SearchSettings, evidence: Evidence | None, baselines: Sequence[TrialOutcome]) -> None:
    """Raise SearchError if a baseline has not finished, or if there is a :func:`hindrance`; not with ``anyway``."""
    line = "" if evidence is None else hindrance(settings, evidence)
    for failed in (outcome for outcome in baselines if outcome.state != "finished"):
        line = f"expected the baseline to be trained to its end, found {failed.state}: {failed.reason}"
    if line and not settings.anyway:
        raise SearchError(f"{line}; to search all the same, give --anyway (anyway=True in Python)")


def hindrance(settings: SearchSettings, evidence: Evidence) -> str:
    """Return why the finals can compare no operators, and the remedy, in one line; empty where they can."""
    request = settings.training
    longer = f"epochs={4 * request.epochs}" if request.steps is None else f"steps={4 * request.steps}"
    if evidence.is_at_chance:
        return (
            f"the baseline is not measurably better than a guess: {evidence.measure} {evidence.value:.3f}, chance "
            f"{evidence.chance:.3f}; use {longer}, or another learning rate"
        )
    points = 100 * evidence.least
    if points <= MOST_POINTS:
        return ""
    unit = "points" if evidence.measure == "accuracy" else "hundredths of a nat"
    examples = 10 * math.ceil(evidence.examples * (points / MOST_POINTS) ** 2 / 10)
    return (
        f"{evidence.examples} test examples on {evidence.seeds} seeds detect no difference below {points:.0f} {unit}; "
        + ("use " if evidence.is_finished else f"use {longer}, ")
        + f"{examples} test examples or more seeds"
    )
