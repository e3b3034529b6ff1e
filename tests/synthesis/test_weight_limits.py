"""Limits of occurrences that bind the dimensions of weights for primary variables: ``weight_limits="primary"``."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

import syno_lab as sl
from syno_lab.commands.pgraphs.specs import load_spec
from syno_lab.errors import SpecError
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.pgraphs.of_network import known_operators
from syno_lab.pgraphs.space import synthesis_space
from syno_lab.synthesis.sampler import Sampler

long = pytest.mark.skipif(os.environ.get("SYNO_LAB_LONG") != "1", reason="takes long: set SYNO_LAB_LONG=1 to run it")

SPECS = {
    # Room for one weight with each of C and D, for two weights with one of them.
    "chain": Spec.parse(
        "[C, H]",
        "[D, H]",
        ["C=12: 2", "D=21: 3", "H=5: 0"],
        ["k=3: 2"],
        max_primitives=5,
        max_reduces=3,
        max_expands=0,
        max_shifts=0,
    ),
    # As many of k as one REDUCE takes, and weights with k all the same.
    "coefficients": Spec.parse(
        "[H, W]", "[H, W]", ["H=63: 1", "W=99: 2"], ["k=3: 1"], max_primitives=4, max_shifts=1, max_strides=0
    ),
    "readme": load_spec("readme", max_primitives=4)[0],
    "conv": load_spec("conv", max_primitives=4)[0],
}


def spent(operator: Operator) -> dict[str, int]:
    """DESIGN section 4, from the operator's steps and weights: what counts against each variable's limit."""
    found = dict.fromkeys(operator.spec.symbols.names, 0)
    for step in operator.steps:
        sides = []
        if step.primitive in ("REDUCE", "STRIDE", "MERGE"):
            sides.append(step.parameter)
        if step.primitive == "MERGE":
            sides.append(step.operands[0].size / step.parameter)
        if sides:
            cheaper = min(sides, key=lambda size: (sum(map(abs, size.exponents)), size.exponents))
            for name, power in zip(found, cheaper.exponents, strict=True):
                found[name] += abs(power)
    for weight in operator.weights:
        for size in weight.shape:
            for name, power in zip(found, size.exponents, strict=True):
                if name in operator.spec.symbols.primary:
                    found[name] += abs(power)
    return found


def is_within(operator: Operator) -> bool:
    limits = operator.spec.occurrence_limits
    return all(limits[name] is None or number <= limits[name] for name, number in spent(operator).items())


@pytest.mark.parametrize("name", SPECS)
def test_the_space_is_the_free_one_within_the_limits(name: str) -> None:
    """Pruning on the way loses none and lets none through."""
    free = list(Sampler.from_spec(replace(SPECS[name], weight_limits="free")).enumerate())
    bound = list(Sampler.from_spec(replace(SPECS[name], weight_limits="primary")).enumerate())
    wanted = [operator.state.key for operator in free if is_within(operator)]
    assert 0 < len(wanted) < len(free)
    assert len(set(wanted)) == len(wanted)
    assert sorted(map(repr, wanted)) == sorted(repr(operator.state.key) for operator in bound)


@pytest.mark.parametrize(
    ("name", "most", "mappings", "number"),
    [
        ("conv-authors", 6, None, 914),
        pytest.param("conv-authors", 7, None, 11_924, marks=long),
        pytest.param("readme", 6, [{"H": 32, "W": 32}], 105_777, marks=long),
        pytest.param("readme", 6, None, 99_285, marks=long),
    ],
)
def test_the_spaces_that_hold_the_operators_of_the_authors(
    name: str, most: int, mappings: list[dict[str, int]] | None, number: int
) -> None:
    """Of the authors' engine's operators all but two of 59 were in the first, and all 118 in that of size 32 alone.

    The two have a weight that another absorbs. 105,725 were counted then: a bound that was too high lost 52.
    """
    spec, _ = load_spec(name, max_primitives=most, weight_limits="primary", mappings=mappings)
    assert Sampler.from_spec(spec).count() == number


def test_the_conv_spec_has_the_known_convolutions() -> None:
    spec, _ = load_spec("conv")
    found = known_operators(synthesis_space(spec, countable_nodes=0), spec)
    assert {"conv2d", "separable", "grouped", "operator_1", "operator_2"} <= found.keys()
    authors, _ = load_spec("conv-authors", max_primitives=10)
    assert not known_operators(synthesis_space(authors, countable_nodes=0), authors), "no weight has C_out there"


def test_no_weight_has_an_axis_that_may_not_occur() -> None:
    sampler = sl.Sampler(
        "[C, H]", "[D, H]", ["C=12: 3", "D=21: 1", "H=5: 0"], ["k=3: 2"], weight_limits="primary", max_primitives=6
    )
    h = sampler.spec.symbols.position["H"]
    assert all(not size.exponents[h] for o in sampler.enumerate(5) for w in o.weights for size in w.shape)


def test_other_words_are_refused() -> None:
    with pytest.raises(SpecError, match="weight_limits: expected 'free' or 'primary', found 'strict'"):
        Spec.parse("[C, H]", "[D, H]", ["C=12: 3", "D=21: 1", "H=5: 0"], ["k=3: 2"], weight_limits="strict")
