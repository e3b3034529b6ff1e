"""The methods of a draft for people: candidates that are steps, dead ends that are ones, pictures."""

from itertools import product

import pytest

import syno_lab as sl
from syno_lab.canvas.growth import candidates
from syno_lab.canvas.kernel import Draft
from syno_lab.canvas.rules import Room
from syno_lab.errors import PrimitiveError

SMALL = frozenset({"fc", "fold_avg", "add", "sigmoid"})


def test_a_draft_grows_by_text_on_the_last_tensor_or_a_named_one() -> None:
    assert sl.canvas.Draft().apply("unfold H,W").apply("fc C").kernel() == sl.canvas.known.convolution()
    draft = Draft().apply("fc C").broadcast("add", 1, 0)
    assert draft.kernel() == sl.canvas.known.residual()
    assert Draft().apply("fc C").apply("sigmoid", 0).nodes[1].inputs == (0,)
    with pytest.raises(PrimitiveError, match=r"expected a primitive among .* found 'blur'"):
        Draft().apply("blur H")


def test_a_draft_is_complete_where_it_gives_a_kernel() -> None:
    """Solving the variable of the output may make another tensor illegal: with C channels t1 repeats in t2 no more."""
    draft = Draft().apply("unfold H,W").apply("fc x0", 0).broadcast("add", 1, 2)
    why = "x0 := C: node 2: add: expected a RHS whose C is a multiple of LHS: the number of repeats"
    assert str(draft.why_incomplete).startswith(why)
    assert not draft.is_complete
    with pytest.raises(PrimitiveError, match=f"^{why}"):
        draft.kernel()


def test_candidates_are_the_steps_that_can_be_applied() -> None:
    draft = Draft().apply("fold_avg H").apply("fc x0", 0)
    found = draft.candidates()
    assert any(candidate.substitution for candidate in found)
    for candidate in found:
        if candidate.may_be_taken:
            assert draft.apply(candidate).shapes[-1] == candidate.shape


def kernels_within(draft: Draft, room: Room) -> bool:
    """Whether a kernel can be grown, by trying everything."""
    if len(draft.nodes) == room.primitives:
        return draft.is_complete
    free = Room(room.primitives, width=9, fcs=(0, 9), include=room.include, must_mix=False)
    return any(kernels_within(draft.apply(one), room) for one in candidates(draft, free) if one.may_be_taken)


def test_a_draft_that_is_called_dead_gives_no_kernel() -> None:
    """By exhaustion of three steps of a small set; and some are called so."""
    dead = alive = 0
    drafts = [Draft()]
    for length in range(3):
        for draft, left in product(drafts, (0, 1)):
            room = Room(length + left, 9, (0, 9), SMALL, must_mix=False)
            why = draft.why_dead(room)
            dead, alive = (dead + 1, alive) if why else (dead, alive + 1)
            assert why is None or not kernels_within(draft, room), (draft, why)
        free = Room(9, 9, (0, 9), SMALL, must_mix=False)
        drafts = [draft.apply(one) for draft in drafts for one in candidates(draft, free) if one.may_be_taken]
    assert dead > 20
    assert alive > 20


def test_pictures_of_drafts_and_kernels() -> None:
    draft = Draft().apply("fold_avg H")
    assert "Draft of a Canvas kernel" in draft.svg()
    assert "t1" in draft.dot()
    assert "Canvas kernel from input" in sl.canvas.known.residual().svg()
    assert draft.why_dead() is None
    assert not draft.is_complete
