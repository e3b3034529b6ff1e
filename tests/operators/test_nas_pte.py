"""NAS-PTE's operators against dense convolutions with the zeros written out, in torch and in TVM."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from syno_lab.errors import FormatError, SpecError
from syno_lab.operators.nas_pte import NAS_PTE, from_json, nas_pte_1, nas_pte_2, nas_pte_3

BINDING = {"N": 2, "C_in": 24, "C_out": 32, "H": 5, "W": 4}

CHILD = """
import json, sys
import numpy as np
from syno_lab.codegen.tvm_child import import_tvm_alone
import_tvm_alone()
import tvm
from syno_lab.operators.nas_pte_tvm import lower_json
request = json.load(sys.stdin)
with np.load(request["arrays"]) as file:
    arrays = [file[name] for name in file.files]
shape = request["shape"]
buffers = [tvm.runtime.tensor(a) for a in arrays] + [tvm.runtime.tensor(np.full(shape, np.nan, "float32"))]
tvm.compile(lower_json(request["operator"], request["binding"], "float32"), target="llvm")["main"](*buffers)
np.save(request["output"], buffers[-1].numpy())
"""


def dense(name: str, weights: list[torch.Tensor]) -> torch.Tensor:
    """The weight [32, 24, 3, 3] of the dense convolution that the description amounts to."""
    whole = torch.zeros(32, 24, 3, 3)
    if name == "nas_pte_1":
        two, four = weights
        for o in range(16):
            group = o // 8 * 12  # two groups of 12 input and 8 output channels
            whole[o, group : group + 12] = two[o]
            group = o // 4 * 6  # four groups of 6 and 4
            whole[16 + o, group : group + 6] = four[o]
    elif name == "nas_pte_2":
        first, rest = weights
        whole[:16, :16] = first
        for o in range(16):
            group = 16 + o // 8 * 4  # the 8 input channels that remain, in two groups
            whole[16 + o, group : group + 4] = rest[o]
    else:
        whole[:] = weights[0]
    return whole


@pytest.mark.parametrize("name", NAS_PTE)
def test_the_module_is_a_dense_convolution_with_zeros(name: str, np_rng: np.random.Generator) -> None:
    operator = NAS_PTE[name]()
    module = operator.to_torch(BINDING)
    x = torch.tensor(np_rng.standard_normal(operator.input_sizes(BINDING)), dtype=torch.float32)
    # The third stands for a convolution of the upper half alone, which is all that it sees.
    seen = x[:, :, :3] if name == "nas_pte_3" else x
    want = F.conv2d(seen, dense(name, [w.detach() for w in module.parameters()]), padding=1)
    found = module(x)
    assert tuple(found.shape) == operator.output_sizes(BINDING)
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)
    assert operator.params(BINDING) == sum(p.numel() for p in module.parameters())
    with FlopCounterMode(display=False) as counter:
        module(x)
    assert operator.flops(BINDING) == counter.get_total_flops()


@pytest.mark.tvm
@pytest.mark.parametrize("name", NAS_PTE)
def test_tvm_agrees_with_torch(name: str, tmp_path: Path) -> None:
    operator = NAS_PTE[name]()
    module = operator.to_torch(BINDING)
    x = torch.randn(operator.input_sizes(BINDING))
    with torch.no_grad():
        want = module(x).numpy()
    np.savez(tmp_path / "arrays.npz", x.numpy(), *(w.detach().numpy() for w in module.parameters()))
    request = {
        "operator": operator.to_json(),
        "binding": BINDING,
        "arrays": str(tmp_path / "arrays.npz"),
        "output": str(tmp_path / "found.npy"),
        "shape": operator.output_sizes(BINDING),
    }
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), want, rtol=1e-4, atol=1e-4)


def test_values() -> None:
    full = 9 * 24 * 32
    assert nas_pte_1().params(BINDING) == full * 3 // 8  # half of 1/2 and half of 1/4
    assert nas_pte_2().params(BINDING) == 9 * (16 * 16 + 8 * 16 // 2)
    assert nas_pte_3().params(BINDING) == full
    assert nas_pte_3().latency_only
    assert not nas_pte_1().latency_only
    prints = {make().fingerprint(BINDING) for make in NAS_PTE.values()}
    assert len(prints) == 3
    assert nas_pte_1().fingerprint(BINDING | {"H": 6}) not in prints
    for make in NAS_PTE.values():
        assert from_json(make().to_json()) == make()
        assert make().svg(BINDING).count("convolution") >= len(make().parts(BINDING))


def test_refusals() -> None:
    with pytest.raises(SpecError, match="nas_pte_1: expected a whole number from 1 up for H, found None"):
        nas_pte_1().params({"N": 1, "C_in": 8, "C_out": 8, "W": 4})
    with pytest.raises(SpecError, match="expected channels that its convolutions can divide, found C_in=6"):
        nas_pte_1().params(BINDING | {"C_in": 6})
    with pytest.raises(SpecError, match="0 to 16 channels in 2 groups"):
        nas_pte_2().to_torch(BINDING | {"C_in": 16})
    with pytest.raises(SpecError, match=r"expected an input of shape \[batch, 24, 5, 4\], found \[2, 24, 5, 5\]"):
        nas_pte_1().to_torch(BINDING)(torch.zeros(2, 24, 5, 5))
    with pytest.raises(FormatError, match="expected a name among nas_pte_1, nas_pte_2, nas_pte_3, found 'x'"):
        from_json('{"format": "syno-lab-nas-pte", "version": 1, "name": "x"}')
    with pytest.raises(FormatError, match="expected format 'syno-lab-nas-pte', found 'syno-lab-operator'"):
        from_json('{"format": "syno-lab-operator", "version": 1}')
