"""Growth: what a draft may become, held against drafts that are grown without looking ahead."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest
from canvas_growth import SIZES
from hypothesis import given
from hypothesis import strategies as st

from syno_lab.canvas.growth import NEIGHBOURS, Growing, Limit, candidates, mixed, offers
from syno_lab.canvas.kernel import Draft, Node, Substitution
from syno_lab.canvas.matching import matches
from syno_lab.canvas.places import Budget, Place
from syno_lab.canvas.primitives import BROADCASTS, Primitive
from syno_lab.canvas.rules import LeastCosts, Room, pruning
from syno_lab.canvas.shape import is_legal, variables_of
from syno_lab.errors import PrimitiveError

PLACES = (Place(16, 16, 8, 8), Place(16, 32, 4, 4, stride=2))


def grown(room: Room, rng: random.Random) -> Draft | None:
    """The draft of one attempt that goes on to its end, if it gets there."""
    growing = Growing(room)
    while growing.left:
        found = growing.grow(rng, 2)
        if found is None:
            return None
        growing = found
    return growing.draft()


def every_draft(room: Room, draft: Draft) -> Iterator[Draft]:
    """All drafts of as many primitives as the room has that no rule prunes, found without its limits."""
    if len(draft.nodes) == room.primitives:
        yield draft
        return
    for name in sorted(room.include):
        for number, shape in enumerate(draft.shapes):
            options = (
                [
                    (Primitive(name, match.parameter), (number, other), match.substitution)
                    for other, onto in enumerate(draft.shapes)
                    for match in matches(shape, onto)
                ]
                if name in BROADCASTS
                else [(primitive, (number,), None) for primitive, _ in offers(name, shape, draft.fresh)]
            )
            for primitive, inputs, substitution in options:
                try:
                    before = draft if substitution is None else draft.substitute(*substitution)
                    after = before.apply(primitive, inputs)
                except PrimitiveError:
                    continue
                if pruning(before.nodes, before.shapes, primitive, inputs) is None:
                    yield from every_draft(room, after)


def guided(room: Room, draft: Draft) -> Iterator[Draft]:
    """All drafts that candidates without a verdict lead to."""
    if len(draft.nodes) == room.primitives:
        yield draft
        return
    for one in candidates(draft, room):
        if one.may_be_taken:
            before = draft if one.substitution is None else draft.substitute(*one.substitution)
            yield from guided(room, before.apply(one.primitive, one.inputs))


def kernels(room: Room, drafts: Iterator[Draft]) -> set[str]:
    """The keys of those that are kernels with what the room asks for."""
    found = set()
    for draft in drafts:
        fcs = sum(node.primitive.name == "fc" for node in draft.nodes)
        axes = [mixed(node.primitive) for node in draft.nodes]
        names = {node.primitive.name for node in draft.nodes}
        is_mixed = not room.must_mix or (any(row for row, _ in axes) and any(column for _, column in axes))
        if not (room.fcs[0] <= fcs <= room.fcs[1] and is_mixed and room.must_have <= names):
            continue
        try:
            found.add(draft.kernel().key)
        except PrimitiveError:
            continue
    return found


@pytest.mark.parametrize(
    ("primitives", "include", "changes"),
    [
        (3, {"fc", "unfold", "add", "fold_avg"}, {}),
        (3, {"fc", "fold_max", "group", "mul", "shift"}, {"fcs": (1, 2)}),
        (4, {"fc", "fold_avg", "mul"}, {"fcs": (1, 1)}),
        (3, {"fc", "softmax", "sub", "neg"}, {"must_mix": False, "fcs": (0, 1)}),
        (4, {"fc", "fold_avg", "mul", "relu"}, {"must_have": frozenset({"fc", "mul", "relu"}), "must_mix": False}),
        (3, {"fc", "shift", "unfold", "max"}, {"must_have": frozenset({"shift", "unfold"})}),
    ],
    ids=["unfold", "group", "squeeze", "no need", "must have", "must have neighbours"],
)
def test_looking_ahead_loses_no_kernel(primitives: int, include: set[str], changes: dict[str, object]) -> None:
    room = Room(primitives, **{"include": frozenset(include)} | changes)  # type: ignore[arg-type]
    wanted = kernels(room, every_draft(room, Draft()))
    assert len(wanted) > 10
    assert kernels(room, guided(room, Draft())) == wanted


def test_a_narrow_room_keeps_its_width() -> None:
    room = Room(3, width=1, include=frozenset({"fc", "unfold", "add", "shift"}))
    for draft in guided(room, Draft()):
        assert all(len(Draft(draft.nodes[:number]).leaves) == 1 for number in range(len(draft.nodes) + 1))


@given(st.integers(0, 10**6), st.integers(3, 9), st.integers(1, 4))
def test_what_is_drawn_is_a_candidate(seed: int, primitives: int, width: int) -> None:
    rng = random.Random(seed)
    costs = LeastCosts(PLACES, Budget.of_shares(PLACES, max_flops=0.5), 4)
    room = Room(primitives, width=width, costs=costs)
    growing = Growing(room)
    while growing.left:
        before = growing.draft()
        found = growing.grow(rng, 2)
        if found is None:
            return
        after, node = found.draft(), found.nodes[-1]
        listed = {
            (before if one.substitution is None else before.substitute(*one.substitution)).apply(*one[:2])
            for one in candidates(before, room)
            if one.may_be_taken
        }
        assert after in listed, node
        assert after.shapes == Draft(after.nodes).shapes
        growing = found
    assert growing.draft().why_incomplete is None
    growing.draft().kernel()  # a variable of the output can be solved


def test_a_dead_end_has_no_candidate() -> None:
    rng = random.Random(0)
    dead = 0
    for _ in range(300):
        room = Room(rng.randint(3, 8), width=rng.randint(1, 4))
        growing: Growing | None = Growing(room)
        last = growing
        while growing is not None and growing.left:
            last, growing = growing, growing.grow(rng, 2)
        if growing is None and last is not None:
            dead += 1
            assert not any(one.may_be_taken for one in candidates(last.draft(), room))
    assert dead > 5


def test_the_least_cost_is_never_above_the_cost() -> None:
    rng = random.Random(1)
    budget = Budget.of_shares(PLACES, max_flops=1)
    found = 0
    while found < 30:
        costs = LeastCosts(PLACES, budget, 4)
        room = Room(6, costs=costs)
        draft = grown(room, rng)
        if draft is None or any(shape.free is not None for shape in draft.shapes):
            continue
        growing = Growing(room, draft.nodes, draft.shapes)
        kernel = draft.kernel()
        flops = sum(place.parts * kernel.flops(place.binding(4)) + place.pooling for place in PLACES)
        params = sum(place.parts * kernel.params(place.binding(4)) for place in PLACES)
        assert growing.flops == pytest.approx(flops)
        assert growing.params == pytest.approx(params)
        found += 1


def test_counts_are_those_of_the_draft() -> None:
    rng = random.Random(2)
    for _ in range(100):
        growing = Growing(Room(8))
        while growing.left and (found := growing.grow(rng, 2)) is not None:
            growing = found
            draft = growing.draft()
            assert growing.width == len(draft.leaves)
            assert growing.fresh == draft.fresh
            assert growing.fcs == sum(node.primitive.name == "fc" for node in draft.nodes)


def test_reasons_are_given() -> None:
    draft = Draft().apply(Primitive("fc", "x0"), (0,)).apply(Primitive("unfold", "H"), (0,))
    room = Room(4, width=2, fcs=(1, 1))
    reasons = {str(one): one.verdict for one in candidates(draft, room)}
    found = {verdict.name for verdict in reasons.values() if isinstance(verdict, Limit)}
    assert {"width", "FCs", "needs"} <= found
    assert all(a.name != b.name for a, b in pairwise(sorted({v for v in reasons.values() if v}, key=lambda v: v.name)))


def test_only_these_read_along_the_image() -> None:
    assert mixed(Primitive("shift", "H+1,W-1")) == (True, True)
    assert mixed(Primitive("fold_avg", "KH")) == (False, False)
    assert mixed(Primitive("softmax", "KW,H")) == (True, False)
    assert mixed(Node(Primitive("fc", "C"), (0,)).primitive) == (False, False)
    assert "unfold" in NEIGHBOURS


@given(st.integers(0, 10**6), st.integers(3, 9), st.integers(1, 4))
def test_a_substitution_is_that_of_the_draft(seed: int, primitives: int, width: int) -> None:
    rng = random.Random(seed)
    room = Room(primitives, width=width, costs=LeastCosts(PLACES, Budget.of_shares(PLACES, max_flops=1), 4))
    growing = Growing(room)
    for _ in range(rng.randint(1, primitives)):
        growing = growing.grow(rng, 3) or growing
    draft = growing.draft()
    for number in draft.variables:
        for by in SIZES:
            if any(used == number for used, _ in variables_of(by)) or not is_legal(by):
                continue
            found = growing.substituted(Substitution(number, by))
            try:
                wanted = Growing(room, (after := draft.substitute(number, by)).nodes, after.shapes)
            except PrimitiveError:
                assert found is None
                continue
            assert found is not None
            assert found.draft() == wanted.draft()
            for name in vars(wanted):
                assert getattr(found, name) == getattr(wanted, name), name


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_pairs_are_those_that_keep_the_width(seed: int, width: int) -> None:
    rng = random.Random(seed)
    growing = Growing(Room(8, width=width))
    for _ in range(rng.randint(0, 7)):
        growing = growing.grow(rng, 2) or growing
    tensors = range(len(growing.shapes))
    wanted = set()
    for pair in ((lhs, rhs) for lhs in tensors for rhs in tensors):
        leaves = {tensor for tensor in tensors if not growing.used[tensor]} - set(pair)
        if len(leaves) + 1 <= min(width, growing.left):
            wanted.add(pair)
    assert set(growing._pairs(rng)) == wanted
