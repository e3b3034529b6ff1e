"""The data of panes as the browser gets them; what only one pane of one system has is beside that pane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

#: The data of any pane: one of the dictionaries below, or of those beside the panes.
PaneData = Mapping[str, Any]
#: A cell of a table, and a row of one by the names of its columns.
Cell = str | float | bool | list[str] | None
Record = Mapping[str, Cell]


class Content(TypedDict, total=False):
    """Where the content of a form comes from: one of these.

    ``path`` says where the text stands in the pane's data, ``svg_path`` where the SVG does of which the browser makes a
    PNG. With ``pictures`` the pictures in the data are put side by side. ``figure`` holds the options of
    :func:`syno_lab.codegen.figure_operator.figure`: the kernel draws it when it is asked for.
    """

    text: str
    path: Sequence[str | int]
    svg_path: Sequence[str | int]
    pictures: bool
    figure: dict[str, Any]


class Form(Content):
    """A form in which a pane can be copied or saved: its name for people and its file."""

    format: str
    file: str
    mime: str


class Piece(TypedDict):
    """A part of a program's text: its colour, and the nodes of the drawing that it belongs to, where it has some."""

    text: str
    kind: NotRequired[str]
    ids: NotRequired[list[str]]


class Link(TypedDict):
    """What belongs to a node of a drawing.

    ``kind`` is ``coordinate``, ``primitive`` or ``tensor``; ``light`` has the ids of the nodes and lines that are lit
    with it, ``marks`` those whose pieces of a loop nest are, and ``lines`` the lines of the one loop nest, from 0.
    """

    words: str
    kind: str
    light: list[str]
    marks: list[str]
    lines: list[int]


class Picture(TypedDict):
    """The picture of an operator; ``json`` is its file, ``links`` are by the ids of nodes."""

    svg: str
    dot: str
    description: str
    json: str
    links: dict[str, Link]


class Bitmap(TypedDict):
    """A picture of ``width`` by ``height`` pixels as PNG in base64, and what it shows in words."""

    png: str
    words: str
    width: int
    height: int


class Costs(TypedDict):
    """The cost of an operator at the sizes of ``binding``, and of its parts.

    ``totals`` has ``flops``, ``params`` and ``memory_bytes`` as the operator counts them, and what its system adds;
    ``rows`` are those of :class:`syno_lab.panes.generic.CostRow`.
    """

    binding: dict[str, int]
    totals: dict[str, int]
    rows: Sequence[Record]


class Source(TypedDict):
    """A program, and the same in pieces with colours of syntax."""

    text: str
    pieces: list[Piece]


class AxisRead(TypedDict):
    """What is read along an input axis: its place, its size in symbols and its ``number`` of elements.

    ``reads`` counts the elements that are read, ``extent`` those from the first to the last of them; ``cover`` is
    ``whole``, ``part`` or ``none``.
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
