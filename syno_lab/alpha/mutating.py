"""Mutation of a network: a block twice, a block less, or another subgraph in blocks of one type (αNAS, section 5).

A subgraph is drawn in a random block; its properties are inferred and relaxed, and a graph that satisfies them takes
its place there and, by chance, in other blocks of the type.

Where the subgraph leads into an operation with several inputs, such as the sum at the end of a residual block, its
shape is kept: it is a part of a chain inside the block, and the shapes of inner chains are not mutated (section 4.6).
Another shape hardly ever fits: in ResNet-20 6 of 210 did.

Synthesis makes chains. Beyond one chain (section 4.6 and appendix B.4), operations with several inputs, and those that
rearrange axes or that are never chosen, are the *skeleton* of a graph. It stays as it is; each chain of other
operations between two parts of it is synthesised anew, for its own mutated properties.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from syno_lab.alpha import operator_node
from syno_lab.alpha.blocks import Network
from syno_lab.alpha.edits import Deletion, Duplication, Edit, Replacement
from syno_lab.alpha.graph import Graph, Node, Nodes
from syno_lab.alpha.operations import Operation, Shape
from syno_lab.alpha.properties import RELAXATIONS, Relax, check_shares, relax_of
from syno_lab.alpha.synthesis import METHODS, Draft, offered, random_subgraph, synthesise
from syno_lab.alpha.wanted import Properties
from syno_lab.errors import SearchError, SpecError
from syno_lab.inputs import positive, quoted

# -- a subgraph anew, chain by chain ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chain:
    """Operations in a row of which each takes the result of the one before, which nothing else takes.

    Attributes:
        nodes: their numbers in the graph, from the first to the last.
        operations: what they do.
        start: the tensor that the first one takes.
        is_last: whether the last one's result leaves the graph and nothing in it takes that.
    """

    nodes: tuple[int, ...]
    operations: tuple[Operation, ...]
    start: int
    is_last: bool


def chains(graph: Graph) -> tuple[Chain, ...]:
    """The longest chains of a graph, in order of their first operations."""
    ends: dict[int, list[int]] = {}
    found: list[list[int]] = []
    for number, node in enumerate(graph.nodes):
        if node.operation.row.role != "chosen":
            continue
        (tensor,) = node.inputs
        if tensor in ends and len(graph.users[tensor]) == 1 and tensor not in graph.outputs:
            chain = ends.pop(tensor)
        else:
            found.append(chain := [])
        chain.append(number)
        ends[graph.tensor(number)] = chain
    made = []
    for nodes in found:
        operations, end = tuple([graph.nodes[number].operation for number in nodes]), graph.tensor(nodes[-1])
        is_last = end in graph.outputs and not graph.users[end]
        made.append(Chain(tuple(nodes), operations, graph.nodes[nodes[0]].inputs[0], is_last))
    return tuple(made)


def with_chains(graph: Graph, exchanged: Mapping[Chain, Sequence[Operation]]) -> Graph:
    """The graph with other operations in place of some chains. Raises SpecError where one does not apply there."""
    inside = {number: chain for chain in exchanged for number in chain.nodes}
    made, tensors = Nodes(len(graph.inputs)), {number: number for number in range(len(graph.inputs))}
    for number, node in enumerate(graph.nodes):
        tensor, chain = graph.tensor(number), inside.get(number)
        if chain is None:
            tensors[tensor] = made.put(node, tensors)
        elif number == chain.nodes[-1]:
            tensors[tensor] = tensors[chain.start]
            for operation in exchanged[chain]:
                tensors[tensor] = made.put(Node(operation, (tensor,)), tensors)
    return Graph(graph.inputs, tuple(made), tuple([tensors[tensor] for tensor in graph.outputs]))


def synthesise_again(graph: Graph, rng: random.Random, rules: Mutations, others: Sequence[Graph] = ()) -> Graph | None:
    """A graph with the same skeleton, each chain of it synthesised for its own mutated properties.

    The shape between parts of the skeleton is not mutated. An input of a binary operation may be dropped where what is
    asked of the whole graph holds without it.

    Args:
        graph: the original.
        rng: chance.
        rules: only ``relax``, ``method``, ``drop`` and ``operators`` count here.
        others: the same graph in other instances, with other shapes of inputs. The answer applies to them and keeps the
            shapes of their outputs too, where it keeps those of the original; depth and mixing count in the original
            alone.

    Returns:
        None where one of the chains cannot be synthesised.
    """
    relax = relax_of(rules.relax)
    graph = _dropped(graph, Properties.of(graph).relax(rng, relax), rules.drop, rng, others)
    shapes = graph.shapes
    elsewhere = [graph.at(*one.inputs).shapes for one in others]
    exchanged: dict[Chain, Sequence[Operation]] = {}
    for chain in chains(graph):
        wanted = Properties.of(Graph.chain(shapes[chain.start], chain.operations))
        wanted = wanted.relax(rng, relax if chain.is_last else replace(relax, shape=0.0))
        end = graph.tensor(chain.nodes[-1])
        is_asked = any(shape is not None for row in wanted.shape for shape in row)
        instances = [(each[chain.start], each[end] if is_asked else None) for each in elsewhere]
        start = shapes[chain.start]
        answer = synthesise(wanted, start, rules.method, rng, others=instances, operators=rules.operators)
        if answer is None:
            return None
        exchanged[chain] = [node.operation for node in answer.nodes]
    return with_chains(graph, exchanged)


def _dropped(graph: Graph, target: Properties, drop: float, rng: random.Random, others: Sequence[Graph]) -> Graph:
    """The graph without inputs of binary operations that chance drops and ``target`` does not need."""
    found, instead = graph, list(range(len(graph.shapes)))  # what stands for each tensor
    for number, node in enumerate(graph.nodes):
        if len(node.inputs) != 2 or rng.random() >= drop:
            continue
        tensor, kept = graph.tensor(number), rng.choice(node.inputs)
        if graph.shapes[kept] == graph.shapes[tensor]:
            fewer = [*instead]
            fewer[tensor] = instead[kept]
            nodes = [replace(each, inputs=tuple([fewer[taken] for taken in each.inputs])) for each in graph.nodes]
            without = Graph.live(graph.inputs, nodes, [fewer[output] for output in graph.outputs])
            if target.satisfied_by(without) and _keeps_shapes(without, others):
                found, instead = without, fewer
    return found


def _keeps_shapes(graph: Graph, others: Sequence[Graph]) -> bool:
    try:
        return all(graph.at(*one.inputs).output_shapes == one.output_shapes for one in others)
    except SpecError:
        return False


# -- mutations that know no properties: Primer's, AutoML-Zero's, and random subgraphs (section 6.3, A.2) --------------

# Each draws again until every operation applies and the shapes of all chains' results stay as they were; otherwise what
# reads them would not.

#: How often a mutation is drawn before none is said to be found.
ATTEMPTS = 100
_Kind = Literal["delete", "insert", "exchange", "change", "swap", "random"]
PRIMER: tuple[_Kind, ...] = ("delete", "insert", "exchange", "change", "swap")
#: The mutations of each rival by its name, each drawn as often.
RIVALS: dict[str, tuple[_Kind, ...]] = {"primer": PRIMER, "automl_zero": (*PRIMER, "random"), "random": ("random",)}


def _edited(kind: _Kind, chain: Sequence[Operation], shape: Shape, rng: random.Random) -> list[Operation] | None:
    """The operations of a chain with one mutation; None where there is none of the kind."""
    if kind == "random":
        answer = random_subgraph(Draft(Properties(shape=_shape_after(chain, shape)), shape), rng)
        return None if answer.draft is None else list(answer.draft.chain)
    if kind == "swap" and len(chain) < 2:
        return None
    at = rng.randint(0, len(chain)) if kind == "insert" else rng.randrange(len(chain) - (kind == "swap"))
    put: Sequence[Operation] = ()
    if kind == "swap":
        put = (chain[at + 1], chain[at])
    elif kind != "delete":
        offers = offered(Graph.chain(shape, chain[:at]).output_shapes[0])
        if kind == "change":  # another choice of the attributes
            alike = [one for choice in offers for one in choice if one.name == chain[at].name and one != chain[at]]
            if not alike:
                return None
            put = (rng.choice(alike),)
        else:
            put = (rng.choice(rng.choice(offers)),)
    return [*chain[:at], *put, *chain[at + {"insert": 0, "swap": 2}.get(kind, 1) :]]


def mutate_as_rival(graph: Graph, rival: str, rng: random.Random) -> Graph | None:
    """A graph with one mutation in one of its chains; None where none that fits was drawn.

    Raises SearchError for a rival that is none of `RIVALS`.
    """
    if rival not in RIVALS:
        raise SearchError(f"mutate: expected one of {', '.join(RIVALS)}, found {quoted(rival)}")
    found = chains(graph)
    for _ in range(ATTEMPTS if found else 0):
        chain = rng.choice(found)
        shape, chosen = graph.shapes[chain.start], chain.operations
        edited = _edited(rng.choice(RIVALS[rival]), chosen, shape, rng)
        if edited is None or tuple(edited) == chosen:
            continue
        if _shape_after(edited, shape) == graph.shapes[graph.tensor(chain.nodes[-1])]:
            return with_chains(graph, {chain: edited})
    return None


def _shape_after(chain: Sequence[Operation], shape: Shape) -> Shape | None:
    """None where an operation does not apply."""
    try:
        return Graph.chain(shape, chain).output_shapes[0]
    except SpecError:
        return None


# -- mutations of networks --------------------------------------------------------------------------------------------

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
        method: of the synthesis, one of :data:`~.synthesis.METHODS`, or a rival, one of :data:`RIVALS`.
        drop: how likely an input of a binary operation is dropped where it is not needed.
        operators: operators of other systems that may stand for an operation that does the same, each as an operation
            (:func:`.operator_node.operation_of`).
        going_on, most: how a subgraph grows, see :meth:`.Graph.choose_region`.
        attempts: how often a mutation is drawn before none is said to be found. The paper draws once, and a failure
            counts as an individual; a search whose trials are trainings gains by the next draw.

    Raises SpecError for a number that is no probability, shares above 1 together, and a name that is none.
    """

    duplicate: float = 0.2
    delete: float = 0.2
    others: float = 0.2
    relax: Relax | str = "paper"
    method: str = "progressive"
    drop: float = 0.2
    going_on: float = 0.75
    most: float = 0.8
    attempts: int = 16
    operators: tuple[Operation, ...] = ()

    def __post_init__(self) -> None:
        check_shares(self, "duplicate", "delete", "others", "drop", "going_on", "most")
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

    ``rng`` is the only source of chance. Raises SearchError for a network in which nothing may be changed.
    """
    rules = Mutations() if rules is None else rules
    changeable = [number for number, block in enumerate(network.blocks) if block.mutable]
    if not changeable:
        expected = "a block with nodes that may be changed"
        raise SearchError(f"mutate: expected {expected}, found none in {len(network.blocks)}")
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
    elsewhere = [network.blocks[other].graph.subgraph(region.nodes) for other in alike]
    if any(len(block.graph.nodes[after].inputs) > 1 for after in block.graph.after(region.nodes) - region.nodes):
        rules = replace(rules, relax=replace(relax_of(rules.relax), shape=0.0))
    if rules.method in METHODS:
        new = synthesise_again(old, rng, rules, elsewhere)
    else:
        new = mutate_as_rival(old, rules.method, rng)
    if new is None:
        return None
    blocks = tuple(sorted([number, *alike]))
    shown = network.blocks[blocks[0]].graph.subgraph(region.nodes)
    try:
        return Replacement(blocks, tuple(sorted(region.nodes)), shown, new.at(*shown.inputs))
    except SpecError:  # a new shape that the first of the blocks cannot have
        return None
