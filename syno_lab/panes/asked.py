"""The request to an operator view: an operator, its sizes, and a few choices."""

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
    """An operator and the choices of the view; plain values, so that equal requests have equal answers.

    A pane says which of these it depends on (:attr:`syno_lab.protocol.Pane.depends`) and reads no other.

    Attributes:
        operator: the operator, of any system.
        name: the operator's name; any text.
        binding: the sizes; None takes the system's :meth:`~syno_lab.protocol.System.example_binding`.
        element: the output element whose receptive field is shown: ``center``, or an index for each axis with commas
            between them, ``:`` for all of an axis.
        photo: the image that it is applied to: ``china`` and ``flower`` come with scikit-learn, ``own`` is ``image``.
        weights: ``random`` normal ones, or ``mean``: all equal, so that each output is a mean of its inputs.
        should_stop: long computations call it often; once it returns True they end without an answer. Not compared.
        image: of shape [rows, columns] or [rows, columns, 3], from 0 to 255, for ``own``; compared by identity.
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
        """The complete binding. Raises SpecError when a variable is missing, or a size is no positive integer."""
        if self.binding is None:
            return system_of(self.operator).example_binding(self.operator)
        return self.operator.complete_binding(dict(self.binding))

    def file_name(self, what: str) -> str:
        """A name for a file, of letters, digits, ``-`` and ``_`` only, made from any name of an operator."""
        kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in self.name[:MOST_NAME])
        return f"{kept.strip('-') or 'operator'}-{what}"


def read_element(text: str) -> Any:
    """``center``, or the index that a text such as ``0, 3, :, 5`` says.

    Raises SpecError for any other text, and for what is none.
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
    """A user's image as [rows, columns, 3] in 0..1. Raises SpecError where it is no array of that kind."""
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
    found = array[:, :, :3].astype(np.float64)
    if not np.isfinite(found).all() or found.min() < 0 or found.max() > 255:
        raise SpecError("image: expected numbers from 0 to 255, found some outside")
    return found / 255.0
