"""The public names, and the one place where methods that need a lower room are bound to the values above it.

``syno_lab`` re-exports these lazily. Each binding loads its room on first use, so building and stepping through pGraphs
needs neither torch nor TVM.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from syno_lab import operators
from syno_lab.common.size import Size
from syno_lab.errors import SynoError
from syno_lab.ir.build import Build
from syno_lab.ir.coordinate import Coordinate
from syno_lab.ir.operator import Operator
from syno_lab.ir.primitives import PRIMITIVES, add_primitive, own_primitives, remove_primitive
from syno_lab.ir.spec import Limits, Spec
from syno_lab.ir.state import State, Step, Weight
from syno_lab.synthesis.candidates import Candidate, candidates
from syno_lab.synthesis.distance import distance, explain_distance
from syno_lab.synthesis.property_distance import explain_property_distance, property_distance
from syno_lab.synthesis.rules import RULES, Rule
from syno_lab.synthesis.sampler import Sampler
from syno_lab.synthesis.session import Session


def _on_use(room: str, name: str) -> Callable[..., Any]:
    """A method that imports its room when it is first called."""

    def method(self: Any, *args: Any, **options: Any) -> Any:
        return getattr(import_module(room), name)(self, *args, **options)

    method.__name__ = name
    method.__doc__ = f"See :func:`{room}.{name}`."
    return method


def _without_self(room: str, name: str) -> Callable[..., Any]:
    """As :func:`_on_use`, for a function that needs nothing of the value it is bound to."""

    def method(_: Any, *args: Any, **options: Any) -> Any:
        return getattr(import_module(room), name)(*args, **options)

    method.__name__ = name
    method.__doc__ = f"See :func:`{room}.{name}`."
    return method


def _bind(value: type, **methods: Any) -> None:
    for name, method in methods.items():
        setattr(value, name, method)


_bind(
    State,
    candidates=candidates,
    distance=property(distance, doc="The shape distance to the input; see :mod:`syno_lab.synthesis.distance`."),
    explain_distance=explain_distance,
    property_distance=property(
        property_distance,
        doc="At least so many steps to what is wished; see :mod:`syno_lab.synthesis.property_distance`.",
    ),
    explain_property_distance=explain_property_distance,
    dot=_on_use("syno_lab.codegen.drawing", "dot"),
    svg=_on_use("syno_lab.codegen.drawing", "svg"),
    figure=_on_use("syno_lab.codegen.figure_operator", "figure"),
    _repr_svg_=_on_use("syno_lab.codegen.drawing", "svg"),
)
_bind(
    Operator,
    flops=_on_use("syno_lab.ir.costs", "flops"),
    memory=_on_use("syno_lab.ir.costs", "memory"),
    fingerprint=_on_use("syno_lab.ir.costs", "fingerprint"),
    loops=_on_use("syno_lab.codegen.loops", "loops"),
    equation=_on_use("syno_lab.codegen.equation", "equation"),
    coordinates=_on_use("syno_lab.codegen.coordinates", "coordinates"),
    receptive_field=_on_use("syno_lab.codegen.receptive_field", "receptive_field"),
    mixing=_on_use("syno_lab.codegen.mixing", "mixing"),
    meets=_on_use("syno_lab.codegen.mixing", "meets"),
    reference=_on_use("syno_lab.codegen.reference", "reference"),
    to_torch=_on_use("syno_lab.codegen.torch_module", "to_torch"),
    to_torch_source=_on_use("syno_lab.codegen.torch_module", "to_torch_source"),
    to_tvm=_on_use("syno_lab.codegen.tvm_target", "to_tvm"),
    save_library=_on_use("syno_lab.codegen.library", "save_library"),
    export=_on_use("syno_lab.codegen.export", "export"),
    load_weights=_on_use("syno_lab.codegen.export", "load_weights"),
    construct_kernel_packs=_on_use("syno_lab.codegen.kernel_pack", "construct_kernel_packs"),
    dot=_on_use("syno_lab.codegen.drawing", "dot"),
    svg=_on_use("syno_lab.codegen.drawing", "svg"),
    figure=_on_use("syno_lab.codegen.figure_operator", "figure"),
    _repr_svg_=_on_use("syno_lab.codegen.drawing", "svg"),
)
_bind(
    Sampler,
    replace=_without_self("syno_lab.models.placeholder", "replace"),
    _mappings_of=_without_self("syno_lab.models.placeholder", "mappings_of"),
)

__all__ = [
    "PRIMITIVES",
    "RULES",
    "Build",
    "Candidate",
    "Coordinate",
    "Limits",
    "Operator",
    "Rule",
    "Sampler",
    "Session",
    "Size",
    "Spec",
    "State",
    "Step",
    "SynoError",
    "Weight",
    "add_primitive",
    "operators",
    "own_primitives",
    "remove_primitive",
]
