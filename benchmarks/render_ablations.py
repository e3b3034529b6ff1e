"""The paper's two ablations as tables: canonical rates by size, trials with and without shape distance."""

from __future__ import annotations

from typing import Any

Table = tuple[str, list[str], list[list[str]]]


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"


def _rates(found: dict[str, Any], title: str) -> Table:
    rows = [
        [
            str(row["size"]),
            f"{row['canonical']:,} of {row['pgraphs']:,}",
            f"{_share(row['share'])} ({_share(row['low'])} to {_share(row['high'])})",
            _share(row["paper"]),
        ]
        for row in found["rows"]
    ]
    return title, ["primitives", "canonical", "share (95 % interval)", "the paper"], rows


def ablation_tables(results: dict[str, dict[str, Any] | None]) -> list[Table]:
    """Title, header and rows of each ablation that has been run, from the JSON of ``syno-lab ablate``."""
    tables = []
    for name, title in (
        ("ablate-canonical", "Partial pGraphs drawn without rules: how many are canonical"),
        ("ablate-complete", "The same for those that reach the input"),
    ):
        found = results.get(name)
        if found is not None:
            tables.append(_rates(found, title))
    found = results.get("ablate-distance")
    if found is not None:
        rows = [
            [
                row["distance"],
                f"{row['trials']:,}",
                f"{row['valid']:,} ({row['distinct']:,} different)",
                f"{_share(row['share'])} ({_share(row['low'])} to {_share(row['high'])})",
                f"{row['paper']['distinct']:,} different of {row['paper']['trials']:,}",
            ]
            for row in found["rows"]
        ]
        header = ["shape distance", "walks", "that reach the input", "share (95 % interval)", "the paper"]
        tables.append(("Random walks by canonical steps, with and without shape distance", header, rows))
    return tables
