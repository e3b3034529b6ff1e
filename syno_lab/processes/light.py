"""Import hooks that shorten TVM's imports in child processes. Full imports took 80 % of a default tuning's CPU time.

No hook changes TVM permanently: each hook is removed after the import.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

_INTRINSICS = "tvm.s_tir.tensor_intrin"


@contextlib.contextmanager
def without(package: str) -> Iterator[None]:
    """Make imports of ``package`` within the block raise ModuleNotFoundError, unless it is imported already."""
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment] # None refuses an import
    if package in modules:
        yield
        return
    modules[package] = None
    try:
        yield
    finally:
        del modules[package]


def import_tvm() -> ModuleType:
    """Import TVM without PyTorch, which ``tvm_ffi`` otherwise imports for interchange: 0.7 s instead of 2.2 s."""
    with without("torch"):
        return importlib.import_module("tvm")


def import_xgboost() -> ModuleType:
    """Import XGBoost without data frames and estimators, which MetaSchedule does not use: 0.3 s instead of 1.4 s."""
    with without("pandas"), without("sklearn"):
        return importlib.import_module("xgboost")


def _frames(context: int = 0) -> list[inspect.FrameInfo]:
    """Return the frames of ``inspect.stack()`` without source lines, which the parser does not need."""
    outer = ((one, one.f_code) for one, _ in traceback.walk_stack(sys._getframe(1)))
    return [inspect.FrameInfo(one, code.co_filename, one.f_lineno, code.co_name, None, None) for one, code in outer]


def tame_intrinsics(*families: str) -> None:
    """Make ``import tvm.s_tir.tensor_intrin`` register only the named families (``x86``, ``arm_cpu``, ``cuda``).

    MetaSchedule imports that package before each search. The package parses every CUDA, ROCm and Hexagon intrinsic. For
    each intrinsic the parser looks for source lines in all loaded modules by ``inspect.stack()``: 12 CPU seconds, and
    36 where PyTorch is loaded too. Call this after :func:`import_tvm`.
    """
    tvm = sys.modules["tvm"]
    package = types.ModuleType(_INTRINSICS)
    package.__path__ = [str(Path(str(tvm.__file__)).parent / "s_tir" / "tensor_intrin")]
    sys.modules[_INTRINSICS] = tvm.s_tir.tensor_intrin = package
    slow, inspect.stack = inspect.stack, _frames
    try:
        for family in families:
            importlib.import_module(f"{_INTRINSICS}.{family}")
    finally:
        inspect.stack = slow
