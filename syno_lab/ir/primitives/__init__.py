"""The eight primitives of Table 1, by name, and those of the user's own; a new one is one file and one line here."""

from syno_lab.errors import PrimitiveError
from syno_lab.inputs import quoted
from syno_lab.ir.primitives.base import Card, Primitive
from syno_lab.ir.primitives.own import Index, OwnPrimitive, add_to, own_in
from syno_lab.ir.primitives.table import Expand, Merge, Reduce, Share, Shift, Split, Stride, Unfold

PRIMITIVES: dict[str, Primitive] = {
    primitive.name: primitive
    for primitive in (Split(), Merge(), Shift(), Expand(), Unfold(), Stride(), Reduce(), Share())
}


def add_primitive(name: str, index: Index) -> OwnPrimitive:
    """Add a primitive of your own to this process, as in ``add_primitive("FLIP", lambda i, n: n - 1 - i)``.

    From then on it is one step like the others: in sessions, searches, generated code, pictures and files. Adding the
    same function again does nothing.

    Args:
        name: 2 to 12 capital letters.
        index: of a coordinate and its size, by ``+ - * // %`` alone: the element of the dimension that is read,
            ``0 <= index(i, n) < n``. The first line of its docstring says what that does to the tensor.

    Raises:
        PrimitiveError: the name is taken, or the function is none from ``[0, n)`` to ``[0, n)``; one line.
    """
    return add_to(PRIMITIVES, name, index)


def remove_primitive(name: str) -> None:
    """Take a primitive of your own out of this process. Raises PrimitiveError where there is none of this name."""
    if not isinstance(PRIMITIVES.get(name), OwnPrimitive):
        known = ", ".join(own.name for own in own_primitives()) or "none"
        raise PrimitiveError(f"expected a primitive of your own, one of {known}, found {quoted(name)}")
    del PRIMITIVES[name]


def own_primitives() -> tuple[OwnPrimitive, ...]:
    """The primitives of the user's own, in the order in which they were added."""
    return tuple(own_in(PRIMITIVES))


def is_own(name: str) -> bool:
    """Whether a primitive of this name is the user's own."""
    return isinstance(PRIMITIVES.get(name), OwnPrimitive)


__all__ = [
    "PRIMITIVES",
    "Card",
    "OwnPrimitive",
    "Primitive",
    "add_primitive",
    "is_own",
    "own_primitives",
    "remove_primitive",
]
