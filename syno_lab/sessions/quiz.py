"""A quiz on a session: the user guesses its hidden next step, and the guess is graded.

The right step is the step that redo takes. Another step is also right if it leads to the same state.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from syno_lab.errors import SynoError
from syno_lab.sessions.session import Session


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
    if tried.place == ahead or tried.state == session.places[ahead].state:
        right = quiz.right if place in quiz.missed else quiz.right | {place}
        return Quiz(asked, right, quiz.missed, "Right."), True
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


def _ahead(session: Session) -> int:
    ahead = session.ahead(session.place)
    if ahead is None:
        raise SynoError("nothing to guess: no step lies ahead; press Replay for an operator, or Suggest to the end")
    return ahead
