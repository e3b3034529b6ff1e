"""Programs of whole tensors: ``torch.export`` archives (``.pt2``) and ONNX files, both with axes of any size.

There is no reader of foreign ``.pt2`` files here: ``torch.export.load`` of torch 2.13 unpickles parts of the archive
and gives texts in it to sympy, either of which can run code. Open only files that you or people you trust have written;
the pGraph inside is read without it (:func:`~syno_lab.codegen.export_record.read_operator`).
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

_MAX_ONNX_BYTES = (1 << 31) - (1 << 20)  # protobuf's limit of a file, with room for all but the weights


def traced(module: nn.Module, example: torch.Tensor, axes: Sequence[int]) -> ExportedProgram:
    """``torch.export``'s program of ``module``, one tensor in and one out, in evaluation mode.

    ``axes`` of the input take any size; those of ``example`` have at least 2 elements: torch takes 0 and 1 for
    constants. Raises ExportError when the module cannot be traced so.
    """
    import torch

    from syno_lab.copies import modes_kept

    dynamic = {axis: torch.export.Dim(f"batch_{axis}" if len(axes) > 1 else "batch") for axis in axes}
    try:
        with modes_kept(module), torch.no_grad(), _contracting_by_pairs():
            return torch.export.export(module.eval(), (example,), dynamic_shapes=(dynamic,))
    except (RuntimeError, ValueError, TypeError) as error:  # torch's own errors are of the first kind
        raise ExportError(
            f"torch.export: expected a module of one tensor with axes {list(axes)} of any size: {_first_line(error)}"
        ) from error


def save_program(program: ExportedProgram, path: Path, record: Record) -> Runner:
    """Write a ``.pt2`` archive; the program read back."""
    import torch

    with _quiet():
        torch.export.save(program, path, extra_files={f"{KEY}.json": record.to_json()})
        # Safe: the file was written one line above.
        module: Runner = torch.export.load(path).module()
    return module


def save_onnx(program: ExportedProgram, path: Path, record: Record) -> Runner:
    """Write an ONNX file, input ``x`` and output ``y``; the file in ONNX Runtime on the CPU, or in onnx's reference.

    Raises ExportError when ONNX has no such program, dtype or size.
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
        # The exporter and the runtime share no base of errors; what is not about the model is not ours to rename.
        if not _is_about_the_model(error):
            raise
        raise ExportError(f"onnx: expected a program that ONNX can hold: {_first_line(error)}") from error

    return lambda x: torch.from_numpy(run(x.detach().cpu().numpy()))


def _to_onnx(program: ExportedProgram) -> ONNXProgram:
    import torch

    def exported(is_optimized: bool) -> ONNXProgram:
        found = torch.onnx.export(
            program, input_names=["x"], output_names=["y"], dynamo=True, verbose=False, optimize=is_optimized
        )
        assert found is not None
        return found

    try:
        return exported(True)
    except Exception as error:
        if not _is_about_the_model(error):
            raise
        # The optimizer of onnxscript fails at a product with an input without axes (IndexError).
        return exported(False)


def _in_onnxruntime(path: Path) -> Callable[[Any], Any]:
    """The file in ONNX Runtime, or in onnx's own reference where that lacks a kernel (convolutions in float64)."""
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
    """Pooling with a divisor of its own as a mean times a number: ONNX knows only means, and torch drops it."""

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
    """Contractions of three tensors and more become products of two while a module is traced.

    ``torch.einsum`` asks opt_einsum for the best order and gives it the sizes, the batch among them, which fixes its
    number in the program. Here the same order is found with a number in its place.
    """
    import torch
    from torch.backends import opt_einsum as backend
    from torch.overrides import TorchFunctionMode

    if not backend.is_available():  # torch then goes from left to right and asks for no size
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
                taken = [tensors.pop(place) for place in sorted(step[0], reverse=True)]
                tensors.append(torch.einsum(step[2], *taken))
            return tensors[0]

    with Pairs():
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch's exporters say about packages that are not there and interfaces of their own."""
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
