"""The mental map: what a step leaves as it was in the picture; and the pictures of large operators."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import mean

import pytest
from crossings import crossings, laid_out, without_ranks
from drawn import Change, boxes, is_within, read_nodes, rows

from syno_lab.codegen.drawing import Drawable, dot, svg
from syno_lab.codegen.drawing_order import Growth, Joint, heights, steady_rows
from syno_lab.drawing.render import render
from syno_lab.ir.operator import Operator
from syno_lab.ir.state import State
from syno_lab.operators import KNOWN, operator_1

#: The 20 largest of 1,000 operators with at most 14 steps: ``python benchmarks/large_pictures.py --write``.
LARGE = Path(__file__).parents[1] / "golden" / "drawing" / "large.json"


@cache
def large() -> tuple[Operator, ...]:
    return tuple(Operator.from_json(json.dumps(one)) for one in json.loads(LARGE.read_text()))


def places(operator: Operator) -> list[Drawable]:
    """The pGraph after each of its steps, from the output alone on."""
    states: list[Drawable] = [State.root(operator.spec)]
    for step in operator.steps[:-1]:
        states.append(states[-1].apply(step))  # type: ignore[union-attr]
    return [*states, operator]


def test_a_step_leaves_most_as_it_was() -> None:
    """On the known operators and on the 20 large ones: old pairs change sides less, and no more lines cross in all."""
    found = {True: Change(), False: Change()}
    known = [make() for make in KNOWN.values()]
    crossed = {(is_steady, is_known): 0 for is_steady in found for is_known in (True, False)}
    for number, operator in enumerate((*known, *large())):
        for is_steady, change in found.items():
            before = None
            for graph in places(operator):
                source = dot(graph, is_steady=is_steady)
                now = boxes(read_nodes(render(source).decode()))
                if before is not None:
                    change.add(before, now)
                before = now
            crossed[is_steady, number < len(known)] += crossings(
                laid_out(source if is_steady else without_ranks(source))
            )
    steady, alone = found[True], found[False]
    assert steady.pairs > 40_000
    assert steady.changed / steady.pairs < 0.4 * alone.changed / alone.pairs
    assert mean(steady.ways) < 0.5 * mean(alone.ways)
    for is_known in (True, False):
        assert crossed[True, is_known] <= crossed[False, is_known], "no more lines cross at the end than by dot alone"


def test_a_node_keeps_its_row() -> None:
    """Counted from the output: all but a reduction, which stands below where it is first used, and the input."""
    for operator in (operator_1(), *large()[::7]):
        before: dict[str, int] = {}
        for graph in places(operator):
            nodes = read_nodes(svg(graph, is_steady=True))
            now = {name: at for at, row in enumerate(reversed(rows(boxes(nodes)))) for name in row}
            loose = {name for name, node in nodes.items() if {"reduction", "REDUCE", "input"} & set(node.kinds)}
            kept = [name for name in before if name not in loose]
            assert [now[name] for name in kept] == [before[name] for name in kept]
            assert now["y"] == 0
            assert now["x"] == max(now.values())
            before = now


@pytest.mark.parametrize("number", range(20))
def test_large_operators_are_readable(number: int, golden: Callable[[str, str], None]) -> None:
    """The rows are as they are kept; each text is within its box, no boxes overlap, and no text of a line is hidden."""
    picture = svg(large()[number], is_steady=True)
    nodes = read_nodes(picture)
    standing = boxes(nodes)
    lines = [
        " | ".join(f"{name} {' / '.join(text for text, _ in nodes[name].texts)}" for name in row)
        for row in rows(standing)
    ]
    golden(f"drawing/large/{number + 1:02}.txt", "\n".join(lines) + "\n")
    for name, box in standing.items():
        for text, place in nodes[name].texts:
            assert any(is_within(place, outline) for outline in nodes[name].outlines), (name, text)
        for other, its in standing.items():
            assert name >= other or not box.meets(its), (name, other)
    for name, line in nodes.items():
        if "edge" in line.kinds:
            for text, place in line.texts:
                assert not [node for node, box in standing.items() if place.meets(box)], (name, text)


def test_rows_by_hand() -> None:
    """A reduction that nothing uses stands low; one that is used stands right below its first use."""
    lines = [("c0", 0, "y", 0), ("s1", 0, "c0", 0), ("c2", 0, "s1", 0), ("c1", 0, "s0", 0)]
    nodes = ("y", "c0", "s0", "c1", "s1", "c2", "x")
    unused = Growth(nodes, tuple(Joint(*line) for line in (*lines, ("x", 0, "c2", 0), ("x", 1, "c1", 0))))
    assert heights(unused) == {"y": 0, "c0": 1, "s1": 2, "c2": 3, "x": 4, "c1": 3, "s0": 2}
    (row,) = steady_rows((Growth(("y",), ()),))
    assert row == ("y",)
