"""Isomorphic micro-DAGs and nearly isomorphic ones of Canvas, and networkx as the judge of both."""

from __future__ import annotations

import random

import networkx as nx

from syno_lab.canvas.kernel import Draft, Node
from syno_lab.canvas.primitives import BROADCASTS, COMMUTATIVE, Primitive, parts_of
from syno_lab.canvas.shape import parse, static_part, variable, variables_of
from syno_lab.errors import PrimitiveError


def renumbered(found: Draft, rng: random.Random) -> Draft:
    """Another topological order, other numbers of dynamic variables, sides exchanged where that changes nothing."""
    numbers = {0: 0}
    variables = dict(zip(found.variables, rng.sample(range(8), len(found.variables)), strict=True))
    nodes: list[Node] = []
    waiting = list(range(len(found.nodes)))
    while waiting:
        ready = [place for place in waiting if all(number in numbers for number in found.nodes[place].inputs)]
        place = rng.choice(ready)
        waiting.remove(place)
        (name, parameter), inputs = found.nodes[place]
        if name == "fc":
            size = static_part(parse(parameter))
            for number, power in variables_of(parse(parameter)):
                size = size * variable(variables[number]) ** power
            parameter = str(size)
        if name in COMMUTATIVE and found.shapes[inputs[0]] is found.shapes[inputs[1]]:
            inputs = tuple(rng.sample(inputs, 2))
        numbers[place + 1] = len(nodes) + 1
        nodes.append(Node(Primitive(name, parameter), tuple(numbers[number] for number in inputs)))
    return Draft(tuple(nodes))


def graph(found: Draft) -> nx.MultiDiGraph:
    """For networkx: a vertex for each tensor and variable, an edge with its side for each input."""
    drawn = nx.MultiDiGraph()
    drawn.add_node("t0", label="input")
    for number in found.variables:
        drawn.add_node(f"x{number}", label="variable")
    for number, ((name, parameter), inputs) in enumerate(found.nodes, start=1):
        label, sides = (name, parameter), ("first", "second")
        if name == "fc":
            label = (name, str(static_part(parse(parameter))))
            for variable_number, _ in variables_of(parse(parameter)):
                drawn.add_edge(f"x{variable_number}", f"t{number}", side="size")
        elif name in BROADCASTS:
            left, right = (found.shapes[i] for i in inputs)
            prefix, repeats, *_ = parts_of(parameter, left, right)
            label = (name, "" if repeats.is_one else str(static_part(prefix)))
            if name in COMMUTATIVE and left is right:
                sides = ("both", "both")
        drawn.add_node(f"t{number}", label=label)
        for side, i in zip(sides, inputs, strict=False):
            drawn.add_edge(f"t{i}", f"t{number}", side=side)
    return drawn


def isomorphic(one: Draft, other: Draft) -> bool:
    return nx.is_isomorphic(
        graph(one),
        graph(other),
        node_match=lambda a, b: a["label"] == b["label"],
        edge_match=lambda a, b: sorted(e["side"] for e in a.values()) == sorted(e["side"] for e in b.values()),
    )


def changed(found: Draft, rng: random.Random) -> Draft:
    """One node with other inputs, other sides or another name; the same draft where that is refused."""
    if not found.nodes:
        return found
    nodes = list(found.nodes)
    place = rng.randrange(len(nodes))
    (name, parameter), inputs = nodes[place]
    kind = rng.randrange(3)
    if kind == 0:
        inputs = tuple(rng.randrange(place + 1) for _ in inputs)
    elif kind == 1:
        inputs = inputs[::-1]
    elif name in BROADCASTS:
        name = rng.choice(BROADCASTS)
    elif not parameter:
        name = rng.choice(("relu", "abs"))
    nodes[place] = Node(Primitive(name, parameter), inputs)
    try:
        return Draft(tuple(nodes))
    except PrimitiveError:
        return found
