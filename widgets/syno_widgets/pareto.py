"""The Pareto figure in a notebook: a click on a point names the operator."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any

import ipywidgets
import plotly.graph_objects as go
import traitlets
from plotly.callbacks import InputDeviceState, Points

from syno_lab.evaluate.figures import clean, pareto_figure, summary, svg_text
from syno_lab.evaluate.pareto import ParetoFacts


class ParetoView(ipywidgets.VBox):
    """The figure with a line below it that says what was chosen.

    Where no kernel runs (GitHub, nbconvert) the same facts are shown as SVG.
    """

    selected = traitlets.Unicode("", help="Fingerprint of the chosen operator; empty while none is.")

    def __init__(self, facts: ParetoFacts, on_click: Callable[[str], object] | None = None) -> None:
        self.facts = facts
        self.figure = go.FigureWidget(pareto_figure(facts))
        pairs = list(zip(clean(facts).points, facts.points, strict=True))
        self._labels = {point.fingerprint: shown.label for shown, point in pairs}
        self._fingerprints = {shown.fingerprint: point.fingerprint for shown, point in pairs}
        self._status = ipywidgets.HTML(self._sentence(""))
        self._on_click = on_click
        super().__init__([self.figure, self._status])
        for trace in self.figure.data:
            trace.on_click(self._clicked)

    def _clicked(self, trace: Any, points: Points, state: InputDeviceState) -> None:
        """Plotly calls it for every trace on a click anywhere, with the points of that trace."""
        if not points.point_inds or trace.customdata is None:
            return
        self.selected = self._fingerprints[trace.customdata[points.point_inds[0]][0]]
        if self._on_click is not None:  # also when the same point is clicked again
            self._on_click(self.selected)

    @traitlets.validate("selected")
    def _known(self, proposal: dict[str, Any]) -> str:
        fingerprint: str = proposal["value"]
        if fingerprint and fingerprint not in self._labels:
            raise traitlets.TraitError(f"no operator {fingerprint!r} in this figure")
        return fingerprint

    @traitlets.observe("selected")
    def _say(self, change: dict[str, Any]) -> None:
        self._status.value = self._sentence(change["new"])

    def _sentence(self, fingerprint: str) -> str:
        if not fingerprint:
            return '<span role="status">Click a point to choose its operator.</span>'
        label = html.escape(self._labels[fingerprint])
        shown = next(shown for shown, known in self._fingerprints.items() if known == fingerprint)
        return f'<span role="status"><b>{label}</b> <code>{html.escape(shown)}</code></span>'

    def __repr__(self) -> str:
        return summary(self.facts)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs) or {}
        return {**bundle, "text/plain": summary(self.facts), "image/svg+xml": svg_text(self.facts)}


def pareto_widget(facts: ParetoFacts, on_click: Callable[[str], object] | None = None) -> ParetoView:
    """Return the figure as a widget; `on_click` is called with the fingerprint of each point that is clicked."""
    return ParetoView(facts, on_click)
