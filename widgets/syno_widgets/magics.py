"""The magics of ``%load_ext syno_lab``.

====================  ======================================================================
``%syno``             lists the known operators
``%syno conv2d``      the stepper on a known operator, at its last step
``%syno_card MERGE``  the card of a primitive, with its picture
====================  ======================================================================
"""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class
from IPython.display import SVG, display

from syno_lab.errors import SynoError
from syno_lab.ir.primitives import PRIMITIVES
from syno_lab.operators import KNOWN
from syno_widgets.stepper import Stepper


@magics_class
class SynoMagics(Magics):
    """``%syno`` and ``%syno_card``."""

    @line_magic
    def syno(self, line: str) -> Stepper | None:
        """``%syno [operator]``: the stepper on a known operator; without a name, the list of them."""
        name = line.strip()
        if not name:
            print("known operators: " + ", ".join(KNOWN))  # noqa: T201 a magic talks to the reader of a cell
            return None
        if name not in KNOWN:
            raise UsageError(f"unknown operator {name!r}; known are {', '.join(KNOWN)}")
        return Stepper(KNOWN[name]())

    @line_magic
    def syno_card(self, line: str) -> None:
        """``%syno_card PRIMITIVE``: its card and its picture."""
        from syno_lab.codegen.drawing import card_svg

        name = line.strip().upper()
        try:
            picture = card_svg(name)
        except SynoError as error:
            raise UsageError(str(error)) from None
        print(PRIMITIVES[name].card)  # noqa: T201
        display(SVG(data=picture))


def load_ipython_extension(ipython: Any) -> None:
    """Register the magics."""
    ipython.register_magics(SynoMagics)
