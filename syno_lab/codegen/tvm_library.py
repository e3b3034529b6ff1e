"""Writing a compiled library: the side of :mod:`syno_lab.codegen.library` that runs TVM."""

from __future__ import annotations

import platform
import shutil
from typing import Any

import tvm
from tvm.target import Target

from syno_lab.codegen.tvm_device import find_target, for_target, machine, with_host
from syno_lab.codegen.tvm_trace import check_database
from syno_lab.errors import SynoError
from syno_lab.systems import read_operator


def write_library(request: dict[str, Any]) -> dict[str, Any]:
    """Compile what :func:`syno_lab.codegen.library.save_library` asks for; what the record says of target and code."""
    target = with_host(find_target(request["target"]))
    where = machine(target)
    exporting = _linking(where, request["path"])
    module = read_operator(request["operator"]).to_tvm(request["binding"], dtype=request["dtype"])
    tuned = None
    if request["records"] is not None:
        tuned = tuned_module(module, target, request["records"])
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


def tuned_module(module: Any, target: Target, records: str) -> Any | None:
    """``module`` with its best schedule in a folder of records, None where it has none."""
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

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
