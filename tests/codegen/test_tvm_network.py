"""Whole networks through Relax against torch, GPU code against the loop nest; TVM runs in child processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from measured import measured
from torch import nn

import syno_lab as sl
from syno_lab.codegen.library import check_library, library_record
from syno_lab.codegen.tvm_export import OPERATOR_CALL, export_network
from syno_lab.errors import SpecError, SynoError, TuningError
from syno_lab.models import find_convolutions, placeholders, resnet_tiny, with_slots
from syno_lab.tuning import TuningTask, local_board, tune
from syno_lab.tuning.network import tune_functions, tune_network

CHILD = Path(__file__).with_name("tvm_network_child.py")
TOLERANCE = 1e-5


def ask(kind: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, str(CHILD), kind], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def backbone() -> nn.Module:
    """A residual network whose placeholders hold Operator 1, with BatchNorms that have seen something."""
    torch.manual_seed(0)
    net = resnet_tiny(10, width=8)
    sites = [site for site in find_convolutions(net, (3, 8, 8)) if site.in_channels > 3]
    net = with_slots(net, sites)
    for number, (_, slot) in enumerate(placeholders(net)):
        # One operator with a constant factor of its own: it is no part of the pGraph, and must not be lost.
        slot.fill(sl.operators.operator_1().to_torch({"N": 1, **slot.mapping}, scale=1.0 if number else 0.5))
    net(torch.randn(16, 3, 8, 8))
    return net


def calls(program: torch.export.ExportedProgram) -> list[Any]:
    return [n for n in program.graph.nodes if getattr(n.target, "__name__", "") == OPERATOR_CALL]


# -- export, torch alone ---------------------------------------------------------------------------------------------


def test_each_operator_is_one_call_of_the_exported_program() -> None:
    net = backbone().train()
    before = str(net)
    found = calls(export_network(net, (2, 3, 8, 8)))
    assert len(found) == len(placeholders(net)) == 4
    assert net.training
    assert str(net) == before
    assert [one.args[5] for one in found] == [pytest.approx(0.5), 1.0, 1.0, 1.0]
    for one, (_, slot) in zip(found, placeholders(net), strict=True):
        assert sl.Operator.from_json(one.args[2]) == sl.operators.operator_1()
        binding = json.loads(one.args[3])
        assert binding["N"] == 2
        assert slot.mapping.items() <= binding.items()


def test_a_module_in_two_places_stays_one() -> None:
    shared = sl.operators.conv2d().to_torch({"N": 1, "C_in": 4, "C_out": 4, "H": 4, "W": 4})
    program = export_network(nn.Sequential(shared, nn.ReLU(), shared), (1, 4, 4, 4))
    assert len(calls(program)) == 2
    assert len({one.data_ptr() for _, one in program.named_parameters()}) == 1
    assert len(calls(export_network(shared, (3, 4, 4, 4)))) == 1


def test_refusals_of_the_export() -> None:
    module = sl.operators.conv2d().to_torch({"N": 1, "C_in": 4, "C_out": 4, "H": 4, "W": 4})
    with pytest.raises(SpecError, match=r"expected an input of shape \[1, 4, 4, 4\], found \[1, 4, 4, 5\]"):
        export_network(module, (1, 4, 4, 5))
    with pytest.raises(SpecError, match=r"expected a network that torch can export for an input of shape \[1, 5\]"):
        export_network(nn.Linear(4, 4), (1, 5))

    class Another(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(module.weight_1.detach().clone())
            self.operator, self.binding = module.operator, module.binding

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight.sum()

    with pytest.raises(SynoError, match=r"expected a module that computes its operator .* times a constant"):
        export_network(Another(), (1, 4, 4, 4))
    wrong = Another()
    wrong.weight = nn.Parameter(torch.ones(2))
    with pytest.raises(SynoError, match=r"expected an operator's module with weights .*, found \[\(2,\)\]"):
        export_network(wrong, (1, 4, 4, 4))


# -- Relax -----------------------------------------------------------------------------------------------------------


@pytest.mark.tvm
def test_a_network_computes_what_torch_computes() -> None:
    net = backbone().train()
    found = measured(net, (2, 3, 8, 8), repeats=3)
    assert found.error < TOLERANCE
    assert found.functions >= 4
    assert (found.tuned, found.repeats) == (0, 3)
    assert 0 < found.best_ms <= found.latency_ms
    assert net.training


@pytest.mark.tvm
@pytest.mark.warm
def test_operators_stay_functions_of_their_own() -> None:
    found = ask("network")
    # Two of the three calls are of one function: the same pGraph under the same binding.
    assert found["functions"] == ["operator_1", "operator_2"]
    assert found["calls"] == 3
    assert found["parameters"] == [1, 6]
    assert [8, 3, 3, 8] in found["values"]
    assert found["unsupported"].startswith("TVM cannot import this network from torch: ")
    assert "svd" in found["unsupported"]


@pytest.mark.tvm
@pytest.mark.warm
def test_weights_of_convolutions_lie_as_vectors_need_them() -> None:
    """On a processor the output's channels are innermost in a constant weight without groups; elsewhere as in torch."""
    found = ask("convolutions")
    assert found["error"] < TOLERANCE
    grouped = [[16, 1, 3, 2], [32, 4, 1, 1]]
    assert found["weights"]["local:1"] == sorted([*grouped, [8, 3, 3, 16], [32, 1, 1, 24]])
    assert found["weights"]["jetson-orin-nano"] == sorted([*grouped, [16, 8, 3, 3], [24, 32, 1, 1]])
    assert found["vectorized"]
    assert all(found["vectorized"])
    assert found["permuted"] == 0  # nothing is moved in each call


@pytest.mark.tvm
@pytest.mark.warm
def test_what_follows_a_sum_is_computed_with_its_tile() -> None:
    found = ask("followed")
    assert found["error"] < TOLERANCE
    # Two normalizations, the sum and ReLU, behind one convolution.
    assert found["functions"] == ["fused_conv2d_multiply_add_add1_relu_multiply_add"]
    assert found["stays"], "the module that was given"
    assert "divide" in found["with parameters"][0], "parameters of the network are no constants"
    assert max(found["errors"]) < TOLERANCE
    blocks = [line for line in found["before"].splitlines() if not line.startswith(" ")]
    assert len(blocks) == 8
    for one in found["after"]:
        outer = [line for line in one.splitlines() if not line.startswith(" ")]
        assert len(outer) == 2, "the padding and the sum, which all else is inside of"


@pytest.mark.tvm
def test_refusals_of_a_measurement() -> None:
    with pytest.raises(SynoError, match=r"expected a target that this machine .* can run, found 'cuda'"):
        measured(nn.Linear(2, 2), (1, 2), target="cuda")


@pytest.mark.tvm
def test_tuned_schedules_are_used(tmp_path: Path) -> None:
    sizes = {"N": 1, "C_in": 8, "C_out": 8, "H": 6, "W": 6}
    net = nn.Sequential(sl.operators.conv2d().to_torch(sizes), nn.ReLU())
    told: list[str] = []
    with local_board(threads=1) as board:
        found = tune_network(
            net,
            (1, 8, 6, 6),
            board=board,
            records=tmp_path / "network",
            trials=2,
            threads=1,
            repeats=2,
            on_progress=lambda now: told.append(now.label),
        )
        task = TuningTask("conv2d", sl.operators.conv2d().to_json(), {**sizes, "k_1": 3})
        tune(task, tracker=board.address, key=board.key, trials=2, work_dir=tmp_path, records=tmp_path / "one")
    assert not found.functions.failed
    assert told == 2 * list(found.functions.results)
    assert found.measurement.tuned == found.measurement.functions == 1
    assert (found.functions.trials, found.functions.known, found.measurement.repeats) == (2, 0, 6)
    assert found.where.startswith("127.0.0.1:"), "it ran on the board"
    assert (tmp_path / "network" / "schedules" / "database_tuning_record.json").is_file()
    assert found.measurement.error < TOLERANCE
    # Another network that calls the same function, under another name, has its records.
    other = nn.Sequential(OrderedDict(first=net[0], second=net[1], third=nn.AvgPool2d(2)))
    shared = tune_functions(other, (1, 8, 6, 6), threads=1, records=tmp_path / "network", total=3)
    assert len(shared.tasks) == 2
    assert shared.known == 2 < shared.trials
    library = tmp_path / "conv.so"
    assert sl.operators.conv2d().save_library(library, sizes, records=tmp_path / "one").tuned
    assert library_record(library).tuned
    assert check_library(library) < TOLERANCE
    with pytest.raises(SynoError, match=r"expected a record of this operator and binding in .*one, found none"):
        sl.operators.conv2d().save_library(library, sizes | {"H": 8}, records=tmp_path / "one")
    with pytest.raises(TuningError, match="expected at least one trial"):
        tune(task, tracker=board.address, key=board.key, trials=0, work_dir=tmp_path, records=tmp_path / "one")


# -- GPUs ------------------------------------------------------------------------------------------------------------


@pytest.mark.tvm
@pytest.mark.warm
def test_every_known_operator_comes_out_for_a_gpu() -> None:
    found = ask("gpu")
    assert set(found["operators"]) == set(sl.operators.KNOWN)
    for name, one in found["operators"].items():
        assert one["error"] < TOLERANCE, name
        assert one["kernels"] >= 1, name
    assert found["cuda"] >= 2  # Operator 1 has two stages
    if found["cubin"] is not None:  # where there is nvcc or NVRTC
        assert bytes(found["cubin"]) == b"\x7fELF"
    said = found["messages"]
    assert "was built for" in said["not built"]
    assert "cuda" in said["not built"]
    assert said["not built"].endswith("found 'vulkan'")
    assert said["unknown"].startswith("expected a target among local, ")
    assert "found 'no-such'" in said["unknown"]
    assert "found '{'" in said["json"]
