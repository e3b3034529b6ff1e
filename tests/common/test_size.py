"""Sizes: monomials that parse, print, multiply and evaluate; Fractions are the oracle."""

from fractions import Fraction
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syno_lab.common.size import Size, Symbols, product, value
from syno_lab.errors import SpecError

SYMBOLS = Symbols(("N", "C_in", "H"), ("k_1", "s"))
BINDING = {"N": 2, "C_in": 12, "H": 30, "k_1": 3, "s": 2}
SIZES = st.tuples(*[st.integers(-4, 4)] * len(SYMBOLS.names)).map(lambda exponents: Size(SYMBOLS, exponents))


def fraction(size: Size) -> Fraction:
    return prod(
        (Fraction(BINDING[name]) ** power for name, power in zip(SYMBOLS.names, size.exponents, strict=True)),
        start=Fraction(1),
    )


@given(SIZES)
def test_print_and_parse_is_the_same_size(size: Size) -> None:
    assert SYMBOLS.size(str(size)) == size


@given(SIZES, SIZES, st.integers(-3, 3))
def test_arithmetic_is_that_of_numbers(a: Size, b: Size, power: int) -> None:
    assert fraction(a * b) == fraction(a) * fraction(b)
    assert fraction(a / b) == fraction(a) / fraction(b)
    assert fraction(a**power) == fraction(a) ** power
    assert (a * b) / b == a
    assert hash(a * b) == hash(b * a)


@given(SIZES)
def test_value_is_the_number_or_refused(size: Size) -> None:
    number = fraction(size)
    assert size.is_integral(BINDING) == (number.denominator == 1)
    if number.denominator == 1:
        assert size.at(BINDING) == number
        assert eval(size.code, {}, BINDING) == number  # the loop nest computes the same
        expression = size.to_sympy()
        assert expression.subs({symbol: BINDING[symbol.name] for symbol in expression.free_symbols}) == number
    else:
        with pytest.raises(SpecError, match=r"expected a positive integer"):
            size.at(BINDING)


@given(SIZES)
def test_plausible_means_a_positive_integer_somewhere(size: Size) -> None:
    """Against large bindings: primaries large and divisible, coefficients from 2 up and coprime."""
    primaries, coefficients = size.primary_exponents, size.exponents[len(size.symbols.primary) :]
    below = any(p < 0 for p in primaries)
    only_divides = not any(p > 0 for p in (*primaries, *coefficients)) and any(p < 0 for p in coefficients)
    assert size.is_plausible == (not below and not only_divides)


@pytest.mark.parametrize(
    ("text", "exponents"),
    [
        ("1", (0, 0, 0, 0, 0)),
        ("H", (0, 0, 1, 0, 0)),
        ("s^2*C_in", (0, 1, 0, 0, 2)),
        ("s^-1*H", (0, 0, 1, 0, -1)),
        ("H/s", (0, 0, 1, 0, -1)),
        (" k_1 * H / s ^ 2 ", (0, 0, 1, 1, -2)),
        ("H*H/H", (0, 0, 1, 0, 0)),
        ("1*H", (0, 0, 1, 0, 0)),
        ("1/s", (0, 0, 0, 0, -1)),
        ("H/s^-1", (0, 0, 1, 0, 1)),
    ],
)
def test_forms_of_sizes(text: str, exponents: tuple[int, ...]) -> None:
    assert SYMBOLS.size(text).exponents == exponents


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Q", "unknown variable 'Q'; declared are N, C_in, H, k_1, s"),
        ("H*", "expected a product of powers such as"),
        ("", "expected a product of powers such as"),
        ("2*H", "found the number 2; declare it, as in 'C=2' of primary_specs or coefficient_specs, and write C here"),
        ("H/2", "found the number 2; declare it"),
        ("12", "found the number 12; declare it, as in 'C=12'"),
        ("2H", "found the number 2; declare it"),
        ("0", "found the number 0; declare it"),
        ("9" * 500, "found the number 9+….*; declare it"),
        ("3.5", "found the number 3; declare it"),
        (3, "size 3: expected a text such as 's.-1.H'"),
        ("H + s", r"expected \* or / after 'H', found '\+ s'"),
        ("H s", r"expected \* or / after 'H', found 's'"),
        ("H^s", r"expected \* or / after 'H', found '\^s'"),
        ("H^65", r"expected powers of at most 64, found H\^65"),
        ("H^-1000000000000", "expected powers of at most 64"),
    ],
)
def test_refused_sizes(text: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        SYMBOLS.size(text)


def test_shapes() -> None:
    assert [str(size) for size in SYMBOLS.shape("[N, s^-1*H,C_in]")] == ["N", "s^-1*H", "C_in"]
    assert SYMBOLS.shape(" [ ] ") == ()
    shape = SYMBOLS.shape("[N, H, s]")
    assert value(shape, BINDING) == 2 * 30 * 2
    assert product(shape, SYMBOLS) == SYMBOLS.size("N*H*s")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("N, H", r"expected sizes in brackets, as in \[N, C_in, H, W\]"),
        ("[N, , H]", "dimension 1 is empty; write one size between commas"),
        ("[N, H,]", "dimension 2 is empty"),
        ("[N, [H]]", "expected a product of powers"),
    ],
)
def test_refused_shapes(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        SYMBOLS.shape(text)


@pytest.mark.parametrize(
    ("primary", "coefficient", "message"),
    [
        (("H", "H"), (), "variable 'H' is declared twice"),
        (("H",), ("H",), "variable 'H' is declared twice"),
        (("2H",), (), "variable '2H': expected a name of letters, digits and _"),
        (("H-1",), (), "variable 'H-1': expected a name"),
        (("H\n",), (), "expected a name"),
        (("lambda",), (), "variable 'lambda' is a word of Python"),
        ((), ("range",), "variable 'range' is a word of Python"),
    ],
)
def test_refused_variables(primary: tuple[str, ...], coefficient: tuple[str, ...], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Symbols(primary, coefficient)


def test_a_size_needs_its_variables_bound() -> None:
    with pytest.raises(SpecError, match=r"size s\^-1\*H: variable s is not bound; bound are H"):
        SYMBOLS.size("H/s").at({"H": 4})
    assert SYMBOLS.size("H").at({"H": 4}) == 4
    with pytest.raises(SpecError, match=r"size s\^-1\*H is 5/2 for H=5, s=2: expected a positive integer"):
        SYMBOLS.size("H/s").at({"H": 5, "s": 2})


def test_texts_for_people_and_for_code() -> None:
    size = SYMBOLS.size("k_1^2*C_in/s")
    assert (str(size), size.pretty, size.code) == ("k_1^2*s^-1*C_in", "C_in·k_1²/s", "C_in*k_1*k_1//s")
    assert SYMBOLS.one.pretty == SYMBOLS.one.code == str(SYMBOLS.one) == "1"
    assert SYMBOLS.size("H/s/k_1").code == "H//(k_1*s)"
