"""Every named target: what TVM makes of it, and that what is compiled for it is code of its processor."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from syno_lab.codegen.target_names import TARGETS, architecture, describe, local_threads
from syno_lab.errors import SynoError, TuningError
from syno_lab.tuning.targets import check_target

AARCH64, X86_64 = 183, 62  # ELF's e_machine, https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html
HERE = {"x86_64": X86_64, "aarch64": AARCH64}.get(platform.machine())
OTHERS = ("llvm -mcpu=skylake -num-cores=4", '{"kind": "llvm", "mcpu": "cortex-a7x", "mtriple": "aarch64-linux-gnu"}')


def compiled(*names: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("targets_child.py")), *names],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.tvm
@pytest.mark.warm
def test_every_target_gets_code_of_its_own_processor() -> None:
    answers = compiled(*TARGETS, "local:1", *OTHERS)
    boards = {
        "jetson-orin-nano": ("cortex-a78ae", 6, "sm_87"),
        "jetson-agx-orin": ("cortex-a78ae", 12, "sm_87"),
        "jetson-xavier": ("carmel", 8, "sm_72"),
    }
    for name, (processor, cores, arch) in boards.items():
        cpu, gpu = answers[f"{name}-cpu"], answers[name]
        for found in (cpu, gpu):
            assert (found["mcpu"], found["cores"]) == (processor, cores)
            assert found["machines"]
            assert set(found["machines"]) == {AARCH64}
            assert found["artifact"] == ("so" if platform.machine() == "aarch64" else "tar")
        assert (cpu["kind"], cpu["arch"]) == ("llvm", "")
        assert (gpu["kind"], gpu["arch"]) == ("cuda", arch)
    for name in ("jetson-orin-nano", "jetson-agx-orin", "jetson-xavier", "cuda"):
        assert answers[name]["kernels"] >= 1
        cubin = answers[name]["cubin"]
        if cubin is None:  # no compiler here, or one that has dropped this card: CUDA 13 knows none before sm_75
            assert answers[name]["arch"] in answers[name]["no_cubin"]
        else:
            assert cubin == {"elf": True, "names_arch": True}
    kernels, *objects = answers["jetson-orin-nano"]["drawn"]
    assert kernels >= 1
    assert set(objects) == {AARCH64}
    assert answers["cuda"]["arch"] == "sm_75"
    # Not TVM's default of the oldest processor of the family.
    assert answers["local"]["mcpu"] not in ("", "generic", platform.machine())
    assert answers["local"]["cores"] == local_threads("local")
    assert answers["local:1"]["cores"] == 1
    for name in ("local", "local:1", "cuda"):
        assert set(answers[name]["machines"]) == {HERE}
        assert answers[name]["artifact"] == "so"
    assert (answers[OTHERS[0]]["mcpu"], answers[OTHERS[0]]["cores"]) == ("skylake", 4)
    # LLVM itself would only warn, and compile for a generic processor.
    assert "that LLVM" in answers[OTHERS[1]]["error"]
    assert "found 'cortex-a7x'; did you mean cortex-a" in answers[OTHERS[1]]["error"]


def test_descriptions() -> None:
    assert describe("local") is None
    assert describe("nvidia/jetson-nano") == "nvidia/jetson-nano"
    assert describe('{"kind": "cuda", "arch": "sm_90"}') == {"kind": "cuda", "arch": "sm_90"}
    assert describe("llvm -mcpu=skylake -mattr=+avx2,-avx512f -num-cores=4") == {
        "kind": "llvm", "mcpu": "skylake", "mattr": ["+avx2", "-avx512f"], "num-cores": 4,
    }  # fmt: skip
    orin = describe("jetson-orin-nano")
    assert isinstance(orin, dict)
    assert orin["host"] == describe("jetson-orin-nano-cpu")
    assert [name for name, target in TARGETS.items() if target.is_gpu] == [
        "jetson-orin-nano", "jetson-agx-orin", "jetson-xavier", "cuda",
    ]  # fmt: skip


def test_the_architecture_that_a_target_is_for() -> None:
    here = platform.machine()
    assert [architecture(name) for name in ("jetson-orin-nano-cpu", "jetson-orin-nano")] == ["aarch64"] * 2
    assert [architecture(name) for name in ("local:1", "cuda", "llvm -mcpu=skylake")] == [here] * 3
    assert architecture('{"kind": "llvm", "mtriple": "riscv64-linux-gnu"}') == "riscv64"
    assert architecture("nvidia/jetson-nano") == "", "only TVM knows its tags"


def test_threads_of_this_machine() -> None:
    usable = len(os.sched_getaffinity(0))
    assert local_threads("local") == usable
    assert local_threads("local:1") == 1
    assert local_threads("jetson-orin-nano-cpu") is None
    assert local_threads("locally") is None
    for wrong in ("local:0", f"local:{usable + 1}", "local:", "local:two"):
        with pytest.raises(SynoError, match=f"expected local:THREADS with 1 to {usable} threads, found"):
            local_threads(wrong)


@pytest.mark.parametrize(
    ("target", "match"),
    [
        ("llvm mcpu", "expected a target among local, jetson-orin-nano-cpu"),
        ("-mcpu=skylake", "expected a target among"),
        ("", "expected a target among"),
        ('{"kind": ', "expected a TVM target as JSON"),
        ('{"mcpu": "skylake"}', "expected a TVM target with a 'kind'"),
        ("local:0", "expected local:THREADS"),
        (
            "jetson_orin_nano",
            r"there is no target 'jetson_orin_nano'; there are jetson-orin-nano, jetson-orin-nano-cpu, ",
        ),
        ("Jetson-AGX-Orin", r"there is no target .*; there are jetson-agx-orin, jetson-agx-orin-cpu, "),
        ("jetson-xavir", r"there are jetson-xavier, jetson-xavier-cpu, .*, cuda.*, and TVM's tags and kinds"),
        ("Cuda", "there is no target 'Cuda'; there are cuda, "),
        ("locl", "there is no target 'locl'; there are local, "),
    ],
)
def test_wrong_targets(target: str, match: str) -> None:
    with pytest.raises(TuningError, match=match):
        check_target(target)


@pytest.mark.parametrize(
    "target", ["nvidia/jetson-orin-nano", "llvm", "opencl", "vulkan", "rocm", "metal", "hexagon", "c"]
)
def test_tvm_s_own_tags_and_kinds_are_left_to_tvm(target: str) -> None:
    assert describe(target) == target
