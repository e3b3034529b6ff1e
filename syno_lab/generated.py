"""Compile generated source to classes, each in a module that Python can import while the class exists.

``torch.compile`` imports the module of a function by its name and reads the function's helpers from it. So each source
has its own module name, made from its digest. Equal sources share one class.
"""

from __future__ import annotations

import hashlib
import linecache
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from syno_lab.effort import check_room
from syno_lab.systems import find_system

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

_CLASS = "SynoOperator"
_MADE_BY = "_made_by"
_COMPILED = "_compiled_call_impl"  # nn.Module.compile sets this attribute, which refers to the compiled module


class _Namespace(ModuleType):
    """The imported module: it has the names that its source imports, and finds its other names by a weak reference.

    A strong reference to this module, as in ``torch.compile``, does not keep the class alive.
    """

    kind: Callable[[], Any] = staticmethod(lambda: None)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.kind().__init__.__globals__[name]
        except (AttributeError, KeyError):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None


_lock = threading.RLock()  # this thread may create a class while the garbage collector frees another
_namespaces: weakref.WeakValueDictionary[str, _Namespace] = weakref.WeakValueDictionary()


def class_of(source: str) -> type[nn.Module]:
    """Compile the class ``SynoOperator`` of a generated source; equal sources give the same class.

    In ``to(memory_format=…)``, weights with an unsuitable number of axes keep their memory format.
    """
    name = f"{__name__}.of_{hashlib.sha256(source.encode()).hexdigest()[:32]}"
    with _lock:
        namespace = _namespaces.setdefault(name, _Namespace(name))
        if (known := namespace.kind()) is not None:
            return known
        file = f"<{name}>"
        names: dict[str, Any] = {"__name__": name, "__file__": file}
        # The lab generates the source from numbers, equations and its own names. The source has no text from a file.
        exec(compile(source, file, "exec", dont_inherit=True), names)  # noqa: S102
        kind: type[nn.Module] = names[_CLASS]
        kind._apply, kind.__reduce__ = _apply, _reduced  # type: ignore[method-assign, assignment]
        namespace.kind = weakref.ref(kind)
        vars(namespace).update((n, v) for n, v in names.items() if getattr(v, "__module__", None) != name)
        sys.modules[name] = namespace
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        weakref.finalize(kind, _forget, name).atexit = False
        return kind


def _forget(name: str) -> None:
    with _lock:
        namespace = _namespaces.get(name)
        if namespace is None or namespace.kind() is None:
            sys.modules.pop(name, None)
            linecache.cache.pop(f"<{name}>", None)


def module_of(
    make: Callable[..., nn.Module],
    source: str,
    operator: Any,
    binding: dict[str, int],
    *settings: Any,
    is_drawn: bool = True,
    is_compiled: bool = False,
) -> nn.Module:
    """Create a module of the class of ``source``. Pickle and copy rebuild the module by calling ``make``.

    Args:
        make: the calling function. Pickle and copy call this function with the operator, ``binding``, ``settings`` and
            the options below; then they restore the other attributes.
        source: a generated source that defines ``SynoOperator``.
        operator: an operator of a known system; it becomes an attribute of the module, as ``binding`` does.
        binding: a complete binding.
        settings: further arguments of ``make``.
        is_drawn: whether to draw random weights.
        is_compiled: whether the module runs through ``torch.compile``.

    Raises TooLargeError if this machine has too little memory for the weights.
    """
    import torch
    from torch import nn

    if is_drawn and torch.get_default_device().type == "cpu":
        check_room("weights", operator.params(binding) * torch.get_default_dtype().itemsize)
    kind = class_of(source)
    module = kind() if is_drawn else kind.__new__(kind)
    if not is_drawn:
        nn.Module.__init__(module)
    # Set plain attributes without nn.Module's own __setattr__.
    vars(module).update({"operator": operator, "binding": dict(binding), _MADE_BY: (make, settings)})
    if is_compiled:
        module.compile()
    return module


def fill(module: nn.Module, weights: Iterable[np.ndarray]) -> nn.Module:
    """Copy ``weights`` into an operator's module in their order; return the module."""
    import torch

    with torch.no_grad():
        for number, weight in enumerate(weights, start=1):
            getattr(module, f"weight_{number}").copy_(torch.from_numpy(weight))
    return module


def _reduced(module: nn.Module) -> tuple[Any, ...]:
    state = dict(vars(module))
    operator, binding, (make, settings) = (state.pop(name) for name in ("operator", "binding", _MADE_BY))
    is_compiled = state.pop(_COMPILED, None) is not None
    return _rebuilt, (make, operator.format, operator.to_json(), dict(binding), settings, is_compiled), state


def _rebuilt(make: Callable[..., nn.Module], system: str, text: str, *arguments: Any) -> nn.Module:
    """Create a module without weights; pickle and copy restore them afterwards."""
    binding, settings, is_compiled = arguments
    return make(find_system(system).read(text), binding, *settings, is_drawn=False, is_compiled=is_compiled)


def _apply(module: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    """Extend ``nn.Module._apply`` to weights of any number of axes: ``fn`` may only accept four or five axes."""
    from torch import nn

    def applied(tensor: Tensor) -> Tensor:
        try:
            return fn(tensor)
        except RuntimeError:
            if tensor.dim() not in (4, 5):
                raise
            return fn(tensor[None, None])[0, 0]  # nn.Module.to ignores the memory format for six and more axes

    return nn.Module._apply(module, applied, recurse)
