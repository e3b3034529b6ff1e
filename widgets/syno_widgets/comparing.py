"""Views that open a comparison below themselves."""

from __future__ import annotations

from typing import Any

import traitlets as t
from ipywidgets import widget_serialization

from syno_lab.errors import SpecError
from syno_lab.sessions.session import Session
from syno_widgets.compare import Compare
from syno_widgets.view import View


class Comparing(View):
    """A view with a trait for a comparison that :meth:`_open_comparison` creates; a new comparison replaces it."""

    compared = t.Instance(Compare, allow_none=True, read_only=True).tag(sync=True, **widget_serialization)
    """The open comparison; None before the first."""

    def _open_comparison(self, *operators: Any, **options: Any) -> Compare:
        """Open a comparison, with the arguments and errors of :class:`Compare`."""
        new = Compare(*operators, **options)
        old = self.compared
        self.set_trait("compared", new)
        if old is not None:
            old.close()
        return new

    def close(self) -> None:
        """Remove the view and its comparison from the page."""
        if self.compared is not None:
            self.compared.close()
        super().close()

    def _page_state(self) -> dict[str, Any]:
        return {**super()._page_state(), "compared": None}


class ComparesPlaces(Comparing):
    """Comparisons of places of a session, for a stepper."""

    session: Session

    def compare(self, *places: int) -> Compare:
        """Compare the shown place with one to three other places, by number, below the stepper."""
        entries = self.session.places
        if wrong := [place for place in places if not 0 <= place < len(entries)]:
            raise SpecError(f"place: expected a number from 0 to {len(entries) - 1}, found {wrong[0]}")
        shown = [self.session.entry, *(entries[place] for place in places)]
        states = [entry.state if entry.operator is None else entry.operator for entry in shown]
        return self._open_comparison(*states, names=[f"place {entry.number}" for entry in shown])
