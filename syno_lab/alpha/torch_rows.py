"""Which calls of PyTorch are which operations, and with which attributes.

A rule takes a call and puts its nodes; None, or a SpecError, says that no row means exactly what the call does, and the
call becomes opaque. What a rule gives is compared with the shape that the network has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from syno_lab.alpha.operations import Operation, operation
from syno_lab.alpha.recording import Call
from syno_lab.alpha.row import Value
from syno_lab.alpha.tracing import Placed, Tracer, groups, second, successive
from syno_lab.alpha.twins import has_hooks
from syno_lab.errors import SpecError
from syno_lab.models.efficientnet import StochasticDepth
from syno_lab.models.gpt import Attention

#: The same function, called from the right, in place, or by another name.
_SAME = {
    name: same
    for same, names in {
        "add": ("iadd", "radd"),
        "mul": ("imul", "rmul", "multiply"),
        "sub": ("isub", "subtract"),
        "div": ("truediv", "itruediv", "true_divide", "divide"),
        "neg": ("negative",),
        "reshape": ("view", "unflatten", "squeeze", "unsqueeze", "flatten", "ravel"),
        "transpose": ("swapaxes", "swapdims", "mT", "T", "t", "movedim", "moveaxis", "permute"),
        "matmul": ("bmm",),
    }.items()
    for name in names
}


@dataclass(frozen=True)
class _Asked:
    """A call whose first argument is a tensor of the graph, and where its nodes go."""

    tracer: Tracer
    call: Call
    source: str
    x: Placed
    rest: tuple[Any, ...]
    named: Mapping[str, Any]  # of a module its attributes

    def argument(self, place: int, name: str, default: Any = None) -> Any:
        """An argument after the first tensor, by its place or name."""
        return self.rest[place] if place < len(self.rest) else self.named.get(name, default)

    def arguments(self, **defaults: Any) -> list[Any]:
        """The arguments after the first tensor, in their order."""
        return [self.argument(place, *each) for place, each in enumerate(defaults.items())]

    @property
    def module(self) -> Any:
        """The module that is called."""
        return self.tracer.modules[str(self.call.target)]

    @property
    def rank(self) -> int:
        return len(self.x.axes)

    def put(self, made: Operation, *tensors: int) -> int:
        return self.tracer.put(made, *tensors, source=self.source)

    def each(self, name: str, **attributes: Value) -> Placed:
        """An operation that keeps the order of axes."""
        return Placed(self.put(operation(name, **attributes), self.x.tensor), self.x.axes)

    def in_order(self, axes: tuple[int, ...], name: str, **attributes: Value) -> Placed:
        """An operation on the tensor with its axes in this order."""
        made = operation(name, **attributes)
        return Placed(self.put(made, self.tracer.ordered(self.x, axes, self.source)), axes)

    def by_channels(self, name: str, **attributes: Value) -> Placed:
        """An operation on the channels, which are the second axis of the network's tensor."""
        return self.in_order(second(self.rank), name, **attributes)

    def last(self, name: str, **attributes: Value) -> Placed:
        """An operation on the channels, which are the last axis of the network's tensor."""
        return self.in_order(tuple(range(self.rank)), name, **attributes)


def row_of(tracer: Tracer, call: Call, source: str) -> Placed | None:
    """The nodes of a call, where rows mean what it does; None where none do.

    Raises SpecError where a row does not apply.
    """
    args, named = call.arguments
    if not args:
        return None
    name: str | type[Any] = _SAME.get(call.name, call.name)
    if isinstance(call.target, str):
        module = tracer.modules[call.target]
        # A class of the user's that inherits may do something else, and so may a hook.
        if has_hooks(module) or len(args) > 1 or named:
            return None
        name, named = type(module), dict(vars(module))
    elif name in ("add", "mul", "sub", "div", "rsub"):
        return _arithmetic(tracer, call, source, name)
    x = tracer.operand(args[0])
    if x is None or name not in _ROWS or named.get("dtype") is not None:
        return None
    return _ROWS[name](_Asked(tracer, call, source, x, args[1:], named))


# -- modules -----------------------------------------------------------------------------------------------------------


_Sizes = int | Sequence[int] | None


def _one(value: _Sizes) -> int | None:
    """The number that all axes have."""
    if isinstance(value, int):
        return value
    return value[0] if isinstance(value, Sequence) and len(set(value)) == 1 and isinstance(value[0], int) else None


def _conv(asked: _Asked) -> Placed | None:
    module = asked.module
    kernel, stride, dilation = map(_one, (module.kernel_size, module.stride, module.dilation))
    padding: Any = module.padding
    if padding == "valid":
        padding = 0
    elif padding != "same":
        padding = _one(padding)
    if None in (kernel, stride, dilation, padding) or module.padding_mode != "zeros":
        return None
    if asked.rank != len(module.kernel_size) + 2:
        return None
    sizes = {"features": module.out_channels, "kernel": kernel, "stride": stride, "groups": module.groups}
    return asked.by_channels("conv", **sizes, dilation=dilation, bias=module.bias is not None, padding=padding)


def _norm(asked: _Asked) -> Placed | None:
    module = asked.module
    if isinstance(module, nn.LayerNorm):
        if len(module.normalized_shape) != 1 or (module.elementwise_affine and module.bias is None):
            return None
        return asked.last("layer_norm", affine=module.elementwise_affine, epsilon=float(module.eps))
    values = {"affine": module.affine, "epsilon": float(module.eps)}
    if isinstance(module, nn.GroupNorm):
        return asked.by_channels("group_norm", groups=module.num_groups, **values)
    return None if module.running_mean is None else asked.by_channels("batch_norm", **values)


def _attention(asked: _Asked) -> Placed | None:
    module: Attention = asked.module
    return asked.last("self_attention", heads=module.heads, causal=module.causal, bias=module.qkv.bias is not None)


# -- functions, and modules that have their arguments as attributes ----------------------------------------------------


def _pool(asked: _Asked, name: str, **others: Any) -> Placed | None:
    """``others``: the arguments after the padding, in order, with their defaults."""
    window, stride, padding, *rest = asked.arguments(kernel_size=None, stride=None, padding=0, **others)
    window, stride, padding = _one(window), _one(window if stride in (None, ()) else stride), _one(padding)
    given = dict(zip(others, rest, strict=True))
    counts_outside = given.pop("count_include_pad", False) and padding != 0
    is_other = counts_outside or _one(given.pop("dilation", 1)) != 1 or any(given.values())
    if None in (window, stride, padding) or is_other or asked.rank < 3:
        return None
    return asked.by_channels(name, window=window, stride=stride, padding=padding)


def _whole(asked: _Asked, name: str) -> Placed | None:
    """The whole of each axis: other sizes of a result have windows of several sizes."""
    size, where = asked.arguments(output_size=None, return_indices=False)
    if _one(size) != 1 or where or asked.rank < 3:
        return None
    return asked.by_channels(name, window=0, padding=0)


def _gelu(asked: _Asked) -> Placed | None:
    approximate = asked.argument(0, "approximate", "none")
    return asked.each("gelu", tanh=approximate == "tanh") if approximate in ("none", "tanh") else None


def _softmax(asked: _Asked) -> Placed | None:
    dim = asked.argument(0, "dim")
    if not isinstance(dim, int):
        return None
    axis = dim % asked.rank
    axes = (*[each for each in asked.x.axes if each != axis], axis)
    return asked.in_order(axes, "softmax")


def _dropout(asked: _Asked) -> Placed | None:
    rate = asked.argument(0, "p", 0.5)
    is_number = isinstance(rate, float | int) and not isinstance(rate, bool)
    return asked.each("dropout", rate=float(rate)) if is_number else None


def _arithmetic(tracer: Tracer, call: Call, source: str, name: str) -> Placed | None:
    """Sums and products of two tensors, or of a tensor and a number."""
    args, named = call.arguments
    if len(args) != 2 or any(value != 1 for value in named.values()):
        return None
    first, other = (args[1], args[0]) if name == "rsub" else args
    left, right = (tracer.operand(each) for each in (first, other))

    def changed(name: str, value: Placed, constant: float) -> Placed:
        return Placed(tracer.put(operation(name, constant=constant), value.tensor, source=source), value.axes)

    def scaled(value: Placed, factor: float) -> Placed:
        return value if factor == 1.0 else changed("scalar_multiply", value, factor)

    if left is not None and right is not None:
        if name == "div" or not _are_alike(tracer, left, right):
            return None
        if name in ("sub", "rsub"):
            right = scaled(right, -1.0)
        one, two = _aligned(tracer, left, right, source)
        made = operation("mul" if name == "mul" else "add")
        return Placed(tracer.put(made, one.tensor, two.tensor, source=source), one.axes)
    number = other if left is not None else first
    value = left if left is not None else right
    if value is None or isinstance(number, bool) or not isinstance(number, int | float):
        return None
    if name == "mul":
        return scaled(value, float(number))
    if name == "div":
        return scaled(value, 1 / number) if left is not None and number else None
    if name != "add":  # a difference
        number, value = (-number, value) if left is not None else (number, scaled(value, -1.0))
    return changed("scalar_add", value, float(number))


def _are_alike(tracer: Tracer, left: Placed, right: Placed) -> bool:
    """Whether both have one type, or one is a parameter."""
    types = {tracer.seen.dtypes[each.number] for each in (left, right) if each.number is not None}
    return len(types) <= 1


def _aligned(tracer: Tracer, left: Placed, right: Placed, source: str) -> tuple[Placed, Placed]:
    """Both with as many axes, in the order of the one that has more; axes of size 1 are put before the other's."""
    rank = max(len(left.axes), len(right.axes))

    def full(value: Placed) -> Placed:
        missing = rank - len(value.axes)
        if not missing:
            return value
        if tracer.has_batch(value):
            raise SpecError("expected a batch as the first axis")
        tensor = tracer.ordered(value, tuple(range(len(value.axes))), source)
        made = operation("reshape", shape=(*[1] * missing, *tracer.shapes[tensor]))
        return Placed(tracer.put(made, tensor, source=source), tuple(range(rank)))

    order = left.axes if len(left.axes) == rank else right.axes
    if order == tuple(range(rank)):  # sizes of 1 before a tensor's own are understood
        found = [Placed(tracer.ordered(each, tuple(range(len(each.axes))), source), order) for each in (left, right)]
    else:
        found = [Placed(tracer.ordered(full(each), order, source), order) for each in (left, right)]
    return found[0], found[1]


def _mean(asked: _Asked) -> Placed | None:
    dims, keep = asked.argument(0, "dim"), asked.argument(1, "keepdim", False)
    dims = range(asked.rank) if dims is None else (dims,) if isinstance(dims, int) else dims
    gone = {dim % asked.rank for dim in dims}
    places = tuple([place for place, axis in enumerate(asked.x.axes) if axis in gone])
    tensor = asked.put(operation("mean", axes=places, keep=bool(keep)), asked.x.tensor)
    if keep:
        return Placed(tensor, asked.x.axes)
    left = sorted(set(asked.x.axes) - gone)
    return Placed(tensor, tuple([left.index(axis) for axis in asked.x.axes if axis not in gone]))


def _transpose(asked: _Asked) -> Placed | None:
    """Another order of the axes needs no node."""
    axes = _moved(asked)
    return None if axes is None else Placed(asked.x.tensor, tuple([axes.index(axis) for axis in asked.x.axes]))


def _moved(asked: _Asked) -> list[int] | None:
    """For each axis of the result the axis that it was."""
    rank, name = asked.rank, asked.call.name
    axes = list(range(rank))
    if name == "permute":
        dims = asked.argument(0, "dims")
        return [dim % rank for dim in (asked.rest if isinstance(dims, int) else dims)]
    if name in ("movedim", "moveaxis"):
        source, target = asked.argument(0, "source"), asked.argument(1, "destination")
        if not isinstance(source, int) or not isinstance(target, int):
            return None
        moved = axes.pop(source % rank)
        axes.insert(target % rank, moved)
        return axes
    if name in ("T", "t") and rank > 2:
        return None
    if name in ("T", "t", "mT"):
        one, two = (-2, -1) if rank == 2 or name == "mT" else (0, 0)
    else:
        one = asked.argument(0, "dim0", asked.named.get("axis0"))
        two = asked.argument(1, "dim1", asked.named.get("axis1"))
    axes[one], axes[two] = axes[two], axes[one]
    return axes


def _reshape(asked: _Asked) -> Placed | None:
    """Axes that become others stay where they are in the graph, where they follow one another there too."""
    tracer, number = asked.tracer, asked.call.results[0]
    if asked.x.number is None or tracer.seen.dtypes[asked.x.number] != tracer.seen.dtypes[number]:
        return None
    before, after = (list(zip(*(s[n] for s in tracer.seen.shapes), strict=True)) for n in (asked.x.number, number))
    parts = groups(before, after)
    place = {axis: at for at, axis in enumerate(asked.x.axes)}
    tensor, axes = asked.x.tensor, tuple(range(asked.rank))
    if all(successive([place[axis] for axis in old]) for old, _ in parts):
        axes = asked.x.axes
    else:
        tensor = tracer.ordered(asked.x, axes, asked.source)
    new = tuple([each for axis in axes for old, made in parts if old[:1] == [axis] for each in made])
    sizes = tracer.sizes(number, Placed(tensor, axes, asked.x.number), new)
    if sizes is None:
        return None
    if tracer.shapes[tensor] == tuple([tracer.seen.shape(number)[axis] for axis in new]):
        return Placed(tensor, new)
    return Placed(asked.put(operation("reshape", shape=sizes), tensor), new)


def _matmul(asked: _Asked) -> Placed | None:
    """The product of the last two axes, with no broadcasting."""
    other = asked.tracer.operand(asked.argument(0, "other", asked.named.get("mat2")))
    if other is None or len(other.axes) != asked.rank or asked.rank < 2 or not _are_alike(asked.tracer, asked.x, other):
        return None
    axes = tuple(range(asked.rank))
    tensors = [asked.tracer.ordered(each, axes, asked.source) for each in (asked.x, other)]
    return Placed(asked.put(operation("dot"), *tensors), axes)


def _converted(asked: _Asked) -> Placed | None:
    """A tensor that has the type already."""
    number, types = asked.x.number, asked.tracer.seen.dtypes
    if asked.tracer.is_mixed or number is None or types[number] != types[asked.call.results[0]]:
        return None
    return asked.x


def _each(name: str, **attributes: Value) -> Callable[[_Asked], Placed]:
    return lambda asked: asked.each(name, **attributes)


_Rule = Callable[[_Asked], Placed | None]
_POOLS: dict[tuple[str, str], _Rule] = {
    ("MaxPool", "max_pool"): partial(_pool, name="max_pool", dilation=1, ceil_mode=False, return_indices=False),
    ("AvgPool", "avg_pool"): partial(
        _pool, name="average_pool", ceil_mode=False, count_include_pad=True, divisor_override=None
    ),
    ("AdaptiveAvgPool", "adaptive_avg_pool"): partial(_whole, name="average_pool"),
    ("AdaptiveMaxPool", "adaptive_max_pool"): partial(_whole, name="max_pool"),
}
#: The rules of classes of modules, and of functions by their names.
_ROWS: dict[type[Any] | str, _Rule] = {
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), _conv),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.GroupNorm), _norm),
    nn.Linear: lambda asked: asked.last(
        "dense", features=asked.module.out_features, bias=asked.module.bias is not None
    ),
    Attention: _attention,
    StochasticDepth: lambda asked: asked.each("stochastic_depth", rate=float(asked.module.rate)),
    nn.Identity: lambda asked: asked.x,
    **dict.fromkeys((nn.ReLU, "relu"), _each("relu")),
    **dict.fromkeys((nn.SiLU, "silu"), _each("silu")),
    **dict.fromkeys((nn.Sigmoid, "sigmoid"), _each("sigmoid")),
    **dict.fromkeys((nn.GELU, "gelu"), _gelu),
    **dict.fromkeys((nn.Softmax, "softmax"), _softmax),
    **dict.fromkeys((nn.Dropout, "dropout"), _dropout),
    **dict.fromkeys((nn.Flatten, nn.Unflatten, "reshape"), _reshape),
    **{getattr(nn, f"{kind}{rank}d"): row for (kind, _), row in _POOLS.items() for rank in (1, 2, 3)},
    **{f"{name}{rank}d": row for (_, name), row in _POOLS.items() for rank in (1, 2, 3)},
    # What gives what it gets, as far as a graph says.
    **dict.fromkeys(("contiguous", "clone", "alias"), lambda asked: None if asked.tracer.is_mixed else asked.x),
    **dict.fromkeys(("to", "type", "type_as", "float", "double", "half", "bfloat16"), _converted),
    "neg": _each("scalar_multiply", constant=-1.0),
    "mean": _mean,
    "transpose": _transpose,
    "matmul": _matmul,
}
