"""What stands in front of groups and windows, for code that makes an FC behind them one convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from syno_lab.canvas.primitives import UNFOLDS

if TYPE_CHECKING:
    from syno_lab.canvas.kernel import Kernel


class View(NamedTuple):
    """A tensor as what stands in front of its unfolds and groups.

    Attributes:
        of: the number of that tensor; the tensor's own where it is the result of neither.
        axes: H, W, both or none: where its windows slide.
    """

    of: int
    axes: tuple[str, ...]


def view_of(kernel: Kernel, tensor: int) -> View:
    """A tensor, by its number, with the unfolds and groups that made it undone."""
    of, axes = tensor, set()
    while of:
        (name, parameter), inputs = kernel.nodes[of - 1]
        if name not in ("unfold", "group"):
            break
        if name == "unfold":
            axes |= set(UNFOLDS[parameter])
        (of,) = inputs
    return View(of, tuple(sorted(axes)))
