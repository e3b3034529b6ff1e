"""A second stage: chosen operators trained alike on other data, each against the same baseline."""

from functools import partial

import numpy as np
import pytest
from PIL import Image
from small_trials import small_trial

from syno_lab import operators
from syno_lab.errors import SpecError, TrainingError
from syno_lab.trial import run_stage, run_trial

CHOSEN = {"one": operators.conv1x1().to_json(), "groups": operators.grouped().to_json()}


asked = partial(small_trial, epochs=2)


def test_each_operator_is_compared_with_one_baseline(tmp_path):
    said = []
    stage = run_stage(
        {"baseline": None, **CHOSEN},
        asked(epochs=1),
        [3, 4],
        folder=tmp_path,
        against_baseline=True,
        report=lambda fraction, message: said.append((fraction, message)),
    )
    assert [(trial.label, trial.request.seed) for trial in stage.trials] == [
        (label, seed) for label in ("baseline", "one", "groups") for seed in (3, 4)
    ]
    assert list(stage.comparisons) == ["one", "groups"]
    assert stage.comparisons["one"].baselines == stage.comparisons["groups"].baselines
    assert sum(message.startswith("baseline, seed 3: finished") for _, message in said) == 1  # trained once for both
    assert [fraction for fraction, _ in said] == sorted(fraction for fraction, _ in said)
    for label, found in stage.comparisons.items():
        accuracies = [trial.outcome.accuracy for trial in stage.trials if trial.label == label]
        assert found.operator == pytest.approx(np.mean(accuracies))


def test_a_rule_compares_with_those_that_finished_before(tmp_path):
    request = asked(stopping={"rule": "canvas", "theta": 1.0}, epochs=3)
    stage = run_stage({"baseline": None, **CHOSEN}, request, folder=tmp_path)
    first = stage.trials[0]
    assert (first.outcome.state, first.request.rivals) == ("finished", [])
    curve = [row["accuracy"] for row in first.outcome.curve]
    assert stage.trials[1].request.rivals == [curve]
    for trial in stage.trials[1:]:
        mine = [row["accuracy"] for row in trial.outcome.curve]
        best = max(trial.request.rivals, key=max)
        behind = [mine[at] < best[at] for at in range(min(len(mine), 2))]
        assert trial.outcome.state == ("pruned" if any(behind) else "finished")
        assert not any(behind[:-1])


def test_images_in_class_folders_are_the_other_data(tmp_path):
    """What was chosen for small images is trained on larger ones; the places follow."""
    for name, colour in (("dark", 20), ("light", 230)):
        for number in range(10):
            (tmp_path / "data" / name).mkdir(parents=True, exist_ok=True)
            image = Image.new("RGB", (20, 16), (colour, colour, colour + number))
            image.save(tmp_path / "data" / name / f"{number}.png")
    request = asked(data=str(tmp_path / "data"), resolution=16, epochs=3, batch_size=4)
    stage = run_stage(CHOSEN, request, folder=tmp_path / "stage")
    for trial in stage.trials:
        assert trial.outcome.state == "finished"
        assert trial.outcome.replaced > 0
    assert max(trial.outcome.best_accuracy for trial in stage.trials) == 1.0
    alone = run_trial(stage.trials[0].request, folder=tmp_path / "alone")
    assert alone.accuracy == stage.trials[0].outcome.accuracy


def test_what_cannot_be_trained_is_refused_before_anything_is(tmp_path):
    with pytest.raises(SpecError, match="product: expected an operator that fits some of 6 layers of resnet20"):
        run_stage({**CHOSEN, "product": operators.matmul().to_json()}, asked(), folder=tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TrainingError, match="expected operators and seeds to train, found 0 and 1"):
        run_stage({"baseline": None}, asked(), folder=tmp_path, against_baseline=True)
