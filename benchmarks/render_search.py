"""The searches as tables in ``benchmarks/README.md``: regret at equal trials, and many evaluators simulated.

``python benchmarks/render_search.py`` writes the part between its markers; ``--check`` writes nothing and fails when
the page is not that of the results.
"""

from __future__ import annotations

from typing import Any

from render import footer, load, table, with_part, write_or_check

Rows = tuple[list[str], list[list[str]]]
SHOWN = ("25", "50", "100", "150")


def _interval(found: list[float], digits: int) -> str:
    mean, low, high = found
    return f"{mean:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def regret_rows(result: dict[str, Any]) -> Rows:
    """Regrets by case and search at some numbers of trials, and the tree search less the other, paired by seed.

    A difference whose interval excludes 0 is bold: below 0 the tree search is ahead.
    """
    cases = dict(result.get("regret", {}).get("surrogates", {}))
    if "recorded" in result:
        cases["recorded trainings"] = result["recorded"]
    header = ["rewards", "search"]
    header += [f"regret at {at}" for at in SHOWN] + [f"tree search less this at {at}" for at in SHOWN]
    rows = []
    for case, found in cases.items():
        curve_at = {str(point): number for number, point in enumerate(found["points"])}
        for search, entry in found["searches"].items():
            row = [case, search]
            row += [_interval(entry["curve"][curve_at[at]], 3) if at in curve_at else "–" for at in SHOWN]
            for at in SHOWN:
                less = entry.get("mcts_less_this", {}).get("at", {}).get(at)
                text = "–" if less is None else _interval(less, 3)
                is_sure = less is not None and (less[1] > 0 or less[2] < 0)
                row.append(f"**{text}**" if is_sure else text)
            rows.append(row)
    return header, rows


def scale_rows(result: dict[str, Any]) -> Rows:
    """Hours, speed-up and regret by the number of evaluators."""
    header = [
        "search",
        "evaluators",
        "hours",
        "times as fast",
        "evaluators busy",
        "regret after 25 trials",
        "after all",
    ]
    rows = [
        [
            row["search"],
            f"{row['evaluators']:,}",
            f"{row['hours'][0]:.3g}",
            f"{row['speedup']:.1f}",
            f"{row['busy_share']:.0%}",
            _interval(row["regret_25"], 4),
            _interval(row["regret"], 4),
        ]
        for row in result["rows"]
    ]
    return header, rows


def section() -> str:
    """All that stands between the markers."""
    parts = []
    search = load("search")
    if search is not None:
        parts += ["![Regret by trials, 95 % bands](results/search.svg)", table(*regret_rows(search))]
    scale = load("scale")
    if scale is not None:
        parts += ["![Speed and regret by evaluators](results/scale.svg)", table(*scale_rows(scale))]
    abouts = [search[part]["about"] for part in ("regret", "recorded", "overhead") if part in search] if search else []
    abouts += [scale["about"]] if scale else []
    return "\n\n".join([*parts, footer(abouts)]) if abouts else "Not run yet."


if __name__ == "__main__":
    write_or_check(lambda text: with_part(text, "search", section()), __doc__ or "")
