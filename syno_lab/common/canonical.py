"""The canonical form of a labelled acyclic graph: two graphs have equal forms exactly when they are isomorphic.

The search refines colours of vertices. If colours tie, the search tries every order that no known symmetry repeats. The
search keeps the least form (McKay, Practical graph isomorphism, 1981).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

_BOTH = 2  # in `uses`, replaces the index of an input if the inputs have no order

Colours = list[int]
Form = list[tuple[object, ...]]


class Vertex(NamedTuple):
    """A vertex of a graph.

    Attributes:
        label: the vertex's label, which names no vertex; vertices are sorted by label first.
        inputs: the numbers of the vertices that this vertex uses.
        symmetric: whether the order of the inputs does not matter.
    """

    label: tuple[int, str]
    inputs: tuple[int, ...]
    symmetric: bool = False


def least_form(vertices: Sequence[Vertex]) -> Form:
    """Return the canonical form: for each vertex in canonical order its label and its inputs."""
    search = _Search(vertices)
    search.walk(_ranked([vertex.label for vertex in vertices]), [])
    assert search.form is not None
    return search.form


class _Search:
    """The search for the least form of a graph, over all orders that the refined colours allow."""

    def __init__(self, vertices: Sequence[Vertex]) -> None:
        self.vertices = vertices
        #: For each vertex: the number of each user, and the index of the vertex among the user's inputs.
        self.uses: list[list[tuple[int, int]]] = [[] for _ in vertices]
        for number, vertex in enumerate(vertices):
            for side, used in enumerate(vertex.inputs):
                self.uses[used].append((number, _BOTH if vertex.symmetric else side))
        self.form: Form | None = None
        #: The first complete order: its form, its vertices, and the vertices that were chosen to break ties.
        self.first: tuple[Form, list[int], list[int]] | None = None
        self.symmetries: list[dict[int, int]] = []

    def walk(self, colours: Colours, chosen: list[int]) -> int | None:
        """Visit all orders that begin with ``chosen``; return the number of choices to go back to, or None."""
        colours = self._refined(colours)
        tied = [colour for colour in set(colours) if colours.count(colour) > 1]
        if not tied:
            return self._reached(colours, chosen)
        done: set[int] = set()
        for vertex in [number for number, colour in enumerate(colours) if colour == min(tied)]:
            if vertex in self._images(done, chosen):
                continue
            apart = [2 * colour + (number != vertex) for number, colour in enumerate(colours)]
            back = self.walk(apart, [*chosen, vertex])
            if back is not None and back < len(chosen):
                return back
            done.add(vertex)
        return None

    def _refined(self, colours: Colours) -> Colours:
        """Split colours by the colours of inputs and users until no colour splits."""
        colours = _ranked(colours)
        while max(colours) < len(colours) - 1:
            signs = []
            for own, vertex, used in zip(colours, self.vertices, self.uses, strict=True):
                inputs = [colours[number] for number in vertex.inputs]
                if vertex.symmetric:
                    inputs.sort()
                uses = sorted([(colours[number], side) for number, side in used])
                signs.append((own, tuple(inputs), tuple(uses)))
            refined = _ranked(signs)
            if max(refined) == max(colours):
                break
            colours = refined
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
            # The symmetry maps all orders after the last common choice to orders that the search has visited.
            self.symmetries.append(dict(zip(first_order, order, strict=True)))
            return next(place for place, (a, b) in enumerate(zip(chosen, first_chosen, strict=False)) if a != b)
        assert self.form is not None
        self.form = min(self.form, form, key=repr)
        return None

    def _images(self, done: set[int], chosen: list[int]) -> set[int]:
        """Return the images of the finished vertices under the symmetries that fix all chosen vertices."""
        stabilizers = [symmetry for symmetry in self.symmetries if all(symmetry[number] == number for number in chosen)]
        images, waiting = set(done), list(done)
        while waiting:
            number = waiting.pop()
            for symmetry in stabilizers:
                if symmetry[number] not in images:
                    images.add(symmetry[number])
                    waiting.append(symmetry[number])
        return images


def _ranked(signs: Sequence[Any]) -> Colours:
    """Replace each key by its rank among the distinct sorted keys, from 0."""
    rank = {sign: number for number, sign in enumerate(sorted(set(signs)))}
    return [rank[sign] for sign in signs]
