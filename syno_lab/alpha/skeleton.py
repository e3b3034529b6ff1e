"""Chains inside a graph, and their exchange: synthesis beyond one chain (αNAS, section 4.6 and appendix B.4).

Operations with several inputs, and those that rearrange axes or that are never chosen, are the *skeleton* of a graph.
It stays as it is; each chain of other operations between two parts of it is synthesised anew, for its own mutated
properties.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from syno_lab.alpha.graph import Graph, Node, Nodes
from syno_lab.alpha.operations import Operation
from syno_lab.alpha.properties import RELAXATIONS, Relax
from syno_lab.alpha.synthesis import synthesise
from syno_lab.alpha.wanted import Properties
from syno_lab.errors import SpecError

#: How likely an input of a binary operation is dropped where it is not needed, in the authors' published code.
DROP = 0.2


@dataclass(frozen=True)
class Chain:
    """Operations in a row of which each takes the result of the one before, which nothing else takes.

    Attributes:
        nodes: their numbers in the graph, from the first to the last.
        start: the tensor that the first one takes.
        is_last: whether the last one's result leaves the graph and nothing in it takes that.
    """

    nodes: tuple[int, ...]
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
    return tuple([_chain(graph, nodes) for nodes in found])


def _chain(graph: Graph, nodes: list[int]) -> Chain:
    end = graph.tensor(nodes[-1])
    return Chain(tuple(nodes), graph.nodes[nodes[0]].inputs[0], end in graph.outputs and not graph.users[end])


def operations_of(graph: Graph, chain: Chain) -> tuple[Operation, ...]:
    """The operations of a chain."""
    return tuple([graph.nodes[number].operation for number in chain.nodes])


def with_chains(graph: Graph, exchanged: Mapping[Chain, Sequence[Operation]]) -> Graph:
    """The graph with other operations in the place of some of its chains.

    Raises:
        SpecError: where an operation does not apply to what it would take.
    """
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


def synthesise_again(
    graph: Graph,
    seed: int | random.Random = 0,
    rules: Relax | str = "paper",
    method: str = "progressive",
    drop: float = DROP,
    others: Sequence[Graph] = (),
    operators: Sequence[Operation] = (),
) -> Graph | None:
    """A graph with the same skeleton, each chain of it synthesised for its own mutated properties.

    The shape between parts of the skeleton is not mutated. An input of a binary operation may be dropped where what is
    asked of the whole graph holds without it.

    Args:
        graph: the original.
        seed: the same gives the same.
        rules: of the mutation, see :meth:`Properties.relax`.
        method: one of :data:`~syno_lab.alpha.synthesis.METHODS`.
        drop: how likely an input of a binary operation is dropped.
        others: the same graph in other instances, with other shapes of inputs. The answer applies to them and keeps the
            shapes of their outputs too, where it keeps those of the original; depth and mixing count in the original
            alone.
        operators: of other systems, see :func:`~syno_lab.alpha.synthesis.synthesise`.

    Returns:
        None where one of the chains cannot be synthesised.

    Raises:
        SpecError: for rules that are none.
        SearchError: for a method that is none.
    """
    rng = seed if isinstance(seed, random.Random) else random.Random(seed)  # noqa: S311 - for choices
    target = Properties.of(graph).relax(rng, rules)
    kept = RELAXATIONS[rules] if isinstance(rules, str) else rules
    graph = _dropped(graph, target, drop, rng, others)
    shapes = graph.shapes
    elsewhere = [graph.at(*one.inputs).shapes for one in others]
    exchanged: dict[Chain, Sequence[Operation]] = {}
    for chain in chains(graph):
        wanted = Properties.of(Graph.chain(shapes[chain.start], operations_of(graph, chain)))
        wanted = wanted.relax(rng, kept if chain.is_last else replace(kept, shape=0.0))
        end = graph.tensor(chain.nodes[-1])
        is_asked = any(shape is not None for row in wanted.shape for shape in row)
        instances = [(each[chain.start], each[end] if is_asked else None) for each in elsewhere]
        answer = synthesise(wanted, shapes[chain.start], method, rng, others=instances, operators=operators)
        if answer is None:
            return None
        exchanged[chain] = [node.operation for node in answer.nodes]
    return with_chains(graph, exchanged)


def _dropped(graph: Graph, target: Properties, drop: float, rng: random.Random, others: Sequence[Graph] = ()) -> Graph:
    """The graph without inputs of binary operations that chance drops and ``target`` does not need."""
    found, instead = graph, dict[int, int]()
    for number, node in enumerate(graph.nodes):
        if len(node.inputs) != 2 or rng.random() >= drop:
            continue
        tensor, kept = graph.tensor(number), rng.choice(node.inputs)
        if graph.shapes[kept] == graph.shapes[tensor]:
            without = _without(graph, {**instead, tensor: kept})
            if target.satisfied_by(without) and _keeps_shapes(without, others):
                found, instead = without, {**instead, tensor: kept}
    return found


def _keeps_shapes(graph: Graph, others: Sequence[Graph]) -> bool:
    try:
        return all(graph.at(*one.inputs).output_shapes == one.output_shapes for one in others)
    except SpecError:
        return False


def _without(graph: Graph, instead: Mapping[int, int]) -> Graph:
    """The graph with some tensors in the place of later ones."""

    def resolved(tensor: int) -> int:
        while tensor in instead:
            tensor = instead[tensor]
        return tensor

    nodes = [replace(node, inputs=tuple(map(resolved, node.inputs))) for node in graph.nodes]
    return Graph.live(graph.inputs, nodes, [resolved(tensor) for tensor in graph.outputs])
