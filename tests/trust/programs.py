"""The program that reproduces a failure: it needs Syno Lab alone, and is made of the very functions that found it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from trust import checks
from trust.sources import Case

_BEFORE_TVM = """
from syno_lab.processes.light import import_tvm

import_tvm()  # without torch, beside which it may take the process down
"""


def program(check: Callable[..., str | None], case: Case, complaint: str) -> str:
    """Python source that prints the complaint and exits with 1, or prints ``agrees`` and exits with 0."""
    needed = [checks.arrays, checks.difference]
    needed += [checks.compiled] if check is checks.tvm_values else [checks.torch_module]
    read = "import syno_lab as sl", "sl.Operator.from_json", "operator.loops(binding)"
    return written([*needed, check], case, complaint, *read, uses_tvm=check is checks.tvm_values)


def written(
    functions: Sequence[Callable[..., object]],
    case: Case,
    complaint: str,
    imports: str,
    reader: str,
    shown: str,
    *,
    uses_tvm: bool,
) -> str:
    """The program of a check, which is the last of the functions.

    Args:
        functions: whose source goes into it.
        case: what fails.
        complaint: how.
        imports: a line that imports the reader.
        reader: what reads the operator's JSON.
        shown: an expression for what is printed of ``operator`` under ``binding``.
        uses_tvm: whether TVM is imported before all else.
    """
    said = "\n".join(f"# {line}" for line in complaint.splitlines())
    constants = "\n".join(f"{name} = {getattr(checks, name)!r}" for name in ("TOLERANCE", "DENSE", "DIRECTIONS"))
    sources = "\n\n".join(inspect.getsource(function) for function in functions)
    return f"""{said}
from __future__ import annotations

import sys
from typing import Any

import numpy as np

{imports}
{_BEFORE_TVM if uses_tvm else ""}
{constants}

{sources}

operator = {reader}(\"\"\"{case.text}\"\"\")
binding = {case.binding}
complaint = {functions[-1].__name__}(operator, binding, seed={case.seed})
print({shown})
print(complaint or "agrees")
sys.exit(1 if complaint else 0)
"""
