"""Table 2: the share of canonical pGraphs by size (Syno, section 9.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno_lab.errors import FormatError
from syno_lab.reports.paper.facts import PaperFigure, Series, results_of
from syno_lab.reports.published import published_points
from syno_lab.store.records import finite

if TYPE_CHECKING:
    from syno_lab.synthesis.ablation import CanonicalRates

_KEY = "ablate-canonical"


def table_2(source: str | Path | CanonicalRates | None = None) -> PaperFigure:
    """Our measured canonical rates, compared with the paper's.

    Args:
        source: a result of :func:`syno_lab.synthesis.ablation.canonical_rates`, a file of ``syno-lab ablate canonical
            --json FILE``, or the file of ``benchmarks/synthesis.py``; None: only the paper's values.

    Raises:
        FormatError: the file has no such rates.
    """
    rows: list[tuple[str, float]] = []
    if isinstance(source, (str, Path)):
        rows = _of_file(Path(source).expanduser())
    elif source is not None:
        rows = [(str(row.size), row.share) for row in source.rows if row.share is not None]
    (paper,) = (one for one in published_points("table_2") if one.sizes)
    (samples,) = (one for one in published_points("table_2") if one.samples)
    series = [Series("here", tuple(rows))] if rows else []
    theirs = Series("the paper, Table 2", tuple(zip(paper.sizes, paper.rates, strict=True)), True)
    lacking = "" if series else " Nothing of it was measured here."
    note = (
        f"Share of canonical pGraphs by the number of primitives. The paper drew {samples.samples} samples, of which "
        f"{samples.canonical} were canonical; it does not say how they were drawn.{lacking}"
    )
    return PaperFigure("table_2", "Canonical rates by size", "table", "primitives", "share", (*series, theirs), note)


def _of_file(path: Path) -> list[tuple[str, float]]:
    results: Mapping[str, Any] = results_of(path)
    inner = results.get(_KEY)
    if isinstance(inner, Mapping):
        results = inner
    found = results.get("rows")
    rows: Iterable[Any] = found if isinstance(found, list) else []
    rates = []
    for row in rows:
        share = finite(row.get("share")) if isinstance(row, Mapping) else None
        if share is not None:
            rates.append((str(row.get("size")), share))
    if not rates:
        raise FormatError(f"{path}: expected canonical rates by size (syno-lab ablate canonical --json), found none")
    return rates
