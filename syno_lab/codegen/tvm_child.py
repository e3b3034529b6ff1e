"""The process of a TVM job: ``python -m … <kind>``, a request as JSON on stdin, the answer as one line on stdout."""

from __future__ import annotations

import json
import platform
import shutil
import sys
import traceback
from collections.abc import Callable
from typing import Any

from syno_lab.errors import SynoError
from syno_lab.processes.light import import_tvm


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Compile a network, compare and time it."""
    import numpy as np

    from syno_lab.codegen.tvm_network import called_functions, compile_network, optimized, run_network

    target = _processor(request["target"])
    module = optimized(read_network(request), target)
    names = called_functions(module)
    executable, tuned = compile_network(module, target, request["records"])
    with np.load(request["check"]) as check:
        output, seconds = run_network(executable, check["x"], request["repeats"])
        expected = check["expected"]
    scale = max(float(np.abs(expected).max()), 1e-30)
    return {
        "latency_ms": 1e3 * float(np.median(seconds)),
        "best_ms": 1e3 * min(seconds),
        "repeats": len(seconds),
        "error": float(np.abs(output.astype("float64") - expected).max()) / scale,
        "functions": len(names),
        "tuned": tuned,
        "target": str(target),
    }


def tasks(request: dict[str, Any]) -> dict[str, Any]:
    """The functions of a network that can be tuned."""
    from dataclasses import asdict

    from syno_lab.codegen.tvm_device import find_target
    from syno_lab.codegen.tvm_network import optimized, tuning_tasks

    target = find_target(request["target"])
    return {"tasks": [asdict(task) for task in tuning_tasks(optimized(read_network(request), target), target)]}


def library(request: dict[str, Any]) -> dict[str, Any]:
    """Compile what :func:`syno_lab.codegen.library.save_library` asks for; what the record says of target and code."""
    tvm = import_tvm()
    from syno_lab.codegen.tvm_device import find_target, for_target, machine, with_host
    from syno_lab.systems import read_operator

    target = with_host(find_target(request["target"]))
    where = machine(target)
    exporting = _linking(where, request["path"])
    module = read_operator(request["operator"]).to_tvm(request["binding"], dtype=request["dtype"])
    tuned = None
    if request["records"] is not None:
        tuned = _tuned_module(module, target, request["records"])
        if tuned is None:
            raise SynoError(f"expected a record of this operator and binding in {request['records']}, found none")
    compiled = tvm.compile(for_target(module, target) if tuned is None else tuned, target=target)
    compiled.export_library(request["path"], **exporting)
    is_gpu = "gpu" in target.keys
    return {
        "target": str(target),
        "kind": target.kind.name,
        "machine": where,
        "tuned": tuned is not None,
        "device_code": "source" if is_gpu else None,
        "tvm": tvm.__version__,
    }


def check(request: dict[str, Any]) -> dict[str, Any]:
    """Load a library and compare it with the loop nest."""
    import_tvm()
    from syno_lab.codegen.library import load_library

    return {"error": load_library(request["path"]).error(request["seed"])}


def read_network(request: dict[str, Any]) -> Any:
    """The Relax module of the exported program in a request."""
    import torch

    from syno_lab.codegen.tvm_export import register
    from syno_lab.codegen.tvm_network import from_exported

    register()
    return from_exported(torch.export.load(request["program"]))


def _tuned_module(module: Any, target: Any, records: str) -> Any | None:
    """``module`` with its best schedule in a folder of records, None where it has none."""
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    from syno_lab.codegen.tvm_trace import check_database

    check_database(records)
    database = ms.database.JSONDatabase(work_dir=records, allow_missing=False)
    schedule = ms.tir_integration.compile_tir(database, module, target)
    if schedule is None:
        return None
    return RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod)


def _linking(where: str, path: str) -> dict[str, Any]:
    """How to export for an architecture.

    Raises:
        SynoError: where ``path`` is to be linked and there is no linker for it.
    """
    if path.endswith(".tar"):
        from tvm.support.tar import tar

        return {"fcompile": tar}
    from tvm.support import cc

    if where == platform.machine():
        return {}
    name = f"{where}-linux-gnu-g++"
    compiler = shutil.which(name)
    if compiler is None:
        raise SynoError(
            f"expected {name} on the PATH to link a library for {where}, found none; "
            "save it as a .tar, which is linked where it is loaded"
        )
    return {"fcompile": cc.cross_compiler(compiler)}


def _processor(name: str) -> Any:
    from syno_lab.codegen.tvm_device import find_target, machine

    target = find_target(name)
    if target.kind.name != "llvm" or machine(target) != platform.machine():
        raise SynoError(
            f"expected a target for this machine's processor ({platform.machine()}) to run a network on, found {target}"
        )
    return target


KINDS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "measure": measure,
    "tasks": tasks,
    "library": library,
    "check": check,
}


def answer_one(kinds: dict[str, Callable[[dict[str, Any]], dict[str, Any]]]) -> None:
    """Answer one request; a user's error is an answer too, anything else a stack on stderr."""
    request = json.load(sys.stdin)
    try:
        answer = kinds[sys.argv[1]](request)
    except SynoError as error:
        answer = {"error_message": str(error)}
    except Exception as error:  # noqa: BLE001 - TVM raises many kinds; the parent makes one line of it
        traceback.print_exc()
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        answer = {"error_message": f"TVM failed: {type(error).__name__}: {lines[-1][:300] if lines else ''}"}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    answer_one(KINDS)
