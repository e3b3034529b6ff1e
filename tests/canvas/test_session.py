"""A kernel grown by hand: histories, texts, next steps, what is counted, and ways to an operator."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from syno_widgets import Explorer, Stepper

from syno_lab.canvas import known
from syno_lab.canvas.aim import Aim, AimedDraft, Taken, random_way, shortest_way
from syno_lab.canvas.fitted import Fitted
from syno_lab.canvas.growth import candidates
from syno_lab.canvas.kernel import Draft, Kernel, Substitution
from syno_lab.canvas.places import Budget, Place
from syno_lab.canvas.primitives import Primitive
from syno_lab.canvas.rules import RULES, Room, Rule
from syno_lab.canvas.sampler import Sampler
from syno_lab.canvas.shape import parse
from syno_lab.canvas.system import CANVAS
from syno_lab.errors import FormatError, PrimitiveError, SpecError, SynoError
from syno_lab.operators import conv2d
from syno_lab.sessions.around import Around
from syno_lab.sessions.construction import Patience
from syno_lab.sessions.session import Session, session_of
from syno_lab.sessions.text import word_of
from syno_lab.systems import system_for

PLACES = (Place(16, 16, 8, 8, layers=2), Place(16, 32, 4, 4, stride=2), Place(32, 32, 4, 4))
EXCITED = ("fold_avg H", "fold_avg W", "fc x0", "relu", "fc C", "sigmoid")


def sampler(**options: Any) -> Sampler:
    return Sampler(PLACES, **{"max_flops": 0.5, "primitives": (2, 7), **options})


def step(name: str, *inputs: int, by: tuple[int, str] | None = None) -> Taken:
    name, _, parameter = name.partition(" ")
    return Taken(Primitive(name, parameter), inputs, None if by is None else Substitution(by[0], parse(by[1])))


def excited(session: Session) -> Session:
    """Squeeze-and-excitation but for its last step."""
    for text in EXCITED:
        session.apply(text)
    return session


def wandered(rng: random.Random, session: Session, moves: int = 14) -> Session:
    """A history of steps, refused ones too, of loads, resets and moves to and fro."""
    for _ in range(moves):
        what = rng.randrange(6)
        if what == 0:
            session.go(rng.randrange(len(session.places)))
        elif what == 1:
            session.load(rng.choice(list(known.KNOWN)))
        elif what == 2 and session.entry.parent is not None:
            session.undo()
        elif what == 3 and rng.random() < 0.3:
            session.reset()
        else:
            found = [one for one in session.candidates(session.state) if _applies(session.state, one)]
            if found:
                session.apply(rng.choice(found))
    return session


def _applies(state: AimedDraft, one: Any) -> bool:
    try:
        state.apply(one)
    except PrimitiveError:
        return False
    return True


def facts(session: Session) -> list[Any]:
    return [
        (one.number, one.parent, one.step, one.note, one.state.draft, one.state.aim, one.operator)
        for one in session.places
    ] + [session.place, session.turns]


@pytest.mark.parametrize(
    "start",
    [Draft(), known.involution(), Fitted(known.figure_6()), sampler()],
    ids=["draft", "kernel", "fitted", "sampler"],
)
def test_a_session_begins_with_whatever_canvas_knows(start: Any) -> None:
    assert system_for(start) is CANVAS
    session = session_of(start)
    assert session.construction is CANVAS.construction
    kernel = start.kernel if isinstance(start, Fitted) else start
    assert session.state.draft.nodes == (() if isinstance(start, Sampler) else kernel.nodes)
    assert session.is_complete == (not isinstance(start, Draft | Sampler))
    again = session_of(session.state)
    assert again.state.aim == session.state.aim
    with pytest.raises(SpecError, match="expected a spec, a state or an operator of a system that is known, found int"):
        Session(3)


def test_undo_redo_and_text_keep_everything(rng: random.Random) -> None:
    for start in (
        Draft(),
        sampler(must_have=("mul", "unfold")),
        sampler(max_flops=None, max_params=0.4, must_mix=False),
    ):
        session = wandered(rng, session_of(start))  # type: ignore[arg-type]
        for text in (session.to_json(), session.to_word()):
            again = session_of(text)
            assert again.construction is CANVAS.construction
            assert facts(again) == facts(session)
            assert again.to_json() == session.to_json()
        before = facts(session)[: len(session.places)]
        place, state = session.place, session.state
        if session.entry.parent is not None:
            session.undo()
            assert session.redo() is state
            assert session.place == place
        step = next(one for one in session.candidates(state) if _applies(state, one))
        after = session.apply(step)
        assert after.draft == state.draft.apply(step)
        assert session.undo() is state
        assert session.apply(step) is after, "the same step leads to the place that is there"
        assert facts(session)[: len(before)] == before
        other = session_of(Draft())
        other.graft(session)
        assert [one.state for one in other.places[1:]] == [one.state for one in session.places]


def test_a_kernel_file_is_a_session_and_a_foreign_session_is_none() -> None:
    operator = known.involution().fit(PLACES, Budget.of_shares(PLACES, max_flops=0.5))
    session = session_of(operator.to_json())
    assert session.operator == operator
    assert session_of(session.to_word()).operator == operator
    for text in (conv2d().to_json(), session_of(conv2d()).to_json()):
        with pytest.raises(FormatError, match="expected format 'syno-lab-canvas-session', found"):
            session.read(text)


ROOT = {"aim": 0}
BAD = {
    "an unknown field": ({"code": "import os"}, "expected JSON of syno-lab-canvas-session version 1"),
    "no places": ({"places": []}, "places: expected from 1 to 20000, found 0"),
    "no such aim": ({"places": [{"aim": 3}]}, "place 0: expected a step, or an aim from 0 to 0"),
    "a parent ahead": ({"places": [ROOT, {"parent": 1, "aim": 0}]}, "place 1: expected a place before it"),
    "an illegal step": (
        {"places": [ROOT, {"parent": 0, "step": {"primitive": "fold_avg", "inputs": [0], "parameter": "KH"}}]},
        "place 1: node 0: fold_avg: expected a tensor with axis KH",
    ),
    "an unknown primitive": (
        {"places": [ROOT, {"parent": 0, "step": {"primitive": "<b>", "inputs": [0]}}]},
        "place 1: node 0: .*'<b>'",
    ),
    "a tensor ahead": (
        {"places": [ROOT, {"parent": 0, "step": {"primitive": "relu", "inputs": [7]}}]},
        "place 1: node 0: expected tensors that come before",
    ),
    "no such variable": (
        {"places": [ROOT, {"parent": 0, "step": {"primitive": "relu", "inputs": [0], "substitution": [99, "C"]}}]},
        "place 1: expected a dynamic variable from 0 to 7, found 99",
    ),
    "another operator": (
        {"places": [ROOT | {"operator": Fitted(known.residual()).to_json()}]},
        "place 0: expected an operator of the steps before it",
    ),
    "no such place": ({"place": 9}, "session: no place 9"),
    "no such turn": ({"turns": [0]}, "turns: expected a place with a parent, found 0"),
}


@pytest.mark.parametrize("what", list(BAD))
def test_bad_texts_are_refused_in_one_line(what: str) -> None:
    changes, said = BAD[what]
    text = json.dumps(json.loads(session_of(Draft()).to_json()) | changes)
    for given in (text, word_of(text)):
        with pytest.raises(FormatError, match=said) as refused:
            session_of(Draft()).read(given)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("places", [], "aim: expected at least one place"),
        ("groups", [0], "aim: expected whole numbers from 1 up for groups, found .0."),
        ("fewest", 10**6, "for fewest, found 1000000"),
        ("room", {"include": ["os"]}, "aim: expected primitives among .*, found 'os'"),
        ("room", {"width": -1}, "for width, found -1"),
        ("room", {"without_rules": ["os"]}, "without_rules: expected rules among .*, found 'os'"),
    ],
)
def test_bad_aims_are_refused_in_one_line(field: str, value: Any, said: str) -> None:
    record = json.loads(session_of(Draft()).to_json())
    aim = record["aims"][0]
    aim[field] = {**aim[field], **value} if isinstance(value, dict) else value
    with pytest.raises(FormatError, match=said):
        session_of(Draft()).read(json.dumps(record))


def test_a_session_keeps_the_rules_that_were_left_out() -> None:
    start = Draft().apply("fc C")
    for left_out in ((), ("unbounded", "double")):
        sampler = Sampler([Place(8, 8, 4, 4)], without_rules=left_out)
        session = session_of(sampler)
        assert {rule.name for rule in RULES if rule not in session.state.aim.room.rules} == set(left_out)
        again = session_of(session.to_json())
        assert again.state.aim == session.state.aim
        refused = {
            str(one): one.verdict.name
            for one in candidates(start, again.state.aim.room)
            if isinstance(one.verdict, Rule)
        }
        assert refused.get("exp(t1)") == (None if left_out else "unbounded")
        assert refused.get("add(t1, t1)") == (None if left_out else "double")
        assert refused["sub(t1, t1)"] == "zero"


def test_of_a_damaged_session_its_own_system_says_what_is_wrong() -> None:
    record = json.loads(session_of(Draft()).to_json())
    with pytest.raises(FormatError, match="session: no place 9"):
        session_of(json.dumps(record | {"place": 9}))
    with pytest.raises(FormatError, match="expected version 1, found 2"):
        session_of(json.dumps(record | {"version": 2}))


# -- meaning -----------------------------------------------------------------------------------------------------------


def test_what_is_grown_by_steps_computes_what_it_says(rng: random.Random) -> None:
    """Squeeze-and-excitation, in NumPy."""
    session = excited(session_of(Draft()))  # type: ignore[arg-type]
    session.apply(session.ticked(session.state, ["t6"], ["t0"], "mul H..W(t6, t0)"))
    assert session.name == "squeeze_excite"
    operator = session.operator
    bound = operator.complete_binding({"C_in": 6, "C_out": 6, "H": 3, "W": 5, "x0": 2})
    draw = np.random.default_rng(rng.randrange(1 << 30))
    x, first, second = (draw.normal(size=size) for size in ((1, 6, 3, 5), *operator.weight_sizes(bound)))
    hidden = np.maximum(first[0] @ x.mean((2, 3))[0], 0)
    wanted = x / (1 + np.exp(-(second[0] @ hidden)))[:, None, None]
    assert np.allclose(operator.reference(x, first, second, binding=bound), wanted)


def test_each_offered_size_computes_what_it_says(rng: random.Random) -> None:
    """An FC of the input times the input: channel c takes that of c modulo the size that was chosen."""
    session = session_of(Draft())
    session.apply("fc x0")
    choices = session.preview(session.state, [], ["t1"], ["t0"])["choices"]
    sizes = {one["name"].rpartition(":= ")[2]: one for one in choices if one["name"].startswith("mul")}
    assert set(sizes) == {"1", "C", "G", "C/G"}
    draw = np.random.default_rng(rng.randrange(1 << 30))
    for size, one in sizes.items():
        session.apply(session.ticked(session.state, ["t1"], ["t0"], one["name"]))
        shapes = session.state.draft.shapes
        channels = "" if size == "1" else f"{size}, "
        assert one["notes"] == [f"t1: [x0, H, W] → [{channels}H, W]", "t2: [C, H, W]"]
        assert one["notes"] == [f"t1: [x0, H, W] → {shapes[1]}", f"t2: {shapes[2]}"]
        operator = session.operator
        bound = operator.complete_binding({"C_in": 6, "C_out": 6, "H": 3, "W": 5, "G": 3})
        x, weight = draw.normal(size=(1, 6, 3, 5)), draw.normal(size=operator.weight_sizes(bound)[0])
        number = {"1": 1, "C": 6, "G": 3, "C/G": 2}[size]
        assert weight.shape == (1, number, 6)
        mixed = np.einsum("oc,nchw->nohw", weight[0], x)
        assert np.allclose(operator.reference(x, weight, binding=bound), x * np.tile(mixed, (1, 6 // number, 1, 1)))
        session.undo()


# -- next steps --------------------------------------------------------------------------------------------------------


def test_the_menu_has_every_candidate_with_its_verdict(rng: random.Random) -> None:
    session = wandered(rng, session_of(sampler()), 6)  # type: ignore[arg-type]
    session.load("squeeze_excite")
    session.undo()
    state = session.state
    found = session.candidates(state)
    names = {one.primitive.name for one in found}
    groups = session.menu(state, found, "", names)
    items = [item for group in groups for item in (*group["canonical"], *group["pruned"])]
    assert sorted(item["index"] for item in items) == list(range(len(found)))
    for group in groups:
        assert {found[item["index"]].primitive.name for item in group["canonical"]} <= {group["primitive"]}
        for item in (*group["canonical"], *group["pruned"]):
            one = found[item["index"]]
            assert item["text"] == str(one)
            assert (item["rule"] == "") == one.may_be_taken == (item in group["canonical"])
            if _applies(state, one):
                assert item["distance"] == state.apply(one).needed
                assert item["notes"][-1] == f"t{len(state.draft.shapes)}: {state.apply(one).draft.shapes[-1]}"
        far = [99 if item["distance"] is None else item["distance"] for item in group["canonical"]]
        assert far == sorted(far)
    for group in session.menu(state, found):
        all_of = [one for one in found if one.primitive.name == group["primitive"]]
        listed = len(group["canonical"]) + len(group["pruned"]) + group["more_canonical"] + group["more_pruned"]
        assert listed == len(all_of)
    only = session.menu(state, found, "t0", names)
    assert {found[item["index"]] for group in only for item in (*group["canonical"], *group["pruned"])} == {
        one for one in found if 0 in one.inputs
    }
    refused = next(one for one in found if one.verdict is not None)
    said = session.why(state, refused)
    assert said["rule"] == refused.verdict.name  # type: ignore[union-attr]
    with pytest.raises(SynoError, match="this one may be taken"):
        session.why(state, next(one for one in found if one.may_be_taken))


def test_ticked_tensors_are_the_candidates_on_them(rng: random.Random) -> None:
    session = wandered(rng, session_of(Draft()), 5)  # type: ignore[arg-type]
    session.load("involution")
    session.go(session.place - rng.randrange(3))
    state = session.state
    found = session.candidates(state)
    tensors = [tick["id"] for tick in session.ticks(state)]
    assert tensors == [f"t{number}" for number in range(len(state.draft.shapes))]
    one, other = rng.choice(tensors), rng.choice(tensors)
    for share, give in (([one], []), ([], [one]), ([one], [other])):
        inputs = tuple([int(name[1:]) for name in (*share, *give)])
        shown = session.preview(state, found, share, give)
        wanted = {str(each): each for each in found if each.inputs == inputs}
        assert {choice["name"]: choice["canonical"] for choice in shown["choices"]} == {
            name: each.may_be_taken for name, each in wanted.items()
        }
        for name, each in wanted.items():
            assert session.ticked(state, share, give, name) == Taken(each.primitive, each.inputs, each.substitution)
    assert session.preview(state, found, [], []) == {}
    assert "expected one tensor at most" in session.preview(state, found, tensors[:2], [])["text"]
    with pytest.raises(SynoError, match="no tensor 't99' in this draft"):
        session.ticked(state, ["t99"], [], "relu(t99)")
    with pytest.raises(SynoError, match=r"expected one of .*found 'nothing'"):
        session.ticked(state, ["t0"], [], "nothing")


# -- how far it is -----------------------------------------------------------------------------------------------------

#: With the fewest primitives of a kernel, and so many drafts at least that are none yet and become one.
SMALL = {
    "neighbours": (Room(3, 3, (1, 2), frozenset({"fold_avg", "fc", "add", "unfold"})), 2, 15),
    "merges": (Room(4, 4, (0, 1), frozenset({"fold_avg", "mul", "neg"}), must_mix=False), 1, 30),
    "channels": (Room(3, 3, (1, 3), frozenset({"fc", "group", "mul", "unfold"}), must_mix=False), 1, 30),
}


def after_any(state: AimedDraft) -> Iterator[AimedDraft]:
    """Behind every step that applies, refused ones too."""
    for one in candidates(state.draft, replace(state.aim.room, primitives=64)):
        if _applies(state, one):
            yield state.apply(one)


def is_kernel(state: AimedDraft) -> bool:
    """Counted here: a kernel can be made of it, with enough FCs and, if it must, primitives along both axes."""
    room = state.aim.room
    named = [node.primitive for node in state.draft.nodes]
    reading = [primitive.parameter for primitive in named if primitive.name in ("unfold", "fold_avg")]
    fcs = sum(primitive.name == "fc" for primitive in named)
    if not named or not room.fcs[0] <= fcs <= room.fcs[1]:
        return False
    if room.must_mix and not {"H", "W"} <= set(",".join(reading).split(",")):
        return False
    try:
        state.draft.kernel()
    except PrimitiveError:  # a variable of the output cannot be solved, say
        return False
    return True


@pytest.mark.parametrize("name", list(SMALL))
def test_the_number_needed_is_a_lower_bound_on_a_whole_space(name: str) -> None:
    """And a suggestion is never shorter than the truth. Every draft of some primitives of a few kinds."""
    room, fewest, many = SMALL[name]
    true: dict[Draft, int | None] = {}

    def measure(state: AimedDraft) -> int | None:
        if state.draft not in true:
            found: int | None = 0 if is_kernel(state) else None
            if found is None and len(state.draft.nodes) < room.primitives:
                steps = [far for far in map(measure, after_any(state)) if far is not None]
                found = 1 + min(steps) if steps else None
            true[state.draft] = found
        return true[state.draft]

    aim = Aim(room=room)
    assert measure(AimedDraft(Draft(), aim)) == fewest
    bounds = 0
    for draft, far in true.items():
        state = AimedDraft(draft, aim)
        assert state.is_complete == (far == 0), draft
        if far is not None:
            assert state.needed is not None, draft
            assert state.needed <= far, draft
            bounds += state.needed == far
    reached = [draft for draft, far in true.items() if far]
    assert len(reached) > many
    assert bounds > len(reached) / 2, "a bound that says something"
    for draft in reached:
        state = AimedDraft(draft, aim)
        try:
            way = shortest_way(state, Patience(None))
        except SynoError:
            continue  # only refused steps lead there
        assert len(way) >= true[draft]  # type: ignore[operator]
        for taken in way:
            state = state.apply(taken)
        assert state.is_complete


def test_ways_end_in_operators_within_the_budget(rng: random.Random) -> None:
    for share in (0.5, 0.2):
        session = session_of(sampler(max_flops=share))
        budget = session.state.aim.budget.max_flops
        for _ in range(4):
            session.reset()
            session.apply(rng.choice([one for one in session.candidates(session.state) if one.may_be_taken]))
            for steps in (random_way(session.state, rng), shortest_way(session.state)):
                start = session.place
                session.lay(steps)
                assert session.is_complete
                assert session.operator.spent.flops <= budget
                session.go(start)
    session.look_ahead()
    session.take_suggestion()
    if not session.is_complete:  # the way had one step
        session.finish()
    assert session.is_complete
    with pytest.raises(SynoError, match="nothing to suggest: this is an operator already"):
        session.finish()
    full = AimedDraft(known.convolution().draft, Aim(room=Room(2, fcs=(2, 2))))
    with pytest.raises(SynoError, match="expected room for at least 1 more primitives, found 0"):
        random_way(full, rng)
    with pytest.raises(SynoError, match="no operator can come of this draft: it has 1 FCs, and may have 0"):
        random_way(AimedDraft(known.residual().draft, Aim(room=Room(9, fcs=(0, 0)))), rng)


def test_the_space_around_a_draft_is_its_candidates(rng: random.Random) -> None:
    """Every candidate once, with its kind; behind each place the draft that the candidate gives."""
    state = AimedDraft(Draft(), Aim(room=SMALL["neighbours"][0]))
    for pruned in (True, False):
        around = Around(state, pruned=pruned)
        while around.waiting(2) is not None:
            key = around.waiting(2)
            assert key is not None
            around.put(key, around.look(key))
        for key in [around.root, *rng.sample(list(around.below(around.root)), 3)]:
            before = around.session(key).state
            if around.branch(key).kind not in ("open", "operator") or (key != around.root and not around.below(key)):
                continue
            found = [one for one in candidates(before.draft, before.aim.room) if _applies(before, one)]
            wanted = {str(one): one for one in found if pruned or one.may_be_taken}
            shown = {around.branch(child).text: child for child in around.below(key)}
            assert set(shown) == set(wanted)
            for text, child in shown.items():
                one, branch = wanted[text], around.branch(child)
                after = around.session(child).state
                assert after.draft == before.draft.apply(one)
                assert (branch.kind == "pruned") == (one.verdict is not None)
                if one.may_be_taken:
                    assert (branch.kind == "operator") == is_kernel(after)
                    assert branch.distance == after.needed
    explorer = Explorer(sampler(), depth=1)
    assert explorer.wait(60)
    assert "steps from 1 state" in explorer.headline
    key = next(row["key"] for row in explorer.table if row["kind"] != "pruned")
    assert explorer.step_from(key).state.aim.places == PLACES
    explorer.look_around(key)
    assert explorer.state.aim.places == PLACES
    explorer.close()


# -- costs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(known.KNOWN))
def test_costs_are_those_of_the_base_solution(name: str) -> None:
    """A kernel that is fitted without a budget has its base solution: its own FLOPs and parameters are the oracle."""
    kernel = Kernel(known.KNOWN[name]().nodes, normalise=True)
    state = AimedDraft(kernel.draft, session_of(sampler()).state.aim)
    groups = state.aim.groups[0] if "G" in kernel.variables else 1
    fitted = kernel.fit(PLACES, Budget(), groups)
    assert not isinstance(state.base, str)
    assert state.base.spent == fitted.spent


def test_the_strip_moves_with_each_step_and_tells_what_is_too_much() -> None:
    session = session_of(sampler(max_flops=0.2))
    shares = [{one["name"]: one["share"] for one in session.strip(session.state)}]
    for text in ("unfold H,W", "fc C"):
        session.apply(text)
        shares.append({one["name"]: one["share"] for one in session.strip(session.state)})
    pooling = sum(place.pooling for place in PLACES)
    assert shares[0]["FLOPs"] == pytest.approx(pooling / session.state.aim.budget.max_flops)
    assert shares[0] != shares[2]
    assert shares[2]["FLOPs"] > 1 > shares[1]["FLOPs"]
    assert [one["over"] for one in session.strip(session.state)] == [False, True, False]
    assert not session.is_complete
    assert "over the budget" in session.status()
    assert session.explain(session.state)["number"] is None


# -- shown -------------------------------------------------------------------------------------------------------------


def test_pictures_have_an_id_for_each_part(rng: random.Random) -> None:
    session = wandered(rng, session_of(Draft()), 8)  # type: ignore[arg-type]
    for place in rng.sample(range(len(session.places)), min(4, len(session.places))):
        session.go(place)
        picture = session.picture()
        root = ElementTree.fromstring(picture.svg)
        ids = {g.get("id") for g in root.iter("{http://www.w3.org/2000/svg}g") if g.get("class") != "graph"}
        assert ids == set(picture.nodes)
        for name, node in picture.nodes.items():
            assert name in node.light
            assert set(node.light) <= ids
        tensors = {f"t{number}" for number in range(len(session.state.draft.shapes))}
        assert {name for name, node in picture.nodes.items() if node.top} == tensors
        assert f"{len(session.state.draft.nodes)} primitive" in picture.description


def test_the_stepper_grows_a_kernel_of_a_sampler() -> None:
    stepper = Stepper(sampler(max_flops=None))
    excited(stepper.session)  # type: ignore[arg-type]
    stepper.go(stepper.session.place)
    assert [one["name"] for one in stepper.strip] == ["primitives", "FLOPs", "parameters"]
    assert stepper.labels["hand_columns"] == ("tensor", "LHS", "RHS")
    stepper.candidates  # noqa: B018 - waits until they are listed
    stepper._works.through(
        lambda: stepper._carry_out(
            Stepper._request("contract", 1, stepper.revision, share=["t6"], give=["t0"], name="mul H..W(t6, t0)")
        )
    )
    assert len(stepper.state.draft.nodes) == 7
    assert stepper.tree[-1]["text"] == "mul H..W(t6, t0)"
    stepper.load("residual")
    assert stepper.state.aim.places == PLACES
    stepper.close()
