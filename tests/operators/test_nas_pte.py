"""NAS-PTE's operators against dense convolutions with the zeros written out, in torch and in TVM."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from whole_fingerprint import whole_fingerprint

from syno_lab import operators
from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.nas_pte.operator import NAS_PTE, NasPteOperator, from_json, nas_pte_1, nas_pte_2, nas_pte_3
from syno_lab.nas_pte.parts import PARTS, Part, parts_fingerprint
from syno_lab.nas_pte.system import NAS_PTE as NAS_PTE_SYSTEM
from syno_lab.pgraphs.system import PGRAPHS
from syno_lab.sessions.session import session_of

BINDING = {"N": 2, "C_in": 24, "C_out": 32, "H": 5, "W": 4}

CHILD = """
import json, sys
import numpy as np
from syno_lab.processes.light import import_tvm
import_tvm()
import tvm
from syno_lab.nas_pte.tvm import lower_json
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
@pytest.mark.warm
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
    with pytest.raises(ValueError, match=r"expected an input of shape \[batch, 24, 5, 4\], found \[2, 24, 5, 5\]"):
        nas_pte_1().to_torch(BINDING)(torch.zeros(2, 24, 5, 5))
    with pytest.raises(FormatError, match="expected a name among nas_pte_1, nas_pte_2, nas_pte_3, found 'x'"):
        from_json('{"format": "syno-lab-nas-pte", "version": 1, "name": "x"}')
    with pytest.raises(FormatError, match="expected format 'syno-lab-nas-pte', found 'syno-lab-operator'"):
        from_json('{"format": "syno-lab-operator", "version": 1}')


# -- the system --------------------------------------------------------------------------------------------------------

SMALL = {"N": 1, "C_in": 8, "C_out": 12, "H": 4, "W": 3}
SHAPE = (1, 8, 4, 3)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_grouped_convolution_has_the_fingerprint_of_its_pgraph(groups: int) -> None:
    made = operators.conv2d() if groups == 1 else operators.grouped()
    sizes = SMALL | {"k_1": 3} | ({"g": groups} if groups > 1 else {})
    assert parts_fingerprint([Part(0, 8, 12, groups)], SHAPE, 4) == whole_fingerprint(made, sizes)


def test_two_ways_of_writing_one_function_have_one_fingerprint() -> None:
    whole = parts_fingerprint([Part(0, 8, 12, 1)], SHAPE, 4)
    assert parts_fingerprint([Part(0, 8, 3, 1), Part(0, 8, 9, 1)], SHAPE, 4) == whole
    two = parts_fingerprint([Part(0, 8, 12, 2)], SHAPE, 4)
    assert parts_fingerprint([Part(0, 4, 6, 1), Part(4, 4, 6, 1)], SHAPE, 4) == two
    four = parts_fingerprint([Part(0, 8, 12, 4)], SHAPE, 4)
    assert parts_fingerprint([Part(0, 4, 6, 2), Part(4, 4, 6, 2)], SHAPE, 4) == four
    # Not what only looks alike: other groups, the halves in the other order, fewer rows.
    others = [[Part(4, 4, 6, 1), Part(0, 4, 6, 1)], [Part(0, 8, 6, 2), Part(0, 8, 6, 2)]]
    found = [whole, two, four, *(parts_fingerprint(parts, SHAPE, 4) for parts in others)]
    found.append(parts_fingerprint([Part(0, 8, 12, 1)], SHAPE, 2))
    assert len(set(found)) == len(found)


def test_an_operator_of_equal_groups_would_be_one_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    # What NAS-PTE's first operator is with as many groups in one half of its outputs as in the other, over one half of
    # the input each: a grouped convolution.
    def halves(c_in: int, c_out: int) -> tuple[Part, ...]:
        return tuple(Part(first, c_in // 2, c_out // 2, 2) for first in (0, c_in // 2))

    monkeypatch.setitem(PARTS, "equal", halves)
    operator = NasPteOperator("equal")
    assert operator.fingerprint(SMALL) == whole_fingerprint(operators.grouped(), SMALL | {"k_1": 3, "g": 4})
    assert nas_pte_1().fingerprint(SMALL | {"C_out": 16}) != operator.fingerprint(SMALL | {"C_out": 16})


def test_too_many_terms_are_refused() -> None:
    with pytest.raises(SynoError, match="fingerprint: expected at most 33554432 terms, found"):
        nas_pte_1().fingerprint({"N": 8, "C_in": 512, "C_out": 512, "H": 64, "W": 64})


def test_bindings_of_places() -> None:
    named = {"N": 1, "C_in": 8, "C_out": 12, "H": 4, "W": 3}
    assert NAS_PTE_SYSTEM.binding_for(nas_pte_1(), named, (1, 8, 4, 3), (1, 12, 4, 3)) == SMALL
    with pytest.raises(SpecError, match=r"expected a layer from \[N, C_in, H, W\] to \[N, C_out, H, W\] for nas_pte_1"):
        NAS_PTE_SYSTEM.binding_for(nas_pte_1(), named, (1, 8, 8, 6), (1, 12, 4, 3))
    with pytest.raises(
        SpecError, match="found nas_pte_3 of NAS-PTE, a convolution of half of the rows, for its latency"
    ):
        NAS_PTE_SYSTEM.binding_for(nas_pte_3(), named, (1, 8, 4, 3), (1, 12, 4, 3))
    with pytest.raises(SpecError, match="NAS-PTE: its operators are not built by steps; choose one of another system"):
        session_of(nas_pte_1())


def test_traits_are_alike_for_what_does_alike() -> None:
    # The one part of the third is a dense convolution: a pGraph with the same rows has the same words and numbers.
    sizes = BINDING | {"H": 6}
    mine = NAS_PTE_SYSTEM.traits(nas_pte_3(), sizes)
    theirs = PGRAPHS.traits(operators.conv2d(), sizes | {"k_1": 3})
    assert {word: theirs.get(word) for word in mine} == mine
    first = NAS_PTE_SYSTEM.traits(nas_pte_1(), BINDING)
    assert first["reads 1"] == round(2 * np.log2(6))  # the middle output channel is the second half's, in four groups
    assert "reads all of 1" not in first


@pytest.mark.parametrize("name", NAS_PTE)
def test_traffic_is_what_torch_stores(name: str) -> None:
    class Count(TorchDispatchMode):
        made = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            self.made += 0 if function.is_view else result.numel()
            return result

    operator = NAS_PTE[name]()
    module, x = operator.to_torch(BINDING), torch.zeros(operator.input_sizes(BINDING))
    with torch.no_grad(), Count() as count:
        module(x)
    assert NAS_PTE_SYSTEM.traffic(operator, BINDING) == count.made


def test_the_meaning_reads_its_sizes_off_the_arguments(np_rng: np.random.Generator) -> None:
    x, *weights = (np_rng.standard_normal(shape) for shape in (SHAPE, (4, 4, 3, 3), (4, 2, 3, 3)))
    wanted = nas_pte_1().reference(x, *weights, binding=SMALL | {"C_out": 8})
    np.testing.assert_array_equal(nas_pte_1().reference(x, *weights), wanted)
    with pytest.raises(SpecError, match=r"weight 2: expected shape \[4, 2, 3, 3\], found \[4, 4, 3, 3\]"):
        nas_pte_1().reference(x, weights[0], weights[0])
    with pytest.raises(SpecError, match="weights: expected 2 arrays after the input, found 1"):
        nas_pte_1().reference(x, weights[0], binding=SMALL | {"C_out": 8})
    with pytest.raises(SpecError, match=r"expected an input \[N, C_in, H, W\] and weights of four axes"):
        nas_pte_1().reference(x[0], *weights)
