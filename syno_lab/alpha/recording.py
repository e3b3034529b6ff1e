"""Record a PyTorch network's calls on an example, without memory for weights and in little time.

A copy of the network without storage runs on the meta device, in evaluation mode, with examples of two batch sizes. The
difference of the two runs shows which sizes grow with the batch, so that all recorded calls can run again for any
batch. Python runs as usual: a network may branch on sizes, but not on values of tensors, which the meta device does not
have (torch.fx's symbolic tracing refuses branches of both kinds, and has no shapes).

A call of a function from Python is recorded as a call. Computations without such a call, as under ``vmap``, are
recorded as ATen operators, so that no computation is missed.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload, OpOverloadPacket
from torch.autograd import Function
from torch.fx.node import map_aggregate
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointFunction
from torch.utils.flop_counter import flop_registry

from syno_lab.alpha.twins import has_hooks, on_meta, tensors_of, twin, with_values, wrapped
from syno_lab.blame import blamed
from syno_lab.errors import SpecError, SynoError
from syno_lab.models.efficientnet import StochasticDepth
from syno_lab.models.gpt import Attention
from syno_lab.models.slot import Slot
from syno_lab.models.vit import Positions

Example = Sequence[int] | Tensor | Sequence[Tensor]

#: The batch sizes of the two runs: two different sizes, neither 1, because axes of size 1 broadcast.
BATCHES = (2, 3)
#: The lab's modules that are recorded as one call, as the layers of torch.nn are.
WHOLE = (Attention, Positions, Slot, StochasticDepth)
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_ONE_AT_A_TIME = threading.RLock()

#: The contexts in which the network makes a call: torch.no_grad, torch.inference_mode or torch.autocast, each with its
#: arguments.
Region = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Value:
    """A placeholder in the arguments of a call: the number of an input, or of the result of an earlier call."""

    number: int


@dataclass(frozen=True)
class Weight:
    """A placeholder in the arguments of a call: the name of a parameter or buffer of the network."""

    name: str


@dataclass(frozen=True, eq=False)
class Constant:
    """An argument of a call: a tensor of the network that is neither a parameter nor a buffer."""

    tensor: Tensor


@dataclass(frozen=True)
class Times:
    """A placeholder in the arguments of a call: the batch size times ``factor``."""

    factor: int


@dataclass(frozen=True)
class Here:
    """A placeholder in the arguments of a call: the device of the network's inputs."""


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a module or function.

    Attributes:
        target: the path of the called module, or the called function.
        path: the path of the module that calls a function; for a called module, the path of this module.
        arguments: positional and keyword arguments, with :class:`Value`, :class:`Weight`, … for tensors and sizes.
        results: the numbers of the resulting tensors, in order.
        in_place: whether the call changes its first argument.
        region: the contexts in which the call is made.
        flops: the FLOPs for a batch of one, as torch counts them.
    """

    target: str | Callable[..., Any]
    path: str
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    results: tuple[int, ...]
    in_place: bool = False
    region: Region = ()
    flops: int = 0

    @property
    def name(self) -> str:
        """The function's name, without the underscore of an in-place function; empty for a module."""
        if isinstance(self.target, str):
            return ""
        if isinstance(self.target, torch.jit.ScriptFunction):
            return str(self.target.name)
        target: Any = self.target.overloadpacket if isinstance(self.target, OpOverload) else self.target
        if getattr(target, "__name__", "") in ("apply", "__get__"):  # an autograd function or a property (T)
            target = getattr(target, "__self__", target)
        return str(getattr(target, "__name__", "call")).strip("_")

    def leaves(self, kind: type[Any]) -> list[Any]:
        """Return the arguments of this type, in order."""
        return [leaf for leaf in leaves(self.arguments) if isinstance(leaf, kind)]


@dataclass(frozen=True, eq=False)
class Record:
    """The recorded calls of a network, and its tensors.

    Attributes:
        calls: the calls in the order in which the network made them.
        inputs, outputs: the numbers of the input and output tensors.
        shapes: the shapes of all tensors, for each of the two batch sizes.
        dtypes: the dtypes of all tensors.
        single: whether the network returns a tensor, not a tuple.
    """

    calls: tuple[Call, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    shapes: tuple[tuple[tuple[int, ...], ...], ...]
    dtypes: tuple[torch.dtype, ...]
    single: bool

    def grows(self, number: int) -> tuple[bool, ...]:
        """Return, for each axis of a tensor, whether the axis grows with the batch size."""
        return tuple([small != large for small, large in zip(*(shapes[number] for shapes in self.shapes), strict=True)])

    def shape(self, number: int) -> tuple[int, ...]:
        """Return the shape of a tensor for a batch of one."""
        pairs = zip(*(shapes[number] for shapes in self.shapes), strict=True)
        return tuple([_single(small, large) for small, large in pairs])


def leaves(tree: Any) -> list[Any]:
    """Return all items of nested tuples, lists, dicts and slices, in order."""
    items: list[Any] = []
    map_aggregate(tree, items.append)
    return items


def within(region: Region, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a function in the contexts of a region."""
    if not region:
        return function(*args, **kwargs)
    (context, *how), *rest = region
    with context(*how):
        return within(tuple(rest), function, args, kwargs)


def is_whole(module: nn.Module) -> bool:
    """Return whether a module is recorded as one call: a layer, a TorchScript module, or a module with hooks."""
    if isinstance(module, (*WHOLE, torch.jit.ScriptModule)) or has_hooks(module):
        return True
    is_layer = type(module).__module__.startswith("torch.nn") and not isinstance(module, _CONTAINERS)
    return is_layer and wrapped(module) is None


def record(net: nn.Module, example: Example) -> tuple[Record, tuple[Tensor, ...]]:
    """Return the record of a network, and the example for a batch of one as tensors without values.

    The network stays unchanged; for the example see :func:`.tracing.trace`. Raises SpecError in one line for a network
    that fails on the example or cannot be recorded. The line names the unsupported operation and its position.
    """
    examples = _examples(net, example)
    small, large = (_run(net, [x.new_zeros((batch, *x.shape[1:])) for x in examples]) for batch in BATCHES)
    name = type(net).__name__
    left, right = ([(call.target, call.region) for call in run.calls] for run in (small, large))
    if left != right or small.outputs != large.outputs:
        raise SpecError(f"expected a network that does the same for any batch, found that this {name} does not")
    common, merged = replace(small, shapes=(*small.shapes, *large.shapes)), []
    for call, other in zip(small.calls, large.calls, strict=True):
        try:
            flops = max(0, 2 * call.flops - other.flops)
            merged.append(replace(call, arguments=_merged(call.arguments, other.arguments), flops=flops))
            for number in call.results:
                common.shape(number)
        except (SpecError, ValueError) as error:
            where = ".".join(filter(None, (call.path, call.name)))
            raise SpecError(f"{name}: {where}: {error}") from None
    return replace(common, calls=tuple(merged)), examples


def _examples(net: nn.Module, example: Example) -> tuple[Tensor, ...]:
    if isinstance(example, Tensor):
        example = (example,)
    if all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in example) and example:
        dtype = next((weight.dtype for weight in net.parameters() if weight.is_floating_point()), None)
        return (torch.empty((1, *example), dtype=dtype, device="meta"),)
    tensors = [tensor for tensor in example if isinstance(tensor, Tensor) and tensor.ndim]
    if not tensors or len(tensors) < len(example):
        raise SpecError(f"expected the shape of an input as [C, H, W], or tensors with a batch, found {example!r:.80}")
    return tuple([torch.empty((1, *tensor.shape[1:]), dtype=tensor.dtype, device="meta") for tensor in tensors])


def _single(small: int, large: int) -> int:
    """Return a size for a batch of one, from the sizes for the two batch sizes."""
    if small == large:
        return small
    growth = (large - small) // (BATCHES[1] - BATCHES[0])
    if (small, large) != (BATCHES[0] * growth, BATCHES[1] * growth):
        raise SpecError(f"expected sizes that are multiples of the batch, found {small} and {large} for {BATCHES}")
    return growth


def _merged(small: Any, large: Any) -> Any:
    theirs = iter(leaves(large))

    def both(leaf: Any) -> Any:
        other = next(theirs)
        if isinstance(leaf, Constant) and isinstance(other, Constant):
            if leaf.tensor.shape != other.tensor.shape:
                raise SpecError("expected constants of one size, found one that grows with the batch")
        elif isinstance(leaf, int) and leaf != other:
            return Times(_single(leaf, other))
        elif leaf is not other and not _are_equal(leaf, other):
            raise SpecError(f"expected the same for any batch, found {leaf!r:.40} and {other!r:.40}")
        return leaf

    return map_aggregate(small, both)


def _are_equal(x: Any, y: Any) -> bool:
    try:
        return bool(x == y)
    except (RuntimeError, ValueError, NotImplementedError):  # TorchScript objects cannot be compared
        return False


def _run(net: nn.Module, inputs: list[Tensor]) -> Record:
    name = type(net).__name__
    with blamed(name, SpecError):  # the change to training clears values that the network caches for evaluation
        copied = twin(net, lambda weight: torch.empty_like(weight, device="meta")).train().eval()
    recorder = _Recorder(inputs, copied, next((weight.device for weight in net.parameters()), torch.device("cpu")))
    try:
        with recorder.watching():
            result = copied(*inputs)
        single = isinstance(result, Tensor)
        outputs = [result] if single else result
        if not isinstance(outputs, list | tuple) or {isinstance(tensor, Tensor) for tensor in outputs} != {True}:
            raise SpecError(f"expected a tensor or a tuple of tensors as the result, found {type(result).__name__}")
        references = [recorder.reference(tensor) for tensor in outputs]
        recorder.check_state()
        numbers = tuple([reference.number for reference in references if isinstance(reference, Value)])
        if len(numbers) != len(references):
            raise SpecError("expected a result that is computed from the inputs, found a weight or a constant")
    except SynoError as error:
        raise SpecError(f"{name}: {error}{recorder.place}") from None
    except (Exception, SystemExit) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if "attempted to run this operator with Meta" in reason:
            reason = f"expected functions with a rule for result shapes, found {reason.partition(': ')[0]}"
        elif "meta" in reason.lower():
            reason = f"expected no decision by the values of a tensor, found one ({reason:.80})"
        else:
            shapes = ", ".join(str(list(x.shape)) for x in inputs)
            reason = f"expected a network that takes {shapes}, found: {type(error).__name__}: {reason:.160}"
        raise SpecError(f"{name}: {reason}{_where(error)}{recorder.place}") from error
    values = [(tuple(tensor.shape), tensor.dtype) for tensor in recorder.values]
    sizes, dtypes = tuple([shape for shape, _ in values]), tuple([dtype for _, dtype in values])
    return Record(tuple(recorder.calls), tuple(range(len(inputs))), numbers, (sizes,), dtypes, single)


def _where(error: BaseException) -> str:
    """Return the file and the line of the network's code that failed, as text."""
    ours = Path(torch.__file__).parent, Path(__file__)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not any(Path(frame.filename).is_relative_to(folder) for folder in ours):
            return f", at {Path(frame.filename).name}:{frame.lineno}"
    return ""


def _function_of(target: Any) -> type[Any] | None:
    """Return the class of the user's autograd function that a call applies, or None for another call."""
    owner = getattr(target, "__self__", None)
    return owner if isinstance(owner, type) and issubclass(owner, Function) else None


def _is_own(target: Any) -> bool:
    """Return whether a function comes from the user; such a function may have no rule for result shapes."""
    if isinstance(target, OpOverload | OpOverloadPacket):
        return not str(target).startswith(("aten.", "prim"))
    return isinstance(target, torch.jit.ScriptFunction) or _function_of(target) is not None


def _autocasts() -> dict[str, tuple[bool, torch.dtype]]:
    return {kind: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")}


@contextmanager
def eager() -> Iterator[None]:
    """Run functions that torch.compile has compiled as their original Python code."""
    has_compiled = "torch._dynamo" in sys.modules
    with torch.compiler.set_stance("force_eager") if has_compiled else nullcontext():
        yield


class _Below(TorchDispatchMode):
    """Records the ATen operators outside of recorded calls, and counts the FLOPs of the operators inside a call."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs_given = kwargs or {}
        if not self._recorder.is_inside:
            if func._schema.is_mutable:
                raise SpecError(f"expected no change in place below Python, found {func}")
            with self:
                return self._recorder.call(func, func, args, kwargs_given)
        count = flop_registry.get(func.overloadpacket)
        if count is None:
            with self:  # an operator may be composed of others, as under inference_mode
                result = func.decompose(*args, **kwargs_given)
            return func(*args, **kwargs_given) if result is NotImplemented else result
        result = func(*args, **kwargs_given)
        self._recorder.flops += count(*args, **kwargs_given, out_val=result)
        return result


@dataclass
class _Recorder(TorchFunctionMode):
    """Records the functions, and the modules that count as one call, while the context is active."""

    inputs: list[Tensor]
    twin: nn.Module
    device: torch.device
    calls: list[Call] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)  # all tensors stay alive, so no id is reused
    place: str = ""
    is_inside: bool = False
    flops: int = 0  # the FLOPs of the running call

    def __post_init__(self) -> None:
        super().__init__()
        self._known: dict[int, Value | Weight | Constant] = {}
        self._stale: set[int] = set()
        self._paths: list[str] = []
        self._around = _autocasts()
        self._thread = threading.get_ident()
        self._weights = dict(tensors_of(self.twin))
        self._whole: tuple[str, ...] = ()
        self._attributes = {
            id(value) for module in self.twin.modules() for value in vars(module).values() if isinstance(value, Tensor)
        }
        self._known |= {id(weight): Weight(name) for name, weight in self._weights.items()}
        for x in self.inputs:
            self._add(x)

    def check_state(self) -> None:
        """Raise SpecError if the network has replaced a weight by a new tensor, which no graph can express."""
        for name, tensor in tensors_of(self.twin):
            if self._weights.get(name) is not tensor and not (self._whole and name.startswith(self._whole)):
                raise SpecError(f"expected unchanged weights and buffers, found that the network sets {name}")

    def reference(self, tensor: Tensor) -> Value | Weight | Constant:
        if id(tensor) in self._stale:
            raise SpecError("expected no change in place of a tensor that is used again, found one")
        known = self._known.get(id(tensor))
        if known is None and tensor.device.type == "meta" and id(tensor) not in self._attributes:
            raise SpecError("expected tensors of recorded calls, found a tensor of another call")
        return known or Constant(tensor)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # Under vmap and similar functions, tensors are wrapped, so _Below records the ATen operators instead.
        if self.is_inside or torch._C._functorch.peek_interpreter_stack() is not None:
            args, kwargs = _together(args, kwargs or {})
            return func(*args, **kwargs)
        return self.call(func, func, args, kwargs or {})

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record functions, modules that count as one call, and the paths of modules, in the context."""
        for path, module in self.twin.named_modules():
            if path.startswith(self._whole) and self._whole:
                continue
            if isinstance(module, torch.jit.ScriptModule):
                self._whole += (f"{path}.",)
                if not hasattr(module, "forward"):  # a module without forward
                    continue
            inner, hooked = wrapped(module), has_hooks(module)
            whole = bool(path) and is_whole(module)  # of a network of one layer, record the functions
            module.forward = self._watched(path, inner or module.forward, whole and not hooked)
            call = self._watched(path, module._call_impl, whole) if hooked else module.forward
            module._compiled_call_impl = call
        with _ONE_AT_A_TIME, torch.inference_mode(False), torch.enable_grad(), torch.jit.optimized_execution(False):
            original, script = Function.__dict__["apply"], torch.jit.ScriptFunction.__call__

            def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
                if cls is CheckpointFunction and not self._is_unseen:  # activation checkpoints only save memory
                    return args[0](*args[2:])
                function = original.__get__(None, cls)
                return self.call(function, function, args, kwargs)

            def scripted(function: Any, *args: Any, **kwargs: Any) -> Any:
                return self.call(function, partial(script, function), args, kwargs)

            setattr(Function, "apply", classmethod(apply))  # noqa: B010 - torch has no hook for these classes
            setattr(torch.jit.ScriptFunction, "__call__", scripted)  # noqa: B010
            try:
                with eager(), sdpa_kernel(SDPBackend.MATH), _Below(self), self:
                    yield
            finally:
                setattr(Function, "apply", original)  # noqa: B010
                setattr(torch.jit.ScriptFunction, "__call__", script)  # noqa: B010

    @property
    def _is_unseen(self) -> bool:
        """Whether a call must not be recorded, because a recorded call made it or another thread runs it."""
        return self.is_inside or threading.get_ident() != self._thread

    def _watched(self, path: str, forward: Callable[..., Any], whole: bool) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            if self.is_inside:
                return forward(*args, **kwargs)
            self._paths.append(path)
            self.place = f", in {path}" if path else ""
            result = self.call(path, forward, args, kwargs) if whole else forward(*args, **kwargs)
            self._paths.pop()
            return result

        return watched

    def call(
        self, target: str | Callable[..., Any], function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any
    ) -> Any:
        """Make a call and record it."""
        if self._is_unseen:
            return function(*args, **kwargs)
        self.is_inside = True
        try:
            return self._call(target, function, args, kwargs)
        finally:
            self.is_inside = False

    def _call(self, target: str | Callable[..., Any], function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        tensors = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        versions = [_version(tensor) for tensor in tensors]
        arguments = map_aggregate((args, kwargs), self._described)
        region = self._region(target, tensors)
        full_args, full_kwargs = _together(args, kwargs)
        self.flops = 0
        try:
            result = function(*full_args, **full_kwargs)
        except Exception as error:
            if isinstance(error, SynoError) or not (isinstance(target, str) or _is_own(target)):
                raise
            module = self.twin.get_submodule(target) if isinstance(target, str) else function
            self.flops = 0
            try:
                result = with_values(module, self.device)(*full_args, **full_kwargs)
            except Exception:  # noqa: BLE001 - then missing values are not the reason
                raise error from None
        changed = [tensor for tensor, version in zip(tensors, versions, strict=True) if _version(tensor) != version]
        if changed and (len(changed) > 1 or changed[0] is not tensors[0]):
            raise SpecError("expected a change in place of the first argument alone, found another")
        results_given = changed if changed else [leaf for leaf in leaves(result) if isinstance(leaf, Tensor)]
        if not results_given:
            if getattr(target, "__name__", "") == "register_hook":
                raise SpecError("expected no hook of a tensor, found one")
            return result
        if target is torch.autograd.grad:
            raise SpecError("expected a network that computes no gradients, found torch.autograd.grad")
        if changed:
            self._outdate(changed[0])
        own_class = _function_of(target)
        if own_class is not None and (odd := [leaf for leaf in leaves((args, kwargs)) if callable(leaf)]):
            kind = type(odd[0]).__name__
            raise SpecError(f"expected tensors and numbers for {own_class.__name__}, found a {kind}")
        path = self._paths[-1] if self._paths else ""
        results = tuple(map(self._add, results_given))
        self.calls.append(Call(target, path, arguments, results, bool(changed), region, self.flops))
        return result

    def _region(self, target: Any, tensors: list[Tensor]) -> Region:
        contexts: list[tuple[Any, ...]] = []
        if torch.is_inference_mode_enabled():
            contexts.append((torch.inference_mode,))
        elif not torch.is_grad_enabled() and (
            isinstance(target, str) or any(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors)
        ):
            contexts.append((torch.no_grad,))
        for kind, (on, dtype) in _autocasts().items():
            if (on, dtype) != self._around[kind] and (on or self._around[kind][0]):
                contexts.append((torch.autocast, kind, dtype, on))
        return tuple(contexts)

    def _described(self, leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return self.reference(leaf)
        return Here() if isinstance(leaf, torch.device) and leaf.type == "meta" else leaf

    def _add(self, tensor: Tensor) -> int:
        self.values.append(tensor)
        number = len(self.values) - 1
        # A tensor without elements, such as an empty cache, is a constant, because a graph has no empty tensors.
        empty = None if tensor.numel() else torch.empty(tensor.shape, dtype=tensor.dtype, device=self.device)
        self._known[id(tensor)] = Value(number) if empty is None else Constant(empty)
        return number

    def _outdate(self, tensor: Tensor) -> None:
        """Mark all other tensors that share the storage of a changed tensor, so that their later use is refused."""
        known = self._known.get(id(tensor))
        if not isinstance(known, Value):
            name = known.name if isinstance(known, Weight) else "a constant"
            raise SpecError(f"expected no change in place of a weight or a constant, found one of {name}")
        storage = tensor.untyped_storage()._cdata
        for other in self.values:
            if other is not tensor and other.untyped_storage()._cdata == storage:
                self._stale.add(id(other))


def _together(args: Any, kwargs: Any) -> Any:
    """Return the arguments without values if an argument has no values; otherwise (constants only) unchanged."""
    tensors = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    if any(isinstance(tensor, nn.Parameter) and tensor.requires_grad and not tensor.is_meta for tensor in tensors):
        origin = "a foreign weight in a function or a hook"
        raise SpecError(f"expected weights of the network itself, found {origin}")
    has_none = any(tensor.is_meta for tensor in tensors)
    return map_aggregate((args, kwargs), on_meta) if has_none else (args, kwargs)


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
