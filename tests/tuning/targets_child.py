"""Compiles conv2d for each target that is named on the command line: what came out, as JSON. TVM stays in here."""

from __future__ import annotations

import json
import struct
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from syno_lab.errors import SynoError
from syno_lab.processes.light import import_tvm

sys.path.insert(0, str(Path(__file__).parent.parent))

BINDING = {"N": 1, "C_in": 4, "C_out": 4, "H": 8, "W": 8, "k_1": 3}


def machines(path: Path) -> list[int]:
    """ELF's ``e_machine`` of every object in a tar."""
    found = []
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            head = file.read(20) if file is not None else b""
            if head[:4] == b"\x7fELF":
                found.append(struct.unpack_from("<H", head, 18)[0])
    return found


def drawn(target: Any, path: str) -> list[int]:
    """The kernels of a candidate that the default method draws for a GPU, and ELF's machines of what is compiled."""
    from cuda_code import device_source
    from tvm.s_tir import meta_schedule as ms

    from syno_lab.codegen.tvm_target import to_tvm
    from syno_lab.operators import conv2d
    from syno_lab.processes.light import tame_intrinsics
    from syno_lab.tuning.jobs import compile_candidate
    from syno_lab.tuning.method import Method
    from syno_lab.tuning.spaces import Means

    tame_intrinsics(*target.intrinsics)
    module = to_tvm(conv2d(), BINDING)
    space = Means(Method(), target, Path(path).parent).space(module)
    means = {"space_generator": space, "search_strategy": "replay-trace", "rand_state": 1, "num_threads": 1}
    context = ms.TuneContext(mod=module, target=target.tvm, **means)
    context.pre_tuning(8, 8, context.generate_design_space(), ms.database.MemoryDatabase(), ms.cost_model.RandomModel())
    found = context.generate_measure_candidates() or []
    program = found[0].sch.mod
    compile_candidate(program, target.tvm, path)
    return [device_source(program, target.tvm).count('extern "C" __global__ void'), *machines(Path(path))]


def facts(name: str, folder: str) -> dict[str, Any]:
    """What TVM makes of one target."""
    import tvm
    from cuda_code import compile_cuda, device_source
    from tvm.support.tar import tar

    from syno_lab.codegen import tvm_device
    from syno_lab.codegen.tvm_target import to_tvm
    from syno_lab.operators import conv2d
    from syno_lab.tuning.targets import resolve

    try:
        found = resolve(name)
    except SynoError as error:
        return {"error": str(error)}
    target = found.tvm
    host = target if found.device == "cpu" else target.host
    answer: dict[str, Any] = {
        "kind": target.kind.name,
        "arch": str(target.attrs.get("arch", "")),
        "mcpu": str(host.attrs.get("mcpu", "")) if host is not None else "",
        "cores": int(host.attrs.get("num-cores", 0)) if host is not None else 0,
        "artifact": found.artifact,
        "cubin": None,
    }
    if name == "jetson-orin-nano":
        answer["drawn"] = drawn(found, str(Path(folder) / "drawn.tar"))
    module = tvm_device.for_target(to_tvm(conv2d(), BINDING), target)
    path = Path(folder) / "made.tar"
    tvm.compile(module, target=tvm_device.with_host(target)).export_library(str(path), fcompile=tar)
    answer["machines"] = machines(path)
    if found.device == "cuda":
        source = device_source(module, target)
        answer["kernels"] = source.count('extern "C" __global__ void')
        try:
            cubin = compile_cuda(source, answer["arch"])
            answer["cubin"] = {"elf": cubin[:4] == b"\x7fELF", "names_arch": answer["arch"].encode() in cubin}
        except RuntimeError as error:
            answer["no_cubin"] = str(error)
    return answer


if __name__ == "__main__":
    import_tvm()
    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps({name: facts(name, scratch) for name in sys.argv[1:]}))
