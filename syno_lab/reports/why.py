"""Why this one: all that a lab knows of one operator that a search found, as a page that stands alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from syno_lab.errors import StoreError, SynoError
from syno_lab.inputs import quoted
from syno_lab.panes import Asked, panes_of, read_pane
from syno_lab.protocol import Operator
from syno_lab.reports.lab import LabReader
from syno_lab.reports.rows import OnRung, TrialRow
from syno_lab.reports.searched import RESULT, read_said, searched
from syno_lab.reports.text_tables import Table, cell_text, html_page, html_table, shown_table, table_text
from syno_lab.store.latencies import latency_title
from syno_lab.store.outcomes import Comparison
from syno_lab.store.rungs import FINAL
from syno_lab.systems import read_operator, system_of
from syno_lab.versioned import JSON

_NEAREST = 3


@dataclass(frozen=True)
class Why:
    """What is known of one operator of a search; what was not measured is None or empty.

    ``row`` is its trial, ``baseline`` that of the network without an operator, ``known`` the name of the known operator
    that it is. ``comparisons`` are the finals with it, by the name of the share of FLOPs that it is the best of;
    ``panes`` the data of its panes ``kernel``, ``cost``, ``near`` and ``graph`` (:mod:`syno_lab.panes`).
    """

    row: TrialRow
    baseline: TrialRow | None
    operator: Operator
    comparisons: Mapping[str, Comparison]
    panes: Mapping[str, Mapping[str, Any]]
    known: str | None


def read_why(folder: Path, key: str) -> Why:
    """Read what the lab in ``folder`` knows of a trial.

    Args:
        folder: of the lab.
        key: ``NAME#NUMBER`` of a search's trial; ``search:NAME#NUMBER`` as well.

    Raises:
        StoreError: there is no such lab or trial, or the trial is the network without an operator.
        FormatError: no system reads the operator.
    """
    with LabReader(folder) as reader:
        reading = reader.read()
    row = reading.row(key if ":" in key.partition("#")[0] else f"search:{key}")
    if not row.operator:
        raise StoreError(f"{quoted(key)} is the network as it is: expected a trial with an operator")
    source = next(one for one in reading.sources if one.key == row.source)
    operator = read_operator(row.operator)
    said = searched(read_said(folder, source.name, RESULT))
    mine = [name for name, number in said.numbers.items() if number == row.number and name in said.comparisons]
    asked = Asked(operator, f"{row.label} of {source.name}")
    panes = {}
    for name in ("kernel", "cost", "near", "graph"):
        if name in panes_of(operator):
            try:
                panes[name] = read_pane(asked, name)
            except SynoError:  # such as a kernel that is too large: the page goes without
                continue
    comparisons = {name: said.comparisons[name] for name in mine}
    return Why(row, source.baseline, operator, comparisons, panes, system_of(operator).recognise(operator))


def why_tables(found: Why) -> list[Table]:
    """What is known as tables: a title, the heads and the cells of each."""
    row = found.row
    costs = {"flops": "FLOPs", "params": "parameters"}
    rows = [[title, f"{getattr(row, name):,}", _over(found, name)] for name, title in costs.items()]
    if row.accuracy is not None:
        rows.insert(0, ["accuracy", f"{row.accuracy:.3f}", _over(found, "accuracy")])
    rows += [[latency_title(target), f"{latency:.3g} ms", ""] for target, latency in row.latencies.items()]
    if row.probe is not None:
        rows.append(["probe", f"{row.probe:.2f}", ""])
    heads: tuple[str, ...]
    tables = [Table("The network with it", ("", "value", "of the baseline's"), rows)]
    finals = [_final(name, one) for name, one in found.comparisons.items()]
    if finals:
        wide = ("best within", "baseline", "with it", "difference", "interval", "seeds", "verdict")
        tables.append(Table("Finals, on the test data", wide, finals))
    if row.rungs:
        heads = ("rung", "seeds", "measure", "accuracy", "baseline's there", "outcome")
        tables.append(Table("Rungs", heads, [_passed(one, found.baseline) for one in row.rungs]))
    if "kernel" in found.panes:
        data = found.panes["kernel"]
        ranks = [
            [one["name"], *(f"{one[rank]:.1f}" for rank in ("space", "outputs", "inputs"))] for one in data["rows"]
        ]
        ranks.append(["share", *(f"{data['shares'][rank]:.0%}" for rank in ("space", "outputs", "inputs"))])
        heads = ("effective rank over", "offsets", "output channels", "input channels")
        tables.append(Table("Kernel for random weights", heads, ranks))
    if "near" in found.panes:
        near = [
            [one["name"], f"{one['distance']:.2f}", "the same" if one["same"] else "; ".join(one["differences"][:2])]
            for one in found.panes["near"]["rows"][:_NEAREST]
        ]
        heads = ("operator", "distance in steps", "what differs most (cost)")
        tables.append(Table("Nearest known operators", heads, near))
    if "cost" in found.panes:
        totals = found.panes["cost"]["totals"]
        sizes = ", ".join(f"{name}={size}" for name, size in found.panes["cost"]["binding"].items())
        cells = [[name.replace("_", " "), f"{number:,}"] for name, number in totals.items()]
        tables.append(Table(f"The operator alone, with {sizes}", ("cost", "number"), cells))
    return tables


def why_text(found: Why) -> str:
    """What is known, as text for a terminal."""
    return "\n\n".join([_title(found), *map(table_text, why_tables(found))])


def shown_why(found: Why) -> dict[str, JSON]:
    """What is known, for a view: ``title``, ``tables`` (:func:`.shown_table`), ``pictures`` with ``svg`` and ``text``.

    ``paper`` of a picture: whether it is drawn on white.
    """
    return {
        "title": _title(found),
        "tables": [shown_table(table) for table in why_tables(found)],
        "pictures": [{"svg": svg, "text": words, "paper": paper} for svg, words, paper in _pictures(found)],
    }


def _pictures(found: Why) -> list[tuple[str, str, bool]]:
    """The kernel, drawn for any ground, and the operator, drawn for a white one, with their descriptions."""
    drawn = []
    for name, words, paper in (
        ("kernel", "The kernel beside a convolution's: darker is more.", False),
        ("graph", "The operator, from its output to its input.", True),
    ):
        if name in found.panes:
            svg = found.panes[name]["svg"]
            drawn.append((svg[svg.index("<svg") :], words, paper))  # without an XML declaration
    return drawn


def why_page(found: Why) -> str:
    """What is known, as an HTML page that loads nothing and runs nothing."""
    figures = {}
    for svg, words, paper in _pictures(found):
        kind = ' class="paper"' if paper else ""
        figures[paper] = f'<figure{kind} tabindex="0">{svg}<figcaption>{escape(words)}</figcaption></figure>'
    tables = [
        html_table(heads, [[escape(cell_text(cell)) for cell in row] for row in rows], caption)
        for caption, heads, rows in why_tables(found)
    ]
    return html_page(_title(found), [figures.get(False, ""), *tables, figures.get(True, "")], _STYLE)


_STYLE = """figure { margin: 1.5em 0; overflow-x: auto; }
figure.paper svg { background: #fff; color: #000; }
"""


def write_pages(folder: Path, keys: Iterable[str], into: Path) -> list[Path]:
    """Write the pages of trials of the lab in ``folder`` as ``why-NUMBER.html`` into a folder. Raises as read_why."""
    files = []
    for key in keys:
        found = read_why(folder, key)
        files.append(into / f"why-{found.row.number}.html")
        files[-1].write_text(why_page(found), encoding="utf-8")
    return files


def _title(found: Why) -> str:
    name = f", which is {found.known}" if found.known else ""
    return f"Why {found.row.label} of {found.row.source.partition(':')[2]}: {found.row.primitives}{name}"


def _measure(number: float | None) -> str:
    return "" if number is None else f"{number:.3f}"


def _over(found: Why, name: str) -> str:
    mine, base = (None if row is None else getattr(row, name) for row in (found.row, found.baseline))
    if mine is None or not base:
        return ""
    return f"{100 * (mine - base):+.1f} points" if name == "accuracy" else f"{mine / base:.1%}"


def _passed(one: OnRung, baseline: TrialRow | None) -> list[str]:
    base = None if baseline is None else baseline.accuracy_on(one.rung)
    numbers = [_measure(number) for number in (one.measure, one.accuracy, base)]
    return ["finals" if one.rung == FINAL else one.rung, str(one.seeds), *numbers, one.state]


def _final(name: str, one: Comparison) -> list[str]:
    by, interval = (text or "" for text in one.texts)
    return [name, _measure(one.baseline), _measure(one.operator), by, interval, str(len(one.seeds)), one.verdict]
