"""What an output element reads, against the meaning: with all weights 1 the Jacobian counts the terms."""

import random
from typing import Any

import numpy as np
import pytest
from strategies import random_operator, repro

import syno_lab as sl
from syno_lab.codegen import receptive_field as room
from syno_lab.codegen.receptive_field import parts, receptive_field
from syno_lab.codegen.reference import reference
from syno_lab.common.reach import ranges
from syno_lab.errors import SpecError
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator

SIZES = {"N": 2, "C_in": 3, "C_out": 4, "H": 6, "W": 7}


def jacobian(operator: Operator, binding: dict[str, int]) -> np.ndarray:
    """How many terms of the loop nest lead from each input element to each output element: output axes first."""
    ones = [np.ones(shape, dtype=np.int64) for shape in operator.weight_sizes(binding)]
    shape = operator.input_sizes(binding)
    found = np.zeros((*operator.output_sizes(binding), *shape), dtype=np.int64)
    for place in np.ndindex(shape):
        unit = np.zeros(shape, dtype=np.int64)
        unit[place] = 1
        found[(..., *place)] = reference(operator, unit, *ones, binding=binding)
    return found


def test_counts_are_those_of_the_loop_nest(rng: random.Random) -> None:
    for _ in range(40):
        operator, binding = random_operator(random.Random(rng.getrandbits(60)), max_terms=1000, max_elements=80)
        terms = jacobian(operator, binding)
        shape = operator.output_sizes(binding)
        why = repro(operator, binding)
        for index in {tuple(rng.randrange(n) for n in shape) for _ in range(4)}:
            field = receptive_field(operator, index, binding)
            np.testing.assert_array_equal(field.counts, terms[index], err_msg=why)
            np.testing.assert_array_equal(np.asarray(field), terms[index] > 0, err_msg=why)
        everything = receptive_field(operator, None, binding)
        np.testing.assert_array_equal(everything.counts, terms.sum(axis=tuple(range(len(shape)))), err_msg=why)
        if shape:
            index = tuple(rng.randrange(n) for n in shape[1:])
            sliced = receptive_field(operator, (slice(None), *index), binding)
            np.testing.assert_array_equal(sliced.counts, terms[(slice(None), *index)].sum(axis=0), err_msg=why)
        for axis in everything.axes:
            read = terms.any(axis=tuple(a for a in range(terms.ndim) if a != len(shape) + axis.axis))
            assert axis.positions == tuple(np.flatnonzero(read)), why


def test_many_terms_are_looked_at_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = sl.operators.unfold()
    binding = {"N": 1, "C": 2, "H": 3, "W": 4, "k_1": 3}
    whole = receptive_field(operator, None, binding).counts
    monkeypatch.setattr(room, "_CHUNK", 5)
    np.testing.assert_array_equal(receptive_field(operator, None, binding).counts, whole)
    monkeypatch.setattr(room, "MAX_POINTS", 100)
    with pytest.raises(SpecError, match="expected at most 100 terms to look at, found 216: give smaller sizes"):
        receptive_field(operator, None, binding)


def test_a_convolution_reads_its_window_and_all_channels() -> None:
    field = sl.operators.conv2d().receptive_field("center", SIZES)
    assert field.index == (1, 2, 3, 3)
    n, c, h, w = field.axes
    assert (n.positions, n.cover, n.offsets) == ((1,), "part", (0,))
    assert (c.cover, c.extent, c.output_axis, c.offsets) == ("whole", 3, None, None)
    assert (h.offsets, h.extent, w.offsets, h.output_axis) == ((-1, 0, 1), 3, (-1, 0, 1), 2)
    corner = sl.operators.conv2d().receptive_field((0, 0, 0, 6), SIZES)
    assert (corner.axes[2].offsets, corner.axes[3].offsets) == ((0, 1), (-1, 0))
    assert corner.mask.sum() == 3 * 2 * 2


def test_offsets_of_a_strided_and_of_a_dilated_convolution() -> None:
    strided = sl.operators.strided().receptive_field("center", SIZES)
    assert strided.axes[2].offsets == (-1, 0, 1)
    assert strided.axes[2].positions == (5, 6, 7)
    dilated = sl.operators.dilated().receptive_field("center", {**SIZES, "H": 11})
    assert dilated.axes[2].offsets == (-3, -1, 1)  # padded by (s*K)//2 = 3 on the left
    assert dilated.axes[2].extent == 5


def test_the_whole_output_may_leave_elements_out() -> None:
    build = Build("[s*H]", "[H]", ["H"], ["s", "k"])
    (h,) = build.output
    j = build.reduce("k")
    operator = build.finish(build.unfold(build.stride(h, "s"), j))
    field = operator.receptive_field(None, {"H": 3, "s": 3, "k": 1})
    assert field.axes[0].positions == (0, 3, 6)
    assert (field.axes[0].cover, field.axes[0].extent) == ("part", 7)


def test_operator_1_reads_what_a_convolution_reads() -> None:
    """The paper's words (section 9.2): the receptive field is a K x K window."""
    sizes = {**SIZES, "C_in": 8, "C_out": 8, "g": 4, "s": 2}
    field = sl.operators.operator_1().receptive_field("center", sizes)
    np.testing.assert_array_equal(field, sl.operators.conv2d().receptive_field("center", {**SIZES, "C_in": 8}).mask[:])
    assert len(parts(sl.operators.operator_1())) == 4


def test_nothing_is_read_where_a_bound_never_holds() -> None:
    build = Build("[H]", "[H]", ["H"], ["k", "s"])
    (h,) = build.output
    i = build.reduce("k")
    build.expand(build.unfold(build.reduce("k"), build.stride(i, "s")))
    field = build.finish(h).receptive_field(None, {"H": 3, "k": 1, "s": 7})
    assert field.axes[0].cover == "none"
    assert field.axes[0].extent == 0
    assert "reads 0 of 3 elements" in str(field)


def test_text_and_html() -> None:
    field = sl.operators.conv2d().receptive_field((0, 1, 2, None), SIZES)
    assert str(field).splitlines()[0] == "Y[0, 1, 2, :] reads 63 of 252 elements of X in 171 terms"
    assert "-1..1 from output axis 2" in str(field)
    assert field._repr_html_().startswith("<pre>Y[0, 1, 2, :]")
    assert ranges((-3, -2, -1, 4, 6, 7)) == "-3..-1, 4, 6..7"


@pytest.mark.parametrize(
    ("index", "found"),
    [
        ((0, 0), r"found 2: \(0, 0\)"),
        ((0, 0, 0, 7), r"found \(0, 0, 0, 7\)"),
        ((0, 0, -1, 0), "found"),
        (1.5, "found 1"),
    ],
)
def test_a_wrong_index_is_one_line(index: Any, found: str) -> None:
    expected = r"output index: expected an index for each of 4 output axes, below \[2, 4, 6, 7\], or None.*"
    with pytest.raises(SpecError, match=expected + found):
        sl.operators.conv2d().receptive_field(index, SIZES)
