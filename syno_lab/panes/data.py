"""The data of panes as the browser receives it; data of one pane alone is defined in the pane's module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

#: The data of any pane: a dictionary of this module or of the module of a pane.
PaneData = Mapping[str, Any]
#: The type of a table's cell, and of a table's row: cells by the names of the columns.
Cell = str | float | bool | list[str] | None
Record = Mapping[str, Cell]


class Content(TypedDict, total=False):
    """The source of a form's content; exactly one field is set.

    ``path`` has the keys that lead to the text in the pane's data. ``svg_path`` leads to the SVG from which the browser
    makes a PNG. With ``pictures`` the pictures in the data are joined side by side. ``figure`` holds the options of
    :func:`syno_lab.codegen.figure_operator.figure`, and the Jupyter kernel draws the figure on request.
    """

    text: str
    path: Sequence[str | int]
    svg_path: Sequence[str | int]
    pictures: bool
    figure: dict[str, Any]


class Form(Content):
    """A form in which a pane can be copied or saved: its displayed name and its file."""

    format: str
    file: str
    mime: str


class Piece(TypedDict):
    """A part of a program's text: its colour, and the ids of its nodes in the picture, if any."""

    text: str
    kind: NotRequired[str]
    ids: NotRequired[list[str]]


class Link(TypedDict):
    """What the page shows and highlights for a node of the picture.

    ``kind`` is ``coordinate``, ``primitive`` or ``tensor``. The page highlights the ids in ``light`` with the node, and
    the loop nest's pieces with ids in ``marks``. ``lines`` has the highlighted lines of the loop nest, from 0.
    """

    words: str
    kind: str
    light: list[str]
    marks: list[str]
    lines: list[int]


class Picture(TypedDict):
    """The picture of an operator; ``json`` is the operator's file, ``links`` has a Link for each node's id."""

    svg: str
    dot: str
    description: str
    json: str
    links: dict[str, Link]


class Bitmap(TypedDict):
    """A picture of ``width`` by ``height`` pixels as PNG in base64, and its description in words."""

    png: str
    words: str
    width: int
    height: int


class Costs(TypedDict):
    """The cost of an operator and of its parts at the sizes of ``binding``.

    ``totals`` has the operator's ``flops``, ``params`` and ``memory_bytes``, and further totals of the operator's
    system. ``rows`` are rows of :class:`syno_lab.panes.generic.CostRow`.
    """

    binding: dict[str, int]
    totals: dict[str, int]
    rows: Sequence[Record]


class Source(TypedDict):
    """A program's text, and the same text in pieces with the colours of a syntax highlighter."""

    text: str
    pieces: list[Piece]


class AxisRead(TypedDict):
    """The elements that are read along an input axis: the axis's index, size in symbols and ``number`` of elements.

    ``reads`` is the number of elements that are read, ``extent`` the number from the first to the last of them.
    ``cover`` is ``whole``, ``part`` or ``none``: how much of the axis is read.
    """

    axis: int
    size: str
    number: int
    reads: int
    extent: int
    cover: str


class Reach(TypedDict):
    """A receptive field as a text, as numbers for each input axis, and as a map of the last two input axes."""

    text: str
    axes: list[AxisRead]
    binding: dict[str, int]
    svg: str
