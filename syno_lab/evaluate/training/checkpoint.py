"""The state of a training in a file: written whole after each epoch, read back without running anything."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn

from syno_lab.errors import TrainingError
from syno_lab.evaluate.training.files import write_whole
from syno_lab.evaluate.training.records import EpochRecord

_FORMAT = "syno-lab-checkpoint"
_VERSION = 2


@dataclass(frozen=True)
class Trained:
    """What is trained: the parts of a training that have a state of their own."""

    module: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler


@dataclass(frozen=True)
class Standing:
    """How far a training has come."""

    curve: list[EpochRecord]
    last_loss: float | None
    wall_s: float
    cpu_s: float


def save_checkpoint(path: Path, settings: dict[str, Any], trained: Trained, standing: Standing) -> None:
    """Write a checkpoint; TrainingError where the place cannot be written."""
    buffer = io.BytesIO()
    state = {
        "format": _FORMAT,
        "version": _VERSION,
        "settings": settings,
        "standing": msgspec.to_builtins(standing),
        "module": trained.module.state_dict(),
        "optimizer": trained.optimizer.state_dict(),
        "scaler": trained.scaler.state_dict(),
    }
    torch.save(state, buffer)
    write_whole(path, buffer.getvalue())


def load_checkpoint(path: Path, settings: dict[str, Any], trained: Trained, device: torch.device) -> Standing:
    """Put a checkpoint's state into ``trained`` and return how far it has come.

    Raises TrainingError for a file that is damaged, and for a checkpoint of another training or another version.
    """
    other = f"delete {path} or name another checkpoint"
    try:
        # weights_only: nothing but tensors and plain values is admitted, so the file cannot run code.
        state = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # noqa: BLE001 - bytes that are no checkpoint make torch's reader raise anything
        raise TrainingError(f"expected a checkpoint in {path}, found: {_line(error)}; {other}") from None
    found = state.get("format") if isinstance(state, dict) else None
    if found != _FORMAT or state.get("version") != _VERSION:
        raise TrainingError(f"expected a checkpoint of version {_VERSION} in {path}, found something else; {other}")
    try:
        for name in settings.keys() | state["settings"].keys():
            wanted, there = settings.get(name), state["settings"].get(name)
            if there != wanted:
                raise TrainingError(
                    f"expected a checkpoint of a training with {name} {wanted!r} in {path}, found {there!r}; {other}"
                )
        standing = msgspec.convert(state["standing"], Standing)
        trained.module.load_state_dict(state["module"])
        trained.optimizer.load_state_dict(state["optimizer"])
        trained.scaler.load_state_dict(state["scaler"])
    except (LookupError, AttributeError, TypeError, ValueError, RuntimeError, msgspec.ValidationError) as error:
        raise TrainingError(f"expected a checkpoint of this module in {path}, found: {_line(error)}; {other}") from None
    return standing


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
