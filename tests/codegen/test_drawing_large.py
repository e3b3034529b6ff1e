"""Pictures of large operators: the 20 largest of 1,000 of at most 14 steps, as `benchmarks/pictures.py` stored them."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import comb
from pathlib import Path

import numpy as np
import pytest
from crossings import crossings, laid_out, layout_text, without_ranks

from syno_lab.ir.operator import Operator

STORED = Path(__file__).parents[1] / "golden" / "drawing" / "large.json"


@pytest.fixture(scope="module")
def large() -> list[Operator]:
    return [Operator.from_json(json.dumps(one)) for one in json.loads(STORED.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_crossings_are_counted(n: int) -> None:
    """In two rows a graph of all lines from n nodes to n others has C(n, 2)^2 crossings, however it is drawn."""
    below = " ".join(f"b{i}" for i in range(n))
    assert (
        crossings(laid_out(f"digraph {{ {'; '.join(f'a{i} -> {{{below}}}' for i in range(n))} }}")) == comb(n, 2) ** 2
    )


def test_large_pictures_stay_as_they_are(large: list[Operator], golden: Callable[[str, str], None]) -> None:
    assert len(large) == 20
    assert max(len(one.steps) for one in large) == 14
    texts, ours, plain = [], [], []
    for number, operator in enumerate(large):
        layout = laid_out(operator.dot())
        ours.append(crossings(layout))
        plain.append(crossings(laid_out(without_ranks(operator.dot()))))
        texts.append(f"{number}: {len(operator.steps)} steps, {ours[-1]} crossings ({plain[-1]} by dot alone)\n")
        texts.append(layout_text(layout) + "\n\n")
    golden("drawing/large.txt", "".join(texts))
    assert sum(ours) <= sum(plain)
    assert np.median(np.array(ours) - np.array(plain)) <= 0
