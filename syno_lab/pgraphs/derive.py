"""Derives the specification of operators that can replace all of the given layers.

Syno's Algorithm 1 begins here: the symbolic shapes are the layers' shapes, and each different layer gives one binding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from syno_lab.errors import SpecError
from syno_lab.inputs import quoted
from syno_lab.ir.spec import Spec, Variable, WeightLimits
from syno_lab.models.sites import Form, Site, Strides, check_strides

#: How often a variable may occur, unless said otherwise, by what the limits bind: image sizes and positions never, so
#: that no operator depends on the place. Where weights count too, a chain of two of them has the channels between them
#: three times (a REDUCE, both weights), those of the input twice and those of the output once; those between may be a
#: part of either.
OCCURRENCES: dict[WeightLimits, dict[str, int]] = {
    "free": {"N": 0, "C_in": 3, "C_out": 2, "H": 0, "W": 0},
    "primary": {"N": 0, "C_in": 5, "C_out": 4, "H": 0, "W": 0},
}
#: Coefficients with their values and limits, unless said otherwise.
COEFFICIENTS = {"conv2d": ("k_1=3: 4", "g=4: 3", "s=2: 2"), "linear": ("g=4: 3", "s=2: 2")}


def derive_spec(
    sites: Sequence[Site],
    *,
    strides: Strides = "pool",
    coefficients: Sequence[str] | None = None,
    occurrences: Mapping[str, int] | None = None,
    weight_limits: WeightLimits = "primary",
    **options: Any,
) -> Spec:
    """Return the spec of operators for all ``sites``, with every binding, the one with the most FLOPs first.

    Budgets such as ``max_flops`` count for the first binding. ``coefficients`` are the strings of ``sl.Sampler``,
    ``occurrences`` limits for primaries in the place of :data:`OCCURRENCES`; ``weight_limits`` and ``options`` go to
    :meth:`.Spec.parse`. A coefficient that does not divide the channels of a site is of no use to operators for all:
    leave such a site (often the first convolution, of three channels) out.

    Raises:
        SpecError: for no sites, sites whose operators have different shapes (images and positions; with
            ``strides="shape"``, strides), or a malformed coefficient or option.
    """
    check_strides(strides)
    if not sites:
        raise SpecError("expected at least one layer to derive a specification from, found none")
    forms: dict[Form, str] = {}
    for site in sites:
        obstacle = site.obstacle_to(strides)
        if obstacle is not None:
            raise SpecError(f"expected layers that an operator can replace, found {site.name}: {obstacle}")
        forms.setdefault(site.form(strides), site.name)
    if len(forms) > 1:
        found = ", ".join(
            f"{form.input_shape} to {form.output_shape}{f' with s={form.stride}' if form.stride > 1 else ''} at {name}"
            for form, name in forms.items()
        )
        raise SpecError(f"expected layers of one shape for one operator, found {found}; select them apart")
    (form,) = forms
    usual = OCCURRENCES[weight_limits]
    limits = {**usual, **(occurrences or {})}
    unknown = [name for name in limits if name not in usual]
    if unknown:
        raise SpecError(f"occurrences: expected some of {', '.join(usual)}, found {', '.join(unknown)}")
    declared = list(COEFFICIENTS[sites[0].kind] if coefficients is None else coefficients)
    if form.stride > 1:
        declared = _with_stride(declared, form.stride, given=coefficients is not None)
    weight: dict[tuple[tuple[str, int], ...], int] = {}
    for site in sites:
        key = tuple(site.binding(strides).items())
        weight[key] = weight.get(key, 0) + site.flops
    heaviest = sorted(weight, key=lambda key: -weight[key])
    return Spec.parse(
        form.input_shape,
        form.output_shape,
        [f"{name}: {limits[name]}" for name in form.primary],
        declared,
        mappings=[dict(key) for key in heaviest],
        fixed_io_pairs=[(0, 0)],
        weight_limits=weight_limits,
        **options,
    )


def _with_stride(coefficients: list[str], stride: int, *, given: bool) -> list[str]:
    """Coefficients in which s is the stride of the shapes; only coefficients that the user gave are checked."""
    variables = {variable.name: variable for variable in map(Variable.parse, coefficients)}
    own = variables.get("s")
    if own is None:
        return [*coefficients, f"s={stride}: 2"]
    if given and own.default not in (None, stride):
        raise SpecError(
            f"coefficients: s is the stride {stride} of these layers, found {quoted(str(own))}; take another name"
        )
    limit = "" if own.limit is None else f": {own.limit}"
    return [f"s={stride}{limit}" if Variable.parse(text).name == "s" else text for text in coefficients]
