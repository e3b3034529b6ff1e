"""The panes of the operator view for pGraphs, as plain data; the browser computes none of it."""

from __future__ import annotations

from syno_lab.panes import PHOTOS, WEIGHTS, export, exports, read_pane
from syno_lab.panes.generic import SOURCE, TIR
from syno_lab.panes.reach import reach_forms
from syno_lab.pgraphs.panes import forms
from syno_lab.pgraphs.panes.asked import Asked
from syno_lab.pgraphs.panes.costs import cost_pane
from syno_lab.pgraphs.panes.graph import graph_pane
from syno_lab.pgraphs.panes.image import image_pane
from syno_lab.pgraphs.panes.kernel import kernel_forms, kernel_pane
from syno_lab.pgraphs.panes.program import equation_pane, loop_pane, nest_texts
from syno_lab.pgraphs.panes.reach import mixing_pane, near_pane, reach_pane
from syno_lab.protocol import Pane

_SIZED = ("name", "binding")

#: The panes by name; what raises SynoError says so in its place.
PANES: dict[str, Pane] = {
    "graph": Pane(graph_pane, ("name",), forms.graph, title="pGraph"),
    "loops": Pane(loop_pane, _SIZED, forms.loops, nest_texts, title="Loop nest"),
    "source": SOURCE,
    "tir": TIR,
    "equation": Pane(equation_pane, _SIZED, forms.equation, title="Equation"),
    "cost": Pane(cost_pane, _SIZED, forms.cost, title="Cost"),
    "reach": Pane(reach_pane, (*_SIZED, "element"), reach_forms, title="Receptive field"),
    "mixing": Pane(mixing_pane, ("name",), forms.mixing, title="Mixing"),
    "kernel": Pane(kernel_pane, _SIZED, kernel_forms, title="Kernel"),
    "image": Pane(image_pane, (*_SIZED, "photo", "weights", "image"), forms.image, title="On an image"),
    "near": Pane(near_pane, ("name",), forms.near, title="Similar operators"),
}

__all__ = ["PANES", "PHOTOS", "WEIGHTS", "Asked", "export", "exports", "read_pane"]
