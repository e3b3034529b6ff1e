"""The front ends of Syno Lab for notebooks: thin widgets; :mod:`syno_lab` has all logic."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syno_widgets.atlas_map import Map as Map
    from syno_widgets.compare import Compare as Compare
    from syno_widgets.explorer import Explorer as Explorer
    from syno_widgets.operator_view import OperatorView as OperatorView
    from syno_widgets.runs_view import RunsView as RunsView
    from syno_widgets.stepper import Stepper as Stepper

_HOMES = {
    "Compare": "syno_widgets.compare",
    "Explorer": "syno_widgets.explorer",
    "Map": "syno_widgets.atlas_map",
    "OperatorView": "syno_widgets.operator_view",
    "RunsView": "syno_widgets.runs_view",
    "Stepper": "syno_widgets.stepper",
}
__all__ = ["Compare", "Explorer", "Map", "OperatorView", "RunsView", "Stepper"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'syno_widgets' has no attribute {name!r}")
