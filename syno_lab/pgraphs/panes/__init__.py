"""The panes of the operator view for pGraphs, as plain data; the browser computes nothing."""

from __future__ import annotations

from syno_lab.ir.operator import Operator
from syno_lab.panes import Asked
from syno_lab.panes.data import Form, Record
from syno_lab.panes.forms import cost_forms, csv_text, drawn, form, on_paper, picture_forms, whole
from syno_lab.panes.generic import SOURCE, TIR
from syno_lab.panes.reach import reach_forms
from syno_lab.pgraphs.panes.costs import cost_pane
from syno_lab.pgraphs.panes.image import Image, image_pane
from syno_lab.pgraphs.panes.kernel import kernel_forms, kernel_pane
from syno_lab.pgraphs.panes.program import Equations, Nests, equation_pane, graph_pane, loop_pane, nest_texts
from syno_lab.pgraphs.panes.reach import Mixed, Neighbours, mixing_data, near_pane, reach_pane
from syno_lab.protocol import Pane


def _loops_forms(asked: Asked[Operator], data: Nests) -> list[Form]:
    return [
        form(asked, "Python", "loops.py", path=["nests", 0, "text"]),
        form(asked, "Python, by stages", "stages.py", path=["nests", 1, "text"]),
        *on_paper(asked, "loops", of="loops"),
        whole(asked, "loops"),
    ]


def _equation_forms(asked: Asked[Operator], data: Equations) -> list[Form]:
    forms = []
    for number, (stem, prefix) in enumerate((("equation", ""), ("stages", "by stages, "))):
        forms += [
            form(asked, f"{prefix}LaTeX", f"{stem}.tex", path=["forms", number, "latex"]),
            form(asked, f"{prefix}text", f"{stem}.txt", path=["forms", number, "text"]),
            *drawn(asked, stem, ["forms", number, "svg"], prefix),
            *on_paper(asked, stem, prefix, of="equation", staged=bool(number), binding=asked.bound()),
        ]
    return forms


def _mixing_forms(asked: Asked[Operator], data: Mixed) -> list[Form]:
    rows: list[Record] = [
        {"out": name, **dict(zip(data["columns"], marks, strict=True))}
        for name, marks in zip(data["rows"], data["marks"], strict=True)
    ]
    return [
        form(asked, "text", "mixing.txt", path=["text"]),
        form(asked, "CSV", "mixing.csv", text=csv_text(rows)),
        whole(asked, "mixing"),
    ]


def _image_forms(asked: Asked[Operator], data: Image) -> list[Form]:
    return [form(asked, "PNG", "image.png", pictures=True), whole(asked, "image")]


def _near_forms(asked: Asked[Operator], data: Neighbours) -> list[Form]:
    return [form(asked, "CSV", "neighbours.csv", text=csv_text(data["rows"])), whole(asked, "neighbours")]


_SIZED = ("name", "binding")

#: The panes by name; a SynoError becomes a message in the pane's place.
PANES: dict[str, Pane] = {
    "graph": Pane(graph_pane, ("name",), lambda asked, data: picture_forms(asked, "pgraph"), title="pGraph"),
    "loops": Pane(loop_pane, _SIZED, _loops_forms, nest_texts, title="Loop nest"),
    "source": SOURCE,
    "tir": TIR,
    "equation": Pane(equation_pane, _SIZED, _equation_forms, title="Equation"),
    "cost": Pane(cost_pane, _SIZED, cost_forms, title="Cost"),
    "reach": Pane(reach_pane, (*_SIZED, "element"), reach_forms, title="Receptive field"),
    "mixing": Pane(lambda asked: mixing_data(asked.operator), ("name",), _mixing_forms, title="Mixing"),
    "kernel": Pane(kernel_pane, _SIZED, kernel_forms, title="Kernel"),
    "image": Pane(image_pane, (*_SIZED, "photo", "weights", "image"), _image_forms, title="On an image"),
    "near": Pane(near_pane, ("name",), _near_forms, title="Similar operators"),
}
