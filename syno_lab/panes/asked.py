"""The request to an operator view: an operator, its sizes, and some choices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, get_args

import numpy as np

from syno_lab.common.reach import CENTER
from syno_lab.effort import Stop
from syno_lab.errors import SpecError
from syno_lab.inputs import quoted
from syno_lab.protocol import Operator
from syno_lab.systems import system_of

_Operator = TypeVar("_Operator", bound=Operator)
Photo = Literal["china", "flower", "own"]
Weights = Literal["random", "mean"]
PHOTOS: tuple[str, ...] = get_args(Photo)
WEIGHTS: tuple[str, ...] = get_args(Weights)
MOST_NAME = 80


@dataclass(frozen=True)
class Asked(Generic[_Operator]):
    """A request for a pane: an operator and the user's choices as plain values, which alone determine the answer.

    A pane declares the fields that it depends on (:attr:`syno_lab.protocol.Pane.depends`) and reads no other field.

    Attributes:
        operator: an operator of any system.
        name: any text as the operator's name.
        binding: the sizes; None means the system's :meth:`~syno_lab.protocol.System.example_binding`.
        element: the output element whose receptive field is shown: ``center``, or an index for each axis, separated by
            commas; ``:`` means the whole axis.
        photo: the operator's input image: ``china`` or ``flower`` of scikit-learn, or ``own`` for ``image``.
        weights: ``random`` for normal weights, or ``mean`` for equal weights, so that each output is a mean of inputs.
        should_stop: a callback that long computations call often; when it returns True, they stop. Not compared.
        image: the array for ``own`` [rows, columns] or [rows, columns, 3], from 0 to 255; compared by identity.
    """

    operator: _Operator
    name: str = "operator"
    binding: tuple[tuple[str, int], ...] | None = None
    element: str = CENTER
    photo: str = PHOTOS[0]
    weights: str = WEIGHTS[0]
    image: Any = field(default=None, compare=False)
    should_stop: Stop | None = field(default=None, compare=False, repr=False)

    def bound(self) -> dict[str, int]:
        """Return the complete binding. Raises SpecError if a variable is missing or a size is no positive integer."""
        if self.binding is None:
            return system_of(self.operator).example_binding(self.operator)
        return self.operator.complete_binding(dict(self.binding))

    def file_name(self, what: str) -> str:
        """Return a file name of letters, digits, ``-`` and ``_`` only, from any name of an operator."""
        safe_name = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in self.name[:MOST_NAME])
        return f"{safe_name.strip('-') or 'operator'}-{what}"


def read_element(text: str) -> Any:
    """Parse ``center``, or an index such as ``0, 3, :, 5``.

    Raises SpecError for any other text, and for a value that is no text.
    """
    entries = [entry.strip() for entry in text.split(",")] if isinstance(text, str) else [""]
    if entries == [CENTER]:
        return CENTER
    if not all(entry == ":" or (entry.isascii() and entry.isdecimal() and len(entry) < 10) for entry in entries):
        raise SpecError(
            f"output element: expected center, or numbers and : with commas between them, found {quoted(text)}"
        )
    return tuple(None if entry == ":" else int(entry) for entry in entries)


def read_image(image: Any) -> np.ndarray[Any, Any]:
    """Convert a user's image to [rows, columns, 3] in 0..1. Raises SpecError for an invalid array."""
    if image is None:
        raise SpecError("photo: expected an image for 'own', found none; give image=array")
    array = np.asarray(image)
    if array.ndim == 2:
        array = np.repeat(array[:, :, None], 3, axis=2)
    kinds = array.dtype.kind in "uif"
    if array.ndim != 3 or array.shape[2] not in (3, 4) or 0 in array.shape or not kinds:
        raise SpecError(
            "image: expected numbers from 0 to 255 of shape [rows, columns] or [rows, columns, 3], "
            f"found {array.dtype} of shape {list(array.shape)}"
        )
    colours = array[:, :, :3].astype(np.float64)
    if not np.isfinite(colours).all() or colours.min() < 0 or colours.max() > 255:
        raise SpecError("image: expected numbers from 0 to 255, found some outside")
    return colours / 255.0
