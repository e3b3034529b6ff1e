"""What the tables of ``benchmarks/README.md`` are made of: a result, its place in the page, Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Result = dict[str, Any]
NONE = "–"


@dataclass(frozen=True)
class Measure:
    """A result of the page: ``results/{file}.json``, which ``command`` makes, and its ``rows`` in Markdown.

    ``above`` is a heading or a picture above the rows.
    """

    file: str
    command: str
    rows: Callable[[Result], str]
    above: str = ""


class Part:
    """The results between the markers of one name, each with a footer of its own, or all with ``one_footer``."""

    def __init__(self, name: str, *measures: Measure, one_footer: bool = False) -> None:
        self.name, self.measures, self.one_footer = name, measures, one_footer


def single(name: str, rows: Callable[[Result], str], above: str = "", *, script: str = "") -> Part:
    """A part with one result, whose file has the part's name; so has its script unless ``script`` is given."""
    file = name.replace("-", "_")
    return Part(name, Measure(file, f"python benchmarks/{script or f'{file}.py'}", rows, above))


def table(heading: str | Iterable[str], rows: Iterable[str | Iterable[str]]) -> str:
    """A Markdown table; a line of it is its cells, or a text in which bars divide them."""
    titles, *lines = (line if isinstance(line, str) else " | ".join(line) for line in (heading, *rows))
    rule = " | ".join(["---"] * (titles.count("|") + 1))
    return "\n".join(f"| {line} |" for line in (titles, rule, *lines))


def listing(heading: str, form: str, field: str = "") -> Callable[[Result], str]:
    """The table of a result: ``form`` with the values of each row in its ``field``, or with those of the result."""
    return lambda result: table(heading, map(form.format_map, result[field] if field else [result]))


def number(value: float | None, digits: int = 3) -> str:
    """A figure for people: thousands with commas, else so many significant digits."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def within(middle: float, low: float, high: float, form: str = ".2f") -> str:
    """A figure and the two ends of its interval or range."""
    return f"{middle:{form}} ({low:{form}} to {high:{form}})"


def abouts(result: Result) -> list[dict[str, Any]]:
    """Where and when a result was measured, then each part of it that was measured apart."""
    own = result.get("abouts") or ([result["about"]] if "about" in result else [])
    return [*own, *(part["about"] for part in result.values() if isinstance(part, dict) and "about" in part)]


def footer(found: Iterable[dict[str, Any]]) -> str:
    """Which machine, when, and by which command, each said once."""
    line = "- `{command}`, {date}, commit {commit}, {machine}, Python {python}"
    return "\n".join(dict.fromkeys(line.format_map(about) for about in found))
