"""Curves of the best latency after each trial of several tunings, as data and as a figure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from syno_lab.drawing.figure import Figure, Page, legend_above
from syno_lab.drawing.style import GREY, GRID, HUES, WHITE
from syno_lab.errors import TuningError

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Plot

#: The number of a trial and the best latency in ms so far, as in :class:`TuningResult.history
#: <syno_lab.tuning.values.TuningResult>`.
History = Sequence[tuple[int, float]]

_COLOURS = (GREY, *(HUES[number] for number in (0, 2, 3, 4, 1, 5)))


class Curve(NamedTuple):
    """A method's curve: numbers of trials, and the median, minimum and maximum of its tunings' best latency in ms."""

    name: str
    trials: tuple[int, ...]
    median: tuple[float, ...]
    least: tuple[float, ...]
    greatest: tuple[float, ...]


def latency_curves(histories: Mapping[str, Sequence[History]]) -> tuple[Curve, ...]:
    """Return each name's curve over several tunings (seeds). The last value of a tuning that ended early is repeated.

    A curve begins at the first trial after which every tuning has a candidate that ran. Raises :class:`TuningError` if
    no candidate of a tuning ran.
    """
    empty = [name for name, runs in histories.items() if not runs or not all(runs)]
    if not histories or empty:
        raise TuningError(f"expected a history of trials for each curve, found none for {', '.join(empty) or 'any'}")
    end = max(run[-1][0] for runs in histories.values() for run in runs)
    curves = []
    for name, runs in histories.items():
        trials = range(max(run[0][0] for run in runs), end + 1)
        best = [[min(ms for number, ms in run if number <= trial) for run in runs] for trial in trials]
        median, least, greatest = tuple(map(statistics.median, best)), tuple(map(min, best)), tuple(map(max, best))
        curves.append(Curve(name, tuple(trials), median, least, greatest))
    return tuple(curves)


def curves_svg(curves: Sequence[Curve], title: str = "best latency over trials") -> str:
    """Return :class:`CurvesFigure` as SVG; the band is from the least to the greatest value."""
    return CurvesFigure(curves, title).content("svg", width="page", points=10.0).decode()


class CurvesFigure(Figure):
    """The figure of :func:`latency_curves` for a paper; the title is in the description alone."""

    def __init__(self, curves: Sequence[Curve], title: str = "Best latency over the trials of tunings") -> None:
        results = (f"{curve.name}: {curve.median[-1]:.4g} ms after {curve.trials[-1]} trials" for curve in curves)
        self.description = f"{title}. {'; '.join(results)}."
        self._curves = tuple(curves)

    def _plot(self, page: Page) -> Plot:
        from matplotlib.figure import Figure as Plot
        from matplotlib.ticker import LogFormatter

        plot = Plot(figsize=(page.width, min(0.68 * page.width, 4.2)), facecolor=WHITE, layout="constrained")
        axes = plot.subplots()
        for number, curve in enumerate(self._curves):
            colour = _COLOURS[number % len(_COLOURS)]
            axes.step(curve.trials, curve.median, where="post", color=colour, linewidth=1.6, label=curve.name)
            axes.fill_between(curve.trials, curve.least, curve.greatest, step="post", color=colour, alpha=0.15, lw=0)
        axes.set_xlabel("trials")
        axes.set_ylabel("milliseconds")
        axes.set_yscale("log")
        axes.grid(visible=True, which="both", color=GRID, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.4)))
        legend_above(plot, axes.get_legend_handles_labels()[0])
        return plot
