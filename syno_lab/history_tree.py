"""The tree of a history's places as rows, for the list beside a session's picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syno_lab.effort import Effort
from syno_lab.history import Entry, History


class Tree:
    """The rows of a history's tree; what was worked out for a place is kept, for places never change.

    Args:
        describe: says the step that led to a place.
    """

    def __init__(self, describe: Callable[[Any], str]) -> None:
        self._describe = describe
        self._said: dict[int, dict[str, Any]] = {}

    def rows(self, session: History[Any, Any, Any], effort: Effort | None = None) -> list[dict[str, Any]]:
        """All places from the first on, each with what it is called.

        A place that goes on in several ways is followed by its branches, each indented, and then by the way that is
        oldest, which is not.

        Args:
            session: of which.
            effort: what it may take.

        Returns:
            Records of ``place``, its ``parent`` (None for the first), ``text``, ``level`` (of indentation),
            ``branch`` (whether a branch begins here), ``start`` (whether it is a beginning rather than a step),
            ``distance``, ``complete``, and ``comment``.

        Raises:
            EffortError: when the effort does not suffice; asked again, it goes on from there.
        """
        places = session.places
        rows = []
        waiting = [(0, 0, False)]
        while waiting:
            number, level, is_branch = waiting.pop()
            rows.append(
                {
                    **self._row(places[number], effort),
                    "level": level,
                    "branch": is_branch,
                    "comment": places[number].comment,
                }
            )
            children = session.children(number)
            waiting += [(child, level, False) for child in children[:1]]
            waiting += [(child, level + 1, True) for child in reversed(children[1:])]
        return rows

    def _row(self, entry: Entry, effort: Effort | None) -> dict[str, Any]:
        if entry.number not in self._said:
            if effort is not None:
                effort.tick("listing the history")
            self._said[entry.number] = {
                "place": entry.number,
                "parent": entry.parent,
                "text": entry.note if entry.step is None else self._describe(entry),
                "start": entry.step is None,
                "distance": entry.measured(effort),
                "complete": entry.is_complete,
            }
        return self._said[entry.number]
