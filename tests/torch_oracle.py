"""Torch modules against the loop nest in NumPy, for all tests of generated modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from strategies import random_arrays, repro

from syno_lab.codegen.reference import reference
from syno_lab.codegen.torch_choice import Form
from syno_lab.codegen.torch_module import _made, to_torch
from syno_lab.ir.operator import Operator


def agrees(operator: Operator, binding: dict[str, int], form: Form | None = None, **options: Any) -> torch.nn.Module:
    """The module, its output, input gradient and weight gradients compared with the loop nest.

    ``form`` says how it is written; the default is that of ``to_torch`` with ``options``.
    """
    x, weights = random_arrays(operator, binding, 5)
    made = _made(operator, binding, 1.0, None, form) if form else to_torch(operator, binding, **options)
    module: torch.nn.Module = made.double()
    parameters = [getattr(module, f"weight_{i + 1}") for i in range(len(weights))]
    with torch.no_grad():
        for parameter, weight in zip(parameters, weights, strict=True):
            parameter.copy_(torch.from_numpy(weight))
    tensor = torch.from_numpy(x).requires_grad_()
    why = f"{form}{repro(operator, binding)}"
    y = module(tensor)
    expected = reference(operator, x, *weights, binding=binding)
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-10, atol=1e-10, err_msg=why)
    rng = np.random.default_rng(6)
    g = np.asarray(rng.standard_normal(expected.shape))
    y.backward(torch.from_numpy(g))
    for place, (value, leaf) in enumerate(zip([x, *weights], [tensor, *parameters], strict=True)):
        # f is linear in each argument v: <grad_v <f(v), g>, u> = <f(u), g>.
        arguments = [x, *weights]
        arguments[place] = np.asarray(rng.standard_normal(value.shape))
        right = float(np.sum(reference(operator, *arguments, binding=binding) * g))
        left = 0.0 if leaf.grad is None else float(np.sum(leaf.grad.numpy() * arguments[place]))
        assert left == pytest.approx(right, rel=1e-8, abs=1e-8), f"gradient {place}: {why}"
    return module
