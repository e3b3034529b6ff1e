"""The look of each kind of node of a pGraph: shape, colour and sign differ, so colour alone never carries the meaning.

Every fill is light with nearly black text, so a drawing is readable on a light and on a dark background. Lines are grey
with a contrast of at least 3:1 to white and to black. Colours have six hexadecimal digits, because some layout programs
accept no other colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

INK = "#1b1b1f"
LINE = "#767680"
#: A grey for text and lines, readable on white and on black (contrast 4.5 and 4.6), the grid of charts, and the accent.
GREY, GRID, ACCENT, WHITE = "#767676", "#e0e0e0", "#1f5fbf", "#ffffff"
#: The ink, the ground and the lines of charts on a dark background.
DARK_CHART = ("#e6e6e6", "#1b1b1b", "#444444")
#: The colours of series, and of a measure from the least value to the greatest (viridis).
HUES = ("#2a7fd4", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9", "#9a5fc0", GREY)
SHADES = ("#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725")
#: Quiet words, words on a coloured ground, and the grounds and borders of what has no value.
QUIET, NO_VALUE, PALE, BOX_LINE = "#5f5f68", "#c8c8c8", "#e6e6e6", "#606060"
#: The colours of a hull on a light and on a dark background.
HULL, DARK_HULL = "#dff4f5", "#0d2b2f"
#: The layout program knows the widths of this font; for a list of fonts it would use the widths of Times.
FONT = "Helvetica"
HIGHLIGHT = "#d5008f"
#: The size of the font beside edges.
EDGE_POINTS = 10


class Look(NamedTuple):
    """The look of a node: its shape, fill and border, and the sign before its name."""

    shape: str
    fill: str
    border: str
    sign: str = ""


PRIMITIVE_LOOKS = {
    "SPLIT": Look("trapezium", "#cfe3ff", "#1f5fbf", "⊔"),
    "MERGE": Look("invtrapezium", "#d3f2d9", "#1d7a3a", "⊓"),
    "SHIFT": Look("cds", "#e2d0ff", "#4a1f9e", "↻"),
    "EXPAND": Look("octagon", "#ffd9d2", "#b93a22", "∅"),
    "UNFOLD": Look("house", "#fff0b8", "#8a6a00", "⊞"),
    "STRIDE": Look("parallelogram", "#ffdff1", "#b02a78", "⇥"),
    "REDUCE": Look("ellipse", "#ffe0bd", "#8f4300", "Σ"),
    "SHARE": Look("hexagon", "#c9f0f2", "#08616c", "×"),
}
#: The fill and border of each look on a dark background with light text; :func:`dark_css` writes them.
DARK_INK, DARK_LINE, DARK_GROUND, DARK_ACCENT = "#ececf0", "#9a9aa6", "#17171a", "#8ab4f8"
DARK_LOOKS = {
    "SPLIT": ("#16335c", "#7fb2ff"),
    "MERGE": ("#14401f", "#6fd48c"),
    "SHIFT": ("#33215e", "#d6c7ff"),
    "EXPAND": ("#5a1f14", "#ff9a84"),
    "UNFOLD": ("#4a3a00", "#e8c04a"),
    "STRIDE": ("#561639", "#ff8fcb"),
    "REDUCE": ("#54310a", "#ffb366"),
    "SHARE": ("#08434a", "#5fd3dd"),
    "coordinate": ("#26262b", "#9a9aa6"),
    "input": ("#1e2f48", "#8fb0e0"),
    "output": ("#303038", "#b8b8c2"),
    "weight": ("#463806", "#e8c04a"),
}
OTHER_PRIMITIVE = Look("box", "#e4e4ea", "#55555f")  # the look of a new primitive that has no entry in the table
COORDINATE = Look("box", WHITE, LINE)
INPUT = Look("plain", "#dfe8f5", "#3c5a86")
OUTPUT = Look("plain", "#e7e7ec", "#4a4a55")
WEIGHT = Look("plain", "#f9e6b8", "#8a6a00")
#: The CSS classes of boxes in pictures of other systems: αNAS's operations, Canvas's tensors and blends.
BOXES = (".operation", ".node.tensor", ".node.primitive")


def digraph(
    name: str, body: Iterable[str], *, apart: str, points: int, node: str = "width=0.3", edge: str = "", label: str = ""
) -> str:
    """Return the DOT text of a picture.

    Args:
        name: the name of the graph.
        body: the lines of the nodes and edges.
        apart: the distances between nodes and between ranks, as ``nodesep`` and ``ranksep``.
        points: the font size of the label.
        node: further attributes of all nodes.
        edge: further attributes of all edges.
        label: the label above the picture, in DOT.
    """
    head = [
        f"digraph {name} {{",
        f'graph [bgcolor="transparent", {apart}, fontname="{FONT}", fontsize={points}]',
        f'node [fontname="{FONT}", fontsize=12, fontcolor="{INK}", margin="0.14,0.06", height=0.3, {node}]',
        f'edge [color="{LINE}", fontcolor="{INK}", fontname="{FONT}", fontsize={EDGE_POINTS}, {edge}arrowsize=0.6]',
    ]
    if label:
        head.append(f'labelloc=t; fontcolor="{INK}"; label={label}')
    return "\n".join([*head, *("  " + line for line in body), "}"]) + "\n"


def primitive_look(name: str) -> Look:
    """Return the look of a primitive by its name."""
    return PRIMITIVE_LOOKS.get(name, OTHER_PRIMITIVE)


#: The width of a letter, in font sizes; browsers draw letters wider than the layout program expects.
_LETTER = 0.52


def plate(lines: Sequence[str], fill: str, points: int) -> str:
    """Return lines of text on a light background as a DOT label, readable on light and dark pages.

    ``points`` is the font size.
    """
    width = round(_LETTER * points * max(map(len, lines))) + 6
    rows = "".join(f'<TR><TD WIDTH="{width}">{escape(line, quote=True)}</TD></TR>' for line in lines)
    return f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="1" BGCOLOR="{fill}">{rows}</TABLE>>'


def dark_css(place: str) -> str:
    """Return CSS for pictures within ``place`` on a page's dark background; an ``<img>`` keeps the light looks.

    Each rule has specificity 0, so a page's own highlights override it.
    """
    outline = ":is(path, polygon, ellipse)"
    line, bond = DARK_LINE, DARK_LOOKS["SHARE"][1]
    rules = {
        ".edge text": f"fill: {DARK_INK}",
        ".edge path": f"stroke: {line}",
        ".edge polygon": f"stroke: {line}; fill: {line}",
        ".hull :is(path, polygon)": f"stroke: {DARK_HULL}",
        ".hull polygon": f"fill: {DARK_HULL}",
        ".bond :is(path, polygon)": f"stroke: {bond}",
        ".bond polygon": f"fill: {bond}",
        '.edge polygon[stroke="none"]': f"stroke: none; fill: {DARK_GROUND}",
    }
    for kind, (fill, border) in DARK_LOOKS.items():
        rules[f".{kind} text"] = f"fill: {DARK_INK}"
        rules[f'.{kind} > {outline}:not([fill="none"])'] = f"fill: {fill}"
        rules[f'.{kind} > {outline}:not([stroke="none"], [stroke="{HIGHLIGHT}"])'] = f"stroke: {border}"
    # Boxes in pictures of other systems have the fills of these looks, but classes of their own.
    for box in BOXES:
        rules[f"{box} text"] = f"fill: {DARK_INK}"
    boxes = f":is({', '.join(BOXES)}) > {outline}"
    kinds = {"coordinate": COORDINATE, "input": INPUT, "output": OUTPUT, "weight": WEIGHT}
    dark = {look.fill: DARK_LOOKS[name] for name, look in (PRIMITIVE_LOOKS | kinds).items()}
    for light, (fill, border) in (dark | {OTHER_PRIMITIVE.fill: DARK_LOOKS["output"]}).items():
        rules[f'{boxes}[fill="{light}"]:not([stroke="none"])'] = f"fill: {fill}"
        rules[f'{boxes}[fill="{light}"]:not([stroke="none"], [stroke="{HIGHLIGHT}"])'] = f"stroke: {border}"
        if light != COORDINATE.fill:
            rules[f'.edge polygon[fill="{light}"][stroke="none"]'] = f"fill: {fill}"
    rules[f'.graph > polygon[fill="{WHITE}"]'] = f"fill: {DARK_GROUND}"
    rules[".graph > text"] = f"fill: {DARK_INK}"
    return "".join(f":where({place} {selector}) {{ {rule}; }}\n" for selector, rule in rules.items())


def dot_text(*lines: str) -> str:
    """Return any text as a DOT label with its line breaks."""
    return '"' + "\n".join(lines).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
