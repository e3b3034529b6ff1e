"""The names of iterators and the coordinate expressions as text, for loop nests, drawings and people."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain, count
from string import ascii_lowercase
from typing import Literal

from syno_lab.codegen.walk import climb
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.state import State
from syno_lab.synthesis.expressions import name, size

Style = Literal["words", "letters"]
_BRACKETS = str.maketrans("", "", "()")
_WINDOWS = "pqtu"


class Names:
    """The names of a pGraph's iterators: ``i_H`` and ``r_k_1`` as words, ``h`` and ``p`` as letters.

    ``i_H`` is the output axis of size H, ``r_k_1`` a reduction; repeats end in ``__2``. No two names are equal. No name
    is a variable of the sizes, because the name would hide that variable in the loop nest.
    """

    def __init__(self, graph: State | Operator, style: Style = "words") -> None:
        self.style = style
        self.taken = set(graph.spec.symbols.names)
        self.found: dict[Coordinate, str] = {}
        for prefix, leaves in (("i", graph.output), ("r", graph.reductions)):
            for leaf in leaves:
                self.give(leaf, prefix)

    def give(self, coordinate: Coordinate, prefix: str) -> str:
        """Return the name of a loop's coordinate; a coordinate without a name gets a new name."""
        if coordinate not in self.found:
            tries = self._words(coordinate, prefix) if self.style == "words" else self._letters(coordinate)
            self.found[coordinate] = next(text for text in tries if text not in self.taken)
            self.taken.add(self.found[coordinate])
        return self.found[coordinate]

    def _words(self, coordinate: Coordinate, prefix: str) -> Iterable[str]:
        code = coordinate.size.code.translate(_BRACKETS).replace("//", "_by_")
        stem = f"{prefix}_" + (re.sub(r"\W+", "_", code).strip("_") or "1")
        return chain((stem,), (f"{stem}__{number}" for number in count(2)))

    def _letters(self, coordinate: Coordinate) -> Iterable[str]:
        """Yield letters as in the papers: n, o, h, w for outputs, c for C_in, p and q for windows, then others."""
        symbols = coordinate.size.symbols
        used = [v for v, p in zip(symbols.names, coordinate.size.exponents, strict=True) if p]
        primary = [v for v in used if v in symbols.primary]
        stem, _, index = (primary[0] if primary else used[0] if used else "a").partition("_")
        letter = (index[:1] if index.lower() in ("out", "o") else stem[:1]).lower()
        if not letter.isalpha():
            letter = "a"
        first = {"k": _WINDOWS, "h": "hy", "w": "wx"}.get(letter, letter)
        if coordinate.is_reduction and index.lower() in ("out", "o"):
            first = "m"  # a bottleneck
        numbered = (f"{letter}{number}" for number in count(2))
        return chain(first, "abdefjmlruvxyz", ascii_lowercase.replace("i", ""), numbered)


def names(graph: State | Operator) -> dict[Coordinate, str]:
    """Return the iterators' names as words."""
    return Names(graph).found


def expressions(graph: State | Operator) -> dict[Coordinate, str]:
    """Return every coordinate of a pGraph with its expression over the iterators, in order of creation."""
    state = graph.state if isinstance(graph, Operator) else graph
    values = {leaf: name(text) for leaf, text in names(graph).items()}
    for _ in climb(state, state.steps, values, size):
        pass  # expressions as text have no bounds
    return {coordinate: str(expression) for coordinate, expression in values.items()}
