"""Weights as safetensors files, without pickle; the header has the operators, so another operator's file is refused."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from syno_lab.codegen.export_check import batch_variables, torch_module
from syno_lab.codegen.export_record import (
    KEY,
    Place,
    Record,
    identity,
    operators_in,
    read_record,
    record_of,
)
from syno_lab.errors import ExportError, FormatError
from syno_lab.inputs import QUOTED, printable, quoted
from syno_lab.protocol import Binding, Operator
from syno_lab.scratch import replacing

if TYPE_CHECKING:
    import torch
    from torch import nn

SUFFIX = ".safetensors"


def save_weights(module: nn.Module, path: str | Path) -> Path:
    """Write the parameters and buffers of ``to_torch``'s module, or of a network with operators in it.

    The file's header holds each operator's JSON and binding. Raises ExportError when the module has no operator, the
    name does not end in ``.safetensors``, or the file cannot be written.
    """
    from safetensors.torch import save_file

    path = Path(path)
    if path.suffix != SUFFIX:
        raise ExportError(f"weights: expected a file named *{SUFFIX}, found {quoted(path.name)}")
    record = record_of(operators_in(module))
    if not record.places:
        raise ExportError("weights: expected a module with an operator in it, found none; to_torch makes them")
    # Copies, because safetensors refuses tensors that share memory.
    tensors = {name: tensor.detach().clone().contiguous() for name, tensor in module.state_dict().items()}
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata={KEY: record.to_json()})
    return path


def load_weights(
    operator: Operator, path: str | Path, binding: Binding | None = None, *, scale: float = 1.0
) -> nn.Module:
    """Implement :meth:`.Operator.load_weights` for any system."""
    import torch

    record = read_weights_record(path)
    if list(record.places) != [""]:
        raise FormatError(f"{path}: expected weights of one operator, found those of a network of {len(record.places)}")
    _check(record, "", operator, binding, path)
    if binding is None:
        binding = record.places[""].binding
    elements, size = operator.params(binding), Path(path).stat().st_size
    if elements > size:  # an element has at least one byte; a huge module could fill the memory
        raise FormatError(f"{path}: expected weights of {quoted(elements)} elements, found a file of {size} bytes")
    with torch.random.fork_rng(devices=[]):  # the initial weights are unused, so the random state must not change
        module = torch_module(operator, binding, scale)
    tensors = _tensors(path)
    dtypes = {tensor.dtype for tensor in tensors.values()}
    if len(dtypes) == 1:
        module.to(dtypes.pop())
    _fill(module, tensors, path)
    return module


def load_weights_into(module: nn.Module, path: str | Path) -> None:
    """Load the weights in ``path`` into ``to_torch``'s module or a network with operators in it.

    Raises FormatError when :func:`save_weights` has not written the file, or when the file's operators, bindings or
    tensors differ from the module's. The module is unchanged after an error.
    """
    record, own = read_weights_record(path), operators_in(module)
    if record.places.keys() != own.keys():
        raise FormatError(f"{path}: expected weights of operators at {_named(own)}, found {_named(record.places)}")
    for place, (operator, binding) in own.items():
        _check(record, place, operator, binding, path)
    _fill(module, _tensors(path), path)


def read_weights_record(path: str | Path) -> Record:
    """Return the record in ``path``. Raises FormatError when :func:`save_weights` has not written the file."""
    if Path(path).suffix != SUFFIX:
        raise FormatError(f"{path}: expected a file named *{SUFFIX}")
    return read_record(path)


def _check(record: Record, place: str, operator: Operator, binding: Binding | None, path: str | Path) -> None:
    """Raise FormatError unless the weights are for the operator at ``place`` with the sizes of ``binding``."""
    where = f" at {place}" if place else ""
    stored, name = record.places[place], identity(operator)
    if stored.operator != name:
        wanted_text, found_text = str(operator), str(record.operator(place))
        note = " of other steps" if wanted_text == found_text else ""
        raise FormatError(
            f"{path}: expected weights of {wanted_text} (operator {name[:8]}){where}, "
            f"found those of {found_text}{note} (operator {stored.operator[:8]})"
        )
    if binding is not None:
        sizes = operator.complete_binding(binding)
        differ = [name for name in sizes.keys() - batch_variables(operator) if stored.binding.get(name) != sizes[name]]
        if differ:
            sizes_wanted, sizes_found = _sizes(Place(name, sizes), differ), _sizes(stored, differ)
            raise FormatError(f"{path}: expected weights for {sizes_wanted}{where}, found those for {sizes_found}")


def _named(places: Iterable[str]) -> str:
    """Return the first three submodules' paths as text; the module itself is ``the top``."""
    names = sorted(place or "the top" for place in places)
    return ", ".join(names[:3] + ["…"] * (len(names) > 3)) or "no place"


def _sizes(place: Place, names: Iterable[str]) -> str:
    return ", ".join(f"{name}={place.binding.get(name, '?')}" for name in sorted(names))


def _tensors(path: str | Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except Exception as error:  # noqa: BLE001 - the reader raises any error for a damaged header
        raise FormatError(f"{path}: expected tensors, found: {printable(str(error), 2 * QUOTED)}") from None


def _fill(module: nn.Module, tensors: dict[str, torch.Tensor], path: str | Path) -> None:
    """Call ``load_state_dict``, with a message of one line for the first tensor that does not fit."""
    wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in sorted(wanted.keys() | found):
        if wanted.get(name) != found.get(name):
            shape_wanted, shape_found = (shapes.get(name, "no such tensor") for shapes in (wanted, found))
            raise FormatError(f"{path}: {name}: expected {shape_wanted}, found {shape_found}")
    module.load_state_dict(tensors)
