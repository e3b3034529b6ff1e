"""A search without training: what is examined, kept and shown, and that it feeds a search that trains.

The probe is stood in for by a function of the operator, so that what it ranks is known.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from known_trainings import settings as trained

from syno_lab.errors import SearchError, SpecError
from syno_lab.experiments import (
    FRONT_FILE,
    PROBED,
    RESULT_FILE,
    STATUS_FILE,
    SearchSettings,
    Space,
    Stopped,
    TuningChoice,
    Untrained,
    loop,
    read_json,
    run_untrained,
)
from syno_lab.ir.operator import Operator
from syno_lab.pgraphs.of_network import NetworkSpace
from syno_lab.reports import LabReader, front_of
from syno_lab.search import Elite, Elites
from syno_lab.search.protocol import Trail
from syno_lab.store import Store


def score(operator: Operator) -> float:
    """Something that depends on the operator, the same in every process."""
    return random.Random(operator.to_json()).random()


@pytest.fixture(autouse=True)
def probe(monkeypatch: pytest.MonkeyPatch) -> list[Operator]:
    """The operators that were probed, in their order."""
    probed: list[Operator] = []

    def stand_in(space: NetworkSpace, operator: Operator) -> dict[str, float]:
        probed.append(operator)
        return {"score": score(operator), "e_out": 0.5}

    monkeypatch.setattr(NetworkSpace, "probe", stand_in, raising=False)
    return probed


def settings(**changes: Any) -> SearchSettings:
    given: dict[str, Any] = {"untrained": True, "method": "elites", "trials": 60, "max_replaced_ratio": 2.0}
    return trained(**given | changes)


def searched(folder: Path, chosen: SearchSettings, **more: Any) -> dict[str, Any]:
    place = folder / "searches" / chosen.name
    place.mkdir(parents=True, exist_ok=True)
    with Store.open(folder) as store:
        return run_untrained(chosen, store, folder=place, **more)


def trials_in(folder: Path, chosen: SearchSettings) -> list[Any]:
    with Store.open(folder) as store:
        return store.search(chosen.name, chosen.identity).trials()


@pytest.mark.parametrize("method", ["elites", "random", "evolution", "mcts", "estimate"])
def test_any_method_examines_and_keeps_the_elites(tmp_path: Path, probe: list[Operator], method: Any) -> None:
    chosen = settings(method=method)
    result = searched(tmp_path, chosen)
    assert result["examined"] == 60
    seen = list(dict.fromkeys(probe))
    assert len(seen) == 60
    space = Space(chosen)
    elites = Elites()
    for operator in seen:
        elites.add(Elite(Trail(()), operator, score(operator), space.share(operator)))
    trials = {Operator.from_json(trial.operator): trial for trial in trials_in(tmp_path, chosen)}
    # All elites are there, and nothing that never was one.
    assert set(trials) >= {elite.operator for elite in elites}
    assert result["elites"] == len(elites)
    for operator, trial in trials.items():
        costs = space.costs(operator)
        assert costs is not None
        assert (trial.state, trial.accuracy, trial.reward) == (PROBED, None, score(operator))
        assert (trial.flops, trial.params) == (costs.flops, costs.params)
        assert trial.outcome is not None
        assert trial.outcome["probe"] == {"score": score(operator), "e_out": 0.5}
        assert len(trial.steps) > 1
    assert [(point["number"], point["score"]) for point in result["front"]] == [
        (trials[elite.operator].number, elite.score) for elite in elites.front()
    ]


def test_the_front_is_a_picture_and_the_lab_has_its_rows(tmp_path: Path) -> None:
    chosen = settings()
    result = searched(tmp_path, chosen)
    folder = tmp_path / "searches" / chosen.name
    assert read_json(folder / RESULT_FILE) == json.loads(json.dumps(result))
    status = read_json(folder / STATUS_FILE)
    assert status is not None
    assert (status["phase"], status["examined"]) == ("done", 60)
    picture = (folder / FRONT_FILE).read_text()
    assert picture.startswith("<?xml")
    assert "score of the probe" in picture
    with LabReader(tmp_path) as reader:
        rows = reader.read().of(chosen.name)
    front = front_of(rows, ("flops", "probe"))
    # The stored ones may have equal ones among those that are no elites any more.
    on_front = {rows[0].key.partition("#")[0] + f"#{point['number']}" for point in result["front"]}
    assert {front.points[place].key for place in front.front} == on_front
    assert all(row.state == PROBED and row.accuracy is None for row in rows)


def test_the_same_seed_finds_the_same(tmp_path: Path) -> None:
    first, again, other = (
        searched(tmp_path / str(number), settings(seed=seed))["front"] for number, seed in enumerate((3, 3, 4))
    )
    assert first == again
    assert first != other


def test_the_known_operators_are_examined_first(tmp_path: Path, probe: list[Operator]) -> None:
    chosen = settings(starts_with_known=True, limits={"max_primitives": 5}, coefficients=("k_1=3: 2",), trials=20)
    result = searched(tmp_path, chosen)
    space = Space(chosen)
    known = space.operators.known(space.root)
    assert known
    assert list(dict.fromkeys(probe))[: len(known)] == list(known.values())
    assert {point["known"] for point in result["known"]} <= set(known)
    assert result["examined"] == 20


def test_a_stopped_search_goes_on(tmp_path: Path, probe: list[Operator]) -> None:
    chosen = settings(trials=80)
    with pytest.raises(Stopped, match="stopped after 30 operators; the best are in the store"):
        searched(tmp_path, chosen, should_stop=lambda: len(set(probe)) >= 30)
    before = trials_in(tmp_path, chosen)
    assert before
    first = set(probe)
    result = searched(tmp_path, chosen)
    assert result["examined"] == 80
    after = trials_in(tmp_path, chosen)
    assert [trial.operator for trial in after[: len(before)]] == [trial.operator for trial in before]
    # What is stored is not examined again; it may be on the front.
    best: Any = max(after, key=lambda trial: trial.reward)
    assert max(point["score"] for point in result["front"]) == best.reward
    assert len(set(probe)) > len(first)
    # Once more: it is over, and nothing is examined.
    number = len(probe)
    again = searched(tmp_path, chosen)
    assert again["front"] == result["front"]
    assert len(probe) == number


def test_the_time_ends_it(tmp_path: Path) -> None:
    chosen = settings(trials=None, minutes=2.0)
    times = iter(range(0, 10**6, 5))
    with Store.open(tmp_path) as store:
        driver = Untrained(chosen, Space(chosen), store.search(chosen.name, chosen.identity))
        driver.clock = lambda: float(next(times))
        driver.run()
    assert driver.end_reason == "2 minutes are over"
    assert driver.search_s >= 120
    assert 0 < driver.examined < 60


def test_a_space_that_is_used_up_says_so(tmp_path: Path) -> None:
    result = searched(tmp_path, settings(trials=10_000, limits={"max_primitives": 2}))
    assert result["end"] == "every operator of the space is examined"
    assert 0 < result["examined"] < 10_000


def test_where_nothing_is_found_it_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "PATIENCE_S", 0.0)
    chosen = settings(trials=10_000)
    assert "no new operator within 200% of the replaced layers' FLOPs in 0 s" in searched(tmp_path, chosen)["end"]


def test_a_system_without_a_probe_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NetworkSpace, "probe", lambda space, operator: None)
    with pytest.raises(SpecError, match="untrained: expected a system with a probe, found pGraphs; choose another"):
        searched(tmp_path, settings())


def test_nothing_is_tuned_where_nothing_is_trained() -> None:
    with pytest.raises(SearchError, match="tuning: expected a search that trains, found an untrained one"):
        settings(tuning=TuningChoice(within=1.0), seeds=(0,))


def test_settings_are_read_back() -> None:
    assert trained().identity != settings().identity
    assert SearchSettings.from_dict(json.loads(json.dumps(settings().to_dict()))) == settings()
