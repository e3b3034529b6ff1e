"""The traits of operators by which a search guesses, against the receptive field and numbers by hand."""

from __future__ import annotations

import random
from math import log2, prod

import pytest
from known_trainings import settings
from strategies import random_operator

from syno_lab import operators
from syno_lab.experiments import Space
from syno_lab.pgraphs import traits as module
from syno_lab.pgraphs.traits import traits
from syno_lab.search.asking import find

SIZES = {"N": 1, "C_in": 8, "C_out": 4, "H": 6, "W": 6}


def test_a_convolution_by_hand() -> None:
    found = traits(operators.conv2d(), {**SIZES, "k_1": 3})
    assert found == {
        "reads 0": 0,
        "reads all of 0": 1,
        "reads 1": 6,
        "reads all of 1": 1,
        "reads 2": round(2 * log2(3)),
        "reads 3": round(2 * log2(3)),
        "rank over space": round(2 * log2(9)),
        "rank over outputs": round(2 * log2(30)),
        "rank over inputs": round(2 * log2(30)),
        "multiply-adds": round(log2(8 * 9)),
        "parameters": round(log2(1 + 8 * 4 * 9)),
    }


def test_a_cheaper_convolution_reads_the_same() -> None:
    # What is read does not hang on the weights, the costs do.
    first = traits(operators.separable(), {**SIZES, "k_1": 3})
    second = traits(operators.conv2d(), {**SIZES, "k_1": 3})
    assert {word: n for word, n in first.items() if "reads" in word} == {
        word: n for word, n in second.items() if "reads" in word
    }
    assert first["multiply-adds"] < second["multiply-adds"]
    assert first["rank over outputs"] < second["rank over outputs"]


def test_any_operator_reads_what_its_receptive_field_says(rng: random.Random) -> None:
    # With the first three the element in the middle reads nothing: a window of theirs is outside everywhere.
    for chance in (*map(random.Random, (24, 39, 102)), *[rng] * 30):
        operator, binding = random_operator(chance)
        found = traits(operator, binding)
        for axis in operator.receptive_field("center", binding).axes:
            assert found[f"reads {axis.axis}"] == round(2 * log2(max(1, len(axis.positions))))
            assert (f"reads all of {axis.axis}" in found) == (axis.cover == "whole")
        macs = operator.flops(binding) / 2 / prod(operator.output_sizes(binding))
        assert found["multiply-adds"] == round(log2(max(1.0, macs)))


def test_where_there_are_too_many_terms_reading_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TERMS", 4)
    found = traits(operators.conv2d(), {**SIZES, "k_1": 3})
    assert {"reads 0", "reads 2", "reads 3"} <= found.keys()
    assert "reads 1" not in found


def test_a_search_for_a_network_sees_them() -> None:
    chosen = settings()
    space = Space(chosen)
    search = space.search(chosen)
    candidate = search.ask()
    assert candidate is not None
    trail = find(search.root, candidate.operator)
    assert trail is not None
    assert trail.end.traits() == traits(candidate.operator, space.operators.spec.binding_maps[0])
    assert search.root.traits() == {}
    assert space.probed(candidate.operator) == {"probe": space.operators.probe(candidate.operator)}
