"""A quiz on a session: the user guesses its hidden next step, and the guess is graded.

The right step is the step that redo takes. Another step is also right if it leads to the same operator: if the session
takes an equal step later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from syno_lab.errors import SynoError
from syno_lab.protocol import Traced
from syno_lab.sessions.session import Session
from syno_lab.systems import system_for


@dataclass(frozen=True)
class Quiz:
    """The state of a quiz.

    Attributes:
        asked: the places where the user has guessed the next step or has seen it.
        right: the places where the first guess was right.
        missed: the places where a guess was wrong or the step was shown.
        said: the grade of the last guess.
    """

    asked: frozenset[int] = field(default_factory=frozenset)
    right: frozenset[int] = field(default_factory=frozenset)
    missed: frozenset[int] = field(default_factory=frozenset)
    said: str = ""

    @property
    def score(self) -> str:
        """Return the number of right first guesses as text."""
        return f"{len(self.right)} of {len(self.asked)} right at the first guess"


def guessed(session: Session, quiz: Quiz, guess: Hashable) -> tuple[Quiz, bool]:
    """Grade a guess of the next step; return the new quiz and whether the guess is right. The session does not move.

    Raises SynoError for a place without a next step, and for a guess that is illegal here.
    """
    place = session.place
    ahead = _ahead(session)
    tried = session.copy()
    tried.apply(guess)
    asked = quiz.asked | {place}
    is_same = tried.place == ahead or tried.state == session.places[ahead].state
    if is_same or _is_later(tried.state, session.history[-1].state):
        right = quiz.right if place in quiz.missed else quiz.right | {place}
        said = "Right." if is_same else "Right: it leads to the same operator. Here another of its steps came first."
        return Quiz(asked, right, quiz.missed, said), True
    far, wanted = tried.entry.distance, session.places[ahead].distance
    words = session.construction.labels.far
    if far is None:
        why = "no operator can be reached behind it"
    elif wanted is not None and far <= wanted:
        why = f"it leads as near ({words.replace('#', f'{far:g}')}), but is not the step that was taken here"
    else:
        why = f"it leads to {words.replace('#', f'{far:g}')}"
        why += "" if wanted is None else f", the step that was taken here to {wanted:g}"
    return Quiz(asked, quiz.right, quiz.missed | {place}, f"Not this one: {why}. Guess again."), False


def shown(session: Session, quiz: Quiz) -> Quiz:
    """Return the quiz after the next step was shown, not guessed. Raises SynoError for a place without a next step."""
    _ahead(session)
    missed = quiz.missed | {session.place}
    return Quiz(quiz.asked | {session.place}, quiz.right - {session.place}, missed, "This was the step.")


def _is_later(state: Any, end: Any) -> bool:
    """Return whether ``end`` has all steps of a state; then its other steps lead from the state to ``end``."""
    system = system_for(state)
    if not isinstance(system, Traced):
        return False
    wanted, own = (Counter(step.key for step in steps) for steps in system.traces([end, state]))
    return own <= wanted


def _ahead(session: Session) -> int:
    ahead = session.ahead(session.place)
    if ahead is None:
        raise SynoError("nothing to guess: no step lies ahead; press Replay for an operator, or Suggest to the end")
    return ahead
