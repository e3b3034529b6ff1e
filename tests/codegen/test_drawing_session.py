"""What stands beside the picture in the stepper: links, the distance explained and drawn, the tree in rows."""

from __future__ import annotations

import random
import re
from xml.etree import ElementTree

import pytest

from syno_lab.codegen import drawing
from syno_lab.codegen.drawing_distance import explanation_words, groups_svg
from syno_lab.codegen.drawing_links import links
from syno_lab.drawing.course import course_svg
from syno_lab.errors import PrimitiveError
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State
from syno_lab.operators import KNOWN, conv2d
from syno_lab.pgraphs.menu import why
from syno_lab.sessions.session import Session
from syno_lab.synthesis.candidates import candidates
from syno_lab.synthesis.distance import Explanation, explain_distance
from tests.strategies import random_operator

PAPER = Spec.parse("[C_in, H, W]", "[C_in, s^-1*H, s*W, k]", ["C_in", "H", "W"], ["s=2", "k=3"])
SVG = "{http://www.w3.org/2000/svg}"


def test_links_are_the_nodes_of_any_state(rng: random.Random) -> None:
    """Every node and nothing else; light stays in the drawing; that of a coordinate has all that it is made of."""
    for _ in range(6):
        operator, _ = random_operator(rng, max_moves=5)
        state = State.root(operator.spec)
        for step in operator.steps[: rng.randrange(len(operator.steps) + 1)]:
            state = state.apply(step)
        svg = drawing.svg(state)
        ids = {g.get("id") for g in ElementTree.fromstring(svg).iter(f"{SVG}g") if g.get("class") != "graph"}
        found = links(state, svg)
        assert set(found) == {name for name in ids if name and "--" not in name}
        names = drawing.coordinate_ids(state)
        by_coordinate = {coordinate: name for name, coordinate in names.items()}
        for name, link in found.items():
            assert set(link.light) <= ids
            assert (link.kind == "coordinate") == (name in names)
        for name, coordinate in names.items():
            below = {by_coordinate[c] for c in coordinate.node.operands}
            assert below <= set(found[name].light)
            assert all(set(found[one].light) <= set(found[name].light) for one in below)
            assert found[name].words.startswith("coordinate ")


def test_the_papers_example_in_sentences() -> None:
    words = explanation_words(explain_distance(State.root(PAPER)))
    assert "W·s, H/s must become H, W: 2 + 0 + 2 - 2 = 2 MERGEs or SPLITs." in words
    assert "k has no place in the input and is eliminated." in words
    assert words[-1] == "Shape distance 3: at least so many steps are needed."
    assert "1 coordinate of the right size already: 0 steps." in words
    assert explanation_words(Explanation(None, (), 0)) == [
        "The input cannot be reached within the budgets that are left."
    ]


def test_the_groups_drawn_have_every_coordinate_and_axis() -> None:
    explanation = explain_distance(State.root(PAPER))
    root = ElementTree.fromstring(groups_svg(explanation))
    assert "Reshape groups" in (root.get("aria-label") or "")
    ids = [g.get("id", "") for g in root.iter(f"{SVG}g")]
    assert len([name for name in ids if re.fullmatch(r"g\d+d\d+", name)]) == 4
    assert len([name for name in ids if re.fullmatch(r"g\d+i\d+", name)]) == 3
    assert len([name for name in ids if re.fullmatch(r"g\d+e", name)]) == 1
    spec = conv2d().spec
    reduced = ElementTree.fromstring(groups_svg(explain_distance(State.root(spec))))
    assert len([g for g in reduced.iter(f"{SVG}g") if (g.get("id") or "").endswith("r")]) == 1


@pytest.mark.parametrize(("distances", "here"), [([2], 0), ([2, 1, None, 0], 3), ([0, 0], 1), ([None], 0)])
def test_the_course_is_a_line_over_the_steps(distances: list[int | None], here: int) -> None:
    root = ElementTree.fromstring(course_svg(distances, here))
    said = ", ".join("out of reach" if far is None else str(far) for far in distances)
    assert root.get("aria-label") == f"Shape distance over the steps: {said}; shown is place {here}."
    points = list(root.iter(f"{SVG}ellipse"))
    assert len(points) == len(distances)
    filled = [place for place, point in enumerate(points) if point.get("fill") == "currentColor"]
    assert filled == [here]
    heights = [float(point.get("cy", "")) for point in points]
    reached = [(far, height) for far, height in zip(distances, heights, strict=True) if far is not None]
    assert sorted(reached, key=lambda pair: -pair[0]) == sorted(reached, key=lambda pair: pair[1])


def test_a_part_of_the_course_says_where_it_begins() -> None:
    root = ElementTree.fromstring(course_svg([2, 1], 1, 40))
    assert root.get("aria-label") == "Shape distance over the steps from place 40 on: 2, 1; shown is place 41."
    titles = [title.text for title in root.iter(f"{SVG}title")]
    assert titles[1:] == ["place 40: distance 2", "place 41: distance 1"]


def test_the_tree_has_every_place_once_and_branches_before_the_way_on() -> None:
    session = Session(conv2d(), KNOWN)
    for place in (2, 4):
        session.go(place)
        session.reset()
        session.apply(conv2d().steps[0])
    rows = session.rows()
    assert sorted(row["place"] for row in rows) == list(range(len(session.places)))
    assert [(row["place"], row["level"]) for row in rows] == [
        (0, 0),
        (1, 0),
        (2, 0),
        (7, 1),
        (8, 1),
        (3, 0),
        (4, 0),
        (9, 1),
        (10, 1),
        (5, 0),
        (6, 0),
    ]
    assert [row["place"] for row in rows if row["branch"]] == [7, 9]
    assert [row["place"] for row in rows if row["complete"]] == [6]
    assert session.rows() == rows
    assert rows[1]["text"] == "REDUCE C_in"
    long = Session(conv2d())
    for _ in range(1500):
        long.reset()
    assert len(long.rows()) == 1507, "however deep"


def test_a_canonical_step_has_no_why() -> None:
    state = State.root(PAPER)
    canonical = next(candidate for candidate in candidates(state) if candidate.verdict.canonical)
    with pytest.raises(PrimitiveError, match="expected a pruned step; this one is canonical"):
        why(state, canonical)


def test_where_a_session_is_in_words() -> None:
    session = Session(conv2d(), KNOWN)
    assert session.status() == "Complete after 6 steps: this is conv2d."
    session.go(5)
    assert session.status() == "After 5 steps: shape distance 1, 3 left in the budget."
    unreachable = Session(Spec.parse("[C, H]", "[H]", ["C: 0", "H"]))
    assert unreachable.status() == "After 0 steps: the input is out of reach within the budgets."
