"""Weights as safetensors files that know whose they are: no pickle, and no weights of another operator by mistake."""

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
    """Write the parameters and buffers of ``to_torch``'s module or of a network with operators, and whose they are.

    The header holds each operator's JSON and binding. Raises ExportError when the module has no operator in it, the
    name does not end in ``.safetensors``, or the place cannot be written to.
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
    """The method :meth:`.Operator.load_weights`, of any system."""
    import torch

    record = read_weights_record(path)
    if list(record.places) != [""]:
        raise FormatError(f"{path}: expected weights of one operator, found those of a network of {len(record.places)}")
    _check(record, "", operator, binding, path)
    if binding is None:
        binding = record.places[""].binding
    wanted, there = operator.params(binding), Path(path).stat().st_size
    if wanted > there:  # an element has a byte at least; making the module might fill the memory
        raise FormatError(f"{path}: expected weights of {quoted(wanted)} elements, found a file of {there} bytes")
    with torch.random.fork_rng(devices=[]):  # the fresh weights are not used: chance stays where it was
        module = torch_module(operator, binding, scale)
    tensors = _tensors(path)
    dtypes = {tensor.dtype for tensor in tensors.values()}
    if len(dtypes) == 1:
        module.to(dtypes.pop())
    _fill(module, tensors, path)
    return module


def load_weights_into(module: nn.Module, path: str | Path) -> None:
    """Fill ``to_torch``'s module, or a network with operators in it, with the weights in ``path``.

    Raises FormatError when the file is no file of :func:`save_weights`, or its operators, bindings or tensors are not
    those of ``module``; the module is then as it was.
    """
    record, mine = read_weights_record(path), operators_in(module)
    if record.places.keys() != mine.keys():
        raise FormatError(f"{path}: expected weights of operators at {_named(mine)}, found {_named(record.places)}")
    for place, (operator, binding) in mine.items():
        _check(record, place, operator, binding, path)
    _fill(module, _tensors(path), path)


def read_weights_record(path: str | Path) -> Record:
    """Whose weights are in ``path``. Raises FormatError when the file is no file of :func:`save_weights`."""
    if Path(path).suffix != SUFFIX:
        raise FormatError(f"{path}: expected a file named *{SUFFIX}")
    return read_record(path)


def _check(record: Record, place: str, operator: Operator, binding: Binding | None, path: str | Path) -> None:
    """Refuse weights of another operator at ``place``, and those of other sizes where ``binding`` gives them."""
    where = f" at {place}" if place else ""
    theirs, name = record.places[place], identity(operator)
    if theirs.operator != name:
        mine, other = str(operator), str(record.operator(place))
        note = " of other steps" if mine == other else ""
        raise FormatError(
            f"{path}: expected weights of {mine} (operator {name[:8]}){where}, "
            f"found those of {other}{note} (operator {theirs.operator[:8]})"
        )
    if binding is not None:
        sizes = operator.complete_binding(binding)
        differ = [name for name in sizes.keys() - batch_variables(operator) if theirs.binding.get(name) != sizes[name]]
        if differ:
            wanted, found = _sizes(Place(name, sizes), differ), _sizes(theirs, differ)
            raise FormatError(f"{path}: expected weights for {wanted}{where}, found those for {found}")


def _named(places: Iterable[str]) -> str:
    """The first paths, ``the top`` for the module itself."""
    names = sorted(place or "the top" for place in places)
    return ", ".join(names[:3] + ["…"] * (len(names) > 3)) or "no place"


def _sizes(place: Place, names: Iterable[str]) -> str:
    return ", ".join(f"{name}={place.binding.get(name, '?')}" for name in sorted(names))


def _tensors(path: str | Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except Exception as error:  # noqa: BLE001 - a damaged header makes the reader raise anything
        raise FormatError(f"{path}: expected tensors, found: {printable(str(error), 2 * QUOTED)}") from None


def _fill(module: nn.Module, tensors: dict[str, torch.Tensor], path: str | Path) -> None:
    """``load_state_dict`` with one line for what does not fit."""
    wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in sorted(wanted.keys() | found):
        if wanted.get(name) != found.get(name):
            mine, theirs = (shapes.get(name, "no such tensor") for shapes in (wanted, found))
            raise FormatError(f"{path}: {name}: expected {mine}, found {theirs}")
    module.load_state_dict(tensors)
