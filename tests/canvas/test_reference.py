"""What a kernel of Canvas computes, against loops over indices and against PyTorch's own layers."""

import itertools
import math
import operator
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from canvas_growth import kernel
from torch.nn import functional as F

from syno_lab.canvas.kernel import Draft, Kernel, Node
from syno_lab.canvas.primitives import PRIMITIVES, Primitive
from syno_lab.canvas.reference import reference
from syno_lab.errors import SpecError

BINDING = {"C": 6, "G": 2, "KH": 3, "KW": 5, "H": 4, "W": 7}
IMAGE = (BINDING["C"], BINDING["H"], BINDING["W"])


def draft(*nodes: tuple[str, str, tuple[int, ...]]) -> Draft:
    return Draft(tuple(Node(Primitive(name, parameter), inputs) for name, parameter, inputs in nodes))


def weights_of(found: Kernel, binding: dict[str, int], rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.normal(size=sizes) / math.sqrt(sizes[2]) for sizes in found.weight_sizes(binding)]


def run(found: Kernel, rng: np.random.Generator, **more: int) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    binding = BINDING | more
    x = rng.normal(size=(2, *IMAGE))
    weights = weights_of(found, binding, rng)
    return x, weights, reference(found, x, *weights, binding=binding)


def test_convolution(np_rng: np.random.Generator) -> None:
    x, (weight,), found = run(draft(("unfold", "H,W", (0,)), ("fc", "C", (1,))).kernel(), np_rng)
    filters = torch.from_numpy(weight.reshape(6, 6, 3, 5))
    np.testing.assert_allclose(found, F.conv2d(torch.from_numpy(x), filters, padding=(1, 2)), atol=1e-12)


def test_grouped_convolution(np_rng: np.random.Generator) -> None:
    nodes = draft(("unfold", "W", (0,)), ("unfold", "H", (1,)), ("group", "G", (2,)), ("fc", "C", (3,)))
    x, (weight,), found = run(nodes.kernel(), np_rng)
    filters = torch.from_numpy(weight.reshape(6, 3, 3, 5))
    np.testing.assert_allclose(found, F.conv2d(torch.from_numpy(x), filters, padding=(1, 2), groups=2), atol=1e-12)


def test_depthwise_separable_convolution(np_rng: np.random.Generator) -> None:
    nodes = draft(("unfold", "H,W", (0,)), ("group", "each", (1,)), ("fc", "C", (2,)), ("fc", "C", (3,)))
    x, (depth, point), found = run(nodes.kernel(), np_rng)
    inner = F.conv2d(torch.from_numpy(x), torch.from_numpy(depth.reshape(6, 1, 3, 5)), padding=(1, 2), groups=6)
    np.testing.assert_allclose(found, F.conv2d(inner, torch.from_numpy(point.reshape(6, 6, 1, 1))), atol=1e-12)


def test_squeeze_and_excitation(np_rng: np.random.Generator) -> None:
    squeeze = [("fold_avg", "H", (0,)), ("fold_avg", "W", (1,)), ("fc", "x0", (2,)), ("relu", "", (3,))]
    excite = [("fc", "C", (4,)), ("sigmoid", "", (5,)), ("mul", "H..W", (6, 0))]
    x, (down, up), found = run(draft(*squeeze, *excite).kernel(), np_rng, x0=3)
    inner = F.relu(F.linear(torch.from_numpy(x).mean((2, 3)), torch.from_numpy(down[0])))
    scale = torch.sigmoid(F.linear(inner, torch.from_numpy(up[0])))
    np.testing.assert_allclose(found, x * scale.numpy()[:, :, None, None], atol=1e-12)


ELEMENTWISE = {
    "relu": F.relu,
    "gelu": F.gelu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "abs": torch.abs,
    "exp": torch.exp,
    "neg": torch.neg,
    "sin": lambda a: torch.sin(math.pi / 2 * a),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name: str, np_rng: np.random.Generator) -> None:
    x, _, found = run(draft((name, "", (0,))).kernel(), np_rng)
    np.testing.assert_allclose(found, ELEMENTWISE[name](torch.from_numpy(x)), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("parameter", ["H+1", "H-1", "W+1", "H-1,W+1"])
def test_shift_by_indices(parameter: str, np_rng: np.random.Generator) -> None:
    x, _, found = run(draft(("shift", parameter, (0,))).kernel(), np_rng)
    offsets = {text[0]: int(text[1:]) for text in parameter.split(",")}
    _, height, width = IMAGE
    for h, w in itertools.product(range(height), range(width)):
        source = (h - offsets.get("H", 0)) % height, (w - offsets.get("W", 0)) % width
        np.testing.assert_array_equal(found[:, :, h, w], x[:, :, source[0], source[1]])


@pytest.mark.parametrize(("parameter", "axes"), [("C", 1), ("H", 2), ("W", 3)])
def test_fold(parameter: str, axes: int, np_rng: np.random.Generator) -> None:
    # The folded tensor is added to the input, so that a kernel is whole.
    for name, fold in (("fold_avg", np.mean), ("fold_max", np.max)):
        x, _, found = run(draft((name, parameter, (0,)), ("add", parameter, (1, 0))).kernel(), np_rng)
        np.testing.assert_allclose(found, x + fold(x, axes, keepdims=True))


@pytest.mark.parametrize(("parameter", "axes"), [("C", (1,)), ("H,W", (2, 3)), ("C,H,W", (1, 2, 3))])
def test_softmax(parameter: str, axes: tuple[int, ...], np_rng: np.random.Generator) -> None:
    x, _, found = run(draft(("softmax", parameter, (0,))).kernel(), np_rng)
    np.testing.assert_allclose(found, np.exp(x) / np.exp(x).sum(axes, keepdims=True))
    large = reference(draft(("softmax", parameter, (0,))).kernel(), 1e6 * x, binding=BINDING)
    assert np.isfinite(large).all()


@pytest.mark.parametrize(
    ("name", "operation"),
    [("add", operator.add), ("sub", operator.sub), ("mul", operator.mul), ("min", min), ("max", max)],
)
def test_broadcast_repeats_inside_the_block(
    name: str, operation: Callable[[float, float], float], np_rng: np.random.Generator
) -> None:
    # [C/G, H, W] onto [C, H, W]: prefix 1, L = C/G = 3, M = G = 2.
    x, (weight,), found = run(draft(("fc", "C/G", (0,)), (name, "C", (1, 0))).kernel(), np_rng)
    for n, c, h, w in itertools.product(range(2), *map(range, IMAGE)):
        left = sum(weight[0, c % 3, i] * x[n, i, h, w] for i in range(6))
        assert found[n, c, h, w] == pytest.approx(operation(left, x[n, c, h, w]))


@pytest.mark.parametrize(("span", "source"), [("KH", lambda c, k: c), ("C..KH", lambda c, k: (c * 3 + k) % 3)])
def test_broadcast_by_its_slots(span: str, source: Callable[[int, int], int], np_rng: np.random.Generator) -> None:
    # [G, C/G, H, W] onto [G, C/G, KH, H, W], folded: each group and pixel apart, C/G = KH = 3 as one block or as two.
    nodes = [("group", "G", (0,)), ("unfold", "H", (1,)), ("mul", span, (1, 2)), ("fold_avg", "KH", (3,))]
    x, _, found = run(draft(*nodes).kernel(), np_rng)
    channels, height, width = IMAGE
    for channel, h, w in itertools.product(range(channels), range(height), range(width)):
        group, c = divmod(channel, 3)
        window = [x[0, channel, h + k - 1, w] if 0 <= h + k - 1 < height else 0 for k in range(3)]
        wanted = sum(x[0, group * 3 + source(c, k), h, w] * window[k] for k in range(3)) / 3
        assert found[0, channel, h, w] == pytest.approx(wanted)


def test_fc_by_indices(np_rng: np.random.Generator) -> None:
    """Groups, windows and channels of one FC, each by its own index."""
    nodes = draft(("group", "G", (0,)), ("unfold", "H", (1,)), ("fc", "C", (2,)))
    x, (weight,), found = run(nodes.kernel(), np_rng)
    channels, height, width = IMAGE
    for c, h, w in itertools.product(range(channels), range(height), range(width)):
        group, output = divmod(c, 3)
        wanted = sum(
            x[0, group * 3 + i, h + k - 1, w] * weight[group, output, i * 3 + k]
            for i, k in itertools.product(range(3), range(3))
            if 0 <= h + k - 1 < height
        )
        assert found[0, c, h, w] == pytest.approx(wanted)


def test_images_of_a_batch_do_not_mix(rng: random.Random, np_rng: np.random.Generator) -> None:
    binding = BINDING | {f"x{number}": 2520 // 14 for number in range(8)}
    seen: set[str] = set()
    while len(seen) < 15:
        found = kernel(rng, 8)
        try:
            if max(shape.volume.at(binding) for shape in found.shapes) > 20_000 or found.params(binding) > 10**6:
                continue
        except SpecError:
            continue
        x = np_rng.normal(size=(3, *IMAGE))
        weights = weights_of(found, binding, np_rng)
        with np.errstate(over="ignore", invalid="ignore"):
            whole = reference(found, x, *weights, binding=binding)
            apart = [reference(found, image[None], *weights, binding=binding)[0] for image in x]
        assert whole.shape == x.shape
        np.testing.assert_allclose(whole, apart, rtol=1e-9, atol=1e-9, err_msg=str(found))
        seen |= {node.primitive.name for node in found.nodes}
    assert seen <= PRIMITIVES.keys()


@pytest.mark.parametrize(
    ("shape", "weights", "why"),
    [
        ((1, 6, 4, 7), [], "expected 1 weights, found 0"),
        ((1, 6, 7, 4), [(1, 6, 6)], r"expected an input of shape \[N, 6, 4, 7\], found \(1, 6, 7, 4\)"),
        ((6, 4, 7), [(1, 6, 6)], r"expected an input of shape \[N, 6, 4, 7\], found \(6, 4, 7\)"),
        ((1, 6, 4, 7), [(6, 6)], r"expected weight 0 of shape \[1, 6, 6\], found \(6, 6\)"),
    ],
)
def test_refused_arrays(shape: tuple[int, ...], weights: list[tuple[int, ...]], why: str) -> None:
    found = draft(("fc", "C", (0,))).kernel()
    with pytest.raises(SpecError, match=why):
        reference(found, np.zeros(shape), *map(np.zeros, weights), binding=BINDING)
