"""The messages of a stepper's page."""

from __future__ import annotations

from typing import Literal

import msgspec

from syno_lab.errors import SynoError
from syno_lab.systems import MAX_TEXT

_MAX_TICKS = 256
_CHOICES = ("step", "contract", "preview", "why", "instead", "whole", "aim")  # requests with an item of a list


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """A message from the browser.

    Attributes:
        kind: the action.
        request: the browser's number for the message; the trait ``answered`` returns it.
        revision: the ``revision`` of the lists that the user saw; a choice from older lists is refused.
        index: for ``step``, ``why`` and ``instead`` the item's index, for ``go`` and ``compare`` the place.
        name: for ``load`` and ``replay`` the operator, for ``open`` and ``comment`` the text, for ``whole`` the
            primitive, for ``contract`` the chosen step if the ticks fit several, for ``aim`` the choice of a wish.
        share: for ``contract`` and ``preview`` the names of the ticks in the first column, such as the shared
            coordinates.
        give: the names of the ticks in the second column.
    """

    kind: Literal[
        "step",
        "contract",
        "preview",
        "why",
        "instead",
        "comment",
        "quiz",
        "reveal",
        "aim",
        "undo",
        "undo_to_progress",
        "redo",
        "reset",
        "go",
        "compare",
        "load",
        "replay",
        "open",
        "suggest",
        "finish",
        "random",
        "list",
        "whole",
    ]
    request: int
    revision: int
    index: int = -1
    name: str = ""
    share: list[str] = []
    give: list[str] = []

    def check(self, is_old: bool, found: int) -> None:
        """Check the request; ``is_old``: whether the lists have changed; ``found``: the number of next steps.

        Raises:
            SynoError: the request cannot be carried out.
        """
        number = len(self.share) + len(self.give)
        if number > _MAX_TICKS:
            raise SynoError(f"expected at most {_MAX_TICKS} ticks, found {number}")
        if len(self.name) > MAX_TEXT:
            raise SynoError(f"expected a text of at most {MAX_TEXT} characters, found {len(self.name)}")
        if is_old and self.kind in _CHOICES:
            raise SynoError("the list has changed since that choice; choose again")
        if self.kind in ("step", "why", "instead") and not 0 <= self.index < found:
            raise SynoError(f"no step {self.index}: expected a number from 0 to {found - 1}")
