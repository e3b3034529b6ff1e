"""The data of panes as the browser receives it; data of a single pane is defined beside the pane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

#: The data of any pane: a dictionary of this module or of the module of a pane.
PaneData = Mapping[str, Any]
#: A cell of a table, and a row of a table by the names of its columns.
Cell = str | float | bool | list[str] | None
Record = Mapping[str, Cell]


class Content(TypedDict, total=False):
    """The source of a form's content; exactly one field is set.

    ``path`` leads to the text in the pane's data. ``svg_path`` leads to the SVG from which the browser makes a PNG.
    With ``pictures`` the pictures in the data are joined side by side. ``figure`` holds the options of
    :func:`syno_lab.codegen.figure_operator.figure`, and the kernel draws the figure on request.
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
    """The links of a node of a picture.

    ``kind`` is ``coordinate``, ``primitive`` or ``tensor``. With the node, the page highlights the ids in ``light`` and
    the pieces of the loop nest with ids in ``marks``. ``lines`` has the highlighted lines of the loop nest, from 0.
    """

    words: str
    kind: str
    light: list[str]
    marks: list[str]
    lines: list[int]


class Picture(TypedDict):
    """The picture of an operator; ``json`` is the operator's file, ``links`` are by the ids of nodes."""

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

    ``totals`` has the operator's ``flops``, ``params`` and ``memory_bytes``, and further totals of its system. ``rows``
    are rows of :class:`syno_lab.panes.generic.CostRow`.
    """

    binding: dict[str, int]
    totals: dict[str, int]
    rows: Sequence[Record]


class Source(TypedDict):
    """A program's text, and its pieces with colours of syntax."""

    text: str
    pieces: list[Piece]


class AxisRead(TypedDict):
    """The elements that are read along an input axis: its index, its size in symbols and its ``number`` of elements.

    ``reads`` is the number of elements that are read, ``extent`` the number from the first to the last of them.
    ``cover`` is ``whole``, ``part`` or ``none``.
    """

    axis: int
    size: str
    number: int
    reads: int
    extent: int
    cover: str


class Reach(TypedDict):
    """A receptive field: in words, for each input axis, and as a map of the last two input axes."""

    text: str
    axes: list[AxisRead]
    binding: dict[str, int]
    svg: str
