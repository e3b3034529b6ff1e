"""Wanted properties, all together: how they are read, stored and satisfied."""

from __future__ import annotations

import random
from itertools import product
from math import inf
from typing import Any

import pytest
from alpha_jacobians import random_graph

from syno_lab.alpha import Draft
from syno_lab.alpha.graph import Graph, Node
from syno_lab.alpha.operations import operation
from syno_lab.alpha.properties import RELAXATIONS
from syno_lab.alpha.wanted import Properties
from syno_lab.errors import FormatError, SpecError

SHAPE = (2, 8, 8, 4)
CHAIN = Graph.chain(SHAPE, [operation("conv", features=8, stride=2), operation("batch_norm"), operation("relu")])
TWO = Graph((SHAPE, SHAPE), (Node(operation("add"), (0, 1)), Node(operation("relu"), (2,))), (2, 3))


def test_a_graph_satisfies_its_own_and_what_they_relax_to(rng: random.Random) -> None:
    for _ in range(60):
        graph = random_graph(rng)
        for normalised in (False, True):
            own = Properties.of(graph, normalised=normalised)
            assert own.length == len(graph.nodes)
            assert own.satisfied_by(graph)
            for name in RELAXATIONS:
                relaxed = own.relax(rng.randrange(1000), name)
                shape, mixing = relaxed.distances(graph)["shape"], relaxed.distances(graph)["mixing"]
                assert (shape, mixing) == (0, 0), "only the depth may ask for more"
                assert relaxed.distance(graph) == relaxed.distances(graph)["depth"]
            assert Properties.from_json(own.to_json()) == own


def test_relaxed_ones_go_through_files_and_hang_on_the_seed() -> None:
    own = Properties.of(TWO, producer="linear", normalised=True)
    drawn = [own.relax(seed, rules) for seed in range(20) for rules in RELAXATIONS]
    assert drawn == [own.relax(seed, rules) for seed in range(20) for rules in RELAXATIONS]
    assert len(set(drawn)) > 5
    for one in drawn:
        assert Properties.from_json(one.to_json()) == one


def test_single_values_are_tables_of_one() -> None:
    rows = ("oxxa", "xmxa", "xxma", "xxxa")
    wanted = Properties((2, 4, 4, 8), 2, rows)
    assert wanted.satisfied_by(CHAIN)
    tables: dict[str, Any] = {"shape": [[(2, 4, 4, 8)]], "depth": [[2]], "mixing": [[rows]]}
    assert wanted == Properties(**tables)
    assert Properties(depth=4).distances(CHAIN) == {"shape": 0, "depth": 2, "mixing": 0}
    assert Properties().satisfied_by(TWO), "nothing is asked for"
    assert Properties((2, 5, 5, 8)).distance(CHAIN) == inf


def test_shares_are_averaged_and_the_papers_distances_added() -> None:
    plain = Properties(depth=((4, 4), (0, None)))
    assert plain.distance(TWO) == 3 + 2
    shares = Properties(depth=((4, 4), (0, None)), normalised=True)
    assert shares.distance(TWO) == pytest.approx((3 / 4 + 2 / 4 + 0) / 3)


def test_depth_as_the_published_code_counts() -> None:
    own = Properties.of(CHAIN, producer="linear")
    assert own.depth == ((1,),)
    assert own.satisfied_by(CHAIN)
    assert Properties(depth=2, producer="linear").distance(CHAIN) == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"shape": "8"}, r"properties: shape: expected a shape such as \(1, 8, 8, 16\), or a table, found '8'"),
        ({"shape": [[(2, 0)]]}, r"properties: shape: expected a shape .*, found \(2, 0\)"),
        ({"depth": -1}, "properties: depth: expected an integer of 0 or more, or a table, found -1"),
        ({"depth": [[True]]}, "properties: depth: expected an integer of 0 or more, found True"),
        ({"depth": [[1], [1, 2]]}, r"properties: depth: expected rows of one length of 1 or more, found \[1, 2\]"),
        ({"depth": [[]]}, "properties: depth: expected rows of one length"),
        ({"mixing": ("ox", "xq")}, "properties: mixing: expected a matrix such as .*, or a table, found 'ox'"),
        ({"mixing": [[("ox", "x")]]}, r"properties: mixing: expected a matrix such as .*, found \('ox', 'x'\)"),
        ({"depth": [[1, 2]], "mixing": [["o"]]}, "properties: mixing: expected a matrix such as .*, found 'o'"),
        ({"depth": [[1, 2]], "shape": (2, 3)}, "expected tables of the same inputs and outputs, found shape 1 x 1"),
        ({"shape": [[(2, 3)], [(2, 3)]]}, "properties: shape: expected one row, found 2"),
        ({"producer": "conv"}, "properties: producer: expected 'linear', 'nonlinear' or None, found 'conv'"),
        ({"length": -1}, "properties: length: expected an integer of 0 or more, found -1"),
    ],
)
def test_refused_values(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message) as refusal:
        Properties(**given)
    assert "\n" not in str(refusal.value)


def test_other_refusals() -> None:
    with pytest.raises(SpecError, match="depth: expected a table for 2 inputs and 2 outputs, found 1 x 1"):
        Properties(depth=1).distance(TWO)
    with pytest.raises(SpecError, match="relax: rules: expected one of paper, code, found 'strict'"):
        Properties().relax(0, "strict")
    for text in ("{}", "[", '{"format": "syno-lab-properties", "version": 1, "depth": 3}'):
        with pytest.raises(FormatError, match="properties file: expected"):
            Properties.from_json(text)
    with pytest.raises(SpecError, match="properties: mixing: expected a matrix"):
        Properties.from_json('{"format": "syno-lab-properties", "version": 1, "mixing": [[["q"]]]}')


def test_a_graph_says_its_properties() -> None:
    """For each pair of an input and an output, as the table of all has them."""
    found = Properties.of(TWO)
    assert TWO.properties() == found
    for source, output in product(range(len(TWO.inputs)), range(len(TWO.outputs))):
        assert TWO.shape(output) == found.shape[0][output]
        assert TWO.depth(source, output) == found.depth[source][output]
        wanted = found.mixing[source][output]
        assert wanted is not None
        assert TWO.mixing(source, output).marks == wanted.marks
    for wrong in (2, -1, True):
        for ask in (TWO.shape, lambda number: TWO.depth(0, number), lambda number: TWO.mixing(0, number)):
            with pytest.raises(SpecError, match=f"output: expected a number from 0 to 1, found {wrong}"):
                ask(wrong)
        with pytest.raises(SpecError, match=f"input: expected a number from 0 to 1, found {wrong}"):
            TWO.mixing(wrong)


def test_a_draft_explains_its_distance() -> None:
    shape = (2, 8, 8, 16)
    draft = Draft(Properties(shape=(2, 4, 4, 16), depth=1), shape)
    assert draft.explain_distance().splitlines() == [
        "shape: [2, 4, 4, 16] is wanted, found [2, 8, 8, 16]: distance 2.",
        "depth: 1 is wanted, found 0: distance 1.",
    ]
    done = draft.apply(operation("average_pool", window=2, stride=2))
    assert done.explain_distance() == "Nothing is missing: all that is wanted is satisfied."
    # What nothing leads to is named by its entry and its axes, or by the axes of the input.
    wish = Draft(Properties.of_wishes("C>=m, B->C>=m", shape), shape)
    assert wish.explain_distance().splitlines()[-1] == "From here nothing leads to the mixing B->C>=m."
    flat = Draft(Properties.of_wishes("C>=m", shape), (2, 16))
    said = "From here nothing leads to the shape and the mixing of an input with 4 axes, found one with 2."
    assert flat.explain_distance().splitlines()[-1] == said
