"""The history of a session: a reference model, and every refusal."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from syno_lab.errors import PrimitiveError, SpecError, SynoError
from syno_lab.ir.build import Build
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.operators import KNOWN, conv1x1, conv2d, matmul
from syno_lab.sessions.session import Session
from syno_lab.synthesis.candidates import candidates
from syno_lab.synthesis.orders import is_same_pgraph, recognise

SPEC = Spec.parse("[C, H]", "[D, H]", ["C=8", "D=8", "H=8"], ["k=3"], max_primitives=6)
SMALL = {name: KNOWN[name] for name in ("matmul", "conv1x1", "pixel_shuffle")}


class SessionMachine(RuleBasedStateMachine):
    """Against the plainest model there is: lists of states, parents and steps, a cursor, and who was visited last."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Session(SPEC, SMALL)
        self.states = [State.root(SPEC)]
        self.parents: list[int | None] = [None]
        self.steps: list[Step | None] = [None]
        self.visits: list[int] = [0]  # the places gone through, the latest last
        self.cursor = 0

    def append(self, parent: int, state: State, step: Step | None) -> int:
        self.states.append(state)
        self.parents.append(parent)
        self.steps.append(step)
        self.visits.append(len(self.states) - 1)
        return len(self.states) - 1

    def visit(self, place: int) -> None:
        self.cursor = place
        way = []
        number: int | None = place
        while number is not None:
            way.append(number)
            number = self.parents[number]
        self.visits += reversed(way)

    def ahead(self, place: int) -> int | None:
        behind = [n for n, parent in enumerate(self.parents) if parent == place]
        return max(behind, key=lambda n: len(self.visits) - self.visits[::-1].index(n), default=None)

    @rule(choice=st.integers(0, 10_000))
    def apply(self, choice: int) -> None:
        found = candidates(self.session.state)
        if not found:
            return
        step = found[choice % len(found)].step
        before = self.session.state
        after = self.session.apply(step)
        assert after == before.apply(step)
        # undo∘apply is the identity, and redo∘undo too.
        assert self.session.undo() is before
        assert self.session.redo() is after
        known = [n for n, parent in enumerate(self.parents) if parent == self.cursor and self.steps[n] == step]
        self.visit(known[0] if known else self.append(self.cursor, after, step))

    @precondition(lambda self: self.parents[self.cursor] is not None)
    @rule()
    def undo(self) -> None:
        self.session.undo()
        parent = self.parents[self.cursor]
        assert parent is not None
        self.visit(parent)

    @precondition(lambda self: self.ahead(self.cursor) is not None)
    @rule()
    def redo(self) -> None:
        self.session.redo()
        ahead = self.ahead(self.cursor)
        assert ahead is not None
        self.visit(ahead)

    @rule(place=st.integers(0, 1000))
    def go(self, place: int) -> None:
        place %= len(self.states)
        self.session.go(place)
        self.visit(place)

    @rule(place=st.integers(0, 30))
    def jump(self, place: int) -> None:
        line = self.session.history
        chosen = line[place % len(line)].number
        self.session.jump(place % len(line))
        self.visit(chosen)
        assert self.session.history == line, "a jump along the line leaves it as it is"

    @rule()
    def reset(self) -> None:
        self.session.reset()
        self.visit(self.append(self.cursor, State.root(self.states[self.cursor].spec), None))

    @rule(name=st.sampled_from(sorted(SMALL)), at_start=st.booleans())
    def load(self, name: str, at_start: bool) -> None:
        operator = SMALL[name]()
        start = place = self.append(self.cursor, State.root(operator.spec), None)
        for step in operator.steps:
            place = self.append(place, self.states[place].apply(step), step)
        self.visit(place)
        self.session.load(name, at_start=at_start)
        if at_start:
            self.visit(start)

    @rule()
    def refuse(self) -> None:
        """A step that is not legal changes nothing."""
        before = self.session.places, self.session.place
        with pytest.raises(PrimitiveError, match="expected at least one shared coordinate"):
            self.session.apply(Step("SHARE"))
        assert before == (self.session.places, self.session.place)

    @rule()
    def keep_and_open(self) -> None:
        """Written down and read again it is the same session, redo included."""
        again = self.session.read(self.session.to_word())
        assert again.to_json() == self.session.to_json()
        assert [entry.number for entry in again.history] == [entry.number for entry in self.session.history]
        self.session = again

    @invariant()
    def agrees(self) -> None:
        session = self.session
        assert [entry.state for entry in session.places] == self.states
        assert [entry.parent for entry in session.places] == self.parents
        assert [entry.number for entry in session.places] == list(range(len(self.states)))
        assert session.place == self.cursor
        assert session.state == self.states[self.cursor]
        assert (session.entry.parent is not None) == (self.parents[self.cursor] is not None)
        assert (session.ahead(session.place) is not None) == (self.ahead(self.cursor) is not None)
        assert session.is_complete == self.states[self.cursor].is_complete
        assert session.history[session.position].number == self.cursor

    @invariant()
    def each_place_follows_from_the_one_before(self) -> None:
        line = self.session.history
        for one, other in itertools.pairwise(line):
            assert other.parent == one.number
            if other.step is None:
                assert other.state == State.root(other.state.spec)
            else:
                assert other.state == one.state.apply(other.step)
        assert line[-1].number == self.cursor or self.ahead(line[-1].number) is None


TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)


# -- beginnings --------------------------------------------------------------------------------------------------------


def test_starts_from_a_spec_a_state_or_an_operator() -> None:
    assert Session(SPEC).state == State.root(SPEC)
    operator = conv2d()
    session = Session(operator)
    assert session.position == len(operator.steps)
    assert [entry.step for entry in session.history] == [None, *operator.steps]
    assert session.operator == operator
    half = session.history[3].state
    assert Session(half).state == half


def test_anything_else_is_refused() -> None:
    with pytest.raises(SpecError, match="expected a spec, a state or an operator of a system that is known, found str"):
        Session("conv2d")


def test_an_operator_keeps_its_own_match() -> None:
    build = Build("[H, H]", "[H, H]", ["H"])
    i, j = build.output
    moved = build.shift(i)
    for inputs in ((moved, j), (j, moved)):
        operator = Operator(build.state, inputs)
        assert Session(operator).operator == operator


# -- branches ----------------------------------------------------------------------------------------------------------


def test_another_step_begins_a_branch_and_the_same_step_does_not() -> None:
    session = Session(conv2d())
    session.go(3)
    session.apply(conv2d().steps[3])
    assert (session.place, len(session.places)) == (4, 7), "the step that is there already"
    session.go(3)
    other = next(c for c in candidates(session.state) if c.step != conv2d().steps[3])
    session.apply(other)
    assert (session.place, len(session.places), session.children(3)) == (7, 8, (4, 7))
    session.undo()
    session.redo()
    assert session.place == 7, "redo goes to the branch that was visited last"
    session.go(6)
    assert session.operator == conv2d()
    session.go(3)
    session.redo()
    assert session.place == 4


def test_another_session_is_grafted_on() -> None:
    session, other = Session(SPEC, SMALL), Session(conv2d())
    other.go(2)
    session.graft(other)
    assert (session.place, session.state, session.ahead(3) is not None) == (3, other.state, True)
    assert session.places[1].note == "open"
    session.go(7)
    assert session.operator == conv2d()
    session.go(1)
    session.undo()
    assert session.state == State.root(SPEC)


def test_there_is_an_end_to_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syno_lab.sessions.history.MAX_PLACES", 8)
    session = Session(conv2d())
    session.reset()
    with pytest.raises(SynoError, match="a session holds at most 8 places"):
        session.reset()


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_nothing_to_undo_or_redo() -> None:
    session = Session(SPEC)
    with pytest.raises(SynoError, match="nothing to undo: this is the beginning"):
        session.undo()
    with pytest.raises(SynoError, match="nothing to redo: this is the end"):
        session.redo()


@pytest.mark.parametrize("place", [-1, 7, True, "1", None])
def test_no_such_place(place: object) -> None:
    session = Session(conv2d())
    with pytest.raises(SynoError, match=r"no place .*: expected a number from 0 to 6"):
        session.go(place)  # type: ignore[arg-type]
    with pytest.raises(SynoError, match=r"no place .* in the history: expected a number from 0 to 6"):
        session.jump(place)  # type: ignore[arg-type]


def test_no_such_operator() -> None:
    with pytest.raises(SynoError, match="unknown operator 'conv9d'; known are conv1x1, matmul, pixel_shuffle"):
        Session(SPEC, SMALL).load("conv9d")
    with pytest.raises(SynoError, match="known are none"):
        Session(SPEC, {}).load("conv2d")


def test_an_incomplete_state_is_no_operator() -> None:
    session = Session(SPEC, SMALL)
    assert session.name is None
    with pytest.raises(PrimitiveError, match="not an operator yet"):
        _ = session.operator


# -- recognising -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(KNOWN))
def test_every_known_operator_is_recognised(name: str) -> None:
    found = recognise(KNOWN[name](), KNOWN)
    assert found is not None
    # Two names for one pGraph are told by the fingerprint, not by the list's order.
    assert found == name or is_same_pgraph(KNOWN[found](), KNOWN[name]())


def test_other_names_of_variables_and_another_order_of_steps() -> None:
    build = Build("[B, X, R, S]", "[B, Y, R, S]", ["S", "R", "Y", "X", "B"], ["unused=2", "q=5"])
    _, y, r, s = build.output
    q_2, q_1, x = build.reduce("q"), build.reduce("q"), build.reduce("X")
    build.contract([q_1, x, q_2], [y])
    build.unfold(s, q_2)
    build.unfold(r, q_1)
    assert recognise(build.state.operator(), KNOWN) == "conv2d"


def test_nearly_the_same_is_not_the_same() -> None:
    build = Build("[N, C, H, W]", "[N, D, H, W]", ["N", "C", "D", "H", "W"], ["k_1=3", "k_2=5"])
    _, d, h, w = build.output
    c, k, m = build.reduce("C"), build.reduce("k_1"), build.reduce("k_2")
    build.contract([c, k, m], [d])
    build.unfold(h, k)
    build.unfold(w, m)
    assert not is_same_pgraph(build.state.operator(), conv2d())
    assert recognise(build.state.operator(), KNOWN) is None
    assert not is_same_pgraph(matmul(), conv2d())


def test_a_renaming_must_be_one_to_one() -> None:
    """A square matrix product has the outline of conv1x1 over one variable fewer."""
    build = Build("[N, C, H, W]", "[N, C, H, W]", ["N", "C", "H", "W"])
    _, c, _, _ = build.output
    build.contract([build.reduce("C")], [c])
    inputs = list(build.state.matches())
    assert all(not is_same_pgraph(Operator(build.state, m), conv1x1()) for m in inputs)


def test_a_walk_with_history_replays_to_the_same_operator() -> None:
    rng = random.Random(7)
    session = Session(SPEC)
    for _ in range(5):
        found = [c for c in candidates(session.state) if c.verdict.canonical and c.distance is not None]
        if not found:
            break
        session.apply(rng.choice(found))
    steps = session.state.steps
    session.reset()
    for step in steps:
        session.apply(step)
    assert session.state.steps == steps
