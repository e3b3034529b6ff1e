"""The variants of a seed network as a space (:class:`.OperatorSpace`) for any search, and αNAS's evolution in it.

A state is a variant. Its children are to stop there, and mutations by their numbers: each is drawn with the state and
its number as the seed, so it is the same whenever it is looked at. A search finds its way back to a variant by the
edits.
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

#: The name of the step that ends a way.
STOP = "stop"
#: Mutations that are offered in each state.
BREADTH = 64


@dataclass(frozen=True)
class Settings:
    """What all states of a space share.

    Attributes:
        mutations: their rules.
        breadth: how many mutations are offered in each state.
        most_edits: of a variant.
        accepts: whether a network is in the space, such as by its FLOPs.

    Raises SearchError for a number below 1, or more edits than a variant may have.
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
    """A variant, as a state of a search; it ``is_complete`` where it stays as it is."""

    variant: Variant
    settings: Settings = field(default_factory=Settings)
    is_complete: bool = False

    @property
    def key(self) -> Hashable:
        """Of a complete one its structure; mutations depend on the types and the numbers of nodes too."""
        if self.is_complete:
            return self.variant.key
        return self.variant.network.digest, len(self.variant.edits)

    def children(self) -> Sequence[Child]:
        """To stop, as likely as to go on, then the mutations."""
        if self.is_complete:
            return ()
        breadth = self.settings.breadth if len(self.variant.edits) < self.settings.most_edits else 0
        return [Taken(self.stop(), float(max(1, breadth))), *(_Mutation(self, number) for number in range(breadth))]

    def operator(self) -> NetworkOperator | None:
        """The variant as an operator, where the space accepts it."""
        if not self.is_complete:
            return None
        found = NetworkOperator(self.variant)
        return found if self.settings.accepts(found) else None

    def traits(self) -> Mapping[str, int]:
        """How often each operation is in the network, and how many blocks it has."""
        if not self.is_complete:
            return {}
        network = self.variant.network
        return {**Counter(node.operation.name for node in network.graph.nodes), "blocks": len(network.blocks)}

    def towards(self, operator: Any) -> Sequence[Step]:
        """The next edit of a variant of the same seed, or to stop."""
        if self.is_complete or not isinstance(operator, NetworkOperator):
            return ()
        done, edits = self.variant.edits, operator.variant.edits
        is_later = edits[: len(done)] == done and len(edits) <= self.settings.most_edits
        if not is_later or operator.variant.seed.digest != self.variant.seed.digest:
            return ()
        return [self.stop() if len(edits) == len(done) else self.step(edits[len(done)])]

    def stop(self) -> Step:
        """The step to the complete state."""
        return Step(STOP, (STOP,), NetworkState(self.variant, self.settings, is_complete=True), steps=0)

    def step(self, edit: Edit) -> Step:
        """The step that an edit is, told by types of blocks, which mean the same elsewhere. Raises as the edit."""
        number = edit.blocks[0] if isinstance(edit, Replacement) else edit.block
        kind = self.variant.network.blocks[number].kind
        done = f"{words(edit.old)} -> {words(edit.new)}" if isinstance(edit, Replacement) else str(edit).split()[0]
        after = NetworkState(self.variant.edited(edit), self.settings)
        return Step(str(edit), (f"{kind}: {done}",), after)


@dataclass(frozen=True)
class _Mutation:
    """A mutation by its number."""

    state: NetworkState
    number: int
    weight = 1.0

    def steps(self) -> Sequence[Step]:
        """One, or none where none was found."""
        network = self.state.variant.network
        if not any(block.mutable for block in network.blocks):
            return ()
        rng = random.Random(f"{network.digest} {self.number}")  # noqa: S311 - for choices
        edit = mutate(network, rng, self.state.settings.mutations)
        return () if edit is None else (self.state.step(edit),)


class Evolution(ParetoEvolution):
    """αNAS: the seed first, then mutations of variants along the front (sections 5 and 7 of the specification).

    The paper trains the seed twice, to see the noise of training; here each structure is asked for once.

    >>> import syno_lab as sl
    >>> network = sl.alpha.Network.from_json(open("network.json").read())  # doctest: +SKIP
    >>> search = sl.alpha.Evolution(network, objectives=("params", "latency"))  # doctest: +SKIP
    >>> candidate = search.ask()  # doctest: +SKIP
    >>> search.tell(candidate, accuracy, {"latency": seconds})  # doctest: +SKIP

    Args:
        seed: the network to begin with, or a state of a space, which brings its settings.
        rng: the only source of chance, or a number for it.
        objectives: what is to be small: ``flops`` and ``params`` are known, others come with :meth:`tell`.
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

    def _begun(self) -> tuple[Step, ...] | None:
        stop = self._seed.stop()
        return (stop,) if self.facts.is_open(stop.state) else self._varied((stop,))

    def _varied(self, parent: tuple[Step, ...]) -> tuple[Step, ...] | None:
        """One more edit, in place of the stop."""
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

    Raises SpecError for a request without a network, one that cannot be traced or has nothing that may be changed, and
    for settings that are those of operators in layers: one line.
    """

    def __init__(self, request: SpaceRequest) -> None:
        if request.network is None:
            raise SpecError("αNAS: expected the network to begin with, found layers alone")
        for name, given in (("coefficients", request.coefficients), ("occurrences", request.occurrences)):
            if given:
                raise SpecError(f"αNAS: {name}: expected none for whole networks, found {quoted(given)}")
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
            if not meets(block, self.wants):  # nothing says that edits could meet it
                (mixing,) = block.graph.properties().mixing[0]
                said = " ".join("".join(row) for row in mixing.marks)
                found = f"{quoted(self.wants)}; block {number} has {said}"
                raise SpecError(f"αNAS: wants: expected what the network's own blocks mix, found {found}")

    def __str__(self) -> str:
        kinds = self.seed.kinds
        return f"networks that edits of {len(self.seed.blocks)} blocks of {len(kinds)} types lead to"

    @property
    def wants(self) -> str:
        """What each block must mix, as text; empty for nothing: mutations keep what a part does, relaxed by chance."""
        return self._request.wants or ""

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
