"""Fronts, hypervolumes and the table, each against its definition."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syno_lab.errors import SynoError
from syno_lab.evaluate.frame import COLUMNS, to_frame
from syno_lab.evaluate.pareto import AXES, hypervolume, pareto_facts, pareto_front
from syno_lab.evaluate.store import Trial

X, Y = AXES["latency_ms"], AXES["accuracy"]


def trial(
    label: str, accuracy: float | None, latency: float | None, flops: int = 100, *, baseline: bool = False
) -> Trial:
    return Trial(f"fp-{label}", label, baseline, accuracy, latency, flops, 10, "{}", "done")


def beats(one: dict[str, float], other: dict[str, float], maximise: list[str], minimise: list[str]) -> bool:
    better = [one[k] > other[k] for k in maximise] + [one[k] < other[k] for k in minimise]
    worse = [one[k] < other[k] for k in maximise] + [one[k] > other[k] for k in minimise]
    return any(better) and not any(worse)


VALUES = st.one_of(st.integers(-3, 3).map(float), st.sampled_from([math.nan, math.inf, -math.inf, None]))


@given(
    st.lists(st.fixed_dictionaries({"a": VALUES, "b": VALUES, "c": VALUES}), max_size=25),
    st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3, unique=True),
    st.integers(0, 3),
)
def test_the_front_is_what_the_definition_says(points: list[dict], names: list[str], cut: int) -> None:
    maximise, minimise = names[:cut], names[cut:]
    usable = [i for i, p in enumerate(points) if all(p[k] is not None and math.isfinite(p[k]) for k in names)]
    expected = [i for i in usable if not any(beats(points[j], points[i], maximise, minimise) for j in usable)]
    assert pareto_front(points, maximise=maximise, minimise=minimise) == expected


def test_duplicates_stay_together_and_missing_values_take_no_part() -> None:
    points = [
        {"a": 1, "b": 2},
        {"a": 1, "b": 2},
        {"a": 1, "b": 3},
        {"a": None, "b": 0},
        {"b": 0},
        {"a": math.nan, "b": 0},
    ]
    assert pareto_front(points, maximise=["a"], minimise=["b"]) == [0, 1]
    assert pareto_front([], maximise=["a"]) == []


@pytest.mark.parametrize(("maximise", "minimise"), [([], []), (["a"], ["a", "b"])])
def test_a_front_needs_each_value_once(maximise: list[str], minimise: list[str]) -> None:
    with pytest.raises(SynoError, match="needs values to maximise or minimise, each once"):
        pareto_front([], maximise=maximise, minimise=minimise)


GRID = st.integers(0, 12)


def covers(value: int, limit: int, cell: int, up: bool) -> bool:
    return limit <= cell < value if up else value <= cell < limit


@given(st.lists(st.tuples(GRID, GRID), max_size=12), st.tuples(GRID, GRID), st.booleans(), st.booleans())
def test_the_hypervolume_is_the_number_of_cells(
    points: list[tuple[int, int]], reference: tuple[int, int], up_x: bool, up_y: bool
) -> None:
    x, y = X._replace(maximise=up_x), Y._replace(maximise=up_y)

    cells = sum(
        any(covers(a, reference[0], i, up_x) and covers(b, reference[1], j, up_y) for a, b in points)
        for i, j in itertools.product(range(13), repeat=2)
    )
    assert hypervolume(points, reference, x, y) == cells


def test_the_hypervolume_agrees_with_optuna() -> None:
    from optuna._hypervolume import compute_hypervolume

    rng = random.Random(3)
    for amount in (1, 2, 10, 200):
        points = [(rng.uniform(1, 8), rng.uniform(0.2, 1)) for _ in range(amount)]
        theirs = compute_hypervolume(np.array([(a, -b) for a, b in points]), np.array([8.0, -0.2]))
        assert hypervolume(points, (8.0, 0.2), X, Y) == pytest.approx(theirs, rel=1e-12)


class TestFacts:
    def test_of_a_small_run(self) -> None:
        facts = pareto_facts(
            [
                trial("conv2d", 0.5, 4.0, baseline=True),
                trial("fast", 0.5, 1.0),
                trial("good", 0.75, 3.0),
                trial("bad", 0.25, 3.5),
                trial("untuned", 0.9, None),
                trial("diverged", math.nan, 2.0),
            ],
            reference=(5.0, 0.0),
        )
        assert [facts.points[i].label for i in facts.front] == ["fast", "good"]
        assert [p.label for p in facts.unplaced] == ["untuned", "diverged"]
        assert facts.unplaced[1].y is None
        assert facts.baseline == facts.points[0]
        assert facts.hypervolume == 4 * 0.5 + 2 * 0.25
        assert facts.reference == (5.0, 0.0)
        assert (facts.x.text, facts.y.text) == ("latency [ms]", "accuracy")
        assert facts.on_front("fp-good")
        assert not facts.on_front("fp-conv2d")

    def test_the_default_reference_is_a_tenth_beyond_the_worst(self) -> None:
        facts = pareto_facts([trial("a", 0.5, 4.0), trial("b", 0.25, 2.0)])
        assert facts.reference == pytest.approx((4.2, 0.225))
        assert facts.hypervolume == pytest.approx(2.2 * 0.025 + 0.2 * 0.25)
        assert pareto_facts([trial("a", 0.5, 4.0)]).hypervolume == pytest.approx(0.4 * 0.05)

    def test_of_nothing(self) -> None:
        facts = pareto_facts([trial("a", None, None)])
        assert (facts.points, facts.front, facts.hypervolume, facts.baseline) == ((), (), 0.0, None)

    def test_other_axes(self) -> None:
        facts = pareto_facts([trial("a", 0.5, None, 7), trial("b", 0.4, None, 9)], x="flops")
        assert [facts.points[i].label for i in facts.front] == ["a"]

    def test_bad_axes(self) -> None:
        with pytest.raises(SynoError, match="no axis 'speed': expected one of accuracy, latency_ms, flops, params"):
            pareto_facts([], x="speed")
        with pytest.raises(SynoError, match="needs two axes, got 'accuracy' twice"):
            pareto_facts([], x="accuracy")


class TestFrame:
    def test_columns_and_ratios(self) -> None:
        frame = to_frame(
            [
                trial("conv2d", 0.5, 4.0, 200, baseline=True),
                trial("fast", 0.75, 1.0, 50),
                trial("untuned", 0.9, None, 100),
            ]
        )
        assert list(frame.columns) == [*COLUMNS]
        assert list(frame["label"]) == ["conv2d", "fast", "untuned"]
        assert list(frame["speedup"])[:2] == [1.0, 4.0]
        assert math.isnan(frame["speedup"][2])
        assert math.isnan(frame["latency_ms"][2])
        assert list(frame["flops_ratio"]) == [1.0, 0.25, 0.5]
        assert list(frame["on_front"]) == [False, True, False]

    def test_without_baseline_and_without_rows(self) -> None:
        frame = to_frame([trial("a", 0.5, 4.0)])
        assert math.isnan(frame["speedup"][0])
        assert math.isnan(frame["flops_ratio"][0])
        empty = to_frame([])
        assert list(empty.columns) == [*COLUMNS]
        assert str(empty["accuracy"].dtype) == "float64"
