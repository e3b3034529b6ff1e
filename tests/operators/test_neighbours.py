"""The distance to known operators: a metric, blind to names and to the order of steps, and as people see it."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from strategies import random_operator

from syno_lab.errors import SpecError
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator
from syno_lab.operators import KNOWN, conv2d, depthwise, dilated, operator_1, operator_2, separable
from syno_lab.operators.neighbours import distance, elements, nearest, size_kind

TINY = 1e-9


def other_conv2d() -> Operator:
    """conv2d with other names, its reductions and UNFOLDs in another order."""
    build = Build("[B, I, Y, X]", "[B, O, Y, X]", ["Y", "X", "O", "I", "B"], ["kernel=5"], fixed_io_pairs=[(0, 0)])
    n, o, h, w = build.output
    q, c, p = build.reduce("kernel"), build.reduce("I"), build.reduce("kernel")
    build.contract(share=[q, p, c], give=[o])
    right = build.unfold(w, q)
    return build.finish(n, c, build.unfold(h, p), right)


def transposed() -> Operator:
    build = Build("[W, H]", "[H, W]", ["H", "W"])
    h, w = build.output
    return build.finish(w, h)


def untouched() -> Operator:
    build = Build("[H, W]", "[H, W]", ["H", "W"])
    h, w = build.output
    return build.finish(h, w)


def test_names_and_order_make_no_difference() -> None:
    assert distance(conv2d(), other_conv2d()) < TINY
    first, *_ = nearest(other_conv2d())
    assert (first.name, first.same, first.differences) == ("conv2d", True, ())


def test_it_is_a_metric(rng: random.Random) -> None:
    drawn = [random_operator(rng)[0] for _ in range(12)] + [make() for make in KNOWN.values()]
    for one in drawn:
        assert distance(one, one) < TINY
    for _ in range(150):
        a, b, c = (rng.choice(drawn) for _ in range(3))
        assert distance(a, b) == pytest.approx(distance(b, a))
        assert distance(a, c) <= distance(a, b) + distance(b, c) + TINY


def test_no_two_known_operators_are_taken_for_one() -> None:
    for name, make in KNOWN.items():
        first, second = nearest(make(), most=2)
        assert (first.name, first.same) == (name, True)
        assert first.distance < TINY < second.distance
        assert not second.same


def test_a_step_more_costs_at_least_one_and_at_most_what_all_its_uses_cost() -> None:
    # separable is conv2d with one CONTRACTION more: that one costs 1, and C_in is used once more.
    (found,) = (one for one in nearest(separable(), most=None) if one.name == "conv2d")
    assert found.differences[0] == ("conv2d has no CONTRACTION share r_C_in, give i_C_out", 1.0)
    assert 1.0 < found.distance < 2.0
    assert found.distance == pytest.approx(sum(cost for _, cost in found.differences))
    # dilated has two STRIDEs more.
    (found,) = (one for one in nearest(dilated()) if one.name == "conv2d")
    assert sum("conv2d has no STRIDE" in words for words, cost in found.differences if cost == 1.0) == 2


def test_a_transposition_is_seen() -> None:
    # Neither has a step: the axes of input and output alone tell them apart.
    assert [element.kind for element in elements(transposed())] == ["input", "output"]
    assert distance(transposed(), untouched()) > TINY
    assert distance(transposed(), transposed()) < TINY


@pytest.mark.parametrize(
    ("make", "close", "far"),
    [
        (operator_1, "operator_2", "conv2d"),
        (operator_2, "stacked_grouped_convolution", "pixel_shuffle"),
        (depthwise, "sum_pool_window", "matmul"),
        (conv2d, "separable", "fold"),
    ],
)
def test_what_people_call_close_is_close(make: Callable[[], Operator], close: str, far: str) -> None:
    places = {neighbour.name: place for place, neighbour in enumerate(nearest(make(), most=None))}
    assert places[close] <= 2
    assert places[close] < places[far]


def test_the_nearest_come_first_and_as_many_as_asked() -> None:
    found = nearest(conv2d(), most=None)
    assert len(found) == len(KNOWN)
    assert all(one.distance <= other.distance for one, other in pairwise(found))
    assert nearest(conv2d(), most=3) == found[:3]
    assert [n.name for n in nearest(conv2d(), {"mine": separable})] == ["mine"]
    with pytest.raises(SpecError, match="most: expected a number from 1 up, or None for all, found 0"):
        nearest(conv2d(), most=0)


def test_sizes_without_names() -> None:
    symbols = operator_1().spec.symbols
    assert [size_kind(symbols.size(text)) for text in ("C_in", "g^-1*C_in", "g^-1*s^-1*C_out", "k_1", "k_1^2*H")] == [
        "P",
        "P c^-1",
        "P c^-1 c^-1",
        "c",
        "P c^2",
    ]


def test_golden(golden: Callable[[str, str], None]) -> None:
    lines = []
    for name, make in KNOWN.items():
        others = ", ".join(f"{found.name} {found.distance:.2f}" for found in nearest(make(), most=4)[1:])
        lines.append(f"{name}: {others}")
    golden("neighbours/known.txt", "\n".join(lines) + "\n")
