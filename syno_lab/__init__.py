"""Syno Lab: a laboratory for neural operator synthesis.

>>> import syno_lab as sl
>>> print(sl.operators.conv2d())
[N, C_in, H, W] -> [N, C_out, H, W] with [C_in, k_1, k_1, C_out], 6 steps
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from syno_lab.version import __version__ as __version__

if TYPE_CHECKING:
    from syno_lab.api import *  # noqa: F403
    from syno_lab.data.datasets import load_dataset as load_dataset
    from syno_lab.experiments.improve import improve as improve
    from syno_lab.models.placeholder import Placeholder as Placeholder
    from syno_lab.tasks import OpenLab

# Names whose rooms need torch or a database: loaded by themselves, so that synthesis does without them.
_ELSEWHERE = {
    "Placeholder": "syno_lab.models.placeholder",
    "improve": "syno_lab.experiments.improve",
    "load_dataset": "syno_lab.data.datasets",
}

#: Modules with public names of their own: two systems, the errors and the known operators.
_MODULES = ("alpha", "canvas", "errors", "operators")


class _Package(ModuleType):
    """``syno_lab`` itself: ``search`` is the function, also once the room of that name is imported."""

    @property
    def search(self) -> Callable[..., OpenLab]:
        from syno_lab.tasks import search

        return search

    @search.setter
    def search(self, room: ModuleType) -> None:
        """What Python does with a package's module; ``from syno_lab.search import …`` needs none of it."""


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    if name in _MODULES:
        return import_module(f"syno_lab.{name}")
    if name.startswith("__"):
        raise AttributeError(f"module 'syno_lab' has no attribute {name!r}")
    api = import_module("syno_lab.api")
    if not hasattr(api, name):
        raise AttributeError(f"module 'syno_lab' has no attribute {name!r}; it has {', '.join(sorted(__dir__()))}")
    return getattr(api, name)


def __dir__() -> list[str]:
    public = [name for name in vars(import_module("syno_lab.api")) if not name.startswith("_")]
    return sorted({*public, *_ELSEWHERE, *_MODULES})


def load_ipython_extension(ipython: Any) -> None:
    """``%load_ext syno_lab``: forwards to the magics, which live with the widgets."""
    from syno_widgets.magics import load_ipython_extension as load

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """``%unload_ext syno_lab``: lets go of the notebook's lab; its jobs go on."""
    from syno_widgets.magics import unload_ipython_extension as unload

    unload(ipython)
