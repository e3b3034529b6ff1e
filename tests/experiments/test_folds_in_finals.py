"""Finals on folds: finalists and baseline are tested once on every image, and the verdict is over all images."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from command_line import refused
from torch import nn

import syno_lab as sl
from syno_lab.errors import SearchError, SpecError
from syno_lab.experiments import run_here
from syno_lab.experiments.plan import FINALISTS, plan_for
from syno_lab.models.rungs import Rung
from syno_lab.reports.progress import progress_of
from syno_lab.store import Store
from syno_lab.store.rungs import FINAL, RIVALS
from syno_lab.trial import TrialOutcome, TrialRequest, run_trial
from syno_lab.trial.examples import batches_of, examples_of

FOLDS, SEEDS, IMAGES, STEP_S = 2, 2, 90, 0.05
SMALL: dict[str, Any] = {"epochs": 1, "batch_size": 32, "train_images": 60, "test_images": 30}


def make_model() -> nn.Module:
    layers = [nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(8, 8, 3, padding=1), nn.Flatten(), nn.Linear(512, 10))


class Clock:
    """A clock of trainings alone, which are real and take STEP_S for each batch."""

    def __init__(self) -> None:
        self.now = 0.0
        self.requests: list[TrialRequest] = []

    def __call__(self) -> float:
        return self.now

    def train(self, request: TrialRequest, *, folder: Path, **_: Any) -> TrialOutcome:
        self.requests.append(request)
        outcome = run_trial(request, folder=folder)
        steps = (
            request.steps or request.epochs * batches_of(msgspec.structs.replace(request, fold=request.folds and 1))[0]
        )
        took = STEP_S * steps * (request.folds or 1)
        self.now += took
        return msgspec.structs.replace(outcome, work_s=took, wall_s=took, cpu_s=took)


def test_the_finals_of_improve_test_every_image_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("syno_lab.experiments.improve.run_here", partial(run_here, clock=clock))
    monkeypatch.setattr("syno_lab.experiments.job._in_this_process", clock.train)
    said: list[str] = []
    how: dict[str, Any] = SMALL | {"folds": FOLDS, "seeds": SEEDS, "anyway": True, "folder": tmp_path}
    for minutes in (0.1, 0.2):  # so few minutes may end before the finals, and more go on
        found = sl.improve(make_model, "digits", minutes=minutes, say=said.append, **how)
        if found.operators and found.result["comparisons"]:
            break
    assert any(line.startswith(f"{IMAGES} images, 8x8, 10 classes, {FOLDS} folds, 45/45, ") for line in said)
    finals = [request for request in clock.requests if request.keep_predictions]
    assert {request.folds for request in finals} == {FOLDS}
    assert {request.holdout for request in finals} == {None}
    assert {request.folds for request in clock.requests if not request.keep_predictions} == {None}

    # The verdict's difference is that of the right answers to all images, in the order of the folds.
    (one, *_) = found.result["comparisons"].values()
    with Store.look(tmp_path) as store:
        rows = store.searches()[0].rungs.trainings(FINAL)
    outcomes = {(row.number, row.seed): TrialOutcome.from_dict(row.outcome) for row in rows if row.is_ended}
    labels = examples_of(found.settings.training).test_labels
    assert len(labels) == IMAGES == one["examples"]

    def right(number: int) -> Any:
        return [np.array(outcomes[number, seed].predictions) == labels for seed in one["seeds"]]

    difference = 100 * (np.mean(right(found.best)) - np.mean(right(-1)))
    assert f", {difference:+.1f} points (95% interval " in found.verdict
    assert re.search(rf"; {len(one['seeds'])} seeds? on {FOLDS} folds, {IMAGES} test examples\)", found.verdict)
    assert all(len(outcome.by_fold or ()) == FOLDS for outcome in outcomes.values())
    # The plan counts each fold as a training, and the patched network is one network, trained without folds.
    progress = progress_of(found.result, "improve")
    assert progress is not None
    planned = {part.name: part.trainings for part in progress.plan}
    assert (planned["baseline"], planned["finals"]) == (SEEDS * FOLDS, SEEDS * FOLDS * FINALISTS)
    assert repr(found) == f"Improvement({found.verdict}; {found.folder})"
    assert found.trained()(torch.zeros(1, 1, 8, 8)).shape == (1, 10)


def test_the_plan_pays_for_each_fold_or_names_the_minutes_that_do() -> None:
    rungs, each_s = (Rung("network"),), {"network": 6.0, FINAL: 5.0}
    plan = plan_for(30, 2, rungs, each_s, SEEDS, 6)
    counts = {part.name: (part.trainings, part.each_s) for part in plan.parts}
    assert counts["baseline"] == (SEEDS * 6, 5)
    assert counts["finals"] == (SEEDS * 6 * FINALISTS, 7)
    assert counts[RIVALS] == (3 * 6, 7)
    assert plan.minutes == pytest.approx(30)
    with pytest.raises(SearchError, match=r"^minutes: expected at least [\d.]+, found 1: .*2 seeds on 6 folds") as few:
        plan_for(1, 2, rungs, each_s, SEEDS, 6)
    assert str(few.value).endswith("give --minutes more, or --seeds or --folds fewer")
    needed = float(str(few.value).split("at least ")[1].split(",")[0])
    exact = SEEDS * 6 * 5 * (1 + 1.4 * FINALISTS) / 0.6 / 2 / 60
    assert abs(needed - exact) <= 0.05


def test_folds_that_no_finals_use_are_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search = ("search", "--data", "digits", "--folds", "3", "--folder", str(tmp_path))
    for more in (
        ["--trials", "2"],
        ["--untrained"],
        ["--minutes", "1", "--seeds", "0"],
        ["--minutes", "1", "--no-rungs"],
    ):
        line = refused(capsys, *search, *more)
        assert "folds: expected a search in rungs with seeds for its finals" in line
    pairs = torch.utils.data.TensorDataset(torch.zeros(40, 1, 8, 8), torch.arange(40) % 10)
    with pytest.raises(SpecError, match="folds: expected CIFAR, digits or images in class folders, found data of your"):
        sl.improve(make_model, (pairs, pairs), minutes=1, folder=tmp_path, folds=3)
