"""The table of operations, a row each (αNAS, section 3.2, Table 3), and the rules for shapes, costs and pairings.

:mod:`syno_lab.alpha.operations` says what is meant by windows, padding and costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from syno_lab.alpha import operator_node
from syno_lab.alpha import pairings as pair
from syno_lab.alpha.pairings import Pairing
from syno_lab.alpha.row import (
    MOST_AXES,
    Attribute,
    Rel,
    Role,
    Row,
    Shape,
    Values,
    are_axes,
    count,
    flag,
    is_fixed,
    is_integer,
    is_real,
    is_shape,
    is_target,
    rate,
    size,
)
from syno_lab.errors import SpecError
from syno_lab.inputs import LARGEST_SIZE, quoted

SAME = "same"
#: What the lab has no other row for: it stands in traced networks and is never in a region that is chosen. Which axes
#: it pairs is not known, so its pairing is the least one.
OPAQUE = "opaque"

_PADDING = Attribute(
    f"an integer from 0 up or {SAME!r}", lambda v: v == SAME or (is_integer(v) and 0 <= v < LARGEST_SIZE), SAME
)
_EPSILON = Attribute("a positive number", lambda v: is_real(v) and v > 0, 1e-5)
_WORDS = Attribute(
    "text of 1 to 200 characters", lambda v: isinstance(v, str) and 0 < len(v) <= 200 and v.isprintable()
)


# -- shapes ------------------------------------------------------------------------------------------------------------


def _same(values: Values, shapes: tuple[Shape, ...]) -> Shape:
    return shapes[0]


def _with_channels(values: Values, shapes: tuple[Shape, ...]) -> Shape:
    """At least a batch and channels."""
    if len(shapes[0]) < 2:
        raise SpecError("expected at least 2 axes: batch and channels")
    return shapes[0]


def _dense_shape(values: Values, shapes: tuple[Shape, ...]) -> Shape:
    return (*_with_channels(values, shapes)[:-1], values["features"])


def _in_groups(values: Values, shapes: tuple[Shape, ...]) -> Shape:
    shape = _with_channels(values, shapes)
    if shape[-1] % values["groups"]:
        raise SpecError(f"expected groups that divide {shape[-1]} channels, found {values['groups']}")
    return shape


def _spatial(shape: Shape) -> Shape:
    if len(shape) < 3:
        raise SpecError("expected at least 3 axes: batch, spatial ones and channels")
    return shape[1:-1]


def _conv_shape(values: Values, shapes: tuple[Shape, ...]) -> Shape:
    shape, features = _in_groups(values, shapes), values["features"]
    if features % values["groups"]:
        raise SpecError(f"expected groups that divide {features} features, found {values['groups']}")
    return (shape[0], *(_windows(values, n).number for n in _spatial(shape)), features)


def _pool_shape(values: Values, shapes: tuple[Shape, ...]) -> Shape:
    (shape,) = shapes
    padding, window = values["padding"], values["window"]
    if padding != SAME and padding > window // 2:
        raise SpecError(f"expected a padding of at most half of the window, found {padding}")
    return (shape[0], *(_windows(values, n).number for n in _spatial(shape)), shape[-1])


def _windows(values: Values, size: int) -> pair.Windows:
    """Where the windows of a convolution or a pool lie along an axis of ``size`` positions."""
    width = values.get("kernel", values.get("window"))
    step, apart, padding = values["stride"], values.get("dilation", 1), values["padding"]
    if width == 0:
        return pair.Windows(size, 1, size, size, 1, 0)
    span = (width - 1) * apart + 1
    if padding == SAME:
        count = -(-size // step)
        before = max((count - 1) * step + span - size, 0) // 2
    else:
        count, before = (size + 2 * padding - span) // step + 1, padding
    if count < 1:
        raise SpecError(f"expected an axis of at least {span - 2 * padding} positions, found {size}")
    return pair.Windows(size, count, width, step, apart, before)


def pads(values: Values, sizes: Sequence[int]) -> list[int]:
    """What is before and after axes of these sizes, the last axis first, as ``F.pad`` takes it; an odd one is after."""
    width, stride, padding = values.get("kernel", values.get("window")), values["stride"], values["padding"]
    span = (width - 1) * values.get("dilation", 1) + 1
    found = []
    for length in reversed(sizes):
        total = max((-(-length // stride) - 1) * stride + span - length, 0) if padding == SAME else 2 * padding
        found += [total // 2, total - total // 2]
    return found


def _broadcast(values: Values, shapes: tuple[Shape, ...]) -> Shape:
    rank = max(map(len, shapes))
    columns = zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True)
    found = []
    for sizes in columns:
        size = max(sizes)
        if any(each not in (1, size) for each in sizes):
            raise SpecError(f"expected axes of one size or of size 1, found {' and '.join(map(str, sizes))}")
        found.append(size)
    return tuple(found)


def _reshape_shape(values: Values, shapes: tuple[Shape, ...]) -> Shape:
    target, total = values["shape"], prod(shapes[0])
    known = prod(size for size in target if size != -1)
    if total % known or (-1 not in target and total != known):
        raise SpecError(f"expected a shape of {total} elements, found {list(target)}")
    return tuple([total // known if size == -1 else size for size in target])


def _flat_shape(values: Values, shapes: tuple[Shape, ...]) -> Shape:
    (shape,) = shapes
    if len(shape) < 2:
        raise SpecError("expected at least 2 axes")
    return (shape[0], prod(shape[1:]))


def _transposed(values: Values, shapes: tuple[Shape, ...]) -> Shape:
    (shape,), axes = shapes, values["axes"]
    if sorted(axes) != list(range(len(shape))):
        raise SpecError(f"expected each axis from 0 to {len(shape) - 1} once, found {list(axes)}")
    return tuple([shape[axis] for axis in axes])


def _averaged(values: Values, shape: Shape) -> tuple[int, ...]:
    """The axes of a mean, from 0 up."""
    found = tuple([axis + len(shape) if axis < 0 else axis for axis in values["axes"]])
    if not found or not all(0 <= axis < len(shape) for axis in found) or len(set(found)) < len(found):
        raise SpecError(f"expected axes of {list(shape)}, at least one, each once, found {list(values['axes'])}")
    return found


def _mean_shape(values: Values, shapes: tuple[Shape, ...]) -> Shape:
    (shape,) = shapes
    axes, keep = _averaged(values, shape), values["keep"]
    return tuple([1 if i in axes else n for i, n in enumerate(shape) if keep or i not in axes])


def _attention_shape(values: Values, shapes: tuple[Shape, ...]) -> Shape:
    (shape,) = shapes
    if len(shape) != 3 or shape[2] % values["heads"]:
        raise SpecError(f"expected (batch, positions, channels) with channels that {values['heads']} heads divide")
    return shape


# -- products of tensors -----------------------------------------------------------------------------------------------


def _terms(equation: Any) -> tuple[list[str], str] | None:
    """The letters of both inputs and of the result of an einsum, each once in a tensor; None for other text."""
    if not isinstance(equation, str) or len(equation) > 4 * MOST_AXES:
        return None
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    each = [*terms, result]
    if not arrow or len(terms) != 2 or any(not (t.isascii() and t.isalpha()) and t for t in each):
        return None
    ok = all(len(set(t)) == len(t) <= MOST_AXES for t in each) and set(result) <= set("".join(terms))
    return (terms, result) if ok else None


def _dot_equation(shapes: tuple[Shape, ...]) -> str:
    """The matrix product of the last two axes, other axes alike in both."""
    if len(shapes[0]) != len(shapes[1]) or len(shapes[0]) < 2:
        raise SpecError("expected two tensors of the same number of axes, at least 2")
    batch = "abcdefgh"[: len(shapes[0]) - 2]
    return f"{batch}ij,{batch}jk->{batch}ik"


def _sizes(equation: str, shapes: tuple[Shape, ...]) -> dict[str, int]:
    found = _terms(equation)
    assert found is not None
    sizes: dict[str, int] = {}
    for term, shape in zip(found[0], shapes, strict=True):
        if len(term) != len(shape):
            raise SpecError(f"expected {len(term)} axes for {quoted(term)}, found {len(shape)}")
        for letter, n in zip(term, shape, strict=True):
            if sizes.setdefault(letter, n) != n:
                raise SpecError(f"expected one size for {quoted(letter)}, found {sizes[letter]} and {n}")
    return sizes


def _einsum_shape(equation: str, shapes: tuple[Shape, ...]) -> Shape:
    sizes = _sizes(equation, shapes)
    return tuple([sizes[letter] for letter in equation.partition("->")[2]])


def _einsum_flops(equation: str, shapes: tuple[Shape, ...]) -> int:
    """A letter of one tensor alone is summed first; products without a sum over a letter of both are not counted."""
    terms, _, result = equation.partition("->")
    left, right = terms.split(",")
    both, sizes = set(left) & set(right), _sizes(equation, shapes)
    return 2 * prod(sizes[letter] for letter in both | set(result)) if both - set(result) else 0


def _einsum_pairings(equation: str, shapes: tuple[Shape, ...]) -> tuple[Pairing, ...]:
    (left, right), result = _terms(equation) or ([], "")
    after = _einsum_shape(equation, shapes)
    return tuple(
        [
            pair.selected(after, shape, [result.find(c) for c in term])
            for term, shape in zip((left, right), shapes, strict=True)
        ]
    )


# -- costs -------------------------------------------------------------------------------------------------------------


def _dense_params(values: Values, shapes: tuple[Shape, ...]) -> int:
    return values["features"] * (shapes[0][-1] + values["bias"])


def _dense_flops(values: Values, shapes: tuple[Shape, ...]) -> int:
    return 2 * prod(shapes[0]) * values["features"]


def _taps(values: Values, shape: Shape) -> int:
    """Weights of one feature of a convolution, without its bias."""
    return values["kernel"] ** (len(shape) - 2) * (shape[-1] // values["groups"])


def _conv_params(values: Values, shapes: tuple[Shape, ...]) -> int:
    return values["features"] * (_taps(values, shapes[0]) + values["bias"])


def _conv_flops(values: Values, shapes: tuple[Shape, ...]) -> int:
    return 2 * prod(_conv_shape(values, shapes)) * _taps(values, shapes[0])


def _norm_params(values: Values, shapes: tuple[Shape, ...]) -> int:
    return 2 * shapes[0][-1] if values["affine"] else 0


def _attention_params(values: Values, shapes: tuple[Shape, ...]) -> int:
    channels = shapes[0][-1]
    return 4 * channels * (channels + values["bias"])


def _attention_flops(values: Values, shapes: tuple[Shape, ...]) -> int:
    """Four dense layers, and the products of queries with keys and of weights with values."""
    batch, positions, channels = shapes[0]
    return 8 * batch * positions * channels**2 + 4 * batch * positions**2 * channels


# -- pairings ----------------------------------------------------------------------------------------------------------


def _conv_pairings(values: Values, shapes: tuple[Shape, ...]) -> tuple[Pairing, ...]:
    (shape,) = shapes
    channels = pair.of_block(shape[-1], shape[-1] // values["groups"])
    windows = [_windows(values, n) for n in shape[1:-1]]
    return (pair.by_windows(shape, _conv_shape(values, shapes), windows, channels),)


def _pool_pairings(values: Values, shapes: tuple[Shape, ...]) -> tuple[Pairing, ...]:
    (shape,) = shapes
    windows = [_windows(values, n) for n in shape[1:-1]]
    return (pair.by_windows(shape, _pool_shape(values, shapes), windows, "o"),)


def _group_pairings(values: Values, shapes: tuple[Shape, ...]) -> tuple[Pairing, ...]:
    """A group of one element is constant, whatever that element is."""
    (shape,) = shapes
    group = shape[-1] // values["groups"]
    if group * prod(shape[1:-1]) == 1:
        return (pair.nothing(shape, shape),)
    return (pair.diagonal(shape, ["o", *pair.repeated("a", len(shape) - 2), pair.of_block(shape[-1], group)]),)


def _last_pairings(values: Values, shapes: tuple[Shape, ...]) -> tuple[Pairing, ...]:
    """Softmax and layer norm: all channels of one position; one channel alone is constant."""
    (shape,) = shapes
    if shape[-1] == 1:
        return (pair.nothing(shape, shape),)
    return (pair.by_channels(shape, "a"),)


def _each(values: Values, shapes: tuple[Shape, ...]) -> tuple[Pairing, ...]:
    return (pair.diagonal(shapes[0], pair.repeated("o", len(shapes[0]))),)


def _broadcast_pairings(values: Values, shapes: tuple[Shape, ...]) -> tuple[Pairing, ...]:
    after = _broadcast(values, shapes)
    return tuple([pair.selected(after, s, [len(after) - len(s) + i for i in range(len(s))]) for s in shapes])


def _mean_pairings(values: Values, shapes: tuple[Shape, ...]) -> tuple[Pairing, ...]:
    (shape,) = shapes
    axes = _averaged(values, shape)
    kept = [i for i in range(len(shape)) if values["keep"] or i not in axes]
    places = [-1 if i in axes else kept.index(i) for i in range(len(shape))]
    return (pair.selected(_mean_shape(values, shapes), shape, places),)


def _transpose_pairings(values: Values, shapes: tuple[Shape, ...]) -> tuple[Pairing, ...]:
    places = [values["axes"].index(i) for i in range(len(shapes[0]))]
    return (pair.selected(_transposed(values, shapes), shapes[0], places),)


def _nothing(values: Values, shapes: tuple[Shape, ...]) -> tuple[Pairing, ...]:
    return tuple([pair.nothing(shapes[0], shape) for shape in shapes])


# -- the table ---------------------------------------------------------------------------------------------------------

#: Values of synthesis (the specification, 2.1): factors of the input's channels, and what else it chooses. Of the
#: dilations only their number is known; the groups of a group norm are those that can divide the channels.
FEATURES = (Rel(1, 4), Rel(1, 2), Rel(1), Rel(2), Rel(4))
KERNELS, STRIDES, DILATIONS, WINDOWS = (1, 3, 5), (1, 2, 3), (1, 2, 3), (2, 3, 4, 8, 0)
GROUPS = (1, 2, 4, 16, 64)

_FEATURES = size()
_BIAS = flag(True)
_POOL = {"window": count(2, least=0), "stride": count(1), "padding": _PADDING}
_NORM = {"affine": flag(True), "epsilon": _EPSILON}
_REAL = Attribute("a finite number with a point, not 0.0", lambda v: is_real(v) and v != 0.0, 0.5)


def _elementwise(name: str, linear: bool | None, role: Role = "chosen", **attributes: Attribute) -> Row:
    return Row(name, 1, linear, role, _same, _each, attributes)


_ROWS = (
    Row(
        "dense",
        1,
        True,
        "chosen",
        _dense_shape,
        lambda values, shapes: (pair.by_channels(shapes[0], "a"),),
        {"features": _FEATURES, "bias": _BIAS},
        _dense_params,
        _dense_flops,
        {"features": FEATURES},
    ),
    Row(
        "conv",
        1,
        True,
        "chosen",
        _conv_shape,
        _conv_pairings,
        {
            "features": _FEATURES,
            "kernel": count(3),
            "stride": count(1),
            "groups": size(1),
            "dilation": count(1),
            "bias": _BIAS,
            "padding": _PADDING,
        },
        _conv_params,
        _conv_flops,
        {
            "features": FEATURES,
            "kernel": KERNELS,
            "stride": STRIDES,
            "groups": (*GROUPS, *FEATURES),
            "dilation": DILATIONS,
        },
    ),
    Row("add", 2, True, "structure", _broadcast, _broadcast_pairings, commutes=True),
    Row("mul", 2, True, "structure", _broadcast, _broadcast_pairings, commutes=True),
    _elementwise("scalar_multiply", True, constant=_REAL),
    _elementwise("scalar_add", True, "kept", constant=_REAL),
    _elementwise("relu", False),
    _elementwise("gelu", False, tanh=flag(False)),  # as GPT-2 approximates it
    _elementwise("silu", False),
    _elementwise("sigmoid", False),
    Row("softmax", 1, False, "chosen", _with_channels, _last_pairings),
    Row("batch_norm", 1, True, "chosen", _with_channels, _each, _NORM, _norm_params),
    Row("layer_norm", 1, True, "chosen", _with_channels, _last_pairings, _NORM, _norm_params),
    Row(
        "group_norm",
        1,
        True,
        "chosen",
        _in_groups,
        _group_pairings,
        {"groups": size(1), **_NORM},
        _norm_params,
        choices={"groups": (*GROUPS, *FEATURES[:3])},
    ),
    _elementwise("dropout", True, rate=rate(0.1)),
    Row(
        "average_pool",
        1,
        True,
        "chosen",
        _pool_shape,
        _pool_pairings,
        _POOL,
        choices={"window": WINDOWS, "stride": STRIDES},
    ),
    Row(
        "max_pool",
        1,
        True,
        "chosen",
        _pool_shape,
        _pool_pairings,
        _POOL,
        choices={"window": WINDOWS, "stride": STRIDES},
    ),
    Row(
        "reshape",
        1,
        True,
        "kept",
        _reshape_shape,
        lambda values, shapes: (pair.of_reshape(_reshape_shape(values, shapes), shapes[0]),),
        {"shape": Attribute("sizes, one of which may be -1", is_target)},
    ),
    Row(
        "flatten", 1, True, "kept", _flat_shape, lambda v, shapes: (pair.of_reshape(_flat_shape(v, shapes), shapes[0]),)
    ),
    Row(
        "transpose",
        1,
        True,
        "kept",
        _transposed,
        _transpose_pairings,
        {"axes": Attribute(f"axes, at most {MOST_AXES}", are_axes)},
    ),
    Row(
        "einsum",
        2,
        True,
        "kept",
        lambda values, shapes: _einsum_shape(values["equation"], shapes),
        lambda values, shapes: _einsum_pairings(values["equation"], shapes),
        {"equation": Attribute("an equation such as 'bij,bjk->bik'", lambda v: _terms(v) is not None)},
        flops=lambda values, shapes: _einsum_flops(values["equation"], shapes),
    ),
    Row(
        "dot",
        2,
        True,
        "kept",
        lambda values, shapes: _einsum_shape(_dot_equation(shapes), shapes),
        lambda values, shapes: _einsum_pairings(_dot_equation(shapes), shapes),
        flops=lambda values, shapes: _einsum_flops(_dot_equation(shapes), shapes),
    ),
    Row(
        "mean",
        1,
        True,
        "kept",
        _mean_shape,
        _mean_pairings,
        {"axes": Attribute(f"axes, at most {MOST_AXES}", are_axes), "keep": flag(False)},
    ),
    Row(
        "parameter",
        0,
        True,
        "kept",
        lambda values, shapes: values["shape"],
        lambda values, shapes: (),
        {"shape": Attribute("positive sizes", is_fixed)},
        lambda values, shapes: prod(values["shape"]),
    ),
    _elementwise("stochastic_depth", True, "kept", rate=rate(0.1)),
    _elementwise("identity", None, "kept"),
    operator_node.row(Rel()),
    Row("none", 1, True, "kept", _same, _nothing),
    Row(
        "self_attention",
        1,
        False,
        "kept",
        _attention_shape,
        lambda values, shapes: (pair.diagonal(shapes[0], ["o", "a", "a"]),),
        {"heads": count(1), "bias": _BIAS, "causal": flag(False)},
        _attention_params,
        _attention_flops,
    ),
    Row(
        OPAQUE,
        None,
        None,
        "kept",
        lambda values, shapes: values["shape"],
        lambda values, shapes: tuple([pair.nothing(values["shape"], shape) for shape in shapes]),
        {
            "what": _WORDS,
            "shape": Attribute(f"sizes, at most {MOST_AXES}", is_shape),
            "params": count(0, least=0),
            "flops": count(0, least=0),
        },
        lambda values, shapes: values["params"],
        lambda values, shapes: values["flops"],
    ),
)
#: Every operation by its name.
OPERATIONS: Mapping[str, Row] = {row.name: row for row in _ROWS}
