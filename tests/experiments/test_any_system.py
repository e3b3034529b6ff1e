"""A search of another system in a lab whose registry has no pGraphs: from its space to the rows and the picture."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from small_system import AXES, FORMAT, Expression

from syno_lab import operators
from syno_lab.errors import FormatError, SpecError
from syno_lab.experiments import SearchSettings, run_here
from syno_lab.reports import LabReader, front_of
from syno_lab.store import Store
from syno_lab.systems import VARIABLE, formats, read_operator, system_of
from syno_lab.trial import TrialRequest, costs_of, places_of

TRAINING = TrialRequest(
    backbone="resnet20",
    data="digits",
    options={"width": 4, "blocks": 1},
    epochs=1,
    train_images=64,
    test_images=32,
    threads=1,
)


@pytest.fixture(autouse=True)
def without_pgraphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"syno-lab-operator=;syno-lab-canvas=;{FORMAT}=small_system:TINY")


def test_the_registry_has_what_it_is_told() -> None:
    assert set(formats()) == {"syno-lab-alpha", "syno-lab-nas-pte", FORMAT}
    among = "syno-lab-alpha, syno-lab-nas-pte, tiny"
    with pytest.raises(FormatError, match=f"^operator file: expected a format among {among}, found 'syno"):
        read_operator(operators.conv2d().to_json())


def test_a_search_trains_stores_and_shows_another_system(tmp_path: Path) -> None:
    settings = SearchSettings(
        name="small", training=TRAINING, system=FORMAT, method="mcts", trials=4, max_replaced_ratio=1.0, seeds=(0,)
    )
    result = run_here(settings, tmp_path)
    with Store.open(tmp_path) as store:
        trials = store.search(settings.name, settings.identity).trials()
    found = [read_operator(trial.operator) for trial in trials]
    assert len(set(found)) == len(trials) == 4
    assert all(isinstance(operator, Expression) for operator in found)
    for trial, operator in zip(trials, found, strict=True):
        assert trial.state == "finished"
        request = msgspec.structs.replace(TRAINING, operator=trial.operator)
        assert (trial.flops, trial.params) == costs_of(request)
        assert tuple(trial.steps) == (*(f"add {term}" for term in operator.terms), "end")
    assert result["baseline"]["accuracy"] is not None
    assert set(result["comparisons"]) <= {"replaced_0.4", "replaced_0.25", "known"}
    # What no other trial beats in accuracy and FLOPs, by brute force.
    points = {trial.number: (trial.accuracy, -trial.flops) for trial in trials}
    best = {
        number
        for number, one in points.items()
        if not any(other != one and other[0] >= one[0] and other[1] >= one[1] for other in points.values())
    }
    assert {entry["number"] for entry in result["front"]} == best
    # The same search again is the same, from the store.
    assert run_here(settings, tmp_path)["recorded"] == result["recorded"]
    with LabReader(tmp_path) as reader:
        reading = reader.read()
    rows = [row for row in reading.of("small") if not row.is_baseline]
    assert [row.label for row in rows] == [f"trial {trial.number}" for trial in trials]
    front = front_of(rows, ["accuracy", "flops"])
    assert {front.points[at].key for at in front.front} == {f"search:small#{number}" for number in best}
    for row, operator in zip(rows, found, strict=True):
        shown = read_operator(row.operator)
        assert shown == operator
        assert str(operator) in shown.svg()
        assert "graph" in system_of(shown).panes


def test_known_operators_come_first(tmp_path: Path) -> None:
    settings = SearchSettings(
        name="known", training=TRAINING, system=FORMAT, method="random", trials=1, max_replaced_ratio=1.0, seeds=()
    )
    settings = msgspec.structs.replace(settings, starts_with_known=True)
    result = run_here(settings, tmp_path)
    assert [entry["known"] for entry in result["recorded"]] == ["pointwise"]


def test_a_trial_of_another_system_says_where_it_stands(tmp_path: Path) -> None:
    request = msgspec.structs.replace(TRAINING, operator=Expression(tuple(AXES)).to_json())
    assert all(place.replaced for place in places_of(request))
    with pytest.raises(FormatError, match="expected a format among syno-lab-alpha, syno-lab-nas-pte, tiny"):
        places_of(msgspec.structs.replace(TRAINING, operator=operators.conv2d().to_json()))
    with pytest.raises(SpecError, match="NAS-PTE has no space to search"):
        run_here(SearchSettings(name="n", training=TRAINING, system="syno-lab-nas-pte", trials=1, seeds=()), tmp_path)
