"""The pGraphs for the layers of a network: their spec, their search space, and the known operators in it.

Syno's Algorithm 1 starts from the spec: its symbolic shapes are the layers' shapes, and each different layer is one
binding. Discoveries are compared with the known operators, and a search may start from them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
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

#: The default limits of occurrences for each kind of weight limits. Image sizes and positions never occur, so that no
#: operator depends on the site. If weights count, two successive weights use the channels between the weights three
#: times (a REDUCE and two weights), the input's channels twice and the output's channels once. The middle
#: channels may be a part of the input's or output's channels.
OCCURRENCES: dict[WeightLimits, dict[str, int]] = {
    "free": {"N": 0, "C_in": 3, "C_out": 2, "H": 0, "W": 0},
    "primary": {"N": 0, "C_in": 5, "C_out": 4, "H": 0, "W": 0},
}
#: The default coefficients of a spec, each with its value and its limit of occurrences.
COEFFICIENTS = {"conv2d": ("k_1=3: 4", "g=4: 3", "s=2: 2"), "linear": ("g=4: 3", "s=2: 2")}
#: The default limit of an operator's steps: the number of steps of Operator 1. With the weight limits ``free``, the
#: default is the Sampler's.
STEPS = 10


class NetworkSpace:
    """The space of operators that fit all layers of a request. ``spec`` has one binding for each different layer.

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
        # Operators within the network's limit are within this limit for the first binding. The limit prunes early.
        first = spec.binding_maps[0]
        calls = sum(site.calls for site in request.sites if site.binding(request.strides).items() <= first.items())
        most = request.spare_flops // max(1, calls)
        if spec.limits.max_flops is not None:
            most = min(most, spec.limits.max_flops)
        self.spec = replace(spec, limits=replace(spec.limits, max_flops=most))
        self._drawn = request.drawn
        unused = ("the step", "none")
        own = [Rule(rule.name, *unused, rule.reason, "the user's own", "space", rule.match) for rule in rules]
        self._rules = (*RULES, *own)
        self._heaviest = max(request.sites, key=lambda site: site.flops)

    def __str__(self) -> str:
        shapes = (f"[{', '.join(map(str, shape))}]" for shape in (self.spec.input_shape, self.spec.output_shape))
        return f"{' to '.join(shapes)}, {len(self.spec.bindings)} sizes"

    @property
    def wants(self) -> str:
        """The wish of the space, which all its operators meet, as text; empty without a wish."""
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
        """Return :meth:`.Probe.promise` of an operator, in comparison with the layer with the most FLOPs.

        All values are 0 for an operator whose kernel is too large to compute.
        """
        try:
            own_probe = probe(operator, probe_binding(operator, self.spec.binding_maps[0]))
        except SynoError:
            return NO_PROMISE
        outputs, inputs, *lengths = own_probe.kernel.shape
        site = self._heaviest
        window = site.kernel_size if len(lengths) == len(site.kernel_size) else (1,) * len(lengths)
        # A depthwise layer stays depthwise. Another number of groups stays if it divides the channels.
        groups = gcd(outputs, inputs, outputs if site.groups == site.in_channels > 1 else site.groups)
        reference = convolution_probe(outputs, inputs, tuple(lengths), window, groups)
        return own_probe.promise(reference)


#: The limit of terms for comparing operators' functions: some hundredths of a second. Operators with millions of terms
#: took three quarters of the time of a search of ResNet-20 without trainings.
NAMED_TERMS = 1 << 18


@lru_cache(maxsize=1024)
def name_of(operator: Operator) -> str:
    """Return a name that distinguishes operators in a search: the fingerprint, and the sizes for computing it.

    Operators that are mirror images (in H, in W, or in H and W) share a name, so that a search trains only one of them.
    """
    try:
        binding, digest = distinct_key(operator, mirrors_of(operator.spec), NAMED_TERMS)
    except SynoError:  # too many terms: name this operator, not its function
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
    """Return the spec of operators for all ``sites``, with their bindings, the binding with the most FLOPs first.

    Budgets such as ``max_flops`` apply to the first binding. ``coefficients`` are the strings of ``sl.Sampler``.
    ``occurrences`` are limits for primary variables, in place of :data:`OCCURRENCES`. ``weight_limits`` and ``options``
    are passed to :meth:`.Spec.parse`. A coefficient is useless unless it divides the channels of every site. Leave out
    sites with other channels, often the first convolution with three channels.

    Raises SpecError for no sites, for sites whose operators have different shapes (images and positions; with
    ``strides="shape"``, strides), or for a malformed coefficient or option.
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
        shapes = ", ".join(
            f"{form.input_shape} to {form.output_shape}{f' with s={form.stride}' if form.stride > 1 else ''} at {name}"
            for form, name in forms.items()
        )
        raise SpecError(f"expected layers of one shape for one operator, found {shapes}; select them apart")
    (form,) = forms
    usual = OCCURRENCES[weight_limits]
    limits = {**usual, **(occurrences or {})}
    unknown = [name for name in limits if name not in usual]
    if unknown:
        raise SpecError(f"occurrences: expected some of {', '.join(usual)}, found {', '.join(unknown)}")
    declared = list(COEFFICIENTS[sites[0].kind] if coefficients is None else coefficients)
    if form.stride > 1:
        declared = _with_stride(declared, form.stride, given=coefficients is not None)
    weight = Counter[tuple[tuple[str, int], ...]]()
    for site in sites:
        weight[tuple(site.binding(strides).items())] += site.flops
    return Spec.parse(
        form.input_shape,
        form.output_shape,
        [f"{name}: {limits[name]}" for name in form.primary],
        declared,
        mappings=[dict(key) for key, _ in weight.most_common()],
        fixed_io_pairs=[(0, 0)],
        weight_limits=weight_limits,
        **options,
    )


def _with_stride(coefficients: list[str], stride: int, *, given: bool) -> list[str]:
    """Set the coefficient s to the stride of the layers' shapes; check s if the user gave the coefficients."""
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
    """Return the operators of :data:`syno_lab.operators.KNOWN` in the space of ``root``, in the space's form, by name.

    The operators' variables are the variables of ``spec`` with the same names. In the space's form, the steps may have
    another order, and a weight may share another coordinate. An operator is left out if its form differs in another
    way, or if a rule, a budget or a hard limit rejects it.
    """
    placed_operators: dict[str, Operator] = {}
    for name, make in KNOWN.items():
        operator = placed(root, make(), spec)
        if operator is not None and operator not in placed_operators.values():
            placed_operators[name] = operator
    return placed_operators


def placed(root: State, operator: Operator, spec: Spec) -> Operator | None:
    """Return ``operator`` in the form that the space of ``root`` has; None if the space has no form of the operator."""
    if len(operator.output) != len(spec.output_shape) or len(operator.inputs) != len(spec.input_shape):
        return None
    if len(operator.steps) > spec.limits.max_primitives:
        return None
    try:
        for arrangement in arrangements(operator, spec):
            if arrangement.state.is_match(arrangement.inputs) and (trail := find(root, arrangement)) is not None:
                return cast("Operator", trail.end.operator())
    except (KeyError, SynoError):  # the spec lacks a variable, or a step is not legal
        return None
    return None


def for_layer(site: Site) -> tuple[Operator, dict[str, int]]:
    """Return an operator that computes a layer's function for one example, and the sizes of its variables.

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
