"""What the operator view is asked to show: an operator, its sizes, and a few choices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from syno_lab.codegen.nest import generic_binding
from syno_lab.codegen.receptive_field import CENTER
from syno_lab.errors import SpecError
from syno_lab.ir.operator import Operator

Photo = Literal["china", "flower", "own"]
Weights = Literal["random", "mean"]
PHOTOS: tuple[str, ...] = get_args(Photo)
WEIGHTS: tuple[str, ...] = get_args(Weights)
MOST_NAME = 80


@dataclass(frozen=True)
class Asked:
    """An operator and how to look at it; plain values, so that equal questions have equal answers.

    Attributes:
        operator: the operator.
        name: what it is called; any text.
        binding: the sizes; None takes the spec's first binding, else small generic sizes.
        element: the output element whose receptive field is shown: ``center``, or an index for each axis with commas
            between them, ``:`` for all of an axis.
        photo: the image that it is applied to: ``china`` and ``flower`` come with scikit-learn, ``own`` is ``image``.
        weights: ``random`` normal ones, or ``mean``: all equal, so that each output is a mean of what it reads.
        image: of shape [rows, columns] or [rows, columns, 3], from 0 to 255, for ``own``; compared by identity.
    """

    operator: Operator
    name: str = "operator"
    binding: tuple[tuple[str, int], ...] | None = None
    element: str = CENTER
    photo: str = PHOTOS[0]
    weights: str = WEIGHTS[0]
    image: Any = field(default=None, compare=False)

    def bound(self) -> dict[str, int]:
        """The complete binding.

        Raises:
            SpecError: when a variable is missing, or a size is no positive integer.
        """
        if self.binding is None and not self.operator.spec.bindings:
            return generic_binding(self.operator)
        return self.operator.complete_binding(None if self.binding is None else dict(self.binding))

    def file_name(self, what: str) -> str:
        """A name for a file, of letters, digits, ``-`` and ``_`` alone, whatever the operator is called."""
        kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in self.name[:MOST_NAME])
        return f"{kept.strip('-') or 'operator'}-{what}"


def read_element(text: str) -> Any:
    """``center``, or the index that a text such as ``0, 3, :, 5`` says.

    Raises:
        SpecError: for any other text.
    """
    if text.strip() == CENTER:
        return CENTER
    entries = [entry.strip() for entry in text.split(",")]
    if not all(entry == ":" or (entry.isascii() and entry.isdecimal() and len(entry) < 10) for entry in entries):
        raise SpecError(
            f"output element: expected center, or numbers and : with commas between them, found {text[:60]!r}"
        )
    return tuple(None if entry == ":" else int(entry) for entry in entries)
