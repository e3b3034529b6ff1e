"""A quiz on a session: its next step is hidden, guessed and graded.

The right step is the one that redo goes to. A guess is compared by what it leads to, so another way of writing the
same step is right as well.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from syno_lab.errors import SynoError
from syno_lab.sessions.session import Session


@dataclass(frozen=True)
class Quiz:
    """How a quiz stands.

    Attributes:
        asked: the places of whose next steps one was guessed or shown.
        right: those of them where the first guess was right.
        missed: the places that were guessed wrong or shown.
        said: the grade of the last guess.
    """

    asked: frozenset[int] = field(default_factory=frozenset)
    right: frozenset[int] = field(default_factory=frozenset)
    missed: frozenset[int] = field(default_factory=frozenset)
    said: str = ""

    @property
    def score(self) -> str:
        """How many first guesses were right."""
        return f"{len(self.right)} of {len(self.asked)} right at the first guess"


def guessed(session: Session, quiz: Quiz, guess: Hashable) -> tuple[Quiz, bool]:
    """The quiz after a guess of the next step, and whether it is right; the session stays where it is.

    Raises SynoError where no step lies ahead, and for a guess that cannot be taken here.
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
    """The quiz after the next step was shown instead of guessed. Raises SynoError where none lies ahead."""
    _ahead(session)
    missed = quiz.missed | {session.place}
    return Quiz(quiz.asked | {session.place}, quiz.right - {session.place}, missed, "This was the step.")


def _ahead(session: Session) -> int:
    ahead = session.ahead(session.place)
    if ahead is None:
        raise SynoError("nothing to guess: no step lies ahead; press Replay for an operator, or Suggest to the end")
    return ahead
