"""Export modules as programs that accept any size along some axes: ``torch.export`` archives (``.pt2``) and ONNX files.

This module never reads foreign ``.pt2`` files. ``torch.export.load`` of torch 2.13 unpickles parts of the archive and
parses texts with sympy, which can run code. Open only files of authors that you trust. The operator in the archive can
be read without ``torch.export.load`` (:func:`~syno_lab.codegen.export_record.read_operator`).
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno_lab.codegen.export_check import Runner
from syno_lab.codegen.export_record import KEY, Record
from syno_lab.errors import ExportError

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.export import ExportedProgram
    from torch.onnx import ONNXProgram

_MAX_ONNX_BYTES = (1 << 31) - (1 << 20)  # protobuf's limit for a file, minus 1 MiB for all data but the weights


def traced(module: nn.Module, example: torch.Tensor, axes: Sequence[int]) -> ExportedProgram:
    """Trace ``module``, from one tensor to one tensor, by ``torch.export`` in evaluation mode.

    The input's ``axes`` take any size. ``example`` has at least 2 elements along each of these axes, because torch
    treats sizes 0 and 1 as constants. Raises ExportError when the module cannot be traced.
    """
    import torch

    from syno_lab.copies import modes_kept

    dynamic = {axis: torch.export.Dim(f"batch_{axis}" if len(axes) > 1 else "batch") for axis in axes}
    try:
        with modes_kept(module), torch.no_grad(), _contracting_by_pairs():
            return torch.export.export(module.eval(), (example,), dynamic_shapes=(dynamic,))
    except (RuntimeError, ValueError, TypeError) as error:  # torch's own errors are RuntimeErrors
        raise ExportError(
            f"torch.export: expected a module of one tensor with axes {list(axes)} of any size: {_first_line(error)}"
        ) from error


def save_program(program: ExportedProgram, path: Path, record: Record) -> Runner:
    """Write a ``.pt2`` archive and return the program that was read back."""
    import torch

    with _quiet():
        torch.export.save(program, path, extra_files={f"{KEY}.json": record.to_json()})
        # This load is safe: the line above wrote the file.
        module: Runner = torch.export.load(path).module()
    return module


def save_onnx(program: ExportedProgram, path: Path, record: Record) -> Runner:
    """Write an ONNX file with input ``x`` and output ``y``; return a function that runs the file on the CPU.

    Raises ExportError when ONNX cannot hold the program, its dtype or its size.
    """
    import torch

    weights = sum(t.numel() * t.element_size() for t in program.state_dict.values())
    if weights > _MAX_ONNX_BYTES:
        raise ExportError(f"onnx: expected at most {_MAX_ONNX_BYTES} bytes of weights in one file, found {weights}")
    try:
        with _quiet():
            aten = torch.ops.aten
            program = program.run_decompositions(
                {pool.default: _pool_by_mean(pool.default) for pool in (aten.avg_pool2d, aten.avg_pool3d)}
            )
            exported = _to_onnx(program)
            exported.model.metadata_props[KEY] = record.to_json()
            exported.save(path, external_data=False)
        run = _in_onnxruntime(path)
    except Exception as error:
        # The exporter's and the runtime's errors have no common class. Errors not about the model are reraised.
        if not _is_about_the_model(error):
            raise
        raise ExportError(f"onnx: expected a program that ONNX can hold: {_first_line(error)}") from error

    return lambda x: torch.from_numpy(run(x.detach().cpu().numpy()))


def _to_onnx(program: ExportedProgram) -> ONNXProgram:
    import torch

    def exported(is_optimized: bool) -> ONNXProgram:
        onnx_program = torch.onnx.export(
            program, input_names=["x"], output_names=["y"], dynamo=True, verbose=False, optimize=is_optimized
        )
        assert onnx_program is not None
        return onnx_program

    try:
        return exported(True)
    except Exception as error:
        if not _is_about_the_model(error):
            raise
        # The optimizer of onnxscript raises IndexError for a product with an input without axes.
        return exported(False)


def _in_onnxruntime(path: Path) -> Callable[[Any], Any]:
    """Load the file in ONNX Runtime, or in onnx's reference evaluator if a kernel is missing (float64 convolutions)."""
    import onnxruntime
    from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

    session: Any
    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except NoKernel:
        from onnx.reference import ReferenceEvaluator

        session = ReferenceEvaluator(str(path))
    return lambda x: session.run(["y"], {"x": x})[0]


def _pool_by_mean(pool: Any) -> Callable[..., Any]:
    """Replace pooling with a divisor by a mean times a factor: ONNX has only means, and torch drops the divisor."""

    def decomposed(
        x: Any,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] | int = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        if divisor_override is None or ceil_mode:
            return NotImplemented
        return pool(x, kernel, stride, padding) * (prod(kernel) / divisor_override)

    return decomposed


def _is_about_the_model(error: Exception) -> bool:
    module = type(error).__module__
    return isinstance(error, RuntimeError) or module.startswith(("onnxruntime", "torch.onnx"))


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


@contextmanager
def _contracting_by_pairs() -> Iterator[None]:
    """While a module is traced, replace contractions of three or more tensors by products of two.

    ``torch.einsum`` passes the sizes to opt_einsum for the best order, and the batch size then becomes a constant of
    the program. In this context, opt_einsum finds the order from a fixed number instead of the batch size.
    """
    import torch
    from torch.backends import opt_einsum as backend
    from torch.overrides import TorchFunctionMode

    if not backend.is_available():  # without opt_einsum torch multiplies from left to right and reads no size
        yield
        return
    optimiser = backend.get_opt_einsum()

    class Pairs(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is not torch.einsum or len(args) < 4:
                return func(*args, **(kwargs or {}))
            equation, *tensors = args
            shapes = [tuple(n if isinstance(n, int) else 2 for n in t.shape) for t in tensors]
            _, path = optimiser.contract_path(equation, *shapes, shapes=True)
            for step in path.contraction_list:
                operands = [tensors.pop(place) for place in sorted(step[0], reverse=True)]
                tensors.append(torch.einsum(step[2], *operands))
            return tensors[0]

    with Pairs():
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the messages of torch's exporters about missing packages and their own deprecated interfaces."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
