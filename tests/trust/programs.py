"""The program that reproduces a failure: it needs Syno Lab alone, and is made of the very functions that found it."""

from __future__ import annotations

import inspect
from collections.abc import Callable

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
    said = "\n".join(f"# {line}" for line in complaint.splitlines())
    constants = "\n".join(f"{name} = {getattr(checks, name)!r}" for name in ("TOLERANCE", "DENSE", "DIRECTIONS"))
    functions = "\n\n".join(inspect.getsource(function) for function in (*needed, check))
    return f"""{said}
from __future__ import annotations

import sys
from typing import Any

import numpy as np

import syno_lab as sl
{_BEFORE_TVM if check is checks.tvm_values else ""}
{constants}

{functions}

operator = sl.Operator.from_json(\"\"\"{case.text}\"\"\")
binding = {case.binding}
complaint = {check.__name__}(operator, binding, seed={case.seed})
print(operator.loops(binding))
print(complaint or "agrees")
sys.exit(1 if complaint else 0)
"""
