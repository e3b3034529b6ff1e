"""What the paper on Syno states in numbers, for figures in which it is marked as the paper's.

``published.json`` has one entry for each statement, with the figure or table, the section, and the sentence it was
taken from. Points that the paper only draws are not in it: nothing was read off a picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from syno_lab.evaluate.reading.axes import LATENCY

_FILE = Path(__file__).with_name("published.json")
Range = tuple[float, float]


class Published(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One statement of the paper.

    Attributes:
        id: of the entry.
        figure: which figure or table it belongs to: ``figure_5``, ``table_2``, ``alpha_nas``, ….
        place: where it stands in the paper.
        label: what it is about.
        quote: the sentences, word for word.
        model, dataset, device: of the measurement; empty where they do not apply.
        accuracy_points: accuracy minus the baseline's in percentage points, from the least to the greatest that the
            sentence allows.
        speedup: the baseline's latency over it, likewise.
        flops_ratio: FLOPs over the baseline's, likewise.
        operator: which known operator it is of.
        times_operator_1: what it is of Operator 1's, by name.
        steps, perplexity: of a training of text.
        sizes, rates: pGraphs by the number of primitives, and the share of canonical ones.
        samples, canonical: pGraphs drawn, and how many were canonical.
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

    @property
    def text(self) -> str:
        """What it is, on what and where it stands, in one line."""
        about = ", ".join(word for word in (self.model, self.dataset, self.device) if word)
        return (
            f"{self.label} ({about}; the paper, {self.place})" if about else f"{self.label} (the paper, {self.place})"
        )

    def along(self, axis: str) -> Range | None:
        """Its range on an axis by its name, against the baseline; None where the paper says nothing of it."""
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


def published_on(axes: Sequence[str]) -> list[dict[str, Any]]:
    """The statements that have a range on each of these axes, for a figure against the baseline.

    Each is a mapping with ``label``, ``text`` and ``ranges`` (pairs in the order of the axes). Latencies of the paper
    are of its own device, a Jetson Orin Nano, whatever target the axis names.
    """
    found = []
    for one in _read().statements:
        ranges = [one.along(axis) for axis in axes]
        if all(span is not None for span in ranges):
            found.append({"label": one.label, "text": one.text, "ranges": [list(span) for span in ranges if span]})
    return found
