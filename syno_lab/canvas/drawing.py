"""Micro-DAGs as pictures: the input on top, the output at the bottom (Canvas, Figures 1, 6, 8 and 9).

Tensors are rounded boxes with their shape. A primitive is an edge with its name. A blending primitive is a small node
with an edge for each side, ``LHS`` and ``RHS``, because the order distinguishes ``a - b`` from ``b - a``. An FC shows
its weight's shape, ``[groups, outputs of a group, inputs of a group]``, and the normalisation of its result. In the SVG
each part is a group with an ``id``:

==============================  =====================================================================
``t0``                          the input
``t3``                          the tensor t3
``p3``                          the primitive that computes t3: an edge, or a node if it blends
``p3-lhs``, ``p3-rhs``          the edges into the node of a blending primitive
``p3-out``                      the edge out of that node
==============================  =====================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from syno_lab.canvas.kernel import Draft
from syno_lab.canvas.primitives import BROADCASTS, PRIMITIVES, weight_of
from syno_lab.canvas.shape import INPUT as IMAGE_SHAPE
from syno_lab.drawing import style as looks
from syno_lab.drawing.render import accessible_svg
from syno_lab.drawing.style import EDGE_POINTS, digraph, dot_text, plate
from syno_lab.inputs import count_of, plural

if TYPE_CHECKING:
    from syno_lab.canvas.kernel import Kernel
    from syno_lab.canvas.places import AtPlaces, Place
    from syno_lab.canvas.shape import Size

#: Fill and border of tensors between input and output, and of leaves, whose labels contain the word leaf.
_TENSOR = (looks.WHITE, looks.LINE)
_LEAF = looks.primitive_look("MERGE")[1:3]
#: Fill and border behind the names of primitives by family; an FC has the colours of its weight.
_FAMILIES = {
    "rearrangement": looks.primitive_look("SHIFT")[1:3],
    "arithmetic": looks.primitive_look("REDUCE")[1:3],
    "blending": looks.primitive_look("SHARE")[1:3],
}
_SIGNS = {"add": "+ ", "sub": "− ", "mul": "× "}
SIDES = ("LHS", "RHS")
_CAPTION_POINTS = 12


def dot(
    what: Draft | AtPlaces,
    binding: Mapping[str, int] | None = None,
    *,
    title: str | None = None,
    highlight: Iterable[int] = (),
    leaves_marked: bool = True,
    **_: Any,
) -> str:
    """Return the micro-DAG of a draft or an operator as DOT text; equal micro-DAGs have equal text.

    Args:
        what: the draft or operator.
        binding: numbers for an operator's variables: the picture then shows sizes also as numbers, and how often the
            template runs.
        title: a line above the drawing; the function escapes any text.
        highlight: numbers of tensors to draw with a thick border.
        leaves_marked: whether tensors that no node of a draft uses have a colour and a label of their own.
        _: options of other systems' pictures, without effect here.
    """
    return _Drawing(what, binding, title, highlight, leaves_marked).source()


def svg(what: Draft | AtPlaces, binding: Mapping[str, int] | None = None, **options: Any) -> str:
    """Return :func:`dot` as SVG with a text alternative. Raises SynoError where Graphviz is not installed."""
    drawing = _Drawing(what, binding, **options)
    text = ". ".join([*drawing.captions, describe(what if isinstance(what, Draft) else what.kernel)])
    return accessible_svg(drawing.source(), text, drawing.titles)


def describe(what: Draft | Kernel) -> str:
    """Return the text alternative of the picture of a draft or a kernel."""
    draft = what if isinstance(what, Draft) else what.draft
    drawn = f"{count_of(len(draft.nodes), 'primitive')}, top to bottom: {'; '.join(draft.lines)}"
    if isinstance(what, Draft):
        leaves = ", ".join(f"t{number}" for number in draft.leaves)
        word = plural(len(draft.leaves), "leaf", "leaves")
        return f"Draft of a Canvas kernel from input {IMAGE_SHAPE}, {drawn}; {word}: {leaves}."
    for number, has_relu in sorted(what.normalised.items()):
        drawn += f"; t{number} is normalised over the batch{', then goes through ReLU' if has_relu else ''}"
    output = f"the output is t{len(draft.nodes)}"
    return f"Canvas kernel from input {IMAGE_SHAPE} to output {IMAGE_SHAPE}, {drawn}; {output}."


def words(what: Draft | AtPlaces) -> dict[str, str]:
    """Return the description of each part of a draft's or operator's picture, by ``id``, inputs before results."""
    return _Drawing(what).words


def sign_of(name: str) -> str:
    """Return the sign of a blending primitive, such as +; empty for another primitive."""
    return _SIGNS.get(name, "").strip()


def colour_of(name: str) -> str:
    """Return the colour of a primitive's name."""
    return looks.WEIGHT.border if name == "fc" else _FAMILIES[PRIMITIVES[name].family][1]


def lights(draft: Draft, said: Iterable[str]) -> dict[str, list[str]]:
    """Return the parts to highlight with each part of a draft's picture, by id; ``said`` contains all ids.

    A tensor highlights all parts that compute it. A primitive and its edges highlight the primitive and its tensors.
    """
    by_id = {"t0": ["t0"]}
    ids = list(said)
    for number, node in enumerate(draft.nodes, start=1):
        own = [name for name in ids if name == f"p{number}" or name.startswith(f"p{number}-")]
        inputs = [f"t{tensor}" for tensor in node.inputs]
        below = dict.fromkeys(part for tensor in inputs for part in by_id[tensor])
        for name in own:
            by_id[name] = [*dict.fromkeys(inputs), *own, f"t{number}"]
        by_id[f"t{number}"] = [*below, *own, f"t{number}"]
    return by_id


def _captions(operator: AtPlaces, place: Place, template: Mapping[str, int]) -> list[str]:
    """Describe the layer's sizes, and how often the template runs for the layer; the picture shows one run."""
    lines = [str(place)]
    if operator.inner:
        lines.append(", ".join(f"{name} = {template[name]}" for name in operator.inner))
    if place.stride > 1:
        lines.append(f"behind an average pooling of {place.stride} x {place.stride}")
    if place.c_in > place.c_out:
        lines.append(f"{place.parts} parts on blocks of channels, averaged")
    elif place.c_in < place.c_out:
        lines.append(f"{place.parts} parts on the same input, concatenated")
    return lines


class _Drawing:
    """The DOT lines and the descriptions of one drawing, with symbols or with the numbers of a binding."""

    def __init__(
        self,
        what: Draft | AtPlaces,
        binding: Mapping[str, int] | None = None,
        title: str | None = None,
        highlight: Iterable[int] = (),
        leaves_marked: bool = True,
        **_: Any,
    ) -> None:
        self.kernel = None if isinstance(what, Draft) else what.kernel
        self.draft = draft = what if isinstance(what, Draft) else what.kernel.draft
        self.leaves = draft.leaves if self.kernel is None and leaves_marked else ()
        self.captions = [title] if title else []
        self.template: Mapping[str, int] | None = None
        if binding is not None and not isinstance(what, Draft):
            place, self.template = what.template(binding)
            self.captions += _captions(what, place, self.template)
        self.highlight = frozenset(highlight)
        self.words: dict[str, str] = {}  # Descriptions of the parts, by id in the SVG.
        self.titles: dict[str, str] = {}  # Titles of nodes and edges, by their names in Graphviz.
        self.lines: list[str] = []
        self.weights = 0  # number of weights so far, in the operator's order
        self._tensor(0)
        for number in range(1, len(draft.shapes)):
            self._primitive(number)
            self._tensor(number)

    def source(self) -> str:
        return digraph(
            "microdag",
            self.lines,
            apart="nodesep=0.35, ranksep=0.4",
            points=_CAPTION_POINTS,
            label=plate(self.captions, looks.WHITE, _CAPTION_POINTS) if self.captions else "",
        )

    def _tensor(self, number: int) -> None:
        name, shape = f"t{number}", self.draft.shapes[number]
        is_output = self.kernel is not None and number == len(self.draft.nodes)
        kinds = [*(["input"] if number == 0 else []), *(["output"] if is_output else [])]
        fill, border = (looks.INPUT.fill, looks.INPUT.border) if number == 0 else _TENSOR
        if is_output and number:
            fill, border = looks.OUTPUT.fill, looks.OUTPUT.border
        if number in self.leaves:
            kinds.append("leaf")
            fill, border = _LEAF
        lines = [" ".join([name, ", ".join(kinds)]).strip(), self._list(shape.sizes)]
        if is_output and shape is not IMAGE_SHAPE:
            lines.append(f"viewed as {IMAGE_SHAPE}")
        chosen = number in self.highlight
        if chosen:
            border = looks.HIGHLIGHT
        width = 3 if chosen else 2 if kinds else 1
        css = " ".join(["tensor", *kinds, *(["highlight"] if chosen else [])])
        self.lines.append(
            f'{name} [id="{name}", class="{css}", label={dot_text(*lines)}, shape=box, style="rounded,filled", '
            f'fillcolor="{fill}", color="{border}", penwidth={width}]'
        )
        source = f", {self.draft.nodes[number - 1]}" if number else ""
        role = f", {' and '.join(kinds)}" if kinds else ""
        self.words[name] = self.titles[name] = f"tensor t{number}{role}{source}, of shape {self._list(shape.sizes)}"

    def _primitive(self, number: int) -> None:
        node = self.draft.nodes[number - 1]
        name = f"p{number}"
        title = f"primitive {node}, gives t{number}"
        if node.primitive.name in BROADCASTS:
            fill, border = _FAMILIES["blending"]
            label = f"{_SIGNS.get(node.primitive.name, '')}{node.primitive}"
            self.lines.append(
                f'{name} [id="{name}", class="primitive blending {node.primitive.name}", label={dot_text(label)}, '
                f'shape=ellipse, style=filled, fillcolor="{fill}", color="{border}", margin="0.04,0.02"]'
            )
            self.words[name] = self.titles[name] = title
            for side, tensor in zip(SIDES, node.inputs, strict=True):
                words = f"{side} of {node.primitive}: t{tensor}"
                self._edge(f"{name}-{side.lower()}", f"t{tensor}", name, words, plate([side], fill, EDGE_POINTS))
            self._edge(f"{name}-out", name, f"t{number}", f"result of {node}: t{number}")
            return
        family = PRIMITIVES[node.primitive.name].family
        (tensor,) = node.inputs
        more = self._weight(number)
        fill = looks.WEIGHT.fill if more else _FAMILIES[family][0]
        self._edge(
            name,
            f"t{tensor}",
            f"t{number}",
            "; ".join([title, *more]),
            plate([str(node.primitive), *more], fill, EDGE_POINTS),
            f"primitive {family} {node.primitive.name}",
        )

    def _weight(self, number: int) -> list[str]:
        """Describe the weight of an FC, and its normalisation with weights; return nothing for other primitives."""
        node = self.draft.nodes[number - 1]
        sizes = weight_of(node.primitive, self.draft.shapes[node.inputs[0]])
        if sizes is None:
            return []
        self.weights += 1
        lines = [f"W{self.weights} {self._list(sizes)}"]
        if self.kernel is not None and number in self.kernel.normalised:
            relu = ", ReLU" if self.kernel.normalised[number] else ""
            lines.append(f"batch normalisation W{self.weights + 1}, W{self.weights + 2}{relu}")
            self.weights += 2
        return lines

    def _edge(self, name: str, upper: str, lower: str, said: str, label: str = "", css: str = "line") -> None:
        text = f", label={label}" if label else ""
        self.lines.append(f'{upper} -> {lower} [id="{name}", class="{css}"{text}]')
        self.words[name] = said
        # Graphviz names edges by their ends, so the two edges of a tensor that is blended with itself share a title.
        before = self.titles.get(f"{upper}->{lower}")
        self.titles[f"{upper}->{lower}"] = f"{before}; {said}" if before else said

    def _list(self, sizes: Iterable[Size]) -> str:
        """Return sizes as symbols, and with a binding as numbers too."""
        sizes = tuple(sizes)
        text = f"[{', '.join(size.pretty for size in sizes)}]"
        if self.template is None or not sizes:
            return text
        return f"{text} = {[size.at(self.template) for size in sizes]}"
