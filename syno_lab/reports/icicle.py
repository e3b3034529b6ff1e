"""An icicle plot of a tree, as plain data for a page: a box for each node, with the boxes of its children below.

Two trees are drawn as icicle plots: the tree of a search (:mod:`.trees`) and the neighbourhood of a state
(:mod:`.around`). Where boxes would be too narrow, the children with the least weight share one box.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import msgspec

from syno_lab.drawing.style import BOX_LINE, INK, NO_VALUE, PALE, PRIMITIVE_LOOKS, WHITE, Look
from syno_lab.drawing.svg import picture, safe
from syno_lab.inputs import printable
from syno_lab.search.branches import Branch, Branching

Colour = Literal["reward", "searches", "distance", "probe", "primitive"]
COLOURS: tuple[Colour, ...] = get_args(Colour)
#: Steps that are drawn like a primitive: a CONTRACTION consists of SHAREs, and a GIVE adds a coordinate to a weight.
_PARTS = {"CONTRACTION": "SHARE", "GIVE": "SHARE"}
_WORD = re.compile(r"[^\W\d]\w*")
#: The text of a search's step that limits the number of further steps.
_BOUND = re.compile(r"at most (\d+) steps?")
SIGNS = {"open": "", "operator": "✓ ", "dead end": "✕ ", "pruned": "– ", "done": "■ "}
#: The width of the narrowest box, as a share of the plot's width.
NARROWEST = 1 / 64
#: The largest number of children that a table lists.
LISTED = 200
_COMPARISON = re.compile(r"([a-z]+)(<=|>=|<|>|=)(.+)")
_HOLDS = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "=": operator.eq}
_NUMBERS = ("searches", "visits", "outstanding", "fruitless", "reward", "best", "distance", "probe")
_WIDTH, _HIGH, _LETTER = 900, 24, 6.6  # the sketch's width, a box's height, a letter's mean width [pixels]


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A box of an icicle plot, with the ``key`` and the ``kind`` of its node; a shared box has only the kind ``more``.

    The box shows ``text``, or ``short`` (sign and primitive), or ``sign`` alone where the box is narrow. ``words``
    describe the node. ``level`` counts from 0. ``left`` and ``width`` are shares of the plot's width. ``edge`` is the
    primitive's colour, or empty. ``is_best`` marks nodes on the path to the best trial.
    """

    key: str = ""
    text: str
    short: str
    sign: str
    words: str
    kind: str
    level: int
    left: float
    width: float
    fill: str
    edge: str = ""
    is_best: bool = False


@dataclass(frozen=True)
class Icicle:
    """An icicle plot row by row, with the numbers of shown nodes (also in shared boxes) and of ``matches``."""

    boxes: list[Box]
    places: int
    matches: int


def icicle(
    what: Branching,
    root: str,
    depth: int,
    *,
    colour: Colour = "reward",
    wanted: str = "",
    most: int = 1500,
    best: Collection[str] = (),
) -> Icicle:
    """Return the boxes of a node and of the nodes below it.

    Args:
        what: the tree.
        root: the key of the top node.
        depth: the number of levels below the top node.
        colour: the name of the number that the colour shows: darker is more (for the distance: less).
        wanted: the filter: words in a node's text, and comparisons such as ``reward>0.5``, ``distance<=2``,
            ``kind=pruned``. Nodes on the path to a match are shown too.
        most: the largest number of boxes.
        best: the keys of the nodes on the path to the best trial.

    Raises KeyError for an unknown node.
    """
    fits = parse_filter(wanted)
    visible = _kept(what, root, fits) if wanted.strip() else None
    shades = _shades(what, root, depth, colour)
    boxes: list[Box] = []
    shown = 0
    row: list[tuple[str, float, float]] = [(root, 0.0, 1.0)]
    for level in range(depth + 1):
        next_row: list[tuple[str, float, float]] = []
        for key, left, width in row:
            if len(boxes) >= most:
                break
            branch = what.branch(key)
            box = _box(branch, level, left, width, shades(branch), colour == "primitive", key in best)
            boxes.append(box)
            shown += 1
            if level == depth:
                continue
            children = [child for child in what.below(key) if visible is None or child in visible]
            placed, rest = _placed(children, what, left, width)
            next_row += placed
            if rest:
                shown += len(rest)
                room = min(NARROWEST, width)
                boxes.append(_bundle(len(rest), branch, level + 1, left + width - room, room))
        row = next_row
    matches = shown if visible is None else sum(fits(what.branch(key)) for key in visible)
    return Icicle(boxes, shown, matches)


def listed(what: Branching, key: str, wanted: str = "") -> list[dict[str, str | float | None]]:
    """Return at most :data:`LISTED` children of a node that match a filter, as records for a table."""
    fits = parse_filter(wanted)
    records = []
    for child in what.below(key):
        branch = what.branch(child)
        if fits(branch):
            numbers = {name: getattr(branch, name) for name in _NUMBERS}
            records.append({"key": child, "text": branch.text, "kind": branch.kind, "reason": branch.reason, **numbers})
            if len(records) == LISTED:
                break
    return records


def way_to(what: Branching, key: str) -> list[dict[str, str]]:
    """Return the nodes from the root to this node, each with ``key`` and ``text``."""
    nodes: list[dict[str, str]] = []
    at: str | None = key
    while at is not None:
        nodes.append({"key": at, "text": what.branch(at).text})
        at = what.above(at)
    return nodes[::-1]


def parse_filter(text: str) -> Callable[[Branch], bool]:
    """Convert a filter to a function that checks a node. Words that are no comparison must be in a node's text."""
    tests = [_test(word) for word in text.lower().split()]
    return lambda branch: all(test(branch) for test in tests)


def _test(word: str) -> Callable[[Branch], bool]:
    match = _COMPARISON.fullmatch(word)
    if match is not None:
        name, sign, value = match.groups()
        if name == "kind" and sign == "=":
            return lambda branch: branch.kind.replace(" ", "").startswith(value)
        if name in _NUMBERS and (number := _number(value)) is not None:
            return lambda branch: (have := getattr(branch, name)) is not None and _HOLDS[sign](have, number)
    return lambda branch: word in f"{branch.text} {branch.kind} {branch.reason}".lower()


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _kept(tree: Branching, root: str, fits: Callable[[Branch], bool]) -> set[str]:
    """Return the matching nodes below ``root``, and all nodes on the paths to the matching nodes."""
    visible: set[str] = set()
    waiting = [root]
    while waiting:
        key = waiting.pop()
        if fits(tree.branch(key)):
            at: str | None = key
            while at is not None and at not in visible:
                visible.add(at)
                at = None if at == root else tree.above(at)
        waiting += tree.below(key)
    return visible


def _placed(
    children: Sequence[str], tree: Branching, left: float, width: float
) -> tuple[list[tuple[str, float, float]], Sequence[str]]:
    """Return children side by side, each at least as wide as the narrowest box, and the children that do not fit."""
    room = int(width / NARROWEST + 1e-9)
    if len(children) > room:
        children, rest = children[: max(0, room - 1)], children[max(0, room - 1) :]
        width -= NARROWEST
    else:
        rest = ()
    weights = [max(0.0, tree.weight(child)) for child in children]
    total, spare = sum(weights), width - len(children) * NARROWEST
    placed = []
    for child, weight in zip(children, weights, strict=True):
        share = NARROWEST + spare * (weight / total if total else 1 / len(children))
        placed.append((child, left, share))
        left += share
    return placed, rest


def _shades(tree: Branching, root: str, depth: int, colour: Colour) -> Callable[[Branch], float | None]:
    """Return a function that maps a node to its shade, from 0 to 1 within the range shown; None without a value."""
    values: list[float] = []
    row = [root]
    while row and depth >= 0:
        depth -= 1
        values += [value for key in row if (value := _value(tree.branch(key), colour)) is not None]
        row = [child for key in row for child in tree.below(key)]
    low, high = min(values, default=0.0), max(values, default=0.0)

    def shade(branch: Branch) -> float | None:
        value = _value(branch, colour)
        if value is None:
            return None
        return 0.5 if high == low else (value - low) / (high - low)

    return shade


def _value(branch: Branch, colour: Colour) -> float | None:
    if colour == "searches":
        return math.log1p(branch.searches) if branch.searches else None
    if colour == "distance":
        return None if branch.distance is None else -float(branch.distance)
    return {"probe": branch.probe, "reward": branch.reward, "primitive": None}[colour]


def _fill(kind: str, shade: float | None) -> str:
    """Return a box's colour. Dark letters are readable on each returned colour."""
    if kind == "pruned":
        return WHITE
    if kind == "dead end":
        return NO_VALUE
    light, dark = (0xF4, 0xF7, 0xFB), (0x74, 0xA9, 0xDD)
    mixed = (round(a + (b - a) * (shade or 0.0)) for a, b in zip(light, dark, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _box(
    branch: Branch, level: int, left: float, width: float, shade: float | None, by_primitive: bool, is_best: bool
) -> Box:
    name, look = _primitive(branch.text)
    kind, own = SIGNS[branch.kind], "" if look is None else look.sign
    if bound := _BOUND.fullmatch(branch.text):  # the step limits the number of further steps
        name, own = f"≤ {bound[1]} steps", f"≤{bound[1]}"
    fill = _fill(branch.kind, shade)
    return Box(
        key=branch.key,
        text=kind + branch.text,
        short=f"{kind}{name}" if bound else f"{kind}{own} {name}".strip(),
        sign=own,  # no kind: the border and the fill of the box show it
        words=branch.words,
        kind=branch.kind,
        level=level,
        left=round(left, 6),
        width=round(width, 6),
        fill=look.fill if by_primitive and look is not None and branch.kind != "dead end" else fill,
        edge="" if look is None else look.border,
        is_best=is_best,
    )


def _primitive(text: str) -> tuple[str, Look | None]:
    """Return the first primitive in the text of a step and the primitive's look, else the first word and None."""
    words = _WORD.findall(text)
    for word in words:
        name = _PARTS.get(word, word)
        if name in PRIMITIVE_LOOKS:
            return word, PRIMITIVE_LOOKS[name]
    return (words[0] if words else ""), None


def _bundle(number: int, parent: Branch, level: int, left: float, width: float) -> Box:
    return Box(
        text=f"{number} more",
        short=f"+{number}",
        sign="+",
        words=f"{number} more below {parent.text} do not fit; start the picture there to see them",
        kind="more",
        level=level,
        left=round(left, 6),
        width=round(width, 6),
        fill=PALE,
    )


def icicle_sketch(found: Icicle, words: str) -> str:
    """Draw the icicle plot as a small SVG, for pages without a Jupyter kernel; ``words`` are its description."""
    levels = 1 + max((box.level for box in found.boxes), default=0)
    parts = []
    for box in found.boxes:
        x, y, width = box.left * _WIDTH, box.level * _HIGH, box.width * _WIDTH
        frame = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_HIGH}"'
        dashed = ' stroke-dasharray="3 2"' if box.kind in ("pruned", "more") else ""
        shape = f'<rect {frame} fill="{box.fill}" stroke="{BOX_LINE}" stroke-width="0.5"{dashed}/>'
        if box.edge:
            shape += f'<rect x="{x:.1f}" y="{y}" width="{min(3.0, width):.1f}" height="{_HIGH}" fill="{box.edge}"/>'
        letters = int((width - 8) / _LETTER)
        shown = next((text for text in map(printable, (box.text, box.short, box.sign)) if len(text) <= letters), "")
        label = f'<text x="{x + 5:.1f}" y="{y + 16}" fill="{INK}">{safe(shown)}</text>' if shown else ""
        parts.append(f"<g><title>{safe(box.words)}</title>{shape}{label}</g>")
    return picture(_WIDTH, levels * _HIGH, words, parts, ' font-size="11"')
