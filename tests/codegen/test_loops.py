"""The printed loop nest runs as it is printed and is the meaning; an independent reading of Table 1 is the oracle."""

import random
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from strategies import random_arrays, random_operator, random_operators, repro

import syno_lab as sl
from syno_lab.codegen.loops import loops
from syno_lab.codegen.reference import reference
from syno_lab.codegen.text import expressions, names
from syno_lab.errors import SpecError
from syno_lab.ir.build import Build
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.synthesis.expressions import name


def run(text: str, arrays: list[np.ndarray], y: np.ndarray, sizes: list[int]) -> np.ndarray:
    """Execute the printed text; the sizes come in the order in which the variables are declared."""
    namespace: dict = {}
    exec(text, namespace)
    namespace["operator"](*arrays, y, *sizes)
    return y


def table_1(operator: Operator, binding: dict[str, int], x: np.ndarray, weights: list[np.ndarray]) -> np.ndarray:
    """The operator read off Table 1 once more, one term at a time, without the primitives' own expressions."""
    leaves = (*operator.output, *operator.reductions)
    y = np.zeros(operator.output_sizes(binding))
    for point in product(*(range(c.size.at(binding)) for c in leaves)):
        value: dict[Coordinate, int] = dict(zip(leaves, point, strict=True))
        zero = False
        for step in operator.steps:
            if step.primitive in ("REDUCE", "SHARE", "EXPAND"):
                continue
            old = [value[c] for c in step.operands]
            n = [c.size.at(binding) for c in step.operands]
            b = step.parameter.at(binding) if step.parameter is not None else 0
            match step.primitive:
                case "SPLIT":
                    new = [n[1] * old[0] + old[1]]
                case "MERGE":
                    new = list(divmod(old[0], b))
                case "SHIFT":
                    new = [old[0] + 1 if old[0] + 1 < n[0] else 0]
                case "STRIDE":
                    new = [b * old[0]]
                case "UNFOLD":
                    new = [old[0] + old[1] - int(np.floor(n[1] / 2))]
                    zero |= new[0] < 0 or new[0] >= n[0]
            value.update(zip(operator.state.results(step), new, strict=True))
        if not zero:
            term = x[tuple(value[c] for c in operator.inputs)]
            for array, weight in zip(weights, operator.weights, strict=True):
                term = term * array[tuple(value[c] for c in weight.coordinates)]
            y[point[: len(operator.output)]] += term
    return y


@pytest.mark.parametrize("seed", range(60))
def test_reference_is_table_1_and_the_text_is_the_reference(seed: int) -> None:
    operator, binding = random_operator(random.Random(seed), max_terms=1500)
    x, weights = random_arrays(operator, binding, seed)
    expected = table_1(operator, binding, x, weights)
    why = repro(operator, binding)
    np.testing.assert_allclose(reference(operator, x, *weights, binding=binding), expected, atol=1e-12, err_msg=why)
    y = np.full(expected.shape, np.nan)  # every element must be written
    run(loops(operator, binding), [x, *weights], y, [])
    np.testing.assert_allclose(y, expected, atol=1e-12, err_msg=why)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_operators(max_terms=500, max_moves=5))
def test_any_operator_sums_its_terms_exactly(drawn: tuple[Operator, dict[str, int]]) -> None:
    """In integers there is no tolerance, and a counterexample is shrunk to a few steps."""
    operator, binding = drawn
    x, weights = random_arrays(operator, binding, 1, np.int64)
    expected = table_1(operator, binding, x, weights)
    np.testing.assert_array_equal(
        reference(operator, x, *weights, binding=binding), expected, err_msg=repro(operator, binding)
    )


def test_a_term_is_zero_where_any_unfold_is_outside() -> None:
    """Also one that only a weight or an EXPAND sees, and one that a SHIFT stands on (Table 1; DESIGN section 3)."""
    build = Build("[]", "[H, k]", ["H"], ["k"])
    h, j = build.output
    build.expand(build.unfold(h, j))
    np.testing.assert_array_equal(
        reference(build.finish(), 1, binding={"H": 3, "k": 3}), [[0, 1, 1], [1, 1, 1], [1, 1, 0]]
    )

    build = Build("[W]", "[H, W]", ["H", "W"], ["k"])
    h, i = build.output
    j = build.reduce("k")
    build.contract(share=[i], give=[build.unfold(h, j)])
    operator = build.finish(i)
    y = reference(operator, np.ones(2), np.array([[1, 10], [2, 20]]), binding={"H": 2, "W": 2, "k": 3})
    np.testing.assert_array_equal(y, [[11, 22], [11, 22]])

    build = Build("[H]", "[H]", ["H"], ["k"])
    (h,) = build.output
    operator = build.finish(build.shift(build.unfold(h, build.reduce("k"))))
    y = reference(operator, np.array([1, 10, 100, 1000]), binding={"H": 4, "k": 3})
    np.testing.assert_array_equal(y, [110, 1110, 1101, 1001])  # h-1, h, h+1 inside [0, 4), then each rolled by one


def test_the_symbolic_text_takes_the_sizes_as_arguments() -> None:
    operator = sl.operators.conv1d()
    binding = {"N": 1, "C_in": 2, "C_out": 3, "H": 5, "k_1": 4}
    x, weights = random_arrays(operator, binding, 0)
    y = run(operator.loops(), [x, *weights], np.zeros((1, 3, 5)), list(binding.values()))
    np.testing.assert_allclose(y, operator.reference(x, *weights, binding=binding))


@pytest.mark.parametrize("name", ["conv2d", "operator_1", "pixel_shuffle", "half_step_shift", "upsample_nearest"])
def test_golden(name: str, golden) -> None:
    golden(f"loops/{name}.txt", sl.operators.KNOWN[name]().loops())


def test_parentheses_are_written_where_they_matter() -> None:
    a, b, c = map(name, "abc")
    x, y, z = 17, 5, 3
    for expression, written, expected in (
        ((a + b) * c, "(a + b)*c", (x + y) * z),
        (a // b * c, "(a//b)*c", x // y * z),
        (a // (b * c), "a//(b*c)", x // (y * z)),
        ((a // b) % c, "(a//b) % c", (x // y) % z),
        ((a + 1) % b, "(a + 1) % b", (x + 1) % y),
        (a - (b - c), "a - (b - c)", x - (y - z)),
        (a - b - c, "a - b - c", x - y - z),
        (a - b // 2, "a - b//2", x - y // 2),
        (c * (a % b), "c*(a % b)", z * (x % y)),
        (a * b // c, "(a*b)//c", x * y // z),
        (2 * a + 1 - b, "2*a + 1 - b", 2 * x + 1 - y),
        (1 + a // b, "1 + a//b", 1 + x // y),
        (100 // b % 7 - a, "(100//b) % 7 - a", 100 // y % 7 - x),
        (100 % a, "100 % a", 100 % x),
        (1 - (a + b), "1 - (a + b)", 1 - (x + y)),
    ):
        assert str(expression) == written
        assert eval(written, {}, {"a": x, "b": y, "c": z}) == expected, written


def test_names_are_different_identifiers() -> None:
    operator = sl.operators.stacked_grouped_convolution()
    found = list(names(operator).values())
    assert len(set(found)) == len(found)
    assert all(name.isidentifier() for name in found)
    assert set(names(operator)) <= set(expressions(operator))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([np.zeros((2, 3)), np.zeros((4, 5))], r"weight 1: expected shape \[3, 5\], found \[4, 5\]"),
        ([np.zeros((2, 4)), np.zeros((3, 5))], r"the input: expected shape \[2, 3\], found \[2, 4\]"),
        ([np.zeros((2, 3))], "weights: expected 1 arrays after the input, found 0"),
        ([np.zeros(6), np.zeros((3, 5))], r"the input: expected shape \[2, 3\], found \[6\]"),
    ],
)
def test_wrong_shapes_are_named(arrays: list[np.ndarray], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        sl.operators.matmul().reference(*arrays, binding={"M": 2, "K": 3, "N": 5})


def test_the_binding_is_read_off_the_arguments() -> None:
    x = np.ones((1, 2, 3, 4))
    assert sl.operators.depthwise().reference(x, np.ones((2, 3, 3))).shape == (1, 2, 3, 4)
    assert sl.operators.conv2d().reference(x, np.ones((2, 5, 5, 7))).shape == (1, 7, 3, 4)  # C_out, and not k_1=3
    with pytest.raises(SpecError, match=r"the input: expected shape \[1, 2, 3, 4\], found \[1, 3, 4\]"):
        sl.operators.depthwise().reference(x[:, 0], np.ones((2, 3, 3)), binding={"N": 1, "C": 2, "H": 3, "W": 4})
    with pytest.raises(SpecError, match=r"weight 1: expected shape \[2, 3, 3\], found \[5, 3, 3\]"):
        sl.operators.depthwise().reference(x, np.ones((5, 3, 3)))
    with pytest.raises(SpecError, match="no value for N, C, H, W"):
        sl.operators.depthwise().reference(x[0], np.ones((2, 3)))


def test_what_no_axis_tells_comes_from_the_bindings_of_the_spec() -> None:
    build = Build("[s^2*H]", "[H]", ["H"], ["s"], mappings=[{"H": 2, "s": 3}])
    (h,) = build.output
    r, q = build.reduce("s"), build.reduce("s")
    operator = build.finish(build.split(build.split(h, r), q))
    np.testing.assert_array_equal(reference(operator, np.arange(18)), [sum(range(9)), sum(range(9, 18))])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128, np.int64])
def test_dtypes_are_kept(dtype: type) -> None:
    x, w = np.array([[1, 2], [3, 4]], dtype), np.array([[5, 6, 7], [8, 9, 10]], dtype)
    y = sl.operators.matmul().reference(x, w)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, x @ w)


@pytest.mark.parametrize("name", ["X", "Y", "W1", "i_H", "r_k", "i_H__2", "operator"])
def test_variables_may_be_called_like_anything_in_the_loop_nest(name: str) -> None:
    build = Build(f"[H, {name}]", f"[H, {name}]", ["H", name], ["k"])
    h, i = build.output
    r = build.reduce("k")
    build.contract(share=[r])
    operator = build.finish(h, build.unfold(i, r))
    sizes = {"H": 2, name: 5, "k": 3}
    x, weights = random_arrays(operator, sizes, 0)
    expected = reference(operator, x, *weights, binding=sizes)
    for text, arguments in ((loops(operator), sizes), (loops(operator, sizes), {})):
        np.testing.assert_allclose(
            run(text, [x, *weights], np.full((2, 5), np.nan), list(arguments.values())), expected
        )


def test_a_scalar_is_a_tensor() -> None:
    build = Build("[]", "[]", ["H"])
    operator = build.finish()
    assert reference(operator, 3.0, binding={"H": 1}) == 3.0
    y = np.zeros(())
    run(loops(operator), [np.asarray(3.0)], y, [])
    assert y == 3.0
