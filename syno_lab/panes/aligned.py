"""Align the steps of several operators; mark the steps that are equal, differ, or occur in only one operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from syno_lab.protocol import Traced, TracedStep
from syno_lab.systems import find_system

Mark = Literal["same", "some", "differs", "only"]


@dataclass(frozen=True)
class AlignedRow:
    """Corresponding steps of several operators; a cell is None where the operator has no corresponding step."""

    cells: tuple[TracedStep | None, ...]

    @property
    def there(self) -> tuple[int, ...]:
        """The numbers of the operators that have a step in this row."""
        return tuple(number for number, cell in enumerate(self.cells) if cell is not None)

    @property
    def mark(self) -> Mark:
        """The mark: ``only`` (one operator has a step), ``differs``, ``same`` (in all) or ``some`` (in several)."""
        if len(self.there) == 1:
            return "only"
        if len({cell.key for cell in self.cells if cell is not None}) > 1:
            return "differs"
        return "same" if len(self.there) == len(self.cells) else "some"


def trace_all(formats: Sequence[str], values: Sequence[object]) -> list[list[TracedStep]]:
    """Return the traced steps of operators or states of systems with these formats; equal steps have equal keys.

    Steps of different systems are never equal and have no common inputs.
    """
    traces_of: list[list[TracedStep]] = [[] for _ in values]
    first = 0
    for name in dict.fromkeys(formats):
        numbers = [number for number, other in enumerate(formats) if other == name]
        system = find_system(name)
        if not isinstance(system, Traced):
            continue
        traces = system.traces([values[number] for number in numbers])
        keys = [key for trace in traces for step in trace for key in (step.key, *step.takes)]
        for number, trace in zip(numbers, traces, strict=True):
            traces_of[number] = [
                replace(step, key=step.key + first, takes=frozenset(key + first for key in step.takes))
                for step in trace
            ]
        first += 1 + max(keys, default=0)
    return traces_of


def align(traces: Sequence[Sequence[TracedStep]]) -> list[AlignedRow]:
    """Arrange the steps of several operators in the rows of a table.

    Equal steps share a row. Next, steps of one kind with common inputs share a row; steps with the most common inputs
    are paired first. Rows have the order of the first operator's steps. A step without a row gets a new row before the
    row of its operator's next step, or at the end.
    """
    rows: list[_Row] = []
    for number, trace in enumerate(traces):
        homes: list[_Row | None] = [_equal(rows, number, step) for step in trace]
        for place, row in _alike(rows, number, trace, homes):
            homes[place] = row
        before = -1
        for place, step in enumerate(trace):
            home = homes[place]
            if home is None:
                home = _Row()
                after = next((next_row for next_row in homes[place:] if next_row is not None), None)
                rows.insert(max(before + 1, len(rows) if after is None else rows.index(after)), home)
            home.cells[number] = step
            before = rows.index(home)
    return [AlignedRow(tuple([row.cells.get(number) for number in range(len(traces))])) for row in rows]


@dataclass(eq=False)
class _Row:
    """A row of the table during its construction: the row's steps by the numbers of their operators."""

    cells: dict[int, TracedStep] = field(default_factory=dict)
    filled_by: int = -1  # the number of the last operator with a step in this row


def _equal(rows: Sequence[_Row], number: int, step: TracedStep) -> _Row | None:
    """Return the row of an equal step; None if another step of this operator fills the row already."""
    for row in rows:
        if row.filled_by != number and any(cell.key == step.key for cell in row.cells.values()):
            row.filled_by = number
            return row
    return None


def _alike(
    rows: Sequence[_Row], number: int, trace: Sequence[TracedStep], homes: Sequence[_Row | None]
) -> list[tuple[int, _Row]]:
    """Return for each step that has only a similar step its index in the trace, and the similar step's row."""
    pairs = []
    for place, (step, home) in enumerate(zip(trace, homes, strict=True)):
        if home is not None:
            continue
        for row in rows:
            if row.filled_by == number:
                continue
            common = max(len(step.takes & cell.takes) if cell.kind == step.kind else 0 for cell in row.cells.values())
            if common:
                pairs.append((-common, place, row))
    homes_found: dict[int, _Row] = {}
    for _, place, row in sorted(pairs, key=lambda pair: pair[:2]):
        if place not in homes_found and row.filled_by != number:
            row.filled_by = number
            homes_found[place] = row
    return list(homes_found.items())
