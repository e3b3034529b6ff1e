"""The data of a figure as plain values, with their source."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from syno_lab import private
from syno_lab.drawing.figure import FORMS
from syno_lab.errors import FormatError
from syno_lab.inputs import quoted, read_json
from syno_lab.reports.lab import LabReader, Reading
from syno_lab.reports.published import Published
from syno_lab.reports.tables import csv_bytes
from syno_lab.scratch import replacing
from syno_lab.versioned import reason

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure


class HasFolder(Protocol):
    """An open lab, or another object with a lab's folder."""

    @property
    def folder(self) -> Path: ...  # noqa: D102


class HasPath(Protocol):
    """An open store."""

    @property
    def path(self) -> Path: ...  # noqa: D102


#: A lab or its folder, an open store or its file, or a reading of one.
LabLike = str | Path | HasFolder | HasPath | Reading
_MOST_BYTES = 1 << 26  # of a file of results


@dataclass(frozen=True)
class Series:
    """Values that are drawn in one style.

    Attributes:
        name: for the legend.
        values: (place, value): the place is a category of a bar figure, else the value on the first axis.
        is_paper: whether the paper states them; then the figure marks them as the paper's.
        ranges: the range of each value, if the paper states ranges or the values are shares that were counted here (the
            95 % interval then); else empty.
        is_line: whether the points are connected by a line.
        spans: the range of each place, likewise.
        is_range: whether the paper states no value but a range ("less than 1 %"): only the range is drawn, without a
            bar or a point.
        unit: of the values, where a figure has several: each unit has axes of its own. Empty: the figure's ``y``.
        counts: of values that are shares ``(hits, drawn)`` each; else empty.
        counted: what the counts are of: ``canonical of drawn``.
    """

    name: str
    values: tuple[tuple[float | str, float], ...]
    is_paper: bool = False
    ranges: tuple[tuple[float, float], ...] = ()
    is_line: bool = False
    spans: tuple[tuple[float, float], ...] = ()
    is_range: bool = False
    unit: str = ""
    counts: tuple[tuple[int, int], ...] = ()
    counted: str = "hits of drawn"

    def __post_init__(self) -> None:
        if self.counts and not len(self.counts) == len(self.ranges) == len(self.values):
            raise ValueError(
                f"{self.name}: expected counts and a range for each of {len(self.values)} values, found "
                f"{len(self.counts)} and {len(self.ranges)}"
            )


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper with our own measurements.

    Attributes:
        name: ``figure_5``, …, ``table_2``.
        title: text above the figure.
        kind: ``bars`` (places are categories), ``points`` or ``table``.
        x, y: the names of the axes; ``y`` that of the first, where series have units of their own.
        series: all series, our own measurements first.
        note: text below the figure: the source of the data, and what is missing.
        is_log_x: whether the first axis is logarithmic.
    """

    name: str
    title: str
    kind: Literal["bars", "points", "table"]
    x: str
    y: str
    series: tuple[Series, ...]
    note: str
    is_log_x: bool = False

    @property
    def panels(self) -> tuple[PaperFigure, ...]:
        """One figure for each unit of the series, so that every axis has one unit."""
        units = dict.fromkeys(one.unit or self.y for one in self.series) or {self.y: None}
        return tuple(
            replace(self, y=unit, series=tuple(one for one in self.series if (one.unit or self.y) == unit))
            for unit in units
        )

    @property
    def measured(self) -> tuple[Series, ...]:
        """The series of our own measurements."""
        return tuple(one for one in self.series if not one.is_paper)

    @property
    def paper(self) -> tuple[Series, ...]:
        """The series that the paper states."""
        return tuple(one for one in self.series if one.is_paper)

    def frame(self) -> pd.DataFrame:
        """One row a value: ``series``, ``from`` (``here`` or ``the paper``), ``place``, ``value``, ``low``, ``high``.

        Where shares were counted it has ``hits`` and ``drawn`` too, which are missing (``<NA>``) for the paper's.
        """
        import pandas as pd

        rows, counts = [], []
        for one in self.series:
            for number, (place, value) in enumerate(one.values):
                low, high = one.ranges[number] if one.ranges else (value, value)
                rows.append((one.name, "the paper" if one.is_paper else "here", str(place), value, low, high))
                counts.append(one.counts[number] if one.counts else (None, None))
        frame = pd.DataFrame(rows, columns=["series", "from", "place", "value", "low", "high"])
        if any(one.counts for one in self.series):
            frame[["hits", "drawn"]] = pd.DataFrame(counts, columns=["hits", "drawn"], dtype="Int64")
        return frame

    def svg(self) -> str:
        """The figure as SVG text on a white ground."""
        from reproduction.paper.drawing import draw

        return draw(self, "svg").decode()

    def png(self) -> bytes:
        """The figure as PNG on a white ground."""
        from reproduction.paper.drawing import draw

        return draw(self, "png")

    def figure(self) -> Figure:
        """The figure for plotly, to edit and combine. Raises StoreError where it has no value."""
        from reproduction.paper.drawing import plotly_figure

        return plotly_figure(self)

    def save(self, path: str | Path, **options: Any) -> Path:
        """Write the figure in the form of the suffix, whole or not at all.

        ``.csv`` has the data; the others are for a paper, without title and note, which belong into the caption.

        Args:
            path: ends in ``.pdf``, ``.svg``, ``.png``, ``.tex``, ``.tikz``, ``.pgf`` or ``.csv``.
            options: ``width``, ``font`` and ``points``, as of :meth:`syno_lab.drawing.figure.Figure.save`.

        Raises:
            FormatError: for another suffix.
            SpecError: for a width, font or size that cannot be.
            SynoError: the file cannot be written.
        """
        from reproduction.paper.drawing import PaperPicture

        place = Path(path)
        suffix = place.suffix.lower()
        if suffix.removeprefix(".") not in (*FORMS, "csv"):
            known = ", ".join(f".{one}" for one in (*FORMS, "csv"))
            raise FormatError(f"expected a name that ends in {known}, found {quoted(str(path))}")
        if suffix != ".csv":
            return PaperPicture(self).save(place, **options)
        with private.usual(), replacing(place) as temporary:
            temporary.write_bytes(csv_bytes(self.frame()))
        return place

    @property
    def text(self) -> str:
        """A description of the figure, for readers who cannot see it."""
        parts = []
        for one in self.series:
            pairs = "; ".join(f"{place:.4g}" if isinstance(place, float) else str(place) for place, _ in one.values[:8])
            values = ", ".join(_worded(one, number) for number in range(len(one.values[:8])))
            parts.append(f"{one.name}: {values} at {pairs}{' …' if len(one.values) > 8 else ''}")
        return f"{self.title}. {self.note} " + ". ".join(parts)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"image/svg+xml": self.svg(), "text/plain": self.text}

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self.measured)} series from here, {len(self.paper)} of the paper>"


def _worded(one: Series, number: int) -> str:
    """A value; a share with what was counted and its interval."""
    value = f"{one.values[number][1]:.4g}"
    if not one.counts:
        return value
    (hits, drawn), (low, high) = one.counts[number], one.ranges[number]
    return f"{value} ({hits:,} of {drawn:,}, 95 % interval {low:.4g} to {high:.4g})"


def place_of(source: LabLike) -> Path:
    """The folder or file of a lab or store."""
    if isinstance(source, (str, Path)):
        return Path(source).expanduser()
    if isinstance(source, Reading):
        return source.folder
    found = getattr(source, "folder", None) or getattr(source, "path", None)
    if found is None:
        raise FormatError(
            f"expected a lab, a store, a folder or a file of results for a figure, found {type(source).__name__}"
        )
    return Path(found)


def reading_of(source: LabLike) -> Reading:
    """Read a lab. Raises StoreError if it cannot be read."""
    if isinstance(source, Reading):
        return source
    with closing(LabReader(place_of(source))) as reader:
        return reader.read()


def results_of(path: Path) -> dict[str, Any]:
    """Read a file of stored results. Raises FormatError for any other file."""
    try:
        found = read_json(path, _MOST_BYTES)
    except OSError as error:
        raise FormatError(f"{path}: expected a file of results, found: {error.strerror or error}") from None
    except msgspec.DecodeError as error:
        raise FormatError(f"{path}: expected results as JSON, found: {reason(error)}") from None
    if not isinstance(found, Mapping):
        raise FormatError(f"{path}: expected results as a JSON object, found {type(found).__name__}")
    return dict(found)


def stated(statements: tuple[Published, ...], what: str) -> tuple[tuple[str, float, tuple[float, float]], ...]:
    """(label, middle, range) of each statement that has a range of this name."""
    found = []
    for one in statements:
        span = getattr(one, what)
        if span is not None:
            place = f"{one.label}, {one.device}" if one.device else one.label
            found.append((place, (span[0] + span[1]) / 2, (span[0], span[1])))
    return tuple(found)
