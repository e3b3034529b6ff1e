"""The steps of several operators side by side: which are the same, which differ, and which one operator has alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from syno_lab.protocol import Traced, TracedStep
from syno_lab.systems import find_system

Mark = Literal["same", "some", "differs", "only"]


@dataclass(frozen=True)
class AlignedRow:
    """The steps of several operators that belong together, in ``cells``; None where an operator has none here."""

    cells: tuple[TracedStep | None, ...]

    @property
    def there(self) -> tuple[int, ...]:
        """The operators that have a step here, by their numbers."""
        return tuple(number for number, cell in enumerate(self.cells) if cell is not None)

    @property
    def mark(self) -> Mark:
        """``same``: all have the same step; ``some``: several do, others none; ``differs``; ``only``: one has it."""
        if len(self.there) == 1:
            return "only"
        if len({cell.key for cell in self.cells if cell is not None}) > 1:
            return "differs"
        return "same" if len(self.there) == len(self.cells) else "some"


def trace_all(formats: Sequence[str], values: Sequence[object]) -> list[list[TracedStep]]:
    """The steps of operators or states, each with the format of its system: equal keys, equal steps.

    Steps of two systems are never equal, and never take anything in common.
    """
    found: list[list[TracedStep]] = [[] for _ in values]
    first = 0
    for name in dict.fromkeys(formats):
        numbers = [number for number, one in enumerate(formats) if one == name]
        system = find_system(name)
        if not isinstance(system, Traced):
            continue
        traces = system.traces([values[number] for number in numbers])
        keys = [key for trace in traces for step in trace for key in (step.key, *step.takes)]
        for number, trace in zip(numbers, traces, strict=True):
            found[number] = [
                replace(step, key=step.key + first, takes=frozenset(key + first for key in step.takes))
                for step in trace
            ]
        first += 1 + max(keys, default=0)
    return found


def align(traces: Sequence[Sequence[TracedStep]]) -> list[AlignedRow]:
    """Put the steps of operators in rows.

    Equal steps share a row. What is left is paired where it is of one kind and takes something in common, the most
    in common first. The rows stand in the order of the first operator; a step that it lacks stands before the next one
    of its own operator that has a row, or at the end.
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
                after = next((one for one in homes[place:] if one is not None), None)
                rows.insert(max(before + 1, len(rows) if after is None else rows.index(after)), home)
            home.cells[number] = step
            before = rows.index(home)
    return [AlignedRow(tuple([row.cells.get(number) for number in range(len(traces))])) for row in rows]


@dataclass(eq=False)
class _Row:
    """A row under way: its steps by the numbers of their operators."""

    cells: dict[int, TracedStep] = field(default_factory=dict)
    taken: int = -1  # the operator whose step is to come here


def _equal(rows: Sequence[_Row], number: int, step: TracedStep) -> _Row | None:
    """The row of an equal step, unless another step of this operator has it."""
    for row in rows:
        if row.taken != number and any(cell.key == step.key for cell in row.cells.values()):
            row.taken = number
            return row
    return None


def _alike(
    rows: Sequence[_Row], number: int, trace: Sequence[TracedStep], homes: Sequence[_Row | None]
) -> list[tuple[int, _Row]]:
    """Rows for steps that are equal to none, by their places in the trace."""
    pairs = []
    for place, (step, home) in enumerate(zip(trace, homes, strict=True)):
        if home is not None:
            continue
        for row in rows:
            if row.taken == number:
                continue
            common = max(len(step.takes & cell.takes) if cell.kind == step.kind else 0 for cell in row.cells.values())
            if common:
                pairs.append((-common, place, row))
    found: dict[int, _Row] = {}
    for _, place, row in sorted(pairs, key=lambda pair: pair[:2]):
        if place not in found and row.taken != number:
            row.taken = number
            found[place] = row
    return list(found.items())
