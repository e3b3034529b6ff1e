"""A share of the large checks of ``benchmarks/canvas.py``, with other kernels in each run, and a fault to be caught."""

import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from trust import kernels
from trust.harness import run

from syno_lab.canvas import Sampler
from syno_lab.canvas.fitted import Fitted
from syno_lab.canvas.kernel import Draft
from syno_lab.models.registry import BACKBONES

VALUES, GRADIENTS, TVM, NETWORKS = 120, 40, 6, 6


def check(counts: dict[str, int], seed: int) -> None:
    """Fail with the program of every failure."""
    stream = kernels.cases(seed)
    report, failures = run(counts, seed, stream=stream, command=kernels.COMMAND, subject=kernels.KERNELS)
    assert not failures, f"seed {seed}\n" + "\n".join(map(str, failures))
    assert report["checked"] == counts


def test_modules_files_and_keys_agree_on_a_fresh_share(fresh_seed: int) -> None:
    check({"values": VALUES, "gradients": GRADIENTS, "files and keys": VALUES}, fresh_seed)


@pytest.mark.tvm
def test_compiled_tvm_code_agrees_on_a_fresh_share(fresh_seed: int) -> None:
    check({"tvm": TVM}, fresh_seed)


def test_renumbered_kernels_and_pairs_of_a_fresh_share(fresh_seed: int) -> None:
    texts = [case.text for case in islice(kernels.cases(fresh_seed), VALUES)]
    assert kernels.renumberings(texts[:5], 100, fresh_seed) == 0, f"seed {fresh_seed}"
    assert kernels.pairs(texts)["wrong"] == 0, f"seed {fresh_seed}"


def test_kernels_run_in_all_places_of_resnet_20(fresh_seed: int) -> None:
    net = BACKBONES["resnet20"].build(outputs=10)
    sampler = Sampler(net, example=(3, 32, 32), seed=fresh_seed)
    for _ in range(NETWORKS):
        operator = sampler.sample()
        made = sampler.replace(net, operator)
        made(torch.zeros(2, 3, 32, 32)).sum().backward()
        assert all(weight.grad is not None for weight in made.parameters()), f"seed {fresh_seed}: {operator.to_json()}"


# -- faults that must be caught ----------------------------------------------------------------------------------------


def planted(kernel: Fitted, binding: dict[str, int]) -> Any:
    """Its module with a mistake in it: what is folded by its mean is summed."""
    source = kernel.to_torch_source(binding).replace(".mean(2)", ".sum(2)")
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    return namespace["SynoOperator"]()


def agrees(program: str, folder: Path) -> None:
    """Run a printed program, which needs Syno Lab alone."""
    (folder / "program.py").write_text(program, encoding="utf-8")
    words = [sys.executable, "program.py"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("agrees\n")


@pytest.mark.warm
def test_a_fault_is_caught_shrunk_and_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    draft = Draft()
    for text, tensor in (("fc C", 0), ("relu", 1), ("fold_avg H", 2), ("tanh", 3)):
        draft = draft.apply(text, tensor)
    operator = Fitted(draft.broadcast("mul", 4, 2).kernel(normalise=True))
    bound = operator.complete_binding({"C_in": 8, "C_out": 4, "H": 3, "W": 5, "s": 2})
    case = kernels.KernelCase(operator.to_json(), bound, 1, "by hand")
    monkeypatch.setattr(Fitted, "to_torch", planted)
    report, failures = run({"values": 1, "gradients": 1}, 0, stream=[case], subject=kernels.KERNELS)
    assert report["failed"] == {"values": 1, "gradients": 1}
    for failure in failures:
        assert failure.steps == 2, failure.program  # the fold, and what makes an image of it again
        assert "differs from the meaning" in failure.complaint
    agrees(failures[1].program, tmp_path)  # the fault is in this process alone


@pytest.mark.warm
def test_the_program_of_a_key_runs(tmp_path: Path) -> None:
    case = next(kernels.cases(0))
    agrees(kernels.program(kernels.files_and_keys, case, "why"), tmp_path)
