"""The rules that turn calls of PyTorch into operations with attributes.

A rule takes a call and adds nodes for the call. If no row computes exactly what the call computes, the rule returns
None or raises SpecError; the call becomes an opaque node. The result's shape is compared with the shape in the network.
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

#: Map a function's other names (swapped arguments, a change in place, an alias) to the name that has a rule.
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
class _Context:
    """A call whose first argument is a tensor of the graph, with the tracer that adds the call's nodes."""

    tracer: Tracer
    call: Call
    source: str
    x: Placed
    rest: tuple[Any, ...]
    named: Mapping[str, Any]  # keyword arguments of a function, or attributes of a called module

    def argument(self, place: int, name: str, default: Any = None) -> Any:
        """Return an argument by its position after the first tensor, or by its name."""
        return self.rest[place] if place < len(self.rest) else self.named.get(name, default)

    def arguments(self, **defaults: Any) -> list[Any]:
        """Return the arguments after the first tensor, in order."""
        return [self.argument(position, *option) for position, option in enumerate(defaults.items())]

    @property
    def module(self) -> Any:
        """The called module."""
        return self.tracer.modules[str(self.call.target)]

    @property
    def rank(self) -> int:
        return len(self.x.axes)

    def put(self, made: Operation, *tensors: int) -> int:
        return self.tracer.put(made, *tensors, source=self.source)

    def each(self, name: str, **attributes: Value) -> Placed:
        """Add a node with an operation that keeps the order of axes."""
        return Placed(self.put(operation(name, **attributes), self.x.tensor), self.x.axes)

    def in_order(self, axes: tuple[int, ...], name: str, **attributes: Value) -> Placed:
        """Add a node with an operation on the tensor, whose axes are first brought into this order."""
        op = operation(name, **attributes)
        return Placed(self.put(op, self.tracer.ordered(self.x, axes, self.source)), axes)

    def by_channels(self, name: str, **attributes: Value) -> Placed:
        """Add a node with an operation on channels in the second axis of the network's tensor."""
        return self.in_order(second(self.rank), name, **attributes)

    def last(self, name: str, **attributes: Value) -> Placed:
        """Add a node with an operation on channels in the last axis of the network's tensor."""
        return self.in_order(tuple(range(self.rank)), name, **attributes)


def row_of(tracer: Tracer, call: Call, source: str) -> Placed | None:
    """Add the nodes of a call and return their result; return None if no rows are equivalent to the call.

    Raises SpecError if an operation does not fit its input.
    """
    args, named = call.arguments
    if not args:
        return None
    name: str | type[Any] = _SAME.get(call.name, call.name)
    if isinstance(call.target, str):
        module = tracer.modules[call.target]
        # A user's subclass or a hook may compute something else, so only the class itself has a rule.
        if has_hooks(module) or len(args) > 1 or named:
            return None
        name, named = type(module), dict(vars(module))
    elif name in ("add", "mul", "sub", "div", "rsub"):
        return _arithmetic(tracer, call, source, name)
    x = tracer.operand(args[0])
    if x is None or name not in _ROWS or named.get("dtype") is not None:
        return None
    return _ROWS[name](_Context(tracer, call, source, x, args[1:], named))


# -- modules -----------------------------------------------------------------------------------------------------------


_Sizes = int | Sequence[int] | None


def _one(value: _Sizes) -> int | None:
    """Return the number that a value has for all axes; None if the numbers of the axes differ."""
    if isinstance(value, int):
        return value
    return value[0] if isinstance(value, Sequence) and len(set(value)) == 1 and isinstance(value[0], int) else None


def _conv(ctx: _Context) -> Placed | None:
    module = ctx.module
    kernel, stride, dilation = map(_one, (module.kernel_size, module.stride, module.dilation))
    padding: Any = module.padding
    if padding == "valid":
        padding = 0
    elif padding != "same":
        padding = _one(padding)
    if None in (kernel, stride, dilation, padding) or module.padding_mode != "zeros":
        return None
    if ctx.rank != len(module.kernel_size) + 2:
        return None
    sizes = {"features": module.out_channels, "kernel": kernel, "stride": stride, "groups": module.groups}
    return ctx.by_channels("conv", **sizes, dilation=dilation, bias=module.bias is not None, padding=padding)


def _norm(ctx: _Context) -> Placed | None:
    module = ctx.module
    if isinstance(module, nn.LayerNorm):
        if len(module.normalized_shape) != 1 or (module.elementwise_affine and module.bias is None):
            return None
        return ctx.last("layer_norm", affine=module.elementwise_affine, epsilon=float(module.eps))
    values = {"affine": module.affine, "epsilon": float(module.eps)}
    if isinstance(module, nn.GroupNorm):
        return ctx.by_channels("group_norm", groups=module.num_groups, **values)
    return None if module.running_mean is None else ctx.by_channels("batch_norm", **values)


def _attention(ctx: _Context) -> Placed | None:
    module: Attention = ctx.module
    return ctx.last("self_attention", heads=module.heads, causal=module.causal, bias=module.qkv.bias is not None)


# -- functions, and modules with a function's arguments as attributes --------------------------------------------------


def _pool(ctx: _Context, name: str, **others: Any) -> Placed | None:
    """Add a pool; ``others`` maps the arguments after the padding, in order, to their defaults."""
    window, stride, padding, *rest = ctx.arguments(kernel_size=None, stride=None, padding=0, **others)
    window, stride, padding = _one(window), _one(window if stride in (None, ()) else stride), _one(padding)
    options = dict(zip(others, rest, strict=True))
    counts_outside = options.pop("count_include_pad", False) and padding != 0
    is_other = counts_outside or _one(options.pop("dilation", 1)) != 1 or any(options.values())
    if None in (window, stride, padding) or is_other or ctx.rank < 3:
        return None
    return ctx.by_channels(name, window=window, stride=stride, padding=padding)


def _whole(ctx: _Context, name: str) -> Placed | None:
    """Add a pool over whole axes; other result sizes need windows of several sizes and have no row."""
    size, where = ctx.arguments(output_size=None, return_indices=False)
    if _one(size) != 1 or where or ctx.rank < 3:
        return None
    return ctx.by_channels(name, window=0, padding=0)


def _gelu(ctx: _Context) -> Placed | None:
    approximate = ctx.argument(0, "approximate", "none")
    return ctx.each("gelu", tanh=approximate == "tanh") if approximate in ("none", "tanh") else None


def _softmax(ctx: _Context) -> Placed | None:
    dim = ctx.argument(0, "dim")
    if not isinstance(dim, int):
        return None
    axis = dim % ctx.rank
    axes = (*[other for other in ctx.x.axes if other != axis], axis)
    return ctx.in_order(axes, "softmax")


def _dropout(ctx: _Context) -> Placed | None:
    rate = ctx.argument(0, "p", 0.5)
    is_number = isinstance(rate, float | int) and not isinstance(rate, bool)
    return ctx.each("dropout", rate=float(rate)) if is_number else None


def _arithmetic(tracer: Tracer, call: Call, source: str, name: str) -> Placed | None:
    """Add the sum or product of two tensors, or of a tensor and a number."""
    args, named = call.arguments
    if len(args) != 2 or any(value != 1 for value in named.values()):
        return None
    first, other = (args[1], args[0]) if name == "rsub" else args
    left, right = (tracer.operand(leaf) for leaf in (first, other))

    def changed(name: str, value: Placed, constant: float) -> Placed:
        return Placed(tracer.put(operation(name, constant=constant), value.tensor, source=source), value.axes)

    def scaled(value: Placed, factor: float) -> Placed:
        return value if factor == 1.0 else changed("scalar_multiply", value, factor)

    if left is not None and right is not None:
        if name == "div" or not _are_alike(tracer, left, right):
            return None
        if name in ("sub", "rsub"):
            right = scaled(right, -1.0)
        x, y = _aligned(tracer, left, right, source)
        op = operation("mul" if name == "mul" else "add")
        return Placed(tracer.put(op, x.tensor, y.tensor, source=source), x.axes)
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
    """Return whether two tensors have the same dtype or one of them is a parameter."""
    types = {tracer.seen.dtypes[value.number] for value in (left, right) if value.number is not None}
    return len(types) <= 1


def _aligned(tracer: Tracer, left: Placed, right: Placed, source: str) -> tuple[Placed, Placed]:
    """Return both tensors in the axis order of the tensor with more axes; the other tensor gets leading axes of 1."""
    rank = max(len(left.axes), len(right.axes))

    def full(value: Placed) -> Placed:
        missing = rank - len(value.axes)
        if not missing:
            return value
        if tracer.has_batch(value):
            raise SpecError("expected a batch as the first axis")
        tensor = tracer.ordered(value, tuple(range(len(value.axes))), source)
        op = operation("reshape", shape=(*[1] * missing, *tracer.shapes[tensor]))
        return Placed(tracer.put(op, tensor, source=source), tuple(range(rank)))

    order = left.axes if len(left.axes) == rank else right.axes
    if order == tuple(range(rank)):  # no reshape is needed: operations add leading axes of size 1
        tensors = [Placed(tracer.ordered(v, tuple(range(len(v.axes))), source), order) for v in (left, right)]
    else:
        tensors = [Placed(tracer.ordered(full(value), order, source), order) for value in (left, right)]
    return tensors[0], tensors[1]


def _mean(ctx: _Context) -> Placed | None:
    dims, keep = ctx.argument(0, "dim"), ctx.argument(1, "keepdim", False)
    dims = range(ctx.rank) if dims is None else (dims,) if isinstance(dims, int) else dims
    gone = {dim % ctx.rank for dim in dims}
    places = tuple([position for position, axis in enumerate(ctx.x.axes) if axis in gone])
    tensor = ctx.put(operation("mean", axes=places, keep=bool(keep)), ctx.x.tensor)
    if keep:
        return Placed(tensor, ctx.x.axes)
    remaining = sorted(set(ctx.x.axes) - gone)
    return Placed(tensor, tuple([remaining.index(axis) for axis in ctx.x.axes if axis not in gone]))


def _transpose(ctx: _Context) -> Placed | None:
    """Change the order of the axes without a node."""
    axes = _moved(ctx)
    return None if axes is None else Placed(ctx.x.tensor, tuple([axes.index(axis) for axis in ctx.x.axes]))


def _moved(ctx: _Context) -> list[int] | None:
    """Return, for each axis of the result, the number of the argument's axis; None if the call has no rule."""
    rank, name = ctx.rank, ctx.call.name
    axes = list(range(rank))
    if name == "permute":
        dims = ctx.argument(0, "dims")
        return [dim % rank for dim in (ctx.rest if isinstance(dims, int) else dims)]
    if name in ("movedim", "moveaxis"):
        source, target = ctx.argument(0, "source"), ctx.argument(1, "destination")
        if not isinstance(source, int) or not isinstance(target, int):
            return None
        moved = axes.pop(source % rank)
        axes.insert(target % rank, moved)
        return axes
    if name in ("T", "t") and rank > 2:
        return None
    if name in ("T", "t", "mT"):
        i, j = (-2, -1) if rank == 2 or name == "mT" else (0, 0)
    else:
        i = ctx.argument(0, "dim0", ctx.named.get("axis0"))
        j = ctx.argument(1, "dim1", ctx.named.get("axis1"))
    axes[i], axes[j] = axes[j], axes[i]
    return axes


def _reshape(ctx: _Context) -> Placed | None:
    """Add a reshape; reshaped axes keep their position in the graph's order if they are consecutive in this order."""
    tracer, number = ctx.tracer, ctx.call.results[0]
    if ctx.x.number is None or tracer.seen.dtypes[ctx.x.number] != tracer.seen.dtypes[number]:
        return None
    before, after = (list(zip(*(s[n] for s in tracer.seen.shapes), strict=True)) for n in (ctx.x.number, number))
    parts = groups(before, after)
    place = {axis: position for position, axis in enumerate(ctx.x.axes)}
    tensor, axes = ctx.x.tensor, tuple(range(ctx.rank))
    if all(successive([place[axis] for axis in old]) for old, _ in parts):
        axes = ctx.x.axes
    else:
        tensor = tracer.ordered(ctx.x, axes, ctx.source)
    new = tuple([x for axis in axes for old, made in parts if old[:1] == [axis] for x in made])
    sizes = tracer.sizes(number, Placed(tensor, axes, ctx.x.number), new)
    if sizes is None:
        return None
    if tracer.shapes[tensor] == tuple([tracer.seen.shape(number)[axis] for axis in new]):
        return Placed(tensor, new)
    return Placed(ctx.put(operation("reshape", shape=sizes), tensor), new)


def _matmul(ctx: _Context) -> Placed | None:
    """Add the matrix product along the last two axes, without broadcasting."""
    other = ctx.tracer.operand(ctx.argument(0, "other", ctx.named.get("mat2")))
    if other is None or len(other.axes) != ctx.rank or ctx.rank < 2 or not _are_alike(ctx.tracer, ctx.x, other):
        return None
    axes = tuple(range(ctx.rank))
    tensors = [ctx.tracer.ordered(x, axes, ctx.source) for x in (ctx.x, other)]
    return Placed(ctx.put(operation("dot"), *tensors), axes)


def _converted(ctx: _Context) -> Placed | None:
    """Return the tensor itself if it already has the dtype of the result; otherwise None."""
    number, types = ctx.x.number, ctx.tracer.seen.dtypes
    if ctx.tracer.is_mixed or number is None or types[number] != types[ctx.call.results[0]]:
        return None
    return ctx.x


def _each(name: str, **attributes: Value) -> Callable[[_Context], Placed]:
    return lambda ctx: ctx.each(name, **attributes)


_Rule = Callable[[_Context], Placed | None]
_POOLS: dict[tuple[str, str], _Rule] = {
    ("MaxPool", "max_pool"): partial(_pool, name="max_pool", dilation=1, ceil_mode=False, return_indices=False),
    ("AvgPool", "avg_pool"): partial(
        _pool, name="average_pool", ceil_mode=False, count_include_pad=True, divisor_override=None
    ),
    ("AdaptiveAvgPool", "adaptive_avg_pool"): partial(_whole, name="average_pool"),
    ("AdaptiveMaxPool", "adaptive_max_pool"): partial(_whole, name="max_pool"),
}
#: The rules, by the class of a module or the name of a function.
_ROWS: dict[type[Any] | str, _Rule] = {
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), _conv),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.GroupNorm), _norm),
    nn.Linear: lambda ctx: ctx.last("dense", features=ctx.module.out_features, bias=ctx.module.bias is not None),
    Attention: _attention,
    StochasticDepth: lambda ctx: ctx.each("stochastic_depth", rate=float(ctx.module.rate)),
    nn.Identity: lambda ctx: ctx.x,
    **dict.fromkeys((nn.ReLU, "relu"), _each("relu")),
    **dict.fromkeys((nn.SiLU, "silu"), _each("silu")),
    **dict.fromkeys((nn.Sigmoid, "sigmoid"), _each("sigmoid")),
    **dict.fromkeys((nn.GELU, "gelu"), _gelu),
    **dict.fromkeys((nn.Softmax, "softmax"), _softmax),
    **dict.fromkeys((nn.Dropout, "dropout"), _dropout),
    **dict.fromkeys((nn.Flatten, nn.Unflatten, "reshape"), _reshape),
    **{getattr(nn, f"{kind}{rank}d"): row for (kind, _), row in _POOLS.items() for rank in (1, 2, 3)},
    **{f"{name}{rank}d": row for (_, name), row in _POOLS.items() for rank in (1, 2, 3)},
    # Functions that act as the identity in a graph.
    **dict.fromkeys(("contiguous", "clone", "alias"), lambda ctx: None if ctx.tracer.is_mixed else ctx.x),
    **dict.fromkeys(("to", "type", "type_as", "float", "double", "half", "bfloat16"), _converted),
    "neg": _each("scalar_multiply", constant=-1.0),
    "mean": _mean,
    "transpose": _transpose,
    "matmul": _matmul,
}
