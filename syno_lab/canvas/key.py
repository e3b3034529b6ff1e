"""The canonical key of a micro-DAG: equal if and only if two of them are isomorphic (Canvas, section 6.1).

Two drafts are isomorphic when one becomes the other by another order of nodes, other numbers of dynamic variables, and
an exchange of sides where a broadcast commutes and both have one shape. The paper's hash is approximate: it takes a - b
and b - a for the same. This key is a canonical form: colours are refined, each tie is broken in every way that no
symmetry found so far makes superfluous, and the least form is kept (McKay, Practical graph isomorphism, 1981).
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from syno_lab.canvas.primitives import BROADCASTS, COMMUTATIVE, parts_of
from syno_lab.canvas.sizes import Size, parse, static_part, variables_of

if TYPE_CHECKING:
    from syno_lab.canvas.kernel import Draft

_DIGEST_BYTES = 16
_BOTH = 2  # the side of a tensor in a broadcast whose sides can be exchanged

Colours = list[int]
Form = list[tuple[object, ...]]


class _Vertex(NamedTuple):
    """A tensor or, after all tensors, a dynamic variable.

    Attributes:
        label: what it is, without numbers of tensors and variables.
        inputs: vertices that it is made of; an FC's dynamic variable is its last one.
        symmetric: whether the inputs have no order.
        uses: by which vertices it is used, and on which side.
    """

    label: tuple[int, str]
    inputs: tuple[int, ...]
    symmetric: bool
    uses: list[tuple[int, int]]


def key_of(draft: Draft, normalise: bool = False) -> str:
    """32 hexadecimal digits, a hash of the canonical form; another for a kernel that normalises."""
    form = f"{_Search(_vertices(draft)).least()!r}{' normalised' if normalise else ''}"
    return blake2b(form.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _without_number(size: Size) -> str:
    """The size with its dynamic variable, whichever it is, as x."""
    return f"{static_part(size)}{'*x' if variables_of(size) else ''}"


def _vertices(draft: Draft) -> list[_Vertex]:
    shapes = draft.shapes
    places = {number: len(shapes) + place for place, number in enumerate(draft.variables)}
    vertices = [_Vertex((0, "input"), (), False, [])]
    for node in draft.nodes:
        name, parameter = node.primitive
        inputs, symmetric, said = node.inputs, False, parameter
        if name == "fc":
            size = parse(parameter)
            said = _without_number(size)
            inputs = (*inputs, *(places[number] for number, _ in variables_of(size)))
        elif name in BROADCASTS:
            lhs, rhs = (shapes[number] for number in inputs)
            parts = parts_of(parameter, lhs, rhs)
            # The shapes tell the rest: with as many elements on both sides nothing repeats, whatever the slots are.
            said = "" if parts.repeats.is_one else _without_number(parts.prefix)
            symmetric = name in COMMUTATIVE and lhs is rhs
        depth = 1 + max(vertices[number].label[0] for number in node.inputs)
        vertices.append(_Vertex((depth, f"{name} {said}"), inputs, symmetric, []))
    vertices += [_Vertex((-1, "variable"), (), False, []) for _ in places]
    for number, vertex in enumerate(vertices):
        for side, used in enumerate(vertex.inputs):
            vertices[used].uses.append((number, _BOTH if vertex.symmetric else side))
    return vertices


class _Search:
    """The least form of a graph over all orders that its refined colours allow."""

    def __init__(self, vertices: list[_Vertex]) -> None:
        self.vertices = vertices
        self.form: Form | None = None
        #: The first order that was reached: its form, its vertices, and the vertices chosen on the way.
        self.first: tuple[Form, list[int], list[int]] | None = None
        self.symmetries: list[dict[int, int]] = []

    def least(self) -> Form:
        """The canonical form: for each vertex in canonical order its label and its inputs."""
        self._walk(_ranked([vertex.label for vertex in self.vertices]), [])
        assert self.form is not None
        return self.form

    def _walk(self, colours: Colours, chosen: list[int]) -> int | None:
        """Visit all orders under these choices; a number says to go back to so many choices."""
        colours = self._refined(colours)
        tied = [colour for colour in set(colours) if colours.count(colour) > 1]
        if not tied:
            return self._reached(colours, chosen)
        done: set[int] = set()
        for vertex in [number for number, colour in enumerate(colours) if colour == min(tied)]:
            if vertex in self._images(done, chosen):
                continue
            apart = [2 * colour + (number != vertex) for number, colour in enumerate(colours)]
            back = self._walk(apart, [*chosen, vertex])
            if back is not None and back < len(chosen):
                return back
            done.add(vertex)
        return None

    def _refined(self, colours: Colours) -> Colours:
        """Colours by their own, their inputs' and their users' colours, until no colour splits."""
        colours = _ranked(colours)
        while max(colours) < len(colours) - 1:
            signs = []
            for own, vertex in zip(colours, self.vertices, strict=True):
                inputs = [colours[number] for number in vertex.inputs]
                if vertex.symmetric:
                    inputs.sort()
                uses = sorted([(colours[number], side) for number, side in vertex.uses])
                signs.append((own, tuple(inputs), tuple(uses)))
            found = _ranked(signs)
            if max(found) == max(colours):
                break
            colours = found
        return colours

    def _reached(self, colours: Colours, chosen: list[int]) -> int | None:
        order = sorted(range(len(colours)), key=colours.__getitem__)
        form: Form = []
        for number in order:
            vertex = self.vertices[number]
            inputs = [colours[used] for used in vertex.inputs]
            form.append((*vertex.label, *(sorted(inputs) if vertex.symmetric else inputs)))
        if self.first is None:
            self.first, self.form = (form, order, chosen), form
            return None
        first_form, first_order, first_chosen = self.first
        if form == first_form:
            # All below the choices that both have in common is the same up to this symmetry.
            self.symmetries.append(dict(zip(first_order, order, strict=True)))
            return next(place for place, (a, b) in enumerate(zip(chosen, first_chosen, strict=False)) if a != b)
        assert self.form is not None
        self.form = min(self.form, form, key=repr)
        return None

    def _images(self, done: set[int], chosen: list[int]) -> set[int]:
        """The vertices to which the symmetries that keep all choices carry those that are done."""
        keeping = [symmetry for symmetry in self.symmetries if all(symmetry[number] == number for number in chosen)]
        found, waiting = set(done), list(done)
        while waiting:
            number = waiting.pop()
            for symmetry in keeping:
                if symmetry[number] not in found:
                    found.add(symmetry[number])
                    waiting.append(symmetry[number])
        return found


def _ranked(signs: Sequence[Any]) -> Colours:
    """Equal signs get equal numbers, in their order, from 0 up."""
    rank = {sign: number for number, sign in enumerate(sorted(set(signs)))}
    return [rank[sign] for sign in signs]
