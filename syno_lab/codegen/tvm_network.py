"""Compile a whole network by TVM's Relax, to measure the network's latency instead of the sum of its layers' latencies.

``torch.nn.Module`` → :func:`~syno_lab.codegen.tvm_export.export_network` → :func:`from_exported` → :func:`optimized` →
:func:`compile_network`. Each Syno operator is one call to its own TIR function, with the stages of its lowering plan.
The layers after an operator (normalization, ReLU, the sum with a shortcut) are fused with it.

Importing this module imports TVM and torch, so use it in a child process, as :mod:`syno_lab.codegen.tvm_job` does.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import tvm
from torch import nn
from tvm import relax
from tvm.ir.expr import GenericConst
from tvm.relax.dpl import is_const, is_op, is_tuple_get_item, rewrite_call, wildcard
from tvm.target import Target

from syno_lab.codegen.tvm_device import find_target, for_target, with_host
from syno_lab.codegen.tvm_export import OPERATOR_CALL, export_network
from syno_lab.codegen.tvm_job import NetworkTask
from syno_lab.codegen.tvm_target import prim_func
from syno_lab.errors import SynoError
from syno_lab.ir.files import from_json

if TYPE_CHECKING:
    from tvm.ir import IRModule
    from tvm.transform import PassContext

_BLOCK = re.compile(r'T\.sblock\("([^"]*)"\)')


def network_to_tvm(
    net: nn.Module,
    example_shape: Sequence[int],
    target: str | Target | None = None,
    *,
    keep_params: bool = False,
) -> IRModule:
    """Return a Relax module: ``main(x)`` for inputs of ``example_shape``, and a TIR function for each kind of operator.

    Args:
        net: any network that torch can export, with or without Syno operators in its placeholders.
        example_shape: the shape of the input, the batch included.
        target: the target for which the module is fused (see :func:`optimized`); None leaves the module as converted.
        keep_params: whether weights are parameters of ``main`` after ``x``, with values in the attribute ``params``;
            else weights are constants. Buffers are always constants.

    Raises:
        SpecError: the network does not take that shape, or torch cannot export it.
        SynoError: TVM has no equivalent of an operation, or does not know the target.
    """
    tvm_target = None if target is None else find_target(target)
    module = from_exported(export_network(net, example_shape), keep_params=keep_params)
    return module if tvm_target is None else optimized(module, tvm_target)


def from_exported(program: torch.export.ExportedProgram, *, keep_params: bool = False) -> IRModule:
    """Convert an exported program to a Relax module; see :func:`network_to_tvm`."""
    from tvm.relax.frontend.torch import from_exported_program

    functions: dict[tuple[str, str, str], Any] = {}

    def convert(node: Any, importer: Any) -> Any:
        x, weights, text, numbers, shape, scale = importer.retrieve_args(node)
        dtype = str(x.ty.dtype)
        builder = importer.block_builder
        if (text, numbers, dtype) not in functions:
            function = prim_func(from_json(text), json.loads(numbers), dtype, index_dtype="int64", is_followed=True)
            # Without a global symbol the function is private, so TVM removes it once it is fused into another function.
            name = f"operator_{len(functions) + 1}"
            functions[text, numbers, dtype] = builder.add_func(function.without_attr("global_symbol"), name)
        result = relax.call_tir(functions[text, numbers, dtype], [x, *weights], relax.TensorType(shape, dtype))
        result = builder.emit(result)
        return result if scale == 1.0 else builder.emit(relax.op.multiply(result, relax.const(scale, dtype)))

    try:
        return from_exported_program(
            program,
            keep_params_as_input=keep_params,
            unwrap_unit_return_tuple=True,
            custom_convert_map={OPERATOR_CALL: convert},
        )
    except SynoError:
        raise
    except (AssertionError, NotImplementedError, KeyError, ValueError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise SynoError(f"TVM cannot import this network from torch: {reason}") from None


def optimized(module: IRModule, target: Target) -> IRModule:
    """Lower ``module`` to calls of fused TIR functions, which are compiled or tuned.

    On a processor the constant weights of convolutions get the output channels innermost, like the weights of pGraphs:
    the schedule rule ``channel-lanes`` needs that order. Batch normalization with constant statistics becomes one
    product and one sum.
    """
    passes = relax.transform
    layouts = [] if "gpu" in target.keys else [passes.ConvertLayout({}, layout_cb=_layouts)]
    with with_host(target):
        return tvm.transform.Sequential(
            [
                _normalization,
                passes.DecomposeOpsForInference(),
                passes.CanonicalizeBindings(),
                *layouts,
                passes.LegalizeOps(),
                passes.AnnotateTIROpPattern(),
                passes.FoldConstant(),
                passes.FuseOps(),
                passes.FuseTIR(),
                passes.DeadCodeElimination(),
            ]
        )(module)


@tvm.transform.module_pass(opt_level=0)
def _normalization(module: IRModule, _context: PassContext) -> IRModule:
    """Replace batch normalization by constants with a product and a sum; TVM's four operations include a division."""
    x, gamma, beta, mean, variance = wildcard(), is_const(), is_const(), is_const(), is_const()
    call = is_op("relax.nn.batch_norm")(x, gamma, beta, mean, variance)

    def simpler(found: Any, matched: Any) -> Any:
        attributes = matched[call].attrs
        if attributes.training:
            return found
        scale, shift, center, spread = (
            matched[pattern].value.numpy().astype("float64") for pattern in (gamma, beta, mean, variance)
        )
        scale = (scale if attributes.scale else 1.0) / np.sqrt(spread + attributes.epsilon)
        shift = (shift if attributes.center else 0.0) - center * scale
        kind = matched[x].ty
        sides = [-1 if axis == int(attributes.axis) else 1 for axis in range(int(kind.ndim))]
        scale, shift = (relax.const(constant.reshape(sides), str(kind.dtype)) for constant in (scale, shift))
        return relax.op.add(relax.op.multiply(matched[x], scale), shift)

    changed = module.clone()  # the caller's module must not change
    for name, function in module.functions_items():
        if isinstance(function, relax.Function):
            changed.update_func(name, rewrite_call(is_tuple_get_item(call, 0), simpler, function))
    return changed


def _layouts(call: relax.Call) -> dict[str, list[str]]:
    """Return new layouts for a call: only for the constant weight of a convolution without groups."""
    if getattr(call.op, "name", "") != "relax.nn.conv2d":
        return {}
    is_changed = call.attrs.groups == 1 and isinstance(call.args[1], GenericConst)
    return {"relax.nn.conv2d": ["NCHW", "IHWO"]} if is_changed else {}


def tuning_tasks(module: IRModule, target: Target) -> list[NetworkTask]:
    """Return the different functions that an :func:`optimized` module calls."""
    from tvm.s_tir.meta_schedule.relax_integration import extract_tasks
    from tvm_ffi import structural_hash

    return [
        NetworkTask(
            str(task.task_name),
            int(task.weight),
            tvm.ir.save_json(task.dispatched[0]),
            " ".join(
                [f"{structural_hash(task.dispatched[0]) % 2**64:016x}", *_BLOCK.findall(task.dispatched[0].script())]
            ),
        )
        for task in extract_tasks(module, with_host(target))
    ]


def task_module(text: str, binding: dict[str, int], dtype: str) -> IRModule:
    """Read the module of a :class:`NetworkTask`; the signature is that of a tuning's builder."""
    return tvm.ir.load_json(text)


def called_functions(module: IRModule) -> list[str]:
    """Return the names of the TIR functions of a module."""
    return sorted(v.name_hint for v, f in module.functions_items() if isinstance(f, tvm.tirx.PrimFunc))


def compile_network(module: IRModule, target: Target, records: str | os.PathLike[str] | None = None) -> tuple[Any, int]:
    """Compile an :func:`optimized` module; return the executable and the number of functions with a tuned schedule.

    ``records`` is a folder with MetaSchedule's ``database_workload.json`` and ``database_tuning_record.json``. A
    function with a record gets the record's schedule. On a GPU the other functions get TVM's default schedule.
    """
    target, tuned = with_host(target), 0
    with target, tvm.transform.PassContext(opt_level=3):
        if records is not None:
            module = relax.transform.MetaScheduleApplyDatabase(os.fspath(records))(module)
            functions = (f for _, f in module.functions_items() if isinstance(f, tvm.tirx.PrimFunc))
            tuned = sum(bool(f.attrs.get("tirx.is_scheduled", False)) for f in functions)
        if "gpu" in target.keys:
            module = for_target(module, target)
        return tvm.compile(module, target=target), tuned
