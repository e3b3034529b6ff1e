"""Sizes of Canvas: what may be a dimension, factors, substitution; brute force over numbers is the oracle."""

from fractions import Fraction
from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syno_lab.canvas.shape import (
    INPUT,
    SLOTS,
    SYMBOLS,
    Shape,
    factors,
    fault_of,
    is_legal,
    parse,
    solve_for_image,
    substitute,
)
from syno_lab.common.size import Size

BINDING = {"C": 12, "H": 5, "W": 7, "G": 2, "KH": 11, "KW": 13} | {f"x{number}": 17 + 2 * number for number in range(8)}
SIZES = st.tuples(*[st.integers(-2, 2)] * len(SYMBOLS.names)).map(lambda exponents: Size(SYMBOLS, exponents))
STATIC = st.tuples(*[st.integers(-3, 3)] * 6).map(lambda exponents: Size(SYMBOLS, (*exponents, *[0] * 8)))


def texts(sizes: tuple[Size, ...]) -> set[str]:
    return {size.pretty for size in sizes}


def value(size: Size, binding: dict[str, int]) -> Fraction:
    return prod(
        (Fraction(binding[name]) ** power for name, power in zip(SYMBOLS.names, size.exponents, strict=True)),
        start=Fraction(1),
    )


@pytest.mark.parametrize(
    "text", ["1", "C", "C/G", "G", "C*KH", "G*C", "C^2/G^2", "H*W", "x0", "x0/G", "x0*KW/C", "x7/H"]
)
def test_legal(text: str) -> None:
    assert is_legal(parse(text))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1/G", "no whole number for all C that G divides"),
        ("C/G^2", "no whole number for all C that G divides"),
        ("C/KH", "not always a whole number"),
        ("C/H", "not always a whole number"),
        ("G/C", "not always a whole number"),
        ("C/x0", "a dynamic variable is below the line"),
        ("x0*x1", "more than one dynamic variable"),
        ("x0^2", "more than one dynamic variable"),
    ],
)
def test_illegal(text: str, why: str) -> None:
    assert why in (fault_of(parse(text)) or "")


@given(STATIC)
def test_static_legality_is_that_of_all_numbers(size: Size) -> None:
    # Primes in the place of all but C, which is a multiple of G: a size that is whole here is whole by construction.
    binding = {"C": 19 * 2, "G": 2, "H": 5, "W": 7, "KH": 11, "KW": 13}
    assert is_legal(size) == (value(size, binding | dict.fromkeys(BINDING.keys() - binding, 1)).denominator == 1)


@given(SIZES, st.integers(0, 7), SIZES)
def test_substitution_is_that_of_numbers(size: Size, number: int, by: Size) -> None:
    found = substitute(size, number, by)
    if by.exponents[SYMBOLS.position[f"x{number}"]] == 0:
        assert found.exponents[SYMBOLS.position[f"x{number}"]] == 0
    assert value(found, BINDING) == value(size, BINDING | {f"x{number}": value(by, BINDING)})


def test_factors_of_the_paper() -> None:
    assert texts(factors(parse("C*KH"))) == {"1", "C", "KH", "G", "C/G", "C·KH", "G·KH", "C·KH/G"}
    assert texts(factors(parse("x2*KW"))) == {"1", "x2", "KW", "KW·x2"}
    assert texts(factors(parse("C/G"))) == {"1", "C", "G", "C/G"}  # of what stands above the line
    assert len(factors(parse("C*H*W"))) == 16


@given(STATIC)
def test_factors_divide(size: Size) -> None:
    above = Size(SYMBOLS, tuple(max(power, 0) for power in size.exponents))
    for factor in factors(size):
        assert is_legal(factor)
        assert is_legal(above / factor)
    assert above in factors(size)


def test_equal_shapes_are_one_object() -> None:
    assert Shape.of(C="C", H="H", W="W") is INPUT
    assert Shape.of(G="1", C="C*G/G", H="H", W="W") is INPUT
    assert str(Shape.of(G="G", C="C/G", KH="KH", W="W")) == "[G, C/G, KH, W]"
    assert Shape.of().sizes == ()


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ({"C": "C", "H": "x0"}, "slot H: expected H or nothing, found x0"),
        ({"C": "C", "KW": "KH"}, "slot KW: expected KW or nothing, found KH"),
        ({"G": "x0", "C": "x1"}, "more than one dynamic variable is in the shape"),
        ({"C": "C/G^2"}, "slot C: C/G² is no whole number"),
    ],
)
def test_faults_of_shapes(sizes: dict[str, str], why: str) -> None:
    assert why in (Shape.of(**sizes).fault or "")


@pytest.mark.parametrize(
    ("sizes", "solution"),
    [
        ({"C": "x0", "H": "H", "W": "W"}, "C"),
        ({"G": "G", "C": "x0/G", "KH": "KH", "H": "H", "W": "W"}, None),  # C/KH is not always whole
        ({"G": "G", "C": "x0", "H": "H", "W": "W"}, "C/G"),
        ({"C": "x0", "W": "W"}, None),
        ({"C": "x0"}, None),
        ({"C": "C", "H": "H"}, None),
        ({"G": "G", "C": "C/G", "H": "H", "W": "W"}, "C·H·W"),
    ],
)
def test_output_is_solved(sizes: dict[str, str], solution: str | None) -> None:
    found = solve_for_image(Shape.of(**sizes))
    assert (found.pretty if found else None) == solution


@given(st.lists(st.sampled_from(["", "C", "G", "C/G", "x0", "x0/G", "KH"]), min_size=2, max_size=2))
def test_slots_hold_what_they_are_given(texts_of: list[str]) -> None:
    given_sizes = {name: text for name, text in zip(("G", "C"), texts_of, strict=True) if text}
    shape = Shape.of(**given_sizes, H="H")
    assert shape.filled == tuple(name for name in SLOTS if name in {*given_sizes, "H"})
    assert shape.volume == parse("*".join([f"{text}" for text in given_sizes.values()] + ["H"]))
    for number, by in product(range(2), ("C", "1")):
        assert shape.substituted(number, parse(by)).volume == substitute(shape.volume, number, parse(by))
