"""All data of a lab about one operator that a search found, as a page without other files: "why this operator?"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from syno_lab.drawing.style import INK, WHITE
from syno_lab.errors import StoreError, SynoError
from syno_lab.inputs import quoted
from syno_lab.panes import Asked, panes_of, read_pane
from syno_lab.protocol import Operator
from syno_lab.reports.named import find_trial
from syno_lab.reports.rows import OnRung, TrialRow
from syno_lab.reports.searched import RESULT, read_said, searched
from syno_lab.reports.text_tables import Table, cell_text, html_page, html_table, shown_table, table_text
from syno_lab.store.latencies import latency_title
from syno_lab.store.outcomes import Comparison
from syno_lab.store.rungs import FINAL
from syno_lab.store.verdicts import sentence, slower
from syno_lab.systems import read_operator, system_of
from syno_lab.versioned import JSON

_NEAREST = 3


@dataclass(frozen=True)
class Why:
    """All data of a lab about an operator that a search found. Values that were not measured are None or empty.

    ``row`` is the operator's trial, ``baseline`` the row of the network without an operator, ``known`` the name of a
    known operator or None. ``comparisons`` are the operator's finals, by the share of FLOPs within which it is the
    best, and those of the search's rivals.
    ``panes`` has the data of the panes ``kernel``, ``cost``, ``near`` and ``graph`` (:mod:`syno_lab.panes`).
    """

    row: TrialRow
    baseline: TrialRow | None
    operator: Operator
    comparisons: Mapping[str, Comparison]
    panes: Mapping[str, Mapping[str, Any]]
    known: str | None


def read_why(folder: Path, key: str) -> Why:
    """Read a lab's data about a trial.

    Args:
        folder: the lab's folder.
        key: the name of a trial (:func:`.find_trial`): ``NAME#NUMBER``, ``NAME#best`` or ``search:NAME#NUMBER``.

    Raises:
        StoreError: there is no such lab or trial, or the trial is the network without an operator.
        FormatError: no system reads the operator.
    """
    source, row = find_trial(key, folder)
    if not row.operator:
        raise StoreError(f"{quoted(key)} is the network as it is: expected a trial with an operator")
    operator = read_operator(row.operator)
    content = searched(read_said(folder, source.name, RESULT))
    own = [name for name, number in content.numbers.items() if number == row.number and name in content.comparisons]
    question = Asked(operator, f"{row.label} of {source.name}")
    real = tuple(row.places[0][1].items()) if row.places else None
    panes = {}
    for name in ("kernel", "cost", "near", "graph"):
        if name in panes_of(operator):
            try:
                panes[name] = read_pane(replace(question, binding=real) if name == "cost" else question, name)
            except SynoError:  # the page leaves out this pane: the kernel may be too large
                continue
    comparisons = {name: content.comparisons[name] for name in own}
    if own:
        comparisons |= {f"rival: {title}": one for title, one in content.rivals.items()}
    return Why(row, source.baseline, operator, comparisons, panes, system_of(operator).recognise(operator))


def why_tables(found: Why) -> list[Table]:
    """Return the data as tables, each with a title, headers and cells."""
    row = found.row
    costs = {"flops": "FLOPs", "params": "parameters"}
    rows = [[title, f"{getattr(row, name):,}", _over(found, name)] for name, title in costs.items()]
    if row.accuracy is not None:
        rows.insert(0, ["accuracy", f"{row.accuracy:.3f}", _over(found, "accuracy")])
    base = {} if found.baseline is None else found.baseline.latencies
    for target, latency in row.latencies.items():
        over = f"{latency / base[target]:.2f}x" if base.get(target) else ""
        mark = ", slower" if slower(row.latencies, base, target) else ""
        rows.append([latency_title(target), f"{latency:.3g} ms", over + mark])
    if row.probe is not None:
        rows.append(["probe", f"{row.probe:.2f}", ""])
    heads: tuple[str, ...]
    tables = [Table("The network with it", ("", "value", "of the baseline's"), rows)]
    finals = [_final(name, comparison) for name, comparison in found.comparisons.items()]
    if finals:
        heads = ("best within", "baseline", "with it", "verdict")
        tables.append(Table("Finals, on the test data", heads, finals))
    if row.rungs:
        heads = ("rung", "seeds", "measure", "accuracy", "baseline's there", "outcome")
        tables.append(Table("Rungs", heads, [_passed(entry, found.baseline) for entry in row.rungs]))
    if "kernel" in found.panes:
        data = found.panes["kernel"]
        ranks = [
            [axis["name"], *(f"{axis[rank]:.1f}" for rank in ("space", "outputs", "inputs"))] for axis in data["rows"]
        ]
        ranks.append(["share", *(f"{data['shares'][rank]:.0%}" for rank in ("space", "outputs", "inputs"))])
        heads = ("effective rank over", "offsets", "output channels", "input channels")
        tables.append(Table("Kernel for random weights", heads, ranks))
    if "near" in found.panes:
        near = [
            [it["name"], f"{it['distance']:.2f}", "the same" if it["same"] else "; ".join(it["differences"][:2])]
            for it in found.panes["near"]["rows"][:_NEAREST]
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
    """Return the data as text for a terminal."""
    return "\n\n".join([_title(found), *map(table_text, why_tables(found))])


def shown_why(found: Why) -> dict[str, JSON]:
    """Return the data for a view: ``title``, ``tables`` (:func:`.shown_table`), ``pictures`` with ``svg`` and ``text``.

    The field ``paper`` of a picture says whether the background must be white.
    """
    return {
        "title": _title(found),
        "tables": [shown_table(table) for table in why_tables(found)],
        "pictures": [{"svg": svg, "text": words, "paper": paper} for svg, words, paper in _pictures(found)],
    }


def _pictures(found: Why) -> list[tuple[str, str, bool]]:
    """Return two pictures and descriptions: the kernel for any background, the operator for a white background."""
    pictures = []
    for name, words, paper in (
        ("kernel", "The kernel beside a convolution's: darker is more.", False),
        ("graph", "The operator, from its output to its input.", True),
    ):
        if name in found.panes:
            svg = found.panes[name]["svg"]
            pictures.append((svg[svg.index("<svg") :], words, paper))  # SVG without an XML declaration
    return pictures


def why_page(found: Why) -> str:
    """Return the data as an HTML page that loads nothing and runs nothing."""
    figures = {}
    for svg, words, paper in _pictures(found):
        kind = ' class="paper"' if paper else ""
        figures[paper] = f'<figure{kind} tabindex="0">{svg}<figcaption>{escape(words)}</figcaption></figure>'
    tables = [
        html_table(heads, [[escape(cell_text(cell)) for cell in row] for row in rows], caption)
        for caption, heads, rows in why_tables(found)
    ]
    return html_page(_title(found), [figures.get(False, ""), *tables, figures.get(True, "")], _STYLE)


_STYLE = f"""figure {{ margin: 1.5em 0; overflow-x: auto; }}
figure.paper svg {{ background: {WHITE}; color: {INK}; }}
"""


def write_pages(folder: Path, keys: Iterable[str], into: Path) -> list[Path]:
    """Write the pages of a lab's trials as ``why-NUMBER.html`` into a folder. Raises as :func:`read_why` does."""
    files = []
    for key in keys:
        why = read_why(folder, key)
        files.append(into / f"why-{why.row.number}.html")
        files[-1].write_text(why_page(why), encoding="utf-8")
    return files


def _title(found: Why) -> str:
    title = f"Why {found.row.label} of {found.row.source.partition(':')[2]}: {found.row.primitives}"
    if found.known:
        return f"{title}, which is {found.known}"
    for it in found.panes["near"]["rows"][:1] if "near" in found.panes else ():
        differences = "; ".join(text.rpartition(" (")[0] for text in it["differences"][:2]) or "no step differs"
        title += f"; the nearest known operator is {it['name']}: {differences}"
    return title


def _measure(number: float | None) -> str:
    return "" if number is None else f"{number:.3f}"


def _over(why: Why, name: str) -> str:
    own, base = (None if row is None else getattr(row, name) for row in (why.row, why.baseline))
    if own is None or not base:
        return ""
    return f"{100 * (own - base):+.1f} points" if name == "accuracy" else f"{own / base:.1%}"


def _passed(trainings: OnRung, baseline: TrialRow | None) -> list[str]:
    base = None if baseline is None else baseline.accuracy_on(trainings.rung)
    numbers = [_measure(number) for number in (trainings.measure, trainings.accuracy, base)]
    return ["finals" if trainings.rung == FINAL else trainings.rung, str(trainings.seeds), *numbers, trainings.state]


def _final(name: str, one: Comparison) -> list[str]:
    return [name, _measure(one.baseline), _measure(one.operator), sentence(one)]
