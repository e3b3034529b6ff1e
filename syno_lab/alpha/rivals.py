"""Mutations of graphs that know no properties: Primer's, AutoML-Zero's, and random subgraphs (αNAS, section 6.3, A.2).

Each draws again until every operation applies and the shapes of all chains' results stay as they were; otherwise what
reads them would not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from syno_lab.alpha.graph import Graph
from syno_lab.alpha.operations import Operation, Shape
from syno_lab.alpha.skeleton import chains, operations_of, with_chains
from syno_lab.alpha.synthesis import Draft, offered, random_subgraph
from syno_lab.alpha.wanted import Properties
from syno_lab.errors import SearchError, SpecError
from syno_lab.inputs import quoted

#: How often a mutation is drawn before none is said to be found.
ATTEMPTS = 100
Edit = Callable[[list[Operation], Shape, random.Random], list[Operation] | None]


def _delete(chain: list[Operation], shape: Shape, rng: random.Random) -> list[Operation] | None:
    where = rng.randrange(len(chain))
    return chain[:where] + chain[where + 1 :]


def _insert(chain: list[Operation], shape: Shape, rng: random.Random) -> list[Operation] | None:
    where = rng.randint(0, len(chain))
    return [*chain[:where], _any(chain, shape, where, rng), *chain[where:]]


def _delete_and_insert(chain: list[Operation], shape: Shape, rng: random.Random) -> list[Operation] | None:
    where = rng.randrange(len(chain))
    return [*chain[:where], _any(chain, shape, where, rng), *chain[where + 1 :]]


def _any(chain: list[Operation], shape: Shape, where: int, rng: random.Random) -> Operation:
    """Any operation on the tensor that the operation number ``where`` takes, each choice as likely."""
    return rng.choice(rng.choice(offered(_shape_at(chain, shape, where))))


def _change(chain: list[Operation], shape: Shape, rng: random.Random) -> list[Operation] | None:
    """Another choice of the attributes of one operation."""
    where = rng.randrange(len(chain))
    others = [
        one
        for choice in offered(_shape_at(chain, shape, where))
        for one in choice
        if one.name == chain[where].name and one != chain[where]
    ]
    return [*chain[:where], rng.choice(others), *chain[where + 1 :]] if others else None


def _swap(chain: list[Operation], shape: Shape, rng: random.Random) -> list[Operation] | None:
    if len(chain) < 2:
        return None
    where = rng.randrange(len(chain) - 1)
    return [*chain[:where], chain[where + 1], chain[where], *chain[where + 2 :]]


def _random(chain: list[Operation], shape: Shape, rng: random.Random) -> list[Operation] | None:
    answer = random_subgraph(Draft(Properties(shape=_shape_at(chain, shape, len(chain))), shape), rng)
    return None if answer.draft is None else list(answer.draft.chain)


def _shape_at(chain: Sequence[Operation], shape: Shape, where: int) -> Shape:
    """The shape of the tensor that the operation number ``where`` takes."""
    return Graph.chain(shape, chain[:where]).output_shapes[0]


PRIMER: tuple[Edit, ...] = (_delete, _insert, _delete_and_insert, _change, _swap)
#: The mutations of each rival by its name, each drawn as often.
RIVALS: dict[str, tuple[Edit, ...]] = {"primer": PRIMER, "automl_zero": (*PRIMER, _random), "random": (_random,)}


def mutate(graph: Graph, rival: str, seed: int | random.Random = 0) -> Graph | None:
    """A graph with one mutation in one of its chains; None where none that fits was drawn.

    Args:
        graph: the original.
        rival: one of `RIVALS`.
        seed: the same gives the same.

    Raises:
        SearchError: for a rival that is none.
    """
    if rival not in RIVALS:
        raise SearchError(f"mutate: expected one of {', '.join(RIVALS)}, found {quoted(rival)}")
    rng = seed if isinstance(seed, random.Random) else random.Random(seed)  # noqa: S311 - for choices
    found = chains(graph)
    for _ in range(ATTEMPTS if found else 0):
        chain = rng.choice(found)
        shape, chosen = graph.shapes[chain.start], operations_of(graph, chain)
        edited = rng.choice(RIVALS[rival])(list(chosen), shape, rng)
        if (
            edited is not None
            and tuple(edited) != chosen
            and _shape_after(edited, shape) == _shape_after(chosen, shape)
        ):
            return with_chains(graph, {chain: edited})
    return None


def _shape_after(chain: Sequence[Operation], shape: Shape) -> Shape | None:
    """None where an operation does not apply."""
    try:
        return Graph.chain(shape, chain).output_shapes[0]
    except SpecError:
        return None
