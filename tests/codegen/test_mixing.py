"""The pairing and locality matrices, against the paper's figure and its definitions applied to the Jacobian."""

import random

import numpy as np
import pytest
from strategies import random_operator, repro

import syno_lab as sl
from syno_lab.codegen import mixing as room
from syno_lab.codegen.mixing import column_by_rules, mixing
from syno_lab.codegen.nest import generic_binding
from syno_lab.codegen.reference import reference
from syno_lab.errors import SpecError
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator


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


def by_definition(operator: Operator, binding: dict[str, int]) -> list[str]:
    """Definitions 3.1 to 3.5 word for word: every slice, every element, every position."""
    contributes = jacobian(operator, binding) > 0
    out, inp = operator.output_sizes(binding), operator.input_sizes(binding)
    m, n = len(out), len(inp)
    found = []
    for k in range(m):
        row = ""
        for axis in range(n):
            others = tuple(a for a in range(n) if a != axis)
            paired = False
            for index in np.ndindex(*out[:k], *out[k + 1 :]):
                preimage = contributes[(*index[:k], slice(None), *index[k:])].any(axis=0)
                paired |= bool(preimage.any(axis=others).all())
            marks = {
                int(contributes[index].any(axis=others).sum()) for index in np.ndindex(out)
            }  # how many positions along the axis each element reads
            local = "a" if inp[axis] in marks else "m" if max(marks) > 1 else "o"
            row += local if paired else "x"
        found.append(row)
    return found


def rows(operator: Operator, binding: dict[str, int] | None = None) -> list[str]:
    return ["".join(row) for row in mixing(operator, binding).locality]


def test_figure_4_of_the_paper() -> None:
    """A 3x3 convolution over B, H, W, C; the paper's Fig. 4a and 4b."""
    build = Build("[B, H, W, C]", "[B, H, W, C]", ["B", "H", "W", "C"], ["k=3"], fixed_io_pairs=[(0, 0)])
    b, h, w, o = build.output
    c, p, q = build.reduce("C"), build.reduce("k"), build.reduce("k")
    build.contract(share=[c, p, q], give=[o])
    found = build.finish(b, build.unfold(h, p), build.unfold(w, q), c).mixing()
    assert ["".join(row) for row in found.locality] == ["oxxa", "xmxa", "xxma", "xxxa"]
    assert found.pairing[0] == (True, False, False, True)
    assert all(map(all, found.proved))
    assert found.settled


def test_dense_is_less_than_convolution_is_less_than_fully_connected() -> None:
    """The example of section 3.1, and the partial order x < o < m < a."""
    dense, conv = sl.operators.conv1x1().mixing(), sl.operators.conv2d().mixing()
    assert rows(sl.operators.conv1x1()) == ["oaxx", "xaxx", "xaox", "xaxo"]
    build = Build("[N, C_in, H, W]", "[N, C_out, H, W]", ["N", "C_in", "C_out", "H", "W"], fixed_io_pairs=[(0, 0)])
    n, o, h, w = build.output
    c, y, x = build.reduce("C_in"), build.reduce("H"), build.reduce("W")
    build.contract(share=[c, y, x], give=[o, h, w])
    full = build.finish(n, c, y, x).mixing()
    assert dense <= conv <= full
    assert not conv <= dense
    assert not full <= conv
    with pytest.raises(SpecError, match="mixing: expected 4 output and 4 input axes to compare with, found 2 and 2"):
        _ = conv <= sl.operators.matmul().mixing()


def test_a_transposition_is_told_by_the_pairing_alone() -> None:
    """The paper: locality cannot tell an identity from a transposition, pairing can."""
    build = Build("[W, H]", "[H, W]", ["H", "W"])
    h, w = build.output
    assert rows(build.finish(w, h)) == ["xo", "ox"]


def test_every_entry_is_by_definition(rng: random.Random) -> None:
    # The rarest mark is in 12 % of operators: none of it in so many is one run in 10^21.
    marks: set[str] = set()
    for number in range(400):
        if number >= 60 and marks == set("xoma"):
            break
        operator, binding = random_operator(random.Random(rng.getrandbits(60)), max_terms=1500, max_elements=80)
        found = rows(operator, binding)
        assert found == by_definition(operator, binding), repro(operator, binding)
        marks.update("".join(found))
    assert marks == set("xoma"), "the draws have every kind of entry"


def test_rules_agree_with_the_numbers_of_generic_sizes(rng: random.Random) -> None:
    """What is proved is what looking at every element finds, for operators small enough at generic sizes."""
    proved = 0
    for _ in range(200):
        operator, _ = random_operator(random.Random(rng.getrandbits(60)), max_terms=2000, max_moves=4)
        try:
            bound = generic_binding(operator)
        except SpecError:
            continue
        numbers = [c.size.at(bound) for c in (*operator.output, *operator.reductions)]
        lengths = operator.input_sizes(bound)
        every = [c.size for c in (*operator.output, *operator.reductions, *operator.inputs)]
        if np.prod(numbers, dtype=float) * max(lengths, default=1) > 1e6:
            continue
        if any(size.at(bound) == 1 and not size.is_one for size in every):
            continue
        concrete = mixing(operator, bound).locality
        for out in range(len(operator.output)):
            for axis in range(len(operator.inputs)):
                mark = column_by_rules(operator, axis).marks[out]
                if mark is not None:
                    proved += 1
                    assert mark == concrete[out][axis], f"{out}, {axis}: {mark}, {bound} {repro(operator, bound)}"
    assert proved > 30


@pytest.mark.parametrize("name", sorted(sl.operators.KNOWN))
def test_known_operators_at_generic_sizes(name: str) -> None:
    operator = sl.operators.KNOWN[name]()
    found = mixing(operator)
    assert found.settled
    assert found.locality == mixing(operator, generic_binding(operator, 2)).locality


def test_an_axis_of_length_1_is_all_of_itself() -> None:
    assert rows(sl.operators.conv1x1(), {"N": 1, "C_in": 2, "C_out": 3, "H": 4, "W": 5})[2] == "aaox"


def test_nothing_is_paired_where_nothing_is_read() -> None:
    build = Build("[H]", "[H]", ["H"], ["k", "s"])
    (h,) = build.output
    i = build.reduce("k")
    build.expand(build.unfold(build.reduce("k"), build.stride(i, "s")))
    assert rows(build.finish(h), {"H": 3, "k": 1, "s": 7}) == ["x"]


def test_text_html_and_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sl.operators.conv1d().mixing()
    assert str(found).splitlines()[:2] == ["out \\ in  N  C_in  H", "N         o  a     x"]
    assert '<td title="all-to-one">a</td>' in found._repr_html_()
    monkeypatch.setattr(room, "MAX_ELEMENTS", 10)
    with pytest.raises(SpecError, match="mixing: expected at most 10 pairs of an output element and a position"):
        sl.operators.unfold().mixing()
