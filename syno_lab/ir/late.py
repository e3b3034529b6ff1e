"""Methods that lower rooms give to a value: bound in :mod:`syno_lab.api`, which is loaded when one is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any


class LateMethods:
    """A value whose methods are there however its own module came to be imported.

    ``syno_lab`` loads its ``api`` with the first public name that is asked of it; ``from syno_lab.operators import
    conv2d`` asks for none.
    """

    if not TYPE_CHECKING:  # it would hide from mypy which attributes there are

        def __getattr__(self, name: str) -> Any:
            # Only for names that are not there. Dunder names are asked for by copy, pickle and the like.
            if not name.startswith("__"):
                import_module("syno_lab.api")
            return object.__getattribute__(self, name)
