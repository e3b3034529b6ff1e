"""The numbers that the Syno paper states, for figures that show them as the paper's numbers.

``published.json`` has one entry for each statement, with the figure or table, the section, and the quoted sentence.
Points that the paper only draws are left out, because no number was read from a picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

from syno_lab.reports.axes import LATENCY

_FILE = Path(__file__).with_name("published.json")
Range = tuple[float, float]


class Published(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One statement of the paper.

    Attributes:
        id: the entry's name.
        figure: the figure or table of the statement: ``figure_5``, ``table_2``, ``alpha_nas``, ….
        place: the section or table of the statement in the paper.
        label: the subject of the statement.
        quote: the sentences, word for word.
        model, dataset, device: the setting of the measurement; empty where it does not apply.
        accuracy_points: the range of accuracy minus the baseline's accuracy, in percentage points.
        speedup: the range of the baseline's latency divided by the operator's latency.
        flops_ratio: the range of the operator's FLOPs divided by the baseline's FLOPs.
        operator: the known operator of the statement.
        times_operator_1: for each named measure, its value divided by the value of Operator 1.
        steps, perplexity: the steps and the perplexity of a language model's training.
        sizes, rates: numbers of primitives of pGraphs, and the shares of canonical pGraphs.
        samples, canonical: the number of pGraphs drawn, and of canonical pGraphs.
        trials, distinct: the number of random trials, and of distinct operators that these trials found.
    """

    id: str
    figure: str
    place: str
    label: str
    quote: tuple[str, ...]
    model: str
    dataset: str
    device: str
    accuracy_points: Range | None = None
    speedup: Range | None = None
    flops_ratio: Range | None = None
    operator: str = ""
    times_operator_1: dict[str, float] = {}
    steps: int | None = None
    perplexity: float | None = None
    sizes: tuple[str, ...] = ()
    rates: tuple[float, ...] = ()
    samples: int | None = None
    canonical: int | None = None
    trials: int | None = None
    distinct: int | None = None

    @property
    def text(self) -> str:
        """The subject, the setting of the measurement and the section of the paper, in one line."""
        about = ", ".join(word for word in (self.model, self.dataset, self.device) if word)
        return (
            f"{self.label} ({about}; the paper, {self.place})" if about else f"{self.label} (the paper, {self.place})"
        )

    def along(self, axis: str) -> Range | None:
        """Return the range on the axis of this name, relative to the baseline; None where the paper states no range."""
        if axis == "accuracy":
            return self.accuracy_points
        if axis == "flops":
            return self.flops_ratio
        if axis.startswith(LATENCY) and self.speedup is not None:
            low, high = self.speedup
            return 1 / high, 1 / low
        return None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    paper: str
    statements: tuple[Published, ...]


@cache
def _read() -> _File:
    return msgspec.json.decode(_FILE.read_bytes(), type=_File)


def published_points(figure: str | None = None) -> tuple[Published, ...]:
    """Return the statements of a figure or table, by default all."""
    return tuple(statement for statement in _read().statements if figure in (None, statement.figure))


class Stated(msgspec.Struct, frozen=True):
    """A statement in a figure, with a range for each axis of the figure, in order."""

    label: str
    text: str
    ranges: tuple[Range, ...]


def published_on(axes: Sequence[str]) -> list[Stated]:
    """Return the statements with a range on each of these axes, for a figure relative to the baseline.

    The paper's latencies are from a Jetson Orin Nano, even if the axis names another target.
    """
    statements = []
    for published in _read().statements:
        ranges = tuple(span for axis in axes if (span := published.along(axis)) is not None)
        if len(ranges) == len(axes):
            statements.append(Stated(published.label, published.text, ranges))
    return statements
