"""The numbers that the Syno paper states, for figures that show them marked as the paper's.

``published.json`` has one entry for each statement, with the figure or table, the section, and the sentence from which
it was taken. Points that the paper only draws are left out: no number was read off a picture.
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
        figure: the figure or table to which it belongs: ``figure_5``, ``table_2``, ``alpha_nas``, ….
        place: its section or table in the paper.
        label: its subject.
        quote: the sentences, word for word.
        model, dataset, device: those of the measurement; empty where they do not apply.
        accuracy_points: accuracy minus the baseline's in percentage points, from the least to the greatest that the
            sentence allows.
        speedup: the baseline's latency over the operator's, a range likewise.
        flops_ratio: FLOPs over the baseline's, a range likewise.
        operator: the known operator that it is about.
        times_operator_1: by the name of a measure, its value over Operator 1's.
        steps, perplexity: those of a language model's training.
        sizes, rates: pGraphs by the number of primitives, and the share of canonical ones.
        samples, canonical: pGraphs drawn, and how many were canonical.
        trials, distinct: random trials, and the distinct operators that they found.
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
        """The subject, the measurement's setting and the place in the paper, in one line."""
        about = ", ".join(word for word in (self.model, self.dataset, self.device) if word)
        return (
            f"{self.label} ({about}; the paper, {self.place})" if about else f"{self.label} (the paper, {self.place})"
        )

    def along(self, axis: str) -> Range | None:
        """The range on the axis of this name, against the baseline; None where the paper states none."""
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
    """The statements that belong to a figure or table, or all."""
    return tuple(one for one in _read().statements if figure in (None, one.figure))


class Stated(msgspec.Struct, frozen=True):
    """A statement in a figure: pairs in the order of the figure's axes."""

    label: str
    text: str
    ranges: tuple[Range, ...]


def published_on(axes: Sequence[str]) -> list[Stated]:
    """The statements that have a range on each of these axes, for a figure against the baseline.

    The paper's latencies were measured on its Jetson Orin Nano, whatever target the axis names.
    """
    found = []
    for one in _read().statements:
        ranges = tuple(span for axis in axes if (span := one.along(axis)) is not None)
        if len(ranges) == len(axes):
            found.append(Stated(one.label, one.text, ranges))
    return found
