"""The printed loop nest runs as it is printed and is the meaning; an independent reading of Table 1 is the oracle."""

import random
from itertools import product

import numpy as np
import pytest
from strategies import random_arrays, random_operator, repro

import syno_lab as sl
from syno_lab.codegen.loops import loops
from syno_lab.codegen.reference import reference
from syno_lab.codegen.text import Text, expressions, names
from syno_lab.errors import SynoError
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator


def run(text: str, arrays: list[np.ndarray], y: np.ndarray, sizes: dict[str, int]) -> np.ndarray:
    namespace: dict = {}
    exec(text, namespace)
    namespace["operator"](*arrays, y, **sizes)
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
    run(loops(operator, binding), [x, *weights], y, {})
    np.testing.assert_allclose(y, expected, atol=1e-12, err_msg=why)


def test_the_symbolic_text_takes_the_sizes_as_arguments() -> None:
    operator = sl.operators.conv1d()
    binding = {"N": 1, "C_in": 2, "C_out": 3, "H": 5, "k_1": 4}
    x, weights = random_arrays(operator, binding, 0)
    y = run(operator.loops(), [x, *weights], np.zeros((1, 3, 5)), binding)
    np.testing.assert_allclose(y, operator.reference(x, *weights, binding=binding))


@pytest.mark.parametrize("name", ["conv2d", "operator_1", "pixel_shuffle", "half_step_shift", "upsample_nearest"])
def test_golden(name: str, golden) -> None:
    golden(f"loops/{name}.txt", sl.operators.KNOWN[name]().loops())


def test_parentheses_are_written_where_they_matter() -> None:
    a, b, c = Text("a"), Text("b"), Text("c")
    for expression in ((a + b) * c, a // b * c, (a // b) % c, (a + 1) % b, a - (b - c), a - b // 2, c * (a % b), a * b // c):
        values = {"a": 17, "b": 5, "c": 3}
        env = [values["a"], values["b"], values["c"]]
        x, y, z = env
        expected = {
            str((a + b) * c): (x + y) * z, str(a // b * c): x // y * z, str((a // b) % c): (x // y) % z,
            str((a + 1) % b): (x + 1) % y, str(a - (b - c)): x - (y - z), str(a - b // 2): x - y // 2,
            str(c * (a % b)): z * (x % y), str(a * b // c): x * y // z,
        }[str(expression)]
        assert eval(str(expression), {}, values) == expected, str(expression)


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
        ([np.zeros((2, 3))], "expected 1 weights, found 0"),
    ],
)
def test_wrong_shapes_are_named(arrays: list[np.ndarray], message: str) -> None:
    with pytest.raises(SynoError, match=message):
        sl.operators.matmul().reference(*arrays, binding={"M": 2, "K": 3, "N": 5})


def test_the_binding_is_read_off_the_input() -> None:
    x = np.ones((1, 2, 3, 4))
    assert sl.operators.depthwise().reference(x, np.ones((2, 3, 3))).shape == (1, 2, 3, 4)
