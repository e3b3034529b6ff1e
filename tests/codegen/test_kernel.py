"""The kernel of an operator, against the loop nest's meaning on inputs with a single 1."""

import random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import random_operator

from syno_lab.codegen import kernel as module
from syno_lab.codegen.kernel import kernel
from syno_lab.errors import SynoError
from syno_lab.ir.operator import Operator
from syno_lab.operators import KNOWN, conv2d, operator_1

SIZES = {"N": 2, "C_in": 4, "C_out": 8, "H": 6, "W": 5, "k_1": 3, "g": 2, "s": 2, "M": 3, "K": 4, "C": 4}
SIZES |= {"D_in": 4, "D_out": 6}
FAST = settings(deadline=None, max_examples=40)


def by_meaning(
    operator: Operator, weights: list[np.ndarray], binding: dict[str, int], fixed: dict[int, int]
) -> np.ndarray:
    """The output at ``fixed`` for each input with a single 1."""
    shape = operator.input_sizes(binding)
    at = tuple(fixed.get(axis, slice(None)) for axis in range(len(operator.output)))
    columns = []
    for place in np.ndindex(*shape):
        x = np.zeros(shape)
        x[place] = 1.0
        columns.append(operator.reference(x, *weights, binding=binding)[at])
    found = np.stack(columns, axis=-1)
    return found.reshape((*found.shape[:-1], *shape))


def checked(operator: Operator, binding: dict[str, int], fixed: dict[int, int], seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal(shape) for shape in operator.weight_sizes(binding)]
    found = kernel(operator, weights, binding, fixed)
    np.testing.assert_allclose(found, by_meaning(operator, weights, binding, fixed), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "name", ["matmul", "conv1x1", "conv1d", "depthwise", "shift_conv", "sum_pool", "pixel_shuffle"]
)
def test_a_known_operator_in_the_middle_and_at_the_edge(name: str) -> None:
    operator = KNOWN[name]()
    binding = {variable: SIZES[variable] for variable in operator.variables}
    shape = operator.output_sizes(binding)
    for place in ([size // 2 for size in shape], [0 for _ in shape], [size - 1 for size in shape]):
        checked(operator, binding, {axis: index for axis, index in enumerate(place) if axis != 1})


@FAST
@given(seed=st.integers(0, 2**32 - 1), some=st.integers(0, 7))
def test_any_operator_at_any_place(seed: int, some: int) -> None:
    rng = random.Random(seed)
    operator, binding = random_operator(rng, max_terms=400, max_elements=60)
    shape = operator.output_sizes(binding)
    fixed = {axis: rng.randrange(size) for axis, size in enumerate(shape) if some >> axis & 1}
    try:
        checked(operator, binding, fixed, seed)
    except SynoError as error:  # larger than what the kernel is computed for
        if "kernel: expected at most" not in str(error):
            raise
        assume(False)


def test_factors_without_an_axis_are_numbers() -> None:
    # All sizes are 1: no factor has an axis, as in the kernel of a scalar.
    checked(conv2d(), {"N": 1, "C_in": 1, "C_out": 1, "H": 1, "W": 1, "k_1": 1}, {0: 0, 1: 0, 2: 0, 3: 0})
    assert module._contract([(np.array(2.0), ()), (np.array(3.0), ())], []) == 6


def test_conv2d_is_its_weight() -> None:
    binding = {"N": 1, "C_in": 4, "C_out": 6, "H": 7, "W": 8, "k_1": 3}
    operator = conv2d()
    (shape,) = operator.weight_sizes(binding)
    weight = np.random.default_rng(1).standard_normal(shape)
    found = kernel(operator, [weight], binding, {0: 0, 2: 3, 3: 4})
    assert found.shape == (6, 1, 4, 7, 8)
    window = found[:, 0, :, 2:5, 3:6]
    assert np.count_nonzero(found) == np.count_nonzero(window) == weight.size
    assert sorted(window.ravel()) == pytest.approx(sorted(weight.ravel()))


def test_what_is_too_large_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    binding = {"N": 1, "C_in": 8, "C_out": 8, "H": 6, "W": 6, "k_1": 3, "g": 2, "s": 2}
    weights = [np.ones(shape) for shape in operator_1().weight_sizes(binding)]
    monkeypatch.setattr(module, "MOST_ELEMENTS", 200)
    with pytest.raises(SynoError, match=r"kernel: expected at most 200 elements in a step, found [\d,]+: give smaller"):
        kernel(operator_1(), weights, binding, {0: 0, 2: 3, 3: 3})
