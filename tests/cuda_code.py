"""CUDA of a module of TVM's: its source, and a cubin of it where nvcc or NVRTC is; imports TVM."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from typing import Any

import tvm

from syno_lab.codegen.tvm_device import with_host


def device_source(module: Any, target: Any) -> str:
    """The CUDA C++ of the GPU's part of a module that is scheduled for a GPU."""
    library = tvm.compile(module, target=with_host(target))
    return "\n".join(str(part.inspect_source()) for part in library.mod.imports)


def cuda_compilers() -> list[str]:
    """What this machine can compile CUDA source with: ``nvcc`` on the PATH, ``nvrtc`` through cuda-bindings."""
    try:
        has_nvrtc = find_spec("cuda.bindings.nvrtc") is not None
    except ModuleNotFoundError:
        has_nvrtc = False
    return [*(["nvcc"] if shutil.which("nvcc") else []), *(["nvrtc"] if has_nvrtc else [])]


def compile_cuda(source: str, arch: str) -> bytes:
    """A cubin of CUDA ``source`` for ``arch`` (``sm_87``). Raises RuntimeError where no compiler here takes it."""
    from tvm.support.nvcc import compile_cuda as by_tvm

    compilers = cuda_compilers()
    if not compilers:
        raise RuntimeError(f"no compiler for {arch}")
    try:
        with tvm.target.Target({"kind": "cuda", "arch": arch}):
            return bytes(by_tvm(source, target_format="cubin", arch=arch, compiler=compilers[0]))
    except (RuntimeError, OSError, ValueError) as error:
        raise RuntimeError(f"{compilers[0]} does not compile the source for {arch}: {error}") from None
