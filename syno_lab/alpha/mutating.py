"""Mutation of a network: a block twice, a block less, or another subgraph in blocks of one type (αNAS, section 5).

A subgraph is drawn in a random block; its properties are inferred and relaxed, and a graph that satisfies them takes
its place there and, by chance, in other blocks of the type.

Where the subgraph leads into an operation with several inputs, such as the sum at the end of a residual block, its
shape is kept: it is a part of a chain inside the block, and the shapes of inner chains are not mutated (section 4.6).
Another shape hardly ever fits: in ResNet-20 6 of 210 did.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from syno_lab.alpha import operator_node
from syno_lab.alpha.blocks import Network
from syno_lab.alpha.edits import Deletion, Duplication, Edit, Replacement
from syno_lab.alpha.graph import Graph, Region
from syno_lab.alpha.operations import Operation
from syno_lab.alpha.properties import RELAXATIONS, Relax
from syno_lab.alpha.rivals import RIVALS
from syno_lab.alpha.rivals import mutate as mutate_as_rival
from syno_lab.alpha.skeleton import DROP, synthesise_again
from syno_lab.alpha.synthesis import METHODS
from syno_lab.errors import SearchError, SpecError
from syno_lab.inputs import positive, quoted

#: How a new subgraph is found: by a synthesis for its properties, or as rivals of αNAS do, which know none.
METHODS_AND_RIVALS = (*METHODS, *(name for name in RIVALS if name not in METHODS))


@dataclass(frozen=True)
class Mutations:
    """The rules of mutations; the probabilities are those of the authors' published code, of which the paper has none.

    Attributes:
        duplicate: the probability that a block is copied.
        delete: the probability that a block is deleted; with the rest a subgraph is replaced.
        others: the probability for each other block of the type to get the new subgraph too.
        relax: rules for the properties of the subgraph, or the name of a preset of :data:`~.properties.RELAXATIONS`.
        method: of the synthesis, one of :data:`~.synthesis.METHODS`, or a rival, one of :data:`~.rivals.RIVALS`.
        drop: how likely an input of a binary operation is dropped where it is not needed.
        operators: operators of other systems that may stand for an operation that does the same, each as an operation
            (:func:`.operator_node.operation_of`).
        going_on, most: how a subgraph grows, see :meth:`.Graph.choose_region`.
        attempts: how often a mutation is drawn before none is said to be found. The paper draws once, and a failure
            counts as an individual; a search whose trials are trainings gains by the next draw.

    Raises:
        SpecError: for a number that is no probability, shares above 1 together, and a name that is none.
    """

    duplicate: float = 0.2
    delete: float = 0.2
    others: float = 0.2
    relax: Relax | str = "paper"
    method: str = "progressive"
    drop: float = DROP
    going_on: float = 0.75
    most: float = 0.8
    attempts: int = 16
    operators: tuple[Operation, ...] = ()

    def __post_init__(self) -> None:
        for name in ("duplicate", "delete", "others", "drop", "going_on", "most"):
            found = getattr(self, name)
            if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= 1:
                raise SpecError(f"Mutations: {name}: expected a number from 0 to 1, found {quoted(found)}")
        if self.duplicate + self.delete > 1:
            found = self.duplicate + self.delete
            raise SpecError(f"Mutations: expected duplicate and delete of at most 1 together, found {found:g}")
        if isinstance(self.relax, str) and self.relax not in RELAXATIONS:
            expected = ", ".join(RELAXATIONS)
            raise SpecError(f"Mutations: relax: expected one of {expected}, found {quoted(self.relax)}")
        if self.method not in METHODS_AND_RIVALS:
            expected = ", ".join(METHODS_AND_RIVALS)
            raise SpecError(f"Mutations: method: expected one of {expected}, found {quoted(self.method)}")
        if not all(isinstance(one, Operation) and one.name == operator_node.NAME for one in self.operators):
            raise SpecError("Mutations: operators: expected operations of sl.alpha.operation_of, found others")
        if positive(self.attempts) is None:
            raise SpecError(f"Mutations: attempts: expected an integer of 1 or more, found {quoted(self.attempts)}")


def mutate(network: Network, rng: random.Random, rules: Mutations | None = None) -> Edit | None:
    """A random edit that fits the network and changes it; None where none was found.

    Args:
        network: with at least one block that may be changed.
        rng: the only source of chance.
        rules: of the mutation.

    Raises:
        SearchError: for a network in which nothing may be changed.
    """
    rules = Mutations() if rules is None else rules
    changeable = [number for number, block in enumerate(network.blocks) if block.mutable]
    if not changeable:
        raise SearchError(
            f"mutate: expected a block with nodes that may be changed, found none in {len(network.blocks)}"
        )
    for _ in range(rules.attempts):
        edit = _drawn(network, changeable, rng, rules)
        try:
            if edit is not None and edit.apply(network).key != network.key:
                return edit
        except SpecError:  # most often another shape than the rest of the block takes
            continue
    return None


def _drawn(network: Network, changeable: list[int], rng: random.Random, rules: Mutations) -> Edit | None:
    """One attempt."""
    kind = rng.random()
    number = rng.choice(changeable)
    if kind < rules.duplicate:
        return Duplication(number, rng.randint(0, len(network.blocks)))
    if kind < rules.duplicate + rules.delete:
        # Without the last one there would be nothing left to mutate.
        return Deletion(number) if len(changeable) > 1 else None
    block = network.blocks[number]
    region = block.graph.choose_region(rng, among=block.mutable, going_on=rules.going_on, most=rules.most)
    if region is None:
        return None
    alike = [other for other in network.kinds[block.kind] if other != number and rng.random() < rules.others]
    old = block.graph.subgraph(region)
    elsewhere = []
    for other in alike:
        graph = network.blocks[other].graph
        elsewhere.append(graph.subgraph(graph.region(region.nodes)))
    relax = RELAXATIONS[rules.relax] if isinstance(rules.relax, str) else rules.relax
    if _is_inner(region):
        relax = replace(relax, shape=0.0)
    new = _instead_of(old, rng, replace(rules, relax=relax), elsewhere)
    if new is None:
        return None
    blocks = tuple(sorted([number, *alike]))
    first = network.blocks[blocks[0]].graph
    shown = first.subgraph(first.region(region.nodes))
    try:
        return Replacement(blocks, tuple(sorted(region.nodes)), shown, new.at(*shown.inputs))
    except SpecError:  # a new shape that the first of the blocks cannot have
        return None


def _is_inner(region: Region) -> bool:
    """Whether the results of a region lead to an operation of its graph that has several inputs."""
    graph = region.graph
    open_, seen = list(region.outputs), set(region.nodes)
    while open_:
        for user in graph.users[open_.pop()]:
            if user not in seen:
                if len(graph.nodes[user].inputs) > 1:
                    return True
                seen.add(user)
                open_.append(graph.tensor(user))
    return False


def _instead_of(old: Graph, rng: random.Random, rules: Mutations, elsewhere: list[Graph]) -> Graph | None:
    if rules.method in METHODS:
        return synthesise_again(old, rng, rules.relax, rules.method, rules.drop, elsewhere, rules.operators)
    return mutate_as_rival(old, rules.method, rng)
