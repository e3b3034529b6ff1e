"""Panes of the operator view, and functions that read and export the panes of any system.

A pane is one form of an operator as plain data (:class:`syno_lab.protocol.Pane`). A system lists its panes. This
package imports no system's package, so that the panes of every system can use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syno_lab.errors import SpecError
from syno_lab.inputs import quoted
from syno_lab.panes import forms
from syno_lab.panes.asked import CENTER, MOST_NAME, PHOTOS, WEIGHTS, Asked, read_element, read_image
from syno_lab.panes.data import Form, PaneData
from syno_lab.protocol import Operator, Pane
from syno_lab.systems import system_of

#: The panes that the browser can draw, in the default order of the tabs; ``graph`` is the picture.
NAMES = (
    "graph",
    "lineage",
    "loops",
    "source",
    "tir",
    "equation",
    "cost",
    "solutions",
    "reach",
    "mixing",
    "kernel",
    "image",
    "near",
)

__all__ = [
    "CENTER",
    "MOST_NAME",
    "NAMES",
    "PHOTOS",
    "WEIGHTS",
    "Asked",
    "export",
    "exports",
    "panes_of",
    "read_element",
    "read_image",
    "read_pane",
]


def panes_of(operator: Operator) -> Mapping[str, Pane]:
    """Return the panes of an operator's system by name, ``graph`` first. Raises FormatError for an unknown system."""
    return system_of(operator).panes


def read_pane(asked: Asked[Any], name: str) -> PaneData:
    """Return the data of one pane.

    Raises SpecError for a pane that the operator's system does not have. The pane can raise further errors.
    """
    return _pane(asked, name).read(asked)


def exports(asked: Asked[Any], name: str, data: PaneData) -> list[Form]:
    """Return the forms in which a pane can be copied or saved; ``data`` is the result of :func:`read_pane`."""
    return _pane(asked, name).exports(asked, data)


def export(asked: Asked[Any], name: str, data: PaneData, form: str) -> bytes:
    """Return the file content of a form; ``form`` is a ``format`` of :func:`exports`, in upper or lower case.

    Raises SpecError for a format that the pane does not have, or for a PNG that only a browser can make.
    """
    return forms.content(asked, name, exports(asked, name, data), data, form)


def _pane(asked: Asked[Any], name: str) -> Pane:
    panes = panes_of(asked.operator)
    if name not in panes:
        raise SpecError(f"pane: expected one of {', '.join(panes)}, found {quoted(name)}")
    return panes[name]
