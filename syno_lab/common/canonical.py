"""The canonical form of a labelled acyclic graph: equal if and only if two graphs are isomorphic.

Colours are refined, each tie is broken in every way that no symmetry found so far makes superfluous, and the least form
is kept (McKay, Practical graph isomorphism, 1981).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

_BOTH = 2  # the side of an input of a vertex whose inputs have no order

Colours = list[int]
Form = list[tuple[object, ...]]


class Vertex(NamedTuple):
    """A vertex of a graph.

    Attributes:
        label: what it is, without numbers of vertices; vertices are put in the order of their labels first.
        inputs: the vertices that it is made of.
        symmetric: whether the inputs have no order.
    """

    label: tuple[int, str]
    inputs: tuple[int, ...]
    symmetric: bool = False


def least_form(vertices: Sequence[Vertex]) -> Form:
    """The canonical form: for each vertex in canonical order its label and its inputs."""
    return _Search(vertices).least()


class _Search:
    """The least form of a graph over all orders that its refined colours allow."""

    def __init__(self, vertices: Sequence[Vertex]) -> None:
        self.vertices = vertices
        #: By which vertices each is used, and on which side.
        self.uses: list[list[tuple[int, int]]] = [[] for _ in vertices]
        for number, vertex in enumerate(vertices):
            for side, used in enumerate(vertex.inputs):
                self.uses[used].append((number, _BOTH if vertex.symmetric else side))
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
            for own, vertex, used in zip(colours, self.vertices, self.uses, strict=True):
                inputs = [colours[number] for number in vertex.inputs]
                if vertex.symmetric:
                    inputs.sort()
                uses = sorted([(colours[number], side) for number, side in used])
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
