"""Lines about a search while it runs: its parts as they begin, and its front as it grows."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from syno_lab.errors import SynoError
from syno_lab.experiments.settings import SearchSettings
from syno_lab.reports import LabReader, front_of
from syno_lab.reports.axes import RUNG
from syno_lab.reports.progress import plan_table, read_progress, title
from syno_lab.reports.text_tables import table_text

#: Seconds between two looks at the front.
LOOK_S = 2.0
_MOST = 5


class Streamer:
    """A report of a search (``report(fraction, message)``) that says what is new of its plan, parts and front."""

    def __init__(self, lab: Path, settings: SearchSettings, say: Callable[[str], None]) -> None:
        self._reader = LabReader(lab)
        self._lab, self._name, self._minutes = lab, settings.name, settings.minutes or 0.0
        self._say = say
        self._next = 0.0
        self._said: set[str] = set()

    def __call__(self, fraction: float, message: str) -> None:
        """Say the part that has begun, and the front on its rung where it has changed."""
        part, _, rest = message.partition(":")
        self._once(f"{fraction:4.0%} {title(part)}:{rest}" if rest else message, key=part)
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + LOOK_S
        found = read_progress(self._lab, self._name)
        if found is not None and found.minutes is not None and abs(found.minutes - self._minutes) < 0.01:
            self._once(table_text(plan_table(found)), key="the plan")
        if line := self._front(part):
            self._once(line, key=line)

    def _once(self, line: str, *, key: str) -> None:
        if key not in self._said:
            self._said.add(key)
            self._say(line)

    def _front(self, rung: str) -> str:
        try:
            rows = self._reader.read().of(f"search:{self._name}")
            baseline = next((row for row in rows if row.is_baseline), None)
            front = front_of([row for row in rows if not row.is_baseline], (RUNG + rung, "flops"))
        except SynoError:  # the store is busy, or has no trial yet
            return ""
        points = [front.points[at] for at in front.front]
        if not points:
            return ""
        whole = baseline.flops if baseline is not None and baseline.flops else None
        told = [
            f"{point.name} {point.values[0]:.3f} at "
            + (f"{point.values[1]:,.0f} FLOPs" if whole is None else f"{point.values[1] / whole:.2f} of the FLOPs")
            for point in sorted(points, key=lambda point: -point.values[0])[:_MOST]
        ]
        return f"front on {title(rung)} (accuracy): {'; '.join(told)}"
