"""States are sets of steps: equal in whatever order they were taken, matched with the input in every way there is."""

import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import random_operators

from syno_lab.errors import PrimitiveError
from syno_lab.ir.build import Build
from syno_lab.ir.coordinate import Coordinate, Node
from syno_lab.ir.operator import Operator
from syno_lab.ir.state import State, Step


def in_another_order(state: State, rng: random.Random) -> State:
    """The same steps in a random order in which each still finds its coordinates; REDUCEs are numbered anew."""
    steps, walk = state.steps, State.root(state.spec)
    maker: dict[Coordinate, int] = {}
    results: list[tuple[Coordinate, ...]] = []
    for number, step in enumerate(steps):
        results.append(walk.results(step))
        maker.update(dict.fromkeys(results[-1], number))
        walk = walk.apply(step)
    renamed: dict[Coordinate, Coordinate] = {c: c for c in state.output}

    def rename(old: Coordinate) -> Coordinate:
        if old not in renamed:
            node = Node(old.node.primitive, tuple(map(rename, old.node.operands)), old.node.parameter)
            renamed[old] = Coordinate(node, old.index, old.size)
        return renamed[old]

    def ready(number: int) -> bool:
        """Its coordinates exist, and no earlier contraction still waits to share what this step takes away."""
        step = steps[number]
        takes = set(step.given if step.primitive == "SHARE" else step.operands)
        return all(maker.get(c) not in left for c in step.operands + step.given) and not any(
            steps[other].primitive == "SHARE" and takes.intersection(steps[other].operands)
            for other in left
            if other < number
        )

    left, again = set(range(len(steps))), State.root(state.spec)
    while left:
        number = rng.choice([number for number in sorted(left) if ready(number)])
        left.remove(number)
        step = steps[number]
        if step.primitive == "REDUCE":
            renamed[results[number][0]] = again.results(step)[0]
            again = again.apply(step)
        else:
            operands, given = tuple(map(rename, step.operands)), tuple(map(rename, step.given))
            again = again.apply(Step(step.primitive, operands, step.parameter, given))
    return again


@given(random_operators(), st.randoms(use_true_random=False))
def test_the_order_of_independent_steps_does_not_matter(drawn: tuple[Operator, dict], rng: random.Random) -> None:
    state = drawn[0].state
    again = in_another_order(state, rng)
    assert again == state
    assert hash(again) == hash(state)
    assert len(again.steps) == len(state.steps)


@given(random_operators(), random_operators())
def test_equal_means_one_function(a: tuple[Operator, dict], b: tuple[Operator, dict]) -> None:
    """Operators called equal have one fingerprint; the same steps shorter by one are another state."""
    if a[0] == b[0] and a[1] == b[1]:
        assert a[0].fingerprint(a[1]) == b[0].fingerprint(b[1])
    assume(a[0].steps)
    shorter = State.root(a[0].spec)
    for step in a[0].steps[:-1]:
        shorter = shorter.apply(step)
    assert shorter != a[0].state


def test_what_differs_is_not_equal() -> None:
    def conv(share_window: bool, swap: bool) -> State:
        b = Build("[H, W]", "[H, W]", ["H", "W"], ["k"])
        h, w = b.output
        p, q = b.reduce("k"), b.reduce("k")
        if swap:
            p, q = q, p
        b.contract(share=[p] if share_window else [p, q])
        b.unfold(h, p)
        b.unfold(w, q)
        return b.state

    assert conv(True, False) == conv(True, True)  # only the names of two reductions are different
    assert conv(True, False) != conv(False, False)
    assert conv(True, False) != "a state"
    first, second = Build("[H]", "[H]", ["H"]), Build("[H]", "[H]", ["H"])
    first.expand(first.output[0])
    second.contract(share=second.output)
    assert first.state != second.state
    whole, parts = (Build("[]", "[H, W]", ["H", "W"]) for _ in range(2))
    whole.expand(whole.unfold(*whole.output))  # zero where the UNFOLD is outside
    for axis in parts.output:
        parts.expand(axis)
    assert whole.state != parts.state
    assert State.root(Build("[H]", "[H]", ["H"]).state.spec) != State.root(Build("[]", "[H]", ["H"]).state.spec)


def test_sharing_before_or_after_another_contraction_is_one_state() -> None:
    def two(first: int) -> State:
        b = Build("[H, W]", "[H, W]", ["H", "W"])
        for axis in (first, 1 - first):
            b.contract(share=[b.output[axis]])
        return b.state

    assert two(0) == two(1)


def test_matches_with_repeated_sizes_are_all_transpositions() -> None:
    b = Build("[N, H, C, H]", "[N, H, H, C]", ["N", "C", "H"], fixed_io_pairs=[(0, 0)])
    n, h1, h2, c = b.output
    assert set(b.state.matches()) == {(n, h1, c, h2), (n, h2, c, h1)}
    assert b.state.is_complete
    assert b.state.operator().inputs == (n, h1, c, h2)
    for match in b.state.matches():
        assert b.state.is_match(match)
        assert b.finish(*match).inputs == match


@pytest.mark.parametrize("axes", [(1, 0, 2, 3), (0, 2, 1, 3), (0, 1, 2), (0, 1, 3, 3), (0, 1, 3, 1), (0, 3, 1, 2)])
def test_what_is_no_match(axes: tuple[int, ...]) -> None:
    """A fixed axis elsewhere, other sizes, an axis too few, a coordinate twice."""
    b = Build("[N, H, C, H]", "[N, H, H, C]", ["N", "C", "H"], fixed_io_pairs=[(0, 0)])
    chosen = tuple(b.output[axis] for axis in axes)
    assert not b.state.is_match(chosen)
    with pytest.raises(PrimitiveError, match=r"the input \[N, H, C, H\] with \[.*the data coordinates left"):
        b.finish(*chosen)


def test_a_fixed_axis_matches_itself_alone() -> None:
    b = Build("[H, N, N]", "[N, H, N]", ["N", "H"], fixed_io_pairs=[(2, 0)])
    fixed, h, other = b.output
    assert list(b.state.matches()) == [(h, other, fixed)]


@given(random_operators())
def test_a_match_is_one_of_the_matches(drawn: tuple[Operator, dict]) -> None:
    state = drawn[0].state
    found = set(state.matches())
    assert drawn[0].inputs in found
    assert state.is_complete
    assert all(state.is_match(match) for match in found)
    reverse = drawn[0].inputs[::-1]
    assert state.is_match(reverse) == (reverse in found)


def test_an_unfinished_state_is_no_operator() -> None:
    b = Build("[H]", "[H, W]", ["H", "W"], ["s"])
    assert not b.state.is_complete
    with pytest.raises(PrimitiveError, match=r"not an operator yet: the data have shape \[H, W\], the input is \[H\]"):
        b.state.operator()
    b = Build("[s*H]", "[H]", ["H"], ["s"])
    b.stride(b.output[0], "s")
    assert not b.state.is_complete  # the size fits, but a stride alone throws data away
    assert not b.state.is_match(b.state.data)


def test_many_equal_axes_and_reductions_are_no_burden() -> None:
    """There are 40! ways to match or to rename them: none of these calls may list them."""
    many = 40
    shape = "[" + ", ".join(["H"] * many) + "]"
    b = Build(shape, shape, ["H"])
    assert b.finish(*b.output[::-1]).inputs == b.output[::-1]
    assert b.state.is_complete
    assert b.state.operator().inputs == b.output

    def reduced(order: range) -> State:
        b = Build("[]", shape, ["H"], ["k"])
        windows = [b.reduce("k") for _ in range(many // 2)]
        for place in order:
            b.unfold(b.output[place], windows[place])
        return b.state

    assert reduced(range(many // 2)) == reduced(range(many // 2 - 1, -1, -1))


def test_a_builder_that_ends_too_early_says_what_is_left() -> None:
    b = Build("[N, C]", "[N, D]", ["N", "C", "D"], fixed_io_pairs=[(0, 0)])
    n, d = b.output
    with pytest.raises(PrimitiveError) as refusal:
        b.finish(n, d)
    assert (
        str(refusal.value) == "cannot match the input [N, C] with [N, D]: the data coordinates left have sizes [N, D]"
    )
    c = b.reduce("C")
    with pytest.raises(PrimitiveError, match=r"with \[N, C\]: the data coordinates left have sizes \[N, D, C\]"):
        b.finish(n, c)
    b.contract(share=[c], give=[d])
    assert str(b.finish(n, c)) == "[N, C] -> [N, D] with [C, D], 2 steps"
