"""Tables as plain data, as text and as HTML, for all front ends and files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from syno_lab.drawing.style import ACCENT, DARK_ACCENT, DARK_INK, GREY, INK
from syno_lab.inputs import aligned, printable

Cell = str | int | float | None


class Table(NamedTuple):
    """A table: its title, the header of each column, and the cells row by row. None is an unknown value."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def records(self) -> list[dict[str, Cell]]:
        """Return each row as a mapping from column header to cell."""
        return [dict(zip(self.heads, row, strict=True)) for row in self.rows]


def cell_text(cell: Cell) -> str:
    """Format a cell: whole numbers with commas, other numbers with four digits, an empty text for None."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return printable(cell)
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:.4g}"


def table_text(table: Table) -> str:
    """Format a table for a terminal, with its title above; numbers are right-aligned."""
    lines = [list(table.heads), *([cell_text(cell) for cell in row] for row in table.rows)]
    kinds = [{type(row[i]) for row in table.rows} for i in range(len(table.heads))]
    numbers = [i for i, kind in enumerate(kinds) if kind & {int, float} and str not in kind]
    return "\n".join([f"{printable(table.title)}:", *(f"  {line}" for line in aligned(lines, numbers))])


def shown_table(table: Table) -> dict[str, str | list[str] | list[bool] | list[list[str]]]:
    """Return a table for a page: ``title``, ``heads``, ``numbers`` (whether a column is numeric), ``rows`` of texts."""
    columns = [[row[i] for row in table.rows] for i in range(len(table.heads))]
    return {
        "title": table.title,
        "heads": list(table.heads),
        "numbers": [any(isinstance(cell, int | float) for cell in column) for column in columns],
        "rows": [[cell_text(cell) for cell in row] for row in table.rows],
    }


def html_table(heads: Iterable[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """Return a table of HTML cells; the first cell of each row is the row's header."""
    caption_html = f"<caption>{escape(printable(caption))}</caption>" if caption else ""
    head = "".join(f'<th scope="col">{escape(printable(title))}</th>' for title in heads)
    lines = (f'<th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}' for first, *cells in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table>{caption_html}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_page(title: str, body: Iterable[str], style: str = "") -> str:
    """Return a page that loads nothing and runs nothing, with HTML below its title; ``style`` is additional CSS."""
    return _PAGE.format(title=escape(printable(title)), body="\n".join(body), style=style)


_PAGE = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{title}}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'">
<meta name="viewport" content="width=device-width"><style>
:root {{{{ color-scheme: light dark; color: light-dark({INK}, {DARK_INK}); }}}}
body {{{{ font: 14px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; }}}}
h1 {{{{ font-size: 20px; }}}}
a {{{{ color: light-dark({ACCENT}, {DARK_ACCENT}); }}}}
table {{{{ border-collapse: collapse; margin: 1.5em 0; }}}}
caption {{{{ text-align: left; font-weight: bold; padding: .3em 0; }}}}
th, td {{{{ text-align: left; padding: .3em 1.2em .3em 0; vertical-align: top; border-bottom: 1px solid {GREY}; }}}}
{{style}}</style></head><body><main>
<h1>{{title}}</h1>
{{body}}
</main></body></html>
"""
