"""The search space of a backbone: Syno's Algorithm 1, lines 2 and 3, and the FLOPs limit of section 7.2."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Protocol, runtime_checkable

from syno_lab.errors import SpecError
from syno_lab.experiments.own_choice import Judged, own_reward, own_rules
from syno_lab.experiments.settings import DERIVED, SearchSettings
from syno_lab.inputs import quoted
from syno_lab.models.sites import Site, Strides
from syno_lab.models.slot import Place
from syno_lab.protocol import ComputesLayers, OfNetworks, Operator, OperatorSpace, Optioned, Ruled, SpaceRequest, System
from syno_lab.search import (
    EliteSearch,
    EstimateSearch,
    MonteCarloTreeSearch,
    ParetoEvolution,
    RandomSearch,
    RegularizedEvolution,
    Search,
    mcts,
    rave,
    uct,
)
from syno_lab.search.joint import JointSpace
from syno_lab.search.protocol import State
from syno_lab.store.searches import Layers, LayerSizes
from syno_lab.systems import all_systems, find_system, space_of, system_of
from syno_lab.trial import TrialRequest, sites_of, survey_of
from syno_lab.trial.backbone import example_of
from syno_lab.versioned import JSON

#: The number of operators whose costs are cached.
COSTS_KEPT = 1024
#: A lowered limit is this share of the FLOPs of the operator that was accurate enough to lower the limit.
STEP = 0.9


@dataclass(frozen=True)
class NetworkCosts:
    """Costs of a network with an operator in its layers: FLOPs (2 a multiply-add, for one example) and parameters."""

    flops: int
    params: int


@runtime_checkable
class HasFrontSearch(Protocol):
    """A space with its own search algorithm along the front of reward and costs."""

    def front_search(self, root: State, rng: random.Random, objectives: Sequence[str]) -> Search:
        """Return a search that begins at the first state; ``objectives`` are names of costs."""


class Space:
    """The operators that fit all replaced layers of a backbone and keep the network within the limits.

    Attributes:
        systems: the systems of the operators; ``operators``: their search space for this backbone.
        baseline: the costs of the network without an operator.
        replaced_flops: the FLOPs of the replaced layers.
        most_flops: the most FLOPs of the network with an operator.
        most_traffic: the most memory traffic of an operator, see :meth:`traffic`; None: no limit.

    Raises SpecError if the backbone has no layer to replace, or the limit leaves no FLOPs for an operator.
    """

    def __init__(self, settings: SearchSettings) -> None:
        request = settings.training
        #: The fields of the request that determine the network.
        self.network = TrialRequest(
            backbone=request.backbone,
            options=request.options,
            data=request.data,
            resolution=request.resolution,
            own=request.own,
        )
        self.systems = tuple(map(find_system, settings.systems))
        self.is_whole = any(isinstance(system, OfNetworks) for system in self.systems)
        if self.is_whole:
            _check_whole(settings, self.systems)
        _check_options(settings.system_options, self.systems)
        rules = own_rules(settings)
        if rules and (unruled := [system.title for system in self.systems if not isinstance(system, Ruled)]):
            ruled = ", ".join(system.title for system in all_systems() if isinstance(system, Ruled))
            raise SpecError(
                f"rules of your own: expected a search of {ruled}, found {', '.join(unruled)}; leave them out"
            )
        self._reward = own_reward(settings)
        self.sites: list[Site] = [] if self.is_whole else sites_of(request)
        self.strides: Strides = request.options.get("strides", "pool")
        # Layers that differ only in their names have equal costs: ResNet-20's 18 layers are of 6 kinds.
        kinds = Counter(replace(site, name="") for site in self.sites)
        self._kinds = sorted(kinds.items(), key=lambda pair: -pair[0].flops)
        survey = survey_of(request)
        self.baseline = NetworkCosts(survey.flops, survey.params)
        self.replaced_flops = survey.flops if self.is_whole else sum(site.flops for site in self.sites)
        rest_params = 0 if self.is_whole else survey.params - sum(site.params for site in self.sites)
        self._rest = NetworkCosts(survey.flops - self.replaced_flops, rest_params)
        self.most_traffic = None if self.is_whole else settings.max_traffic_ratio
        ratio = settings.max_replaced_ratio
        spare = int(ratio * self.replaced_flops)
        self.most_flops = self._rest.flops + spare
        if not spare:
            raise SpecError(
                f"max_replaced_ratio: expected a share that leaves FLOPs for an operator, found {ratio} "
                f"of the {self.replaced_flops:,} that the replaced layers of {request.backbone} take; raise it"
            )
        self._first: dict[str, int] = {}  # hashes of accepted operators by the function's key
        self._drawn: set[int] = set()
        self._wished: set[int] = set()
        self._wished_keys: set[int] = set()
        self._scored: set[int] = set()
        self._costs = lru_cache(maxsize=COSTS_KEPT)(self._computed_costs)  # many calls repeat an operator
        space_request = SpaceRequest(
            self.sites,
            self.strides,
            spare,
            settings.coefficients,
            settings.occurrences or {},
            settings.limits,
            settings.weight_limits,
            None if settings.wants == DERIVED else settings.wants or "",
            lambda key: self._drawn.add(hash(key)),
            lambda key: self._wished_keys.add(hash(key)),
            settings.system_options,
            lambda: example_of(request),
        )
        self.operators: OperatorSpace = (
            space_of(self.systems[0], space_request, rules)
            if len(self.systems) == 1
            else JointSpace(self.systems, space_request, rules)
        )

    def costs(self, operator: Operator) -> NetworkCosts | None:
        """Return the costs of the network with the operator in all its layers; None if it does not fit a layer."""
        return self._costs(operator)

    def _computed_costs(self, operator: Operator) -> NetworkCosts | None:
        system = system_of(operator)
        if isinstance(system, OfNetworks):
            return NetworkCosts(*system.network_costs(operator))
        flops, params = self._rest.flops, self._rest.params
        for _, number, place in self._places(operator):
            if not place.replaced:
                return None
            flops += number * place.flops
            params += number * place.params
        return NetworkCosts(flops, params)

    def fitting_costs(self, operator: Operator) -> NetworkCosts:
        """Return :meth:`costs` of an operator. Raises SpecError where the operator does not fit a layer."""
        costs = self.costs(operator)
        if costs is None:
            raise SpecError("expected an operator for every layer, found one that does not fit")
        return costs

    def traffic(self, operator: Operator) -> float:
        """Return the elements that an operator stores (:meth:`.System.traffic`), as a multiple of the layers' outputs.

        Raises SpecError where the operator does not fit a layer.
        """
        stored = layers = 0
        for site, number, place in self._places(operator):
            if place.binding is None:
                raise SpecError(f"expected an operator for every layer, found one that does not fit: {place.reason}")
            stored += number * site.calls * system_of(operator).traffic(operator, place.binding)
            layers += number * site.output_elements
        return stored / layers

    def sizes(self, operator: Operator) -> Layers:
        """Return the operator's sizes in each size of layers, the most FLOPs first; nothing for a whole network."""
        names = {replace(site, name=""): site.name for site in reversed(self.sites)}
        places = [] if self.is_whole else self._places(operator)
        return tuple([LayerSizes(names[site], number, at.binding) for site, number, at in places if at.binding])

    def _places(self, operator: Operator) -> Iterator[tuple[Site, int, Place]]:
        """Yield each size of layers, the number of layers of this size, and the operator in one of them."""
        for site, number in self._kinds:
            (place,) = system_of(operator).placement(operator, [site], self.strides).places
            yield site, number, place

    def accepts(self, operator: Operator) -> bool:
        """Whether the operator fits all layers and the network is within the limits."""
        costs = self.costs(operator)
        if costs is None or costs.flops > self.most_flops:
            return False
        return self.most_traffic is None or self.traffic(operator) <= self.most_traffic

    @property
    def limits(self) -> str:
        """The limits of operators as text, for messages."""
        flops = f"within {self.replaced_share(self.most_flops):.0%} of the replaced layers' FLOPs"
        return flops if self.most_traffic is None else f"{flops} and {self.most_traffic:g} times the memory traffic"

    def share(self, operator: Operator) -> float:
        """Return the operator's FLOPs in all replaced layers, as a share of the limit.

        Raises SpecError where the operator does not fit a layer.
        """
        return (self.fitting_costs(operator).flops - self._rest.flops) / (self.most_flops - self._rest.flops)

    def lower(self, flops: int) -> bool:
        """Limit operators to :data:`STEP` times the FLOPs of one operator, whose network has ``flops``.

        Return whether the limit is lower now. Operators above the limit are no longer in the space.
        """
        spare = max(1, int(STEP * (flops - self._rest.flops)))
        if self._rest.flops + spare >= self.most_flops:
            return False
        self.most_flops = self._rest.flops + spare
        self.operators.lower(spare)
        return True

    def replaced_share(self, flops: int) -> float:
        """Return the replaced layers' FLOPs in a network of ``flops``, divided by their FLOPs in the baseline."""
        return (flops - self._rest.flops) / self.replaced_flops

    def reward(self, measure: float, flops: int, params: int, latency_ms: float | None = None) -> float:
        """Return the search's reward for a trained operator: the measure, or the user's own reward.

        Args:
            measure: the accuracy, or the measure of a rung.
            flops: FLOPs of the network with the operator.
            params: parameters of the network with the operator.
            latency_ms: the latency of the network; None if it was not measured.

        Raises CodeError where the user's function fails, or returns no number from 0 to 1.
        """
        if self._reward is None:
            return measure
        shares = flops / self.baseline.flops, params / max(1, self.baseline.params)
        return self._reward(Judged(measure, *shares, self.replaced_share(flops), latency_ms))

    def probe(self, operator: Operator) -> Mapping[str, float]:
        """Return what the system's probe measures for the operator, with its score (:meth:`.OperatorSpace.probe`).

        Raises SpecError where the system has no probe.
        """
        results = self.operators.probe(operator)
        if results is None:
            raise SpecError(
                f"untrained: expected a system with a probe, found {system_of(operator).title}; choose another by "
                "--system, or "
                "leave --untrained out"
            )
        return results

    def probed(self, operator: Operator) -> dict[str, JSON]:
        """Return the field ``probe`` for an operator's outcome; empty where the system has no probe."""
        results = self.operators.probe(operator)
        return {} if results is None else {"probe": {**results}}

    @property
    def has_probe(self) -> bool:
        """Whether each system has a probe, and the probe has a result for the operators that compute the layers."""
        return all(map(self._has_probe, self.systems))

    def _has_probe(self, system: System) -> bool:
        if not isinstance(system, ComputesLayers):
            return False
        for site in self.sites:
            with suppress(SpecError):
                operator, _ = system.for_layer(site)
                return self.operators.probe(operator) is not None
        return False

    def score(self, operator: Operator) -> float:
        """Return the score of the probe, from 0 to 1. Raises SpecError where the system has no probe."""
        self._scored.add(hash(operator))
        return min(1.0, max(0.0, self.probe(operator)["score"]))

    @cached_property
    def root(self) -> State:
        """The first state of the space; repeats (operators with the function of an earlier operator) are refused."""
        first = self._first

        def accepts(operator: Operator) -> bool:
            own_hash = hash(operator)
            self._wished.add(own_hash)
            # Another form of an earlier operator is rejected; the earlier operator itself is accepted again.
            return self.accepts(operator) and first.setdefault(self.operators.name_of(operator), own_hash) == own_hash

        return self.operators.root(accepts)

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of different operators in each part of the funnel.

        ``drawn``: complete states; for a system that does not count them, the operators that meet the wish.
            ``wished``: operators that meet the wish. ``affordable``: operators within the limits, without repeats.
            ``probed``: operators with a score.
        """
        wished = max(len(self._wished), len(self._wished_keys))
        return {
            "drawn": max(len(self._drawn), wished),
            "wished": wished,
            "affordable": len(self._first),
            "probed": len(self._scored),
        }

    def elite_search(self, rng: random.Random) -> EliteSearch:
        """Return a search by elites; each system has its own elites."""
        return EliteSearch(self.root, rng, cost=self.share, group=lambda operator: operator.format)

    def search(self, settings: SearchSettings, prior: Callable[[Operator], float] | None = None) -> Search:
        """Return a new search by the settings' method and seed, from :attr:`root`.

        Args:
            settings: the settings.
            prior: a function from an operator to a number, higher for a higher expected reward, for methods with an
                estimate. An example is :meth:`score`.
        """
        rng = random.Random(settings.seed)  # noqa: S311 - for choices, not for secrets
        if settings.method == "estimate":
            return EstimateSearch(self.root, rng, prior=prior)
        if settings.method == "mcts":
            policy, chosen = (rave(), mcts.RAVE) if settings.tree == "rave" else (uct(), mcts.Settings())
            chosen = replace(chosen, virtual_loss=settings.virtual_loss)
            return MonteCarloTreeSearch(self.root, rng, policy=policy, settings=chosen)
        if settings.method == "elites":
            return self.elite_search(rng)
        if settings.method == "pareto":
            if isinstance(self.operators, HasFrontSearch):
                return self.operators.front_search(self.root, rng, settings.objectives)
            costs: dict[str, Callable[[Operator], float]] = {
                "flops": lambda operator: self.fitting_costs(operator).flops,
                "params": lambda operator: self.fitting_costs(operator).params,
            }
            return ParetoEvolution(self.root, rng, objectives=settings.objectives, costs=costs)
        return {"random": RandomSearch, "evolution": RegularizedEvolution}[settings.method](self.root, rng)


def _check_whole(settings: SearchSettings, systems: Sequence[System]) -> None:
    """Refuse settings that need operators for layers, because these systems have whole networks as operators."""
    titles = ", ".join(system.title for system in systems)
    if len(systems) > 1:
        raise SpecError(f"system: expected whole networks alone, or operators for layers alone, found {titles}")
    sums = settings.tuning is not None and not settings.tuning.is_whole
    for name, is_set in (("rungs", settings.rungs), ("tuning of layers", sums)):
        if is_set:
            raise SpecError(f"{name}: expected operators for layers, found whole networks of {titles}; leave it out")


def _check_options(options: Mapping[str, str], systems: Sequence[System]) -> None:
    optioned = [system for system in systems if isinstance(system, Optioned)]
    known = {name: values for system in optioned for name, values in system.space_options.items()}
    titles = ", ".join(system.title for system in systems)
    for name, value in options.items():
        if name not in known:
            expected = ", ".join(known) or "none"
            raise SpecError(f"option of {titles}: expected {expected}, found {quoted(name)}")
        if value not in known[name]:
            expected = ", ".join(known[name])
            raise SpecError(f"option {name} of {titles}: expected one of {expected}, found {quoted(value)}")
