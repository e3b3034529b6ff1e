"""What can be copied or saved of each pane, and under which file name."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterable
from typing import Any

import msgspec

from syno_lab.codegen.drawing_render import render
from syno_lab.errors import SpecError
from syno_lab.evaluate.panes.asked import Asked

_MIMES = {
    "svg": "image/svg+xml",
    "png": "image/png",
    "dot": "text/vnd.graphviz",
    "json": "application/json",
    "csv": "text/csv",
    "py": "text/x-python",
    "tex": "text/x-tex",
    "txt": "text/plain",
}


def exports(asked: Asked, pane: str, data: dict[str, Any]) -> list[dict[str, Any]]:
    """The forms in which a pane can be taken away.

    Args:
        asked: what the pane was computed for.
        pane: its name.
        data: what it shows, as :func:`syno_lab.evaluate.panes.read_pane` gave it.

    Returns:
        For each form ``format`` (its name for people), ``file``, ``mime`` and one of ``text``, ``path`` (where the text
        stands in ``data``), ``svg_path`` (the SVG in ``data`` of which the browser makes a PNG) and ``pictures`` (the
        pictures in ``data`` are put side by side).
    """
    found = {
        "graph": _graph,
        "loops": _loops,
        "source": lambda asked, data: [_form(asked, "PyTorch", "torch.py", path=["text"])],
        "tir": lambda asked, data: [_form(asked, "TIR", "tir.py", path=["text"])],
        "equation": _equation,
        "cost": lambda asked, data: [_form(asked, "CSV", "cost.csv", text=_csv(data["rows"])), _whole(asked, "cost")],
        "reach": lambda asked, data: [
            *_drawn(asked, "receptive-field", ["svg"]),
            _form(asked, "text", "receptive-field.txt", path=["text"]),
            _whole(asked, "receptive-field"),
        ],
        "mixing": _mixing,
        "image": lambda asked, data: [
            {**_form(asked, "PNG", "image.png"), "pictures": True},
            _whole(asked, "image"),
        ],
        "near": lambda asked, data: [
            _form(asked, "CSV", "neighbours.csv", text=_csv(data["rows"])),
            _whole(asked, "neighbours"),
        ],
    }
    return found[pane](asked, data)


def _form(asked: Asked, name: str, file: str, **more: Any) -> dict[str, Any]:
    return {"format": name, "file": asked.file_name(file), "mime": _MIMES[file.rpartition(".")[2]], **more}


def _whole(asked: Asked, what: str) -> dict[str, Any]:
    return _form(asked, "JSON", f"{what}.json", path=[])


def _drawn(asked: Asked, what: str, path: list[str | int], prefix: str = "") -> list[dict[str, Any]]:
    return [
        _form(asked, f"{prefix}SVG", f"{what}.svg", path=path),
        _form(asked, f"{prefix}PNG", f"{what}.png", svg_path=path),
    ]


def _graph(asked: Asked, data: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        *_drawn(asked, "pgraph", ["svg"]),
        _form(asked, "DOT", "pgraph.dot", path=["dot"]),
        _form(asked, "operator file (JSON)", "pgraph.json", path=["json"]),
        _form(asked, "description", "pgraph.txt", path=["description"]),
    ]


def _loops(asked: Asked, data: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        _form(asked, "Python", "loops.py", path=["nests", 0, "text"]),
        _form(asked, "Python, by stages", "stages.py", path=["nests", 1, "text"]),
        _whole(asked, "loops"),
    ]


def _equation(asked: Asked, data: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for number, (what, prefix) in enumerate((("equation", ""), ("stages", "by stages, "))):
        found += [
            _form(asked, f"{prefix}LaTeX", f"{what}.tex", path=["forms", number, "latex"]),
            _form(asked, f"{prefix}text", f"{what}.txt", path=["forms", number, "text"]),
            *_drawn(asked, what, ["forms", number, "svg"], prefix),
        ]
    return found


def _mixing(asked: Asked, data: dict[str, Any]) -> list[dict[str, Any]]:
    rows = [
        {"out": name, **dict(zip(data["columns"], marks, strict=True))}
        for name, marks in zip(data["rows"], data["marks"], strict=True)
    ]
    return [
        _form(asked, "text", "mixing.txt", path=["text"]),
        _form(asked, "CSV", "mixing.csv", text=_csv(rows)),
        _whole(asked, "mixing"),
    ]


def _csv(rows: Iterable[dict[str, Any]]) -> str:
    lines = [{name: _cell(value) for name, value in row.items()} for row in rows]
    text = io.StringIO()
    if lines:
        writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    return text.getvalue()


def _cell(value: Any) -> Any:
    text = " | ".join(map(str, value)) if isinstance(value, list) else value
    # A spreadsheet would run a text that begins like a formula.
    return f"'{text}" if isinstance(text, str) and text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def export(asked: Asked, pane: str, data: dict[str, Any], name: str) -> bytes:
    """One of :func:`exports` as the content of its file.

    Args:
        asked: what the pane was computed for.
        pane: its name.
        data: what it shows.
        name: the ``format``, in any case.

    Raises:
        SpecError: for a format that the pane does not have, or a PNG that only a browser can make.
    """
    forms = {form["format"].lower(): form for form in exports(asked, pane, data)}
    form = forms.get(name.lower())
    if form is None:
        raise SpecError(f"format: expected one of {', '.join(forms)} for the pane {pane}, found {name!r}")
    if "text" in form:
        return str(form["text"]).encode()
    if "path" in form:
        found: Any = data
        for key in form["path"]:
            found = found[key]
        return found.encode() if isinstance(found, str) else msgspec.json.format(msgspec.json.encode(found), indent=1)
    if pane == "graph":
        return render(data["dot"], "png")
    if pane == "image":
        return _side_by_side([data["input"], *(one for out in data["outputs"] for one in out["pictures"])])
    raise SpecError(f"{pane}: its PNG is made by the browser; here there is SVG")


def _side_by_side(pictures: list[dict[str, Any]]) -> bytes:
    from PIL import Image

    gap = 4
    width = sum(one["width"] + gap for one in pictures) - gap
    whole = Image.new("RGB", (width, max(one["height"] for one in pictures)), "white")
    at = 0
    for one in pictures:
        whole.paste(Image.open(io.BytesIO(base64.b64decode(one["png"]))).convert("RGB"), (at, 0))
        at += one["width"] + gap
    file = io.BytesIO()
    whole.save(file, format="PNG")
    return file.getvalue()
