"""The texts of an operator: its equation, and the loop nest as lines of pieces.

A piece is a part of the nest's text with the ids of its coordinates in the picture. The text is exactly the text of
:func:`syno_lab.codegen.loops.loops`. The nests of this text determine the pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypedDict

from syno_lab.codegen import drawing
from syno_lab.codegen.drawing_links import links
from syno_lab.codegen.equation import equation
from syno_lab.codegen.loops import condition_text, loops, make_program
from syno_lab.codegen.nest import Access, Nest, tensors
from syno_lab.codegen.receptive_field import bounds
from syno_lab.codegen.walk import climb
from syno_lab.drawing.formula import formula_svg
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.plan import Stage, plan
from syno_lab.panes import Asked
from syno_lab.panes.data import Link, Picture, Piece
from syno_lab.panes.generic import coloured, picture_pane
from syno_lab.synthesis.expressions import Expression, name, size

Pieces = list[Piece]


class Written(TypedDict):
    """An equation as text, as LaTeX and as an SVG picture."""

    title: str
    text: str
    latex: str
    svg: str


class Equations(TypedDict):
    """The equation of an operator in two forms: for a single loop nest, and for each stage."""

    forms: list[Written]


class LinedNest(TypedDict):
    """A loop nest as text and as lines of pieces; the pieces joined are the text."""

    title: str
    text: str
    lines: list[Pieces]


class Nests(TypedDict):
    """The single nest that defines the operator, and the nests of the plan's stages."""

    nests: list[LinedNest]


@dataclass(frozen=True)
class _Mark:
    """A mark in a line: the next occurrence of ``text`` belongs to the nodes ``ids`` of the picture."""

    text: str
    ids: tuple[str, ...]


def equation_pane(asked: Asked[Operator]) -> Equations:
    """Return the equation of an operator in two forms: for a single loop nest, and for each stage."""
    forms: list[Written] = []
    for title, staged in (("One equation", False), ("By stages", True)):
        form = equation(asked.operator, asked.bound(), staged=staged)
        forms.append(
            {"title": title, "text": str(form), "latex": form.latex, "svg": formula_svg(form.latex, str(form))}
        )
    return {"forms": forms}


def loop_pane(asked: Asked[Operator]) -> Nests:
    """Return the loop nest of an operator in two forms: as a single nest, and with a nest for each stage."""
    bound = asked.bound()
    single = _nest(asked.operator, "One loop nest", loops(asked.operator), [_forward(asked.operator)])
    text = loops(asked.operator, bound, staged=True)
    staged = _nest(asked.operator, "By stages of the plan", text, _staged(asked.operator, bound))
    return {"nests": [single, staged]}


def nest_texts(asked: Asked[Operator], data: Nests) -> list[str]:
    """Return the equation and the single loop nest, for a page without a kernel."""
    return [str(equation(asked.operator)), data["nests"][0]["text"]]


@dataclass(frozen=True)
class _Linked:
    """A loop nest with the coordinates of the nest's indices and conditions."""

    nest: Nest
    result: tuple[Coordinate, ...]
    factors: tuple[tuple[str, tuple[Coordinate, ...]], ...]
    conditions: tuple[Coordinate, ...]


def _forward(operator: Operator) -> _Linked:
    (nest,) = make_program(operator, None).nests
    arrays = tensors(operator)
    factors = tuple((_tensor_id(key), coordinates) for key, coordinates in arrays.items() if key != "Y")
    return _Linked(nest, operator.output, factors, bounds(operator))


def _staged(operator: Operator, bound: dict[str, int]) -> list[_Linked]:
    program = make_program(operator, bound, is_staged=True)
    linked, axes, before = [], operator.inputs, "x"
    for nest, stage in zip(program.nests, plan(operator, bound).stages, strict=True):
        weights = tuple((f"w{number}", operator.weights[number].coordinates) for number in stage.weights)
        linked.append(_Linked(nest, stage.out, ((before, axes), *weights), _bounded(operator, stage, nest)))
        axes, before = stage.out, ""
    return linked


def _bounded(operator: Operator, stage: Stage, nest: Nest) -> tuple[Coordinate, ...]:
    """Return the coordinates of a stage's conditions, in the order of the conditions."""
    values = {loop.coordinate: name(loop.name) for loop in (*nest.over, *nest.sums)}
    results = tuple(climb(operator, reversed(stage.undo), values, size))
    return results if len(results) == len(nest.conditions) else ()


def _tensor_id(key: str) -> str:
    return f"w{int(key[1:]) - 1}" if key.startswith("W") else key.lower()


def _nest(operator: Operator, title: str, text: str, linked: list[_Linked]) -> LinedNest:
    ids = {coordinate: name for name, coordinate in drawing.coordinate_ids(operator).items()}
    lines: list[Pieces] = [[{"text": line}] for line in text.splitlines()]
    marks = [_marks(nest, ids) for nest in linked]
    at = 0
    for nest_marks in marks:
        for start, line_marks in nest_marks:
            at = next(n for n in range(at, len(lines)) if lines[n][0]["text"].lstrip().startswith(start))
            lines[at] = _cut(lines[at][0]["text"], line_marks)
            at += 1
    lines = [_cut(line[0]["text"], []) if len(line) == 1 and "ids" not in line[0] else line for line in lines]
    _lend(operator, lines, ids)
    return {"title": title, "text": text, "lines": lines}


def _marks(linked: _Linked, ids: dict[Coordinate, str]) -> Iterator[tuple[str, list[_Mark]]]:
    """Yield for each line of a loop nest the text at its start, and its marks from left to right."""
    nest = linked.nest
    for loop in nest.over:
        yield f"for {loop.name} in", [_Mark(loop.name, (ids[loop.coordinate],))]
    result = _access(nest.result, "y" if nest.result.array.startswith("Y") else "", linked.result, ids)
    if not nest.scatters:
        yield f"{nest.result.array}[", result
    for loop in nest.sums:
        yield f"for {loop.name} in", [_Mark(loop.name, (ids[loop.coordinate],))]
    clipped: tuple[Coordinate | None, ...] = linked.conditions or (None,) * len(nest.conditions)
    for condition, coordinate in zip(nest.conditions, clipped, strict=True):
        yield "if ", [] if coordinate is None else [_Mark(condition_text(condition), (ids[coordinate],))]
    factors = [
        mark
        for access, (tensor, coordinates) in zip(nest.factors, linked.factors, strict=True)
        for mark in _access(access, tensor, coordinates, ids)
    ]
    yield f"{nest.result.array}[", [*result, *factors]


def _access(
    access: Access, tensor: str, coordinates: tuple[Coordinate, ...], ids: dict[Coordinate, str]
) -> list[_Mark]:
    head = [_Mark(access.array, (tensor,))] if tensor else []
    indices: tuple[Expression, ...] = access.index
    return head + [_Mark(str(index), (ids[c],)) for index, c in zip(indices, coordinates, strict=True)]


def _cut(line: str, marks: list[_Mark]) -> Pieces:
    pieces: Pieces = []
    at = 0
    for mark in marks:
        start = line.index(mark.text, at)
        pieces += coloured(line[at:start])
        pieces.append({"text": mark.text, "ids": list(mark.ids)})
        at = start + len(mark.text)
    return pieces + coloured(line[at:])


def _lend(operator: Operator, lines: list[Pieces], ids: dict[Coordinate, str]) -> None:
    """For a coordinate that is not in the text, mark the pieces of derived coordinates, else of its iterators."""
    shown = {node for line in lines for piece in line for node in piece.get("ids", ())}
    users: dict[Coordinate, set[Coordinate]] = {}
    for coordinate in ids:
        for operand in coordinate.node.operands:
            users.setdefault(operand, set()).add(coordinate)
    for coordinate in reversed(ids):
        name_ = ids[coordinate]
        if name_ in shown:
            continue
        lenders = {ids[c] for c in users.get(coordinate, ()) if ids[c] in shown}
        lenders = lenders or {ids[leaf] for leaf in coordinate.leaves()}
        for line in lines:
            for piece in line:
                if lenders & set(piece.get("ids", ())):
                    piece["ids"].append(name_)
        shown.add(name_)


def graph_pane(asked: Asked[Operator]) -> Picture:
    """Return the picture of an operator, with the links of its nodes."""
    data = picture_pane(asked)
    return {**data, "links": _links(asked, data["svg"])}


def _links(asked: Asked[Operator], svg: str) -> dict[str, Link]:
    lines = _lines(asked)
    links_of: dict[str, Link] = {}
    for node, link in links(asked.operator, svg).items():
        marks = list(dict.fromkeys([node, *link.touched]))
        links_of[node] = {
            "words": link.words,
            "kind": link.kind,
            "light": list(link.light),
            "marks": marks,
            "lines": sorted({line for mark in marks for line in lines.get(mark, ())}),
        }
    return links_of


def _lines(asked: Asked[Operator]) -> dict[str, list[int]]:
    """Return for each node of the picture its lines in the single loop nest."""
    lines_of: dict[str, list[int]] = {}
    for number, line in enumerate(loop_pane(asked)["nests"][0]["lines"]):
        for piece in line:
            for node in piece.get("ids", ()):
                lines_of.setdefault(node, []).append(number)
    return lines_of
