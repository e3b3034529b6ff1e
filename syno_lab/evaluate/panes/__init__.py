"""What the operator view shows, as plain data: one function for each pane; the browser computes none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syno_lab.errors import SpecError
from syno_lab.evaluate.panes.asked import PHOTOS, WEIGHTS, Asked
from syno_lab.evaluate.panes.costs import cost_pane
from syno_lab.evaluate.panes.graph import graph_pane
from syno_lab.evaluate.panes.image import image_pane
from syno_lab.evaluate.panes.program import loop_pane
from syno_lab.evaluate.panes.reach import mixing_pane, near_pane, reach_pane
from syno_lab.evaluate.panes.texts import equation_pane, source_pane, tir_pane

#: The panes by name, each from an :class:`Asked`; what raises SynoError says so in its place.
PANES: dict[str, Callable[[Asked], dict[str, Any]]] = {
    "graph": graph_pane,
    "loops": loop_pane,
    "source": source_pane,
    "tir": tir_pane,
    "equation": equation_pane,
    "cost": cost_pane,
    "reach": reach_pane,
    "mixing": mixing_pane,
    "image": image_pane,
    "near": near_pane,
}

#: What each pane depends on beside the operator: fields of :class:`Asked`.
DEPENDS: dict[str, tuple[str, ...]] = {
    "graph": ("name",),
    "loops": ("name", "binding"),
    "source": ("name", "binding"),
    "tir": ("name", "binding"),
    "equation": ("name", "binding"),
    "cost": ("name", "binding"),
    "reach": ("name", "binding", "element"),
    "mixing": ("name",),
    "image": ("name", "binding", "photo", "weights", "image"),
    "near": ("name",),
}

__all__ = ["DEPENDS", "PANES", "PHOTOS", "WEIGHTS", "Asked", "read_pane"]


def read_pane(asked: Asked, pane: str) -> dict[str, Any]:
    """The data of one pane.

    Raises:
        SpecError: for an unknown pane, and what the pane raises.
    """
    if pane not in PANES:
        raise SpecError(f"pane: expected one of {', '.join(PANES)}, found {pane!r}")
    return PANES[pane](asked)
