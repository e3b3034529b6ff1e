"""A chain synthesised by hand: histories, texts, next steps, what is missing, and what is wanted changed by hand."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from syno_widgets import Explorer, Stepper

from syno_lab.alpha import Draft, Graph, NetworkOperator, Properties, Rel, operation
from syno_lab.alpha.changes import Change, change_of, possible
from syno_lab.alpha.known import KNOWN
from syno_lab.alpha.stepping import CONSTRUCTION
from syno_lab.alpha.synthesis import greedy
from syno_lab.alpha.system import ALPHA
from syno_lab.common.wants import RANK
from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.operators import conv2d
from syno_lab.sessions.session import Session, session_of
from syno_lab.systems import system_for

SHAPE = (2, 8, 8, 16)
CHAIN = (operation("conv", features=Rel(2)), operation("relu"), operation("average_pool", window=2, stride=2))
GRAPH = Graph.chain(SHAPE, CHAIN)


def begun(**options: Any) -> Session:
    session = session_of(Draft(Properties.of(GRAPH, **options), SHAPE))
    assert session.construction is CONSTRUCTION
    return session


def wandered(rng: random.Random, session: Session, moves: int = 12) -> Session:
    """A history of operations, changes of what is wanted, loads, resets and moves to and fro."""
    for _ in range(moves):
        what = rng.randrange(7)
        if what == 0:
            session.go(rng.randrange(len(session.places)))
        elif what == 1:
            session.load(rng.choice(list(session.known)))
        elif what == 2 and session.entry.parent is not None:
            session.undo()
        elif what == 3 and rng.random() < 0.3:
            session.reset()
        elif what == 4:
            choices = possible(session.state, rng.choice(("shape", "depth")))
            choices += possible(session.state, "mixing", (1, rng.randrange(3)))
            session.apply(session.aimed(session.state, rng.choice(choices).change.key))
        else:
            session.apply(rng.choice(session.candidates(session.state)))
    return session


def facts(session: Session) -> list[Any]:
    return [
        (one.number, one.parent, one.step, one.note, one.state, one.state.distances, one.operator)
        for one in session.places
    ] + [session.place, session.turns]


@pytest.mark.parametrize("start", [GRAPH, NetworkOperator.of_graph(GRAPH).variant, NetworkOperator.of_graph(GRAPH)])
def test_a_session_begins_with_a_chain_at_its_end(start: Any) -> None:
    assert system_for(start) is ALPHA
    session = session_of(start)
    assert session.is_complete
    assert session.operator == NetworkOperator.of_graph(GRAPH)
    assert [entry.step for entry in session.history] == [None, *CHAIN]  # type: ignore[attr-defined]
    assert set(session.known) == {"conv_block", "separable_block"}


def test_what_is_no_chain_is_refused() -> None:
    for start in (KNOWN["residual_block"](), KNOWN["residual_block"]().graph):
        with pytest.raises(SpecError, match="expected a chain of operations to step through, found a graph with bra"):
            session_of(start)
    with pytest.raises(SpecError, match="no space that the explorer shows"):
        Explorer(Draft(Properties.of(GRAPH), SHAPE))


def test_undo_redo_and_text_keep_everything(rng: random.Random) -> None:
    for options in ({}, {"normalised": True}, {"producer": "linear"}):
        session = wandered(rng, begun(**options))
        for text in (session.to_json(), session.to_word()):
            again = session_of(text)
            assert again.construction is CONSTRUCTION
            assert facts(again) == facts(session)
            assert again.to_json() == session.to_json()
        other = begun()
        other.graft(session)
        assert [one.state for one in other.places[1:]] == [one.state for one in session.places]


def test_other_instances_are_kept_in_the_text() -> None:
    draft = Draft(Properties.of(GRAPH), SHAPE, others=(((2, 16, 16, 32), (2, 8, 8, 64)), ((2, 4, 4, 8), None)))
    session = session_of(draft)
    session.finish()
    assert session.is_complete
    assert session_of(session.to_json()).state == session.state
    assert session.state.others == draft.others
    session.reset()
    assert session.state == draft


ROOT = {"aim": {"properties": Properties(depth=2).to_json(), "input_shape": [2, 4, 4, 8]}}
RELU = {"parent": 0, "operation": {"operation": "relu"}}
BAD = {
    "an unknown field": ({"code": "import os"}, "expected JSON of syno-lab-alpha-session version 1"),
    "no places": ({"places": []}, "places: expected from 1 to 20000, found 0"),
    "no aim": ({"places": [{"operation": {"operation": "relu"}}]}, "place 0: expected one of an operation, a change"),
    "two steps": ({"places": [ROOT, {**RELU, **ROOT}]}, "place 1: expected one of an operation, a change and an aim"),
    "an unknown operation": (
        {"places": [ROOT, {"parent": 0, "operation": {"operation": "system"}}]},
        "place 1: expected an operation",
    ),
    "an operation that does not apply": (
        {
            "places": [
                ROOT,
                {"parent": 0, "operation": {"operation": "conv", "attributes": {"features": 8, "groups": 3}}},
            ]
        },
        "place 1: conv",
    ),
    "no shape": (
        {"places": [{"aim": {**ROOT["aim"], "input_shape": [2, -4, 4]}}]},
        "place 0: expected a shape such as",
    ),
    "no such property": (
        {"places": [ROOT, {"parent": 0, "change": {"name": "width", "value": 3}}]},
        "place 1: expected a change of a shape, a depth or an entry of mixing, found 'width-3'",
    ),
    "no such letter": (
        {"places": [ROOT, {"parent": 0, "change": {"name": "mixing", "value": "q", "entry": [0, 0]}}]},
        "place 1: expected a letter",
    ),
    "no such entry": (
        {"places": [ROOT, {"parent": 0, "change": {"name": "mixing", "value": "o", "entry": [-1, 9]}}]},
        "place 1: expected a letter",
    ),
    "a negative depth": (
        {"places": [ROOT, {"parent": 0, "change": {"name": "depth", "value": -1}}]},
        "place 1: properties: depth: expected an integer of 0 or more",
    ),
    "another operator": (
        {"places": [ROOT, {**RELU, "operator": KNOWN["conv_block"]().to_json()}]},
        "place 1: expected an operator of the steps before it, found another one",
    ),
    "a place that is not there": ({"place": 7}, "no place 7"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_texts_are_refused_in_one_line(case: str) -> None:
    change, message = BAD[case]
    good = {"format": "syno-lab-alpha-session", "version": 1, "places": [ROOT, RELU]}
    session = begun()
    session.read(json.dumps(good))
    with pytest.raises(FormatError) as found:
        session.read(json.dumps({**good, **change}))
    assert message in str(found.value)
    assert "\n" not in str(found.value)
    with pytest.raises(FormatError, match="expected format 'syno-lab-alpha-session', found 'syno-lab-session'"):
        session.read(session_of(conv2d()).to_json())


# -- next steps --------------------------------------------------------------------------------------------------------


def test_the_menu_has_all_candidates_with_verdicts_and_differences(rng: random.Random) -> None:
    session = begun()
    session.apply(CHAIN[0])
    state = session.state
    found = session.candidates(state)
    groups = session.menu(state, found, whole={one.operation.name for one in found})
    items = [item for group in groups for item in (*group["canonical"], *group["pruned"])]
    assert sorted(item["index"] for item in items) == list(range(len(found)))
    for item in items:
        one = found[item["index"]]
        after = state.apply(one.operation)
        assert item["text"] == str(one.operation)
        assert item["distance"] == (None if after.distance == float("inf") else after.distance)
        verdict, changes = item["notes"]
        for name, far in after.distances.items():
            if far == float("inf"):
                assert f"{name} out of reach" in changes
            else:
                assert f"Δ {name} {far - state.distances[name]:+g}".replace(" +0", " 0") in changes
        if one.verdict == "represented":
            assert verdict.startswith("represented: same properties as ")
            assert session.why(state, one)["section"] == "4.5"
        elif after.distance == float("inf"):
            assert verdict.startswith("infeasible: cannot lead to ")
        else:
            assert verdict == ("progress" if after.distance < state.distance else "no progress")
            with pytest.raises(SynoError, match="this one may be taken"):
                session.why(state, one)
    assert {found[item["index"]].verdict for item in items} == {"progress", "no progress", "infeasible", "represented"}
    shown = session.menu(state, found)
    for short, whole in zip(shown, groups, strict=True):
        for kind in ("canonical", "pruned"):
            assert len(short[kind]) + short[f"more_{kind}"] == len(whole[kind])
    # Only what comes from the last tensor can be gone on with.
    assert session.menu(state, found, "t0") == []
    assert session.menu(state, found, "n0") == shown


def test_suggestions_are_greedy_and_random_ways_satisfy(rng: random.Random) -> None:
    session = begun()
    far = session.state.distance
    while not session.is_complete:
        nearest = min(one.distance for one in session.candidates(session.state))
        session.take_suggestion()
        assert session.state.distance == nearest < far
        far = nearest
    with pytest.raises(SynoError, match="nothing to append: all that is wanted is satisfied already"):
        session.finish()
    assert session.operator.graph == session.state.graph()
    for _ in range(5):
        session = begun()
        session.lay(session.random_steps(session.state, rng))
        assert session.is_complete
        assert Properties.of(GRAPH).satisfied_by(session.operator.graph)


def test_undo_to_last_progress() -> None:
    session = begun()
    with pytest.raises(SynoError, match="nothing to undo"):
        session.undo_to_progress()
    session.apply(CHAIN[0])
    place = session.place
    with pytest.raises(SynoError, match="nothing to undo"):
        session.undo_to_progress()
    session.apply(operation("conv", features=Rel()))
    session.apply(operation("batch_norm"))
    session.undo_to_progress()
    assert session.place == place
    # What was wanted anew by hand stays.
    session.apply(change_of(session.state, "depth-4"))
    place = session.place
    session.apply(operation("batch_norm"))
    session.undo_to_progress()
    assert session.place == place


# -- what is wanted ----------------------------------------------------------------------------------------------------


def test_a_change_says_before_what_it_does(rng: random.Random) -> None:
    """What is said of each choice is what happens; what is feasible can be synthesised (Theorem 4.4)."""
    session = begun()
    session.apply(rng.choice([one for one in session.candidates(session.state) if one.verdict == "progress"]))
    draft = session.state
    choices = [*possible(draft, "shape"), *possible(draft, "depth")]
    choices += [one for out in range(4) for axis in range(4) for one in possible(draft, "mixing", (out, axis))]
    assert len(choices) == len({one.change.key for one in choices})
    before = draft.properties.mixing[0][0]
    assert before is not None
    for one in choices:
        assert change_of(draft, one.change.key) == one.change
        after = one.change.apply(draft)
        again = Draft(after.properties, draft.input_shape, draft.chain)
        assert after.distances == again.distances
        assert one.is_feasible == (after.distances[one.change.name] < float("inf"))
        if one.kind == "weaker":
            assert one.is_feasible
            assert after.distance <= draft.distance
        if one.change.entry is not None:
            out, axis = one.change.entry
            wanted = after.properties.mixing[0][0]
            assert wanted is not None
            assert wanted.marks[out][axis] == one.change.value
            assert (one.kind == "weaker") == (RANK[wanted.marks[out][axis]] < RANK[before.marks[out][axis]])
            differences = [
                mine != theirs
                for a, b in zip(wanted.marks, before.marks, strict=True)
                for mine, theirs in zip(a, b, strict=True)
            ]
            assert sum(differences) == 1
    feasible = [one for one in choices if one.is_feasible]
    for one in rng.sample(feasible, 6):
        assert greedy(one.change.apply(draft), rng).draft is not None, one
    for key in ("mixing-1-2-q", "mixing-9-9-m", "depth-99", "width-3", "mixing-x-1-m", "shape", ""):
        with pytest.raises(SpecError, match="expected a change of what is wanted"):
            change_of(draft, key)


def test_what_was_not_asked_for_can_be_wanted() -> None:
    draft = Draft(Properties(depth=0), SHAPE)
    assert Change("mixing", "m", (1, 1)).apply(draft).distances["mixing"] == 1
    (only,) = possible(draft, "shape")
    assert only.change == Change("shape", SHAPE)
    asked = only.change.apply(draft)
    assert asked.properties.shape == ((SHAPE,),)
    assert Change("shape", None).apply(asked).properties.distances(GRAPH)["shape"] == 0


# -- in the widget -----------------------------------------------------------------------------------------------------


def test_the_stepper_tells_three_distances_and_takes_changes() -> None:
    stepper = Stepper(Draft(Properties.of(GRAPH), SHAPE), seed=1)
    shown = lambda: {part["name"]: (part["text"].split(",")[0], part["share"]) for part in stepper.strip}  # noqa: E731
    assert shown() == {
        "shape": ("distance 3", 1),
        "depth": ("distance 3", 1),
        "mixing": ("distance 6", 1),
        "sum": ("distance 12", 1),
    }
    stepper.finish()
    assert stepper.complete
    assert all(text == ("distance 0", 0) for text in shown().values())
    assert stepper.distance["number"] == 0
    assert "mixing: 6," in stepper.distance["course"]
    message = {"kind": "aim", "request": 1, "revision": stepper.revision, "name": "mixing-1-2-m"}
    stepper._handle_custom_msg(message, [])
    assert stepper.error == ""
    assert stepper.strip[2]["text"].startswith("distance 1")
    matrix = stepper.distance["aims"][1]
    assert matrix["lacks"] == [[1, 2]]
    assert matrix["wanted"][1][2] == "m"
    assert matrix["now"]["marks"][1][2] == "x"
    message |= {"request": 2, "revision": stepper.revision, "name": "mixing-1-2-z"}
    stepper._handle_custom_msg(message, [])
    assert stepper.error == "expected a change of what is wanted, found 'mixing-1-2-z'"
    stepper.complete_at_random()
    assert stepper.complete
    assert stepper.operator.format == "syno-lab-alpha"
    message |= {"request": 3, "revision": 0, "name": "depth-1"}
    stepper._handle_custom_msg(message, [])
    assert stepper.error == "the list has changed since that choice; choose again"
    with pytest.raises(SynoError, match="expected a step of the list, found the choice 'depth-1'"):
        session_of(conv2d()).aimed(conv2d().state, "depth-1")
