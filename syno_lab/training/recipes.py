"""Recipes for updating weights: the optimizer, its learning rate schedule, and the arithmetic precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import nn

from syno_lab.errors import TrainingError
from syno_lab.inputs import quoted
from syno_lab.training.schedule import cycle, inverse_root

Precision = Literal["float32", "bfloat16", "float16"]

MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
_BETAS = (0.9, 0.95)
_TEXT_WEIGHT_DECAY = 0.1


@dataclass(frozen=True)
class Recipe:
    """An optimizer with its learning rate schedule.

    ``rate(step, steps)`` is the learning rate at ``step`` of ``steps``, as a share of the highest; ``largest_norm``
    bounds the norm of all gradients together, None: no bound.
    """

    name: str
    optimizer: Callable[[list[nn.Parameter], float], torch.optim.Optimizer]
    rate: Callable[[int, int], float]
    largest_norm: float | None = None


def image_recipe(optimizer: str = "sgd", *, ends_by_clock: bool = False) -> Recipe:
    """SGD with Nesterov's momentum and one cosine cycle (He et al. 2016, section 4.2, but for the steps there).

    A training that only the clock ends has the schedule of a text's. With ``adamw`` it is the recipe of texts, for
    networks such as transformers. Raises TrainingError for another name.
    """
    if optimizer not in ("sgd", "adamw"):
        raise TrainingError(f"optimizer: expected 'sgd' or 'adamw', found {quoted(optimizer)}")
    if optimizer == "adamw":
        return text_recipe(ends_by_clock=ends_by_clock)
    if ends_by_clock:
        return Recipe("sgd, inverse root", _sgd, inverse_root)
    return Recipe("sgd", _sgd, cycle)


def text_recipe(*, ends_by_clock: bool) -> Recipe:
    """AdamW with clipped gradients, as GPTs are trained; one cosine cycle, or a schedule for a time limit."""
    if ends_by_clock:
        return Recipe("adamw, inverse root", _adamw, inverse_root, 1.0)
    return Recipe("adamw", _adamw, cycle, 1.0)


def _sgd(parameters: list[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=learning_rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, nesterov=True)


def _adamw(parameters: list[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
    # Biases and the scales of normalisations do not decay.
    groups = [
        {"params": [one for one in parameters if one.ndim >= 2], "weight_decay": _TEXT_WEIGHT_DECAY},
        {"params": [one for one in parameters if one.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=learning_rate, betas=_BETAS)


class Arithmetic:
    """Autocast for the forward pass and, for float16, a scaler of the loss, so that gradients do not underflow."""

    def __init__(self, precision: Precision, device: torch.device) -> None:
        if precision not in get_args(Precision):
            known = ", ".join(map(repr, get_args(Precision)))
            raise TrainingError(f"precision: expected one of {known}, found {quoted(precision)}")
        self._device = device.type
        self._dtype = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}[precision]
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "float16")

    def forward(self) -> torch.autocast:
        """The context in which a module runs."""
        return torch.autocast(self._device, self._dtype, enabled=self._dtype is not None)
