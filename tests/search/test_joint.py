"""Several systems' spaces as one: everything that each has, told apart, and found by every search."""

from __future__ import annotations

import random
from typing import Any

import pytest
from small_system import AXES, FORMAT, TINY, Expression

from syno_lab.canvas.system import CANVAS
from syno_lab.models.sites import Site
from syno_lab.pgraphs.system import PGRAPHS
from syno_lab.protocol import SpaceRequest
from syno_lab.search import MonteCarloTreeSearch, RandomSearch, RegularizedEvolution, Search
from syno_lab.search.asking import find
from syno_lab.search.joint import JointSpace
from syno_lab.systems import VARIABLE

SITES = [Site(name, n, n, 8, 8, (3, 3), 2 * 9 * n * n * 64, 9 * n * n) for name, n in (("a", 8), ("b", 16))]
SPARE = sum(site.flops for site in SITES)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"{FORMAT}=small_system:TINY")


def request(**changes: Any) -> SpaceRequest:
    given: dict[str, Any] = {"sites": SITES, "strides": "pool", "spare_flops": SPARE, "coefficients": None}
    return SpaceRequest(**given | {"occurrences": {}, "limits": {"max_primitives": 6}} | changes)


def asked(search: Search, number: int) -> list[Any]:
    found = []
    for _ in range(number):
        candidate = search.ask()
        assert candidate is not None
        search.tell(candidate, random.Random(candidate.operator.to_json()).random())
        found.append(candidate)
    return found


@pytest.mark.parametrize("make", [RandomSearch, MonteCarloTreeSearch, RegularizedEvolution])
def test_a_search_finds_the_operators_of_both(make: type[Search]) -> None:
    space = JointSpace([TINY, CANVAS], request())
    root = space.root(lambda operator: True)
    found = asked(make(root, random.Random(3)), 40)
    operators = [candidate.operator for candidate in found]
    assert len(set(operators)) == 40
    assert len({space.name_of(operator) for operator in operators}) == 40
    # One of the systems has 7 operators. A random search finds all of them, and then goes on in the other.
    few = sum(isinstance(operator, Expression) for operator in operators)
    assert 0 < few <= 2 ** len(AXES) - 1
    assert make is not RandomSearch or few == 2 ** len(AXES) - 1
    for candidate in found:
        title = "expressions" if isinstance(candidate.operator, Expression) else "Canvas"
        first, *others = candidate.taken
        assert (first.name, first.steps) == (title, 0)
        own = find(root, candidate.operator)
        assert own is not None
        assert own.records[0] == first
        assert own.end.operator() == candidate.operator  # a kernel of Canvas may be reached in several ways
        assert all(action.startswith(f"{title}: ") for step in others for action in step.actions)


def test_each_operator_is_that_of_its_own_space() -> None:
    drawn: set[Any] = set()
    space = JointSpace([PGRAPHS, CANVAS], request(drawn=drawn.add))
    root = space.root(lambda operator: True)
    for system in (PGRAPHS, CANVAS):
        own = system.space(request())
        alone = own.known(own.root(lambda operator: True))
        assert alone
        for name, operator in alone.items():
            assert space.known(root)[f"{name} ({system.title})"] == operator
            assert space.probe(operator) == own.probe(operator)
            trail = find(root, operator)
            assert trail is not None
            assert trail.end.operator() == operator
            assert all(word.startswith(system.title) for word in trail.end.traits())
    assert {title for title, _ in drawn} == {"pGraphs", "Canvas"}
    assert str(space) == "; ".join(f"{system.title}: {system.space(request())}" for system in (PGRAPHS, CANVAS))
    assert space.wants == "C_in>=m, H>=m, W>=m"
    assert JointSpace([TINY, CANVAS], request(wants="")).wants == ""
    assert JointSpace([TINY, CANVAS], request()).wants == "expressions: nothing; Canvas: C_in>=m, H>=m, W>=m"
    space.lower(SPARE // 2)
    assert all(
        operator.spent.flops <= SPARE // 2 for name, operator in space.known(root).items() if name.endswith("(Canvas)")
    )
