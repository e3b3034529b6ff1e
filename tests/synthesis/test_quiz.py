"""A quiz on a session, and comments on its places."""

from __future__ import annotations

import json
from typing import Any

import pytest

import syno_lab as sl
from syno_lab.errors import SynoError
from syno_lab.ir.state import Step
from syno_lab.operators import conv2d
from syno_lab.sessions.history import MAX_COMMENT
from syno_lab.sessions.quiz import Quiz, guessed, shown
from syno_lab.sessions.session import session_of


def test_guesses_are_graded_by_what_they_lead_to() -> None:
    session = session_of(conv2d())
    session.jump(4)
    before = session.to_json()
    right = session.places[5].step
    other = session.places[6].step  # the UNFOLD of W: as near, and not the step that was taken here
    far = Step("SHIFT", (session.state.data[-1],))
    quiz, is_right = guessed(session, Quiz(), other)
    assert not is_right
    assert quiz.said.startswith("Not this one: it leads as near (distance 1), but is not the step")
    quiz, is_right = guessed(session, quiz, far)
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
