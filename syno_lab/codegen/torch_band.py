"""Matrices for few channels and for windows: block-diagonal weights, bands of ones, Toeplitz matrices of a weight.

A CPU's convolution processes eight channels at once. With fewer channels a convolution takes the same time, and its
gradient up to a hundred times a matrix product's time. A window along a short axis can be a matrix product: a plain sum
by a band of ones, a weight by a Toeplitz matrix. All limits were measured forward and backward on CPUs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from syno_lab.codegen.stage_kinds import Axis, Contraction, Fused, Sliding, Term, recognise
from syno_lab.codegen.torch_tensor import Factor, Lines
from syno_lab.ir.coordinate import Coordinate

LANES = 8  # The number of channels that a CPU's convolution processes at once.
MOST_MERGED = 8  # The limit of merged groups; for more, the multiplications cost more than full lanes save.
FEW_CHANNELS = 16  # If no merge fills the lanes, at most this many channels become one group.
BAND_GAIN = 16  # The positions along an axis that a matrix product sums in the time of adding one slice.
MOST_KRONECKER = 64  # The limit of elements of a plane that is one axis of a product, if its rows are short.
MOST_TOEPLITZ = 1 << 16  # The limit of elements of a weight's Toeplitz matrix.


def groups_to_merge(groups: int, c: int, f: int) -> int:
    """Return how many of ``groups`` with ``c`` input and ``f`` output channels to merge into one; 1 merges none."""
    if groups == 1 or (c >= LANES and f >= LANES) or (c == 1 and f not in (2, 3)):
        return 1  # a depthwise convolution is fast without merged groups
    for merged in range(2, min(groups, MOST_MERGED) + 1):
        if groups % merged == 0 and merged * c % LANES == 0 and merged * f % LANES == 0:
            return merged
    return groups if groups * max(c, f) <= FEW_CHANNELS else 1


def few_channels(roles: Contraction, data: Factor, weight: Factor) -> Sliding | None:
    """Return the window of a convolution with so few channels that a Toeplitz matrix is faster; None otherwise."""
    if len(roles.sliding) != 1 or roles.group or roles.opened:
        return None
    s = roles.sliding[0]
    c, f = (
        prod(factor.axes[factor.axis_of(x)].length for x in part)
        for factor, part in ((data, roles.contracted), (weight, roles.free))
    )
    length, places = s.axis.length, s.stride * (s.main.size - 1) + 1
    reads_whole = places > s.axis.left and length + s.axis.left >= s.window.size
    small = c * f * length * s.main.size <= MOST_TOEPLITZ
    is_faster = c * f * length <= _lanes(c) * _lanes(f) * s.window.size
    return s if s.dilation == 1 and reads_whole and small and is_faster else None


def join_windows(lines: Lines, data: Factor, weight: Factor, summed: Collection[Coordinate]) -> None:
    """Make a window that sums the data and the weight's window behind it one window, if that is a Toeplitz matrix.

    A sum over p and k of ``x[i + p + k] * W[k]`` is a window of the weight ``sum over p of W[k - p]``. A pooling behind
    the operator is such a p; the sum over the weight is smaller than the sum over the data.
    """
    for place, axis in enumerate(data.axes):
        inside = [t for t in axis.terms if weight.has(t.coordinate) and t.coordinate in summed]
        gone = [t for t in axis.terms if not weight.has(t.coordinate) and t.coordinate in summed]
        if [t.coefficient for t in (*inside, *gone)] != [1, 1] or len(gone) != 1:
            continue
        (term,), (sums,) = inside, gone
        joined = term._replace(size=term.size + sums.size - 1)
        terms = tuple(joined if t == term else t for t in axis.terms if t != sums)
        axes = [*data.axes[:place], Axis(terms, axis.offset, axis.length), *data.axes[place + 1 :]]
        found = few_channels(recognise(axes, weight.coordinates, summed), Factor(data.name, axes), weight)
        if found is not None and found.axis == axes[place]:
            data.axes = axes
            window = weight.axes[weight.axis_of(term.coordinate)]
            others = [other for other in weight.axes if other is not window]
            text, pad = lines.regroup(weight, [*([other] for other in others), [window]]), sums.size - 1
            lines.assign(weight, f"F.pad({text}, ({pad}, {pad})).unfold(-1, {sums.size}, 1).sum(-1)")
            weight.axes = [*others, Axis.plain(term.coordinate, joined.size)]


def _lanes(channels: int) -> int:
    return -(-channels // LANES) * LANES


def toeplitz(lines: Lines, data: Factor, weight: Factor, s: Sliding) -> None:
    """Replace a window that slides over an axis by a contraction of the whole axis with a Toeplitz matrix.

    ``T[i, j] = W[j - stride * i + left]``, zero outside of the window. The weight's window becomes two axes: the
    window's positions and the data's axis. The data's axis has the window's first coordinate, and is summed.
    """
    window = [weight.axes[weight.axis_of(t.coordinate)] for t in s.window.terms]
    other_axes = [axis for axis in weight.axes if axis not in window]
    length, places = s.axis.length, s.stride * (s.main.size - 1) + 1
    text = lines.regroup(weight, [*([axis] for axis in other_axes), window])
    pads = places - 1 - s.axis.left, length + s.axis.left - s.window.size
    matrix = f"F.pad({text}, {pads}).unfold(-1, {length}, 1).flip(-2)"
    if s.stride > 1:
        matrix += f"[..., ::{s.stride}, :].contiguous()"  # bmm copies a matrix with steps for each example
    lines.assign(weight, matrix)
    lines.open(weight, -2, [term.size for term in s.main.terms])
    full_axis = Axis.plain(s.window.terms[0].coordinate, length)
    weight.axes = [*other_axes, *s.main.axes, full_axis]
    data.axes[data.axes.index(s.axis)] = full_axis


def is_band_faster(taps: int, length: int) -> bool:
    """Check whether a matrix product sums a window of ``taps`` along an axis of ``length`` faster than slices."""
    return BAND_GAIN * (taps - 2) >= length


def is_dilated_band_faster(step: int, window: Fused, length: int, behind: int) -> bool:
    """Check whether a matrix product sums a dilated window faster than slices: the window's step shortens the band.

    ``step`` is the step between the window's positions on the axis. The elements ``behind`` the axis and the
    remainders are columns of the product. A product of few columns is slow.
    """
    is_wide = window.step * behind >= LANES
    return step == 1 < window.step and is_wide and is_band_faster(window.size, -(-length // window.step))


def sum_by_dilated_band(lines: Lines, factor: Factor, place: int, size: int, gone: Fused, parts: list[Axis]) -> None:
    """Sum a dilated window by a band of ones, because each window position reads elements of one remainder alone.

    The axis becomes blocks of ``step`` elements, the window slides over the blocks, and the remainder is another axis
    of the product. Slices would need a tensor per position forward, and a padded tensor per position backward.
    """
    step, front = gone.step, factor.axes[place].left % gone.step
    lines.pad(factor, {place: (front, -(factor.axes[place].length + front) % step)})
    axis = factor.axes[place]
    blocks, blocks_out, left = axis.length // step, -(-size // step), axis.left // step
    before, behind = factor.axes[:place], factor.axes[place + 1 :]
    inner = Axis((), 0, step)
    lines.assign(
        factor, f"{factor.name}.reshape({lines.lengths([before, [Axis(axis.terms, 0, blocks)], [inner, *behind]])})"
    )
    band = _band(factor, blocks_out, blocks, gone.size - 1 - left, -left)
    lines.assign(factor, f"torch.bmm({band}.expand({factor.name}.shape[0], -1, -1), {factor.name})")
    uncut = Axis(axis.terms, 0, blocks_out * step)
    lengths = lines.lengths([*([a] for a in before), [uncut], *([a] for a in behind)])
    cut = f".narrow({place}, 0, {size})" if blocks_out * step > size else ""
    lines.assign(factor, f"{factor.name}.reshape({lengths}){cut}")
    lines.open(factor, place, [part.length for part in parts])
    factor.axes = [*before, *parts, *behind]
    lines.grew(factor.elements)


def sum_by_band(
    lines: Lines, factor: Factor, place: int, kept: Fused, gone: Fused, others: Sequence[Term], parts: list[Axis]
) -> None:
    """Sum sliding windows by a matrix of counts: one product forward and one backward, without padding.

    ``gone`` is a window of step 1, ``others`` are further summed terms, ``parts`` are the axes of the result.
    """
    axis, before, behind = factor.axes[place], factor.axes[:place], factor.axes[place + 1 :]
    size = kept.step * (kept.size - 1) + 1
    reach = size + sum(term.coefficient * (term.size - 1) for term in others)
    first = axis.left - gone.size + 1  # diagonals ``first`` to ``left`` are ones; the rows are the axis's elements
    columns = prod(a.length for a in behind)
    is_plane = 1 < columns < LANES and axis.length * columns <= MOST_KRONECKER
    is_last = not behind or (is_plane and not any(lines.is_batch(a) for a in behind))
    if is_last:
        band = _band(factor, axis.length, reach, axis.left, first)
    else:
        band = _band(factor, reach, axis.length, -first, -axis.left)
    step, rows = f":{kept.step}" if kept.step > 1 else "", ":, " if is_last else ""
    if others:
        name = lines.fresh("m")
        lines.emit(f"{name} = {band}")
        start = " + ".join(f"{term.coefficient} * q{i}" for i, term in enumerate(others)).replace("1 * q", "q")
        loops = " ".join(f"for q{i} in range({term.size})" for i, term in enumerate(others))
        band = f"sum({name}[{rows}{start}:{start} + {size}{step}] {loops})"
    elif step:
        band += f"[{rows}:{step}].contiguous()"
    if not is_last:
        text = lines.regroup(factor, [before, [axis], behind])
        if text != factor.name:
            lines.assign(factor, text)
        lines.assign(factor, f"torch.bmm({band}.expand({factor.name}.shape[0], -1, -1), {factor.name})")
    elif behind:  # short rows make a product for each row slow, so the matrix computes the whole plane
        name = lines.fresh("m")
        like = f"dtype={factor.name}.dtype, device={factor.name}.device"
        lines.emit(f"{name} = {band}[:, None, :, None] * torch.eye({columns}, {like})[:, None]")
        matrix = f"{name}.reshape({axis.length * columns}, {kept.size * columns})"
        lines.assign(factor, f"{lines.regroup(factor, [*([a] for a in before), [axis, *behind]])} @ {matrix}")
    else:
        lines.assign(factor, f"{factor.name} @ {band}")
        lines.open(factor, place, [part.length for part in parts])
    if behind:
        lines.assign(factor, f"{factor.name}.reshape({lines.lengths([[a] for a in (*before, *parts, *behind)])})")
    factor.axes = [*before, *parts, *behind]
    lines.grew(factor.elements)


def _band(factor: Factor, rows: int, columns: int, upper: int, lower: int) -> str:
    """Return a matrix of ones from diagonal ``lower`` to ``upper``, with the dtype and device of ``factor``."""
    like = f"dtype={factor.name}.dtype, device={factor.name}.device"
    return f"torch.ones({rows}, {columns}, {like}).tril({upper}).triu({lower})"
