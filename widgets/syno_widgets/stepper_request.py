"""The messages of a stepper's page."""

from __future__ import annotations

from typing import Literal

import msgspec

from syno_lab.errors import SynoError
from syno_lab.systems import MAX_TEXT

_MAX_TICKS = 256
_CHOICES = ("step", "contract", "preview", "why", "instead", "whole", "aim")  # which are made from lists


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """A message from the browser.

    Attributes:
        kind: what to do.
        request: the browser's number for it, given back in the trait ``answered``.
        revision: the ``revision`` of the lists that the user saw; a choice from older lists is not carried out.
        index: for ``step``, ``why`` and ``instead`` the item's index, for ``go`` and
            ``compare`` the place.
        name: for ``load`` and ``replay`` the operator, for ``open`` and ``comment`` the text, for ``whole`` the
            primitive, for ``contract`` the chosen one of several ticked steps, for ``aim`` the choice of what is
            wanted.
        share: for ``contract`` and ``preview`` the names of what is ticked in the first column: the
            shared coordinates, say.
        give: the same for the second column.
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
        """Whether it can be carried out, where the lists may have changed and have so many steps.

        Raises:
            SynoError: if not.
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
