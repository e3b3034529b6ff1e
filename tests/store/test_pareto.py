"""The front against its definition."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syno_lab.errors import SynoError
from syno_lab.store.pareto import pareto_front


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
