"""From a backbone to the space that is searched for it: Algorithm 1, lines 2 and 3, and the limit of section 7.2."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache

from syno_lab.errors import SpecError, SynoError
from syno_lab.evaluate.searching.settings import SearchSettings
from syno_lab.evaluate.searching.traffic import output_elements, stored_elements
from syno_lab.evaluate.searching.traits import traits
from syno_lab.evaluate.trial import sites_of, survey_of
from syno_lab.ir.fingerprint import distinct_key
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.models.derive import derive_spec
from syno_lab.models.sites import Site, Strides
from syno_lab.models.slot import costs
from syno_lab.search import MonteCarloTreeSearch, RandomSearch, RegularizedEvolution, Search, synthesis_space


@dataclass(frozen=True)
class NetworkCosts:
    """A network with an operator in all its places: FLOPs (2 for each multiply-add of one example) and parameters."""

    flops: int
    params: int


class Space:
    """The operators that fit all places of a backbone and keep it within the limit.

    Attributes:
        spec: derived from the places, every kind of place one binding.
        baseline: what the network costs as it is.
        most_flops: what it may cost with an operator.
        most_traffic: the memory traffic that an operator may have, see :meth:`traffic`; None: any.

    Raises:
        SpecError: the backbone has nothing to replace, or the limit is below what the other layers cost.
    """

    def __init__(self, settings: SearchSettings) -> None:
        request = settings.training
        self.sites: list[Site] = sites_of(request)
        self.strides: Strides = request.options.get("strides", "pool")
        # Layers that differ by nothing but their names cost the same: of ResNet-20's 18 there are 6 kinds.
        kinds = Counter(replace(site, name="") for site in self.sites)
        self._kinds = sorted(kinds.items(), key=lambda pair: -pair[0].flops)
        seen = survey_of(request)
        self.baseline = NetworkCosts(seen.flops, seen.params)
        self._rest = NetworkCosts(
            seen.flops - sum(site.flops for site in self.sites), seen.params - sum(site.params for site in self.sites)
        )
        self.most_flops = int(settings.max_flops_ratio * seen.flops)
        self.most_traffic = settings.max_traffic_ratio
        spare = self.most_flops - self._rest.flops
        if spare <= 0:
            raise SpecError(
                f"max_flops_ratio: the layers of {request.backbone} that stay take {self._rest.flops / seen.flops:.1%} "
                f"of its FLOPs, found a limit of {settings.max_flops_ratio:.1%}; raise it, or replace more layers"
            )
        spec = derive_spec(
            self.sites,
            strides=self.strides,
            coefficients=settings.coefficients,
            occurrences=settings.occurrences,
            **settings.limits,
        )
        self.spec = self._limited(spec, spare)

    def _limited(self, spec: Spec, spare: int) -> Spec:
        """A bound for the first binding that no operator within the network's limit exceeds: it prunes early."""
        first = spec.binding_maps[0]
        calls = sum(site.calls for site in self.sites if site.binding(self.strides).items() <= first.items())
        most = spare // max(1, calls)
        if spec.limits.max_flops is not None:
            most = min(most, spec.limits.max_flops)
        return replace(spec, limits=replace(spec.limits, max_flops=most))

    def costs(self, operator: Operator) -> NetworkCosts | None:
        """The whole network with the operator in all places; None where it does not fit one of them."""
        flops, params = self._rest.flops, self._rest.params
        for site, number in self._kinds:
            (place,) = costs(operator, [site], strides=self.strides)
            if not place.replaced:
                return None
            flops += number * place.flops
            params += number * place.params
        return NetworkCosts(flops, params)

    def traffic(self, operator: Operator) -> float:
        """What the operator stores in all places, over what the layers put out that stand there (:mod:`.traffic`).

        Raises:
            SpecError: where it does not fit one of them.
        """
        stored = layers = 0
        for site, number in self._kinds:
            (place,) = costs(operator, [site], strides=self.strides)
            if place.binding is None:
                raise SpecError(f"expected an operator for every layer, found one that does not fit: {place.reason}")
            stored += number * site.calls * stored_elements(operator, place.binding)
            layers += number * output_elements(site)
        return stored / layers

    def accepts(self, operator: Operator) -> bool:
        """Whether the operator fits everywhere and the network stays within the limits."""
        found = self.costs(operator)
        if found is None or found.flops > self.most_flops:
            return False
        return self.most_traffic is None or self.traffic(operator) <= self.most_traffic

    @property
    def limits(self) -> str:
        """What an operator must keep to, in words."""
        flops = f"within {self.most_flops / self.baseline.flops:.0%} of the FLOPs"
        return flops if self.most_traffic is None else f"{flops} and {self.most_traffic:g} times the memory traffic"

    def search(self, settings: SearchSettings) -> Search:
        """A fresh search of the settings' method and seed; what computes the same as an earlier one is left out."""
        first: dict[str, Operator] = {}

        def accepts(operator: Operator) -> bool:
            # Another way of writing what was asked for before is none; asked again, the first is still the first.
            return self.accepts(operator) and first.setdefault(name_of(operator), operator) == operator

        sizes = self.spec.binding_maps[0]
        root = synthesis_space(self.spec, accepts=accepts, describe=lambda operator: traits(operator, sizes))
        rng = random.Random(settings.seed)  # noqa: S311 - for choices, not for secrets
        make = {"mcts": MonteCarloTreeSearch, "random": RandomSearch, "evolution": RegularizedEvolution}
        return make[settings.method](root, rng)


@lru_cache(maxsize=1024)
def name_of(operator: Operator) -> str:
    """What tells the operators of a search apart: the fingerprint, and the sizes on which it was taken."""
    try:
        binding, digest = distinct_key(operator)
    except SynoError:  # more terms than can be looked through: itself alone
        return hashlib.blake2b(operator.to_json().encode(), digest_size=16).hexdigest()
    return f"{digest} {' '.join(f'{name}={size}' for name, size in binding)}"
