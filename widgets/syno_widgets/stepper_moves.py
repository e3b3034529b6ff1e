"""The stepper's moves from Python: each is one of its session's, and returns when all that it shows is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from syno_lab.protocol import Operator

if TYPE_CHECKING:
    from syno_lab.sessions.session import Session
    from syno_widgets.working import Work


class MovesByHand:
    """Moves through a session; a class of its own has the session and carries moves out."""

    if TYPE_CHECKING:
        session: Session
        _lock: Any

        def _moved(self, move: Callable[[], Any]) -> Any: ...
        def _ended(self, begin: Callable[[], Work]) -> Any: ...
        def _open(self, text: str) -> Work: ...
        def _show_tree(self) -> None: ...

    def apply(self, step: Any) -> Any:
        """Take a step or a candidate, canonical or not."""
        return self._moved(lambda: self.session.apply(step))

    def undo(self) -> Any:
        """Back by one place."""
        return self._moved(self.session.undo)

    def undo_to_progress(self) -> Any:
        """Back over the steps that brought nothing nearer."""
        return self._moved(self.session.undo_to_progress)

    def redo(self) -> Any:
        """Forth by one place."""
        return self._moved(self.session.redo)

    def comment(self, text: str) -> None:
        """Write about the place that is shown; the session keeps it. Raises SynoError for a text that is too long."""
        with self._lock:
            self.session.comment(text)
            self._show_tree()

    def reset(self) -> Any:
        """Begin again with the output; undo brings the old state back."""
        return self._moved(self.session.reset)

    def jump(self, position: int) -> Any:
        """To any place of the line that undo and redo run along, by its position."""
        return self._moved(lambda: self.session.jump(position))

    def go(self, place: int) -> Any:
        """To any place of the tree, by its number."""
        return self._moved(lambda: self.session.go(place))

    def load(self, operator: str | Operator, *, at_start: bool = False) -> Any:
        """Append an operator step by step; ``at_start`` stays at its first place, to be replayed by :meth:`redo`."""
        return self._moved(lambda: self.session.load(operator, at_start=at_start))

    def open_text(self, text: str) -> Any:
        """Append the session or the operator of a text; the places so far stay.

        Raises:
            FormatError: for a text that holds neither; nothing has changed then.
        """
        return self._ended(lambda: self._open(text))

    def to_json(self) -> str:
        """The whole session as JSON, for :meth:`open_text` and :meth:`.Stepper.of`; :attr:`.Stepper.word` has the same session."""
        return self.session.to_json()
