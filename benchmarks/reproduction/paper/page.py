"""A reproduction as one page of HTML, which needs neither scripts nor a server, and as a notebook.

Each figure has the paper's points and ours, the scale, and the differences in words. A part that has not ended shows
the paper's points alone, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from reproduction.paper import differences
from reproduction.paper.facts import PaperFigure, results_of
from reproduction.paper.language import figure_10
from reproduction.paper.layers import figure_9
from reproduction.paper.rates import distance_ablation, table_2
from reproduction.paper.vision import figure_5, figure_6, figure_8
from syno_lab.errors import FormatError
from syno_lab.inputs import printable
from syno_lab.training.files import write_whole

PAGE_FILE, NOTEBOOK_FILE = "reproduction.html", "reproduction.ipynb"
#: In which a notebook finds this package.
_HERE = Path(__file__).parents[2]
_STYLE = """
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; color: #222; }
figure { margin: 1rem 0; } svg { width: 100%; height: auto; } table { border-collapse: collapse; }
th, td { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; } h2 { margin-top: 2.5rem; }
"""


@dataclass(frozen=True)
class Shown:
    """A figure of the page: its heading, the function that makes it, the part that it is of, and its differences."""

    heading: str
    make: Callable[..., PaperFigure]
    part: str
    words: Callable[[Path], list[str]]


def _as_figure_5(path: Path) -> list[str]:
    del path
    return ["The networks, the scale and the differences are those of Figure 5."]


FIGURES = (
    Shown("Table 2: canonical rates", table_2, "table-2", differences.of_rates),
    Shown("Section 9.4: shape distance", distance_ablation, "distance", differences.of_distance),
    Shown("Figure 5: speedup within one point", figure_5, "networks", differences.of_networks),
    Shown("Figure 6: accuracy against inference time", figure_6, "networks", _as_figure_5),
    Shown("Figure 8: Operator 1 and others", figure_8, "networks", _as_figure_5),
    Shown("Figure 9: layer by layer", figure_9, "layers", differences.of_layers),
    Shown("Figure 10: a language model", figure_10, "text", differences.of_text),
)


@dataclass(frozen=True)
class _Section:
    shown: Shown
    figure: PaperFigure
    words: list[str]
    is_measured: bool


def sections(folder: Path) -> list[_Section]:
    """The figures of a reproduction's folder.

    Raises:
        FormatError: a part's file is damaged.
    """
    return [_section(shown, folder / "parts" / f"{shown.part}.json") for shown in FIGURES]


def _section(shown: Shown, path: Path) -> _Section:
    if not path.is_file():
        return _Section(shown, shown.make(), [f"The part {shown.part} has not run: only the paper's are shown."], False)
    left_out = results_of(path).get("left_out")
    if left_out:
        return _Section(shown, shown.make(), [f"Left out: {left_out}. Only the paper's are shown."], False)
    return _Section(shown, shown.make(path), shown.words(path), True)


def write_pages(folder: Path, scale: list[tuple[str, str, str]]) -> tuple[Path, Path]:
    """Write the page and the notebook into a reproduction's folder.

    Args:
        folder: of the reproduction.
        scale: name, figures and scale of each part in words.

    Raises:
        FormatError: a part's file is damaged.
        TrainingError: a file cannot be written.
    """
    made = sections(folder)
    facts = _facts(folder)
    page, notebook = folder / PAGE_FILE, folder / NOTEBOOK_FILE
    write_whole(page, _page(made, scale, facts).encode())
    content = msgspec.json.format(msgspec.json.encode(_notebook(made, scale, facts)), indent=1)
    write_whole(notebook, content + b"\n")
    return page, notebook


def _facts(folder: Path) -> dict[str, tuple[str, str, str]]:
    """Of each part that has ended: the machine, the time that it took, and when it ended."""
    found = {}
    for path in sorted((folder / "parts").glob("*.json")):
        about = results_of(path).get("about")
        if not isinstance(about, Mapping):
            raise FormatError(f"{path}: expected a part of a reproduction with 'about', found none")
        seconds = about.get("seconds")
        took = f"{seconds / 60:.1f} minutes" if isinstance(seconds, (int, float)) else ""
        found[path.stem] = (printable(str(about.get("machine", ""))), took, printable(str(about.get("ended", ""))))
    return found


_INTRODUCTION = (
    "The tables and figures of Zhuo, Su, Zhao and Gao, Syno: Structured Synthesis for Neural Operators (ASPLOS 2025), "
    "run by `reproduce.py`. Purple is what the paper states; all else was measured here. Points that the paper "
    "only draws are left out."
)


def _rows(scale: list[tuple[str, str, str]], facts: Mapping[str, tuple[str, str, str]]) -> list[tuple[str, ...]]:
    return [(name, figures, words, *facts.get(name, ("", "not run", ""))[1:]) for name, figures, words in scale]


_HEADS = ("part", "for", "scale", "took", "ended")


def _machines(facts: Mapping[str, tuple[str, str, str]]) -> str:
    return "; ".join(dict.fromkeys(machine for machine, *_ in facts.values())) or "nothing was run yet"


def _page(made: list[_Section], scale: list[tuple[str, str, str]], facts: Mapping[str, tuple[str, str, str]]) -> str:
    def row(cells: tuple[str, ...], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(printable(cell))}</{tag}>" for cell in cells) + "</tr>"

    table = row(_HEADS, "th") + "".join(row(cells, "td") for cells in _rows(scale, facts))
    parts = [
        f"<section><h2>{escape(one.shown.heading)}</h2>"
        f"<figure>{_svg(one.figure)}</figure>"
        f"<ul>{''.join(f'<li>{escape(printable(words))}</li>' for words in one.words)}</ul></section>"
        for one in made
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Syno, reproduced</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style></head><body><h1>Syno, reproduced</h1><p>{escape(_INTRODUCTION)}</p>"
        f"<p>Machine: {escape(_machines(facts))}.</p><table>{table}</table>{''.join(parts)}</body></html>\n"
    )


def _svg(figure: PaperFigure) -> str:
    svg = figure.svg()
    return svg[svg.index("<svg") :]


def _notebook(
    made: list[_Section], scale: list[tuple[str, str, str]], facts: Mapping[str, tuple[str, str, str]]
) -> dict[str, Any]:
    """The same as the JSON of nbformat 4.5: each cell makes its figure from the part's file, and has it as output."""
    table = ["| " + " | ".join(_HEADS) + " |", "| --- " * len(_HEADS) + "|"]
    table += ["| " + " | ".join(map(printable, cells)) + " |" for cells in _rows(scale, facts)]
    cells = [
        _words("# Syno, reproduced", _INTRODUCTION, f"Machine: {_machines(facts)}.", "\n".join(table)),
        _code(f"import sys\n\nsys.path.append({str(_HERE)!r})\nfrom reproduction.paper import *"),
    ]
    for one in made:
        name = one.shown.make.__name__
        source = f'{name}("parts/{one.shown.part}.json")' if one.is_measured else f"{name}()"
        cells.append(_words(f"## {one.shown.heading}", "\n".join(f"- {printable(words)}" for words in one.words)))
        shown = {"image/svg+xml": one.figure.svg().splitlines(keepends=True), "text/plain": [one.figure.text]}
        cells.append(_code(source, shown))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number:02}"
    python = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    metadata = {"kernelspec": python, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _words(*paragraphs: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": "\n\n".join(paragraphs).splitlines(keepends=True)}


def _code(source: str, shown: Mapping[str, Any] | None = None) -> dict[str, Any]:
    outputs = []
    if shown is not None:
        outputs.append({"output_type": "execute_result", "execution_count": None, "data": shown, "metadata": {}})
    cell: dict[str, Any] = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": outputs}
    return {**cell, "source": source.splitlines(keepends=True)}
