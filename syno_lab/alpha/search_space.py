"""The networks that edits of a backbone lead to, as a search of the lab finds them (:class:`.OperatorSpace`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from syno_lab.alpha.blocks import Block, Network, find_blocks, why_none
from syno_lab.alpha.edits import MOST_EDITS, Variant
from syno_lab.alpha.mutating import METHODS_AND_RIVALS, Mutations
from syno_lab.alpha.operator import NetworkOperator
from syno_lab.alpha.properties import MIXING, RELAXATIONS
from syno_lab.alpha.space import Evolution, NetworkState, Settings
from syno_lab.alpha.wanted import Properties
from syno_lab.errors import SpecError
from syno_lab.inputs import positive, quoted
from syno_lab.protocol import OperatorSpace, SpaceRequest
from syno_lab.search import Search
from syno_lab.search.pareto import SELECTIONS
from syno_lab.search.protocol import State

#: The limits of the space, by the names in which a user gives them.
LIMITS = ("max_edits",)
#: Options of the space: how a new subgraph is found, how properties are relaxed, how parents are chosen. The first of
#: each is the default.
OPTIONS: Mapping[str, Sequence[str]] = {
    "mutations": METHODS_AND_RIVALS,
    "relax": tuple(RELAXATIONS),
    "selection": tuple(SELECTIONS),
}


def meets(block: Block, wants: str) -> bool:
    """Whether a block mixes its axes (B, H, W, C) as is wished; one that is never changed counts as such."""
    if not wants or not block.mutable or len(block.graph.inputs) != 1 or len(block.graph.outputs) != 1:
        return True
    wished = Properties.of_wishes(wants, block.graph.inputs[0])
    return Properties(mixing=wished.mixing).satisfied_by(block.graph)


class NetworkSpace(OperatorSpace):
    """Variants of the request's network. A wish holds for each of its blocks.

    Raises:
        SpecError: for a request without a network, one that cannot be traced or has nothing that may be changed, and
            for settings that are those of operators in layers: one line.
    """

    def __init__(self, request: SpaceRequest) -> None:
        if request.network is None:
            raise SpecError("αNAS: expected the network to begin with, found layers alone")
        for name, given in (
            ("coefficients", request.coefficients),
            ("occurrences", request.occurrences),
        ):
            if given:
                raise SpecError(f"αNAS: {name}: expected none for whole networks, found {quoted(given)}")
        if unknown := sorted(set(request.limits) - set(LIMITS)):
            raise SpecError(f"αNAS: limits: expected some of {', '.join(LIMITS)}, found {quoted(unknown)}")
        edits = request.limits.get("max_edits", MOST_EDITS)
        if positive(edits) is None or edits > MOST_EDITS:
            raise SpecError(f"αNAS: max_edits: expected a whole number from 1 to {MOST_EDITS}, found {quoted(edits)}")
        from syno_lab.alpha.tracing import trace

        graph = trace(*request.network())
        self.seed: Network = find_blocks(graph)
        if not any(block.mutable for block in self.seed.blocks):
            raise SpecError(f"αNAS: expected a network with blocks that may be changed, found none: {why_none(graph)}")
        chosen = {name: values[0] for name, values in OPTIONS.items()} | dict(request.options)
        self._settings = Settings(Mutations(relax=chosen["relax"], method=chosen["mutations"]), most_edits=edits)
        self._selection = chosen["selection"]
        self._request = request
        self._wants = request.wants or ""
        self._check_wants()
        self._spare = request.spare_flops

    def __str__(self) -> str:
        kinds = self.seed.kinds
        return f"networks that edits of {len(self.seed.blocks)} blocks of {len(kinds)} types lead to"

    @property
    def wants(self) -> str:
        """What each block must mix, as text; empty for nothing: mutations keep what a part does, relaxed by chance."""
        return self._wants

    def _check_wants(self) -> None:
        """Raise SpecError for a wish that the network itself misses: nothing says that edits could meet it."""
        for number, block in enumerate(self.seed.blocks):
            if not meets(block, self.wants):
                mixing = MIXING.infer(block.graph)[0][0]
                assert mixing is not None
                said = " ".join("".join(row) for row in mixing.marks)
                found = f"{quoted(self.wants)}; block {number} has {said}"
                raise SpecError(f"αNAS: wants: expected what the network's own blocks mix, found {found}")

    def root(self, accepts: Callable[[Any], bool]) -> State:
        """The seed, which more edits may follow."""

        def accepted(operator: NetworkOperator) -> bool:
            self._request.drawn(operator.variant.key)
            if not all(meets(block, self.wants) for block in operator.variant.network.blocks):
                return False
            self._request.wished(operator.variant.key)
            return operator.flops() <= self._spare and accepts(operator)

        return NetworkState(Variant(self.seed), replace(self._settings, accepts=accepted))

    def known(self, root: State) -> Mapping[str, NetworkOperator]:
        """None: the seed is the baseline."""
        return {}

    def name_of(self, operator: NetworkOperator) -> str:
        """Equal for networks of one structure."""
        return operator.variant.key

    def lower(self, spare_flops: int) -> None:
        """Accept networks of at most so many FLOPs from now on."""
        self._spare = spare_flops

    def front_search(self, root: State, rng: random.Random, objectives: Sequence[str]) -> Search:
        """αNAS's evolution, from :meth:`root` (Algorithm 2)."""
        assert isinstance(root, NetworkState)
        return Evolution(root, rng, objectives=objectives, selection=self._selection)
