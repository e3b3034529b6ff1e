"""The explorer without a browser: its traits, its messages, what it leaves on a page."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import syno_widgets
from known_trees import known_search, small_spec
from pages import page_state
from syno_widgets import Explorer
from syno_widgets.view import View
from traitlets import TraitError

from syno_lab.canvas.kernel import Draft
from syno_lab.errors import SpecError, SynoError
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State
from syno_lab.operators import conv2d
from syno_lab.reports.icicle import SIGNS
from syno_lab.reports.trees import tree_file
from syno_lab.sessions.around import Around
from syno_lab.sessions.session import session_of
from syno_lab.synthesis.candidates import candidates

WIDGETS = Path(syno_widgets.__file__).parent


@pytest.fixture
def space() -> Iterator[Explorer]:
    view = Explorer(small_spec())
    yield view
    view.close()


def waited(view: Explorer) -> Explorer:
    assert view.wait(120)
    return view


# -- the space ---------------------------------------------------------------------------------------------------------


def test_the_space_is_looked_at_behind_the_cell(space: Explorer) -> None:
    steps = candidates(State.root(small_spec()))
    assert {box["key"] for box in space.boxes if box["level"] == 1} == {str(number) for number in range(len(steps))}
    waited(space)
    assert {box["level"] for box in space.boxes} == {0, 1, 2}
    assert len(space.table) == len(steps)
    assert sum(row["kind"] == "pruned" for row in space.table) == sum(not one.verdict.canonical for one in steps)
    space.depth = 3
    waited(space)
    assert max(box["level"] for box in space.boxes) == 3
    space.pruned = False
    waited(space)
    assert not any(box["kind"] == "pruned" for box in space.boxes)
    assert [one["key"] for one in space.sources] == ["space"]


def test_a_complete_place_that_misses_the_wish_is_no_operator() -> None:
    spec = Spec.parse("[H]", "[H]", ["H=8: 0"], ["k=3: 2"], max_primitives=2, min_weights=0, wants="H>=m")
    plain, wishing = Around(State.root(replace(spec, wants=()))), Around(State.root(spec))
    for around in (plain, wishing):
        while around.grow(2):
            pass
    assert plain.branch("start").kind == "operator"
    assert wishing.branch("start").kind == "open"
    assert wishing.branch("start").reason == "complete, but it misses the wish H>=m (it is one-to-one)"


def test_a_place_is_chosen_and_opens_in_the_stepper(space: Explorer) -> None:
    waited(space)
    key = next(box["key"] for box in space.boxes if box["level"] == 2 and box["key"])
    space.chosen = key
    assert space.facts["key"] == key
    assert space.facts["svg"].startswith("<svg")
    assert [one["key"] for one in space.way] == ["start", key.split(".")[0], key]
    space.handle({"kind": "open", "request": 7, "key": key})
    assert (space.answered, space.error) == (7, "")
    assert space.opened is not None
    assert space.opened.state == space.state
    assert len(space.state.steps) == 2
    space.root = key.split(".")[0]
    assert space.boxes[0]["key"] == space.root
    space.chosen = "no such place"
    assert space.facts == {}


def test_a_state_and_an_operator_can_be_the_start() -> None:
    operator = conv2d()
    for start, kind in ((operator, "operator"), (State.root(operator.spec).apply(operator.steps[0]), "open")):
        view = Explorer(start, depth=1)
        assert view.boxes[0]["kind"] == kind
        assert view.boxes[0]["text"].startswith(f"{SIGNS[kind]}after ")
        view.close()


@pytest.mark.parametrize(
    ("start", "measure"),
    [(small_spec(), "shape distance"), (Draft(), "primitives still needed")],
    ids=("pGraphs", "Canvas"),
)
def test_the_distance_has_the_words_of_its_system(start: Any, measure: str) -> None:
    view = Explorer(start, depth=1)
    assert view.measure == measure
    assert session_of(start).construction.labels.measure == measure
    assert f"{measure} " in view.boxes[0]["words"]
    view.close()


# -- the tree of a search ----------------------------------------------------------------------------------------------


def test_the_tree_grows_while_it_is_looked_at(tmp_path: Path) -> None:
    with known_search(tmp_path, 3) as search:
        view = Explorer(tmp_path)
        assert view.source == "search:mine"
        assert view.headline.startswith(f"{search.search.tree.root.searches} searches, ")
        before = view.boxes[0]["words"]
        seen = threading.Event()
        view.observe(lambda change: seen.set(), "headline")
        search.go_on(5)
        assert seen.wait(120)  # by itself
        assert view.boxes[0]["words"] != before
        assert view.headline.startswith(f"{search.search.tree.root.searches} searches, ")
        view.close()


def test_a_place_of_a_search_opens_with_the_rest_ahead(tmp_path: Path) -> None:
    with known_search(tmp_path, 12) as search:
        view = Explorer(tmp_path, depth=8, colour="searches")
        tree = search.search.tree
        at = next(place for place in tree.places if place.visits and place.parent == 0)
        view.chosen = str(at.number)
        assert "the best below it" in view.facts["note"]
        stepper = view.step_from()
        assert stepper.state.steps == view.state.steps
        while stepper.session.position < len(stepper.line) - 1:
            stepper.redo()
        assert stepper.complete  # the rest of the operator lay ahead
        state = view.state
        dead = next(place for place in tree.places if tree.is_dead(place))
        view.handle({"kind": "open", "request": 1, "key": str(dead.number)})
        assert "the search has drawn no operator below this node" in view.error
        view.handle({"kind": "around", "request": 2, "key": str(at.number)})
        assert (view.source, view.error) == ("space", "")
        assert [one["key"] for one in view.sources] == ["search:mine", "space"]
        assert view.state == state
        view.source = "search:mine"
        assert view.boxes[0]["key"] == "0"
        view.close()


def test_a_lab_without_searches_and_a_broken_tree(tmp_path: Path) -> None:
    view = Explorer(tmp_path / "none")
    assert "is not there" in view.error
    assert view.boxes == []
    view.close()
    with known_search(tmp_path, 2):
        file = tmp_path / "searches" / "mine" / "tree.json"
        good = file.read_text()
        view = Explorer(str(tmp_path))
        shown = view.boxes
        file.write_text("{")
        view._try_to_refresh()
        assert "expected JSON of syno-lab search tree version 1" in view.error
        assert view.boxes == shown  # what was seen stays
        file.write_text(good)
        view._try_to_refresh()
        assert view.error == ""
        view.source = "search:other"
        assert "no search 'search:other' in this lab" in view.error
        with pytest.raises(SynoError, match="no search 'search:other' in this lab"):
            view.refresh()
        view.close()


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="Explorer: unexpected keyword argument 'width'; known are source, root"):
        Explorer(small_spec(), width=3)
    with pytest.raises(SpecError, match=r"Explorer: expected a spec, a state, an operator, a lab .*, found int"):
        Explorer(3)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="depth: expected a number from 1 to 16, found 17"):
        Explorer(small_spec(), depth=17)
    with pytest.raises(SpecError, match=r"Explorer: .*colour"):
        Explorer(small_spec(), colour="pink")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"kind": "open", "request": 1, "key": "99999"}, "no node '99999' here"),
        ({"kind": "around", "request": 1, "key": "<script>"}, "no node '<script>' here"),
        ({"kind": "burn", "request": 1, "key": "0"}, "the browser sent a message that the explorer does not know"),
        ("nonsense", "the browser sent a message that the explorer does not know"),
    ],
)
def test_bad_messages_are_one_line(space: Explorer, message: Any, said: str) -> None:
    waited(space)
    before = space.boxes
    space.handle(message)
    assert said in space.error
    assert "\n" not in space.error
    assert space.boxes == before


# -- outputs and the script --------------------------------------------------------------------------------------------


def test_a_search_is_replayed(tmp_path: Path) -> None:
    with known_search(tmp_path, 12) as search:
        view = Explorer(tmp_path, depth=8)
        count = len(view._trials)
        assert view.trials["count"] == count == 12
        assert view.trials["words"] == ""
        whole = view.headline
        view.chosen = view.boxes[1]["key"]
        view.upto = 1
        assert view.chosen == "", "it was a place of another tree"
        assert len(view.boxes) == 1 + len(view._trials[0].steps)
        assert all(box["is_best"] for box in view.boxes)
        view.chosen = view.boxes[-1]["key"]
        assert view.facts["svg"].startswith("<svg")
        view.upto = 7
        assert view.chosen != ""
        assert view.trials["words"].startswith("After trial 7 of 12: ")
        view.upto = 1000
        assert view.trials["words"].startswith("After trial 12 of 12: ")
        search.go_on(2)
        view.refresh()
        assert view.trials["words"].startswith("After trial 14 of 14: ")
        view.upto = 0
        assert view.headline != whole
        with pytest.raises(SpecError, match="upto: expected a number of trials from 0 on, found -1"):
            view.upto = -1
        view.close()
        tree_file(tmp_path, "mine").unlink()  # as of a search by another method
        other = Explorer(tmp_path)
        assert other.error == ""
        assert other.trials["words"].startswith("After trial 14 of 14: ")
        other.close()


def test_the_page_and_the_picture(space: Explorer, tmp_path: Path) -> None:
    waited(space)
    bundle = space._bundle()
    assert bundle["image/svg+xml"].startswith("<svg")
    assert space.headline in bundle["text/plain"]
    text = space.to_html(tmp_path / "space.html")
    assert text == (tmp_path / "space.html").read_text()
    state = page_state(text)
    assert state["live"] is False
    assert state["boxes"] == space.boxes
    assert state["opened"] is None
    with pytest.raises(SynoError, match="cannot write"):
        space.to_html(tmp_path / "no" / "where.html")


def test_every_trait_is_documented_and_read_by_the_script(space: Explorer) -> None:
    script = "".join((WIDGETS / name).read_text() for name in ("shared.js", "explorer.js"))
    read = set(re.findall(r'model\.get\("(\w+)"\)', script))
    named = {name for names in re.findall(r"listen\(\[(.*?)\]", script) for name in re.findall(r'"(\w+)"', names)}
    traits = {**View.class_own_traits(sync=True), **Explorer.class_own_traits(sync=True)}
    own = {name for name in traits if not name.startswith("_")}
    assert read | named == own
    source = "".join((WIDGETS / name).read_text() for name in ("view.py", "explorer.py"))
    for name in own:
        assert re.search(rf'    {name} = t\..*\n    """', source), f"{name} has no line of documentation"
    with pytest.raises(TraitError, match="read-only"):
        space.boxes = []


@pytest.mark.parametrize("name", ["explorer.js", "explorer.css"])
def test_no_address_stands_in_what_is_shipped(name: str) -> None:
    text = (WIDGETS / name).read_text()
    assert not re.search(r"https?:|//[a-z]+\.[a-z]|@import|import\s*\(|url\(|fetch\(|eval\(|innerHTML", text)
