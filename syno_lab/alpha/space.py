"""The variants of a seed network as a space (:class:`.OperatorSpace`) for any search, and αNAS's evolution in it.

A state is a variant. The children of a state are the stop (no further edit) and numbered mutations. The network and the
number of a mutation seed the mutation's random generator, so each call gives the same mutation. A search finds a
variant again by the variant's edits.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from syno_lab.alpha.blocks import Block, Network, find_blocks, why_none
from syno_lab.alpha.edits import MOST_EDITS, Edit, Replacement, Variant, words
from syno_lab.alpha.mutating import METHODS_AND_RIVALS, Mutations, mutate
from syno_lab.alpha.operator import NetworkOperator
from syno_lab.alpha.properties import RELAXATIONS
from syno_lab.alpha.wanted import Properties
from syno_lab.errors import SearchError, SpecError
from syno_lab.inputs import positive, quoted
from syno_lab.protocol import OperatorSpace, SpaceRequest
from syno_lab.search import Search
from syno_lab.search.pareto import SELECTIONS, ParetoEvolution, Selection
from syno_lab.search.protocol import Child, State, Step, Taken

#: The name of the step after which a variant gets no further edit.
STOP = "stop"
#: The default number of mutations of each state.
BREADTH = 64


@dataclass(frozen=True)
class Settings:
    """The settings of all states of a space.

    Attributes:
        mutations: the rules of mutations.
        breadth: the number of mutations in each state.
        most_edits: the limit of edits of a variant.
        accepts: a function that returns whether a network is in the space, for instance by its FLOPs.

    Raises SearchError for a number below 1, or more edits than a variant can have.
    """

    mutations: Mutations = field(default_factory=Mutations)
    breadth: int = BREADTH
    most_edits: int = MOST_EDITS
    accepts: Callable[[NetworkOperator], bool] = lambda operator: True

    def __post_init__(self) -> None:
        if positive(self.breadth) is None:
            raise SearchError(f"breadth: expected an integer of 1 or more, found {quoted(self.breadth)}")
        if positive(self.most_edits) is None or self.most_edits > MOST_EDITS:
            expected = f"an integer from 1 to {MOST_EDITS}"
            raise SearchError(f"most_edits: expected {expected}, found {quoted(self.most_edits)}")


@dataclass(frozen=True, eq=False)
class NetworkState:
    """A variant as a state of a search; a complete state has no further edits."""

    variant: Variant
    settings: Settings = field(default_factory=Settings)
    is_complete: bool = False

    @property
    def key(self) -> Hashable:
        """The network's structure for a complete state; otherwise the network's digest and the number of edits."""
        if self.is_complete:
            return self.variant.key
        return self.variant.network.digest, len(self.variant.edits)

    def children(self) -> Sequence[Child]:
        """Return the stop, which a search draws with probability 1/2, then the mutations."""
        if self.is_complete:
            return ()
        breadth = self.settings.breadth if len(self.variant.edits) < self.settings.most_edits else 0
        return [Taken(self.stop(), float(max(1, breadth))), *(_Mutation(self, number) for number in range(breadth))]

    def operator(self) -> NetworkOperator | None:
        """Return the variant as an operator; None where the state is incomplete or the space rejects the variant."""
        if not self.is_complete:
            return None
        operator = NetworkOperator(self.variant)
        return operator if self.settings.accepts(operator) else None

    def traits(self) -> Mapping[str, int]:
        """Return the count of each operation in the network, and the number of blocks."""
        if not self.is_complete:
            return {}
        network = self.variant.network
        return {**Counter(node.operation.name for node in network.graph.nodes), "blocks": len(network.blocks)}

    def towards(self, operator: Any) -> Sequence[Step]:
        """Return the next edit towards a variant of the same seed, or the stop if the state is the variant."""
        if self.is_complete or not isinstance(operator, NetworkOperator):
            return ()
        done, edits = self.variant.edits, operator.variant.edits
        is_later = edits[: len(done)] == done and len(edits) <= self.settings.most_edits
        if not is_later or operator.variant.seed.digest != self.variant.seed.digest:
            return ()
        return [self.stop() if len(edits) == len(done) else self.step(edits[len(done)])]

    def stop(self) -> Step:
        """Return the step to the complete state."""
        return Step(STOP, (STOP,), NetworkState(self.variant, self.settings, is_complete=True), steps=0)

    def step(self, edit: Edit) -> Step:
        """Return an edit as a step; its action names only the block type, not the block. Raises as the edit does."""
        number = edit.blocks[0] if isinstance(edit, Replacement) else edit.block
        kind = self.variant.network.blocks[number].kind
        change = f"{words(edit.old)} -> {words(edit.new)}" if isinstance(edit, Replacement) else str(edit).split()[0]
        after = NetworkState(self.variant.edited(edit), self.settings)
        return Step(str(edit), (f"{kind}: {change}",), after)


@dataclass(frozen=True)
class _Mutation:
    """A child of a state: the mutation of this number."""

    state: NetworkState
    number: int
    weight = 1.0

    def steps(self) -> Sequence[Step]:
        """Return the step of the mutation; return nothing if no draw gives a mutation that fits."""
        network = self.state.variant.network
        if not any(block.mutable for block in network.blocks):
            return ()
        rng = random.Random(f"{network.digest} {self.number}")  # noqa: S311 - for choices
        edit = mutate(network, rng, self.state.settings.mutations)
        return () if edit is None else (self.state.step(edit),)


class Evolution(ParetoEvolution):
    """The search of αNAS: the seed first, then mutations of variants on the front (the specification, 5 and 7).

    The paper trains the seed twice to measure the noise of training; this search proposes each structure once.

    >>> import syno_lab as sl
    >>> network = sl.alpha.Network.from_json(open("network.json").read())  # doctest: +SKIP
    >>> search = sl.alpha.Evolution(network, objectives=("params", "latency"))  # doctest: +SKIP
    >>> candidate = search.ask()  # doctest: +SKIP
    >>> search.tell(candidate, accuracy, {"latency": seconds})  # doctest: +SKIP

    Args:
        seed: the first network, or a state of a space with its settings.
        rng: the only random generator, or a seed for it.
        objectives: the costs to minimise; ``flops`` and ``params`` are computed, :meth:`tell` takes all others.
        selection: see :class:`.ParetoEvolution`.
        mutations, breadth, most_edits, accepts: see :class:`Settings`.

    Raises SearchError as :class:`.ParetoEvolution` and :class:`Settings`.
    """

    def __init__(
        self,
        seed: Network | NetworkState,
        rng: random.Random | int = 0,
        *,
        objectives: Sequence[str] = ("flops", "params"),
        selection: Selection | str = "paper",
        mutations: Mutations | None = None,
        breadth: int = BREADTH,
        most_edits: int = MOST_EDITS,
        accepts: Callable[[NetworkOperator], bool] = lambda operator: True,
    ) -> None:
        settings = Settings(mutations or Mutations(), breadth, most_edits, accepts)
        self._seed = seed if isinstance(seed, NetworkState) else NetworkState(Variant(seed), settings)
        super().__init__(
            self._seed,
            rng if isinstance(rng, random.Random) else random.Random(rng),  # noqa: S311 - for choices
            objectives=objectives,
            costs={"flops": NetworkOperator.flops, "params": NetworkOperator.params},
            start=1,
            selection=selection,
        )

    def _first_steps(self) -> tuple[Step, ...] | None:
        stop = self._seed.stop()
        return (stop,) if self.facts.is_open(stop.state) else self._mutation((stop,))

    def _mutation(self, parent: tuple[Step, ...]) -> tuple[Step, ...] | None:
        """Return the steps of ``parent`` with one more edit before the stop, or None if no new edit is found."""
        before = parent[:-1]
        at = before[-1].state if before else self.root
        mutations = at.children()[1:]
        steps = self.rng.choice(mutations).steps() if mutations else ()
        if not steps:
            return None
        (step,) = steps
        assert isinstance(step.state, NetworkState)
        stop = step.state.stop()
        return (*before, step, stop) if self.facts.is_open(stop.state) else None


#: The values of each option: how new subgraphs are made, how properties are relaxed, how parents are selected. The
#: first value of an option is the default.
OPTIONS: Mapping[str, Sequence[str]] = {
    "mutations": METHODS_AND_RIVALS,
    "relax": tuple(RELAXATIONS),
    "selection": tuple(SELECTIONS),
}


def meets(block: Block, wants: str) -> bool:
    """Return whether a block mixes its axes (B, H, W, C) as ``wants`` says; an immutable block always does."""
    if not wants or not block.mutable or len(block.graph.inputs) != 1 or len(block.graph.outputs) != 1:
        return True
    wished = Properties.of_wishes(wants, block.graph.inputs[0])
    return Properties(mixing=wished.mixing).satisfied_by(block.graph)


class NetworkSpace(OperatorSpace):
    """The variants of the request's network whose mutable blocks meet the request's wishes.

    Raises SpecError in one line for a request without a network, a network that cannot be traced or has no mutable
    block, and settings of operators in layers.
    """

    def __init__(self, request: SpaceRequest) -> None:
        if request.network is None:
            raise SpecError("αNAS: expected the network to begin with, found layers alone")
        for name, values in (("coefficients", request.coefficients), ("occurrences", request.occurrences)):
            if values:
                raise SpecError(f"αNAS: {name}: expected none for whole networks, found {quoted(values)}")
        if unknown := sorted(set(request.limits) - {"max_edits"}):
            raise SpecError(f"αNAS: limits: expected some of max_edits, found {quoted(unknown)}")
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
        self._selection, self._request, self._spare = chosen["selection"], request, request.spare_flops
        for number, block in enumerate(self.seed.blocks):
            if not meets(block, self.wants):  # otherwise, perhaps no edit could meet the wish
                (mixing,) = block.graph.properties().mixing[0]
                marks = " ".join("".join(row) for row in mixing.marks)
                actual = f"{quoted(self.wants)}; block {number} has {marks}"
                raise SpecError(f"αNAS: wants: expected a wish that the network's own blocks meet, found {actual}")

    def __str__(self) -> str:
        kinds = self.seed.kinds
        return f"networks that edits of {len(self.seed.blocks)} blocks of {len(kinds)} types lead to"

    @property
    def wants(self) -> str:
        """The wishes that each mutable block must meet, as text; empty for none. A mutation may break a wish."""
        return self._request.wants or ""

    def root(self, accepts: Callable[[Any], bool]) -> State:
        """Return the state of the seed without edits, incomplete."""

        def accepted(operator: NetworkOperator) -> bool:
            self._request.drawn(operator.variant.key)
            if not all(meets(block, self.wants) for block in operator.variant.network.blocks):
                return False
            self._request.wished(operator.variant.key)
            return operator.flops() <= self._spare and accepts(operator)

        return NetworkState(Variant(self.seed), replace(self._settings, accepts=accepted))

    def known(self, root: State) -> Mapping[str, NetworkOperator]:
        """Return no operators, because the only known network, the seed, is the baseline."""
        return {}

    def name_of(self, operator: NetworkOperator) -> str:
        """Return a key that is equal for networks of one structure."""
        return operator.variant.key

    def lower(self, spare_flops: int) -> None:
        """Accept only networks of at most ``spare_flops`` FLOPs from now on."""
        self._spare = spare_flops

    def front_search(self, root: State, rng: random.Random, objectives: Sequence[str]) -> Search:
        """Return αNAS's evolution, from :meth:`root` (Algorithm 2)."""
        assert isinstance(root, NetworkState)
        return Evolution(root, rng, objectives=objectives, selection=self._selection)
