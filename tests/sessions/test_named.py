"""The small system: stepping, files, rules, the explorer and a search, all from a few facts."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from small_system import SUMS, TINY, Chosen, Expression, Sums

from syno_lab.alpha import Graph, operation
from syno_lab.canvas.fitted import Fitted
from syno_lab.canvas.known import convolution
from syno_lab.errors import FormatError, PrimitiveError, SpecError, SynoError
from syno_lab.nas_pte.operator import nas_pte_1
from syno_lab.operators import conv2d
from syno_lab.search import RandomSearch
from syno_lab.sessions.around import Around
from syno_lab.sessions.named import NamedSpace
from syno_lab.sessions.session import Session, session_of
from syno_lab.sessions.text import word_of
from syno_lab.systems import VARIABLE


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "tiny=small_system:TINY")


def test_steps_are_listed_taken_and_refused() -> None:
    session = session_of(Chosen())
    assert (session.status(), session.place) == ("Distance: 2.", 0)
    (add, end) = session.menu(session.state, session.candidates(session.state))
    assert [item["text"] for item in add["canonical"]] == ["add columns", "add image", "add rows"]
    assert [item["reason"] for item in end["pruned"]] == ["an operator has a term"]
    found = session.candidates(session.state)
    assert session.why(session.state, found[-1])["kind"] == "limit"
    with pytest.raises(SynoError, match="this one may be taken"):
        session.why(session.state, found[0])
    with pytest.raises(PrimitiveError, match="expected a further term, or the end behind one, found 'end'"):
        session.apply(found[-1])
    session.apply("add image")
    session.finish()
    assert session.operator == Expression(("image",))
    assert session.status() == "Complete: this is an operator that has no name here."
    assert session.picture().svg == Expression(("image",)).svg()
    assert session.course(9).startswith("<svg")
    with pytest.raises(SynoError, match="no way to an operator was found from here"):
        session.finish()


def test_a_text_keeps_a_session_and_bad_ones_are_refused() -> None:
    session = session_of(Expression(("image", "rows")))
    session.comment("a sum")
    session.undo()
    for text in (session.to_json(), session.to_word()):
        again = session_of(text)
        assert (again.to_json(), again.rows()) == (session.to_json(), session.rows())
    assert session_of(Expression(("rows",)).to_json()).operator == Expression(("rows",))
    rows = Expression(("rows",)).to_json()
    for places, said in (
        ([{"step": "end"}], "place 0: expected a beginning, found the step 'end'"),
        ([{}, {"parent": 0, "step": "add noise"}], "place 1: expected a further term"),
        ([{"operator": "{}"}], "operator file: expected an expression"),
        ([{}, {"parent": 0, "step": "add rows", "operator": rows}], "place 1: expected an operator of the steps"),
    ):
        record = json.dumps({"format": "tiny-session", "version": 1, "places": places})
        for text in (record, word_of(record)):
            with pytest.raises(FormatError, match=said):
                session_of(text)
    with pytest.raises(SpecError, match="found int"):
        Session(3)


@pytest.mark.parametrize(
    ("start", "title"),
    [
        (Chosen(), "expressions"),
        (conv2d(), "pGraphs"),
        (Fitted(convolution()), "Canvas"),
        (Graph.chain((1, 8, 8, 16), (operation("relu"),)), "αNAS"),
    ],
    ids=["expressions", "pGraphs", "Canvas", "αNAS"],
)
def test_what_another_system_builds_is_not_loaded(start: Any, title: str) -> None:
    session = session_of(start)
    places = len(session.places)
    for value, other in ((conv2d(), "pGraphs"), (Fitted(convolution()), "Canvas"), (Chosen(), "expressions")):
        if other != title:
            with pytest.raises(SpecError, match=f"^expected an operator of {title}, found one of {other}; begin a "):
                session.load(value)
    with pytest.raises(SpecError, match=r"^NAS-PTE: its operators are not built by steps"):
        session.load(nas_pte_1())
    with pytest.raises(SpecError, match=r"^expected a spec, .* found int$"):
        session.load(3)
    assert len(session.places) == places


def test_the_nearest_steps_of_a_group_come_first() -> None:
    far = {"add columns": None, "add image": 3.0, "add rows": 1.0}

    class Far(Sums):
        def distance(self, state: Chosen, effort: Any = None) -> float | None:
            return far.get(f"add {state.terms[-1]}") if state.terms else 2

    construction = Far()
    (add, _) = construction.menu(Chosen(), construction.candidates(Chosen(), ()))
    assert [(item.text, item.distance) for item in add.canonical] == [
        ("add rows", 1),
        ("add image", 3),
        ("add columns", None),
    ]


def test_rules_random_ways_and_the_explorer() -> None:
    def no_rows(state: Chosen, step: str) -> bool:
        """Rows are known."""
        return step == "add rows"

    session = session_of(Chosen())
    session.restrict([no_rows])
    rng = random.Random(1)
    ways = {tuple(session.random_steps(session.state, rng)) for _ in range(40)}
    assert ("add columns", "add image", "end") in ways
    assert not any("add rows" in way for way in ways)
    around = Around(Chosen(), rules=[no_rows])
    while around.grow(3):
        pass
    kinds = {around.branch(key).text: around.branch(key).kind for key in around.below("start")}
    assert kinds == {"add columns": "open", "add image": "open", "add rows": "pruned", "end": "pruned"}
    assert "operators" in around.summary()


def test_a_search_finds_every_operator() -> None:
    root = NamedSpace(SUMS).root(lambda operator: len(operator.terms) < 3)
    search = RandomSearch(root, random.Random(2))
    found = {asked.operator for _ in range(60) if (asked := search.ask()) is not None}
    assert len(found) == 6
    wanted = Expression(("image", "rows"))
    state = root
    for name in SUMS.steps_to(wanted):
        (step,) = state.towards(wanted)
        assert step.name == name
        state = step.state
    assert state.operator() == wanted
    assert state.towards(wanted) == []
    assert set(NamedSpace(SUMS).known(root)) == set(TINY.known)
