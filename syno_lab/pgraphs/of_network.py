"""The pGraphs for the layers of a network, as a space to search (:class:`syno_lab.protocol.OperatorSpace`)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import gcd

from syno_lab.common.probe import NO_PROMISE, convolution_probe
from syno_lab.common.wants import wants_text
from syno_lab.errors import SynoError
from syno_lab.ir.fingerprint import distinct_key
from syno_lab.ir.operator import Operator
from syno_lab.models.sites import derived_wants
from syno_lab.pgraphs.derive import derive_spec
from syno_lab.pgraphs.known import known_operators
from syno_lab.pgraphs.probe import probe, probe_binding
from syno_lab.pgraphs.roles import mirrors_of
from syno_lab.pgraphs.space import synthesis_space
from syno_lab.pgraphs.traits import traits
from syno_lab.protocol import SpaceRequest
from syno_lab.search.protocol import State
from syno_lab.sessions.own_rule import OwnRule
from syno_lab.synthesis.property_distance import check_wants
from syno_lab.synthesis.rules import RULES, Rule

#: Steps of an operator at most, unless the request says otherwise: as many as Operator 1 has. With free weights it is
#: the Sampler's default.
STEPS = 10


class NetworkSpace:
    """The operators that fit all layers of a request.

    Attributes:
        spec: derived from the layers, every kind of layer one binding.

    Raises:
        SpecError: as :func:`.derive_spec`, and for a wish that no operator can meet.
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
