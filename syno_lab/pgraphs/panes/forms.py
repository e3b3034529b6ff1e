"""The forms in which the panes of pGraphs can be saved (:mod:`syno_lab.panes.forms`)."""

from __future__ import annotations

from typing import Any

from syno_lab.panes.forms import cost_forms, csv_text, drawn, form, on_paper, picture_forms, whole
from syno_lab.pgraphs.panes.asked import Asked

Forms = list[dict[str, Any]]

cost = cost_forms


def graph(asked: Asked, data: dict[str, Any]) -> Forms:
    """The pGraph as a picture, as DOT, in words, and as the operator's file."""
    return picture_forms(asked, "pgraph")


def loops(asked: Asked, data: dict[str, Any]) -> Forms:
    """Both loop nests."""
    return [
        form(asked, "Python", "loops.py", path=["nests", 0, "text"]),
        form(asked, "Python, by stages", "stages.py", path=["nests", 1, "text"]),
        *on_paper(asked, "loops", of="loops"),
        whole(asked, "loops"),
    ]


def equation(asked: Asked, data: dict[str, Any]) -> Forms:
    """Both equations as LaTeX, text and picture."""
    found = []
    for number, (what, prefix) in enumerate((("equation", ""), ("stages", "by stages, "))):
        found += [
            form(asked, f"{prefix}LaTeX", f"{what}.tex", path=["forms", number, "latex"]),
            form(asked, f"{prefix}text", f"{what}.txt", path=["forms", number, "text"]),
            *drawn(asked, what, ["forms", number, "svg"], prefix),
            *on_paper(asked, what, prefix, of="equation", staged=bool(number), binding=asked.bound()),
        ]
    return found


def mixing(asked: Asked, data: dict[str, Any]) -> Forms:
    """The matrix as text, as a table and as records."""
    rows = [
        {"out": name, **dict(zip(data["columns"], marks, strict=True))}
        for name, marks in zip(data["rows"], data["marks"], strict=True)
    ]
    return [
        form(asked, "text", "mixing.txt", path=["text"]),
        form(asked, "CSV", "mixing.csv", text=csv_text(rows)),
        whole(asked, "mixing"),
    ]


def image(asked: Asked, data: dict[str, Any]) -> Forms:
    """The pictures side by side, and all data."""
    return [form(asked, "PNG", "image.png", pictures=True), whole(asked, "image")]


def near(asked: Asked, data: dict[str, Any]) -> Forms:
    """The table, and all data."""
    return [form(asked, "CSV", "neighbours.csv", text=csv_text(data["rows"])), whole(asked, "neighbours")]
