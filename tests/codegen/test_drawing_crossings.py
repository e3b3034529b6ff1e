"""How often the lines of pictures cross, in our layout and where `dot` is told nothing of ranks."""

from __future__ import annotations

from math import comb

import pytest
from crossings import crossings, laid_out, without_ranks

from syno_lab.operators import KNOWN


@pytest.mark.parametrize("n", [1, 2, 3])
def test_crossings_are_counted(n: int) -> None:
    """In two rows a graph of all lines from n nodes to n others has C(n, 2)^2 crossings, however it is drawn."""
    below = " ".join(f"b{i}" for i in range(n))
    assert (
        crossings(laid_out(f"digraph {{ {'; '.join(f'a{i} -> {{{below}}}' for i in range(n))} }}")) == comb(n, 2) ** 2
    )


def test_known_operators_cross_no_more_than_by_dot_alone() -> None:
    """The input stands above and the output below all else; of all together 70 lines cross, by `dot` alone 72."""
    found = {}
    for name, make in KNOWN.items():
        source = make().dot()
        found[name] = crossings(laid_out(source)), crossings(laid_out(without_ranks(source)))
    assert sum(ours for ours, _ in found.values()) <= sum(plain for _, plain in found.values()), found
