"""Pictures of pGraphs: the input on top, the output at the bottom, the weights at the side (Syno, Figure 2).

Read a picture from bottom to top, like Table 1 of the paper. Names in capitals are primitives. Rounded boxes are
coordinates with their expression and size. Tables are tensors. The names of nodes follow the order in which coordinates
and steps are created, as in operator files:

=========  ===============================================================================================
``c3``     a coordinate; the output axes come first, then the results of each step
``s2``     the primitive of a step; ``s5_c3`` is the SHARE of coordinate ``c3`` in the CONTRACTION ``s5``
``w0``     a weight, with a port ``d0``, ``d1``, ... for each dimension
``x``      the input, ports ``a0``, ``a1``, ...; dashed while the data is not yet the input
``y``      the output, ports ``a0``, ``a1``, ...
=========  ===============================================================================================

In the SVG each node is a group with its name as ``id``. The ``id`` of a line is ``<upper>--<lower>``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from html import escape

from syno_lab.codegen.drawing_order import Growth, Joint, steady_rows
from syno_lab.codegen.text import expressions, names
from syno_lab.drawing.hull import with_hulls
from syno_lab.drawing.render import accessible_svg
from syno_lab.drawing.style import (
    COORDINATE,
    HIGHLIGHT,
    INPUT,
    OUTPUT,
    WEIGHT,
    WHITE,
    Look,
    digraph,
    dot_text,
    primitive_look,
)
from syno_lab.drawing.text import Names, in_lines
from syno_lab.errors import PrimitiveError
from syno_lab.inputs import count_of, quoted
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step

Drawable = State | Operator
Part = Coordinate | int
_REPEAT = re.compile(r"__(\d+)$")


def dot(graph: Drawable, *, highlight: Iterable[Part] = (), title: str | None = None, is_steady: bool = False) -> str:
    """Implement :meth:`.Operator.dot` and :meth:`.State.dot`."""
    return _Drawing(graph, highlight, title, is_steady=is_steady).source()


def svg(graph: Drawable, *, highlight: Iterable[Part] = (), title: str | None = None, is_steady: bool = False) -> str:
    """Implement :meth:`.Operator.svg` and :meth:`.State.svg`."""
    drawing = _Drawing(graph, highlight, title, is_steady=is_steady)
    description = describe(graph)
    words = f"{title}. {description}" if title else description
    return with_hulls(accessible_svg(drawing.source(), words, drawing.titles, iterator_names(graph)))


def iterator_names(graph: Drawable) -> Names:
    """Return how each iterator's name is typeset: i or r, the size as a subscript, and the number of primes."""
    iterators = {}
    for leaf, name in names(graph).items():
        number = _REPEAT.search(name)
        iterators[name] = (name[0], leaf.size.pretty, int(number[1]) - 1 if number else 0)
    return iterators


def describe(graph: Drawable) -> str:
    """Return the text alternative of a pGraph's picture."""
    state = _state(graph)
    names = expressions(graph)

    def shape(coordinates: Iterable[Coordinate]) -> str:
        return "[" + ", ".join(c.size.pretty for c in coordinates) + "]"

    wanted = "[" + ", ".join(size.pretty for size in state.spec.input_shape) + "]"
    if isinstance(graph, Operator) or state.is_complete:
        summary = f"Complete pGraph from input {wanted} to output {shape(state.output)}"
    else:
        summary = (
            f"Partial pGraph from data {shape(state.data)}, to become input {wanted}, to output {shape(state.output)}"
        )
    steps = [f"{number}. {describe_step(state, step, names)}" for number, step in enumerate(state.steps, 1)]
    if not steps:
        return f"{summary}; no steps yet."
    return f"{summary}; {count_of(len(steps), 'step')}, bottom to top: " + "; ".join(steps) + "."


def drawn(graph: Drawable) -> _Drawing:
    """Return the drawing of a pGraph with its nodes, lines and titles."""
    drawing = _Drawing(graph, (), None)
    drawing.source()
    return drawing


def describe_step(state: State, step: Step, names: dict[Coordinate, str] | None = None) -> str:
    """Describe a step in one line, such as ``UNFOLD i_H, k_1``; ``state`` names the step's coordinates."""
    names = expressions(state) if names is None else names
    if step.primitive == "SHARE":
        given_words = f", give {', '.join(names[c] for c in step.given)}" if step.given else ""
        return f"CONTRACTION share {', '.join(names[c] for c in step.operands)}{given_words}"
    words = [step.primitive, ", ".join(names[c] for c in step.operands)]
    if step.parameter is not None:
        label = PRIMITIVES[step.primitive].parameter
        words.append(step.parameter.pretty if not step.operands else f"with {label} = {step.parameter.pretty}")
    return " ".join(word for word in words if word)


def coordinate_ids(graph: Drawable) -> dict[str, Coordinate]:
    """Return the coordinates of a pGraph by their names in the picture, in order of creation."""
    state = _state(graph)
    coordinates = list(state.output)
    replay = State.root(state.spec)
    for step in state.steps:
        coordinates.extend(replay.results(step))
        replay = replay.apply(step)
    return {f"c{number}": coordinate for number, coordinate in enumerate(coordinates)}


def card_svg(name: str) -> str:
    """Return the picture of a primitive's card: the primitive with its bottom and top coordinates.

    Raises PrimitiveError for an unknown primitive.
    """
    drawing = _Drawing(_example(name), (), None, ends=False)
    card = PRIMITIVES[name].card
    words = f"{card.name}: bottom {card.before}, top {card.after}; {card.top_down}."
    return with_hulls(accessible_svg(drawing.source(), words, drawing.titles, iterator_names(drawing.state)))


def _example(name: str) -> State:
    primitive = PRIMITIVES.get(name)
    if primitive is None:
        raise PrimitiveError(f"unknown primitive {quoted(name)}; known are {', '.join(PRIMITIVES)}")
    sizes, parameter = primitive.example
    shape = f"[{', '.join(sizes)}]"
    # The size of a block divides a coordinate's size; only coefficients may be in a denominator.
    small = [parameter] if parameter and sizes else []
    large = [*sizes, parameter] if parameter and not sizes else list(sizes)
    root = State.root(Spec.parse(shape, shape, large, small))
    size = None if parameter is None else root.spec.symbols.size(parameter)
    if name == "SHARE":
        return root.apply(Step(name, root.output[:1], given=root.output[1:]))
    return root.apply(Step(name, root.output, size))


def _state(graph: Drawable) -> State:
    return graph.state if isinstance(graph, Operator) else graph


class _Drawing:
    """The drawing of a pGraph: builds the lines of DOT and a title for each node."""

    def __init__(
        self,
        graph: Drawable,
        highlight: Iterable[Part],
        title: str | None,
        ends: bool = True,
        is_steady: bool = False,
    ) -> None:
        self.state = _state(graph)
        self.expressions = expressions(graph)
        self.ids = {coordinate: name for name, coordinate in coordinate_ids(graph).items()}
        self.highlight = frozenset(highlight)
        self.title = title
        self.ends = ends
        self.is_steady = is_steady
        self.titles: dict[str, str] = {}
        self.lines: list[str] = []
        self.nodes: list[str] = []
        self.joints: dict[str, Joint] = {}
        self.growth: list[Growth] = []
        # For each coordinate the uppermost node above it so far; None if the coordinate is no longer in the data.
        self.tip: dict[Coordinate, str | None] = {}
        self.complete = isinstance(graph, Operator) or self.state.is_complete
        self.top = graph.inputs if isinstance(graph, Operator) else next(self.state.matches(), self.state.data)

    def source(self) -> str:
        self.lines, self.nodes, self.joints, self.growth = [], [], {}, []
        self.titles = {}
        if self.ends:
            self._tensor("y", "Y", "output", OUTPUT, "a", [c.size.pretty for c in self.state.output])
        for axis, coordinate in enumerate(self.state.output):
            self._coordinate(coordinate)
            if self.ends:
                self._edge(self.ids[coordinate], f"y:a{axis}:n")
        replay, weight = State.root(self.state.spec), 0
        self._grown(replay)
        for number, step in enumerate(self.state.steps):
            if step.primitive == "SHARE":
                self._contraction(number, step, weight)
                weight += 1
            else:
                self._primitive(number, step, replay.results(step))
            replay = replay.apply(step)
            if number + 1 < len(self.state.steps):
                self._grown(replay)
        if self.ends:
            name, kind = ("X", "input") if self.complete else ("data", "so far")
            sizes = [c.size.pretty for c in self.top]
            self._tensor("x", name, kind, INPUT, "a", sizes, dashed=not self.complete)
            for axis, coordinate in enumerate(self.top):
                tip = self.tip[coordinate]
                assert tip is not None
                self._edge(f"x:a{axis}:s", tip)
            self._ranks()
        return digraph(
            "pgraph",
            self.lines,
            apart="nodesep=0.12, ranksep=0.2" if self.is_steady else "nodesep=0.2, ranksep=0.28",
            points=13,
            node='width=0.3, margin="0.06,0.06"' if self.is_steady else "width=0.3",
            edge="dir=back, fontsize=12, " if self.is_steady else "dir=back, ",
            label=_plate(self.title) if self.title else "",
        )

    def _ranks(self) -> None:
        """Write the rows of nodes; without fixed positions, write only the input on top and the output below."""
        if not self.is_steady:
            # Reductions are drawn where they are used, because beside the output their lines would cross more lines.
            self.lines += ["{ rank=min; x }", "{ rank=max; y }"]
            return
        complete = Growth(tuple(self.nodes), tuple(self.joints.values()))
        before = self.growth[: len(self.state.steps)]
        for row in reversed(steady_rows((*before, complete))):
            nodes = " -> ".join(name for name in row if isinstance(name, str))
            self.lines.append(f"{{ rank=same; edge [style=invis]; {nodes} }}")

    def _grown(self, replay: State) -> None:
        """Store the picture's nodes and lines after a step, as if the data coordinates were the input's axes."""
        if not self.is_steady:
            return
        ends = [
            Joint("x", axis, tip, 0)
            for axis, coordinate in enumerate(next(replay.matches(), replay.data))
            if (tip := self.tip[coordinate]) is not None
        ]
        self.growth.append(Growth((*self.nodes, "x"), (*self.joints.values(), *ends)))

    # -- parts -------------------------------------------------------------------------------------------------------

    def _coordinate(self, coordinate: Coordinate) -> None:
        name, text, size = self.ids[coordinate], self.expressions[coordinate], coordinate.size.pretty
        self.tip[coordinate] = name
        kinds = ["coordinate"]
        if coordinate.is_reduction:
            kinds.append("reduction")
        if coordinate in self.state.data:
            kinds.append("top")
        if coordinate in self.state.fixed:
            kinds.append("fixed")
        shown = "".join(f"<TR><TD>{_html(line)}</TD></TR>" for line in in_lines(text))
        label = (
            f'<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="1">{shown}'
            f'<TR><TD><FONT POINT-SIZE="{12 if self.is_steady else 10}">: {_html(size)}</FONT></TD></TR></TABLE>'
        )
        style = f'style="rounded,filled", margin="{0.12 if self.is_steady else 0.2},0.04"'
        self._node(name, f"<{label}>", COORDINATE, kinds, coordinate in self.highlight, style)
        fixed = "; fixed, takes part in nothing" if coordinate in self.state.fixed else ""
        self.titles[name] = f"coordinate {text} of size {size}{fixed}"

    def _primitive(self, number: int, step: Step, results: Collection[Coordinate]) -> None:
        name = f"s{number}"
        primitive = PRIMITIVES[step.primitive]
        look = primitive_look(step.primitive)
        label = f"{look.sign} {step.primitive}".strip()
        if step.parameter is not None and step.operands:
            label += f"\n{primitive.parameter} = {step.parameter.pretty}"
        self._node(name, dot_text(label), look, ["primitive", step.primitive], number in self.highlight)
        self.titles[name] = f"step {number + 1}: {describe_step(self.state, step, self.expressions)}"
        for operand, role in zip(step.operands, primitive.operands, strict=True):
            tip = self.tip[operand]
            assert tip is not None
            self._edge(name, tip, role if len(step.operands) > 1 else "")
            self.tip[operand] = None
        for coordinate in results:
            self._coordinate(coordinate)
            self._edge(self.ids[coordinate], name)

    def _contraction(self, number: int, step: Step, weight: int) -> None:
        name = f"w{weight}"
        dimensions = step.operands + step.given
        self._tensor(name, f"W{weight + 1}", "weight", WEIGHT, "d", [c.size.pretty for c in dimensions])
        look = primitive_look("SHARE")
        for place, coordinate in enumerate(step.operands):
            share = f"s{number}_{self.ids[coordinate]}"
            tip = self.tip[coordinate]
            assert tip is not None
            self._node(share, dot_text(f"{look.sign} SHARE"), look, ["primitive", "SHARE"], number in self.highlight)
            self.titles[share] = (
                f"step {number + 1}: SHARE {self.expressions[coordinate]} between the data and weight W{weight + 1}"
            )
            self._edge(share, tip)
            self._edge(f"{name}:d{place}:s", share, of=look)
            self.tip[coordinate] = share
        for place, coordinate in enumerate(step.given, len(step.operands)):
            tip = self.tip[coordinate]
            assert tip is not None
            self._edge(f"{name}:d{place}:s", tip, "give", of=look)
            self.tip[coordinate] = None

    # -- DOT ---------------------------------------------------------------------------------------------------------

    def _node(
        self, name: str, label: str, look: Look, kinds: list[str], chosen: bool, style: str = "style=filled"
    ) -> None:
        border, width = (HIGHLIGHT, 3) if chosen else (look.border, 2 if "top" in kinds else 1)
        css = " ".join([*kinds, *(["highlight"] if chosen else [])])
        self.nodes.append(name)
        self.lines.append(
            f'{name} [id="{name}", class="{css}", label={label}, shape={look.shape}, {style}, '
            f'fillcolor="{look.fill}", color="{border}", penwidth={width}]'
        )

    def _tensor(
        self, name: str, title: str, what: str, look: Look, port: str, sizes: list[str], dashed: bool = False
    ) -> None:
        cells = "".join(f'<TD PORT="{port}{place}">{_html(size)}</TD>' for place, size in enumerate(sizes))
        heading = f"<TD><B>{title}</B> {what}</TD>"
        style = ' STYLE="dashed"' if dashed else ""
        table = (
            f'<TABLE BORDER="1" CELLBORDER="1" CELLSPACING="0" CELLPADDING="5" COLOR="{look.border}" '
            f'BGCOLOR="{look.fill}"{style}><TR>{heading}{cells}</TR></TABLE>'
        )
        kind = {"x": "input", "y": "output"}.get(name, "weight")
        self.nodes.append(name)
        self.lines.append(
            f'{name} [id="{name}", class="tensor {kind}", label=<{table}>, shape=plain, style="", margin="0,0"]'
        )
        self.titles[name] = f"{what if not dashed else 'data so far'} {title} of shape [{', '.join(sizes)}]"

    def _edge(self, upper: str, lower: str, label: str = "", of: Look | None = None) -> None:
        name = "--".join(end.removesuffix(":n").removesuffix(":s").replace(":", "_") for end in (upper, lower))
        text = ""
        if label:
            text = f", label={_plate(label)}"
        # The lines of a CONTRACTION connect its SHAREs with its weight.
        bond = "" if of is None else f', color="{of.border}", penwidth=2'
        kinds = "line" if of is None else "line bond"
        self.joints[name] = Joint(*_end(upper), *_end(lower))
        self.lines.append(f'{upper} -> {lower} [id="{name}", class="{kinds}"{text}{bond}]')


def _end(end: str) -> tuple[str, int]:
    """Split the end point of a line into node and dimension: ``w0`` and 1 for ``w0:d1:s``."""
    name, _, port = end.partition(":")
    return name, int(port[1:].partition(":")[0] or 0)


def _html(text: str) -> str:
    return escape(text, quote=True)


def _plate(text: str) -> str:
    """Return a DOT label on a light background, for text outside of nodes."""
    return f'<<TABLE BORDER="0" CELLPADDING="0" BGCOLOR="{WHITE}"><TR><TD>{_html(text)}</TD></TR></TABLE>>'
