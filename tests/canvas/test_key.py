"""The canonical key: equal if and only if isomorphic; networkx decides independently."""

import random

import pytest
from canvas_growth import grown, kernel
from canvas_isomorphism import changed, isomorphic, renumbered
from hypothesis import given, settings
from hypothesis import strategies as st

from syno_lab.canvas.kernel import Draft, Kernel, Node, key_of
from syno_lab.canvas.matching import broadcast
from syno_lab.canvas.primitives import Primitive
from syno_lab.errors import PrimitiveError

SEEDS = st.integers(0, 2**32 - 1)


def draft(*nodes: tuple[str, str, tuple[int, ...]]) -> Draft:
    return Draft(tuple(Node(Primitive(name, parameter), inputs) for name, parameter, inputs in nodes))


@settings(max_examples=100)
@given(SEEDS, st.integers(1, 16))
def test_renumbering_keeps_the_key(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    found = grown(rng, steps)
    key = key_of(found)
    assert len(key) == 32
    for _ in range(10):
        assert key_of(renumbered(found, rng)) == key


def few_kinds(rng: random.Random, steps: int) -> Draft:
    """A draft of few primitives, so that many of its tensors look alike."""
    found = Draft()
    for _ in range(steps):
        one, other = (rng.randrange(len(found.shapes)) for _ in range(2))
        name = rng.choice(("relu", "add", "add", "sub", "fc"))
        try:
            if name == "fc":
                found = found.apply(Primitive("fc", rng.choice(("C", "x0", "x1"))), (one,))
            elif name == "relu":
                found = found.apply(Primitive(name), (one,))
            else:
                found = found.apply(Primitive(name), (one, other))
        except PrimitiveError:
            continue
    return found


@settings(max_examples=150)
@given(SEEDS, st.integers(1, 9), st.booleans())
def test_keys_are_equal_if_and_only_if_isomorphic(seed: int, steps: int, few: bool) -> None:
    rng = random.Random(seed)
    found = few_kinds(rng, steps) if few else grown(rng, steps)
    others = [changed(renumbered(found, rng), rng) for _ in range(6)]
    others += [few_kinds(rng, steps) if few else grown(rng, steps)]
    for other in others:
        assert (key_of(other) == key_of(found)) == isomorphic(found, other)


def test_all_small_drafts() -> None:
    """Every draft of up to three nodes over relu, add and sub: as many keys as classes."""
    drafts = [Draft()]
    layer = drafts
    for _ in range(3):
        layer = [
            found.apply(Primitive(name), inputs)
            for found in layer
            for name in ("relu", "add", "sub")
            for one in range(len(found.shapes))
            for inputs in ([(one,)] if name == "relu" else [(one, other) for other in range(len(found.shapes))])
        ]
        drafts = drafts + layer
    classes: dict[str, list[Draft]] = {}
    for found in drafts:
        classes.setdefault(key_of(found), []).append(found)
    first = [found[0] for found in classes.values()]
    for same in classes.values():
        assert all(isomorphic(same[0], other) for other in same[1:4])
    rng = random.Random(0)
    for one, other in (rng.sample(first, 2) for _ in range(400)):
        assert not isomorphic(one, other)


def test_subtraction_has_sides() -> None:
    sides = [draft(("relu", "", (0,)), ("sub", "", inputs)) for inputs in ((0, 1), (1, 0))]
    assert key_of(sides[0]) != key_of(sides[1])
    sides = [draft(("relu", "", (0,)), ("add", "", inputs)) for inputs in ((0, 1), (1, 0))]
    assert key_of(sides[0]) == key_of(sides[1])


def test_shared_and_doubled_tensors_differ() -> None:
    shared = draft(("relu", "", (0,)), ("mul", "", (1, 1)))
    doubled = draft(("relu", "", (0,)), ("relu", "", (0,)), ("mul", "", (1, 2)))
    assert key_of(shared) != key_of(doubled)


def test_one_variable_or_two() -> None:
    one = draft(("fc", "x0", (0,)), ("fc", "x0", (0,)))
    two = draft(("fc", "x0", (0,)), ("fc", "x1", (0,)))
    assert key_of(one) != key_of(two)
    assert key_of(two) == key_of(draft(("fc", "x5", (0,)), ("fc", "x3", (0,))))
    # The last FC has the variable of the tensor that a ReLU takes, or that of the other one.
    nodes = [("fc", "x0", (0,)), ("fc", "x1", (0,)), ("relu", "", (1,))]
    assert key_of(draft(*nodes, ("fc", "x0", (0,)))) != key_of(draft(*nodes, ("fc", "x1", (0,))))


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [("shift", "H+1", "H-1"), ("group", "G", "each"), ("unfold", "H", "W"), ("softmax", "C", "H"), ("fc", "C", "C/G")],
)
def test_parameters_count(name: str, one: str, other: str) -> None:
    assert key_of(draft((name, one, (0,)))) != key_of(draft((name, other, (0,))))


def test_slots_count_by_what_they_mean() -> None:
    # [G, H, W] onto [G, C/G, H, W] by hand: the same block, its empty window slots named or not.
    nodes = [("group", "G", (0,)), ("fold_avg", "C", (1,))]
    one, other = (draft(*nodes, ("add", span, (2, 1))) for span in ("C", "C..KW"))
    assert key_of(one) == key_of(other) == key_of(broadcast(draft(*nodes), "add", 2, 1))


def test_slots_that_mean_something_else_count() -> None:
    # [G, C/G, H, W] onto [G, C/G, KH, H, W] repeats along KH, or along C/G and KH as one block.
    nodes = [("group", "G", (0,)), ("unfold", "H", (1,))]
    one, other = (draft(*nodes, ("mul", span, (1, 2))) for span in ("KH", "C..KH"))
    assert key_of(one) != key_of(other)


def test_a_kernel_full_of_symmetries_is_keyed_at_once() -> None:
    # Sixteen equal branches under a tree of additions: 2^15 symmetries.
    nodes: list[tuple[str, str, tuple[int, ...]]] = []
    level = []
    for _ in range(16):
        nodes.append(("relu", "", (0,)))
        nodes.append(("exp", "", (len(nodes),)))
        level.append(len(nodes))
    while len(level) > 1:
        pairs = list(zip(level[::2], level[1::2], strict=True))
        nodes += [("add", "", pair) for pair in pairs]
        level = list(range(len(nodes) - len(pairs) + 1, len(nodes) + 1))
    found = draft(*nodes)
    assert key_of(renumbered(found, random.Random(1))) == key_of(found)


@settings(max_examples=20)
@given(SEEDS, st.integers(1, 8))
def test_kernels_have_the_key_of_their_draft(seed: int, steps: int) -> None:
    found = kernel(random.Random(seed), steps)
    assert found.key == key_of(Draft(found.nodes))
    assert Kernel(found.nodes).key == found.key
