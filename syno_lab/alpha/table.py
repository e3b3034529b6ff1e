"""The table of operations (αNAS, section 3.2, Table 3), and the rules for shapes, costs and pairings.

:mod:`syno_lab.alpha.operations` defines windows, padding and costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from syno_lab.alpha import operator_node, row
from syno_lab.alpha import pairings as pair
from syno_lab.alpha.pairings import Pairing
from syno_lab.alpha.row import MOST_AXES, Applied, Attribute, Rel, Row, Shape, Value
from syno_lab.errors import SpecError
from syno_lab.inputs import LARGEST_SIZE, quoted

SAME = "same"
#: The row for all operations that αNAS does not know. Traced networks contain opaque nodes; a chosen region has none.
#: The pairing is unknown, so the table has the least pairing.
OPAQUE = "opaque"


# -- shapes ------------------------------------------------------------------------------------------------------------


def _same(at: Applied) -> Shape:
    return at.shape


def _with_channels(at: Applied) -> Shape:
    """Return the shape of the first input. Raises SpecError without a batch axis and channels."""
    if len(at.shape) < 2:
        raise SpecError("expected at least 2 axes: batch and channels")
    return at.shape


def _in_groups(at: Applied) -> Shape:
    shape = _with_channels(at)
    if shape[-1] % at["groups"]:
        raise SpecError(f"expected groups that divide {shape[-1]} channels, found {at['groups']}")
    return shape


def _conv_shape(at: Applied) -> Shape:
    shape, features = _in_groups(at), at["features"]
    if features % at["groups"]:
        raise SpecError(f"expected groups that divide {features} features, found {at['groups']}")
    return (shape[0], *(windows.number for windows in _windows(at)), features)


def _pool_shape(at: Applied) -> Shape:
    padding = at["padding"]
    if padding != SAME and padding > at["window"] // 2:
        raise SpecError(f"expected a padding of at most half of the window, found {padding}")
    return (at.shape[0], *(windows.number for windows in _windows(at)), at.channels)


def _window(at: Applied) -> tuple[int, int, int]:
    """Return the width of a window, the step between two windows, and the step between positions of a window."""
    return at.values.get("kernel", at.values.get("window")), at["stride"], at.values.get("dilation", 1)


def _windows(at: Applied) -> list[pair.Windows]:
    """Return the windows of a convolution or a pool along each spatial axis."""
    if len(at.shape) < 3:
        raise SpecError("expected at least 3 axes: batch, spatial axes and channels")
    width, step, apart = _window(at)
    span, axes_windows = (width - 1) * apart + 1, []
    for length in at.shape[1:-1]:
        if width == 0:
            axes_windows.append(pair.Windows(length, 1, length, length, 1, 0))
            continue
        before, after = pads(at, [length])
        number = (length + before + after - span) // step + 1
        if number < 1:
            raise SpecError(f"expected an axis of at least {span - 2 * at['padding']} positions, found {length}")
        axes_windows.append(pair.Windows(length, number, width, step, apart, before))
    return axes_windows


def pads(at: Applied, sizes: Sequence[int]) -> list[int]:
    """Return the padding as for ``F.pad``: before and after each axis, last axis first; an odd position goes after."""
    width, step, apart = _window(at)
    padding, padding_pairs = at["padding"], []
    for length in reversed(sizes):
        reach = (-(-length // step) - 1) * step + (width - 1) * apart + 1
        total = max(reach - length, 0) if padding == SAME else 2 * padding
        padding_pairs += [total // 2, total - total // 2]
    return padding_pairs


def _broadcast(at: Applied) -> Shape:
    rank = max(map(len, at.shapes))
    columns = zip(*((1,) * (rank - len(shape)) + shape for shape in at.shapes), strict=True)
    result = []
    for sizes in columns:
        size = max(sizes)
        if any(n not in (1, size) for n in sizes):
            raise SpecError(f"expected axes of one size or of size 1, found {' and '.join(map(str, sizes))}")
        result.append(size)
    return tuple(result)


def _reshape_shape(at: Applied) -> Shape:
    target, total = at["shape"], prod(at.shape)
    known = prod(size for size in target if size != -1)
    if total % known or (-1 not in target and total != known):
        raise SpecError(f"expected a shape of {total} elements, found {list(target)}")
    return tuple([total // known if size == -1 else size for size in target])


def _flat_shape(at: Applied) -> Shape:
    if len(at.shape) < 2:
        raise SpecError("expected at least 2 axes")
    return (at.shape[0], prod(at.shape[1:]))


def _transposed(at: Applied) -> Shape:
    axes = at["axes"]
    if sorted(axes) != list(range(len(at.shape))):
        raise SpecError(f"expected each axis from 0 to {len(at.shape) - 1} once, found {list(axes)}")
    return tuple([at.shape[axis] for axis in axes])


def _averaged(at: Applied) -> tuple[int, ...]:
    """Return the axes over which a mean is taken, as numbers from 0 up."""
    rank, axes = len(at.shape), at["axes"]
    chosen = tuple([axis + rank if axis < 0 else axis for axis in axes])
    if not chosen or not all(0 <= axis < rank for axis in chosen) or len(set(chosen)) < len(chosen):
        raise SpecError(f"expected axes of {list(at.shape)}, at least one, each once, found {list(axes)}")
    return chosen


def _mean_shape(at: Applied) -> Shape:
    axes, keep = _averaged(at), at["keep"]
    return tuple([1 if i in axes else n for i, n in enumerate(at.shape) if keep or i not in axes])


def _attention_shape(at: Applied) -> Shape:
    if len(at.shape) != 3 or at.channels % at["heads"]:
        raise SpecError(f"expected (batch, positions, channels) with channels that {at['heads']} heads divide")
    return at.shape


# -- products of tensors -----------------------------------------------------------------------------------------------


def _terms(equation: Value) -> tuple[list[str], str] | None:
    """Return the letters of an einsum's two inputs and result; None for a wrong text and for repeats in a tensor."""
    if not isinstance(equation, str) or len(equation) > 4 * MOST_AXES:
        return None
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    texts = [*terms, result]
    if not arrow or len(terms) != 2 or any(not (t.isascii() and t.isalpha()) and t for t in texts):
        return None
    ok = all(len(set(t)) == len(t) <= MOST_AXES for t in texts) and set(result) <= set("".join(terms))
    return (terms, result) if ok else None


def _product(at: Applied) -> tuple[list[str], str, dict[str, int]]:
    """Return the letters of an einsum's inputs and result, and each letter's size; `dot` is a matrix product."""
    equation = at.values.get("equation")
    if equation is None:
        rank = len(at.shape)
        if rank != len(at.shapes[1]) or rank < 2:
            raise SpecError("expected two tensors of the same number of axes, at least 2")
        batch = "abcdefgh"[: rank - 2]
        equation = f"{batch}ij,{batch}jk->{batch}ik"
    letters = _terms(equation)
    assert letters is not None
    sizes: dict[str, int] = {}
    for term, shape in zip(letters[0], at.shapes, strict=True):
        if len(term) != len(shape):
            raise SpecError(f"expected {len(term)} axes for {quoted(term)}, found {len(shape)}")
        for letter, n in zip(term, shape, strict=True):
            if sizes.setdefault(letter, n) != n:
                raise SpecError(f"expected one size for {quoted(letter)}, found {sizes[letter]} and {n}")
    return (*letters, sizes)


def _product_shape(at: Applied) -> Shape:
    _, result, sizes = _product(at)
    return tuple([sizes[letter] for letter in result])


def _product_flops(at: Applied) -> int:
    """Return the FLOPs: 0 unless a letter of both inputs is summed. A sum over a letter of one input is not counted."""
    (left, right), result, sizes = _product(at)
    both = set(left) & set(right)
    return 2 * prod(sizes[letter] for letter in both | set(result)) if both - set(result) else 0


def _product_pairing(at: Applied, number: int) -> Pairing:
    terms, result, _ = _product(at)
    return pair.selected(_product_shape(at), at.shapes[number], [result.find(letter) for letter in terms[number]])


# -- weights and costs -------------------------------------------------------------------------------------------------


def _with_bias(at: Applied, shape: Shape) -> tuple[Shape, ...]:
    return (shape, shape[:1]) if at["bias"] else (shape,)


def _conv_weights(at: Applied) -> tuple[Shape, ...]:
    windows = (at["kernel"],) * (len(at.shape) - 2)
    return _with_bias(at, (at["features"], at.channels // at["groups"], *windows))


def _conv_flops(at: Applied) -> int:
    return 2 * prod(_conv_shape(at)) * prod(_conv_weights(at)[0][1:])


def _norm_weights(at: Applied) -> tuple[Shape, ...]:
    return ((at.channels,), (at.channels,)) if at["affine"] else ()


def _attention_weights(at: Applied) -> tuple[Shape, ...]:
    channels = at.channels
    return (*_with_bias(at, (3 * channels, channels)), *_with_bias(at, (channels, channels)))


def _attention_flops(at: Applied) -> int:
    """Return the FLOPs of four dense layers, and of the products of queries with keys and of weights with values."""
    batch, positions, channels = at.shape
    return 8 * batch * positions * channels**2 + 4 * batch * positions**2 * channels


def _opaque_weights(at: Applied) -> tuple[Shape, ...]:
    if at["params"]:
        raise SpecError(f"expected operations of the table, found {at['what']}, which is known by its shape alone")
    return ()


# -- pairings ----------------------------------------------------------------------------------------------------------


def _conv_pairing(at: Applied, number: int) -> Pairing:
    channels = pair.of_block(at.channels, at.channels // at["groups"])
    return pair.by_windows(at.shape, _conv_shape(at), _windows(at), channels)


def _pool_pairing(at: Applied, number: int) -> Pairing:
    return pair.by_windows(at.shape, _pool_shape(at), _windows(at), "o")


def _group_pairing(at: Applied, number: int) -> Pairing:
    """Pair all elements of a group, for group norm; the result for a group of one element is constant."""
    shape, group = at.shape, at.channels // at["groups"]
    if group * prod(shape[1:-1]) == 1:
        return pair.nothing(shape, shape)
    return pair.diagonal(shape, ["o", *pair.repeated("a", len(shape) - 2), pair.of_block(shape[-1], group)])


def _last_pairing(at: Applied, number: int) -> Pairing:
    """Pair all channels of a position, for softmax and layer norm; the result for one channel is constant."""
    return pair.nothing(at.shape, at.shape) if at.channels == 1 else pair.by_channels(at.shape, "a")


def _each(at: Applied, number: int) -> Pairing:
    return pair.diagonal(at.shape, pair.repeated("o", len(at.shape)))


def _broadcast_pairing(at: Applied, number: int) -> Pairing:
    after, shape = _broadcast(at), at.shapes[number]
    return pair.selected(after, shape, [len(after) - len(shape) + i for i in range(len(shape))])


def _mean_pairing(at: Applied, number: int) -> Pairing:
    axes, rank = _averaged(at), len(at.shape)
    axes_kept = [i for i in range(rank) if at["keep"] or i not in axes]
    return pair.selected(_mean_shape(at), at.shape, [-1 if i in axes else axes_kept.index(i) for i in range(rank)])


def _transpose_pairing(at: Applied, number: int) -> Pairing:
    return pair.selected(_transposed(at), at.shape, [at["axes"].index(i) for i in range(len(at.shape))])


# -- the table ---------------------------------------------------------------------------------------------------------

#: The values from which synthesis chooses (the specification, 2.1); `FEATURES` are relative to the input's channels. Of
#: the dilations only the number is known; the groups of a group norm are numbers that can divide the channels.
FEATURES = (Rel(1, 4), Rel(1, 2), Rel(1), Rel(2), Rel(4))
KERNELS, STRIDES, DILATIONS, WINDOWS = (1, 3, 5), (1, 2, 3), (1, 2, 3), (2, 3, 4, 8, 0)
GROUPS = (1, 2, 4, 16, 64)

_PADDING = Attribute(
    f"an integer from 0 up or {SAME!r}", lambda v: v == SAME or (row.is_integer(v) and 0 <= v < LARGEST_SIZE), SAME
)
_WORDS = Attribute(
    "text of 1 to 200 characters", lambda v: isinstance(v, str) and 0 < len(v) <= 200 and v.isprintable()
)
_AXES = row.tuple_of(f"axes, at most {MOST_AXES}", lambda v: row.is_integer(v) and -MOST_AXES <= v < MOST_AXES)
_SIZES = row.tuple_of(f"sizes, at most {MOST_AXES}", row.is_size)
_FIXED = row.tuple_of("positive sizes", lambda v: row.is_integer(v) and row.is_size(v), lambda values: values != ())
_TARGET = row.tuple_of(
    "sizes, one of which may be -1",
    lambda v: row.is_size(v) or (row.is_integer(v) and v == -1),
    lambda values: values.count(-1) < 2,
)
_BIAS = {"bias": row.flag(True)}
_CONV = {
    "features": row.size(choices=FEATURES),
    "kernel": row.count(3, KERNELS),
    "stride": row.count(1, STRIDES),
    "groups": row.size(1, (*GROUPS, *FEATURES)),
    "dilation": row.count(1, DILATIONS),
    **_BIAS,
    "padding": _PADDING,
}
_POOL = {"window": row.count(2, WINDOWS, least=0), "stride": row.count(1, STRIDES), "padding": _PADDING}
_NORM = {"affine": row.flag(True), "epsilon": Attribute("a positive number", lambda v: row.is_real(v) and v > 0, 1e-5)}
_HEADS = {"heads": row.count(1), **_BIAS, "causal": row.flag(False)}
_CONSTANT = {"constant": Attribute("a finite number with a point, not 0.0", lambda v: row.is_real(v) and v != 0.0, 0.5)}
_EQUATION = {"equation": Attribute("an equation such as 'bij,bjk->bik'", lambda v: _terms(v) is not None)}
_KNOWN_BY_SHAPE = {"what": _WORDS, "shape": _SIZES, "params": row.count(0, least=0), "flops": row.count(0, least=0)}

_ROWS = (
    Row(
        "dense",
        lambda at: (*_with_channels(at)[:-1], at["features"]),
        lambda at, number: pair.by_channels(at.shape, "a"),
        {"features": _CONV["features"], **_BIAS},
        lambda at: _with_bias(at, (at["features"], at.channels)),
        lambda at: 2 * prod(at.shape) * at["features"],
    ),
    Row("conv", _conv_shape, _conv_pairing, _CONV, _conv_weights, _conv_flops),
    Row("add", _broadcast, _broadcast_pairing, inputs=2, role="structure", commutes=True),
    Row("mul", _broadcast, _broadcast_pairing, inputs=2, role="structure", commutes=True),
    Row("scalar_multiply", _same, _each, _CONSTANT),
    Row("scalar_add", _same, _each, _CONSTANT, role="kept"),
    Row("relu", _same, _each, linear=False),
    Row("gelu", _same, _each, {"tanh": row.flag(False)}, linear=False),  # ``tanh`` is GPT-2's approximation
    Row("silu", _same, _each, linear=False),
    Row("sigmoid", _same, _each, linear=False),
    Row("softmax", _with_channels, _last_pairing, linear=False),
    Row("batch_norm", _with_channels, _each, _NORM, _norm_weights),
    Row("layer_norm", _with_channels, _last_pairing, _NORM, _norm_weights),
    Row(
        "group_norm",
        _in_groups,
        _group_pairing,
        {"groups": row.size(1, (*GROUPS, *FEATURES[:3])), **_NORM},
        _norm_weights,
    ),
    Row("dropout", _same, _each, {"rate": row.rate(0.1)}),
    Row("average_pool", _pool_shape, _pool_pairing, _POOL),
    Row("max_pool", _pool_shape, _pool_pairing, _POOL),
    Row(
        "reshape",
        _reshape_shape,
        lambda at, number: pair.of_reshape(_reshape_shape(at), at.shape),
        {"shape": _TARGET},
        role="kept",
    ),
    Row("flatten", _flat_shape, lambda at, number: pair.of_reshape(_flat_shape(at), at.shape), role="kept"),
    Row("transpose", _transposed, _transpose_pairing, {"axes": _AXES}, role="kept"),
    Row("einsum", _product_shape, _product_pairing, _EQUATION, flops=_product_flops, inputs=2, role="kept"),
    Row("dot", _product_shape, _product_pairing, flops=_product_flops, inputs=2, role="kept"),
    Row("mean", _mean_shape, _mean_pairing, {"axes": _AXES, "keep": row.flag(False)}, role="kept"),
    Row(
        "parameter",
        lambda at: at["shape"],
        lambda at, number: pair.nothing(at["shape"], at.shapes[number]),
        {"shape": _FIXED},
        lambda at: (at["shape"],),
        inputs=0,
        role="kept",
    ),
    Row("stochastic_depth", _same, _each, {"rate": row.rate(0.1)}, role="kept"),
    Row("identity", _same, _each, linear=None, role="kept"),
    operator_node.row(Rel()),
    Row("none", _same, lambda at, number: pair.nothing(at.shape, at.shape), role="kept"),
    Row(
        "self_attention",
        _attention_shape,
        lambda at, number: pair.diagonal(at.shape, ["o", "a", "a"]),
        _HEADS,
        _attention_weights,
        _attention_flops,
        linear=False,
        role="kept",
    ),
    Row(
        OPAQUE,
        lambda at: at["shape"],
        lambda at, number: pair.nothing(at["shape"], at.shapes[number]),
        _KNOWN_BY_SHAPE,
        _opaque_weights,
        lambda at: int(at["flops"]),
        inputs=None,
        linear=None,
        role="kept",
        params=lambda at: int(at["params"]),
    ),
)
#: All operations by name.
OPERATIONS: Mapping[str, Row] = {each.name: each for each in _ROWS}
