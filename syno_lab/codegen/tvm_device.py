"""Devices that TVM writes code for: targets by name, and the default schedule of a GPU.

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
    """The TVM target called ``target``, for which this TVM generates code.

    That is whatever :func:`~syno_lab.codegen.target_names.describe` reads: a name in
    :data:`~syno_lab.codegen.target_names.TARGETS`, ``local:THREADS``, a TVM tag, kind or JSON object. Raises SynoError
    for a target that TVM does not know, has no code generator for, or whose processor LLVM does not know (LLVM itself
    only prints a warning, and generates code for a generic one).
    """
    if isinstance(target, Target):
        found = target
    else:
        description = describe(target)
        try:
            found = Target(this_processor(local_threads(target)) if description is None else description)
        except Exception as error:  # noqa: BLE001 - TVM raises its own and Python's kinds alike
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise SynoError(
                f"expected a target among {', '.join(TARGETS)}, a TVM tag or kind, or a JSON object with a kind, "
                f"found {quoted(target)}: {reason}"
            ) from None
    for one in (found, found.host):
        if one is None:
            continue
        if one.kind.name not in generators():
            raise SynoError(
                f"expected a target of a kind that this TVM ({tvm.__version__}) was built for, "
                f"{', '.join(generators())}, found {quoted(one.kind.name)}"
            )
        _check_processor(one)
    return found


def _check_processor(target: Target) -> None:
    from tvm.target import codegen

    name = str(target.attrs.get("mcpu", "")) if target.kind.name == "llvm" else ""
    if name and name not in ("generic", "native"):
        triple = str(target.attrs.get("mtriple", ""))
        asked = Target({"kind": "llvm", **({"mtriple": triple} if triple else {})})
        known = [str(one) for one in codegen.llvm_get_cpu_archlist(asked)]
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise SynoError(
                f"expected a processor (mcpu) that LLVM {codegen.llvm_version_major()} knows for "
                f"{triple or platform.machine()}, found {quoted(name)}{f'; did you mean {near[0]}?' if near else ''}"
            )


def generators() -> tuple[str, ...]:
    """The kinds of targets that this build of TVM has a code generator for."""
    names = (name for name in tvm_ffi.registry.list_global_func_names() if name.startswith(_GENERATOR))
    return tuple(sorted(name.removeprefix(_GENERATOR) for name in names if not name.endswith("_host")))


def this_processor(threads: int | None = None) -> dict[str, Attribute]:
    """LLVM's name for this processor, with the features in which this machine differs from that name.

    ``num-cores`` are the threads that operators are to run in: all processors that this process may use, by default.

    Without ``mcpu`` TVM compiles for the oldest processor of the family, two to three times slower code; with the
    name alone, code for features that a virtual machine hides would be illegal here.
    """
    from tvm.target import codegen

    name = str(tvm_ffi.get_global_func("tvm.codegen.llvm.GetHostCPUName")())
    here = {str(key): bool(on) for key, on in tvm_ffi.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")().items()}
    implied = set(codegen.llvm_get_cpu_features(Target({"kind": "llvm", "mcpu": name})))
    differences = [("+" if on else "-") + key for key, on in sorted(here.items()) if on != (key in implied)]
    target: dict[str, Attribute] = {"kind": "llvm", "mcpu": name, "num-cores": threads or local_threads(LOCAL) or 1}
    return target | ({"mattr": differences} if differences else {})


def machine(target: Target) -> str:
    """The architecture that the target's host code runs on, such as ``x86_64`` or ``aarch64``."""
    host = target if target.kind.name in ("llvm", "c") else target.host
    triple = "" if host is None else str(host.attrs.get("mtriple", ""))
    return triple.partition("-")[0] or platform.machine()


def export(library: Any, path: str, linker: str | None = None) -> str:
    """Write what TVM has compiled to ``path``, a shared library (``.so``) or objects to link elsewhere (``.tar``).

    ``linker`` is a C++ compiler for another machine's architecture.
    """
    from tvm.support import cc
    from tvm.support.tar import tar

    if path.endswith(".tar"):
        library.export_library(path, fcompile=tar)
    else:
        library.export_library(path, **({} if linker is None else {"fcompile": cc.cross_compiler(linker)}))
    return path


def linker_for(where: str) -> str | None:
    """The C++ compiler on the PATH that links for another architecture than this machine's, None without one."""
    return shutil.which(f"{where}-linux-gnu-g++")


def with_host(target: Target) -> Target:
    """``target``, with this machine as the host of a GPU that names none."""
    is_gpu = "gpu" in target.keys
    return Target(target, Target({"kind": "llvm"})) if is_gpu and target.host is None else target


def for_target(module: IRModule, target: Target) -> IRModule:
    """``module`` bound to ``target``; for a GPU its functions get TVM's default schedules (dlight), which compile.

    dlight's rules do not always give a program that TVM accepts (a reduction divided among threads beside others that
    are not, for one): the general rule for any program stands in then. Functions that have a schedule keep it.
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
        # The pass changes the module that it is given: each try gets its own.
        with target:
            tried = dlight.ApplyDefaultSchedule(*rules)(tvm.IRModule({"main": function}))
        return tvm.tirx.transform.BindTarget(target)(tried)["main"]

    found = scheduled(*special, gpu.Fallback())
    return found if _compiles(found, target) else scheduled(gpu.Fallback())


def _compiles(function: BaseFunc, target: Target) -> bool:
    try:
        tvm.compile(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), target=target)
    except Exception:  # noqa: BLE001 - TVM raises many kinds; whoever compiles the next try gets its error
        return False
    return True
