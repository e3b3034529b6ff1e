"""The messages of a stepper's page."""

from __future__ import annotations

from typing import Literal

import msgspec


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """A message from the browser.

    Attributes:
        kind: what to do.
        request: the browser's number for it, given back in the trait ``answered``.
        revision: the ``revision`` of the lists that the user saw; a choice from older lists is not carried out.
        index: for ``step`` and ``why`` the item's index, for ``go`` and ``compare`` the place.
        name: for ``load`` and ``replay`` the operator, for ``open`` the text, for ``whole`` the primitive, for
            ``contract`` the chosen one of several ticked steps, for ``aim`` the choice of what is wanted.
        share: for ``contract`` and ``preview`` the names of what is ticked in the first column: the
            shared coordinates, say.
        give: the same for the second column.
    """

    kind: Literal[
        "step",
        "contract",
        "preview",
        "why",
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
