"""The words of the space's steps, and a reader of their names: each is the oracle of the other."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_spaces import SPECS

from syno_lab.commands.pgraphs.specs import load_spec
from syno_lab.pgraphs.space import SynthesisState, synthesis_space
from syno_lab.protocol import SearchStep
from syno_lab.search.bayesian import Estimate, Portrait
from syno_lab.search.protocol import Step, bag
from syno_lab.systems import find_system

CONV, _ = load_spec("conv-authors", max_primitives=9, weight_limits="free")
SPACES = {name: synthesis_space(spec, countable_nodes=0) for name, spec in {**SPECS, "conv": CONV}.items()}
#: The actions of a step in its name; `` @`` and places follow them.
ACTION = re.compile(r"(END)|([A-Z]+)\(([^()]*)\)(?:x([0-9]+))?")


def read(name: str) -> SearchStep:
    """The step of this name, its words as one count."""
    actions, words, steps = [], Counter[str](), 0
    for found in ACTION.finditer(name.partition(" @")[0]):
        end, primitive, inner, repeated = found.groups()
        times = int(repeated or 1)
        actions.append(found[0])
        words[end or primitive] += times
        for size in re.findall("[^,; ]+", inner or ""):
            words[f"{primitive} {size}"] += times
        if primitive == "REDUCE":
            steps += times
        elif primitive and primitive != "GIVE":  # a weight that is given to is SHAREd by the next step: one together
            steps = 1  # for any number of coordinates
    return SearchStep(name, tuple(actions), steps=steps, words=tuple(words.items()))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("UNFOLD(H, k_1) @2,1 -> 0,2", {"UNFOLD": 1, "UNFOLD H": 1, "UNFOLD k_1": 1}),
        ("UNFOLD(g^-1*H, k_1) @0,3 -> 0", {"UNFOLD": 1, "UNFOLD g^-1*H": 1, "UNFOLD k_1": 1}),
        ("REDUCE(C_in)x2", {"REDUCE": 2, "REDUCE C_in": 2}),
        ("REDUCE(C_in)x1 REDUCE(k_1)x2", {"REDUCE": 3, "REDUCE C_in": 1, "REDUCE k_1": 2}),
        ("SPLIT(g, g) @1,2 -> 0,1", {"SPLIT": 1, "SPLIT g": 2}),
        ("MERGE(W; s) @1", {"MERGE": 1, "MERGE W": 1, "MERGE s": 1}),
        ("SHARE(H) SHARE(k_1) @2,0 -> 1,2", {"SHARE": 2, "SHARE H": 1, "SHARE k_1": 1}),
        ("GIVE(C_out) @0", {"GIVE": 1, "GIVE C_out": 1}),
        ("GIVE nothing", {}),
        ("END -> 1,0", {"END": 1}),
    ],
)
def test_names_are_taken_apart(name: str, words: dict[str, int]) -> None:
    assert bag([read(name)]) == words


def test_steps_of_a_search_count_as_those_of_the_operator() -> None:
    def taken(*names: str) -> int:
        return sum(read(name).steps for name in names)

    assert taken("REDUCE(C_in)x1 REDUCE(k_1)x2", "GIVE(C_out) @0", "SHARE(H) SHARE(k_1) @2,0 -> 1,2") == 4
    assert taken("GIVE nothing", "UNFOLD(H, k_1) @2,1", "STRIDE(H; s) @1", "END") == 2


@given(st.sampled_from(sorted(SPACES)), st.integers(0, 10_000))
def test_a_name_says_what_the_space_says_of_the_step(space: str, seed: int) -> None:
    rng = random.Random(seed)
    state: SynthesisState = SPACES[space]
    way: list[Step] = []
    while not state.is_complete and (children := state.children()):
        steps = rng.choice(list(children)).steps()
        for found in (step.record for step in steps):
            known = read(found.name)
            assert (found.actions, found.steps, bag([found])) == (known.actions, known.steps, bag([known]))
        if not steps:
            break
        way.append(rng.choice(list(steps)))
        assert isinstance(way[-1].state, SynthesisState)
        state = way[-1].state
    if state.is_complete and (operator := state.operator()) is not None:
        assert sum(step.steps for step in way) == len(operator.steps)
        primitives = Counter(step.primitive for step in operator.steps)
        for primitive in ("REDUCE", "UNFOLD", "SPLIT", "MERGE", "SHIFT", "EXPAND", "STRIDE"):
            assert bag(way)[primitive] == primitives[primitive]
        assert find_system(operator.format).summary(operator.to_json()).split() == list(
            dict.fromkeys(step.primitive for step in operator.steps)
        )


def test_the_same_primitive_at_another_size_is_more_alike_than_another_one() -> None:
    def done(name: str) -> Portrait:
        return Portrait(bag([read(name)]), Counter())

    estimate = Estimate()
    for name, reward in (("UNFOLD(H, k_1)", 0.9), ("MERGE(C; g)", 0.1)):
        estimate.add(done(name), reward)
    expected, _ = estimate.beliefs([done("UNFOLD(W, k_2)"), done("SHIFT(W)")])
    assert expected[0] > expected[1] + 0.1
