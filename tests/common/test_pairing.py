"""Pairings as values: the laws of their marks and matrices, and wishes as texts."""

from itertools import product
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syno_lab.common.pairing import Pairing
from syno_lab.common.wants import RANK, Letter, Wish, wants_text
from syno_lab.errors import SpecError
from syno_lab.ir.spec import Spec

LETTERS = get_args(Letter)
CONV = ("[N, C_in, H, W]", "[N, C_out, H, W]", ["N=1: 0", "C_in=8: 1", "C_out=8: 1", "H=8: 0", "W=8: 0"], ["k=3: 2"])


def pairing(*rows: str) -> Pairing:
    return Pairing(
        tuple(f"y{i}" for i in range(len(rows))),
        tuple(f"x{i}" for i in range(len(rows[0]) if rows else 0)),
        tuple(tuple(row) for row in rows),  # type: ignore[arg-type]
    )


def pairings(height: int, width: int) -> st.SearchStrategy[Pairing]:
    row = st.lists(st.sampled_from(LETTERS), min_size=width, max_size=width).map("".join)
    return st.lists(row, min_size=height, max_size=height).map(lambda rows: pairing(*rows))


def test_marks_are_a_commutative_semiring() -> None:
    """By exhaustion: | and @ of 1x1 matrices are sum and product, x is zero and o is one (αNAS, D.15)."""
    one = {mark: pairing(mark) for mark in LETTERS}
    for a, b, c in product(one.values(), repeat=3):
        assert (a | b) | c == a | (b | c)
        assert a | b == b | a
        assert (a @ b) @ c == a @ (b @ c)
        assert a @ b == b @ a
        assert a @ (b | c) == a @ b | a @ c
        assert a | one["x"] == a == a @ one["o"]
        assert a @ one["x"] == one["x"]
        assert not a <= b or (a @ c <= b @ c and a | c <= b | c)


@given(st.data(), st.lists(st.integers(1, 4), min_size=4, max_size=4))
def test_laws_of_matrices(data: st.DataObject, sizes: list[int]) -> None:
    n, m, k, j = sizes
    a, b, c = data.draw(pairings(n, m)), data.draw(pairings(m, k)), data.draw(pairings(k, j))
    assert (a @ b) @ c == a @ (b @ c)
    assert Pairing.identity(n) @ a == a == a @ Pairing.identity(m)
    other = data.draw(pairings(n, m))
    joined = a | other
    assert a <= joined
    assert other <= joined
    above = data.draw(pairings(n, m))
    assert (a <= above and other <= above) == (joined <= above), "the least that is above both"
    assert a @ b <= joined @ b
    assert (a.excess(above) == 0) == (above <= a)
    assert a.excess(above) == sum(
        RANK[wanted] > RANK[mine]
        for mine, wanted in zip(sum(a.marks, ()), sum(above.marks, ()), strict=True)
    )  # fmt: skip


def test_composition_of_known_matrices() -> None:
    """Depthwise 3x3, then 1x1: the separable convolution's own matrix."""
    depthwise, pointwise = pairing("oxxx", "xoxx", "xxmx", "xxxm"), pairing("oaxx", "xaxx", "xaox", "xaxo")
    assert pointwise @ depthwise == pairing("oaxx", "xaxx", "xamx", "xaxm")
    assert depthwise.excess(pointwise @ depthwise) == 4


def test_axes_must_agree() -> None:
    with pytest.raises(SpecError, match="expected 2 output axes to compose with, found 1"):
        _ = pairing("xo") @ pairing("o")
    for use in (Pairing.__or__, Pairing.__le__, Pairing.excess):
        with pytest.raises(SpecError, match="expected 1 output and 2 input axes to compare with, found 1 and 1"):
            use(pairing("xo"), pairing("o"))


def test_wishes_are_met_by_any_output_or_by_the_one_that_is_named() -> None:
    found = pairing("oaxx", "xaxx", "xamx", "xaxo")
    assert found.meets([])
    assert found.meets([Wish(1, "m"), Wish(2, "m"), Wish(2, "m", 2), Wish(3, "o")])
    assert found.missing([Wish(2, "m", 3), Wish(1, "a"), Wish(3, "m")]) == (Wish(2, "m", 3), Wish(3, "m"))
    assert found.lacks([Wish(2, "m", 3), Wish(3, "m")]) == {(3, 2), (0, 3), (1, 3), (2, 3), (3, 3)}


def test_missing_entries_are_marked() -> None:
    found = Pairing(("H", "W"), ("H", "W"), (("m", "x"), ("x", "o")))
    wants = [Wish(0, "m"), Wish(1, "m")]
    assert found.text(wants).splitlines() == [
        "out \\ in  H  W",
        "H         m  x!",
        "W         x  o!",
        "",
        "x not paired, o one-to-one, m many-to-one, a all-to-one",
        "misses the wish W>=m (it is one-to-one)",
    ]
    assert found.text(wants[:1]).splitlines()[-1] == "meets the wish H>=m"
    assert '<td title="one-to-one"><mark>o</mark></td>' in found.html(wants)
    assert "<caption>misses the wish W&gt;=m" in found.html(wants)
    assert "mark>" not in found.html()


# -- wishes as texts -------------------------------------------------------------------------------------------------


def test_wishes_are_read() -> None:
    spec = Spec.parse(*CONV, wants=" C_in>=m, H ≥ m,W->W>=o , H>=m,")
    assert spec.wants == (Wish(1, "m"), Wish(2, "m"), Wish(3, "o", 3))
    assert Spec.parse(*CONV, wants="").wants == () == Spec.parse(*CONV).wants
    assert spec != Spec.parse(*CONV)


@given(st.lists(st.builds(Wish, st.integers(0, 3), st.sampled_from("oma"), st.none() | st.integers(0, 2)), unique=True))
def test_wishes_go_through_text(wants: list[Wish]) -> None:
    """Axes of one size are told apart by numbers."""
    spec = Spec.parse("[H, s^-1*H, H, W]", "[W, W, H]", ["H", "W"], ["s"])
    text = wants_text(wants, spec.input_shape, spec.output_shape)
    assert Spec.parse("[H, s^-1*H, H, W]", "[W, W, H]", ["H", "W"], ["s"], wants=text).wants == tuple(wants)


@pytest.mark.parametrize(
    ("wants", "message"),
    [
        ("C_out>=m", r"wants: expected an input axis of \[N, C_in, H, W\], found 'C_out'"),
        ("H->C_in>=m", r"wants: expected an output axis of \[N, C_out, H, W\], found 'C_in'"),
        ("H#2>=m", r"wants: expected an input axis of \[N, C_in, H, W\], found 'H#2'"),
        ("H#0>=m", "found 'H#0'"),
        ("H#>=m", "found 'H#'"),
        ("H>=x", "wants 'H>=x': expected o, m or a after '>=', found 'x'"),
        ("H>=z", "expected o, m or a after '>=', found 'z'"),
        ("H", "wants: expected axis>=letter, as in 'C_in>=m' or 'H->W>=o', found 'H'"),
        ("H<=m", "expected axis>=letter"),
        ("N>=m", "wants 'N>=m': expected axes that take part in something, found input axis 0, which is fixed"),
        ("N->H>=o", "wants 'N->H>=o': expected axes that take part in something"),
        (3, "wants: expected a text such as 'C_in>=m, H>=m', found 3"),
    ],
)
def test_refused_wishes(wants: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as refusal:
        Spec.parse(*CONV, fixed_io_pairs=[(0, 0)], wants=wants)
    assert "\n" not in str(refusal.value)


def test_an_axis_of_a_size_that_several_have_needs_a_number() -> None:
    with pytest.raises(SpecError, match=r"wants: expected one input axis of \[H#1, H#2\], found 'H', the size of 2"):
        Spec.parse("[H, H]", "[H]", ["H"], wants="H>=m")
