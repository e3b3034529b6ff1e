"""Table 2: the share of canonical pGraphs by size (Syno, section 9.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduction.paper.facts import PaperFigure, Series, results_of
from syno_lab.errors import FormatError
from syno_lab.reports.published import published_points
from syno_lab.synthesis.ablation import wilson

if TYPE_CHECKING:
    from syno_lab.synthesis.ablation import CanonicalRates

_KEY = "ablate-canonical"


def table_2(source: str | Path | CanonicalRates | None = None) -> PaperFigure:
    """Our measured canonical rates, compared with the paper's.

    Args:
        source: a result of :func:`syno_lab.synthesis.ablation.canonical_rates`, a file of ``syno-lab ablate canonical
            --json FILE``, of the part ``table-2`` of ``reproduce.py``, or of ``benchmarks/synthesis.py``; None:
            only the paper's values.

    Raises:
        FormatError: the file has no such counts.
    """
    here: Series | None = None
    if isinstance(source, (str, Path)):
        here = _of_file(Path(source).expanduser())
    elif source is not None:
        here = _counted([(str(row.size), row.canonical, row.pgraphs) for row in source.rows])
    (paper,) = (one for one in published_points("table_2") if one.sizes)
    (samples,) = (one for one in published_points("table_2") if one.samples)
    series = [] if here is None else [here]
    last = paper.sizes[-1].removeprefix("≥ ")
    is_last = here is not None and any(size == last for size, _ in here.values)
    sizes = [*paper.sizes[:-1], last] if is_last else paper.sizes
    theirs = Series("the paper, Table 2", tuple(zip(sizes, paper.rates, strict=True)), True)
    lacking = "" if series else " Nothing of it was measured here."
    note = (
        f"Share of canonical pGraphs by the number of primitives. The paper drew {samples.samples} samples, of which "
        f"{samples.canonical} were canonical; it does not say how they were drawn.{lacking}"
    )
    if here is not None and here.counts:
        note += " The intervals are Wilson's."
    if is_last:
        note += f" At {last} the paper has pGraphs of {last} primitives and more, and here they have {last}."

    return PaperFigure("table_2", "Canonical rates by size", "table", "primitives", "share", (*series, theirs), note)


def _counted(rows: Iterable[tuple[str, int, int]]) -> Series | None:
    """The series of ``(size, canonical, drawn)``, without sizes of which none was drawn; None where none is left."""
    drawn = [(size, hits, total) for size, hits, total in rows if total]
    if not drawn:
        return None
    return Series(
        "here",
        tuple((size, hits / total) for size, hits, total in drawn),
        ranges=tuple(wilson(hits, total) for _, hits, total in drawn),
        counts=tuple((hits, total) for _, hits, total in drawn),
        counted="canonical of drawn",
    )


def distance_ablation(source: str | Path | None = None) -> PaperFigure:
    """Random trials with the shape distance and without it: how many, and the distinct operators that they found.

    Args:
        source: the file of the part ``distance`` of ``reproduce.py``, or of ``syno-lab ablate distance --json``;
            None: only the paper's values.

    Raises:
        FormatError: the file has no such trials.
    """
    series = [] if source is None else _trials_of(Path(source).expanduser())
    theirs = [
        Series(f"the paper, {one.label}", (("trials", one.trials), ("distinct operators", one.distinct or 0)), True)
        for one in published_points("distance_ablation")
        if one.trials is not None
    ]
    lacking = "" if series else " Nothing of it was measured here."
    note = (
        "Random trials, and the distinct operators among their ends. The paper's took 68 and 181 s on 192 virtual "
        f"cores; it does not say for which shapes.{lacking}"
    )
    title = "Trials with the shape distance and without it"
    return PaperFigure("distance_ablation", title, "table", "", "number", (*series, *theirs), note)


def _trials_of(path: Path) -> list[Series]:
    found = results_of(path).get("rows")
    series = []
    for row in found if isinstance(found, list) else []:
        if isinstance(row, Mapping) and isinstance(row.get("trials"), int) and isinstance(row.get("distinct"), int):
            is_with = row.get("guided") is True or row.get("distance") == "with"
            name = f"here, {'with' if is_with else 'without'} the distance"
            series.append(Series(name, (("trials", row["trials"]), ("distinct operators", row["distinct"]))))
    if not series:
        raise FormatError(f"{path}: expected trials with and without the shape distance, found none")
    return series


def _of_file(path: Path) -> Series:
    results: Mapping[str, Any] = results_of(path)
    inner = results.get(_KEY)
    if isinstance(inner, Mapping):
        results = inner
    found = results.get("rows")
    counts = []
    for row in found if isinstance(found, list) else []:
        hits, drawn = (row.get("canonical"), row.get("pgraphs")) if isinstance(row, Mapping) else (None, None)
        if isinstance(hits, int) and isinstance(drawn, int):
            if not 0 <= hits <= drawn:
                raise FormatError(
                    f"{path}: size {row.get('size')}: expected from 0 to {drawn} canonical pGraphs, found {hits}"
                )
            counts.append((str(row.get("size")), hits, drawn))
    here = _counted(counts)
    if here is None:
        raise FormatError(
            f"{path}: expected canonical pGraphs counted by size (syno-lab ablate canonical --json), found none"
        )
    return here
