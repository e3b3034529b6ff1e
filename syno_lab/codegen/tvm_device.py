"""The devices for which TVM generates code: targets by name, and default schedules for GPUs.

Importing this module imports TVM.
"""

from __future__ import annotations

import difflib
import platform
import shutil
from typing import TYPE_CHECKING, Any

import tvm
import tvm_ffi
from tvm.target import Target

from syno_lab.codegen.target_names import LOCAL, TARGETS, Attribute, describe, local_threads
from syno_lab.errors import SynoError
from syno_lab.inputs import quoted

if TYPE_CHECKING:
    from tvm.ir import BaseFunc, IRModule

_GENERATOR = "target.build."


def find_target(target: str | Target) -> Target:
    """Return the TVM target called ``target``, for which this TVM generates code.

    ``target`` is any text that :func:`~syno_lab.codegen.target_names.describe` reads: a name in
    :data:`~syno_lab.codegen.target_names.TARGETS`, ``local:THREADS``, a TVM tag, kind or JSON object. Raises SynoError
    for a target that TVM does not know or has no code generator for, and for a processor that LLVM does not know. LLVM
    itself would only print a warning and generate code for a generic processor.
    """
    if isinstance(target, Target):
        tvm_target = target
    else:
        description = describe(target)
        try:
            tvm_target = Target(this_processor(local_threads(target)) if description is None else description)
        except Exception as error:  # noqa: BLE001 - TVM raises its own and Python's exceptions
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise SynoError(
                f"expected a target among {', '.join(TARGETS)}, a TVM tag or kind, or a JSON object with a kind, "
                f"found {quoted(target)}: {reason}"
            ) from None
    for part in (tvm_target, tvm_target.host):
        if part is None:
            continue
        if part.kind.name not in generators():
            raise SynoError(
                f"expected a target of a kind that this TVM ({tvm.__version__}) was built for, "
                f"{', '.join(generators())}, found {quoted(part.kind.name)}"
            )
        _check_processor(part)
    return tvm_target


def _check_processor(target: Target) -> None:
    from tvm.target import codegen

    name = str(target.attrs.get("mcpu", "")) if target.kind.name == "llvm" else ""
    if name and name not in ("generic", "native"):
        triple = str(target.attrs.get("mtriple", ""))
        of_triple = Target({"kind": "llvm", **({"mtriple": triple} if triple else {})})
        processors = [str(processor) for processor in codegen.llvm_get_cpu_archlist(of_triple)]
        if name not in processors:
            near = difflib.get_close_matches(name, processors, 1)
            raise SynoError(
                f"expected a processor (mcpu) that LLVM {codegen.llvm_version_major()} knows for "
                f"{triple or platform.machine()}, found {quoted(name)}{f'; did you mean {near[0]}?' if near else ''}"
            )


def generators() -> tuple[str, ...]:
    """Return the kinds of targets that this build of TVM has a code generator for."""
    names = (name for name in tvm_ffi.registry.list_global_func_names() if name.startswith(_GENERATOR))
    return tuple(sorted(name.removeprefix(_GENERATOR) for name in names if not name.endswith("_host")))


def this_processor(threads: int | None = None) -> dict[str, Attribute]:
    """Return LLVM's name of this processor, and the features in which this machine differs from LLVM's description.

    ``num-cores`` is the number of threads that run operators; by default all processors that this process may use.

    Without ``mcpu`` TVM compiles for the oldest processor of the family, and the code is two to three times slower.
    With the name alone, the code could use instructions that a virtual machine hides; they are illegal on this machine.
    """
    from tvm.target import codegen

    name = str(tvm_ffi.get_global_func("tvm.codegen.llvm.GetHostCPUName")())
    here = {str(key): bool(on) for key, on in tvm_ffi.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")().items()}
    implied = set(codegen.llvm_get_cpu_features(Target({"kind": "llvm", "mcpu": name})))
    differences = [("+" if on else "-") + key for key, on in sorted(here.items()) if on != (key in implied)]
    target: dict[str, Attribute] = {"kind": "llvm", "mcpu": name, "num-cores": threads or local_threads(LOCAL) or 1}
    return target | ({"mattr": differences} if differences else {})


def machine(target: Target) -> str:
    """Return the architecture that runs the target's host code, such as ``x86_64`` or ``aarch64``."""
    host = target if target.kind.name in ("llvm", "c") else target.host
    triple = "" if host is None else str(host.attrs.get("mtriple", ""))
    return triple.partition("-")[0] or platform.machine()


def export(library: Any, path: str, linker: str | None = None) -> str:
    """Write a compiled module of TVM to ``path``: a shared library (``.so``) or object files to link later (``.tar``).

    ``linker`` is a C++ compiler for another architecture.
    """
    from tvm.support import cc
    from tvm.support.tar import tar

    if path.endswith(".tar"):
        library.export_library(path, fcompile=tar)
    else:
        library.export_library(path, **({} if linker is None else {"fcompile": cc.cross_compiler(linker)}))
    return path


def linker_for(where: str) -> str | None:
    """Return the C++ compiler on the PATH that links for the architecture ``where``; None if there is no compiler."""
    return shutil.which(f"{where}-linux-gnu-g++")


def with_host(target: Target) -> Target:
    """Return ``target``; a GPU without a host gets this machine as its host."""
    is_gpu = "gpu" in target.keys
    return Target(target, Target({"kind": "llvm"})) if is_gpu and target.host is None else target


def for_target(module: IRModule, target: Target) -> IRModule:
    """Return ``module`` bound to ``target``; on a GPU its functions get TVM's default schedules (dlight).

    TVM rejects some programs of dlight's special rules, for example with one reduction divided among threads and
    another undivided. These programs get dlight's general rule. Functions with a schedule stay unchanged.
    """
    target = with_host(target)
    if "gpu" not in target.keys:
        return tvm.tirx.transform.BindTarget(target)(module)
    return tvm.IRModule({name: _on_gpu(function, target) for name, function in module.functions_items()})


def _on_gpu(function: BaseFunc, target: Target) -> BaseFunc:
    if not isinstance(function, tvm.tirx.PrimFunc) or function.attrs.get("tirx.is_scheduled", False):
        return function
    from tvm.s_tir import dlight

    gpu = dlight.gpu
    special = (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction())

    def scheduled(*rules: dlight.ScheduleRule) -> BaseFunc:
        # The pass changes its module, so each try gets a new module.
        with target:
            module = dlight.ApplyDefaultSchedule(*rules)(tvm.IRModule({"main": function}))
        return tvm.tirx.transform.BindTarget(target)(module)["main"]

    scheduled_function = scheduled(*special, gpu.Fallback())
    return scheduled_function if _compiles(scheduled_function, target) else scheduled(gpu.Fallback())


def _compiles(function: BaseFunc, target: Target) -> bool:
    try:
        tvm.compile(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), target=target)
    except Exception:  # noqa: BLE001 - TVM raises many exceptions; the next try raises its own when compiled
        return False
    return True
