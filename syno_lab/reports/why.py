"""Why this one: all that a lab knows of one operator that a search found, as a page that stands alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import fsum
from pathlib import Path
from typing import Any

from syno_lab.errors import StoreError, SynoError
from syno_lab.inputs import quoted
from syno_lab.panes import Asked, panes_of, read_pane
from syno_lab.protocol import Operator
from syno_lab.reports.lab import LabReader
from syno_lab.reports.rows import TrialRow
from syno_lab.store import Store
from syno_lab.store.courses import read_course
from syno_lab.store.database import FILE_NAME
from syno_lab.store.records import finite
from syno_lab.systems import read_operator, system_of

_NEAREST = 3
_TRAINED, _ENDED = "finished", ("waiting", "taken")


@dataclass(frozen=True)
class Passed:
    """The trainings of an operator on one rung.

    Attributes:
        rung: the name of the rung.
        seeds: how many seeds ended.
        measure: the mean over the seeds of what the rung ranks by; None where one did not finish.
        state: ``finished``, or the outcome of the first training that did not finish.
    """

    rung: str
    seeds: int
    measure: float | None
    state: str


@dataclass(frozen=True)
class Why:
    """What is known of one operator of a search; what was not measured is None or empty.

    Attributes:
        row: the trial, and ``baseline``: that of the network without an operator.
        operator: the operator.
        rungs: where it was trained, in order.
        comparisons: the finals with it, by the name of the share of FLOPs that it is the best of.
        panes: the data of its panes ``kernel``, ``cost``, ``near`` and ``graph`` (:mod:`syno_lab.panes`).
        known: the name of the known operator that it is.
    """

    row: TrialRow
    baseline: TrialRow | None
    operator: Operator
    rungs: tuple[Passed, ...]
    comparisons: Mapping[str, Mapping[str, Any]]
    panes: Mapping[str, Mapping[str, Any]]
    known: str | None


def read_why(folder: Path, key: str) -> Why:
    """Read what the lab in ``folder`` knows of a trial.

    Args:
        folder: of the lab.
        key: ``NAME#NUMBER`` of a search's trial; ``search:NAME#NUMBER`` and ``run:NAME#FINGERPRINT`` as well.

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
    rungs: tuple[Passed, ...] = ()
    comparisons: dict[str, Mapping[str, Any]] = {}
    if source.kind == "search":
        rungs = _rungs(folder, source.name, row.number)
        comparisons = _comparisons(folder / "searches" / source.name / "result.json", row.number)
    asked = Asked(operator, f"{row.label} of {source.name}")
    panes = {}
    for name in ("kernel", "cost", "near", "graph"):
        if name in panes_of(operator):
            try:
                panes[name] = read_pane(asked, name)
            except SynoError:  # such as a kernel that is too large: the page goes without
                continue
    return Why(row, source.baseline, operator, rungs, comparisons, panes, system_of(operator).recognise(operator))


def _rungs(folder: Path, search: str, number: int) -> tuple[Passed, ...]:
    with Store.look(folder / FILE_NAME) as store:
        tables = "SELECT COUNT(*) FROM sqlite_master WHERE type='table' AND name='syno_search_rungs'"
        if store.database.column(tables) == [0]:  # a lab of an earlier version
            return ()
        log = next(one for one in store.searches() if one.name == search)
        trainings = [one for one in log.rungs.trainings() if one.number == number and one.state not in _ENDED]
    found = []
    for rung in dict.fromkeys(one.rung for one in trainings):
        mine = [one for one in trainings if one.rung == rung]
        state = next((one.state for one in mine if one.state != _TRAINED), _TRAINED)
        measures = [one.measure for one in mine if one.measure is not None]
        mean = fsum(measures) / len(mine) if len(measures) == len(mine) and state == _TRAINED else None
        found.append(Passed(rung, len(mine), mean, state))
    return tuple(found)


def _comparisons(file: Path, number: int) -> dict[str, Mapping[str, Any]]:
    result = read_course(file)
    if not isinstance(result, dict):
        return {}
    best, comparisons = (result.get(name) for name in ("best", "comparisons"))
    if not isinstance(best, dict) or not isinstance(comparisons, dict):
        return {}
    mine = [name for name, one in best.items() if isinstance(one, dict) and one.get("number") == number]
    return {name: comparisons[name] for name in mine if isinstance(comparisons.get(name), dict)}


# -- in words ----------------------------------------------------------------------------------------------------------

Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]


def why_tables(found: Why) -> list[Table]:
    """What is known as tables: a title, the heads and the cells of each."""
    row = found.row
    rows = [[title, _plain(getattr(row, name)), _over(found, name)] for name, title in _COSTS]
    if row.accuracy is not None:
        rows.insert(0, ["accuracy", f"{row.accuracy:.3f}", _over(found, "accuracy")])
    rows += [[f"latency on {target}", f"{latency:.3g} ms", ""] for target, latency in row.latencies.items()]
    if row.probe is not None:
        rows.append(["probe", f"{row.probe:.2f}", ""])
    tables: list[Table] = [("The network with it", ("", "value", "of the baseline's"), rows)]
    finals = [_final(name, one) for name, one in found.comparisons.items()]
    if finals:
        wide = ("best within", "baseline", "with it", "difference", "interval", "seeds", "verdict")
        tables.append(("Finals, on the test data", wide, finals))
    if found.rungs:
        passed = [[p.rung, str(p.seeds), _measure(p.measure), p.state] for p in found.rungs]
        tables.append(("Rungs", ("rung", "seeds", "measure", "outcome"), passed))
    if "kernel" in found.panes:
        data = found.panes["kernel"]
        ranks = [
            [one["name"], *(f"{one[rank]:.1f}" for rank in ("space", "outputs", "inputs"))] for one in data["rows"]
        ]
        ranks.append(["share", *(f"{data['shares'][rank]:.0%}" for rank in ("space", "outputs", "inputs"))])
        heads = ("effective rank over", "offsets", "output channels", "input channels")
        tables.append(("Kernel for random weights", heads, ranks))
    if "near" in found.panes:
        near = [
            [one["name"], f"{one['distance']:.2f}", "the same" if one["same"] else "; ".join(one["differences"][:2])]
            for one in found.panes["near"]["rows"][:_NEAREST]
        ]
        tables.append(("Nearest known operators", ("operator", "distance in steps", "what differs most (cost)"), near))
    if "cost" in found.panes:
        totals = found.panes["cost"]["totals"]
        sizes = ", ".join(f"{name}={size}" for name, size in found.panes["cost"]["binding"].items())
        cells = [[name.replace("_", " "), f"{number:,}"] for name, number in totals.items()]
        tables.append((f"The operator alone, with {sizes}", ("cost", "number"), cells))
    return tables


_COSTS = (("flops", "FLOPs"), ("params", "parameters"))


def why_text(found: Why) -> str:
    """What is known, as text for a terminal."""
    parts = [_title(found)]
    for title, heads, rows in why_tables(found):
        lines = [list(heads), *map(list, rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
        body = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        parts.append("\n".join([f"{title}:", *(f"  {line}" for line in body)]))
    return "\n\n".join(parts)


def why_page(found: Why) -> str:
    """What is known, as an HTML page that loads nothing and runs nothing."""
    title = escape(_title(found))
    parts = [f"<h1>{title}</h1>"]
    if "kernel" in found.panes:
        parts.append(_figure(found.panes["kernel"]["svg"], "The kernel beside a convolution's: darker is more."))
    for caption, heads, rows in why_tables(found):
        head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
        body = "".join(_line(row) for row in rows)
        parts.append(
            f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )
    if "graph" in found.panes:
        parts.append(_figure(found.panes["graph"]["svg"], "The operator, from its output to its input.", paper=True))
    return _PAGE.format(title=title, body="\n".join(parts))


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width"><style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }}
table {{ border-collapse: collapse; margin: 1.5em 0; }}
caption {{ text-align: left; font-weight: bold; padding: .3em 0; }}
th, td {{ text-align: left; padding: .2em 1.2em .2em 0; vertical-align: top; border-bottom: 1px solid #8888; }}
figure {{ margin: 1.5em 0; overflow-x: auto; }}
figure.paper svg {{ background: #fff; color: #000; }}
</style></head><body><main>
{body}
</main></body></html>
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


def _line(row: Sequence[str]) -> str:
    first, *others = (escape(one) for one in row)
    return f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{one}</td>" for one in others) + "</tr>"


def _figure(svg: str, words: str, *, paper: bool = False) -> str:
    drawn = svg[svg.index("<svg") :]  # without an XML declaration
    kind = ' class="paper"' if paper else ""
    return f'<figure{kind} tabindex="0">{drawn}<figcaption>{escape(words)}</figcaption></figure>'


def _plain(number: float) -> str:
    return f"{number:,}"


def _measure(number: float | None) -> str:
    return "" if number is None else f"{number:.3f}"


def _over(found: Why, name: str) -> str:
    mine, base = (None if row is None else getattr(row, name) for row in (found.row, found.baseline))
    if mine is None or not base:
        return ""
    return f"{100 * (mine - base):+.1f} points" if name == "accuracy" else f"{mine / base:.1%}"


def _final(name: str, one: Mapping[str, Any]) -> list[str]:
    wide = one.get("over_seeds") or one.get("interval") or {}
    low, high, by = (finite(wide.get(key)) for key in ("low", "high", "difference"))
    unit = 100 if one.get("measure", "accuracy") == "accuracy" else 1
    interval = "" if low is None or high is None else f"{unit * low:+.1f} to {unit * high:+.1f}"
    difference = "" if by is None else f"{unit * by:+.1f}" + (" points" if unit == 100 else "")
    sides = [_measure(finite(one.get(side))) for side in ("baseline", "operator")]
    return [name, *sides, difference, interval, str(len(one.get("seeds") or ())), str(one.get("verdict") or "")]
