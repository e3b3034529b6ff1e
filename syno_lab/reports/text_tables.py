"""Tables of facts as plain data, and as text: the front ends and files draw the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from syno_lab.inputs import printable

Cell = str | int | float | None


class Table(NamedTuple):
    """A title, the head of each column, and the cells row by row; None is a value that is not known."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def records(self) -> list[dict[str, Cell]]:
        """The rows as mappings from head to cell."""
        return [dict(zip(self.heads, row, strict=True)) for row in self.rows]


def cell_text(cell: Cell) -> str:
    """A cell for people: whole numbers with commas, others with four digits, nothing for what is not known."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return printable(cell)
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:.4g}"


def table_text(table: Table) -> str:
    """A table for a terminal, its title above; numbers stand to the right."""
    lines = [list(table.heads), *([cell_text(cell) for cell in row] for row in table.rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.heads))]
    are_numbers = [
        any(isinstance(row[i], int | float) for row in table.rows)
        and not any(isinstance(row[i], str) for row in table.rows)
        for i in range(len(table.heads))
    ]

    def written(line: list[str]) -> str:
        columns = zip(line, widths, are_numbers, strict=True)
        parts = [text.rjust(width) if is_number else text.ljust(width) for text, width, is_number in columns]
        return f"  {'  '.join(parts).rstrip()}"

    return "\n".join([f"{printable(table.title)}:", *map(written, lines)])


def shown_table(table: Table) -> dict[str, str | list[str] | list[bool] | list[list[str]]]:
    """A table for a page: ``title``, ``heads``, ``numbers`` (whether a column has numbers), ``rows`` of texts."""
    columns = [[row[i] for row in table.rows] for i in range(len(table.heads))]
    return {
        "title": table.title,
        "heads": list(table.heads),
        "numbers": [any(isinstance(cell, int | float) for cell in column) for column in columns],
        "rows": [[cell_text(cell) for cell in row] for row in table.rows],
    }
