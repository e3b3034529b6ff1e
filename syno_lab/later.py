"""Methods whose body is in a later package; :func:`later` imports that package when such a method is called.

The class of a value such as an operator is in an early package, which must not import later packages. :data:`FILES`
maps methods to functions. A function takes the value and the arguments that the method's docstring describes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

#: The file of each function, by the function's name.
FILES = {
    "candidates": "synthesis.candidates",
    "distance": "synthesis.distance",
    "explain_distance": "synthesis.distance",
    "property_distance": "synthesis.property_distance",
    "explain_property_distance": "synthesis.property_distance",
    "flops": "ir.plan",
    "memory": "ir.plan",
    "fingerprint": "ir.fingerprint",
    "loops": "codegen.loops",
    "equation": "codegen.equation",
    "coordinates": "codegen.coordinates",
    "receptive_field": "codegen.receptive_field",
    "mixing": "codegen.mixing",
    "meets": "codegen.mixing",
    "reference": "codegen.reference",
    "to_torch": "codegen.torch_module",
    "to_torch_source": "codegen.torch_module",
    "to_tvm": "codegen.tvm_target",
    "save_library": "codegen.library",
    "export": "codegen.export",
    "load_weights": "codegen.export",
    "construct_kernel_packs": "codegen.torch_module",
    "dot": "codegen.drawing",
    "svg": "codegen.drawing",
    "figure": "codegen.figure_operator",
    "mappings_of": "models.placeholder",
    "replace": "models.placeholder",
    "find_search": "reports.named",
    "trial_named": "reports.named",
}

if TYPE_CHECKING:
    # The names of classes of later packages, for the reader only: this file must not import the classes.
    Candidates: TypeAlias = Any
    Coordinates: TypeAlias = Any
    Equation: TypeAlias = Any
    Explanation: TypeAlias = Any
    Exported: TypeAlias = Any
    Figure: TypeAlias = Any
    KernelPack: TypeAlias = Any
    LibraryRecord: TypeAlias = Any
    Mixing: TypeAlias = Any
    PropertyExplanation: TypeAlias = Any
    ReceptiveField: TypeAlias = Any
    Rules: TypeAlias = Any


def later(name: str, *arguments: object, **options: object) -> Any:
    """Call the function ``name`` of a later package."""
    return function(name)(*arguments, **options)


@cache
def function(name: str) -> Callable[..., Any]:
    """Import the package of the function ``name``, and return the function."""
    body: Callable[..., Any] = getattr(import_module(f"syno_lab.{FILES[name]}"), name)
    return body
