"""Recipes for updating weights: the optimizer, the schedule of the learning rate, and the precision.

The module also makes the seeds of a training's random streams, and measures which precision is fastest.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import nn
from torch.nn import functional

from syno_lab.errors import TrainingError
from syno_lab.inputs import quoted
from syno_lab.settings import RecipeName

Precision = Literal["float32", "bfloat16", "float16"]

MOMENTUM = 0.9
_BETAS = (0.9, 0.95)
_TEXT_WEIGHT_DECAY = 0.1

WARM_UP = 0.2
"""The share of the steps during which the learning rate rises."""

WARM_UP_STEPS = 100
"""The number of steps during which the learning rate rises, if the number of all steps is unknown."""

_CPUINFO = Path("/proc/cpuinfo")
#: Linux's names of instructions for bfloat16: of x86's vector unit, x86's matrix unit, and Arm.
_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")

#: The least speedup over float32 that is worth the rounding errors of bfloat16.
LEAST_GAIN = 1.3
_REPEATS = 4


@dataclass(frozen=True)
class Numbers:
    """The numbers of a recipe for images: SGD's highest learning rate and weight decay, and two more numbers.

    ``smoothing``: the share of each label that is divided among all classes (Szegedy et al. 2016, section 7);
    ``crops``: whether training images, except digits, are shifted and mirrored by default.
    """

    learning_rate: float = 0.1
    weight_decay: float = 5e-4
    smoothing: float = 0.0
    crops: bool = False


RECIPES: dict[RecipeName, Numbers] = {
    "short": Numbers(),
    "converged": Numbers(weight_decay=1e-3, smoothing=0.1, crops=True),
}
"""The numbers of each recipe; :data:`syno_lab.settings.EPOCHS` has the epochs.

The learning rate is that of Zagoruyko and Komodakis 2016 (Wide Residual Networks, section 3), the smoothing that of
Szegedy et al. 2016. The weight decay is from ``benchmarks/recipe_sweep.py``, which shows no difference from 5e-4.
"""


@dataclass(frozen=True)
class Recipe:
    """An optimizer with the schedule of its learning rate.

    ``learning_rate`` is the default of the highest learning rate. ``rate(step, steps)`` is the learning rate at
    ``step`` of ``steps``, as a share of the highest rate. ``largest_norm`` is the upper bound of the norm of all
    gradients together; None: no bound. :class:`Numbers` describes ``smoothing`` and ``crops``.
    """

    name: str
    optimizer: Callable[[list[nn.Parameter], float], torch.optim.Optimizer]
    rate: Callable[[int, int], float]
    learning_rate: float
    largest_norm: float | None = None
    smoothing: float = 0.0
    crops: bool = False


def image_recipe(
    optimizer: str = "sgd", recipe: RecipeName | Numbers = "short", *, ends_by_clock: bool = False
) -> Recipe:
    """Return SGD with Nesterov's momentum (He et al. 2016, section 4.2), but with one cosine cycle instead of steps.

    A training that only a time limit ends has the schedule of :func:`text_recipe`. ``adamw`` selects the optimizer of
    texts, for networks such as transformers. Raises TrainingError for unknown names.
    """
    numbers = recipe if isinstance(recipe, Numbers) else RECIPES.get(recipe)
    if numbers is None:
        raise TrainingError(f"recipe: expected one of {', '.join(RECIPES)}, found {quoted(recipe)}")
    if optimizer not in ("sgd", "adamw"):
        raise TrainingError(f"optimizer: expected 'sgd' or 'adamw', found {quoted(optimizer)}")
    made = text_recipe(ends_by_clock=ends_by_clock)
    if optimizer == "sgd":
        sgd = partial(_sgd, numbers.weight_decay)
        made = Recipe(made.name.replace("adamw", "sgd"), sgd, made.rate, numbers.learning_rate)
    if numbers == RECIPES["short"]:
        return made
    decay = numbers.weight_decay if optimizer == "sgd" else _TEXT_WEIGHT_DECAY
    name = f"{made.name}, weight decay {decay:g}, smoothing {numbers.smoothing:g}"
    return replace(made, name=name, smoothing=numbers.smoothing, crops=numbers.crops)


def text_recipe(*, ends_by_clock: bool) -> Recipe:
    """Return AdamW with clipped gradients, as for GPTs, with one cosine cycle or a schedule for a time limit."""
    if ends_by_clock:
        return Recipe("adamw, inverse root", _adamw, inverse_root, 1e-3, 1.0)
    return Recipe("adamw", _adamw, cycle, 1e-3, 1.0)


def _sgd(weight_decay: float, parameters: list[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=learning_rate, momentum=MOMENTUM, weight_decay=weight_decay, nesterov=True)


def _adamw(parameters: list[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
    # No weight decay for biases and for the scales of normalisations.
    groups = [
        {"params": [parameter for parameter in parameters if parameter.ndim >= 2], "weight_decay": _TEXT_WEIGHT_DECAY},
        {"params": [parameter for parameter in parameters if parameter.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=learning_rate, betas=_BETAS)


class Arithmetic:
    """Autocast for the forward pass. For float16, the loss is scaled, so that gradients do not underflow."""

    def __init__(self, precision: Precision, device: torch.device) -> None:
        if precision not in get_args(Precision):
            names = ", ".join(map(repr, get_args(Precision)))
            raise TrainingError(f"precision: expected one of {names}, found {quoted(precision)}")
        self._device = device.type
        self._dtype = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}[precision]
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "float16")

    def forward(self) -> torch.autocast:
        """Return the context manager in which a module runs."""
        return torch.autocast(self._device, self._dtype, enabled=self._dtype is not None)


def cycle(step: int, steps: int) -> float:
    """Return the share of the highest learning rate at ``step``: a half cosine up, then a half cosine down to zero."""
    position = (step + 1) / (steps + 1)
    if position < WARM_UP:
        return 0.04 + 0.96 * (1 - math.cos(math.pi * position / WARM_UP)) / 2
    return (1 + math.cos(math.pi * (position - WARM_UP) / (1 - WARM_UP))) / 2


def inverse_root(step: int, _steps: int) -> float:
    """Return the share of the highest learning rate at ``step`` of a training that a time limit ends.

    The share rises linearly for :data:`WARM_UP_STEPS`, then falls with the square root of the step (Vaswani et al.
    2017, section 5.3; also in Primer, which Syno's section 9.3 follows). So the training may stop at any step.
    """
    return min((step + 1) / WARM_UP_STEPS, math.sqrt(WARM_UP_STEPS / (step + 1)))


def mix(seed: int, stream: int) -> int:
    """Return a seed of 63 bits, different for neighbouring seeds and streams (splitmix64, Steele et al. 2014)."""
    z = (seed * 0x9E3779B97F4A7C15 + stream * 0xD1342543DE82EF95) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return (z ^ (z >> 31)) >> 1


@cache
def fastest_precision(device: str = "cpu") -> Precision:
    """Return ``bfloat16`` if a convolution trains in it at least 1.3 times as fast as in ``float32``, else ``float32``.

    A GPU that supports bfloat16 is not measured. A processor with matrix units for bfloat16 (AMX) is faster in
    bfloat16. A processor with vector instructions alone may be slower: a Xeon with AVX512-BF16 took 1.05 to 1.4 times
    float32's time for ResNet-20 and ResNet-8. Only processors with instructions for bfloat16 are measured (0.1 s).
    """
    if device != "cpu":
        has_it = device.startswith("cuda") and torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        return "bfloat16" if has_it else "float32"
    if not _has_instructions():
        return "float32"
    return "bfloat16" if _seconds(torch.float32) >= LEAST_GAIN * _seconds(torch.bfloat16) else "float32"


def _has_instructions() -> bool:
    try:
        words = set(_CPUINFO.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0].split())
    except OSError:
        return True  # without this list, a measurement decides
    return not words.isdisjoint(_FLAGS)


def _seconds(dtype: torch.dtype) -> float:
    """Return the least seconds of a few forward and backward passes with 16 images of 32 channels, 16 x 16 pixels."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(16, 32, 16, 16, generator=draw).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(32, 32, 3, 3, generator=draw).contiguous(memory_format=torch.channels_last)
    weight.requires_grad_(True)
    seconds = []
    for _ in range(_REPEATS):
        start = time.thread_time()
        with torch.autocast("cpu", dtype, enabled=dtype is not torch.float32):
            result = functional.conv2d(functional.conv2d(images, weight, padding=1), weight, padding=1)
        result.float().sum().backward()
        seconds.append(time.thread_time() - start)
    return min(seconds)
