"""The stepper's moves in Python: each calls the session's move, and returns when the page has all its data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from syno_lab.protocol import Operator

if TYPE_CHECKING:
    from syno_lab.sessions.session import Session
    from syno_widgets.working import Work


class MovesByHand:
    """Moves through a session; a subclass has the session and carries the moves out."""

    if TYPE_CHECKING:
        session: Session
        _lock: Any

        def _run_move(self, move: Callable[[], Any]) -> Any: ...
        def _run_work(self, begin: Callable[[], Work]) -> Any: ...
        def _open(self, text: str) -> Work: ...
        def _show_tree(self) -> None: ...

    def apply(self, step: Any) -> Any:
        """Take a step or a candidate, canonical or not."""
        return self._run_move(lambda: self.session.apply(step))

    def undo(self) -> Any:
        """Go back by one place."""
        return self._run_move(self.session.undo)

    def undo_to_progress(self) -> Any:
        """Go back over the steps that did not reduce the distance."""
        return self._run_move(self.session.undo_to_progress)

    def redo(self) -> Any:
        """Go forward by one place."""
        return self._run_move(self.session.redo)

    def comment(self, text: str) -> None:
        """Set the comment of the shown place in the session. Raises SynoError if the text is too long."""
        with self._lock:
            self.session.comment(text)
            self._show_tree()

    def reset(self) -> Any:
        """Begin again at the output; undo restores the old state."""
        return self._run_move(self.session.reset)

    def jump(self, position: int) -> Any:
        """Go to a place of the line of undo and redo, by its position."""
        return self._run_move(lambda: self.session.jump(position))

    def go(self, place: int) -> Any:
        """Go to any place of the tree, by its number."""
        return self._run_move(lambda: self.session.go(place))

    def load(self, operator: str | Operator, *, at_start: bool = False) -> Any:
        """Append an operator step by step; ``at_start`` stays at its first place, so that :meth:`redo` replays it."""
        return self._run_move(lambda: self.session.load(operator, at_start=at_start))

    def open_text(self, text: str) -> Any:
        """Append the session or the operator of a text; earlier places stay.

        Raises:
            FormatError: the text has neither; nothing is changed then.
        """
        return self._run_work(lambda: self._open(text))

    def to_json(self) -> str:
        """Return the session as JSON, for :meth:`open_text` and :meth:`.Stepper.of`; see :attr:`.Stepper.word` too."""
        return self.session.to_json()
