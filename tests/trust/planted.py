"""Faults to be caught: ``python planted.py FAULT PROGRAM`` runs a program in a process in which one thing is wrong."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from syno_lab.api import Operator
from syno_lab.errors import SynoError


def _wrapped(change: Callable[[Operator, dict[str, int], Any], None]) -> Callable[..., Any]:
    """``Operator.to_torch`` with ``change`` made to every module that the real one gives."""
    real = Operator.to_torch

    def to_torch(self: Operator, binding: dict[str, int] | None = None, **options: Any) -> Any:
        module = real(self, binding, **options)
        change(self, self.complete_binding(binding), module)
        return module

    return to_torch


def padding() -> None:
    """The last position along an UNFOLD with an even window is zero, as if it were padded too little on the right."""

    def change(operator: Operator, binding: dict[str, int], module: Any) -> None:
        axes = [
            step.operands[0].node.tag
            for step in operator.steps
            if step.primitive == "UNFOLD" and step.operands[0].is_output and step.operands[1].size.at(binding) % 2 == 0
        ]

        def cut(_module: Any, _arguments: Any, y: Any) -> Any:
            y = y.clone()
            for axis in axes:
                y.select(axis, -1).zero_()
            return y

        module.register_forward_hook(cut)

    Operator.to_torch = _wrapped(change)  # type: ignore[method-assign]


def gradient() -> None:
    """Right values, but the first weight's gradient is wrong where a STRIDE stands under an UNFOLD."""

    def change(operator: Operator, binding: dict[str, int], module: Any) -> None:
        def add(_module: Any, _arguments: Any, y: Any) -> Any:
            weight = module.weight_1.sum()
            return y + (weight - weight.detach())

        unfolded = [c for step in operator.steps if step.primitive == "UNFOLD" for c in step.operands]
        if operator.weights and any(c.node.primitive == "STRIDE" for c in unfolded):
            module.register_forward_hook(add)

    Operator.to_torch = _wrapped(change)  # type: ignore[method-assign]


def without_shift(operator: Operator) -> Operator:
    """The operator without its first SHIFT; itself where it has none."""
    from trust.shrink import Edit, edited

    place = next((i for i, step in enumerate(operator.steps) if step.primitive == "SHIFT"), None)
    return operator if place is None else edited(operator, Edit("step", place))


def shift() -> None:
    """TVM code without the first SHIFT."""
    _change_tvm(without_shift)


def crash() -> None:
    """Lowering an EXPAND to TVM takes the process down."""

    def change(operator: Operator) -> Operator:
        if operator.expanded:
            os.kill(os.getpid(), signal.SIGSEGV)
        return operator

    _change_tvm(change)


def refusal() -> None:
    """Lowering a SPLIT to TVM raises."""

    def change(operator: Operator) -> Operator:
        if any(step.primitive == "SPLIT" for step in operator.steps):
            raise SynoError("no SPLIT today")
        return operator

    _change_tvm(change)


def _change_tvm(change: Callable[[Operator], Operator]) -> None:
    from syno_lab.processes.light import import_tvm

    import_tvm()
    from syno_lab.codegen import tvm_target

    real = tvm_target.to_tvm

    def to_tvm(operator: Operator, *arguments: Any, **options: Any) -> Any:
        return real(change(operator), *arguments, **options)

    tvm_target.to_tvm = to_tvm


FAULTS = {fault.__name__: fault for fault in (padding, gradient, shift, crash, refusal)}

if __name__ == "__main__":
    FAULTS[sys.argv[1]]()
    runpy.run_path(sys.argv[2], run_name="__main__")
