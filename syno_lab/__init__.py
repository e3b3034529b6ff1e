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

# Lazy names need torch or a database. Their modules are imported on first use, so that synthesis needs no such module.
_ELSEWHERE = {
    "Placeholder": "syno_lab.models.placeholder",
    "improve": "syno_lab.experiments.improve",
    "load_dataset": "syno_lab.data.datasets",
}

#: Modules whose names are public: two systems, the errors and the known operators.
_MODULES = ("alpha", "canvas", "errors", "operators")


class _Package(ModuleType):
    """Let the name ``syno_lab.search`` stay the function, even after the package ``syno_lab.search`` is imported."""

    @property
    def search(self) -> Callable[..., OpenLab]:
        from syno_lab.tasks import search

        return search

    @search.setter
    def search(self, package: ModuleType) -> None:
        """Ignore the assignment: importing ``syno_lab.search`` would replace the function by the module."""


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
    """Implement ``%load_ext syno_lab``: register the magics of :mod:`syno_widgets`."""
    from syno_widgets.magics import load_ipython_extension as load

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Implement ``%unload_ext syno_lab``: close the notebook's lab. Its jobs continue."""
    from syno_widgets.magics import unload_ipython_extension as unload

    unload(ipython)
