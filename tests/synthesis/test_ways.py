"""Ways to the input against the truth: the fewest canonical steps, found by going backwards from every operator."""

from __future__ import annotations

import random
from functools import cache

import pytest
from true_distances import canonical_successors

from syno_lab.errors import SynoError
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.operators import conv2d
from syno_lab.sessions.session import Session
from syno_lab.synthesis.candidates import candidates
from syno_lab.synthesis.orders import is_operator
from syno_lab.synthesis.rules import rejecting_rule
from syno_lab.synthesis.sampler import Sampler
from syno_lab.synthesis.ways import random_way, shortest_way

SPECS = {
    "pooling and weights": Spec.parse(
        "[C, H]", "[D, H]", ["C=4: 1", "D=6: 0", "H=10: 0"], ["k=3: 1"], max_primitives=4, max_tensors=2
    ),
    "taken apart": Spec.parse(
        "[H, W]", "[s^-1*H, s*W]", ["H=12: 0", "W=10: 0"], ["s=2: 2"], max_primitives=4, max_tensors=2
    ),
}


@cache
def truth(name: str) -> dict[State, int]:
    """The states from which canonical steps lead to an operator of the space, with the fewest steps."""
    spec = SPECS[name]
    following: dict[State, set[State]] = {}
    level = {State.root(spec)}
    while level:
        for state in level:
            following[state] = {after for _, after in canonical_successors(state)}
        level = {after for state in level for after in following[state]} - following.keys()
    fewest = {state: 0 for state in following if is_operator(state)}
    for length in range(1, spec.limits.max_primitives + 1):
        for state, behind in following.items():
            if state not in fewest and any(fewest.get(after) == length - 1 for after in behind):
                fewest[state] = length
    assert len(fewest) > 30
    return fewest


def states(name: str, rng: random.Random, number: int) -> list[State]:
    """Random states from which there is a way."""
    found = [state for state in truth(name) if not state.is_complete]
    return rng.sample(found, min(number, len(found)))


@pytest.mark.parametrize("name", list(SPECS))
def test_a_suggestion_is_on_a_shortest_way(name: str, rng: random.Random) -> None:
    fewest = truth(name)
    for state in states(name, rng, 15):
        way = shortest_way(state, seconds=None)
        assert way.is_canonical
        assert way.is_shortest
        assert len(way.steps) == fewest[state]
        for left, step in zip(range(len(way.steps) - 1, -1, -1), way.steps, strict=True):
            assert rejecting_rule(state, step) is None
            state = state.apply(step)
            assert fewest[state] == left, "each step comes nearer by one"
        assert is_operator(state)


@pytest.mark.parametrize("name", list(SPECS))
def test_a_completion_is_in_the_space(name: str, rng: random.Random) -> None:
    space = {operator.state for operator in Sampler.from_spec(SPECS[name]).enumerate()}
    lengths = set()
    for state in [State.root(SPECS[name])] * 10 + states(name, rng, 12):
        way = random_way(state, rng, seconds=None)
        end = state
        for step in way.steps:
            end = end.apply(step)
        assert end in space
        lengths.add(len(way.steps))
    assert len(lengths) > 1


def test_suggestions_played_to_the_end_reach_the_input(rng: random.Random) -> None:
    """Also from states that no canonical way led to."""
    spec = SPECS["pooling and weights"]
    played = 0
    for _ in range(200):
        if played == 4:
            break
        session = Session(spec)
        for _ in range(rng.randrange(3)):
            session.apply(rng.choice([c for c in candidates(session.state) if c.distance is not None]))
        if session.is_complete:
            continue
        try:
            session.take_suggestion(seconds=None)
        except SynoError:
            continue
        while not session.is_complete:
            session.take_suggestion(seconds=None)
        played += 1
    assert played == 4


def test_finish_and_complete_lay_their_steps_ahead(rng: random.Random) -> None:
    session = Session(SPECS["pooling and weights"])
    session.finish(seconds=None, at_start=True)
    assert session.place == 0
    while session.ahead(session.place) is not None:
        session.redo()
    assert session.is_complete
    session.go(0)
    session.lay(session.random_steps(session.state, rng, seconds=None))
    assert is_operator(session.state)


def test_where_there_is_no_way() -> None:
    with pytest.raises(SynoError, match="nothing to suggest: this is an operator already"):
        shortest_way(conv2d().state)
    unreachable = State.root(Spec.parse("[C, H]", "[H]", ["C: 0", "H"]))
    with pytest.raises(SynoError, match="out of reach from here within the budgets"):
        shortest_way(unreachable)
    with pytest.raises(SynoError, match="out of reach from here within the budgets"):
        random_way(unreachable, random.Random(1))
    spec = Spec.parse("[C, H]", "[D, H]", ["C=4: 1", "D=6: 0", "H=10: 0"], max_primitives=1)
    spent = State.root(spec).apply(Step("REDUCE", (), spec.symbols.size("C")))
    for find in (shortest_way, lambda state: random_way(state, random.Random(1))):
        with pytest.raises(SynoError, match="no step is left in the budget of 1"):
            find(spent)


def test_time_ends_a_search() -> None:
    spec = SPECS["taken apart"]
    with pytest.raises(SynoError, match="no way to the input was found from here in 4 steps"):
        shortest_way(State.root(spec), seconds=0.0)
