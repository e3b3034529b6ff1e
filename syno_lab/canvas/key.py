"""The canonical key of a micro-DAG: equal if and only if two of them are isomorphic (Canvas, section 6.1).

Two drafts are isomorphic when one becomes the other by another order of nodes, other numbers of dynamic variables, and
an exchange of sides where a broadcast commutes and both have one shape. The paper's hash is approximate: it takes a - b
and b - a for the same. This key is a hash of a canonical form.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from syno_lab.canvas.primitives import BROADCASTS, COMMUTATIVE, parts_of
from syno_lab.canvas.sizes import Size, parse, static_part, variables_of
from syno_lab.common.canonical import Vertex, least_form

if TYPE_CHECKING:
    from syno_lab.canvas.kernel import Draft

_DIGEST_BYTES = 16


def key_of(draft: Draft, normalise: bool = False) -> str:
    """32 hexadecimal digits, a hash of the canonical form; another for a kernel that normalises."""
    form = f"{least_form(_vertices(draft))!r}{' normalised' if normalise else ''}"
    return blake2b(form.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _without_number(size: Size) -> str:
    """The size with its dynamic variable, whichever it is, as x."""
    return f"{static_part(size)}{'*x' if variables_of(size) else ''}"


def _vertices(draft: Draft) -> list[Vertex]:
    shapes = draft.shapes
    places = {number: len(shapes) + place for place, number in enumerate(draft.variables)}
    vertices = [Vertex((0, "input"), ())]
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
        vertices.append(Vertex((depth, f"{name} {said}"), inputs, symmetric))
    vertices += [Vertex((-1, "variable"), ()) for _ in places]
    return vertices
