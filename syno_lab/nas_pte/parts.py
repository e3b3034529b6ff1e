"""The convolutions that NAS-PTE's operators consist of. Shapes: C_in and C_out channels; windows of 3 x 3."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

WINDOW = 3
#: The channels of the second operator's dense convolution.
DENSE = 16


@dataclass(frozen=True)
class Part:
    """One convolution: input channels from ``first_in``, ``inputs`` of them, to ``outputs`` channels in ``groups``."""

    first_in: int
    inputs: int
    outputs: int
    groups: int

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """[outputs, inputs of a group, 3, 3], as PyTorch has it."""
        return self.outputs, self.inputs // self.groups, WINDOW, WINDOW


def _two_grouped(channels_in: int, channels_out: int) -> tuple[Part, ...]:
    half = channels_out // 2
    return Part(0, channels_in, half, 2), Part(0, channels_in, channels_out - half, 4)


def _dense_and_grouped(channels_in: int, channels_out: int) -> tuple[Part, ...]:
    return Part(0, DENSE, DENSE, 1), Part(DENSE, channels_in - DENSE, channels_out - DENSE, 2)


def _dense(channels_in: int, channels_out: int) -> tuple[Part, ...]:
    return (Part(0, channels_in, channels_out, 1),)


#: From C_in and C_out to the convolutions of an operator, by its name.
PARTS: dict[str, Callable[[int, int], tuple[Part, ...]]] = {
    "nas_pte_1": _two_grouped,
    "nas_pte_2": _dense_and_grouped,
    "nas_pte_3": _dense,
}
