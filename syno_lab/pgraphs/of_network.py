"""The pGraphs for the layers of a network: their specification, their space to search, and the known ones in it.

Syno's Algorithm 1 begins with the specification: the symbolic shapes are the layers' shapes, and each different layer
gives one binding. The known operators are those with which discoveries are compared, and with which a search may begin.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import gcd
from typing import Any, cast

from syno_lab.common.probe import NO_PROMISE, convolution_probe
from syno_lab.common.wants import wants_text
from syno_lab.errors import SpecError, SynoError
from syno_lab.inputs import quoted
from syno_lab.ir.fingerprint import distinct_key
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec, Variable, WeightLimits
from syno_lab.models.sites import Form, Site, Strides, check_strides, derived_wants
from syno_lab.operators import KNOWN, conv2d, grouped, matmul, strided
from syno_lab.operators.known import grouped_strided
from syno_lab.pgraphs.probe import mirrors_of, probe, probe_binding
from syno_lab.pgraphs.space import synthesis_space
from syno_lab.pgraphs.traits import traits
from syno_lab.protocol import SpaceRequest
from syno_lab.search.asking import find
from syno_lab.search.protocol import State
from syno_lab.sessions.own_rule import OwnRule
from syno_lab.synthesis.orders import arrangements
from syno_lab.synthesis.property_distance import check_wants
from syno_lab.synthesis.rules import RULES, Rule

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
#: Steps of an operator at most, unless the request says otherwise: as many as Operator 1 has. With free weights it is
#: the Sampler's default.
STEPS = 10


class NetworkSpace:
    """The operators that fit all layers of a request; ``spec`` is derived from them, every kind of layer one binding.

    Raises SpecError as :func:`.derive_spec`, and for a wish that no operator can meet.
    """

    def __init__(self, request: SpaceRequest, rules: Sequence[OwnRule] = ()) -> None:
        limits = dict(request.limits)
        if request.weight_limits != "free":
            limits.setdefault("max_primitives", STEPS)
        spec = derive_spec(
            request.sites,
            strides=request.strides,
            coefficients=request.coefficients,
            occurrences=request.occurrences,
            wants=request.wants,
            weight_limits=request.weight_limits,
            **limits,
        )
        if request.wants is None:
            spec = replace(spec, wants=derived_wants(request.sites, request.strides))
        check_wants(spec)
        # A bound for the first binding that no operator within the network's limit exceeds: it prunes early.
        first = spec.binding_maps[0]
        calls = sum(site.calls for site in request.sites if site.binding(request.strides).items() <= first.items())
        most = request.spare_flops // max(1, calls)
        if spec.limits.max_flops is not None:
            most = min(most, spec.limits.max_flops)
        self.spec = replace(spec, limits=replace(spec.limits, max_flops=most))
        self._drawn = request.drawn
        said = ("the step", "none")
        own = [Rule(one.name, *said, one.reason, "the user's own", "space", one.match) for one in rules]
        self._rules = (*RULES, *own)
        self._heaviest = max(request.sites, key=lambda site: site.flops)

    def __str__(self) -> str:
        shapes = (f"[{', '.join(map(str, shape))}]" for shape in (self.spec.input_shape, self.spec.output_shape))
        return f"{' to '.join(shapes)}, {len(self.spec.bindings)} sizes"

    @property
    def wants(self) -> str:
        """The wish that every operator meets, as text; empty for none."""
        return wants_text(self.spec.wants, self.spec.input_shape, self.spec.output_shape)

    def root(self, accepts: Callable[[Operator], bool]) -> State:
        """See :func:`.synthesis_space`."""
        sizes = self.spec.binding_maps[0]
        return synthesis_space(
            self.spec,
            self._rules,
            accepts=accepts,
            describe=lambda operator: traits(operator, sizes),
            drawn=self._drawn,
        )

    def known(self, root: State) -> Mapping[str, Operator]:
        """See :func:`.known_operators`."""
        return known_operators(root, self.spec)

    def lower(self, spare_flops: int) -> None:
        """See :meth:`.OperatorSpace.lower`."""

    def name_of(self, operator: Operator) -> str:
        """See :func:`name_of`."""
        return name_of(operator)

    def probe(self, operator: Operator) -> Mapping[str, float]:
        """See :meth:`.Probe.promise`, beside the layer with the most FLOPs.

        All are 0 for an operator whose kernel is too large to be computed.
        """
        try:
            found = probe(operator, probe_binding(operator, self.spec.binding_maps[0]))
        except SynoError:
            return NO_PROMISE
        outputs, inputs, *lengths = found.kernel.shape
        site = self._heaviest
        window = site.kernel_size if len(lengths) == len(site.kernel_size) else (1,) * len(lengths)
        # A depthwise layer stays one at other channels; other groups stay as many where they divide these.
        groups = gcd(outputs, inputs, outputs if site.groups == site.in_channels > 1 else site.groups)
        reference = convolution_probe(outputs, inputs, tuple(lengths), window, groups)
        return found.promise(reference)


#: Terms up to which operators are told apart by what they compute: some hundredths of a second. The largest parts have
#: millions, and took a search of ResNet-20 without training three quarters of its time.
NAMED_TERMS = 1 << 18


@lru_cache(maxsize=1024)
def name_of(operator: Operator) -> str:
    """A name by which a search tells operators apart: the fingerprint, and the sizes on which it was taken.

    Mirror images (in H, in W, in both) have one name: of such a pair a search trains one.
    """
    try:
        binding, digest = distinct_key(operator, mirrors_of(operator.spec), NAMED_TERMS)
    except SynoError:  # more terms than are looked through: itself alone
        return hashlib.blake2b(operator.to_json().encode(), digest_size=16).hexdigest()
    return f"{digest} {' '.join(f'{name}={size}' for name, size in binding)}"


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

    Raises SpecError for no sites, sites whose operators have different shapes (images and positions; with
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


def known_operators(root: State, spec: Spec) -> dict[str, Operator]:
    """The operators of :data:`syno_lab.operators.KNOWN` that the space of ``root`` has, as it has them, by their names.

    Their variables are the variables of ``spec`` with the same names. The order of its steps, and the coordinate with
    which a weight is shared, may be others in the space; an operator that the space has only in another form is not
    found, nor an operator that a rule, a budget or a hard limit refuses.
    """
    found: dict[str, Operator] = {}
    for name, make in KNOWN.items():
        operator = placed(root, make(), spec)
        if operator is not None and operator not in found.values():
            found[name] = operator
    return found


def placed(root: State, operator: Operator, spec: Spec) -> Operator | None:
    """The operator in the form that the space of ``root`` has; None if it is not found there."""
    if len(operator.output) != len(spec.output_shape) or len(operator.inputs) != len(spec.input_shape):
        return None
    if len(operator.steps) > spec.limits.max_primitives:
        return None
    try:
        for one in arrangements(operator, spec):
            if one.state.is_match(one.inputs) and (trail := find(root, one)) is not None:
                return cast("Operator", trail.end.operator())
    except (KeyError, SynoError):  # a variable that the spec does not have, or a step that is not legal over it
        return None
    return None


def for_layer(site: Site) -> tuple[Operator, dict[str, int]]:
    """An operator that computes a layer's function for one example, and the sizes of its variables.

    Raises SpecError for a convolution with dilation, an oblong window, or a stride that does not divide its input.
    """
    if site.kind == "linear":
        return matmul(), {"M": site.positions, "K": site.in_channels, "N": site.out_channels}
    rows, columns = site.stride
    kernel = site.kernel_size[0]
    is_square = site.kernel_size == (kernel, kernel) and rows == columns
    if not is_square or site.dilation != (1, 1) or site.height % rows or site.width % rows:
        raise SpecError(
            f"{site.name}: expected a square convolution without dilation whose stride divides its input, found "
            f"window {kernel}x{site.kernel_size[1]}, stride {rows}x{columns}, dilation "
            f"{site.dilation[0]}x{site.dilation[1]} on {site.height}x{site.width}"
        )
    sizes = {"N": 1, "C_in": site.in_channels, "C_out": site.out_channels, "k_1": kernel}
    sizes |= {"H": site.height // rows, "W": site.width // rows}
    if rows > 1:
        sizes["s"] = rows
    if site.groups == 1:
        return (conv2d() if rows == 1 else strided()), sizes
    return (grouped() if rows == 1 else grouped_strided()), sizes | {"g": site.groups}
