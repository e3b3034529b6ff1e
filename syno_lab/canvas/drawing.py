"""Micro-DAGs as pictures: the input on top, the output at the bottom (Canvas, Figures 1, 6, 8 and 9).

Tensors are rounded boxes with their shape. A primitive is an edge with its name; one that blends is a small node with
an edge for each side, ``LHS`` and ``RHS``, as only the order tells ``a - b`` from ``b - a``. An FC says the shape of
its weight, ``[groups, outputs of a group, inputs of a group]``, and what normalises its result. In the SVG each part is
a group with an ``id``:

==============================  =====================================================================
``t0``                          the input
``t3``                          the tensor t3
``p3``                          the primitive that makes t3: an edge, or the node of one that blends
``p3-lhs``, ``p3-rhs``          the edges into the node of one that blends
``p3-out``                      the edge out of it
==============================  =====================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from syno_lab.canvas.kernel import Draft
from syno_lab.canvas.primitives import BROADCASTS, PRIMITIVES, weight_of
from syno_lab.canvas.shape import INPUT as IMAGE_SHAPE
from syno_lab.drawing.render import accessible_svg
from syno_lab.drawing.style import EDGE_POINTS, HIGHLIGHT, INPUT, LINE, OUTPUT, WEIGHT, digraph, dot_text, plate
from syno_lab.inputs import count_of, plural

if TYPE_CHECKING:
    from syno_lab.canvas.kernel import Kernel
    from syno_lab.canvas.places import AtPlaces, Place
    from syno_lab.canvas.shape import Size

#: Fill and border of tensors between input and output, and of leaves, which also say that they are one.
_TENSOR = ("#ffffff", LINE)
_LEAF = ("#d3f2d9", "#1d7a3a")
#: Fill and border behind the names of primitives by their family; an FC has those of its weight.
_FAMILIES = {
    "rearrangement": ("#e6dcff", "#6b3fc2"),
    "arithmetic": ("#ffe0bd", "#a85a00"),
    "blending": ("#c9f0f2", "#0b7480"),
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
    """The micro-DAG of a draft or an operator as DOT text, the same text for equal ones.

    Args:
        what: of which.
        binding: of an operator: sizes are shown as numbers too, and how the template runs there.
        title: a line above the drawing; any text, it is escaped.
        highlight: numbers of tensors to be drawn with a thick border.
        leaves_marked: whether the tensors of a draft that no node uses have a colour of their own, and say so.
        _: options of other systems' pictures, which change nothing here.
    """
    return _Drawing(what, binding, title, highlight, leaves_marked).source()


def svg(what: Draft | AtPlaces, binding: Mapping[str, int] | None = None, **options: Any) -> str:
    """:func:`dot` as SVG with a text alternative. Raises SynoError where the layout program is not installed."""
    drawing = _Drawing(what, binding, **options)
    said = ". ".join([*drawing.captions, describe(what if isinstance(what, Draft) else what.kernel)])
    return accessible_svg(drawing.source(), said, drawing.titles)


def describe(what: Draft | Kernel) -> str:
    """The text alternative of the picture of a draft or a kernel."""
    draft = what if isinstance(what, Draft) else what.draft
    drawn = f"{count_of(len(draft.nodes), 'primitive')}, top to bottom: {'; '.join(draft.lines)}"
    if isinstance(what, Draft):
        leaves = ", ".join(f"t{number}" for number in draft.leaves)
        said = plural(len(draft.leaves), "leaf", "leaves")
        return f"Draft of a Canvas kernel from input {IMAGE_SHAPE}, {drawn}; {said}: {leaves}."
    for number, has_relu in sorted(what.normalised.items()):
        drawn += f"; t{number} is normalised over the batch{', then goes through ReLU' if has_relu else ''}"
    output = f"the output is t{len(draft.nodes)}"
    return f"Canvas kernel from input {IMAGE_SHAPE} to output {IMAGE_SHAPE}, {drawn}; {output}."


def words(what: Draft | AtPlaces) -> dict[str, str]:
    """What the picture of a draft or an operator says of each part, by its ``id``, inputs before results."""
    return _Drawing(what).words


def sign_of(name: str) -> str:
    """The sign of a primitive that blends, or nothing."""
    return _SIGNS.get(name, "").strip()


def colour_of(name: str) -> str:
    """The colour that stands for a primitive's name."""
    return WEIGHT.border if name == "fc" else _FAMILIES[PRIMITIVES[name].family][1]


def lights(draft: Draft, said: Iterable[str]) -> dict[str, list[str]]:
    """The parts that are lit with each part of a draft's picture, by their ids, of which ``said`` are all.

    With a tensor it is all that it is computed from, with a primitive and each of its edges its tensors; and itself.
    """
    found = {"t0": ["t0"]}
    ids = list(said)
    for number, node in enumerate(draft.nodes, start=1):
        own = [name for name in ids if name == f"p{number}" or name.startswith(f"p{number}-")]
        inputs = [f"t{tensor}" for tensor in node.inputs]
        below = dict.fromkeys(one for tensor in inputs for one in found[tensor])
        for name in own:
            found[name] = [*dict.fromkeys(inputs), *own, f"t{number}"]
        found[f"t{number}"] = [*below, *own, f"t{number}"]
    return found


def _captions(operator: AtPlaces, place: Place, template: Mapping[str, int]) -> list[str]:
    """How the template runs at a place, and the numbers that were chosen for it; the boxes are of one part."""
    found = [str(place)]
    if operator.inner:
        found.append(", ".join(f"{name} = {template[name]}" for name in operator.inner))
    if place.stride > 1:
        found.append(f"behind an average pooling of {place.stride} x {place.stride}")
    if place.c_in > place.c_out:
        found.append(f"{place.parts} parts on blocks of channels, averaged")
    elif place.c_in < place.c_out:
        found.append(f"{place.parts} parts on the same input, concatenated")
    return found


class _Drawing:
    """One drawing, of symbols, or at the place of a binding: the lines of DOT, and what is said of each part."""

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
        self.words: dict[str, str] = {}  # of each part, by its id in the SVG
        self.titles: dict[str, str] = {}  # of nodes and edges, by the names that Graphviz gives them
        self.lines: list[str] = []
        self.weights = 0  # of FCs so far, numbered as the operator's weights are
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
            label=plate(self.captions, "#ffffff", _CAPTION_POINTS) if self.captions else "",
        )

    def _tensor(self, number: int) -> None:
        name, shape = f"t{number}", self.draft.shapes[number]
        is_output = self.kernel is not None and number == len(self.draft.nodes)
        kinds = [*(["input"] if number == 0 else []), *(["output"] if is_output else [])]
        fill, border = (INPUT.fill, INPUT.border) if number == 0 else _TENSOR
        if is_output and number:
            fill, border = OUTPUT.fill, OUTPUT.border
        if number in self.leaves:
            kinds.append("leaf")
            fill, border = _LEAF
        lines = [" ".join([name, ", ".join(kinds)]).strip(), self._list(shape.sizes)]
        if is_output and shape is not IMAGE_SHAPE:
            lines.append(f"viewed as {IMAGE_SHAPE}")
        chosen = number in self.highlight
        if chosen:
            border = HIGHLIGHT
        width = 3 if chosen else 2 if kinds else 1
        css = " ".join(["tensor", *kinds, *(["highlight"] if chosen else [])])
        self.lines.append(
            f'{name} [id="{name}", class="{css}", label={dot_text(*lines)}, shape=box, style="rounded,filled", '
            f'fillcolor="{fill}", color="{border}", penwidth={width}]'
        )
        made = f", {self.draft.nodes[number - 1]}" if number else ""
        which = f", {' and '.join(kinds)}" if kinds else ""
        self.words[name] = self.titles[name] = f"tensor t{number}{which}{made}, of shape {self._list(shape.sizes)}"

    def _primitive(self, number: int) -> None:
        node = self.draft.nodes[number - 1]
        name = f"p{number}"
        said = f"primitive {node}, gives t{number}"
        if node.primitive.name in BROADCASTS:
            fill, border = _FAMILIES["blending"]
            label = f"{_SIGNS.get(node.primitive.name, '')}{node.primitive}"
            self.lines.append(
                f'{name} [id="{name}", class="primitive blending {node.primitive.name}", label={dot_text(label)}, '
                f'shape=ellipse, style=filled, fillcolor="{fill}", color="{border}", margin="0.04,0.02"]'
            )
            self.words[name] = self.titles[name] = said
            for side, tensor in zip(SIDES, node.inputs, strict=True):
                words = f"{side} of {node.primitive}: t{tensor}"
                self._edge(f"{name}-{side.lower()}", f"t{tensor}", name, words, plate([side], fill, EDGE_POINTS))
            self._edge(f"{name}-out", name, f"t{number}", f"result of {node}: t{number}")
            return
        family = PRIMITIVES[node.primitive.name].family
        (tensor,) = node.inputs
        more = self._weight(number)
        fill = WEIGHT.fill if more else _FAMILIES[family][0]
        self._edge(
            name,
            f"t{tensor}",
            f"t{number}",
            "; ".join([said, *more]),
            plate([str(node.primitive), *more], fill, EDGE_POINTS),
            f"primitive {family} {node.primitive.name}",
        )

    def _weight(self, number: int) -> list[str]:
        """The weight of an FC, and the normalisation behind it with its own; nothing for another primitive."""
        node = self.draft.nodes[number - 1]
        sizes = weight_of(node.primitive, self.draft.shapes[node.inputs[0]])
        if sizes is None:
            return []
        self.weights += 1
        found = [f"W{self.weights} {self._list(sizes)}"]
        if self.kernel is not None and number in self.kernel.normalised:
            relu = ", ReLU" if self.kernel.normalised[number] else ""
            found.append(f"batch normalisation W{self.weights + 1}, W{self.weights + 2}{relu}")
            self.weights += 2
        return found

    def _edge(self, name: str, upper: str, lower: str, said: str, label: str = "", css: str = "line") -> None:
        text = f", label={label}" if label else ""
        self.lines.append(f'{upper} -> {lower} [id="{name}", class="{css}"{text}]')
        self.words[name] = said
        # Graphviz names edges by their ends, so both sides of a tensor that is blended with itself have one name.
        before = self.titles.get(f"{upper}->{lower}")
        self.titles[f"{upper}->{lower}"] = f"{before}; {said}" if before else said

    def _list(self, sizes: Iterable[Size]) -> str:
        """Sizes as symbols, and with a binding as numbers too."""
        sizes = tuple(sizes)
        text = f"[{', '.join(size.pretty for size in sizes)}]"
        if self.template is None or not sizes:
            return text
        return f"{text} = {[size.at(self.template) for size in sizes]}"
