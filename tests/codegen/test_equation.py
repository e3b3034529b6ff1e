"""Equations and tables of coordinates: sympy's value is the meaning, and the texts are read back."""

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy
from strategies import random_arrays, random_operator, repro
from sympy.printing.pycode import PythonCodePrinter

import syno_lab as sl
from syno_lab.codegen.coordinates import coordinates
from syno_lab.codegen.equation import Equation, array_latex, equation
from syno_lab.codegen.reference import reference
from syno_lab.errors import SpecError
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator

BINDING = {"N": 1, "C_in": 4, "C_out": 8, "H": 4, "W": 3, "C": 4, "M": 2, "K": 3, "D_in": 4, "D_out": 8}


class _Exact(PythonCodePrinter):
    """Sympy divides a condition by a common factor, and thirds are not what they were once they are floats."""

    def _print_Rational(self, number: sympy.Rational) -> str:
        return f"Fraction({number.p}, {number.q})"


def value(found: sympy.Eq, arrays: dict[str, Any], binding: dict[str, int]) -> np.ndarray:
    """The left side's array, each element the right side's value with numbers for sizes, iterators and elements."""
    sizes = {sympy.Symbol(n, integer=True, positive=True): v for n, v in binding.items()}
    target = found.lhs
    axes = target.indices if isinstance(target, sympy.Indexed) else ()
    name = str(target.base) if isinstance(target, sympy.Indexed) else str(target)
    right = found.rhs.subs(sizes)
    if isinstance(right, sympy.Sum):
        inner, limits = right.function, [(v, int(a), int(b)) for v, a, b in right.limits]
    else:
        inner, limits = right, []
    arguments = [*axes, *(v for v, _, _ in limits), *arrays]
    terms = sympy.lambdify(arguments, inner, modules=[{"Fraction": Fraction, "math": math}], printer=_Exact)
    y = arrays[name].copy()
    for place in np.ndindex(y.shape):
        total = 0
        for point in np.ndindex(*(b - a + 1 for _, a, b in limits)):
            total += terms(*place, *point, *arrays.values())
        y[place] = total
    return y


def test_sympy_has_the_value_of_the_loop_nest(rng: random.Random) -> None:
    for _ in range(12):
        operator, binding = random_operator(random.Random(rng.getrandbits(60)), max_terms=300, max_elements=60)
        if not operator.inputs or not operator.output or not all(w.coordinates for w in operator.weights):
            continue  # a scalar is a plain symbol; see below
        x, weights = random_arrays(operator, binding, 3, np.int64)
        expected = reference(operator, x, *weights, binding=binding)
        arrays = {"X": x, **{f"W{i + 1}": w for i, w in enumerate(weights)}, "Y": np.zeros_like(expected)}
        found = value(equation(operator).sympy, arrays, binding)
        np.testing.assert_array_equal(found, expected, err_msg=repro(operator, binding))


@pytest.mark.parametrize("name", ["conv1d", "operator_2", "half_step_shift", "pixel_shuffle", "matmul"])
def test_sympy_has_the_value_of_known_operators_by_stages_and_of_gradients(name: str) -> None:
    operator = sl.operators.KNOWN[name]()
    binding = {v: BINDING[v] for v in operator.spec.symbols.primary} | operator.spec.defaults
    if name == "operator_2":
        binding |= {"H": 2, "C_out": 4, "g": 2}
    x, weights = random_arrays(operator, binding, 3, np.int64)
    tensors = {"X": x, **{f"W{i + 1}": w for i, w in enumerate(weights)}}
    expected = reference(operator, x, *weights, binding=binding)
    known: dict[str, Any] = dict(tensors)
    staged = equation(operator, binding, staged=True)
    for stage, nest in zip(staged.equations, staged.program.nests, strict=True):
        shape = [loop.size.at(binding) for loop in nest.over]
        known[nest.result.array] = np.zeros(shape, dtype=np.int64)
        known[nest.result.array] = value(stage, known, binding)
    np.testing.assert_array_equal(known["Y"], expected)
    dy = np.random.default_rng(1).integers(-3, 4, expected.shape)
    for wrt, array in tensors.items():
        arrays = {"dY": dy, **{k: a for k, a in tensors.items() if k != wrt}, f"d{wrt}": np.zeros_like(array)}
        found = value(equation(operator, wrt=wrt).sympy, arrays, binding)
        change = np.random.default_rng(2).integers(-3, 4, array.shape)
        given = [change if k == wrt else a for k, a in tensors.items()]
        assert (found * change).sum() == (dy * reference(operator, *given, binding=binding)).sum()


def test_a_convolution_reads_as_in_the_papers() -> None:
    found = sl.operators.conv2d().equation()
    assert isinstance(found, Equation)
    assert str(found) == (
        "Y[n, o, h, w] = sum over c < C_in, p < k_1, q < k_1 of [0 <= h + p - k_1//2 < H] [0 <= w + q - k_1//2 < W] "
        "X[n, c, h + p - k_1//2, w + q - k_1//2] W1[c, p, q, o]"
    )
    assert found.latex == (
        r"Y[n, o, h, w] = \sum_{c=0}^{C_{in}-1} \sum_{p=0}^{k_{1}-1} \sum_{q=0}^{k_{1}-1} "
        r"\left[0 \le h + p - \left\lfloor k_{1} / 2 \right\rfloor < H\right] "
        r"\left[0 \le w + q - \left\lfloor k_{1} / 2 \right\rfloor < W\right] "
        r"X[n, c, h + p - \left\lfloor k_{1} / 2 \right\rfloor, w + q - \left\lfloor k_{1} / 2 \right\rfloor] \, "
        r"W_{1}[c, p, q, o]"
    )
    assert found._repr_latex_() == f"$\\displaystyle {found.latex}$"


def test_golden(golden: Any) -> None:
    for name in ("conv2d", "operator_1"):
        operator = sl.operators.KNOWN[name]()
        texts = []
        for found in (operator.equation(), operator.equation(staged=True), operator.equation(wrt="X")):
            texts += [str(found), found.latex]
        golden(f"equations/{name}.txt", "\n\n".join(texts) + "\n")
        tables = [str(operator.coordinates()), str(operator.coordinates(wrt="X"))]
        golden(f"coordinates/{name}.txt", "\n\n".join(tables) + "\n")


def balanced(text: str) -> bool:
    return text.count("{") == text.count("}") and text.count(r"\left") == text.count(r"\right")


def test_latex_is_balanced_and_names_are_all_different(rng: random.Random) -> None:
    for _ in range(30):
        operator, _ = random_operator(random.Random(rng.getrandbits(60)))
        for found in (operator.equation(), operator.equation(staged=True), operator.equation(wrt="X")):
            assert balanced(found.latex)
            for nest in found.program.nests:
                names = [loop.name for loop in (*nest.over, *nest.sums)]
                assert len(set(names)) == len(names)
                assert not set(names) & set(operator.spec.symbols.names)


def test_scalars_and_names_of_arrays() -> None:
    found = Build("[]", "[]", ["H"]).finish().equation()
    assert found.sympy == sympy.Eq(sympy.Symbol("Y"), sympy.Symbol("X"), evaluate=False)
    assert [array_latex(name) for name in ("X", "W12", "dX", "dW1", "X_")] == [
        "X", "W_{12}", r"\mathrm{d}X", r"\mathrm{d}W_{1}", r"X_{\_}",
    ]  # fmt: skip


def test_a_wrong_tensor_is_one_line() -> None:
    with pytest.raises(SpecError, match="wrt: expected X or W1, found 'Z'"):
        sl.operators.conv2d().equation(wrt="Z")
    with pytest.raises(SpecError, match="wrt: expected X or W1, found 'Z'"):
        sl.operators.conv2d().coordinates(wrt="Z")
    with pytest.raises(SpecError, match="staged: the stages are those of the forward operator"):
        sl.operators.conv2d().equation(wrt="X", staged=True)


# -- the table ---------------------------------------------------------------------------------------------------------


def evaluated(operator: Operator, binding: dict[str, int], x: np.ndarray, weights: list[np.ndarray]) -> np.ndarray:
    """The operator once more, from the columns ``expression`` and ``condition`` alone."""
    rows = list(coordinates(operator, binding))
    index = {t: [compile(r.expression, "", "eval") for r in rows if r.tensor == t] for t in {r.tensor for r in rows}}
    asked = [compile(r.condition, "", "eval") for r in rows if r.condition]
    over = [r for r in rows if r.tensor in ("Y", "sum")]
    arrays = {"X": x, **{f"W{i + 1}": w for i, w in enumerate(weights)}}
    y = np.zeros(operator.output_sizes(binding), dtype=np.int64)
    for point in np.ndindex(*(r.number for r in over if r.number is not None)):
        names = {**binding, **{r.expression: i for r, i in zip(over, point, strict=True)}}
        if all(eval(condition, {}, names) for condition in asked):
            term = 1
            for key, array in arrays.items():
                term = term * array[tuple(eval(e, {}, names) for e in index.get(key, []))]
            y[tuple(eval(e, {}, names) for e in index.get("Y", []))] += term
    return y


def test_the_table_alone_is_the_operator(rng: random.Random) -> None:
    for _ in range(25):
        operator, binding = random_operator(random.Random(rng.getrandbits(60)), max_terms=400)
        x, weights = random_arrays(operator, binding, 3, np.int64)
        expected = reference(operator, x, *weights, binding=binding)
        np.testing.assert_array_equal(
            evaluated(operator, binding, x, weights), expected, err_msg=repro(operator, binding)
        )


def test_rows_frame_and_html() -> None:
    operator = sl.operators.operator_1()
    table = operator.coordinates({"N": 1, "C_in": 8, "C_out": 8, "H": 5, "W": 6})
    frame = table.to_frame()
    assert list(frame.columns) == ["tensor", "axis", "size", "number", "expression", "condition", "latex"]
    assert len(frame) == len(table) == 4 + 4 + 5 + 3 + 5
    row = frame[(frame.tensor == "X") & (frame.axis == 1)].iloc[0]
    assert (row["size"], row["number"], row["expression"]) == ("C_in", 8, "(C_in//g)*r_g + r_C_in_by_g")
    assert row["latex"] == r"(C_{in}/g) \, a + c"
    assert [r.condition for r in table if r.tensor == "X"][2] == "0 <= i_H + r_k_1 - k_1//2 < H"
    assert "<td>0 &lt;= i_H + r_k_1 - k_1//2 &lt; H</td>" in table._repr_html_()
    assert all(balanced(r.latex) for r in table)
    assert all(r.number is None for r in operator.coordinates())


def test_a_bound_that_no_index_shows_has_a_row_of_its_own() -> None:
    build = Build("[]", "[H, k]", ["H"], ["k"])
    h, j = build.output
    build.expand(build.unfold(h, j))
    (row,) = [r for r in build.finish().coordinates({"H": 3, "k": 3}) if r.tensor == "term"]
    assert (row.axis, row.size, row.number) == (None, "H", 3)
    assert row.condition == "0 <= i_H + i_k - k//2 < H"


def test_of_a_gradient_the_tensor_has_its_own_iterators() -> None:
    table = sl.operators.strided().coordinates(wrt="X")
    assert [r.expression for r in table if r.tensor == "dX"] == ["i_N", "r_C_in", "x_H_s", "x_W_s"]
    height = next(r for r in table if r.tensor == "dY" and r.axis == 2)
    assert height.expression == "(x_H_s - r_k_1 + k_1//2)//s"
    assert height.condition == "0 <= x_H_s - r_k_1 + k_1//2 < H*s and (x_H_s - r_k_1 + k_1//2) % s == 0"
