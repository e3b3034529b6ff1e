"""Wishes: what every operator of a space must read and mix, as least entries of the mixing property (αNAS, section 3.1).

``"C_in>=m, H>=m"`` wishes that some output axis is paired with the input axis C_in at least many-to-one, and some with
H; ``"H->W>=o"`` names the output axis too. The letters are ordered: x (not paired) < o (one-to-one) < m (many-to-one)
< a (all-to-one).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from syno_lab.errors import SpecError
from syno_lab.inputs import quoted

if TYPE_CHECKING:
    from syno_lab.ir.size import Size, Symbols

Letter = Literal["x", "o", "m", "a"]
#: How expressive each letter is.
RANK: dict[Letter, int] = {letter: rank for rank, letter in enumerate(get_args(Letter))}
_WISH = re.compile(r"\s*(?P<axis>[^<>=≥]+?)\s*(?:->\s*(?P<output>[^<>=≥]+?)\s*)?(?:>=|≥)\s*(?P<least>\w+)\s*")


@dataclass(frozen=True)
class Wish:
    """At least ``least`` from the input axis ``axis`` to the output axis ``output`` (None: to any)."""

    axis: int
    least: Letter
    output: int | None = None

    def text(self, input_shape: Sequence[Size], output_shape: Sequence[Size]) -> str:
        """The wish as :func:`parse_wants` reads it."""
        output = "" if self.output is None else f"->{output_shape[self.output]}"
        return f"{input_shape[self.axis]}{output}>={self.least}"


def parse_wants(
    text: str | None, input_shape: Sequence[Size], output_shape: Sequence[Size], symbols: Symbols
) -> tuple[Wish, ...]:
    """Read wishes such as ``"C_in>=m, H->W>=o"``; ``None`` and an empty text are no wish.

    Raises:
        SpecError: for a text that is no wish, an axis that is not there, and an unknown letter.
    """
    if text is not None and not isinstance(text, str):
        raise SpecError(f"wants: expected a text such as 'C_in>=m, H>=m', found {quoted(text)}")
    found = []
    for part in (text or "").split(","):
        if not part.strip():
            continue
        match = _WISH.fullmatch(part)
        if match is None:
            raise SpecError(f"wants: expected axis>=letter, as in 'C_in>=m' or 'H->W>=o', found {quoted(part.strip())}")
        least = match["least"]
        if least not in ("o", "m", "a"):
            raise SpecError(f"wants {quoted(part.strip())}: expected o, m or a after '>=', found {quoted(least)}")
        axis = _axis(match["axis"], "input", input_shape, symbols)
        output = None if match["output"] is None else _axis(match["output"], "output", output_shape, symbols)
        found.append(Wish(axis, least, output))
    return tuple(dict.fromkeys(found))


def wants_text(wants: Sequence[Wish], input_shape: Sequence[Size], output_shape: Sequence[Size]) -> str:
    """The wishes as one text that :func:`parse_wants` reads."""
    return ", ".join(wish.text(input_shape, output_shape) for wish in wants)


def _axis(name: str, side: str, shape: Sequence[Size], symbols: Symbols) -> int:
    try:
        size = symbols.size(name)
    except SpecError:
        size = None
    if size not in shape:
        raise SpecError(
            f"wants: no {side} axis has the size {quoted(name)}; the {side} is [{', '.join(map(str, shape))}]"
        )
    return list(shape).index(size)
