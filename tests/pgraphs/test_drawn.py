"""The first count of a search's funnel: complete operators, before wishes and budgets refuse any."""

import random
from collections.abc import Hashable

import syno_lab as sl
from syno_lab.pgraphs.space import synthesis_space
from syno_lab.search import RandomSearch

SPEC = sl.Spec.parse(
    "[C, H]", "[D, H]", ["C=8: 1", "D=8: 1", "H=8: 0"], ["k=3: 1"], max_primitives=4, max_shifts=1, max_strides=0
)


def searched(spec: sl.Spec) -> tuple[set[Hashable], int, set[sl.Operator]]:
    """What is drawn (keys, and how often it was told), and the operators, of a search that exhausts the space."""
    keys: list[Hashable] = []
    search = RandomSearch(synthesis_space(spec, drawn=keys.append, countable_nodes=0), random.Random(0))
    found = set()
    while (candidate := search.ask()) is not None:
        search.tell(candidate, 0.5)
        found.add(candidate.operator)
    return set(keys), len(keys), found


def test_without_wishes_all_that_is_drawn_is_found() -> None:
    drawn, told, found = searched(SPEC)
    assert found == set(sl.Sampler.from_spec(SPEC).enumerate())
    assert len(drawn) == told == len(found) > 50


def test_what_is_refused_is_counted() -> None:
    """A hard limit refuses after the count; a wish too, where it does not prune the way to an operator."""
    everything = searched(SPEC)[2]
    drawn: set[Hashable] = set()
    root = synthesis_space(SPEC, accepts=lambda operator: False, drawn=drawn.add, countable_nodes=0)
    assert RandomSearch(root, random.Random(0)).ask() is None
    assert len(drawn) == len(everything)
    wishing = SPEC.with_wants("C>=m, H>=m")
    keys, _, found = searched(wishing)
    assert found == {operator for operator in everything if operator.meets(wishing.wants)}
    assert 0 < len(found) <= len(keys) <= len(everything)
