"""Export an operator to a file for other programs; the file is read back and checked before it is moved to its path.

=========================  ===========================================================================
``onnx`` ``.onnx``         an ONNX program with its weights, for ONNX Runtime and others
``torch-export`` ``.pt2``  a ``torch.export`` archive with its weights
``python`` ``.py``         a module in Python that needs torch alone, see :mod:`~syno_lab.codegen.export_source`
``weights``                ``.safetensors``: the weights, see :mod:`~syno_lab.codegen.export_weights`
=========================  ===========================================================================

Each file holds the operator's JSON and binding; :func:`~syno_lab.codegen.export_record.read_operator` reads the two.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from syno_lab.codegen.export_check import (
    TORCH_MODULE,
    Runner,
    batch_axes,
    batch_variables,
    checked_binding,
    compare,
    example_like,
    expected,
    torch_module,
    weights_of,
)
from syno_lab.codegen.export_program import save_onnx, save_program, traced
from syno_lab.codegen.export_record import Record, identity, operators_in, read_operator, record_of
from syno_lab.codegen.export_source import standalone_source
from syno_lab.codegen.export_weights import load_weights, load_weights_into, save_weights
from syno_lab.effort import check_room
from syno_lab.errors import ExportError
from syno_lab.inputs import quoted
from syno_lab.protocol import Binding, Operator
from syno_lab.scratch import replacing

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.export import ExportedProgram

__all__ = [
    "Exported",
    "Format",
    "export",
    "export_network",
    "load_weights",
    "load_weights_into",
    "read_operator",
    "save_weights",
    "standalone_source",
]

_CHECK_SECONDS = 300


class Format(StrEnum):
    """The formats to which an operator can be exported."""

    ONNX = "onnx"
    TORCH_EXPORT = "torch-export"
    PYTHON = "python"
    WEIGHTS = "weights"


SUFFIXES = {Format.ONNX: ".onnx", Format.TORCH_EXPORT: ".pt2", Format.PYTHON: ".py", Format.WEIGHTS: ".safetensors"}

_SAVERS: dict[Format, Callable[[ExportedProgram, Path, Record], Runner]] = {
    Format.ONNX: save_onnx,
    Format.TORCH_EXPORT: save_program,
}


@dataclass(frozen=True)
class Exported:
    """An exported file that was read back and checked.

    Attributes:
        path: the path of the file.
        format: the format of the file.
        bytes: the size of the file in bytes.
        batch_axes: the input axes that take any size; none for weights.
        compared_with: ``loop nest`` or ``NumPy reference`` (the operator's ``reference``), or ``torch module`` if
            ``reference`` takes long. Weights (equal bits) and Python files (their own check) have ``itself``.
        difference: the largest absolute difference between the file's output and the expected output.
        largest: the largest absolute value in the expected output.
    """

    path: Path
    format: Format
    bytes: int
    batch_axes: tuple[int, ...] = ()
    compared_with: str = "itself"
    difference: float = 0.0
    largest: float = 0.0


def export(
    operator: Operator,
    path: str | Path,
    binding: Binding | None = None,
    *,
    format: Format | str | None = None,  # noqa: A002 - the word its users know
    module: nn.Module | None = None,
    scale: float = 1.0,
) -> Exported:
    """Implement :meth:`.Operator.export` for any system."""
    path = Path(path)
    kind = format_of(path, format)
    bound = operator.complete_binding(binding)
    if module is None:
        module = torch_module(operator, bound, scale)
    else:
        _check_module(operator, bound, module)
    if kind is Format.PYTHON:
        return _export_source(operator, path, bound, scale)
    if kind is Format.WEIGHTS:
        return _export_weights(operator, path, bound, module)

    axes = batch_axes(operator)
    checked = checked_binding(operator, bound)
    values = sum(map(prod, (operator.input_sizes(checked), operator.output_sizes(checked))))
    check_room("input and output, to compare with", values * np.dtype(np.float64).itemsize)
    x = np.random.default_rng(0).standard_normal(operator.input_sizes(checked))
    example = example_like(module, x)
    x = example.double().cpu().numpy()  # x rounded to the module's dtype
    wanted, source = expected(operator, checked, module, x, weights_of(operator, checked, module), scale)
    return _export_program(module, kind, path, record_of({"": (operator, bound)}), axes, example, wanted, source)


def export_network(
    module: nn.Module,
    path: str | Path,
    example: torch.Tensor,
    *,
    format: Format | str | None = None,  # noqa: A002 - the word its users know
    axes: Sequence[int] = (0,),
) -> Exported:
    """Export a network with operators in it as ONNX, ``.pt2`` or weights, and compare the file with the network.

    The network is exported in evaluation mode and keeps its own mode. The file's record lists the network's operators.

    Args:
        module: a network from one tensor to one tensor.
        path: the path of the file.
        example: an input of the network.
        format: the format; None means the format of the suffix of ``path``.
        axes: the axes of the input that take any size.

    Raises ExportError as :func:`export`, and for a format that cannot hold a network.
    """
    import torch

    path = Path(path)
    kind = format_of(path, format)
    if kind is Format.WEIGHTS:
        save_weights(module, path)
        load_weights_into(module, path)
        return Exported(path, kind, path.stat().st_size)
    if kind is Format.PYTHON:
        raise ExportError("python: expected one operator, found a network; export each of its operators instead")
    from syno_lab.copies import modes_kept

    with modes_kept(module), torch.no_grad():
        expected_output = module.eval()(example).double().cpu().numpy()
    record = record_of(operators_in(module))
    return _export_program(module, kind, path, record, tuple(axes), example, expected_output, TORCH_MODULE)


def format_of(path: Path, format: Format | str | None) -> Format:  # noqa: A002
    """Return ``format``, or the format of the suffix of ``path`` where ``format`` is None.

    Raises ExportError for an unknown format or suffix, or for another format's suffix: readers rely on the suffix.
    """
    if format is None:
        kinds = [kind for kind, suffix in SUFFIXES.items() if suffix == path.suffix]
        if not kinds:
            suffixes = ", ".join(f"{suffix} ({kind})" for kind, suffix in SUFFIXES.items())
            raise ExportError(f"expected a file with one of the suffixes {suffixes}, found {quoted(path.name)}")
        return kinds[0]
    if format not in list(Format):
        raise ExportError(f"format: expected one of {', '.join(Format)}, found {quoted(format)}")
    kind = Format(format)
    if path.suffix != SUFFIXES[kind]:
        raise ExportError(f"{kind}: expected a file named *{SUFFIXES[kind]}, found {quoted(path.name)}")
    return kind


def _check_module(operator: Operator, binding: Binding, module: nn.Module) -> None:
    operator_here = operators_in(module).get("")
    if operator_here is None or identity(operator_here[0]) != identity(operator):
        text_found = "another module" if operator_here is None else f"that of {operator_here[0]}"
        raise ExportError(f"module: expected to_torch's module of {operator}, found {text_found}")
    differ = sorted(n for n in binding.keys() - batch_variables(operator) if operator_here[1].get(n) != binding[n])
    if differ:
        wanted, found = (", ".join(f"{n}={sizes.get(n)}" for n in differ) for sizes in (binding, operator_here[1]))
        raise ExportError(f"module: expected one for {wanted}, found one for {found}")


def _export_program(
    module: nn.Module,
    kind: Format,
    path: Path,
    record: Record,
    axes: tuple[int, ...],
    example: torch.Tensor,
    wanted: np.ndarray,
    source: str,
) -> Exported:
    """Trace and write the program, read it back, compare the outputs, then move the file to its path."""
    import torch

    # The run below has another batch size than the trace, so the run proves that the program takes any batch size.
    larger = tuple(max(2, n + 1) if axis in axes else n for axis, n in enumerate(example.shape))
    program = traced(module, torch.zeros(larger, dtype=example.dtype, device=example.device), axes)
    with replacing(path) as temporary:
        with torch.no_grad():
            output = _SAVERS[kind](program, temporary, record)(example)
        eps = torch.finfo(output.dtype).eps
        difference = compare(output.double().cpu().numpy(), wanted, eps, f"{kind} {path}", source)
    largest = float(np.abs(wanted).max(initial=0.0))
    return Exported(path, kind, path.stat().st_size, axes, source, difference, largest)


def _export_source(operator: Operator, path: Path, binding: Binding, scale: float) -> Exported:
    text = standalone_source(operator, binding, scale=scale)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
        # -I isolates the interpreter: neither this folder nor the user's folder is on the path.
        process = subprocess.run(
            [sys.executable, "-I", str(temporary)],
            capture_output=True,
            text=True,
            timeout=_CHECK_SECONDS,
            check=False,
        )
        if process.returncode != 0:
            last = (process.stderr.strip().splitlines() or ["no message"])[-1]
            raise ExportError(f"python {path}: read back, its own check failed: {last}")
    return Exported(path, Format.PYTHON, path.stat().st_size, batch_axes(operator))


def _export_weights(operator: Operator, path: Path, binding: Binding, module: nn.Module) -> Exported:
    import torch

    def _bytes(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.cpu().reshape(-1).view(torch.uint8)  # compares bytes: a NaN equals a NaN

    save_weights(module, path)
    again = load_weights(operator, path, binding).state_dict()
    if any(not torch.equal(_bytes(tensor), _bytes(again[name])) for name, tensor in module.state_dict().items()):
        raise ExportError(f"weights {path}: read back, expected the weights that were saved, found others")
    return Exported(path, Format.WEIGHTS, path.stat().st_size)
