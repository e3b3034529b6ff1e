"""What a network of PyTorch does with an example, recorded as calls of modules and functions, without weights or time.

A copy of the network without storage runs on the meta device, in the mode of inference, with examples of two batch
sizes. Sizes that grow with the batch are told from others by comparing both runs, so that all recorded calls can be
made again for any batch. Python runs as it always does: decisions by sizes are made, and those by the values of tensors
cannot be, because on the meta device there are none. (torch.fx's symbolic tracing refuses both, and it does not know
shapes.)
"""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.node import map_aggregate
from torch.overrides import TorchFunctionMode

from syno_lab.errors import SpecError, SynoError
from syno_lab.models.efficientnet import StochasticDepth
from syno_lab.models.gpt import Attention
from syno_lab.models.slot import Slot
from syno_lab.models.vit import Positions

Example = Sequence[int] | Tensor | Sequence[Tensor]

#: The batches of both runs: different, and neither of them 1, which broadcasts.
BATCHES = (2, 3)
#: Modules that are one call, as all of torch.nn are.
WHOLE = (Attention, Positions, Slot, StochasticDepth)
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


@dataclass(frozen=True)
class Value:
    """In the arguments of a call: a tensor that an earlier call gave, or an input, by its number."""

    number: int


@dataclass(frozen=True)
class Weight:
    """In the arguments of a call: a parameter or buffer of the network, by its name."""

    name: str


@dataclass(frozen=True, eq=False)
class Constant:
    """In the arguments of a call: a tensor that the network has and that is neither."""

    tensor: Tensor


@dataclass(frozen=True)
class Times:
    """In the arguments of a call: so many times the batch."""

    factor: int


@dataclass(frozen=True)
class Here:
    """In the arguments of a call: the device of the inputs."""


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a module or function.

    Attributes:
        target: the path of a module, or a function.
        path: of the module that makes the call; of the module itself where it is one.
        arguments: positional and by keyword, with :class:`Value`, :class:`Weight`, … for what is no constant.
        results: the numbers of the tensors that it gives, in order.
        in_place: whether it changes its first argument.
    """

    target: str | Callable[..., Any]
    path: str
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    results: tuple[int, ...]
    in_place: bool = False

    @property
    def name(self) -> str:
        """The function's, without what says that it works in place; empty for a module."""
        if isinstance(self.target, str):
            return ""
        name = str(getattr(self.target, "__name__", "call"))
        if name == "__get__":  # of a property of tensors, such as T
            name = str(getattr(getattr(self.target, "__self__", None), "__name__", name))
        return name.strip("_")

    def leaves(self, kind: type[Any]) -> list[Any]:
        """The arguments of one kind, in order."""
        return [leaf for leaf in leaves(self.arguments) if isinstance(leaf, kind)]


@dataclass(frozen=True, eq=False)
class Record:
    """The calls that lead from inputs to outputs.

    Attributes:
        calls: in order.
        inputs, outputs: numbers of tensors.
        shapes: of all tensors, for both batches.
        dtypes: of all tensors.
        single: whether the network gives a tensor rather than a tuple.
    """

    calls: tuple[Call, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    shapes: tuple[tuple[tuple[int, ...], ...], ...]
    dtypes: tuple[torch.dtype, ...]
    single: bool

    def grows(self, number: int) -> tuple[bool, ...]:
        """For each axis of a tensor whether its size grows with the batch."""
        return tuple([one != two for one, two in zip(*(shapes[number] for shapes in self.shapes), strict=True)])

    def shape(self, number: int) -> tuple[int, ...]:
        """The shape of a tensor for a batch of one."""
        pairs = zip(*(shapes[number] for shapes in self.shapes), strict=True)
        return tuple([_single(one, two) for one, two in pairs])


def leaves(tree: Any) -> list[Any]:
    """All that is neither tuple, list, dict nor slice, in order."""
    found: list[Any] = []
    map_aggregate(tree, found.append)
    return found


def mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The same with each leaf changed."""
    return map_aggregate(tree, change)


def is_whole(module: nn.Module) -> bool:
    """Whether its inside is not looked at."""
    if isinstance(module, WHOLE):
        return True
    return type(module).__module__.startswith("torch.nn") and not isinstance(module, _CONTAINERS)


def record(net: nn.Module, example: Example) -> tuple[Record, tuple[Tensor, ...]]:
    """The calls that a network makes, and the example as tensors without values, for a batch of one.

    Args:
        net: is not changed.
        example: the shape of an input without the batch, [C, H, W] for images; or a tensor, or several, whose first
            axis is the batch. Only shapes and types count.

    Raises:
        SpecError: in one line, for a network that refuses the example, and one that cannot be recorded: what it does
            that cannot be, and where.
    """
    examples = _examples(net, example)
    one, two = (_run(net, [each.new_zeros((batch, *each.shape[1:])) for each in examples]) for batch in BATCHES)
    name = type(net).__name__
    if [call.target for call in one.calls] != [call.target for call in two.calls] or one.outputs != two.outputs:
        raise SpecError(f"expected a network that does the same for any batch, found that this {name} does not")
    merged = []
    for left, right in zip(one.calls, two.calls, strict=True):
        try:
            merged.append(replace(left, arguments=_merged(left.arguments, right.arguments)))
            for number in left.results:
                for pair in zip(one.shapes[0][number], two.shapes[0][number], strict=True):
                    _single(*pair)
        except (SpecError, ValueError) as error:
            where = ".".join(filter(None, (left.path, left.name)))
            raise SpecError(f"{name}: {where}: {error}") from None
    return replace(one, calls=tuple(merged), shapes=(*one.shapes, *two.shapes)), examples


def _examples(net: nn.Module, example: Example) -> tuple[Tensor, ...]:
    if isinstance(example, Tensor):
        example = (example,)
    if all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in example) and example:
        dtype = next((weight.dtype for weight in net.parameters() if weight.is_floating_point()), None)
        return (torch.empty((1, *example), dtype=dtype, device="meta"),)
    tensors = [each for each in example if isinstance(each, Tensor) and each.ndim]
    if not tensors or len(tensors) < len(example):
        raise SpecError(f"expected the shape of an input as [C, H, W], or tensors with a batch, found {example!r:.80}")
    return tuple([torch.empty((1, *each.shape[1:]), dtype=each.dtype, device="meta") for each in tensors])


def _single(one: int, two: int) -> int:
    """The size for a batch of one."""
    if one == two:
        return one
    growth = (two - one) // (BATCHES[1] - BATCHES[0])
    if (one, two) != (BATCHES[0] * growth, BATCHES[1] * growth):
        raise SpecError(f"expected sizes that are multiples of the batch, found {one} and {two} for {BATCHES}")
    return growth


def _merged(one: Any, two: Any) -> Any:
    others = iter(leaves(two))

    def both(leaf: Any) -> Any:
        other = next(others)
        if isinstance(leaf, Constant) and isinstance(other, Constant):
            if leaf.tensor.shape != other.tensor.shape:
                raise SpecError("expected constants of one size, found one that grows with the batch")
        elif isinstance(leaf, int) and leaf != other:
            return Times(_single(leaf, other))
        elif leaf is not other and leaf != other:
            raise SpecError(f"expected the same for any batch, found {leaf!r:.40} and {other!r:.40}")
        return leaf

    return mapped(one, both)


def _run(net: nn.Module, inputs: list[Tensor]) -> Record:
    weights: dict[int, Any] = {}
    for weight in (*net.parameters(), *net.buffers()):
        empty = torch.empty_like(weight, device="meta")
        is_weight = isinstance(weight, nn.Parameter)
        weights[id(weight)] = nn.Parameter(empty, weight.requires_grad) if is_weight else empty
    name = type(net).__name__
    recorder = _Recorder(inputs)
    try:
        twin = copy.deepcopy(net, weights).eval()  # the memo has the weights: none is copied
        with torch.no_grad(), recorder.watching(twin), recorder:
            given = twin(*inputs)
        single = isinstance(given, Tensor)
        outputs = [given] if single else given
        if not isinstance(outputs, list | tuple) or {isinstance(each, Tensor) for each in outputs} != {True}:
            raise SpecError(f"expected a tensor or a tuple of tensors as the result, found {type(given).__name__}")
        found = [recorder.reference(each) for each in outputs]
        numbers = tuple([each.number for each in found if isinstance(each, Value)])
        if len(numbers) != len(found):
            raise SpecError("expected a result that is computed from the inputs, found a weight or a constant")
    except SynoError as error:
        raise SpecError(f"{name}: {error}{recorder.place}") from None
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError, NotImplementedError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if "meta" in reason.lower():
            reason = f"expected no decision by the values of a tensor, found one ({reason:.80})"
        else:
            shapes = ", ".join(str(list(each.shape)) for each in inputs)
            reason = f"expected a network that takes {shapes}, found: {reason:.160}"
        raise SpecError(f"{name}: {reason}{_where(error)}{recorder.place}") from error
    return recorder.record(numbers, single)


def _where(error: BaseException) -> str:
    """File and line of the network's own code that failed."""
    ours = Path(torch.__file__).parent, Path(__file__)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(Path(frame.filename).is_relative_to(each) for each in ours)
    ]
    return f", at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


@dataclass
class _Recorder(TorchFunctionMode):
    """Records the functions and whole modules that are called while it is entered."""

    inputs: list[Tensor]
    calls: list[Call] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)  # all are kept, so that no identity is used twice
    place: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self._known: dict[int, Value | Weight] = {}
        self._stale: set[int] = set()
        self._paths: list[str] = []
        self._is_inside = False
        for each in self.inputs:
            self._add(each)

    def record(self, outputs: tuple[int, ...], single: bool) -> Record:
        shapes = tuple([tuple(each.shape) for each in self.values])
        dtypes = tuple([each.dtype for each in self.values])
        return Record(tuple(self.calls), tuple(range(len(self.inputs))), outputs, (shapes,), dtypes, single)

    def reference(self, tensor: Tensor) -> Value | Weight | Constant:
        if id(tensor) in self._stale:
            raise SpecError("expected no change in place of a tensor that is used again, found one")
        return self._known.get(id(tensor)) or Constant(tensor)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self._is_inside:
            return func(*mapped(args, _on_meta), **mapped(kwargs or {}, _on_meta))
        return self._call(func, func, args, kwargs or {})

    @contextmanager
    def watching(self, net: nn.Module) -> Iterator[None]:
        """Record the paths of modules, and modules that are whole as one call."""
        for name, weight in (*net.named_parameters(), *net.named_buffers()):
            self._known[id(weight)] = Weight(name)
        for path, module in net.named_modules():
            module.forward = self._watched(module, path)
        yield

    def _watched(self, module: nn.Module, path: str) -> Callable[..., Any]:
        forward = module.forward

        def watched(*args: Any, **kwargs: Any) -> Any:
            if self._is_inside:
                return forward(*args, **kwargs)
            self._paths.append(path)
            self.place = f", in {path}" if path else ""
            if not (path and is_whole(module)):  # of a network that is one layer the inside is looked at
                result = forward(*args, **kwargs)
            else:
                self._is_inside = True
                result = self._call(path, forward, args, kwargs)
                self._is_inside = False
            self._paths.pop()
            return result

        return watched

    def _call(
        self, target: str | Callable[..., Any], function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any
    ) -> Any:
        tensors = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        versions = [tensor._version for tensor in tensors]
        arguments = mapped((args, kwargs), self._described)
        result = function(*mapped(args, _on_meta), **mapped(kwargs, _on_meta))
        changed = [tensor for tensor, version in zip(tensors, versions, strict=True) if tensor._version != version]
        if changed and (len(changed) > 1 or changed[0] is not tensors[0]):
            raise SpecError("expected a change in place of the first argument alone, found another")
        given = changed if changed else [leaf for leaf in leaves(result) if isinstance(leaf, Tensor)]
        if not given:
            return result
        if changed:
            self._outdate(changed[0])
        path = self._paths[-1] if self._paths else ""
        self.calls.append(Call(target, path, arguments, tuple(map(self._add, given)), bool(changed)))
        return result

    def _described(self, leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return self.reference(leaf)
        return Here() if leaf == torch.device("meta") else leaf

    def _add(self, tensor: Tensor) -> int:
        self.values.append(tensor)
        self._known[id(tensor)] = Value(len(self.values) - 1)
        return len(self.values) - 1

    def _outdate(self, tensor: Tensor) -> None:
        """Other tensors that share what was changed must not be used any more."""
        if not isinstance(self._known.get(id(tensor)), Value):
            raise SpecError("expected no change in place of a weight or a constant, found one")
        storage = tensor.untyped_storage()._cdata
        for other in self.values:
            if other is not tensor and other.untyped_storage()._cdata == storage:
                self._stale.add(id(other))


def _on_meta(leaf: Any) -> Any:
    return leaf.to("meta") if isinstance(leaf, Tensor) and leaf.device.type != "meta" else leaf
