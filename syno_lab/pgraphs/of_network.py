"""The pGraphs for the layers of a network, as a space to search (:class:`syno_lab.protocol.OperatorSpace`)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache

from syno_lab.errors import SynoError
from syno_lab.ir.fingerprint import distinct_key
from syno_lab.ir.operator import Operator
from syno_lab.pgraphs.derive import derive_spec
from syno_lab.pgraphs.known import known_operators
from syno_lab.pgraphs.space import synthesis_space
from syno_lab.pgraphs.traits import traits
from syno_lab.protocol import SpaceRequest
from syno_lab.search.protocol import State

#: Steps of an operator at most, unless the request says otherwise: as many as Operator 1 has. Searches of former
#: versions, with free weights, have the Sampler's default.
STEPS = 10


class NetworkSpace:
    """The operators that fit all layers of a request.

    Attributes:
        spec: derived from the layers, every kind of layer one binding.

    Raises:
        SpecError: as :func:`.derive_spec`.
    """

    def __init__(self, request: SpaceRequest) -> None:
        limits = dict(request.limits)
        if request.weight_limits != "free":
            limits.setdefault("max_primitives", STEPS)
        spec = derive_spec(
            request.sites,
            strides=request.strides,
            coefficients=request.coefficients,
            occurrences=request.occurrences,
            weight_limits=request.weight_limits,
            **limits,
        )
        # A bound for the first binding that no operator within the network's limit exceeds: it prunes early.
        first = spec.binding_maps[0]
        calls = sum(site.calls for site in request.sites if site.binding(request.strides).items() <= first.items())
        most = request.spare_flops // max(1, calls)
        if spec.limits.max_flops is not None:
            most = min(most, spec.limits.max_flops)
        self.spec = replace(spec, limits=replace(spec.limits, max_flops=most))

    def __str__(self) -> str:
        shapes = (f"[{', '.join(map(str, shape))}]" for shape in (self.spec.input_shape, self.spec.output_shape))
        return f"{' to '.join(shapes)}, {len(self.spec.bindings)} sizes"

    def root(self, accepts: Callable[[Operator], bool]) -> State:
        """See :func:`.synthesis_space`."""
        sizes = self.spec.binding_maps[0]
        return synthesis_space(self.spec, accepts=accepts, describe=lambda operator: traits(operator, sizes))

    def known(self, root: State) -> Mapping[str, Operator]:
        """See :func:`.known_operators`."""
        return known_operators(root, self.spec)

    def name_of(self, operator: Operator) -> str:
        """See :func:`name_of`."""
        return name_of(operator)


@lru_cache(maxsize=1024)
def name_of(operator: Operator) -> str:
    """A name by which a search tells operators apart: the fingerprint, and the sizes on which it was taken."""
    try:
        binding, digest = distinct_key(operator)
    except SynoError:  # more terms than can be looked through: itself alone
        return hashlib.blake2b(operator.to_json().encode(), digest_size=16).hexdigest()
    return f"{digest} {' '.join(f'{name}={size}' for name, size in binding)}"
