"""PyTorch modules and their source against the loop nest in NumPy."""

import copy
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from strategies import random_arrays, random_operator, repro

import syno_lab as sl
from syno_lab.codegen.reference import reference
from syno_lab.codegen.torch_module import to_torch, to_torch_source
from syno_lab.codegen.torch_weights import weight_stds
from syno_lab.ir.operator import Operator

CONV = {"N": 1, "C_in": 8, "C_out": 12, "H": 7, "W": 5, "k_1": 3}


def with_weights(operator: Operator, binding: dict[str, int], weights: list[np.ndarray]) -> torch.nn.Module:
    module = to_torch(operator, binding).double()
    with torch.no_grad():
        for i, weight in enumerate(weights, 1):
            getattr(module, f"weight_{i}").copy_(torch.from_numpy(weight))
    return module


@pytest.mark.parametrize("offset", range(200))
def test_values_and_gradients_of_random_operators(offset: int, fresh_seed: int) -> None:
    """200 fresh operators a run; the operator is linear in the input and in each weight, which checks the gradients.

    For f linear in v, <grad_v <f(v), g>, u> = <f(u), g> for every u: the right side is the loop nest's.
    """
    seed = fresh_seed + offset
    operator, binding = random_operator(random.Random(seed))
    x, weights = random_arrays(operator, binding, seed)
    module = with_weights(operator, binding, weights)
    tensor = torch.from_numpy(x).requires_grad_()
    expected = reference(operator, x, *weights, binding=binding)
    result = module(tensor)
    why = f"seed {seed}" + repro(operator, binding)
    assert result.shape == expected.shape, why
    np.testing.assert_allclose(result.detach().numpy(), expected, rtol=1e-10, atol=1e-10, err_msg=why)

    rng = np.random.default_rng(seed)
    g = rng.standard_normal(expected.shape)
    result.backward(torch.from_numpy(np.asarray(g)))
    parameters = [getattr(module, f"weight_{i + 1}") for i in range(len(weights))]
    for place, (value, leaf) in enumerate(zip([x, *weights], [tensor, *parameters], strict=True)):
        other = rng.standard_normal(value.shape)
        arguments = [x, *weights]
        arguments[place] = np.asarray(other)
        right = float(np.sum(reference(operator, *arguments, binding=binding) * g))
        left = 0.0 if leaf.grad is None else float(np.sum(leaf.grad.numpy() * other))
        assert left == pytest.approx(right, rel=1e-8, abs=1e-8), f"gradient {place}: {why}"


@pytest.mark.parametrize("name", sorted(sl.operators.KNOWN))
def test_known_operators(name: str) -> None:
    operator = sl.operators.KNOWN[name]()
    values = {"N": 2, "H": 6, "W": 4, "M": 3, "K": 6, "L": 6, "T": 5}
    binding = {
        v: values.get(v, operator.spec.defaults.get(v, 16 if v.startswith("C") else 4))
        for v in operator.spec.symbols.names
    }
    x, weights = random_arrays(operator, binding, 1)
    module = with_weights(operator, binding, weights)
    expected = reference(operator, x, *weights, binding=binding)
    np.testing.assert_allclose(module(torch.from_numpy(x)).detach().numpy(), expected, rtol=1e-10, atol=1e-10)
    small = torch.from_numpy(x[:1] if x.ndim == 4 and "N" in binding else x).requires_grad_()
    assert torch.autograd.gradcheck(module, (small,), fast_mode=True)


def test_any_batch_dtype_and_device() -> None:
    module = sl.operators.conv2d().to_torch(CONV)
    for batch in (0, 1, 3):
        assert module(torch.zeros(batch, 8, 7, 5)).shape == (batch, 12, 7, 5)
    assert module.to(torch.bfloat16)(torch.zeros(2, 8, 7, 5, dtype=torch.bfloat16)).dtype is torch.bfloat16
    assert module.to("meta")(torch.zeros(2, 8, 7, 5, device="meta", dtype=torch.bfloat16)).device.type == "meta"


def test_a_wrong_shape_is_refused_in_one_line() -> None:
    module = sl.operators.conv2d().to_torch(CONV)
    with pytest.raises(ValueError, match=r"expected an input of shape \[batch, 8, 7, 5\], found \[2, 9, 7, 5\]"):
        module(torch.zeros(2, 9, 7, 5))


def test_compiles_copies_and_saves() -> None:
    module = sl.operators.operator_1().to_torch({**CONV, "C_in": 8, "C_out": 8, "g": 2, "s": 2})
    x = torch.randn(2, 8, 7, 5)
    net = torch.nn.Sequential(module, torch.nn.Conv2d(8, 4, 1))
    torch.testing.assert_close(torch.compile(net, fullgraph=True)(x), net(x))
    other = copy.deepcopy(module)
    other.reset_parameters()
    assert not torch.equal(other(x), module(x))
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(x), module(x))


def test_scale_is_outside_the_pgraph() -> None:
    operator = sl.operators.sum_pool()
    binding = {"N": 1, "C": 3, "H": 4, "W": 5, "s": 2}
    x = torch.randn(2, 3, 8, 10)
    torch.testing.assert_close(operator.to_torch(binding, scale=0.25)(x), torch.nn.functional.avg_pool2d(x, 2))


@pytest.mark.parametrize("name", ["conv2d", "depthwise", "operator_1", "separable", "grouped"])
def test_weights_start_with_the_variance_of_the_input(name: str) -> None:
    operator = sl.operators.KNOWN[name]()
    binding = {
        n: operator.spec.defaults.get(n, {"N": 1, "H": 12, "W": 12}.get(n, 32)) for n in operator.spec.symbols.names
    }
    torch.manual_seed(0)
    outputs = []
    for _ in range(20):
        module = operator.to_torch(binding)
        outputs.append(module(torch.randn(8, *operator.input_sizes(binding)[1:])).detach())
    assert torch.stack(outputs).var().item() == pytest.approx(1.0, rel=0.15)
    assert len(weight_stds(operator, binding)) == len(operator.weights)


def test_the_source_stands_alone(tmp_path: Path) -> None:
    """Run in a process that cannot import Syno Lab, with the same weights, it gives the same numbers."""
    operator = sl.operators.operator_1()
    binding = {**CONV, "C_in": 8, "C_out": 8, "g": 2, "s": 2}
    torch.manual_seed(0)
    module, x = to_torch(operator, binding), torch.randn(2, 8, 7, 5)
    torch.save({"x": x, "y": module(x).detach(), "state": module.state_dict()}, tmp_path / "case.pt")
    program = (
        "import sys\nsys.modules['syno_lab'] = None\n"
        + to_torch_source(operator, binding)
        + "\ncase = torch.load('case.pt', weights_only=True)\nmodule = SynoOperator()\n"
        "module.load_state_dict(case['state'])\n"
        "torch.testing.assert_close(module(case['x']), case['y'])\nprint('agrees')\n"
    )
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "agrees", done.stderr
