"""The forms in which panes can be copied or saved, with their file names."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any, Unpack

import msgspec

from syno_lab.drawing.render import render
from syno_lab.errors import SpecError
from syno_lab.inputs import no_formula, quoted
from syno_lab.panes.asked import Asked
from syno_lab.panes.data import Bitmap, Content, Costs, Form, PaneData

#: The ``format`` of an operator's file in the pane ``graph``.
OPERATOR_FILE = "operator file (JSON)"

_MIMES = {
    "svg": "image/svg+xml",
    "png": "image/png",
    "dot": "text/vnd.graphviz",
    "json": "application/json",
    "csv": "text/csv",
    "py": "text/x-python",
    "tex": "text/x-tex",
    "txt": "text/plain",
    "pdf": "application/pdf",
}


def form(asked: Asked[Any], name: str, file: str, **more: Unpack[Content]) -> Form:
    """Return a form from its displayed name, the end of its file's name (``cost.csv``), and one field of Content."""
    return {"format": name, "file": asked.file_name(file), "mime": _MIMES[file.rpartition(".")[2]], **more}


def whole(asked: Asked[Any], what: str) -> Form:
    """Return the form JSON, which has all data of a pane."""
    return form(asked, "JSON", f"{what}.json", path=[])


def drawn(asked: Asked[Any], what: str, path: Sequence[str | int], prefix: str = "") -> list[Form]:
    """Return the forms SVG and PNG of a picture whose SVG is at ``path`` of the pane's data."""
    return [
        form(asked, f"{prefix}SVG", f"{what}.svg", path=path),
        form(asked, f"{prefix}PNG", f"{what}.png", svg_path=path),
    ]


def on_paper(asked: Asked[Any], what: str, prefix: str = "", **options: str | bool | dict[str, int]) -> list[Form]:
    """Return the forms PDF and TeX of a figure for a paper's column."""
    return [
        form(asked, f"{prefix}PDF", f"{what}.pdf", figure=options),
        form(asked, f"{prefix}TeX", f"{what}-figure.tex", figure=options),
    ]


def picture_forms(asked: Asked[Any], what: str) -> list[Form]:
    """Return the forms of a pane ``graph``."""
    return [
        *drawn(asked, what, ["svg"]),
        *on_paper(asked, what),
        form(asked, "DOT", f"{what}.dot", path=["dot"]),
        form(asked, OPERATOR_FILE, f"{what}.json", path=["json"]),
        form(asked, "description", f"{what}.txt", path=["description"]),
    ]


def cost_forms(asked: Asked[Any], data: Costs) -> list[Form]:
    """Return the forms of a pane ``cost``."""
    return [form(asked, "CSV", "cost.csv", text=csv_text(data["rows"] or [data["totals"]])), whole(asked, "cost")]


def csv_text(rows: Iterable[PaneData]) -> str:
    """Return records with common keys as CSV with a header; no spreadsheet program reads a cell of it as a formula."""
    lines = [
        {name: no_formula(" | ".join(map(str, cell)) if isinstance(cell, list) else cell) for name, cell in row.items()}
        for row in rows
    ]
    text = io.StringIO()
    if lines:
        writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    return text.getvalue()


def content(asked: Asked[Any], pane: str, forms: Iterable[Form], data: PaneData, name: str) -> bytes:
    """Implement :func:`syno_lab.panes.export`."""
    by_name = {entry["format"].lower(): entry for entry in forms}
    chosen = by_name.get(name.lower())
    if chosen is None:
        raise SpecError(f"format: expected one of {', '.join(by_name)} for the pane {pane}, found {quoted(name)}")
    if "text" in chosen:
        return str(chosen["text"]).encode()
    if "figure" in chosen:
        from syno_lab.codegen.figure_operator import figure  # imported on use: loads packages for pGraphs

        drawing = figure(asked.operator, **chosen["figure"])
        return drawing.content(chosen["file"].rpartition(".")[2])
    if "path" in chosen:
        value: Any = data
        for key in chosen["path"]:
            value = value[key]
        return value.encode() if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=1)
    if "pictures" in chosen:
        return _side_by_side([data["input"], *(picture for out in data["outputs"] for picture in out["pictures"])])
    if "dot" in data:
        return render(data["dot"], "png")
    raise SpecError(f"{pane}: its PNG is made by the browser; here there is SVG")


def _side_by_side(pictures: Sequence[Bitmap]) -> bytes:
    from PIL import Image

    gap = 4
    width = sum(picture["width"] + gap for picture in pictures) - gap
    joined = Image.new("RGB", (width, max(picture["height"] for picture in pictures)), "white")
    at = 0
    for picture in pictures:
        joined.paste(Image.open(io.BytesIO(base64.b64decode(picture["png"]))).convert("RGB"), (at, 0))
        at += picture["width"] + gap
    file = io.BytesIO()
    joined.save(file, format="PNG")
    return file.getvalue()
