"""Kernels with numbers for the places of a network: Canvas's operators (:class:`syno_lab.protocol.Operator`).

An operator maps [N, C_in, s·H, s·W] to [N, C_out, H, W]. The template runs on C = min(C_in, C_out) channels and H x W
pixels; a stride s is an average pooling before the template. If the numbers of channels differ by a factor A, the
template runs in A parts with separate weights. With fewer output channels, each part reads one of A blocks of input
channels, and the results are averaged. With more output channels, all parts read the same input, and the results are
concatenated (Canvas, section 4).

The variables are N, C_in, C_out, H, W, the window KH and KW, s, the number of groups G, and the dynamic variables. The
dynamic variables have the numbers of the place's solution; a place without a solution gets its base solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from math import prod
from typing import TYPE_CHECKING, Any

from syno_lab.canvas import drawing
from syno_lab.canvas.filling import MOST_ELEMENTS, Spent, solve
from syno_lab.canvas.kernel import Kernel
from syno_lab.canvas.places import NO_BUDGET, Budget, Place, group_choices_of, places_of
from syno_lab.canvas.reference import at_place
from syno_lab.canvas.torch_source import to_torch, to_torch_source
from syno_lab.common.size import bound_size
from syno_lab.errors import SpecError
from syno_lab.inputs import positive, quoted
from syno_lab.protocol import FLOAT32_BYTES, Binding

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike
    from torch import nn
    from tvm.ir import IRModule

    from syno_lab.models.sites import Site

FORMAT = "syno-lab-canvas"
#: The variables of every operator; the last three have defaults.
OUTER = ("N", "C_in", "C_out", "H", "W", "KH", "KW", "s")
_DEFAULTS = {"KH": 3, "KW": 3, "s": 1}


@dataclass(frozen=True)
class Fitted:
    """A kernel with numbers for every place of a network.

    Attributes:
        kernel: the template.
        groups: the number of groups; 1 where the kernel has no G.
        places: places of different sizes; empty for a kernel without a network.
        solutions: for each place, the values of the kernel's dynamic variables.

    Raises SpecError where the number of solutions is not the number of places, or a number is not positive and whole.
    """

    kernel: Kernel
    groups: int = 1
    places: tuple[Place, ...] = ()
    solutions: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if positive(self.groups) is None:
            raise SpecError(f"groups: expected a whole number from 1 up, found {quoted(self.groups)}")
        if len(self.places) != len(self.solutions):
            raise SpecError(f"expected a solution for each of {len(self.places)} places, found {len(self.solutions)}")
        names = self.kernel.free
        for place, solution in zip(self.places, self.solutions, strict=True):
            if len(solution) != len(names) or any(positive(number) is None for number in solution):
                raise SpecError(
                    f"{place}: expected a positive whole number for each of {', '.join(names) or 'no variable'}, "
                    f"found {quoted(list(solution))}"
                )
        if len({replace(place, layers=1) for place in self.places}) < len(self.places):
            raise SpecError("places: expected no two of equal sizes")

    format = FORMAT

    # -- sizes --------------------------------------------------------------------------------------------------------

    @property
    def inner(self) -> tuple[str, ...]:
        """The variables that a network's solution determines: G if the kernel has it, and the free variables."""
        return (*(("G",) if "G" in self.kernel.variables else ()), *self.kernel.free)

    @property
    def variables(self) -> tuple[str, ...]:
        """:data:`OUTER`, then :attr:`inner`."""
        return OUTER + self.inner

    def complete_binding(self, binding: Binding | None = None, /) -> dict[str, int]:
        """Return a number for every variable.

        Missing numbers come from the first place whose image and channels have the given numbers. Without a place of
        these sizes the window is 3 x 3 and the stride 1. The template's C alone is not enough: C_in and C_out are
        required. Raises SpecError for a number that is missing or no positive integer, for sizes that are not whole,
        and for a C that does not agree with C_in and C_out.
        """
        sizes = dict(binding or {})
        outers = (outer_of(place) for place in self.places)
        first = next((o for o in outers if all(sizes.get(name, size) == size for name, size in o.items())), None)
        defaults = _DEFAULTS if first is None else first
        bound: dict[str, int] = {}
        for name in OUTER:
            value = sizes.get(name, 1 if name == "N" else defaults.get(name))
            if value is None:
                raise SpecError(f"Canvas: no value for {name}: bind it to a size of the convolution that is replaced")
            bound[name] = bound_size(value, name, "Canvas")
        place = place_in(bound)
        if "C" in sizes and (sizes["C"] != place.channels or not {"C_in", "C_out"} <= sizes.keys()):
            actual = ", ".join(f"{name}={quoted(sizes[name])}" for name in ("C", "C_in", "C_out") if name in sizes)
            raise SpecError(f"Canvas: expected C_in and C_out, and no C but the smaller of them, found {actual}")
        missing = [name for name in self.kernel.free if name not in sizes]
        chosen = {"G": self.groups, **(self._solution(place) if missing else {}), **sizes}
        bound |= {name: bound_size(chosen[name], name, "Canvas") for name in self.inner}
        template = self.kernel.complete_binding(_at(bound)[1])
        for shape in self.kernel.shapes:
            elements = shape.volume.at(template)
            if elements > MOST_ELEMENTS:
                raise SpecError(
                    f"{place}: expected tensors of at most {MOST_ELEMENTS} elements, "
                    f"found {shape} with {quoted(elements)}"
                )
        return bound

    def _solution(self, place: Place) -> dict[str, int]:
        """Return the values of the dynamic variables at a place: its solution, or else the base solution."""
        names = self.kernel.free
        for known, solution in zip(self.places, self.solutions, strict=True):
            if replace(known, layers=place.layers) == place:
                return dict(zip(names, solution, strict=True))
        solved = solve(self.kernel, (replace(place, layers=1),), NO_BUDGET, self.groups)
        if isinstance(solved, str):
            raise SpecError(solved)
        return dict(zip(names, solved.numbers[0], strict=True))

    def binding(self, place: Place) -> dict[str, int]:
        """Return the values of :attr:`variables` and of the template's variables at a place, for any number of layers.

        Every method accepts the result as a binding of this place. Raises as :meth:`complete_binding`.
        """
        bound = self.complete_binding(outer_of(place))
        return bound | _at(bound)[1]

    def template(self, binding: Binding | None = None, /) -> tuple[Place, dict[str, int]]:
        """Return the place with the sizes of a binding, and the template's binding at this place."""
        return _at(self.complete_binding(binding))

    def input_sizes(self, binding: Binding | None = None, /) -> tuple[int, ...]:
        """Return the input's shape, [N, C_in, s·H, s·W]."""
        bound = self.complete_binding(binding)
        return bound["N"], bound["C_in"], bound["s"] * bound["H"], bound["s"] * bound["W"]

    def output_sizes(self, binding: Binding | None = None, /) -> tuple[int, ...]:
        """Return the output's shape, [N, C_out, H, W]."""
        bound = self.complete_binding(binding)
        return bound["N"], bound["C_out"], bound["H"], bound["W"]

    def weight_sizes(self, binding: Binding | None = None, /) -> tuple[tuple[int, ...], ...]:
        """Return the weights' shapes (:attr:`.Kernel.weights`); with A parts, each first axis is A times as long."""
        place, template = self.template(binding)
        return tuple([(place.parts * first, *rest) for first, *rest in self.kernel.weight_sizes(template)])

    # -- costs --------------------------------------------------------------------------------------------------------

    @cached_property
    def spent(self) -> Spent:
        """FLOPs for one example and parameters, summed over all places."""
        bounds = [(place.layers, self.complete_binding(outer_of(place))) for place in self.places]
        return Spent(*(sum(layers * cost(bound) for layers, bound in bounds) for cost in (self.flops, self.params)))

    def flops(self, binding: Binding | None = None, /) -> int:
        """Return the FLOPs, 2 for each multiply-add, with the pooling before the template."""
        bound = self.complete_binding(binding)
        place, template = _at(bound)
        return bound["N"] * (place.parts * self.kernel.flops(template) + place.pooling)

    def params(self, binding: Binding | None = None, /) -> int:
        """Return the number of weight elements."""
        return sum(map(prod, self.weight_sizes(binding)))

    def memory(self, binding: Binding | None = None, /) -> int:
        """Return the float32 bytes of input, output, weights, and the tensors that the template holds at one time.

        With a stride, the pooled input counts too.
        """
        bound = self.complete_binding(binding)
        place, template = _at(bound)
        live = self.kernel.memory(template) - FLOAT32_BYTES * self.kernel.params(template)
        outside = prod(self.input_sizes(bound)) + prod(self.output_sizes(bound)) + self.params(bound)
        outside += bound["N"] * place.c_in * place.h * place.w if place.stride > 1 else 0
        return bound["N"] * place.parts * live + FLOAT32_BYTES * outside

    def traffic(self, binding: Binding | None = None, /) -> int:
        """Return the number of elements of all tensors that a forward pass computes, without views."""
        bound = self.complete_binding(binding)
        place, template = _at(bound)
        elements = sum(
            shape.volume.at(template)
            for node, shape in zip(self.kernel.nodes, self.kernel.shapes[1:], strict=True)
            if node.primitive.name != "group"
        )
        return bound["N"] * place.parts * elements + prod(self.output_sizes(bound))

    # -- identity -----------------------------------------------------------------------------------------------------

    def fingerprint(self, binding: Binding | None = None, /) -> str:
        """Return a hash of the key (:attr:`.Kernel.key`) and of the values of all variables: 32 hexadecimal digits.

        Isomorphic kernels have equal hashes. Kernels of different form have different hashes, even for equal functions.
        """
        bound = sorted(self.complete_binding(binding).items())
        return blake2b(f"{self.kernel.key} {bound}".encode(), digest_size=16).hexdigest()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.kernel, self.groups, self.places, self.solutions))

    # -- forms --------------------------------------------------------------------------------------------------------

    def reference(self, x: ArrayLike, *weights: ArrayLike, binding: Binding | None = None) -> np.ndarray[Any, Any]:
        """Return the output for ``x`` and the weights, in NumPy, in float64.

        A normalising kernel computes as a new module in evaluation: means of 0 and variances of 1. Raises SpecError
        where a shape or the number of weights does not fit the binding.
        """
        return at_place(self, x, weights, self.complete_binding(binding))

    def to_torch(self, binding: Binding | None = None, /) -> nn.Module:
        """Return a module for images [batch, C_in, s·H, s·W] of any batch size."""
        return to_torch(self, self.complete_binding(binding))

    def to_torch_source(self, binding: Binding | None = None, /) -> str:
        """Return the module as Python source that needs only torch: a class ``SynoOperator(nn.Module)``."""
        return to_torch_source(self, self.complete_binding(binding))

    def to_tvm(self, binding: Binding | None = None, /, dtype: str = "float32") -> IRModule:
        """Return an IRModule with one unscheduled function ``main(X, W1, ..., Y)``."""
        from syno_lab.canvas.tvm import to_tvm

        return to_tvm(self, self.complete_binding(binding), dtype)

    dot, svg = drawing.dot, drawing.svg

    def to_json(self) -> str:
        """Return the text of a kernel file, with its places."""
        from syno_lab.canvas.files import to_json

        return to_json(self)

    def __str__(self) -> str:
        steps = ", ".join(str(node.primitive) for node in self.kernel.nodes) or "the input"
        groups = f"; G={self.groups}" if "G" in self.kernel.variables else ""
        return f"Canvas kernel: {steps}{groups}"


def place_in(bound: Binding) -> Place:
    """Return the convolution with these sizes. Raises SpecError where no kernel can replace such a convolution."""
    return Place(bound["C_in"], bound["C_out"], bound["H"], bound["W"], bound["KH"], bound["KW"], bound["s"])


def outer_of(place: Place) -> dict[str, int]:
    """Return a place's sizes by variable (:data:`OUTER` without N)."""
    numbers = (place.c_in, place.c_out, place.h, place.w, place.kh, place.kw, place.stride)
    return dict(zip(OUTER[1:], numbers, strict=True))


def _at(bound: Binding) -> tuple[Place, dict[str, int]]:
    """Return the place with the sizes of a complete binding, and the template's binding at this place."""
    place, inner = place_in(bound), {name: number for name, number in bound.items() if name not in OUTER}
    return place, place.binding(bound.get("G", 1)) | inner


def group_choices(kernel: Kernel, places: Sequence[Place]) -> tuple[int, ...]:
    """Return the possible numbers of groups: :func:`.group_choices_of` the places, or 1 for a kernel without G."""
    return group_choices_of(places) if "G" in kernel.variables else (1,)


def fill(kernel: Kernel, places: Sequence[Place], budget: Budget, groups: int = 1) -> Fitted | str:
    """Return the kernel with values for its dynamic variables within the budget; or in one line why none fit.

    Places of equal sizes are merged. Without an upper limit the base solution stays. ``groups``: the number of groups.
    """
    result = solve(kernel, places, budget, groups)
    return result if isinstance(result, str) else Fitted(kernel, groups, result.places, result.numbers)


def fit_to(
    kernel: Kernel, places: Sequence[Place | Site], budget: Budget | None = None, groups: int | None = None
) -> Fitted:
    """Return the kernel with numbers for every place of a network, as large as the budget allows (section 6.3).

    Args:
        kernel: the template.
        places: the convolutions to replace, as places or as sites of a network.
        budget: limits of the sums over all places; None: the kernel gets the base solution.
        groups: the number for G; None: the smallest common divisor of the channels from 2 up.

    Raises SpecError where no solution exists.
    """
    targets = places_of(places)
    choices = group_choices(kernel, targets) if groups is None else (groups,)
    if not choices:
        channels = ", ".join(map(str, sorted({place.channels for place in targets})[:8]))
        raise SpecError(f"groups: expected channels with a common divisor from 2 up, found {channels}")
    fitted = fill(kernel, targets, budget or NO_BUDGET, choices[0])
    if isinstance(fitted, str):
        raise SpecError(fitted)
    return fitted
