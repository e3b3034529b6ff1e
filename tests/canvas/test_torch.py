"""Generated PyTorch modules of Canvas's kernels against their meaning in NumPy."""

import copy
import math
import pickle
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from canvas_growth import at, kernel
from torch.nn import functional as F

from syno_lab.canvas.fitted import Fitted
from syno_lab.canvas.kernel import Draft, Kernel, Node
from syno_lab.canvas.primitives import PRIMITIVES, Primitive
from syno_lab.canvas.reference import reference
from syno_lab.errors import SpecError

BINDING = {"C": 6, "G": 2, "KH": 3, "KW": 5, "H": 4, "W": 7} | {f"x{number}": 180 for number in range(8)}
IMAGE = (BINDING["C"], BINDING["H"], BINDING["W"])
LARGEST = 20_000


def draft(*nodes: tuple[str, str, tuple[int, ...]]) -> Draft:
    return Draft(tuple(Node(Primitive(name, parameter), inputs) for name, parameter, inputs in nodes))


def small_kernel(rng: random.Random, steps: int = 8, largest: int = LARGEST) -> Kernel:
    """A kernel that a test can compute for :data:`BINDING`."""
    while True:
        found = kernel(rng, steps)
        try:
            if max(shape.volume.at(BINDING) for shape in found.shapes) <= largest and found.params(BINDING) <= 10**6:
                return found
        except SpecError:
            continue


def module_of(found: Kernel, rng: np.random.Generator) -> tuple[torch.nn.Module, list[np.ndarray]]:
    """The module in float64, and its weights."""
    weights = [rng.normal(size=sizes) / math.sqrt(sizes[2]) for sizes in found.weight_sizes(BINDING)]
    module = Fitted(found).to_torch(at(BINDING)).double()
    for parameter, weight in zip(module.parameters(), weights, strict=True):
        parameter.data = torch.from_numpy(weight)
    return module, weights


def test_modules_compute_the_reference(rng: random.Random, np_rng: np.random.Generator) -> None:
    seen: set[str] = set()
    for _ in range(150):
        found = small_kernel(rng)
        module, weights = module_of(found, np_rng)
        x = np_rng.normal(size=(2, *IMAGE))
        with np.errstate(over="ignore", invalid="ignore"):
            wanted = reference(found, x, *weights, binding=BINDING)
        if not np.abs(wanted).max() < 1e100:
            continue  # exp of exp: there are no digits to compare
        scale = max(1.0, float(np.abs(wanted).max()))
        got = module(torch.from_numpy(x)).detach().numpy()
        if not np.allclose(got, wanted, atol=1e-10 * scale, rtol=1e-10):
            # The meaning itself must move with the last digits of its input: sin of exp of exp.
            near = reference(found, x * (1 + 1e-15), *weights, binding=BINDING)
            assert not np.allclose(near, wanted, atol=1e-12 * scale, rtol=1e-12), f"{found}\n{module}"
        seen |= {node.primitive.name for node in found.nodes}
    assert seen == PRIMITIVES.keys()


@pytest.mark.parametrize(
    "nodes",
    [
        [("unfold", "H,W", (0,)), ("fc", "C", (1,))],
        [("unfold", "W", (0,)), ("group", "G", (1,)), ("unfold", "H", (2,)), ("fc", "C", (3,))],
        [("unfold", "H,W", (0,)), ("group", "each", (1,)), ("fc", "C", (2,))],
    ],
)
def test_convolutions_are_recognised(
    nodes: list[tuple[str, str, tuple[int, ...]]], np_rng: np.random.Generator
) -> None:
    found = draft(*nodes).kernel()
    module, (weight,) = module_of(found, np_rng)
    x = torch.from_numpy(np_rng.normal(size=(2, *IMAGE)))
    filters = torch.from_numpy(weight.reshape(6, -1, 3, 5))
    wanted = F.conv2d(x, filters, padding=(1, 2), groups=weight.shape[0])
    torch.testing.assert_close(module(x), wanted, atol=1e-12, rtol=0)
    source = Fitted(found).to_torch_source(at(BINDING))
    assert source.count("F.conv2d(t0, ") == 1
    assert "unfold" not in source


def test_windows_in_another_order_than_the_weight(np_rng: np.random.Generator) -> None:
    # A window of KW that ReLU reads is no convolution in H: the weight has KH in front of KW.
    nodes = [("unfold", "W", (0,)), ("relu", "", (1,)), ("unfold", "H", (2,)), ("fc", "C", (3,))]
    found = draft(*nodes).kernel()
    module, weights = module_of(found, np_rng)
    x = np_rng.normal(size=(2, *IMAGE))
    wanted = reference(found, x, *weights, binding=BINDING)
    np.testing.assert_allclose(module(torch.from_numpy(x)).detach().numpy(), wanted, atol=1e-12)
    assert Fitted(found).to_torch_source(at(BINDING)).count(".unfold(") == 2


def test_gradients(rng: random.Random, np_rng: np.random.Generator) -> None:
    checked = 0
    while checked < 5:
        found = small_kernel(rng, 5, 500)
        if {"exp"} & {node.primitive.name for node in found.nodes} or found.params(BINDING) > 300:
            continue  # a difference of large numbers says nothing
        module, _ = module_of(found, np_rng)
        given = [weight.detach().clone().requires_grad_() for weight in module.parameters()]

        def is_right(module: torch.nn.Module = module, given: list[torch.Tensor] = given) -> bool:
            x = torch.from_numpy(np_rng.normal(size=(1, *IMAGE))).requires_grad_()

            def by_weights(*weights: torch.Tensor) -> torch.Tensor:
                named = {f"weight_{number}": weight for number, weight in enumerate(weights, start=1)}
                return torch.func.functional_call(module, named, (x.detach(),))

            check = torch.autograd.gradcheck
            by_input = check(module, (x,), raise_exception=False)
            return by_input and (not given or check(by_weights, given, raise_exception=False))

        # Differences say nothing beside a kink, as of relu at 0: a fault is there at every point.
        assert any(is_right() for _ in range(3)), str(found)
        checked += 1


@pytest.mark.parametrize(("dtype", "large"), [(torch.float32, 100.0), (torch.float64, 1000.0), (torch.bfloat16, 100.0)])
def test_an_overflow_of_exp_that_is_not_used_has_no_gradient(dtype: torch.dtype, large: float) -> None:
    """min(exp(a), a) is a for a large a, and its gradient 1: not 0 times infinity."""
    module = Fitted(draft(("exp", "", (0,)), ("min", "", (1, 0))).kernel()).to_torch(at(BINDING)).to(dtype)
    x = torch.full((1, *IMAGE), large, dtype=dtype, requires_grad=True)
    result = module(x)
    result.sum().backward()
    assert torch.equal(result, x)
    assert x.grad is not None
    assert torch.equal(x.grad, torch.ones_like(x))


def test_a_module_is_pickled_and_copied(np_rng: np.random.Generator) -> None:
    module, _ = module_of(draft(("unfold", "H", (0,)), ("fc", "C", (1,))).kernel(), np_rng)
    x = torch.from_numpy(np_rng.normal(size=(3, *IMAGE)))
    for twin in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module)):
        torch.testing.assert_close(twin(x), module(x), atol=0, rtol=0)
        assert twin.operator == module.operator


def test_the_source_needs_torch_alone(tmp_path: Path) -> None:
    found = draft(("unfold", "H", (0,)), ("fc", "C", (1,)), ("gelu", "", (2,))).kernel()
    source = Fitted(found).to_torch_source(at(BINDING))
    assert set(re.findall(r"^(?:import|from) (\w+)", source, re.MULTILINE)) == {"torch"}
    lines = "import sys; print(SynoOperator()(torch.ones(0, 6, 4, 7)).shape, 'syno_lab' in sys.modules)"
    (tmp_path / "module.py").write_text(f"{source}\n{lines}\n", encoding="utf-8")
    found = subprocess.run(
        [sys.executable, "-I", tmp_path / "module.py"], capture_output=True, text=True, check=True, timeout=120
    )
    assert found.stdout == "torch.Size([0, 6, 4, 7]) False\n"


def test_inputs_of_another_shape_are_refused() -> None:
    module = Fitted(draft(("relu", "", (0,))).kernel()).to_torch(at(BINDING))
    with pytest.raises(ValueError, match=r"expected an input of shape \[N, 6, 4, 7\], found \[1, 6, 7, 4\]"):
        module(torch.zeros(1, 6, 7, 4))
    with pytest.raises(SpecError, match="no value for H: bind it to a size"):
        Fitted(draft(("relu", "", (0,))).kernel()).to_torch_source({"C_in": 4, "C_out": 4})
