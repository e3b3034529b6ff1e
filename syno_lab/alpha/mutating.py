"""Mutation of a network: a copied block, a deleted block, or a new subgraph in blocks of one type (αNAS, section 5).

To make a new subgraph, the lab chooses a random subgraph of a random block and infers and relaxes its properties. A
graph with the relaxed properties replaces the subgraph in this block and, at random, in other blocks of the type.

The new subgraph has the old output shape if an operation with several inputs follows, such as a residual sum. The
subgraph is then part of an inner chain, and inner chains keep their shapes (section 4.6). Other output shapes rarely
fit: in ResNet-20, 6 of 210 such shapes fitted.

Synthesis makes chains. In graphs that are no chains (section 4.6 and appendix B.4), the *skeleton* is all operations
that have several inputs, rearrange axes or are never chosen by synthesis. The skeleton does not change. Synthesis
replaces each chain between two operations of the skeleton by a new chain, for the mutated properties of the old chain.
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

# -- synthesis of a subgraph, chain by chain --------------------------------------------------------------------------


@dataclass(frozen=True)
class Chain:
    """Consecutive operations of a graph. Only the next operation uses the result of an operation in the chain.

    Attributes:
        nodes: the numbers of the nodes in the graph, from first to last.
        operations: the operations of these nodes.
        start: the input tensor of the first operation.
        is_last: whether the last result is an output of the graph that no node takes.
    """

    nodes: tuple[int, ...]
    operations: tuple[Operation, ...]
    start: int
    is_last: bool


def chains(graph: Graph) -> tuple[Chain, ...]:
    """Return the chains of a graph, each as long as possible, in order of their first operations."""
    ends: dict[int, list[int]] = {}
    rows: list[list[int]] = []
    for number, node in enumerate(graph.nodes):
        if node.operation.row.role != "chosen":
            continue
        (tensor,) = node.inputs
        if tensor in ends and len(graph.users[tensor]) == 1 and tensor not in graph.outputs:
            chain = ends.pop(tensor)
        else:
            rows.append(chain := [])
        chain.append(number)
        ends[graph.tensor(number)] = chain
    result = []
    for nodes in rows:
        operations, end = tuple([graph.nodes[number].operation for number in nodes]), graph.tensor(nodes[-1])
        is_last = end in graph.outputs and not graph.users[end]
        result.append(Chain(tuple(nodes), operations, graph.nodes[nodes[0]].inputs[0], is_last))
    return tuple(result)


def with_chains(graph: Graph, exchanged: Mapping[Chain, Sequence[Operation]]) -> Graph:
    """Return the graph with other operations for some chains. Raises SpecError where an operation does not apply."""
    inside = {number: chain for chain in exchanged for number in chain.nodes}
    nodes, tensors = Nodes(len(graph.inputs)), {number: number for number in range(len(graph.inputs))}
    for number, node in enumerate(graph.nodes):
        tensor, chain = graph.tensor(number), inside.get(number)
        if chain is None:
            tensors[tensor] = nodes.put(node, tensors)
        elif number == chain.nodes[-1]:
            tensors[tensor] = tensors[chain.start]
            for operation in exchanged[chain]:
                tensors[tensor] = nodes.put(Node(operation, (tensor,)), tensors)
    return Graph(graph.inputs, tuple(nodes), tuple([tensors[tensor] for tensor in graph.outputs]))


def synthesise_again(graph: Graph, rng: random.Random, rules: Mutations, others: Sequence[Graph] = ()) -> Graph | None:
    """Return a graph with the same skeleton and new chains, each synthesised for its own mutated properties.

    Only a chain at an output may get another result shape. An input of a binary operation may be dropped if the graph
    has the relaxed properties without this input.

    Args:
        graph: the original graph.
        rng: the random generator.
        rules: only ``relax``, ``method``, ``drop`` and ``operators`` have an effect here.
        others: the same graph in other blocks, with other input shapes. The new graph fits these input shapes too. If
            the new graph keeps the output shapes of ``graph``, it keeps the output shapes of ``others`` too. Depth and
            mixing are checked only in ``graph``.

    Returns:
        None where the synthesis of a chain fails.
    """
    relax = relax_of(rules.relax)
    graph = _dropped(graph, Properties.of(graph).relax(rng, relax), rules.drop, rng, others)
    shapes = graph.shapes
    elsewhere = [graph.at(*instance.inputs).shapes for instance in others]
    exchanged: dict[Chain, Sequence[Operation]] = {}
    for chain in chains(graph):
        wanted = Properties.of(Graph.chain(shapes[chain.start], chain.operations))
        wanted = wanted.relax(rng, relax if chain.is_last else replace(relax, shape=0.0))
        end = graph.tensor(chain.nodes[-1])
        is_asked = any(shape is not None for row in wanted.shape for shape in row)
        instances = [(shapes_there[chain.start], shapes_there[end] if is_asked else None) for shapes_there in elsewhere]
        start = shapes[chain.start]
        answer = synthesise(wanted, start, rules.method, rng, others=instances, operators=rules.operators)
        if answer is None:
            return None
        exchanged[chain] = [node.operation for node in answer.nodes]
    return with_chains(graph, exchanged)


def _dropped(graph: Graph, target: Properties, drop: float, rng: random.Random, others: Sequence[Graph]) -> Graph:
    """Drop random inputs of binary operations, if the graph without the input still satisfies ``target``."""
    smaller, instead = graph, list(range(len(graph.shapes)))  # for each tensor, the tensor that replaces it
    for number, node in enumerate(graph.nodes):
        if len(node.inputs) != 2 or rng.random() >= drop:
            continue
        tensor, input_kept = graph.tensor(number), rng.choice(node.inputs)
        if graph.shapes[input_kept] == graph.shapes[tensor]:
            fewer = [*instead]
            fewer[tensor] = instead[input_kept]
            nodes = [replace(other, inputs=tuple([fewer[t] for t in other.inputs])) for other in graph.nodes]
            without = Graph.live(graph.inputs, nodes, [fewer[output] for output in graph.outputs])
            if target.satisfied_by(without) and _keeps_shapes(without, others):
                smaller, instead = without, fewer
    return smaller


def _keeps_shapes(graph: Graph, others: Sequence[Graph]) -> bool:
    try:
        return all(graph.at(*other.inputs).output_shapes == other.output_shapes for other in others)
    except SpecError:
        return False


# -- mutations without properties: Primer's, AutoML-Zero's, and random subgraphs (section 6.3, A.2) --------------

# Each mutation is drawn again until every operation fits and the chain has its old result shape. The operations after
# the chain need this shape.

#: The number of draws of a mutation before the search gives up.
ATTEMPTS = 100
_Kind = Literal["delete", "insert", "exchange", "change", "swap", "random"]
PRIMER: tuple[_Kind, ...] = ("delete", "insert", "exchange", "change", "swap")
#: The mutations of each rival by the rival's name, all with equal probability.
RIVALS: dict[str, tuple[_Kind, ...]] = {"primer": PRIMER, "automl_zero": (*PRIMER, "random"), "random": ("random",)}


def _edited(kind: _Kind, chain: Sequence[Operation], shape: Shape, rng: random.Random) -> list[Operation] | None:
    """Return the operations of a chain after one mutation of this kind; None if the kind is not possible."""
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
        if kind == "change":  # an operation of the same name with other attribute values
            alike = [one for choice in offers for one in choice if one.name == chain[at].name and one != chain[at]]
            if not alike:
                return None
            put = (rng.choice(alike),)
        else:
            put = (rng.choice(rng.choice(offers)),)
    return [*chain[:at], *put, *chain[at + {"insert": 0, "swap": 2}.get(kind, 1) :]]


def mutate_as_rival(graph: Graph, rival: str, rng: random.Random) -> Graph | None:
    """Return a graph with one mutation in one of its chains; None where no draw fits.

    Raises SearchError for a rival that is not in `RIVALS`.
    """
    if rival not in RIVALS:
        raise SearchError(f"mutate: expected one of {', '.join(RIVALS)}, found {quoted(rival)}")
    graph_chains = chains(graph)
    for _ in range(ATTEMPTS if graph_chains else 0):
        chain = rng.choice(graph_chains)
        shape, chosen = graph.shapes[chain.start], chain.operations
        edited = _edited(rng.choice(RIVALS[rival]), chosen, shape, rng)
        if edited is None or tuple(edited) == chosen:
            continue
        if _shape_after(edited, shape) == graph.shapes[graph.tensor(chain.nodes[-1])]:
            return with_chains(graph, {chain: edited})
    return None


def _shape_after(chain: Sequence[Operation], shape: Shape) -> Shape | None:
    """Return the result shape of a chain; None where an operation does not fit its input."""
    try:
        return Graph.chain(shape, chain).output_shapes[0]
    except SpecError:
        return None


# -- mutations of networks --------------------------------------------------------------------------------------------

#: The ways to make a new subgraph: synthesis for its properties, or a rival of αNAS that uses no properties.
METHODS_AND_RIVALS = (*METHODS, *(name for name in RIVALS if name not in METHODS))


@dataclass(frozen=True)
class Mutations:
    """The rules of mutations. The default probabilities are those of the authors' published code; the paper gives none.

    Attributes:
        duplicate: the probability that a block is copied.
        delete: the probability that a block is deleted; otherwise a subgraph is replaced.
        others: the probability, for each other block of the type, that the block gets the new subgraph too.
        relax: how the subgraph's properties are relaxed, or the name of a preset of :data:`~.properties.RELAXATIONS`.
        method: the method of synthesis (:data:`~.synthesis.METHODS`), or a rival of αNAS (:data:`RIVALS`).
        drop: the probability that an unneeded input of a binary operation is dropped.
        operators: operators of other systems, as operations (:func:`.operator_node.operation_of`), that may replace an
            equivalent operation.
        going_on, most: how a random subgraph is chosen, see :meth:`.Graph.choose_region`.
        attempts: the limit of draws until a mutation fits. The paper draws once and counts a failure as an individual;
            more draws help a search that trains each individual.

    Raises SpecError for a wrong probability, a sum of probabilities above 1, and an unknown name.
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
            total = self.duplicate + self.delete
            raise SpecError(f"Mutations: expected duplicate and delete of at most 1 together, found {total:g}")
        if isinstance(self.relax, str) and self.relax not in RELAXATIONS:
            expected = ", ".join(RELAXATIONS)
            raise SpecError(f"Mutations: relax: expected one of {expected}, found {quoted(self.relax)}")
        if self.method not in METHODS_AND_RIVALS:
            expected = ", ".join(METHODS_AND_RIVALS)
            raise SpecError(f"Mutations: method: expected one of {expected}, found {quoted(self.method)}")
        if not all(isinstance(each, Operation) and each.name == operator_node.NAME for each in self.operators):
            raise SpecError("Mutations: operators: expected operations of sl.alpha.operation_of, found others")
        if positive(self.attempts) is None:
            raise SpecError(f"Mutations: attempts: expected an integer of 1 or more, found {quoted(self.attempts)}")


def mutate(network: Network, rng: random.Random, rules: Mutations | None = None) -> Edit | None:
    """Return a random edit that applies to the network and changes it; None after ``attempts`` draws without success.

    All random numbers come from ``rng``. Raises SearchError for a network without mutable nodes.
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
        except SpecError:  # usually the rest of the block does not fit a new shape
            continue
    return None


def _drawn(network: Network, changeable: list[int], rng: random.Random, rules: Mutations) -> Edit | None:
    """Draw one edit; return None where the draw does not fit."""
    kind = rng.random()
    number = rng.choice(changeable)
    if kind < rules.duplicate:
        return Duplication(number, rng.randint(0, len(network.blocks)))
    if kind < rules.duplicate + rules.delete:
        # The last mutable block is never deleted, so that later mutations have a block to change.
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
    except SpecError:  # the new graph does not fit the first of the blocks
        return None
