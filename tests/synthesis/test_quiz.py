"""A quiz on a session, and comments on its places."""

from __future__ import annotations

import json
from typing import Any

import pytest

import syno_lab as sl
from syno_lab.errors import SynoError
from syno_lab.ir.state import Step
from syno_lab.operators import KNOWN, conv2d
from syno_lab.sessions.history import MAX_COMMENT
from syno_lab.sessions.quiz import Quiz, guessed, shown
from syno_lab.sessions.session import session_of


def test_guesses_are_graded_by_what_they_lead_to() -> None:
    session = session_of(conv2d())
    session.jump(4)
    before = session.to_json()
    right = session.places[5].step
    other = session.places[6].step  # the UNFOLD of W, which leads to the same operator
    far = Step("SHIFT", (session.state.data[-1],))
    quiz, is_right = guessed(session, Quiz(), other)
    assert (is_right, quiz.score) == (True, "1 of 1 right at the first guess")
    assert quiz.said == "Right: it leads to the same operator. Here another of its steps came first."
    quiz, is_right = guessed(session, Quiz(), far)
    assert (is_right, quiz.score) == (False, "0 of 1 right at the first guess")
    quiz, is_right = guessed(session, quiz, right)
    assert (is_right, quiz.said, quiz.score) == (True, "Right.", "0 of 1 right at the first guess")
    assert session.to_json() == before, "a guess moves nothing"
    session.redo()
    quiz, is_right = guessed(session, quiz, other)
    assert (is_right, quiz.score) == (True, "1 of 2 right at the first guess")
    with pytest.raises(SynoError):
        guessed(session, quiz, other.__class__("UNFOLD", (session.state.output[0],) * 2))
    assert shown(session, quiz).score == "0 of 2 right at the first guess"
    session.redo()
    with pytest.raises(SynoError, match="nothing to guess: no step lies ahead; press Replay"):
        guessed(session, quiz, far)


def test_any_order_of_the_steps_of_an_operator_is_right() -> None:
    """Every permutation of conv2d's REDUCEs, and no REDUCE that conv2d has not."""
    session = session_of(conv2d())
    for place in range(3):
        session.jump(place)
        reduces = [one for one in session.candidates(session.state) if one.step.primitive == "REDUCE"]
        wanted = [str(step.parameter) for step in conv2d().steps[place:3]]
        right = [str(one.step.parameter) for one in reduces if guessed(session, Quiz(), one)[1]]
        assert sorted(right) == sorted(set(wanted))


def test_undone_is_what_undo_left() -> None:
    session = session_of(conv2d())
    session.jump(0)
    assert session.undone == [], "the steps of an operator that lie ahead were never taken back"
    session.redo()
    session.redo()
    session.undo()
    assert session.undone == [2]
    session.go(5)
    session.undo_to_progress()
    assert set(session.undone) > {2}


@pytest.mark.parametrize("make", KNOWN.values())
def test_an_operator_begins_with_a_budget_that_it_keeps(make: Any) -> None:
    operator = make()
    session = session_of(operator)
    assert session.name == next(name for name, known in KNOWN.items() if known is make)
    session.jump(0)
    for step in operator.steps:
        left = session.state.spec.limits.max_primitives - len(session.state.steps)
        assert left > 0
        assert session.state.apply(step) == session.redo()
    assert session.operator.to_torch_source(small(operator)) == operator.to_torch_source(small(operator))


def small(operator: Any) -> dict[str, int]:
    found: dict[str, int] = operator.complete_binding(operator.spec.small_binding)
    return found


@pytest.mark.parametrize("make", [conv2d, sl.canvas.known.squeeze_excite])
def test_comments_are_kept(make: Any) -> None:
    session = session_of(make())
    plain = session.to_json()
    assert "comment" not in plain, "a session without comments is written as ever"
    session.jump(2)
    session.comment("  Why <b>this</b> one?\nBecause. ")
    again = session.read(session.to_word())
    assert [entry.comment for entry in again.places] == [entry.comment for entry in session.places]
    assert again.places[2].comment == "Why <b>this</b> one?\nBecause."
    assert [row["comment"] for row in again.rows() if row["place"] == 2] == ["Why <b>this</b> one?\nBecause."]
    assert again.state == session.state
    grafted = session_of(make())
    grafted.graft(again)
    assert grafted.entry.comment == "Why <b>this</b> one?\nBecause."
    session.comment("")
    assert json.loads(session.to_json())["places"] == json.loads(plain)["places"]
    with pytest.raises(SynoError, match=f"comment: expected at most {MAX_COMMENT} letters, found {MAX_COMMENT + 1}"):
        session.comment("x" * (MAX_COMMENT + 1))
