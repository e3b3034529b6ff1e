"""The known kernels of Canvas, module and reference, against PyTorch's layers."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from canvas_growth import at
from torch import Tensor
from torch.nn import functional as F

from syno_lab.canvas.files import from_json
from syno_lab.canvas.fitted import Fitted
from syno_lab.canvas.kernel import Kernel
from syno_lab.canvas.known import KNOWN, convolution, figure_6, figure_8, figure_9b
from syno_lab.canvas.reference import reference

BINDING = {"C": 6, "G": 2, "KH": 3, "KW": 5, "H": 4, "W": 7, "x0": 3}
IMAGE = (BINDING["C"], BINDING["H"], BINDING["W"])


def conv(x: Tensor, weight: Tensor, kh: int = 1, kw: int = 1) -> Tensor:
    """A convolution by a weight [groups, outputs of a group, inputs of a group · kh · kw]."""
    groups = len(weight)
    return F.conv2d(
        x, weight.reshape(-1, weight.shape[2] // (kh * kw), kh, kw), padding=(kh // 2, kw // 2), groups=groups
    )


def squeeze_excite(x: Tensor, down: Tensor, up: Tensor) -> Tensor:
    mean = F.adaptive_avg_pool2d(x, 1)
    return x * torch.sigmoid(conv(F.relu(conv(mean, down)), up))


def involution(x: Tensor, reduce: Tensor, span: Tensor) -> Tensor:
    """As its authors define it, on unfolded images; but for the mean over the window."""
    batch, channels, height, width = x.shape
    windows = conv(F.relu(conv(x, reduce)), span).view(batch, 2, 1, 15, height, width)
    unfolded = F.unfold(x, (3, 5), padding=(1, 2)).view(batch, 2, channels // 2, 15, height, width)
    return (windows * unfolded).sum(3).view(x.shape) / 15


def figure_9a(x: Tensor, weight: Tensor) -> Tensor:
    _, _, height, width = x.shape
    return x * F.linear(x.mean((2, 3)), weight[0]).view(-1, 1, height, width)


ORACLES: dict[str, Callable[..., Tensor]] = {
    "convolution": lambda x, w: conv(x, w, 3, 5),
    "grouped_convolution": lambda x, w: F.conv2d(x, w.reshape(6, 3, 3, 5), padding=(1, 2), groups=2),
    "depthwise_separable": lambda x, depth, point: conv(conv(x, depth, 3, 5), point),
    "spatially_separable": lambda x, down, along: conv(conv(x, down, 3, 1), along, 1, 5),
    "residual": lambda x, w: x + conv(x, w),
    "squeeze_excite": squeeze_excite,
    "involution": involution,
    "figure_6": lambda x, scale: x + x.roll(1, 2) + x * scale.view(1, 6, 1, 1),
    "figure_8": lambda x, w: conv(x + x.roll(1, 3), w, 3, 1),
    "figure_9a": figure_9a,
    "figure_9b": lambda x, down, up: conv(F.relu(conv(x, down)), up).roll(1, 2),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_kernel(name: str, np_rng: np.random.Generator) -> None:
    kernel = KNOWN[name]()
    binding = {**BINDING, "x1": 1}
    x = np_rng.normal(size=(2, *IMAGE))
    weights = [np_rng.normal(size=sizes) / math.sqrt(sizes[2]) for sizes in kernel.weight_sizes(binding)]
    wanted = ORACLES[name](*map(torch.from_numpy, [x, *weights])).numpy()
    np.testing.assert_allclose(reference(kernel, x, *weights, binding=binding), wanted, atol=1e-12)
    module = Fitted(kernel).to_torch(at(binding)).double()
    for parameter, weight in zip(module.parameters(), weights, strict=True):
        parameter.data = torch.from_numpy(weight)
    np.testing.assert_allclose(module(torch.from_numpy(x)).detach().numpy(), wanted, atol=1e-12)
    assert from_json(Fitted(kernel).to_json()).kernel == kernel


def test_known_kernels_differ() -> None:
    assert len({kernel().key for kernel in KNOWN.values()}) == len(KNOWN)


@pytest.mark.parametrize(("kernel", "pixels"), [(figure_6, 2), (figure_8, 6), (convolution, 9), (figure_9b, 1)])
def test_neighbours(kernel: Callable[[], Kernel], pixels: int) -> None:
    """How many pixels an output depends on; the sizes are those of Figure 8."""
    found = kernel()
    torch.manual_seed(0)
    module = Fitted(found).to_torch(at({"C": 4, "KH": 3, "KW": 3, "H": 8, "W": 8, "x0": 16})).double()
    x = torch.randn(1, 4, 8, 8, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(module(x)[0, :, 4, 4].sum(), x)
    assert int((slope.abs().sum((0, 1)) > 0).sum()) == pixels


def test_figure_8_costs_what_it_says() -> None:
    binding = {"C": 4, "KH": 3, "KW": 3, "H": 8, "W": 8}
    assert figure_8().params(binding) == 3 * 4
    # 4 FLOPs an element in the paper, which counts a multiply-add as one: an addition and 3 multiply-adds.
    assert figure_8().flops(binding) == (1 + 2 * 3) * 4 * 8 * 8
