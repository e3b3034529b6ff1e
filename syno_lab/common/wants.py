"""Wishes: the least entries of the mixing property (αNAS, 3.1) that every operator of a space must have.

``"C_in>=m, H>=m"`` requires two pairings of at least many-to-one: some output axis with the input axis C_in, and
some output axis with the input axis H. ``"H->W>=o"`` also names the output axis. The letters have the order x (not
paired) < o (one-to-one) < m (many-to-one) < a (all-to-one).

An axis is named by its size. ``H#2`` is the second of several input (or output) axes of size H.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from syno_lab.errors import SpecError
from syno_lab.inputs import QUOTED, integer, printable, quoted

if TYPE_CHECKING:
    from syno_lab.common.size import Size, Symbols

Letter = Literal["x", "o", "m", "a"]
#: The rank of each letter: a larger rank is more expressive.
RANK: dict[Letter, int] = {letter: rank for rank, letter in enumerate(get_args(Letter))}
_LEAST: dict[str, Letter] = {"o": "o", "m": "m", "a": "a"}
_WISH = re.compile(r"\s*(?P<axis>[^<>=≥]+?)\s*(?:->\s*(?P<output>[^<>=≥]+?)\s*)?(?:>=|≥)\s*(?P<least>\w+)\s*")


@dataclass(frozen=True)
class Wish:
    """A wish for at least ``least`` from the input axis ``axis`` to the output axis ``output`` (None: any)."""

    axis: int
    least: Letter
    output: int | None = None

    def text(self, input_shape: Sequence[object], output_shape: Sequence[object]) -> str:
        """Write the wish as :func:`parse_wants` reads it; the entries of the shapes are sizes or their texts."""
        output = "" if self.output is None else f"->{_name(self.output, output_shape)}"
        return f"{_name(self.axis, input_shape)}{output}>={self.least}"


def parse_wants(
    text: str | None, input_shape: Sequence[Size], output_shape: Sequence[Size], symbols: Symbols
) -> tuple[Wish, ...]:
    """Parse wishes such as ``"C_in>=m, H->W>=o"``; ``None`` and an empty text mean no wish.

    Raises SpecError for a text that is no wish, an axis that does not exist, or an unknown letter.
    """
    if text is not None and not isinstance(text, str):
        raise SpecError(f"wants: expected a text such as 'C_in>=m, H>=m', found {quoted(text)}")
    wishes = []
    for part in (text or "").split(","):
        if not part.strip():
            continue
        match = _WISH.fullmatch(part)
        if match is None:
            raise SpecError(f"wants: expected axis>=letter, as in 'C_in>=m' or 'H->W>=o', found {quoted(part.strip())}")
        least = _LEAST.get(match["least"])
        if least is None:
            raise SpecError(
                f"wants {quoted(part.strip())}: expected o, m or a after '>=', found {quoted(match['least'])}"
            )
        axis = _axis(match["axis"], "input", input_shape, symbols)
        output = None if match["output"] is None else _axis(match["output"], "output", output_shape, symbols)
        wishes.append(Wish(axis, least, output))
    return tuple(dict.fromkeys(wishes))


def wants_text(wants: Sequence[Wish], input_shape: Sequence[object], output_shape: Sequence[object]) -> str:
    """Join the wishes to one text that :func:`parse_wants` reads."""
    return ", ".join(wish.text(input_shape, output_shape) for wish in wants)


def _name(axis: int, shape: Sequence[object]) -> str:
    """Return the name of an axis: its size, with a number if several axes have this size."""
    alike = [other for other, size in enumerate(shape) if size == shape[axis]]
    return str(shape[axis]) if len(alike) == 1 else f"{shape[axis]}#{alike.index(axis) + 1}"


def _axis(name: str, side: str, shape: Sequence[Size], symbols: Symbols) -> int:
    text, is_numbered, number = name.partition("#")
    try:
        size = symbols.size(text.strip())
    except SpecError:
        size = None
    alike = [axis for axis, other in enumerate(shape) if other == size]
    names = printable(", ".join(_name(axis, shape) for axis in range(len(shape))), QUOTED)
    which = integer(number.strip()) if is_numbered else 1
    if not alike or which is None or not 1 <= which <= len(alike):
        raise SpecError(f"wants: expected an {side} axis of [{names}], found {quoted(name)}")
    if len(alike) > 1 and not is_numbered:
        raise SpecError(f"wants: expected one {side} axis of [{names}], found {quoted(name)}, the size of {len(alike)}")
    return alike[which - 1]
