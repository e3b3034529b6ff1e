"""Methods that later rooms give to a value: bound in :mod:`syno_lab.api`, which is loaded when one is asked for.

They are declared here for the type checker and for readers. Their results are values of later rooms, which nothing here
may import, so they are declared as ``Any``; the comment beside each names the class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from torch import nn

    from syno_lab.common.wants import Wish
    from syno_lab.ir.spec import Binding

_loaders: list[Callable[[], object]] = []


def load_by(load: Callable[[], object]) -> None:
    """Say how the methods are bound; ``syno_lab/__init__.py`` does."""
    _loaders[:] = [load]


class LateMethods:
    """A value whose methods are there however its own module came to be imported.

    ``syno_lab`` loads its ``api`` with the first public name that is asked of it; ``from syno_lab.operators import
    conv2d`` asks for none.
    """

    if not TYPE_CHECKING:  # it would hide from mypy which attributes there are

        def __getattr__(self, name: str) -> Any:
            # Only for names that are not there. Dunder names are asked for by copy, pickle and the like.
            if not name.startswith("__"):
                for load in _loaders:
                    load()
            return object.__getattribute__(self, name)


class StateMethods(LateMethods):
    """Of :class:`syno_lab.State`."""

    if TYPE_CHECKING:

        @property
        def distance(self) -> int | None: ...
        def candidates(self) -> list[Any]: ...  # synthesis.candidates.Candidate
        def explain_distance(self) -> Any: ...  # synthesis.distance.Explanation
        @property
        def property_distance(self) -> int | None: ...
        def explain_property_distance(self) -> Any: ...  # synthesis.property_distance.PropertyExplanation
        def dot(self, **options: Any) -> str: ...
        def svg(self, **options: Any) -> str: ...


class OperatorMethods(LateMethods):
    """Of :class:`syno_lab.Operator`."""

    if TYPE_CHECKING:

        def flops(self, binding: Binding | None = None) -> int: ...
        def memory(self, binding: Binding | None = None) -> int: ...
        def fingerprint(self, binding: Binding | None = None) -> str: ...
        def loops(self, binding: Binding | None = None, **options: Any) -> str: ...
        def equation(self, binding: Binding | None = None, **options: Any) -> Any: ...  # codegen.equation.Equation
        def coordinates(self, binding: Binding | None = None, *, wrt: str | None = None) -> Any: ...  # Coordinates
        def receptive_field(self, index: Any = None, binding: Binding | None = None) -> Any: ...  # ReceptiveField
        def mixing(self, binding: Binding | None = None) -> Any: ...  # codegen.mixing.Mixing
        def meets(self, wants: Iterable[Wish] | None = None) -> bool: ...
        def reference(self, x: Any, *weights: Any, binding: Binding | None = None) -> np.ndarray[Any, Any]: ...
        def to_torch(
            self,
            binding: Binding | None = None,
            *,
            scale: float = 1.0,
            compile: bool = False,  # noqa: A002 - the name that torch gives it
            recompute: bool | None = None,
            order: Literal["best", "naive", "measured"] = "best",
        ) -> nn.Module: ...
        def to_torch_source(
            self,
            binding: Binding | None = None,
            *,
            scale: float = 1.0,
            recompute: bool | None = None,
            order: Literal["best", "naive", "measured"] = "best",
        ) -> str: ...
        def to_tvm(self, binding: Binding | None = None, dtype: str = "float32", **options: Any) -> Any: ...
        def save_library(self, path: Any, binding: Binding | None = None, **options: Any) -> Any: ...
        def export(self, path: str | Path, binding: Binding | None = None, **options: Any) -> Any: ...  # Exported
        def load_weights(
            self, path: str | Path, binding: Binding | None = None, *, scale: float = 1.0
        ) -> nn.Module: ...
        def dot(self, **options: Any) -> str: ...
        def svg(self, **options: Any) -> str: ...
        def construct_kernel_packs(self) -> list[Any]: ...  # codegen.kernel_pack.KernelPack


class SamplerMethods(LateMethods):
    """Of :class:`syno_lab.Sampler`."""

    if TYPE_CHECKING:

        def replace(self, net: nn.Module, kernel_packs: Sequence[Any]) -> nn.Module: ...
        def _mappings_of(self, net: nn.Module) -> list[Mapping[str, int]]: ...
