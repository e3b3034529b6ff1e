"""A story of a first day: a folder of pictures becomes an operator of one's own; each sentence on the way is true."""

from __future__ import annotations

import re
import runpy
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from command_line import answered
from PIL import Image
from syno_widgets import Compare
from torch import nn

import syno_lab as sl
from syno_lab.experiments import run_here
from syno_lab.inputs import count_of
from syno_lab.store import Store
from syno_lab.store.rungs import BASELINE, FINAL
from syno_lab.systems import named
from syno_lab.trial import TrialOutcome, TrialRequest, run_trial

TRAIN, TEST, SIZE = 32, 16, 8
EACH_S = 0.25


class Net(nn.Module):
    """Three convolutions and a head, for pictures of three channels."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Conv2d(n, 8, 3, padding=1) for n in (3, 8, 8))
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.c(self.b(self.a(x).relu()).relu()).relu().mean((2, 3)))
        return out


class Clock:
    """A clock of trainings alone, which are real and take EACH_S each: the machine's load changes no plan."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def train(self, request: TrialRequest, *, folder: Path, **_: Any) -> TrialOutcome:
        outcome = run_trial(request, folder=folder)
        self.now += EACH_S
        return msgspec.structs.replace(outcome, work_s=EACH_S, wall_s=EACH_S, cpu_s=EACH_S)


def draw_pictures(folder: Path) -> None:
    """Stripes across or down, with noise."""
    rng = np.random.default_rng(33)
    for part, count in (("train", TRAIN), ("test", TEST)):
        for name, axis in (("across", 0), ("down", 1)):
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                wave = 127 + 90 * np.sin(np.arange(SIZE) * 2.1 + rng.uniform(0, 6))
                picture = np.broadcast_to(np.expand_dims(wave, 1 - axis)[..., None], (SIZE, SIZE, 3))
                noisy = np.clip(picture + rng.normal(0, 40, picture.shape), 0, 255).astype(np.uint8)
                Image.fromarray(noisy).save(folder / part / name / f"{number}.png")


def finals_of(lab: Path, number: int) -> dict[int, float]:
    """The accuracies of a trial in the finals by seed."""
    with Store.look(lab) as store:
        (log,) = store.searches()
        ended = [one for one in log.rungs.trainings(FINAL) if one.number == number and one.is_ended]
    return {one.seed: float(one.outcome["accuracy"]) for one in ended}  # type: ignore[arg-type]


def trainings_of(lab: Path) -> set[tuple[str, str, int, str]]:
    """The ended trainings: the operator, the rung, the seed and the time of the end."""
    with Store.look(lab) as store:
        (log,) = store.searches()
        names = {trial.number: trial.operator for trial in log.trials()}
        ended = [one for one in log.rungs.trainings() if one.is_ended]
    return {(names.get(one.number, ""), one.rung, one.seed, str(one.ended)) for one in ended}


@pytest.mark.timeout(900)
def test_from_a_folder_of_pictures_to_an_operator_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    monkeypatch.setattr("syno_lab.experiments.improve.run_here", partial(run_here, clock=clock))
    monkeypatch.setattr("syno_lab.experiments.job._in_this_process", clock.train)
    draw_pictures(tmp_path / "pictures")
    lab = tmp_path / "lab"
    said: list[str] = []

    def improve(minutes: float) -> Any:
        said.clear()
        how: dict[str, Any] = {"epochs": 2, "batch_size": 32, "seeds": 2, "anyway": True}
        return sl.improve(Net, str(tmp_path / "pictures"), minutes=minutes, folder=lab, say=said.append, **how)

    # Folder and search: the first line is what the folder has, at its own size.
    for minutes in (0.15, 0.2, 0.3):  # so few minutes may end before the finals, and more go on
        found = improve(minutes)
        if found.operators and finals_of(lab, found.best):
            break
    assert f"{2 * (TRAIN + TEST)} images, {SIZE}x{SIZE}, 2 classes, {2 * TRAIN}/{2 * TEST}, 2 batches an epoch" in said
    assert any("2 of 4 layers are replaced" in line and line.endswith(": b, c") for line in said), said
    baseline = finals_of(lab, BASELINE)
    (evidence,) = (line for line in said if line.startswith("the baseline: accuracy "))
    assert ", chance 0.500; " in evidence
    assert f"{2 * TEST} test examples and 2 seeds can tell " in evidence

    # Verdict: its numbers are those of the trainings in the store.
    best = found.best
    finals = finals_of(lab, best)
    difference = 100 * fmean(finals[seed] - baseline[seed] for seed in finals)
    assert f"done: {found.verdict}" in said
    assert f", {difference:+.1f} points (95% interval " in found.verdict, found.verdict
    low, high = map(float, re.findall(r"interval ([-+][\d.]+) to ([-+][\d.]+)", found.verdict)[0])
    assert low <= difference <= high
    assert f"; {count_of(len(finals), 'seed')}, {2 * TEST} test examples)" in found.verdict
    words = ("undecided", "equal", "at chance") if low <= 0 <= high else ("better", "worse", "at chance")
    assert found.verdict.startswith(words), found.verdict

    # Front: the baseline first, then what nothing dominates.
    front = sl.open_lab(lab).front("improve")
    assert front["is_baseline"].tolist() == [True] + [False] * (len(front) - 1)
    points = sl.open_lab(lab).trials("improve")
    points = points[~points["is_baseline"] & points["accuracy"].notna()]
    for _, one in front[front["on_front"]].iterrows():
        better = (points["accuracy"] >= one["accuracy"]) & (points["flops"] <= one["flops"])
        strictly = (points["accuracy"] > one["accuracy"]) | (points["flops"] < one["flops"])
        assert not (better & strictly).any()

    # Name: the best one is the result's, with the sizes of a layer of this network.
    name = f"improve#{best}"
    operator = sl.read("improve#best", lab)
    assert operator == found.operators[best] == sl.read(name, lab) == sl.open_lab(lab).operator(name)
    layer, sizes = named(name, lab).places[0]
    assert layer.split()[0] in ("b", "c")
    assert (operator.input_sizes(sizes), operator.output_sizes(sizes)) == ((1, 8, SIZE, SIZE),) * 2
    shown = answered(capsys, "show", "improve#best", "--folder", str(lab))
    assert shown.startswith(f"{name}: ")
    assert f", the sizes of {layer}:\n  {operator.flops(sizes):,} FLOPs, {operator.params(sizes):,} parameters" in shown

    # Compare: at these sizes too, with the accuracy of the finals.
    compared = Compare("improve#best", "conv2d", lab=lab)
    assert compared.wait(120)
    assert [column["name"] for column in compared.columns] == [name, "conv2d"]
    assert compared.sizes | sizes == compared.sizes
    cells = {row["title"]: [cell["text"] for cell in row["cells"]] for row in compared.table}
    assert cells["FLOPs"][0] == f"{operator.flops(sizes):,}"
    assert cells["accuracy"][0] == f"{fmean(finals.values()):.4g}"

    # Export: the file is what the operator computes at these sizes.
    file = tmp_path / "mine.py"
    line = answered(capsys, "export", "improve#best", "--out", str(file), "--folder", str(lab))
    assert "mine.py: python, " in line
    assert line.endswith("; read back and the same\n")
    module, x = runpy.run_path(str(file))["SynoOperator"](), torch.randn(1, 8, SIZE, SIZE)
    weights = [weight.detach().numpy() for weight in module.parameters()]
    reference = operator.reference(x.numpy(), *weights, binding=sizes)
    np.testing.assert_allclose(module(x).detach().numpy(), reference, rtol=1e-3, atol=1e-3)

    # Continue: more minutes go on and keep what there was, or a line says why nothing more is trained.
    before = trainings_of(lab)
    more = improve(1.3 * minutes)
    after = trainings_of(lab)
    assert before <= after
    assert before < after or any("nothing more is trained, because " in line for line in said), said
    assert f"done: {more.verdict}" in said
    assert sl.read("improve#best", lab) == more.operators[more.best]
