"""PyTorch calls for a recognised product of data and a weight, and for sums over windows.

The choices between these calls were measured on a CPU, forward and backward (``benchmarks/codegen.py``). Convolutions
have as little explicit padding as possible. Products by groups are batched matrix products without a change of layout.
Sums over sliding windows and over blocks are sums of slices.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations
from math import gcd, prod

from syno_lab.codegen.stage_kinds import Axis, Contraction, Fused, Sliding, Term, fuse, span
from syno_lab.codegen.torch_band import (
    groups_to_merge,
    is_band_faster,
    is_dilated_band_faster,
    sum_by_band,
    sum_by_dilated_band,
)
from syno_lab.codegen.torch_tensor import Factor, Lines
from syno_lab.ir.coordinate import Coordinate

MAX_SLICES = 32  # The limit of slices that sum a window; a longer window becomes a separate axis by a view.
MAX_ADDED = 4  # The limit of slices that sum a whole axis.
MAX_SLIDING = 3  # The limit of sliding axes of a convolution: F.conv3d has three.


def convolve(lines: Lines, data: Factor, weight: Factor, roles: Contraction) -> None:
    """Write the code of the convolution of ``data`` with ``weight``; afterwards ``data`` is the result."""
    sliding = {s.axis: s for s in roles.sliding}
    group = [data.axes[data.axis_of(c)] for c in roles.group]
    contracted = [data.axes[data.axis_of(c)] for c in roles.contracted]
    lead, spatial = _layout(data, [*group, *contracted], sliding)
    alike = [] if group or contracted or roles.free else [axis for axis in lead if not lines.is_batch(axis)]
    # If all channels share a filter, a depthwise convolution with copies of the filter is faster than a single channel.
    lead = [axis for axis in lead if axis not in alike]
    groups = [lead, [*alike, *group, *contracted], *spatial]
    expression = lines.regroup(data, groups)
    if expression != data.name:
        lines.assign(data, expression)
    data.axes = [_flat(g) if len(g) != 1 else g[0] for g in groups]
    places = {place: sliding[run[0]] for place, run in enumerate(spatial, 2) if run[0] in sliding}
    paddings = {place: _padding(s) for place, s in places.items()}
    lines.pad(data, {place: explicit for place, (_, explicit) in paddings.items()})

    kernel = [
        [_of(weight, t.coordinate) for t in places[p].window.terms] if p in places else [] for p in _dims(spatial)
    ]
    grouped = [_of(weight, c) for c in roles.group]
    free = [_of(weight, c) for c in roles.free]
    inner = [_of(weight, c) for c in roles.contracted]
    weights = lines.regroup(weight, [[*grouped, *free], inner, *kernel])
    if "permute" in weights:
        # torch 2.13 on a CPU: the gradient of a permuted weight fails if the data's channels are last in memory.
        weights += ".contiguous()"
    if alike:
        weights += f".expand({prod(a.length for a in alike)}, {', '.join(['-1'] * (len(kernel) + 1))})"
    arguments = [data.name, weights]
    options = {
        "stride": [places[p].stride if p in places else 1 for p in _dims(spatial)],
        "padding": [paddings[p][0] if p in places else 0 for p in _dims(spatial)],
        "dilation": [places[p].dilation if p in places else 1 for p in _dims(spatial)],
    }
    groups_left, arguments[1] = _merged(lines, prod(a.length for a in [*alike, *grouped]), inner, free, kernel, weights)
    for name, values in options.items():
        if any(v != (0 if name == "padding" else 1) for v in values):
            arguments.append(f"{name}={values[0] if len(set(values)) == 1 else tuple(values)}")
    if groups_left > 1:
        arguments.append(f"groups={groups_left}")
    result = [lead, [*alike, *grouped, *free]]
    for place, run in enumerate(spatial, 2):
        result.append(places[place].main.axes if place in places else run)
    lines.become(data, f"F.conv{len(spatial)}d({', '.join(arguments)})", result)


def _merged(
    lines: Lines, groups: int, inner: list[Axis], free: list[Axis], kernel: list[list[Axis]], weights: str
) -> tuple[int, str]:
    """Merge groups with few channels; return the convolution's number of groups and its weight.

    Merged groups have a block-diagonal weight: more multiplications, but a fraction of the time.
    """
    c, f = prod(a.length for a in inner), prod(a.length for a in free)
    merged = groups_to_merge(groups, c, f) if lines.form.matrices else 1
    if merged == 1:
        return groups, weights
    name = lines.fresh("w")
    lines.emit(f"# {merged} groups each are one, block-diagonal: a convolution of few channels is slow")
    lines.emit(f"{name} = {weights}")
    taps = ", ".join(str(prod(a.length for a in part)) for part in kernel)
    back = ", ".join("1" for _ in kernel)
    lines.emit(
        f"{name} = {name}.reshape({groups // merged}, {merged}, {f}, 1, {c}, {taps})"
        f" * torch.eye({merged}, dtype={name}.dtype, device={name}.device).reshape({merged}, 1, {merged}, 1, {back})"
    )
    return groups // merged, f"{name}.reshape({groups * f}, {merged * c}, {taps})"


def _dims(spatial: list[list[Axis]]) -> range:
    return range(2, 2 + len(spatial))


def _of(factor: Factor, coordinate: Coordinate) -> Axis:
    return factor.axes[factor.axis_of(coordinate)]


def _flat(group: list[Axis]) -> Axis:
    """Return the axis that results from flattening several axes; no later code finds this axis by a coordinate."""
    return Axis(tuple(t for axis in group for t in axis.terms), 0, prod(axis.length for axis in group))


def _layout(data: Factor, channels: list[Axis], sliding: dict[Axis, Sliding]) -> tuple[list[Axis], list[list[Axis]]]:
    """Return the convolution's batch axes and its one to three spatial dimensions, in the data's order.

    Batch axes behind the channels become spatial dimensions with a kernel of 1, so that the data need no permutation.
    """
    first = min(i for i, axis in enumerate(data.axes) if axis in channels or axis in sliding)
    lead = list(data.axes[:first])
    spatial: list[list[Axis]] = []
    for axis in data.axes[first:]:
        if axis in sliding:
            spatial.append([axis])
        elif axis not in channels:
            if spatial and spatial[-1][0] not in sliding:
                spatial[-1].append(axis)
            else:
                spatial.append([axis])
    while len(spatial) > max(2, len(sliding)):
        run = next(r for r in spatial if r[0] not in sliding)
        spatial.remove(run)
        lead += run
    return lead, spatial


def _padding(s: Sliding) -> tuple[int, tuple[int, int]]:
    """Return the symmetric padding for the convolution's argument, and the padding for ``F.pad``, left and right."""
    left, right = s.axis.left, s.axis.right
    reach = s.dilation * (s.window.size - 1) + 1
    if left >= 0 and (s.axis.length + 2 * left - reach) // s.stride + 1 == s.main.size:
        return left, (0, 0)
    both = max(0, min(left, right))
    return both, (left - both, right - both)


def multiply(lines: Lines, data: Factor, weight: Factor, roles: Contraction) -> None:
    """Write the code of a (grouped) matrix product or an elementwise product; afterwards ``data`` is the result."""
    if roles.kind == "product":
        _product(lines, data, weight, roles)
        return
    group = [_of(data, c) for c in roles.group]
    contracted = [_of(data, c) for c in roles.contracted]
    opened = {s.axis for s in roles.opened}
    batch = [axis for axis in data.axes if axis in roles.batch or axis in opened]
    g, c, f = ([_of(weight, x) for x in part] for part in (roles.group, roles.contracted, roles.free))
    channels = [i for i, axis in enumerate(data.axes) if axis in group or axis in contracted]
    last = max((i for i, axis in enumerate(data.axes) if axis in contracted), default=-1)
    rows = [axis for axis in batch if data.axes.index(axis) < min(channels, default=0)]
    columns = [axis for axis in batch if axis not in rows]
    if contracted and all(data.axes.index(axis) < last for axis in batch):
        rows, columns = batch, []
    if not columns:
        # Contracted axes are the data's last axes: [group, rows, contracted] @ [group, contracted, free].
        shape = [[axis] for axis in rows] + [contracted] if not group else [group, rows, contracted]
        left = lines.regroup(data, shape)
        right = lines.regroup(weight, [g, c, f] if group else [c, f])
        result = [*([group] if group else []), *([rows] if group else [[axis] for axis in rows]), f]
        lines.become(data, f"torch.matmul({left}, {right})", result)
    elif rows and group and 2 * prod(axis.length for axis in columns) <= prod(axis.length for axis in f):
        # With few columns, copies of the weight for all rows would exceed the result: swap rows and columns.
        result = [group, f, [*rows, *columns]]
        right = lines.regroup(data, [group, contracted, result[-1]])
        lines.become(data, f"torch.bmm({lines.regroup(weight, [g, f, c])}, {right})", result)
    else:
        # [rows, group, free, contracted] @ [rows, group, contracted, columns], without a permutation of the data.
        head = [part for part in (rows, group) if part]
        right = lines.regroup(data, [*head, contracted, columns])
        left = lines.regroup(weight, [*([g] if group else []), f, c])
        if rows and not group:
            # matmul would fold the batch into the columns and copy the data twice; bmm makes no copy.
            if right != data.name:
                lines.assign(data, right)
            product = f"torch.bmm({left}.expand({data.name}.shape[0], -1, -1), {data.name})"
        else:
            product = f"torch.matmul({left}, {right})"
        lines.become(data, product, [*head, f, columns])


def _product(lines: Lines, data: Factor, weight: Factor, roles: Contraction) -> None:
    """Write the code of ``data * weight``, with the weight broadcast along the batch."""
    order = sorted(roles.group, key=data.axis_of)
    expression = lines.regroup(weight, [[_of(weight, c)] for c in order])
    first = data.axis_of(order[0]) if order else len(data.axes)
    index = [":" if any(c in order for c in axis.coordinates) else "None" for axis in data.axes[first:]]
    if "None" in index:
        expression += f"[{', '.join(index)}]"
    lines.assign(data, f"{data.name} * {expression}")
    lines.grew(data.elements)


def open_window(lines: Lines, data: Factor, s: Sliding) -> None:
    """Write an axis as slices, one for each position of its window; the window is a separate axis already."""
    window = s.window.terms[0]
    place, at = data.axes.index(s.axis), data.axes.index(Axis.plain(window.coordinate, window.size))
    rest = place - (at < place)  # the axis's index without the window's axis
    rank = len(data.axes) - 1
    size = s.stride * (s.main.size - 1) + 1
    over = s.axis.left + s.axis.length - size
    left, right = f"{s.axis.left} - q", f"q - {over}" if over >= 0 else f"q + {-over}"
    if s.dilation > 1:
        left, right = f"{s.axis.left} - {s.dilation} * q", f"{-over} + {s.dilation} * q"
    amounts = "0, 0, " * (rank - 1 - rest) + f"{left}, {right}"
    slice_text = f"F.pad(z, ({amounts}))"
    if s.stride > 1:
        slice_text += f"[{', '.join([':'] * rest + [f'::{s.stride}'])}]"
    axes = [axis for i, axis in enumerate(data.axes) if i != at]
    axes[rest : rest + 1] = s.main.axes
    lines.assign(data, f"torch.stack([{slice_text} for q, z in enumerate({data.name}.unbind({at}))], {at})")
    lines.open(data, place, [term.size for term in s.main.terms])
    shift = (len(s.main.terms) - 1) if rest < at else 0
    axes.insert(at + shift, Axis.plain(window.coordinate, window.size))
    data.axes = axes
    lines.grew(data.elements)


# -- sums of one tensor ----------------------------------------------------------------------------------------------


def add_up(lines: Lines, factor: Factor, summed: Collection[Coordinate]) -> None:
    """Write the sum of ``factor`` over some of its coordinates: whole axes, blocks (pooling) and sliding windows."""
    for axis in list(factor.axes):
        gone = [t for t in axis.terms if t.coordinate in summed]
        kept = [t for t in axis.terms if t.coordinate not in summed]
        if not gone or axis.is_plain or (not kept and axis.is_split):
            continue
        place = factor.axes.index(axis)
        if kept and not axis.is_split:
            _slide(lines, factor, place, kept, gone)
        if any(c in summed for c in factor.axes[place].coordinates):
            lines.take_apart(factor, place)
    _sum(lines, factor, [axis for axis in factor.axes if all(c in summed for c in axis.coordinates)])


def _sum(lines: Lines, factor: Factor, axes: Sequence[Axis]) -> None:
    """Sum whole axes: the longest first, and a short one by adding its slices.

    Measured forward and backward on planes of 8 to 64 columns: for blocks of two, slices take a tenth to a half of
    the time of ``avg_pool2d``, and half of the time of ``sum``. One sum over several axes is slower than several sums.
    """
    for axis in sorted(axes, key=lambda axis: -axis.length):
        place = factor.axes.index(axis)
        if factor.weight is None and axis.length <= MAX_ADDED and not lines.is_batch(axis):
            lines.assign(factor, f"{factor.name}.unbind({place})")
            lines.assign(factor, " + ".join(f"{factor.name}[{i}]" for i in range(axis.length)))
        else:
            lines.assign(factor, f"{factor.name}.sum({place})")
        del factor.axes[place]


def _slide(lines: Lines, factor: Factor, place: int, kept: list[Term], gone: list[Term]) -> None:
    """Sum sliding windows as slices of the padded tensor, or as the product with a band of ones.

    ``kept`` and ``gone`` are the terms of the axis that stay and that are summed. If no window of few slices leaves
    digits of the axis (blocks, which are pooled later), the axis does not change.
    """
    axis = factor.axes[place]
    for block in gone:  # digits below all other terms: their sum makes the axis shorter before the windows slide
        others = [t for t in axis.terms if t is not block and t.size > 1]
        if block.coefficient == 1 < block.size and all(t.coefficient % block.size == 0 for t in others):
            front = axis.left % block.size
            lines.pad(factor, {place: (front, -(axis.length + front) % block.size)})
            axis = factor.axes[place]
            blocks = axis.length // block.size
            lines.open(factor, place, [blocks, block.size])
            rest = tuple(t._replace(coefficient=max(1, t.coefficient // block.size)) for t in axis.terms if t != block)
            inside = Axis.plain(block.coordinate, block.size)
            factor.axes[place : place + 1] = [Axis(rest, axis.offset // block.size, blocks), inside]
            _sum(lines, factor, [inside])
            left = [t for t in rest if t.coordinate in {t.coordinate for t in gone}]
            if left and not factor.axes[place].is_split:
                _slide(lines, factor, place, [t for t in rest if t not in left], left)
            return
    taps = prod(term.size for term in gone)
    windows = [
        (window, [t for t in gone if t not in picked])
        for count in range(len(gone), 0, -1)
        for picked in combinations(gone, count)
        if (window := fuse(picked)) and window.size > 1
    ]
    unit = next(((window, others) for window, others in windows if window.step == 1), None)
    if lines.form.matrices and unit and is_band_faster(taps, axis.length):
        positions = _positions(kept)
        sum_by_band(lines, factor, place, positions, *unit, _parts(positions))
        return
    for window, others in windows:
        left = [*kept, *others]
        if window.size <= MAX_SLICES and (not others or fuse(left)):
            break
    else:
        return
    positions = _positions(left)
    parts = _parts(positions) if len(left) == len(kept) else [Axis(positions.terms, 0, positions.size)]
    behind = prod(a.length for a in factor.axes[place + 1 :])
    if lines.form.matrices and is_dilated_band_faster(positions.step, window, axis.length, behind):
        sum_by_dilated_band(lines, factor, place, positions.size, window, parts)
        return
    lines.pad(factor, {place: (axis.left, axis.right)})
    reach = positions.step * (positions.size - 1) + 1
    step = f":{positions.step}" if positions.step > 1 and positions.size > 1 else ""
    before = ":, " * place
    dilation, counts = window.step, _factors(window.size)
    for number, count in enumerate(counts, 1):  # a sum of four positions is two sums of two: fewer slices
        size = reach if number == len(counts) else factor.axes[place].length - dilation * (count - 1)
        begins = [q * dilation for q in range(count)]
        stride = step if number == len(counts) else ""
        lines.assign(factor, " + ".join(f"{factor.name}[{before}{b}:{b + size}{stride}]" for b in begins))
        factor.axes[place] = Axis((), 0, size)
        dilation *= count
    lines.open(factor, place, [part.length for part in parts])
    factor.axes[place : place + 1] = parts
    lines.copying += sum(counts) * factor.elements  # the backward pass copies each slice


def _factors(number: int) -> list[int]:
    """Return the prime factors of a number above 1, the least first."""
    least = next(n for n in range(2, number + 1) if number % n == 0)
    return [least] if least == number else [least, *_factors(number // least)]


def _positions(terms: Sequence[Term]) -> Fused:
    """Return all positions that a sum of ``terms`` takes or passes by; the result's terms count these positions."""
    step = gcd(*(t.coefficient for t in terms if t.size > 1)) or 1
    scaled = fuse(terms)
    ordered = scaled.terms if scaled else terms
    counted = tuple(Term(t.coefficient // step if t.size > 1 else 1, t.coordinate, t.size) for t in ordered)
    return Fused(step, span(counted), counted)


def _parts(positions: Fused) -> list[Axis]:
    """Return an axis for each digit of positions; one axis if the terms are no digits."""
    digits = fuse(positions.terms)
    return positions.axes if digits and digits.size == positions.size else [Axis(positions.terms, 0, positions.size)]
