"""What a page holds of a session, against the session itself at each place."""

from __future__ import annotations

from typing import Any

import pytest
from pages import page_state
from syno_widgets import Stepper

import syno_lab as sl
from syno_lab.ir.state import Step
from syno_lab.operators import conv2d
from syno_lab.sessions.player import COURSE, played
from syno_lab.sessions.session import session_of
from syno_lab.sessions.shown import plain


def branched() -> Any:
    """conv2d with a branch: at its fourth place a SHIFT, and one more behind it."""
    session = session_of(conv2d())
    session.jump(4)
    session.apply(Step("SHIFT", (session.state.data[-1],)))
    session.apply(Step("SHIFT", (session.state.data[-1],)))
    session.jump(4)
    return session


def canvas() -> Any:
    return session_of(sl.canvas.known.squeeze_excite())


@pytest.mark.parametrize("make", [branched, canvas])
def test_each_place_is_shown_as_the_session_shows_it(make: Any) -> None:
    session = make()
    before = session.to_json()
    found = played(session)
    assert session.to_json() == before
    assert found["parents"] == [entry.parent for entry in session.places]
    assert set(found["places"]) == {str(entry.number) for entry in session.places}
    for entry in session.places:
        shown = found["places"][str(entry.number)]
        session.go(entry.number)
        picture = session.picture()
        assert (shown["svg"], shown["description"]) == (picture.svg, picture.description)
        assert shown["links"] == plain(picture.nodes)
        assert (shown["status"], shown["complete"]) == (session.status(), session.is_complete)
        assert shown["distance"] == session.explain(session.state)
        assert found["courses"][str(session.history[-1].number)][str(entry.number)] == session.course(COURSE)
        # Each step of the session that the lists have leads to its place.
        items = [one for group in shown["menu"] for kind in ("canonical", "pruned") for one in group[kind]]
        leads = {one["leads"] for one in items} - {None}
        assert leads <= set(session.children(entry.number))
        hidden = sum(g["more_canonical"] + g["more_pruned"] + g["unjudged"] for g in shown["menu"])
        assert hidden or leads == set(session.children(entry.number))


def test_ahead_is_what_redo_goes_to() -> None:
    session = branched()
    found = played(session)
    for entry in session.places[:-1]:
        session = branched()
        session._place = entry.number  # as a reader stands there; `go` would turn the line
        if session.ahead(session.place) is not None:
            session.redo()
            assert session.place == found["ahead"][entry.number]


def test_a_page_is_bounded() -> None:
    session = branched()
    few = played(session, lists=2, most_bytes=1)
    assert list(few["places"]) == ["4"], "the shown place is there in any case"
    some = played(session, lists=2, most_bytes=30_000)
    assert 1 < len(some["places"]) < len(session.places)
    assert [number for number, one in some["places"].items() if "menu" in one] == ["4", "3"]
    for _ in range(12):
        session.load("conv2d")
    session.go(60)
    text = Stepper.showing(session).to_html()
    assert len(text) < 2_000_000
    state = page_state(text)
    assert len(state["tree"]) == len(session.places)
    assert "60" in state["player"]["places"]
