"""Classes of generated source, each in a module of its own that Python can import for as long as the class lives.

``torch.compile`` imports the module of a function by its name and reads the function's helpers there. So each text has
its own name, made from its digest, and each text has one class: modules of the same text share it.
"""

from __future__ import annotations

import hashlib
import linecache
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from syno_lab.effort import check_room
from syno_lab.systems import find_system

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

_CLASS = "SynoOperator"
_MADE_BY = "_made_by"
_COMPILED = "_compiled_call_impl"  # what nn.Module.compile leaves, which holds the module it was made for


class _Namespace(ModuleType):
    """What an import gives: what the text imports, and through a weak reference to the class what the text defines.

    Who keeps it, as ``torch.compile`` does, keeps no class.
    """

    kind: Callable[[], Any] = staticmethod(lambda: None)

    def holds(self, kind: type[nn.Module], names: Mapping[str, Any]) -> None:
        """Stand for a class and for the names of its text from now on."""
        self.kind = weakref.ref(kind)
        self.__dict__.update((n, v) for n, v in names.items() if getattr(v, "__module__", None) != self.__name__)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.kind().__init__.__globals__[name]
        except (AttributeError, KeyError):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None


_lock = threading.RLock()  # a class may be freed while this thread makes another
_namespaces: weakref.WeakValueDictionary[str, _Namespace] = weakref.WeakValueDictionary()


def class_of(source: str) -> type[nn.Module]:
    """The class ``SynoOperator`` that a text of our own defines; the same one for the same text.

    Weights that a memory format is not for keep theirs in ``to(memory_format=…)``.
    """
    name = f"{__name__}.of_{hashlib.sha256(source.encode()).hexdigest()[:32]}"
    with _lock:
        namespace = _namespaces.setdefault(name, _Namespace(name))
        if (known := namespace.kind()) is not None:
            return known
        file = f"<{name}>"
        names: dict[str, Any] = {"__name__": name, "__file__": file}
        # The source is our own: it holds numbers, equations of letters and names made here, never text from a file.
        exec(compile(source, file, "exec", dont_inherit=True), names)  # noqa: S102
        kind: type[nn.Module] = names[_CLASS]
        kind._apply, kind.__reduce__ = _apply, _reduced  # type: ignore[method-assign, assignment]
        namespace.holds(kind, names)
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
    """A module of the class of ``source``, which is pickled and copied by way of what it was made from.

    Args:
        make: the caller, a function of a module, which is called by pickle and copy with the operator as its JSON has
            it, ``binding``, ``settings`` and the options below; everything else is put in afterwards.
        source: a text of our own that defines ``SynoOperator``.
        operator: of a system that is known; an attribute of the module, as ``binding`` is.
        binding: a complete one.
        settings: further arguments of ``make``.
        is_drawn: draw weights for it.
        is_compiled: run it through ``torch.compile``.

    Raises TooLargeError where this machine has no room for the weights.
    """
    import torch
    from torch import nn

    if is_drawn and torch.get_default_device().type == "cpu":
        check_room("weights", operator.params(binding) * torch.get_default_dtype().itemsize)
    kind = class_of(source)
    module = kind() if is_drawn else kind.__new__(kind)
    if not is_drawn:
        nn.Module.__init__(module)
    # Plain attributes, past nn.Module's own bookkeeping.
    vars(module).update({"operator": operator, "binding": dict(binding), _MADE_BY: (make, settings)})
    if is_compiled:
        module.compile()
    return module


def fill(module: nn.Module, weights: Iterable[np.ndarray]) -> nn.Module:
    """Give the module of an operator these weights, in their order; the module."""
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


def _rebuilt(make: Callable[..., nn.Module], system: str, text: str, *given: Any) -> nn.Module:
    """A module without its weights, which pickle and copy put in afterwards; no weights are drawn for it."""
    binding, settings, is_compiled = given
    return make(find_system(system).read(text), binding, *settings, is_drawn=False, is_compiled=is_compiled)


def _apply(module: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    """``nn.Module._apply`` for weights of any number of axes: ``fn`` may be for those of four or of five alone."""
    from torch import nn

    def applied(tensor: Tensor) -> Tensor:
        try:
            return fn(tensor)
        except RuntimeError:
            if tensor.dim() not in (4, 5):
                raise
            return fn(tensor[None, None])[0, 0]  # nn.Module.to leaves the format of six axes and more alone

    return nn.Module._apply(module, applied, recurse)
