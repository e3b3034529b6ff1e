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
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from syno_lab.effort import check_room

if TYPE_CHECKING:
    from torch import Tensor, nn

_CLASS = "SynoOperator"
_REMADE = "_remade_by"
_COMPILED = "_compiled_call_impl"  # what nn.Module.compile leaves, which holds the module it was made for


class _Namespace(ModuleType):
    """What an import gives: what the text imports, and through a weak reference to the class what the text defines.

    Who keeps it, as ``torch.compile`` does, keeps no class.
    """

    def holds(self, kind: type) -> None:
        """Stand for the names of a class's text from now on."""
        known = kind.__init__.__globals__  # type: ignore[misc]
        self.__dict__["_kind"] = weakref.ref(kind)
        self.__dict__.update((n, v) for n, v in known.items() if getattr(v, "__module__", None) != self.__name__)

    def __getattr__(self, name: str) -> Any:
        kind = self.__dict__["_kind"]()
        known = {} if kind is None else kind.__init__.__globals__
        if name not in known:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return known[name]


_lock = threading.RLock()  # a class may be freed while this thread makes another
_namespaces: weakref.WeakValueDictionary[str, _Namespace] = weakref.WeakValueDictionary()


def class_of(source: str) -> type[nn.Module]:
    """The class ``SynoOperator`` that a text of our own defines; the same one for the same text.

    Weights that a memory format is not for keep theirs in ``to(memory_format=…)``.
    """
    name = f"{__name__}.of_{hashlib.sha256(source.encode()).hexdigest()[:32]}"
    if (known := _known(name)) is not None:
        return known
    file = f"<{name}>"
    names: dict[str, Any] = {"__name__": name, "__file__": file}
    # The source is our own: it holds numbers, equations of letters and names made here, never text from a file.
    exec(compile(source, file, "exec", dont_inherit=True), names)  # noqa: S102
    kind = names[_CLASS]
    kind._apply = _apply
    with _lock:
        if (known := _known(name)) is not None:  # made by another thread meanwhile
            return known
        namespace = _namespaces.get(name) or _Namespace(name)
        namespace.holds(kind)
        sys.modules[name] = _namespaces[name] = namespace
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    weakref.finalize(kind, _forget, name).atexit = False
    return kind


def _known(name: str) -> Any:
    namespace = _namespaces.get(name)
    return None if namespace is None else namespace.__dict__["_kind"]()


def _forget(name: str) -> None:
    with _lock:
        if _known(name) is None:
            sys.modules.pop(name, None)
            linecache.cache.pop(f"<{name}>", None)


def module_of(
    source: str,
    rebuild: Callable[..., nn.Module],
    arguments: Callable[[], tuple[Any, ...]],
    facts: Mapping[str, Any],
    params: int,
    *,
    is_drawn: bool = True,
    is_compiled: bool = False,
) -> nn.Module:
    """A module of the class of ``source``, which is pickled and copied by way of what it was made from.

    Args:
        source: a text of our own that defines ``SynoOperator``.
        rebuild: a function of a module, which gives the module without its weights. Pickle and copy call it with
            ``arguments()`` and whether the module is compiled, and put everything else in afterwards.
        arguments: see ``rebuild``.
        facts: attributes that ``rebuild`` gives to the module itself.
        params: elements of its weights.
        is_drawn: draw weights for it.
        is_compiled: run it through ``torch.compile``.

    Raises:
        TooLargeError: where this machine has no room for the weights.
    """
    import torch
    from torch import nn

    if is_drawn and torch.get_default_device().type == "cpu":
        check_room("weights", params * torch.get_default_dtype().itemsize)
    kind = class_of(source)
    kind.__reduce__ = _reduced  # type: ignore[method-assign, assignment]
    module = kind() if is_drawn else kind.__new__(kind)
    if not is_drawn:
        nn.Module.__init__(module)
    for name, value in {**facts, _REMADE: (rebuild, arguments, (*facts, _REMADE, _COMPILED))}.items():
        object.__setattr__(module, name, value)  # plain attributes, past nn.Module's own bookkeeping
    if is_compiled:
        module.compile()
    return module


def _reduced(module: nn.Module) -> tuple[Any, ...]:
    rebuild, arguments, no_state = module.__dict__[_REMADE]
    state = {name: value for name, value in module.__dict__.items() if name not in no_state}
    return rebuild, (*arguments(), module.__dict__.get(_COMPILED) is not None), state


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
