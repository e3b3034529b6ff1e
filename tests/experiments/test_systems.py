"""Searches of Canvas and of several systems together, and limits of FLOPs that are lowered.

Trainings are stood in for by a function whose rewards are known, but for two searches that train for real.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from known_trainings import TRAINING, Known, accuracy, settings

from syno_lab.errors import SearchError
from syno_lab.experiments import Driver, Running, SearchSettings, Space, Stopped, run_here
from syno_lab.experiments.space import STEP
from syno_lab.experiments.watching import Board
from syno_lab.reports import LabReader
from syno_lab.store import Store
from syno_lab.systems import format_named, format_of, read_operator, title_of
from syno_lab.trial import TrialRequest, costs_of

CANVAS, PGRAPHS = "syno-lab-canvas", "syno-lab-operator"
BOTH = f"{PGRAPHS},{CANVAS}"
BASELINE = 0.8


def asked(system: str, **changes: Any) -> SearchSettings:
    given = {"system": system, "coefficients": None, "limits": {"max_primitives": 4}, "max_replaced_ratio": 2.0}
    return settings(**given | changes)


def drive(folder: Path, known: Known, chosen: SearchSettings, **more: Any) -> Driver:
    folder.mkdir(exist_ok=True)
    with Store.open(folder) as store:
        log = store.search(chosen.name, chosen.identity)
        driver = Driver(chosen, Space(chosen), log, known, Board(folder / "board"), baseline_accuracy=BASELINE, **more)
        driver.run()
        return driver


def trials_in(folder: Path, chosen: SearchSettings) -> list[Any]:
    with Store.open(folder) as store:
        return store.search(chosen.name, chosen.identity).trials()


@pytest.mark.parametrize(
    ("system", "method"),
    [
        (CANVAS, "estimate"),
        (CANVAS, "mcts"),
        (CANVAS, "random"),
        (CANVAS, "evolution"),
        (BOTH, "random"),
        (BOTH, "mcts"),
    ],
)
def test_a_killed_search_goes_on_as_if_it_had_not_been(tmp_path: Path, system: str, method: Any) -> None:
    chosen = asked(system, method=method, starts_with_known=True)
    whole = drive(tmp_path / "whole", Known(), chosen)
    assert len(whole.search.told) == 12
    assert {operator.format for operator, _ in whole.search.told} == set(chosen.systems)
    known, parts = Known(), tmp_path / "parts"
    for after in (3, 8):
        with pytest.raises(Stopped):
            drive(parts, known, chosen, should_stop=lambda after=after: len(known.begun) >= after)
    again = drive(parts, known, chosen)
    assert again.search.told == whole.search.told
    assert again.known == whole.known
    # What is stored costs what a trial of it costs, wherever it is from.
    for trial in trials_in(parts, chosen)[:4]:
        assert (trial.flops, trial.params) == costs_of(msgspec.structs.replace(TRAINING, operator=trial.operator))


@pytest.mark.parametrize("system", [PGRAPHS, CANVAS])
def test_the_limit_is_lowered_while_accuracy_holds(tmp_path: Path, system: str) -> None:
    points = 5.0
    chosen = asked(system, method="random", seeds=(0,), lower_within=points, starts_with_known=True, trials=8)
    driver = drive(tmp_path / "whole", Known(), chosen)
    trials = trials_in(tmp_path / "whole", chosen)
    space = Space(chosen)
    limit, lowered = space.most_flops, []
    stays = space.baseline.flops - space.replaced_flops
    waits = [trial for trial in trials if trial.operator in driver.known]
    given = len(waits)
    for trial in trials:  # with one worker, told in the order of asking
        assert trial.flops <= limit
        good = [one for one in (waits if trial.number == given - 1 else [trial]) if trial.number >= given - 1]
        for one in good:
            share = stays + int(STEP * (one.flops - stays))
            if accuracy(one.operator) >= BASELINE - points / 100 and share < limit:
                limit = share
                lowered.append({"number": one.number, "replaced_ratio": space.replaced_share(limit)})
    assert driver.lowered == lowered
    assert driver.space.most_flops == limit
    # Without it the same search trains what is above.
    free = msgspec.structs.replace(chosen, lower_within=None, name="free")
    drive(tmp_path / "whole", Known(), free)
    assert any(trial.flops > limit for trial in trials_in(tmp_path / "whole", free)[given:])
    # A killed one goes on with the limit that it had come to.
    known, parts = Known(), tmp_path / "parts"
    with pytest.raises(Stopped):
        drive(parts, known, chosen, should_stop=lambda: len(known.begun) >= given + 2)
    again = drive(parts, known, chosen)
    assert again.search.told == driver.search.told
    assert again.lowered == lowered


def test_no_worker_trains_what_was_chosen_before_the_limit_was_lowered(tmp_path: Path) -> None:
    chosen = asked(CANVAS, method="random", seeds=(0,), lower_within=100.0, workers=2, trials=4)
    space, limits = Space(chosen), {}

    class Watched(Known):
        def submit(self, name: str, request: TrialRequest) -> Running:
            number = int(name.rpartition(" ")[2])
            limits[number] = space.most_flops
            running = super().submit(name, request)
            if number:
                self.end(f"search: trial {number - 1}")
            if number == 3:
                self.end("search: trial 3")
            return running

    tmp_path.mkdir(exist_ok=True)
    with Store.open(tmp_path) as store:
        log = store.search(chosen.name, chosen.identity)
        known = Watched(at_once=False)
        Driver(chosen, space, log, known, Board(tmp_path / "board"), baseline_accuracy=BASELINE).run()
    trials = trials_in(tmp_path, chosen)
    assert len(limits) == len(trials) == 4
    assert limits[3] < limits[0]
    assert all(trial.flops <= limits[trial.number] for trial in trials)


# -- settings --------------------------------------------------------------------------------------------------------


def test_settings_of_both_systems_are_read_back() -> None:
    both = asked(BOTH, lower_within=1.0, seeds=(0,))
    assert both.systems == (PGRAPHS, CANVAS)
    assert SearchSettings.from_dict(both.to_dict()) == both
    assert (both.identity["system"], both.identity["lower_within"]) == (BOTH, 1.0)
    assert format_named("Syno") == format_named("pgraphs") == PGRAPHS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"system": f"{CANVAS},{CANVAS}"}, "system: expected systems that differ, found 'syno-lab-canvas,syno-lab-"),
        ({"lower_within": -1.0, "seeds": (0,)}, "lower within: expected percentage points from 0 to 100, found -1"),
        ({"lower_within": 1.0}, "lower within: expected seeds to train the baseline on, found none"),
        ({"lower_within": 1.0, "seeds": (0,), "untrained": True}, "lower within: .* found an untrained one"),
        ({"lower_within": 1.0, "seeds": (0,), "rungs": True, "minutes": 9}, "lower within: .* found rungs; leave"),
    ],
)
def test_settings_that_make_no_sense(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SearchError, match=message):
        settings(**changes)


# -- for real --------------------------------------------------------------------------------------------------------


def test_both_systems_are_trained_stored_and_told_apart(tmp_path: Path) -> None:
    training = msgspec.structs.replace(TRAINING, train_images=64, test_images=32, epochs=1, threads=1)
    chosen = asked(BOTH, training=training, trials=6, seeds=(0,), method="random")
    result = run_here(chosen, tmp_path)
    assert result["states"] == {"finished": 6}
    trials = trials_in(tmp_path, chosen)
    titles = [title_of(trial.operator) for trial in trials]
    assert set(titles) == {"pGraphs", "Canvas"}
    assert [one["system"] for one in result["recorded"]] == titles
    assert [one["taken"][0]["name"] for one in result["recorded"]] == titles
    assert all(one["system"] == titles[one["number"]] for one in result["front"])
    assert all(best["system"] == title_of(best["operator"]) for best in result["best"].values() if best)
    with LabReader(tmp_path) as reader:
        rows = [row for row in reader.read().of(chosen.name) if not row.is_baseline]
    assert [format_of(row.operator) for row in rows] == [format_of(trial.operator) for trial in trials]
    assert run_here(chosen, tmp_path)["recorded"] == result["recorded"]


def test_both_systems_are_probed_without_training(tmp_path: Path) -> None:
    chosen = asked(
        BOTH, trials=24, untrained=True, method="elites", starts_with_known=True, limits={"max_primitives": 8}
    )
    result = run_here(chosen, tmp_path)
    assert result["examined"] == 24
    space = Space(chosen)
    for trial in trials_in(tmp_path, chosen):
        assert trial.state == "probed"
        assert trial.reward == pytest.approx(space.score(read_operator(trial.operator)))
    assert {title_of(trial.operator) for trial in trials_in(tmp_path, chosen)} == {"pGraphs", "Canvas"}
    assert {point["known"].rpartition(" ")[2] for point in result["known"]} <= {"(pGraphs)", "(Canvas)"}
    assert all(point["system"] in ("pGraphs", "Canvas") for point in result["front"])
    draws = result["funnel"]["draws"]
    assert draws["drawn"] >= draws["wished"] >= draws["affordable"] >= draws["probed"] == 24
