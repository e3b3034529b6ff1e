"""The receptive field of an operator of any system, from gradients of its torch module, and its picture.

The receptive field of a pGraph is exact (:mod:`syno_lab.codegen.receptive_field`). Operators of other systems need not
be linear. An input element of another operator is read if the output element's gradient for it is not zero in one of
:data:`DRAWS` draws of random inputs and weights. A ReLU below zero passes no gradient, and a maximum passes the
gradient to the largest element alone. Elements that are read only through a ReLU or a maximum may be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import numpy as np

from syno_lab.common.reach import AxisField, axis_table, index_of
from syno_lab.drawing.style import ACCENT, LINE
from syno_lab.drawing.svg import titled
from syno_lab.effort import end_if
from syno_lab.errors import SpecError
from syno_lab.panes.asked import Asked, read_element
from syno_lab.panes.data import AxisRead, Form, Reach
from syno_lab.panes.forms import drawn, form, whole
from syno_lab.protocol import Operator, Pane

Array = np.ndarray[Any, Any]
#: The number of random inputs and weights. On average, a ReLU is zero in all draws for one of 2^8 elements.
DRAWS = 8
#: Gradients below this share of the largest gradient are rounding errors.
_ROUNDING = 1e-14
_SCALE = 0.5  # the scale of inputs, so that exp and products stay within float64
_CELL = 12
_MOST_CELLS = 64  # the number of cells along one axis of a picture


def gradients(operator: Operator, where: Sequence[int | None], asked: Asked[Any]) -> Array:
    """Return how strongly output elements depend on each input element.

    Args:
        operator: an operator of any system; its torch module is in evaluation mode.
        where: for each output axis the index; None for the whole axis.
        asked: the request, which has the sizes and ``should_stop``.

    Returns:
        The mean of the absolute gradients over :data:`DRAWS` random inputs and weights [shape of the input], in
        float64; exactly 0 where all gradients are 0. Each of several output elements gets a random factor.

    Raises SpecError when no draw has finite gradients; StoppedError when ``should_stop`` returns True.
    """
    import torch

    bound = asked.bound()
    chosen = tuple(slice(None) if index is None else slice(index, index + 1) for index in where)
    total, used = np.zeros(operator.input_sizes(bound)), 0
    with torch.random.fork_rng(devices=[]):  # the initial weights are unused, so the random state must not change
        module = operator.to_torch(bound).double().eval()
    for seed in range(DRAWS):
        end_if(asked.should_stop, "working out gradients")
        draw = torch.Generator().manual_seed(seed)

        def normal(shape: Sequence[int], draw: Any = draw) -> Any:
            return torch.randn(tuple(shape), generator=draw, dtype=torch.float64)

        with torch.no_grad():
            for parameter in module.parameters():
                inputs = max(1, parameter.numel() // max(parameter.shape[0], 1)) if parameter.ndim else 1
                parameter.copy_(normal(parameter.shape) / inputs**0.5)
        x = (_SCALE * normal(total.shape)).requires_grad_()
        picked = module(x)[chosen]
        # A plain sum would be constant for an operator that ends in a softmax.
        value = (picked * normal(picked.shape)).sum() if None in where else picked.sum()
        (gradient,) = torch.autograd.grad(value, x, allow_unused=True) if value.requires_grad else (None,)
        gradient = torch.zeros_like(x) if gradient is None else gradient.abs()
        if bool(torch.isfinite(gradient).all()):
            total += torch.where(gradient > _ROUNDING * gradient.max(), gradient, 0.0).numpy()
            used += 1
    if not used:
        raise SpecError(f"receptive field: expected finite gradients for one of {DRAWS} random inputs, found none")
    return total / used


def reach_by_gradients(axes: Sequence[str], follows: Sequence[int | None]) -> Pane:
    """Return the pane ``reach`` of a system whose operators have input ``axes`` with these sizes in symbols.

    ``follows`` has for each input axis the number of the output axis with the same positions, or None.
    """

    def read(asked: Asked[Any]) -> Reach:
        return _reach(asked, axes, follows)

    return Pane(read, ("name", "binding", "element"), reach_forms, title="Receptive field")


def reach_forms(asked: Asked[Any], data: Reach) -> list[Form]:
    """Return the forms of a receptive field: a picture, text and records."""
    return [
        *drawn(asked, "receptive-field", ["svg"]),
        form(asked, "text", "receptive-field.txt", path=["text"]),
        whole(asked, "receptive-field"),
    ]


def _reach(asked: Asked[Any], axes: Sequence[str], follows: Sequence[int | None]) -> Reach:
    operator, bound = asked.operator, asked.bound()
    shape = operator.output_sizes(bound)
    where = index_of(read_element(asked.element), shape)
    strengths = gradients(operator, where, asked)
    fields = []
    for axis, (size, output) in enumerate(zip(axes, follows, strict=True)):
        other_axes = tuple(other for other in range(strengths.ndim) if other != axis)
        positions = tuple(int(place) for place in np.flatnonzero(strengths.any(axis=other_axes)))
        number = strengths.shape[axis]
        index = None if output is None else where[output]
        stands = None if output is None or index is None else index * number // shape[output]
        offsets = None if stands is None else tuple(place - stands for place in positions)
        fields.append(AxisField(axis, size, number, positions, output, offsets))
    element = ", ".join(":" if index is None else str(index) for index in where)
    head = [
        f"Y[{element}] reads {np.count_nonzero(strengths):,} of {strengths.size:,} elements of X,",
        f"those where its gradient is not 0 for one of {DRAWS} random inputs and weights",
    ]
    return {
        "text": "\n".join([*head, *axis_table(fields)]),
        "axes": axis_records(fields),
        "binding": bound,
        "svg": field_svg(strengths, axes, lambda strength: f"gradient of size {strength:.2g}"),
    }


def axis_records(fields: Sequence[AxisField]) -> list[AxisRead]:
    """Return the elements that are read along each axis, as plain data."""
    return [
        {
            "axis": axis.axis,
            "size": axis.size,
            "number": axis.number,
            "reads": len(axis.positions),
            "extent": axis.extent,
            "cover": axis.cover,
        }
        for axis in fields
    ]


def field_svg(counts: Array, sizes: Sequence[str], say: Callable[[Any], str]) -> str:
    """Draw how strongly each position of the last two input axes is read, summed over the other axes.

    ``counts`` has the input's shape, 0 for elements that are not read. ``sizes`` are the sizes of its axes in symbols.
    ``say`` turns the sum at a position into text. An input with a single axis is drawn as a strip.
    """
    rest = tuple(range(max(counts.ndim - 2, 0)))
    plane = counts.sum(axis=rest) if counts.ndim else counts.reshape(1)
    plane = np.atleast_2d(plane)
    names = ["", *sizes][-2:]
    window = [_window(np.flatnonzero(plane.any(axis=1 - side)), plane.shape[side]) for side in (0, 1)]
    shown = plane[window[0][0] : window[0][1], window[1][0] : window[1][1]]
    most = shown.max() if shown.size else 0
    cells = []
    for row, column in np.argwhere(shown > 0):
        number = shown[row, column]
        strength = 0.25 + 0.75 * float(number) / float(most)
        place = f"{row + window[0][0]}, {column + window[1][0]}"
        cells.append(
            f'<rect x="{column * _CELL}" y="{row * _CELL}" width="{_CELL}" height="{_CELL}" fill="{ACCENT}" '
            f'fill-opacity="{strength:.2f}" stroke="{LINE}" stroke-width="0.5">'
            f"<title>[{place}]: {say(number)}</title></rect>"
        )
    height, width = shown.shape[0] * _CELL, shown.shape[1] * _CELL
    words = (
        f"input axes {names[0] or 'none'} (down) and {names[1]} (across): {len(cells)} of {plane.size} positions read"
    )
    below = f"{_range(names[0], window[0], plane.shape[0])} down, {_range(names[1], window[1], plane.shape[1])} across"
    frame = f'<rect x="0" y="0" width="{width}" height="{height}" fill="none" stroke="{LINE}"/>'
    look = 'font-size="12" font-family="sans-serif" fill="currentColor"'
    text = f'<text x="0" y="{height + 16}" {look}>{escape(below)}</text>'
    wide, high = f"{max(width, 260) + 2}", f"{height + 24}"
    return titled(wide, high, f"-1 -1 {wide} {high}", words, [frame, "\n".join(cells), text])


def _window(read: Any, length: int) -> tuple[int, int]:
    """Return the range of an axis to draw: the read elements are in the middle of the range."""
    if length <= _MOST_CELLS:
        return 0, length
    middle = int(read[0] + read[-1]) // 2 if len(read) else length // 2
    start = min(max(middle - _MOST_CELLS // 2, 0), length - _MOST_CELLS)
    return start, start + _MOST_CELLS


def _range(name: str, window: tuple[int, int], length: int) -> str:
    is_whole = window == (0, length)
    return f"{name or 'one row'}" + ("" if is_whole else f" {window[0]}..{window[1] - 1} of {length}")
