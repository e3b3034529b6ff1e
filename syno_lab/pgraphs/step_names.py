"""The words of a step in the space of pGraphs: its actions, the words counted of them, and a reader of its name.

An action is a primitive with the sizes of its operands, without places: ``UNFOLD(H, k_1)``, ``REDUCE(C_in)x2``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from syno_lab.protocol import SearchStep

#: The actions of a step in its name; `` @`` and places follow them.
_ACTION = re.compile(r"(END)|([A-Z]+)\(([^()]*)\)(?:x([0-9]{1,9}))?")

Words = tuple[tuple[str, int], ...]


@lru_cache(maxsize=1 << 14)
def counted(primitive: str, sizes: tuple[str, ...], times: int = 1) -> Words:
    """The words counted of an action: its primitive, and its primitive with each size.

    >>> counted("UNFOLD", ("H", "k_1"))
    (('UNFOLD', 1), ('UNFOLD H', 1), ('UNFOLD k_1', 1))
    >>> counted("REDUCE", ("C_in",), 2)
    (('REDUCE', 2), ('REDUCE C_in', 2))
    """
    each = Counter(f"{primitive} {size}" for size in sizes)
    return ((primitive, times), *[(size, times * number) for size, number in each.items()])


def read_steps(names: Sequence[str]) -> tuple[SearchStep, ...]:
    """The steps of :mod:`.space` with these names, for trees that are replayed from trials, which have only names."""
    return tuple(map(_read_step, names))


@lru_cache(maxsize=1 << 14)
def _read_step(name: str) -> SearchStep:
    actions: list[str] = []
    words: list[tuple[str, int]] = []
    steps = 0
    for found in _ACTION.finditer(name.partition(" @")[0]):
        end, primitive, inner, repeated = found.groups()
        times = int(repeated or 1)
        actions.append(found[0])
        words += [(end, 1)] if end else counted(primitive, _sizes(inner), times)
        if primitive == "REDUCE":
            steps += times
        elif primitive and primitive != "GIVE":  # a weight that is given to is SHAREd by the next step: one together
            steps = 1  # for any number of coordinates
    return SearchStep(name, tuple(actions), steps=steps, words=tuple(words))


def _sizes(inner: str) -> tuple[str, ...]:
    return tuple(size for part in re.split("[,;]", inner) if (size := part.strip()))
