"""Known operators, element for element, against the PyTorch operators that they claim to be (float64)."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from strategies import random_arrays
from torch.nn import functional as F

import syno_lab as sl
from syno_lab.codegen.reference import reference
from syno_lab.errors import PrimitiveError
from syno_lab.operators import KNOWN
from syno_lab.operators.known import grouped_strided

Tensor = torch.Tensor
Binding = dict[str, int]
IMAGE = [
    {"N": 2, "C": 3, "C_in": 4, "C_out": 8, "H": 6, "W": 5, "k_1": 3, "s": 2, "g": 2},
    {"N": 1, "C": 2, "C_in": 6, "C_out": 12, "H": 5, "W": 8, "k_1": 4, "s": 2, "g": 3},
    {"N": 3, "C": 4, "C_in": 4, "C_out": 12, "H": 3, "W": 4, "k_1": 5, "s": 3, "g": 4},
    {"N": 1, "C": 1, "C_in": 2, "C_out": 4, "H": 4, "W": 6, "k_1": 2, "s": 1, "g": 2},
]


def padded(x: Tensor, k: int, dilation: int = 1, axes: int = 2) -> Tensor:
    """Zero padding as Table 1 has it: for even kernels and dilation not PyTorch's symmetric one."""
    left = dilation * k // 2
    right = dilation * (k - 1) - left
    return F.pad(x, (left, right) * axes)


def conv(x: Tensor, w: Tensor, b: Binding, **options: int) -> Tensor:
    """``w`` is [C_in, K, K, C_out], as the pGraph has it."""
    return F.conv2d(padded(x, b["k_1"], options.get("dilation", 1)), w.permute(3, 0, 1, 2), **options)


def grouped(x: Tensor, w: Tensor, b: Binding) -> Tensor:
    g, c, k, _, o = w.shape
    return F.conv2d(padded(x, k), w.permute(0, 4, 1, 2, 3).reshape(g * o, c, k, k), groups=g)


def strided(x: Tensor, w: Tensor, b: Binding) -> Tensor:
    full = F.conv2d(padded(x, b["k_1"]), w.permute(3, 0, 1, 2))
    return full[:, :, :: b["s"], :: b["s"]]


def two_stages(x: Tensor, w2: Tensor, w1: Tensor, b: Binding, kernel: int) -> Tensor:
    """1 x K by groups, then a convolution over both axes (kernel K in the width) or the height alone (kernel 1)."""
    k, g = b["k_1"], b["g"]
    m = w1.shape[2]
    first = w1.reshape(g, -1, k, m).permute(0, 3, 1, 2).reshape(g * m, -1, 1, k)
    z = F.conv2d(F.pad(x, (k // 2, k - 1 - k // 2)), first, groups=g)
    second = (w2 if kernel > 1 else w2.unsqueeze(2)).permute(4, 0, 3, 1, 2).reshape(w2.shape[-1], g * m, k, kernel)
    left, right = kernel // 2, kernel - 1 - kernel // 2
    return F.conv2d(F.pad(z, (left, right, k // 2, k - 1 - k // 2)), second)


NAMESAKES: dict[str, Callable[..., Tensor]] = {
    "conv1x1": lambda x, w, b: F.conv2d(x, w.T[:, :, None, None]),
    "conv2d": conv,
    "strided": strided,
    "dilated": lambda x, w, b: conv(x, w, b, dilation=b["s"]),
    "depthwise": lambda x, w, b: F.conv2d(padded(x, b["k_1"]), w[:, None], groups=b["C"]),
    "grouped": grouped,
    "separable": lambda x, w1, w2, b: F.conv2d(
        F.conv2d(padded(x, b["k_1"]), w2[:, None], groups=b["C_in"]), w1.T[:, :, None, None]
    ),
    "shift_conv": lambda x, w, b: F.conv2d(torch.roll(x, -1, 2), w.T[:, :, None, None]),
    "sum_pool": lambda x, b: F.avg_pool2d(x, b["s"]) * b["s"] ** 2,
    "sum_pool_window": lambda x, b: F.avg_pool2d(padded(x, b["k_1"]), b["k_1"], 1) * b["k_1"] ** 2,
    "pixel_shuffle": lambda x, b: F.pixel_shuffle(x, b["s"]),
    "pixel_unshuffle": lambda x, b: F.pixel_unshuffle(x, b["s"]),
    "unfold": lambda x, b: F.unfold(padded(x, b["k_1"]), b["k_1"]),
    "fold": lambda x, b: F.fold(x, (b["k_1"] * b["H"], b["k_1"] * b["W"]), b["k_1"], stride=b["k_1"]),
    "upsample_nearest": lambda x, b: F.interpolate(x, scale_factor=b["s"], mode="nearest"),
    "stacked_grouped_convolution": lambda x, w2, w1, b: two_stages(x, w2, w1, b, b["k_1"]),
    "operator_2": lambda x, w2, w1, b: two_stages(x, w2, w1, b, 1),
}


@pytest.mark.parametrize("binding", IMAGE, ids=lambda b: f"K={b['k_1']},s={b['s']},g={b['g']}")
def test_a_grouped_convolution_with_a_stride(binding: Binding) -> None:
    """The layer of a network that is in no list of known operators."""
    operator = grouped_strided()
    bound = {v: binding[v] for v in operator.spec.symbols.names}
    x, (weight,) = random_arrays(operator, bound, 3)
    full = grouped(torch.from_numpy(x), torch.from_numpy(weight), bound).numpy()
    want = full[:, :, :: bound["s"], :: bound["s"]]
    np.testing.assert_allclose(reference(operator, x, weight, binding=bound), want, rtol=1e-10, atol=1e-10)


def check(name: str, binding: Binding, expected: Callable[..., Tensor]) -> None:
    operator = KNOWN[name]()
    bound = {v: binding[v] for v in operator.spec.symbols.names}
    x, weights = random_arrays(operator, bound, 3)
    tensors = [torch.from_numpy(a) for a in (x, *weights)]
    want = expected(*tensors, bound).numpy()
    np.testing.assert_allclose(reference(operator, x, *weights, binding=bound), want, rtol=1e-10, atol=1e-10)
    module = operator.to_torch(bound).double()
    with torch.no_grad():
        for i, weight in enumerate(tensors[1:], 1):
            getattr(module, f"weight_{i}").copy_(weight)
        np.testing.assert_allclose(module(tensors[0]).numpy(), want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", sorted(NAMESAKES))
@pytest.mark.parametrize("binding", IMAGE, ids=lambda b: f"K={b['k_1']},s={b['s']},g={b['g']}")
def test_image_operators(name: str, binding: Binding) -> None:
    if name in ("stacked_grouped_convolution", "operator_2"):
        binding = {**binding, "C_in": 12, "C_out": 2 * binding["g"] * binding["s"]}
    check(name, binding, NAMESAKES[name])


@pytest.mark.parametrize(("m", "k", "n"), [(2, 3, 5), (1, 7, 2)])
def test_matmul(m: int, k: int, n: int) -> None:
    check("matmul", {"M": m, "K": k, "N": n}, lambda x, w, b: x @ w)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_conv1d(k: int) -> None:
    check(
        "conv1d",
        {"N": 2, "C_in": 3, "C_out": 4, "H": 7, "k_1": k},
        lambda x, w, b: F.conv1d(padded(x, k, axes=1), w.permute(2, 0, 1)),
    )


@pytest.mark.parametrize("g", [1, 2, 4])
def test_grouped_linear(g: int) -> None:
    def blocks(x: Tensor, w: Tensor, b: Binding) -> Tensor:
        return x @ torch.block_diag(*w)

    check("grouped_linear", {"N": 3, "D_in": 8, "D_out": 12, "g": g}, blocks)


@pytest.mark.parametrize(
    "binding",
    [
        {"N": 1, "C_in": 4, "C_out": 8, "H": 4, "W": 3, "k_1": 3, "g": 2, "s": 2},
        {"N": 2, "C_in": 3, "C_out": 6, "H": 2, "W": 5, "k_1": 2, "g": 3, "s": 1},
    ],
)
def test_operator_1_is_the_formula(binding: Binding) -> None:
    """Straight from the formulas of the two stages, one element at a time."""
    operator = sl.operators.operator_1()
    x, (w2, w1) = random_arrays(operator, binding, 4)
    k, g, m_size, c_size = binding["k_1"], binding["g"], w1.shape[2], binding["C_in"] // binding["g"]
    n_size, _, h_size, w_size = x.shape
    z = np.zeros((n_size, g, m_size, h_size, w_size, k))
    for n, a, m, h, w, q in np.ndindex(*z.shape):
        if 0 <= w + q - k // 2 < w_size:
            for c in range(c_size):
                z[n, a, m, h, w, q] += x[n, a * c_size + c, h, w + q - k // 2] * w1[a * c_size + c, q, m]
    y = np.zeros((n_size, binding["C_out"], h_size, w_size))
    for n, o, h, w in np.ndindex(*y.shape):
        for a, p, q, m in product(range(g), range(k), range(k), range(m_size)):
            if 0 <= h + p - k // 2 < h_size:
                y[n, o, h, w] += z[n, a, m, h + p - k // 2, w, q] * w2[a, p, q, m, o]
    np.testing.assert_allclose(reference(operator, x, w2, w1, binding=binding), y, atol=1e-10)
    params = binding["C_in"] * k * binding["C_out"] // (g * binding["s"]) + k**2 * binding["C_out"] ** 2 // binding["s"]
    assert operator.params(binding) == params


@pytest.mark.parametrize(
    "binding",
    [
        {"N": 1, "C_in": 2, "C_out": 3, "H": 4, "W": 3, "k_1": 3, "s": 2},
        {"N": 2, "C_in": 1, "C_out": 2, "H": 5, "W": 4, "k_1": 2, "s": 3},
    ],
)
def test_half_step_shift_is_the_formula(binding: Binding) -> None:
    operator = sl.operators.half_step_shift()
    x, (weight,) = random_arrays(operator, binding, 5)
    y = np.zeros((binding["N"], binding["C_out"], binding["H"], binding["W"]))
    k, s = binding["k_1"], binding["s"]
    for n, o, h, w in np.ndindex(*y.shape):
        for c, q, r in product(range(binding["C_in"]), range(k), range(s)):
            t = (s * h + r + 1) % (s * binding["H"])
            if 0 <= w + q - k // 2 < binding["W"]:
                y[n, o, h, w] += x[n, c, t // s, w + q - k // 2] * weight[c, q, o, t % s]
    np.testing.assert_allclose(reference(operator, x, weight, binding=binding), y, atol=1e-10)


def test_steps_are_counted_as_in_the_design() -> None:
    assert len(sl.operators.conv2d().steps) == 6
    assert len(sl.operators.operator_1().steps) == 10


def test_operator_2_has_less_than_a_quarter_of_the_parameters_of_conv2d() -> None:
    sizes = {"N": 1, "C_in": 64, "C_out": 64, "H": 8, "W": 8}
    assert 4 * sl.operators.operator_2().params(sizes) < sl.operators.conv2d().params(sizes)


def test_the_overlapping_fold_is_refused_with_the_reason() -> None:
    with pytest.raises(PrimitiveError, match="uses the iterator p twice in one tensor"):
        sl.operators.fold_overlapping()


def test_every_known_operator_is_compared_with_something() -> None:
    alone = {"matmul", "conv1d", "grouped_linear", "operator_1", "half_step_shift"}
    assert set(NAMESAKES) | alone == set(KNOWN)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_cards(name: str) -> None:
    """Each has a docstring that says what it is, survives a file, and knows its own FLOPs."""
    operator = KNOWN[name]()
    assert KNOWN[name].__doc__
    assert sl.Operator.from_json(operator.to_json()) == operator
