"""Checkpoints: the state of a training in a file that is replaced after each epoch. Reading runs no code from the file.

The file's first line is a name and the SHA-256 of the remaining bytes, which ``torch.save`` wrote.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from torch import nn

from syno_lab.errors import TrainingError
from syno_lab.inputs import quoted, read_bytes
from syno_lab.training.files import write_whole
from syno_lab.training.records import EpochRecord

_FORMAT = "syno-lab-checkpoint"
_VERSION = 3
_HEADER = b"syno-lab-checkpoint sha256 "
_HEADER_BYTES = len(_HEADER) + 2 * hashlib.sha256().digest_size + 1
# The state of an optimizer has one or two tensors for each parameter, and some numbers.
_MOST_TIMES, _MOST_MORE = 8, 1 << 26


#: The settings that determine the result of a training, by name; a checkpoint with other settings is refused.
Settings = Mapping[str, str | int | float | None]


class DamagedCheckpointError(TrainingError):
    """A file is not a checkpoint, or its bytes have changed after it was written."""


@dataclass(frozen=True)
class Trained:
    """The objects of a training that have a state: module, optimizer and scaler."""

    module: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler


@dataclass(frozen=True)
class Standing:
    """The progress of a training."""

    curve: list[EpochRecord]
    last_loss: float | None
    wall_s: float
    cpu_s: float
    work_s: float


def save_checkpoint(path: Path, settings: Settings, trained: Trained, standing: Standing) -> None:
    """Write a checkpoint. Raises TrainingError if the file cannot be written."""
    buffer = io.BytesIO()
    state = {
        "format": _FORMAT,
        "version": _VERSION,
        "settings": dict(settings),
        "standing": msgspec.to_builtins(standing),
        "module": trained.module.state_dict(),
        "optimizer": trained.optimizer.state_dict(),
        "scaler": trained.scaler.state_dict(),
    }
    torch.save(state, buffer)
    content = buffer.getvalue()
    write_whole(path, _HEADER + hashlib.sha256(content).hexdigest().encode() + b"\n" + content)


def load_checkpoint(path: Path, settings: Settings, trained: Trained, device: torch.device) -> Standing:
    """Load a checkpoint's state into ``trained`` and return its progress.

    Raises DamagedCheckpointError for a damaged file. Raises TrainingError for a file that cannot be read, and for a
    checkpoint of another training or version.
    """
    hint = f"delete {path} or name another checkpoint"
    content = _content(path, trained.module, hint)
    try:
        # weights_only: only tensors and plain values are read, so the file cannot run code.
        state = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
    except Exception as error:  # noqa: BLE001 - torch's reader can raise any exception on bytes that are no checkpoint
        raise DamagedCheckpointError(f"expected a checkpoint in {path}, found: {_line(error)}; {hint}") from None
    format_found = state.get("format") if isinstance(state, dict) else None
    if format_found != _FORMAT or state.get("version") != _VERSION:
        raise TrainingError(f"expected a checkpoint of version {_VERSION} in {path}, found something else; {hint}")
    try:
        for name in settings.keys() | state["settings"].keys():
            expected, actual = settings.get(name), state["settings"].get(name)
            if actual != expected:
                raise TrainingError(
                    f"expected a checkpoint of a training with {name} {quoted(expected)} in {path}, "
                    f"found {quoted(actual)}; {hint}"
                )
        standing = msgspec.convert(state["standing"], Standing)
        trained.module.load_state_dict(state["module"])
        trained.optimizer.load_state_dict(state["optimizer"])
        trained.scaler.load_state_dict(state["scaler"])
    except (LookupError, AttributeError, TypeError, ValueError, RuntimeError, msgspec.ValidationError) as error:
        raise TrainingError(f"expected a checkpoint of this module in {path}, found: {_line(error)}; {hint}") from None
    return standing


def _content(path: Path, module: nn.Module, hint: str) -> bytes:
    """Return the bytes that ``torch.save`` wrote, after a check of their digest."""
    tensors = module.state_dict().values()
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors if isinstance(tensor, torch.Tensor))
    try:
        content = read_bytes(path, _MOST_TIMES * size + _MOST_MORE)
    except OSError as error:
        raise TrainingError(f"expected a checkpoint in {path}, found: {error.strerror or error}; {hint}") from None
    header, state = content[:_HEADER_BYTES], content[_HEADER_BYTES:]
    if header == _HEADER + hashlib.sha256(state).hexdigest().encode() + b"\n":
        return state
    raise DamagedCheckpointError(f"expected a checkpoint in {path}, found another file or a damaged one; {hint}")


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
