"""Graphs of αNAS as pictures: inputs on top, outputs at the bottom, operations as boxes, tensors as arrows.

The label of an arrow is its tensor's shape, (batch, spatial axes…, channels). In the SVG each part of the graph is a
group with an ``id``:

===============  =============================================================
``t0``           input 0
``n3``           node 3
``out0``         output 0
``n3-in1``       the arrow of the second input tensor of node 3
``out0-in0``     the arrow into an output
===============  =============================================================
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from syno_lab.alpha.graph import Graph
from syno_lab.alpha.operations import Operation, Shape
from syno_lab.drawing import style as looks
from syno_lab.drawing.render import accessible_svg
from syno_lab.drawing.style import EDGE_POINTS, digraph, dot_text, plate
from syno_lab.inputs import count_of, plural

#: For each kind of operation: its sign, fill and border. Operations with weights have the colours of weights.
LOOKS = {
    "non-linear": ("~", *looks.primitive_look("REDUCE")[1:3]),
    "normalisation": ("N", *looks.primitive_look("SHIFT")[1:3]),
    "pool": ("▽", *looks.primitive_look("SPLIT")[1:3]),
    "joins tensors": ("+", *looks.primitive_look("SHARE")[1:3]),
    "other": ("·", looks.WHITE, looks.LINE),
    "opaque": ("?", *looks.primitive_look("")[1:3]),
    "weights": ("Σ", looks.WEIGHT.fill, looks.WEIGHT.border),
}
_CAPTION_POINTS = 12
_LONGEST = 34  # the limit of characters in a line of a box


def dot(
    graph: Graph,
    *,
    title: str | None = None,
    highlight: Collection[int] = (),
    notes: Mapping[int, Sequence[str]] | None = None,
) -> str:
    """Return a graph as DOT text; equal graphs have equal text.

    Args:
        graph: the graph to draw.
        title: a line above the drawing; the function escapes any text.
        highlight: numbers of nodes to draw with a thick border, such as the nodes of a region.
        notes: by a tensor's number, the lines to write below the tensor's shape, such as its properties.
    """
    return _drawn(graph, title, highlight, notes or {})[0]


def svg(
    graph: Graph,
    *,
    title: str | None = None,
    highlight: Collection[int] = (),
    notes: Mapping[int, Sequence[str]] | None = None,
) -> str:
    """Return :func:`dot` as SVG with a text alternative. Raises SynoError where Graphviz is missing or too slow."""
    source, titles = _drawn(graph, title, highlight, notes or {})
    return accessible_svg(source, ". ".join([*([title] if title else []), describe(graph)]), titles)


def describe(graph: Graph) -> str:
    """Return the text alternative of a graph's picture."""
    lines = [f"t{number} = input of shape {_shape(graph, number)}" for number in range(len(graph.inputs))]
    for number, node in enumerate(graph.nodes):
        lines.append(f"t{graph.tensor(number)} = {node}, of shape {_shape(graph, graph.tensor(number))}")
    outputs = ", ".join(f"t{tensor}" for tensor in graph.outputs)
    count = count_of(len(graph.nodes), "operation")
    return f"Graph of {count}, top to bottom: {'; '.join(lines)}; {plural(len(graph.outputs), 'output')}: {outputs}."


def parts(graph: Graph, notes: Mapping[int, Sequence[str]] | None = None) -> dict[str, tuple[str, list[str]]]:
    """Map the id of each part of a picture to the part's description and the ids to highlight with the part.

    An operation or output highlights its incoming arrows and their sources. An arrow highlights its two ends.
    """
    names = [f"t{number}" for number in range(len(graph.inputs))] + [f"n{number}" for number in range(len(graph.nodes))]
    parts_by_id: dict[str, tuple[str, list[str]]] = {}

    def add(name: str, words: str, tensors: Sequence[int]) -> None:
        arrows = [f"{name}-in{side}" for side in range(len(tensors))]
        makers = [names[tensor] for tensor in tensors]
        parts_by_id[name] = (words, [*dict.fromkeys((*makers, *arrows, name))])
        for arrow, maker, tensor in zip(arrows, makers, tensors, strict=True):
            about = ", ".join([f"t{tensor} of {_shape(graph, tensor)}", *(notes or {}).get(tensor, ())])
            parts_by_id[arrow] = (about, [maker, arrow, name])

    for number in range(len(graph.inputs)):
        add(f"t{number}", f"input {number} of {_shape(graph, number)}", ())
    for number, node in enumerate(graph.nodes):
        add(f"n{number}", f"operation {number}: {node}, gives {_shape(graph, graph.tensor(number))}", node.inputs)
    for number, tensor in enumerate(graph.outputs):
        add(f"out{number}", f"output {number} of {_shape(graph, tensor)}", (tensor,))
    return parts_by_id


def _shape(graph: Graph, tensor: int) -> str:
    return f"[{', '.join(map(str, graph.shapes[tensor]))}]"


def kind_of(operation: Operation, *shapes: Shape) -> str:
    """Return the kind of an operation on inputs of these shapes: a key of :data:`LOOKS`."""
    name = operation.name
    if name == "opaque":
        return "opaque"
    if name.endswith("_norm"):
        return "normalisation"
    if operation.params(*shapes):
        return "weights"
    if name.endswith("_pool"):
        return "pool"
    if operation.row.inputs == 2:
        return "joins tensors"
    return "non-linear" if operation.linear is False else "other"


def _lines(operation: Operation) -> list[str]:
    """Return the text of an operation's box: the name, then lines with the attributes that differ from the default."""
    name, _, rest = str(operation).partition("(")
    lines = [name]
    for word in rest.removesuffix(")").split(", ") if rest else ():
        if len(lines) > 1 and len(lines[-1]) + len(word) + 2 <= _LONGEST:
            lines[-1] += f", {word}"
        else:
            lines.append(word)
    return lines


def _drawn(
    graph: Graph, title: str | None, highlight: Collection[int], notes: Mapping[int, Sequence[str]]
) -> tuple[str, dict[str, str]]:
    """Return the DOT text, and the title of each node and edge by the name that Graphviz gives it."""
    titles: dict[str, str] = {}
    lines: list[str] = []

    def box(name: str, text: list[str], fill: str, border: str, css: str, words: str, style: str, width: int) -> None:
        lines.append(
            f'{name} [id="{name}", class="{css}", label={dot_text(*text)}, style="{style}", '
            f'fillcolor="{fill}", color="{border}", penwidth={width}]'
        )
        titles[name] = words

    def edge(tensor: int, below: str, side: int) -> None:
        maker, shape = graph.maker(tensor), _shape(graph, tensor)
        above = f"t{tensor}" if maker is None else f"n{maker}"
        label = plate([shape, *notes.get(tensor, ())], looks.WHITE, EDGE_POINTS)
        lines.append(f'{above} -> {below} [id="{below}-in{side}", class="tensor", label={label}]')
        # Graphviz names an edge by its source and target, so edges between the same boxes share a title.
        before, words = titles.get(f"{above}->{below}"), f"t{tensor} of {shape}"
        titles[f"{above}->{below}"] = f"{before}; {words}" if before else words

    for number in range(len(graph.inputs)):
        words = f"input {number}"
        box(f"t{number}", [words], looks.INPUT.fill, looks.INPUT.border, "input", words, "rounded,filled", 2)
    for number, node in enumerate(graph.nodes):
        _, fill, border = LOOKS[kind_of(node.operation, *graph.input_shapes(number))]
        words = f"node {number}: {node}, gives t{graph.tensor(number)} of {_shape(graph, graph.tensor(number))}"
        if node.source:
            words += f", from {node.source}"
        css = f"operation {node.operation.name}{' highlight' if number in highlight else ''}"
        border, width = (looks.HIGHLIGHT, 3) if number in highlight else (border, 1)
        box(f"n{number}", _lines(node.operation), fill, border, css, words, "filled", width)
        for side, tensor in enumerate(node.inputs):
            edge(tensor, f"n{number}", side)
    for number, tensor in enumerate(graph.outputs):
        words = f"output {number}"
        box(f"out{number}", [words], looks.OUTPUT.fill, looks.OUTPUT.border, "output", words, "rounded,filled", 2)
        edge(tensor, f"out{number}", 0)
    label = plate([title], looks.WHITE, _CAPTION_POINTS) if title else ""
    apart = "nodesep=0.35, ranksep=0.35"
    source = digraph("graph_of_operations", lines, apart=apart, points=_CAPTION_POINTS, node="shape=box", label=label)
    return source, titles
