"""Every known operator is reached by canonical steps from a fitting spec, by hand and in the search graph.

A fitting spec is the operator's own with sizes, and just the steps, tensors and REDUCEs that the operator takes. They
are canonical as they are written in :mod:`syno_lab.operators`, up to the order of their steps, with these exceptions:

- ``grouped`` and ``grouped_linear`` share group and channel with their weight and SPLIT them above it; a view of what
  one weight shares stands below the contraction (rule view-above-share), so the canonical form shares the SPLIT.
- ``strided`` is outside the space: its STRIDE is of an output coordinate, the main one of a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby, permutations, product

import pytest

from syno_lab.ir.build import Build
from syno_lab.ir.coordinate import Coordinate, Node
from syno_lab.ir.fingerprint import distinct_key
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.operators import KNOWN
from syno_lab.synthesis.graph import Graph, SearchNode
from syno_lab.synthesis.paths import Builder, Path
from syno_lab.synthesis.rules import RULES, rejecting_rule
from syno_lab.synthesis.space import proposals

# No two alike, divided by g=4 and s=2 where operators need it, and large beside windows and blocks.
SIZES = {"N": 2, "C_in": 32, "C_out": 48, "C": 20, "H": 28, "W": 36, "M": 14, "K": 18, "D_in": 32, "D_out": 48}
OUTSIDE = {"strided"}


def canonical_grouped() -> Operator:
    """``grouped`` with the channel of the input as one dimension of the weight."""
    build = Build(
        "[N, C_in, H, W]",
        "[N, C_out, H, W]",
        ["N", "C_in", "C_out", "H", "W"],
        ["k_1=3", "g=4"],
        fixed_io_pairs=[(0, 0)],
    )
    n, c_out, h, w = build.output
    c, p, q = build.reduce("g^-1*C_in"), build.reduce("k_1"), build.reduce("k_1")
    a, o = build.merge(c_out, "g^-1*C_out")
    channel = build.split(a, c)
    build.contract(share=[channel, p, q], give=[o])
    return build.finish(n, channel, build.unfold(h, p), build.unfold(w, q))


def canonical_grouped_linear() -> Operator:
    """``grouped_linear`` likewise."""
    build = Build("[N, D_in]", "[N, D_out]", ["N", "D_in", "D_out"], ["g=4"], fixed_io_pairs=[(0, 0)])
    n, d_out = build.output
    c = build.reduce("g^-1*D_in")
    a, o = build.merge(d_out, "g^-1*D_out")
    channel = build.split(a, c)
    build.contract(share=[channel], give=[o])
    return build.finish(n, channel)


REWRITTEN = {"grouped": canonical_grouped, "grouped_linear": canonical_grouped_linear}
#: Known operators by name, those that are not canonical as they are written in their canonical form.
CANONICAL: dict[str, Callable[[], Operator]] = {**KNOWN, **REWRITTEN}
NAMES = [name for name in KNOWN if name not in OUTSIDE]
each_name = pytest.mark.parametrize("name", NAMES)


def fitting(operator: Operator) -> Spec:
    """The operator's spec with sizes and just the budgets that it needs."""
    spec = operator.spec
    limits = replace(
        spec.limits,
        max_primitives=len(operator.steps),
        max_tensors=len(operator.weights) + 1,
        max_reduces=len(operator.reductions),
        min_weights=len(operator.weights),
    )
    return replace(spec, limits=limits).bound([{name: SIZES[name] for name in spec.symbols.primary}])


def alike(step: Step) -> object:
    """A step, where a contraction's coordinates come in any order."""
    if step.primitive == "SHARE":
        return ("SHARE", frozenset(step.operands), frozenset(step.given))
    return step


def canonical_order(state: State, rest: list[Step], refused: set[str], tried: set[frozenset[object]]) -> State | None:
    """The state after all steps in ``rest``, in some order in which each is proposed and no rule rejects it."""
    if not rest:
        return state
    if frozenset(map(alike, rest)) in tried:
        return None
    tried.add(frozenset(map(alike, rest)))
    proposed = {alike(step): step for step in proposals(state)}
    for step in rest:
        found = proposed.get(alike(step))
        if found is None:
            continue
        rule = rejecting_rule(state, found)
        if rule is not None:
            refused.add(f"{step.primitive}: {rule.name}")
            continue
        end = canonical_order(state.apply(found), [other for other in rest if other is not step], refused, tried)
        if end is not None:
            return end
    return None


def walk(operator: Operator, refused: set[str]) -> State | None:
    """The operator's end by canonical steps from its fitting spec; what rules say goes to ``refused``."""
    state = State.root(fitting(operator))
    for step in operator.steps:
        if step.primitive == "REDUCE":
            assert step in set(proposals(state))
            assert rejecting_rule(state, step) is None
            state = state.apply(step)
    return canonical_order(state, [s for s in operator.steps if s.primitive != "REDUCE"], refused, set())


@each_name
def test_canonical_steps_lead_to_it(name: str) -> None:
    operator = CANONICAL[name]()
    refused: set[str] = set()
    end = walk(operator, refused)
    assert end is not None, f"rules refuse {sorted(refused)}"
    assert operator.inputs in set(end.matches())
    reached = Operator(end, operator.inputs)
    binding = dict(distinct_key(reached)[0])
    assert reached.fingerprint(binding) == KNOWN[name]().fingerprint(binding)


@pytest.mark.parametrize("name", REWRITTEN)
def test_only_the_view_above_the_contraction_is_refused(name: str) -> None:
    refused: set[str] = set()
    assert walk(KNOWN[name](), refused) is None
    assert refused == {"SPLIT: view-above-share"}


def test_a_stride_of_the_whole_is_outside_the_space() -> None:
    refused: set[str] = set()
    assert walk(KNOWN["strided"](), refused) is None
    assert refused == {"STRIDE: stride-of-output"}


# -- in the search graph ---------------------------------------------------------------------------------------------


def renamed(coordinate: Coordinate, names: dict[Coordinate, Coordinate]) -> Coordinate:
    """The coordinate over other reductions."""
    if coordinate.is_leaf:
        return names.get(coordinate, coordinate)
    node = coordinate.node
    operands = tuple(renamed(c, names) for c in node.operands)
    return Coordinate(Node(node.primitive, operands, node.parameter), coordinate.index, coordinate.size)


def renamings(ours: Iterable[Coordinate], theirs: Iterable[Coordinate]) -> Iterator[dict[Coordinate, Coordinate]]:
    """Every way to take reductions for others of the same size."""

    def groups(reductions: Iterable[Coordinate]) -> list[list[Coordinate]]:
        by_size = sorted(reductions, key=lambda c: c.size.exponents)
        return [list(group) for _, group in groupby(by_size, key=lambda c: c.size.exponents)]

    one, other = groups(ours), groups(theirs)
    for orders in product(*map(permutations, other)):
        yield {a: b for group, order in zip(one, orders, strict=True) for a, b in zip(group, order, strict=True)}


def paths_of(operator: Operator, graph: Graph) -> Iterator[Path]:
    """The paths of the graph all of whose steps are the operator's."""
    sizes = sorted((c.size for c in operator.reductions), key=lambda size: size.exponents)
    length = len(operator.steps)
    for first in graph.edges(graph.root, length):
        parameter = first.parameter or ()
        if sorted(parameter, key=lambda size: size.exponents) != sizes:
            continue
        if first.target is None:
            yield (first,)
            continue
        for names in renamings(operator.reductions, first.target.state.reductions):
            wanted = {
                alike(
                    Step(
                        step.primitive,
                        tuple(renamed(c, names) for c in step.operands),
                        step.parameter,
                        tuple(renamed(c, names) for c in step.given),
                    )
                )
                for step in operator.steps
                if step.primitive != "REDUCE"
            }
            yield from _follow(graph, first.target, first.target.places, wanted, (first,), length - first.cost)


def _follow(
    graph: Graph, node: SearchNode, places: tuple[Coordinate, ...], wanted: set[object], before: Path, left: int
) -> Iterator[Path]:
    for edge in graph.edges(node, left):
        results: tuple[Coordinate, ...] = ()
        rest = wanted
        if edge.cost:
            operands = tuple(places[i] for i in edge.operands)
            step = Step(edge.primitive, operands, edge.parameter, tuple(places[i] for i in edge.given))
            if alike(step) not in wanted:
                continue
            rest = wanted - {alike(step)}
            results = node.state.results(step)
        path = (*before, edge)
        if edge.target is None:
            if not rest:
                yield path
        elif rest:
            pool = places + results
            yield from _follow(graph, edge.target, tuple(pool[i] for i in edge.order), rest, path, left - edge.cost)


@pytest.mark.parametrize("name", [name for name in NAMES if len(KNOWN[name]().steps) <= 8])
def test_the_search_graph_has_it_once(name: str) -> None:
    operator = CANONICAL[name]()
    spec = fitting(operator)
    graph = Graph(spec, RULES)
    builder = Builder(graph)
    found = [builder.operator(path) for path in dict.fromkeys(paths_of(operator, graph))]
    ends = [o for o in found if o is not None]
    assert len(ends) == 1, f"{len(found)} paths, {len(ends)} of them to operators"
    binding = dict(distinct_key(ends[0])[0])
    assert ends[0].fingerprint(binding) == KNOWN[name]().fingerprint(binding)
