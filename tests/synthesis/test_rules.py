"""Canonicalization: each rule on the state it is for. That nothing is lost is for ``test_complete.py`` to show."""

from itertools import product

import pytest

from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.candidates import candidates
from syno_lab.synthesis.matches import _clipped_between, _out_of_bounds, _wrapping
from syno_lab.synthesis.rules import RULES, rejecting_rule
from syno_lab.synthesis.space import proposals

SPEC = Spec.parse(
    "[C, H]", "[D, H, W]", ["C=8: 2", "D=8: 2", "H=16: 2", "W=16: 2"], ["k=3: 3", "s=2: 4", "e=4: 2"], max_primitives=12
)


def build(*moves: tuple) -> tuple[State, list]:
    """Apply moves (primitive, operand numbers, parameter, given numbers) and number coordinates as they come."""
    state = State.root(SPEC)
    coordinates = list(state.output)
    for move in moves:
        primitive, operands, parameter, given = (*move, None, None, None)[:4]
        step = Step(
            primitive,
            tuple(coordinates[i] for i in operands or ()),
            None if parameter is None else SPEC.symbols.size(parameter),
            tuple(coordinates[i] for i in given or ()),
        )
        coordinates.extend(state.results(step))
        last = state
        state = state.apply(step)
    return last, [step]


CASES = [
    ("reduce-first", [("SHIFT", [0]), ("REDUCE", [], "k")]),
    ("view-of-reduction", [("REDUCE", [], "C"), ("MERGE", [3], "s")]),
    ("view-of-reduction", [("REDUCE", [], "k"), ("REDUCE", [], "s"), ("SPLIT", [3, 4])]),
    ("view-of-reduction", [("REDUCE", [], "H"), ("MERGE", [3], "s"), ("SHIFT", [5])]),
    ("view-of-reduction", [("REDUCE", [], "s"), ("REDUCE", [], "D"), ("MERGE", [4], "s"), ("SPLIT", [3, 5])]),
    ("view-of-reduction", [("REDUCE", [], "s"), ("REDUCE", [], "s"), ("SPLIT", [0, 3]), ("SPLIT", [5, 4])]),
    ("split-of-reductions", [("REDUCE", [], "s"), ("REDUCE", [], "H"), ("SPLIT", [3, 4])]),
    ("split-of-reductions", [("REDUCE", [], "s"), ("REDUCE", [], "H"), ("SPLIT", [0, 3]), ("SPLIT", [5, 4])]),
    ("shifts-all-around", [("REDUCE", [], "s"), ("SHARE", [3]), ("SHIFT", [3]), ("SHIFT", [4])]),
    ("merge-of-reduction", [("REDUCE", [], "H"), ("MERGE", [3], "s^-1*H")]),
    ("merge-of-reduction", [("REDUCE", [], "H"), ("MERGE", [3], "s"), ("MERGE", [4], "e")]),
    ("split-undoes-merge", [("REDUCE", [], "H"), ("MERGE", [3], "s"), ("SPLIT", [5, 4])]),
    ("expand-of-reduction", [("REDUCE", [], "D"), ("MERGE", [3], "s"), ("EXPAND", [5])]),
    ("reduction-in-one-weight", [("REDUCE", [], "H"), ("MERGE", [3], "s"), ("SHARE", [0], None, [5])]),
    (
        "two-inner-reductions",
        [
            ("REDUCE", [], "k"),
            ("REDUCE", [], "H"),
            ("MERGE", [4], "s"),
            ("SHARE", [0, 3, 6]),
            ("SHARE", [1], None, [3, 6]),
        ],
    ),
    (
        "dilated-window",
        [("REDUCE", [], "e"), ("REDUCE", [], "H"), ("MERGE", [4], "s^-1*H"), ("UNFOLD", [6, 3]), ("SPLIT", [7, 5])],
    ),
    ("shift-above-reduction", [("REDUCE", [], "H"), ("MERGE", [3], "s"), ("SPLIT", [5, 1]), ("SHIFT", [6])]),
    ("view-above-share", [("SHARE", [0], None, []), ("MERGE", [0], "s")]),
    ("view-above-share", [("SHARE", [0, 1], None, []), ("SPLIT", [0, 1])]),
    ("merge-above-split", [("SPLIT", [0, 1]), ("MERGE", [3], "s*H")]),
    ("merge-above-split", [("SPLIT", [0, 1]), ("MERGE", [3], "s")]),
    ("merge-above-split", [("MERGE", [1], "e^-1*s^-1*H"), ("SPLIT", [0, 3]), ("SPLIT", [5, 4]), ("MERGE", [6], "e")]),
    ("merge-of-low-digit", [("MERGE", [0], "s^2"), ("MERGE", [4], "s")]),
    ("split-undoes-merge", [("MERGE", [0], "s"), ("SPLIT", [3, 4])]),
    ("expand-of-reduction", [("REDUCE", [], "k"), ("EXPAND", [3])]),
    ("expand-of-view", [("SPLIT", [0, 1]), ("EXPAND", [3])]),
    ("expand-of-unfold", [("REDUCE", [], "k"), ("UNFOLD", [1, 3]), ("EXPAND", [4])]),
    ("expand-of-shared", [("SHARE", [0, 1], None, []), ("EXPAND", [0])]),
    ("expand-above-shift", [("SHIFT", [1]), ("MERGE", [3], "s"), ("EXPAND", [4])]),
    ("give-above-shift", [("SHIFT", [1]), ("MERGE", [3], "s"), ("SHARE", [5, 0], None, [4])]),
    ("give-above-shift", [("SHIFT", [1]), ("MERGE", [3], "s"), ("SPLIT", [0, 5]), ("SHARE", [6], None, [4])]),
    ("give-view", [("SHIFT", [0]), ("SHARE", [1], None, [3])]),
    ("expand-of-shared", [("SHARE", [0, 1], None, []), ("SHIFT", [0]), ("EXPAND", [3])]),
    ("expand-of-unfold", [("REDUCE", [], "k"), ("UNFOLD", [1, 3]), ("SHIFT", [4]), ("EXPAND", [5])]),
    ("expand-of-shared", [("SHARE", [0]), ("STRIDE", [0], "s"), ("EXPAND", [3])]),
    ("expand-of-shared", [("SHARE", [0]), ("SPLIT", [0, 1]), ("EXPAND", [3])]),
    ("reduction-in-one-weight", [("REDUCE", [], "k"), ("SHARE", [1], None, [3])]),
    ("reduction-in-one-weight", [("REDUCE", [], "k"), ("SHARE", [3], None, []), ("EXPAND", [3])]),
    ("absorbed-weight", [("SHARE", [0, 1], None, []), ("SHARE", [0], None, [])]),
    ("unfold-of-reductions", [("REDUCE", [], "C"), ("REDUCE", [], "k"), ("UNFOLD", [3, 4])]),
    ("unfold-above-shift", [("REDUCE", [], "k"), ("SHIFT", [1]), ("UNFOLD", [4, 3])]),
    ("merge-above-unfold", [("REDUCE", [], "k"), ("UNFOLD", [1, 3]), ("MERGE", [4], "s^-1*H")]),
    ("window-size", [("REDUCE", [], "C"), ("UNFOLD", [1, 3])]),
    ("stride-window", [("REDUCE", [], "k"), ("REDUCE", [], "k"), ("STRIDE", [3], "s"), ("UNFOLD", [5, 4])]),
    ("stride-of-output", [("STRIDE", [1], "s")]),
    ("merge-across-blocks", [("SPLIT", [0, 1]), ("MERGE", [3], "s^-1*D")]),
    ("split-of-split", [("SPLIT", [1, 2]), ("SPLIT", [0, 3])]),
    ("split-of-split", [("SPLIT", [1, 2]), ("SHARE", [3]), ("SPLIT", [0, 3])]),
    ("dilated-window", [("REDUCE", [], "e"), ("MERGE", [1], "s"), ("UNFOLD", [4, 3]), ("SPLIT", [6, 5])]),
    ("shift-by-a-block", [("MERGE", [1], "s"), ("SHIFT", [3]), ("SPLIT", [5, 4])]),
    ("shift-above-reduction", [("REDUCE", [], "k"), ("SPLIT", [3, 1]), ("SHIFT", [4])]),
    ("shift-above-rejoined", [("MERGE", [1], "s"), ("SHARE", [4]), ("SPLIT", [3, 4]), ("SHIFT", [5])]),
    ("shifts-of-a-block", [("REDUCE", [], "s"), ("SPLIT", [1, 3]), ("SHIFT", [4]), ("SHIFT", [5])]),
    (
        "two-inner-reductions",
        [("REDUCE", [], "k"), ("REDUCE", [], "k"), ("SHARE", [0, 3, 4]), ("SHARE", [1], None, [3, 4])],
    ),
    ("share-above-shift", [("SPLIT", [0, 1]), ("SHIFT", [3]), ("MERGE", [4], "H"), ("SHARE", [6, 2])]),
    ("absorbed-through-views", [("SHARE", [0, 1]), ("SPLIT", [0, 1]), ("SHARE", [2, 3])]),
    (
        "absorbed-but-for-border",
        [("REDUCE", [], "k"), ("SHARE", [0, 1, 3]), ("UNFOLD", [1, 3]), ("SHARE", [0], None, [4])],
    ),
    ("contraction-order", [("SHARE", [0, 1]), ("SHARE", [1, 2])]),
    (
        "window-and-offset",
        [("REDUCE", [], "k"), ("REDUCE", [], "k"), ("SHARE", [3]), ("SPLIT", [1, 3]), ("UNFOLD", [5, 4])],
    ),
    (
        "window-and-offset",
        [("REDUCE", [], "k"), ("REDUCE", [], "k"), ("SPLIT", [1, 3]), ("SHARE", [5]), ("UNFOLD", [5, 4])],
    ),
    ("window-rejoins-blocks", [("REDUCE", [], "s"), ("MERGE", [1], "s"), ("SPLIT", [4, 3]), ("UNFOLD", [6, 5])]),
    (
        "window-rejoins-blocks",
        [("REDUCE", [], "s"), ("MERGE", [1], "s"), ("SPLIT", [4, 3]), ("SHARE", [5, 6]), ("UNFOLD", [6, 5])],
    ),
    (
        "unfold-one-sided",
        [("REDUCE", [], "s"), ("REDUCE", [], "s"), ("SHARE", [3]), ("UNFOLD", [1, 3]), ("UNFOLD", [5, 4])],
    ),
    ("unfold-windows", [("REDUCE", [], "k"), ("REDUCE", [], "e"), ("UNFOLD", [1, 3]), ("UNFOLD", [5, 4])]),
    ("merge-above-shift-above-split", [("SPLIT", [0, 1]), ("SHIFT", [3]), ("MERGE", [4], "H")]),
]


@pytest.mark.parametrize(("rule", "moves"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_the_rule_rejects_what_it_is_for(rule: str, moves: list) -> None:
    state, (step,) = build(*moves)
    (row,) = (row for row in RULES if row.name == rule)
    assert rejecting_rule(state, step, (row,)) is row
    # What any one rule forbids the whole table forbids.
    assert rejecting_rule(state, step) is not None


def test_every_rule_has_a_case() -> None:
    assert {rule.name for rule in RULES} == {name for name, _ in CASES}


@pytest.mark.parametrize(
    "moves",
    [
        [("MERGE", [0], "s"), ("SHARE", [3], None, []), ("SPLIT", [3, 4])],  # exactly one digit is shared
        # The weight has the high digit, which no SHIFT of the whole by one element leaves alone.
        [("MERGE", [1], "e"), ("SHIFT", [3]), ("SHARE", [5]), ("SPLIT", [5, 4]), ("SHIFT", [6])],
        # A weight that has one digit of a reduction tells it from the other; and digits in two weights stay.
        [("REDUCE", [], "H"), ("MERGE", [3], "s"), ("SHARE", [5]), ("SPLIT", [4, 5])],
        [("REDUCE", [], "H"), ("MERGE", [3], "s"), ("SHARE", [1, 5]), ("SHARE", [0], None, [5])],
        # The space STRIDEs no output, so a window that is one stays above its block.
        [("REDUCE", [], "H"), ("REDUCE", [], "W"), ("MERGE", [1], "s"), ("UNFOLD", [5, 0]), ("SPLIT", [7, 6])],
        # The low digit keeps its block; the high one alone shows the carry.
        [("SHIFT", [1]), ("MERGE", [3], "e"), ("EXPAND", [5])],
        [("SHIFT", [1]), ("MERGE", [3], "e"), ("SHARE", [0], None, [4])],
        # The window is in the data too, which keeps its bounds; and the weight is not fixed without its reduction.
        [("REDUCE", [], "k"), ("SHARE", [0, 1]), ("UNFOLD", [1, 3]), ("SHARE", [0], None, [4])],
        [("REDUCE", [], "C"), ("MERGE", [0], "s"), ("SPLIT", [5, 3])],
        [("REDUCE", [], "k"), ("UNFOLD", [1, 3]), ("SHIFT", [4])],
        [("MERGE", [0], "s"), ("SPLIT", [4, 3])],  # a permutation of the digits
        [("REDUCE", [], "k"), ("SHARE", [3], None, [0]), ("SHARE", [1], None, [3])],  # a reduction in two weights
        [("REDUCE", [], "k"), ("REDUCE", [], "C"), ("SPLIT", [4, 3])],  # no REDUCE of the space is of this size
    ],
)
def test_canonical_steps_stay(moves: list) -> None:
    state, (step,) = build(*moves)
    assert rejecting_rule(state, step) is None


# -- the closed formulas of approximate rules, against counting --------------------------------------------------------


def window(i: int, j: int, main: int, size: int) -> int | None:
    """UNFOLD at one position; None out of bounds."""
    at = i + j - size // 2
    return at if 0 <= at < main else None


@pytest.mark.parametrize("main", range(1, 16))
def test_shares_of_one_window(main: int) -> None:
    """For windows up to the main coordinate; larger ones are not in the space, and the share is none too small."""
    for size in range(1, 2 * main + 1):
        positions = list(product(range(main), range(size)))
        outside = differ = 0
        for i, j in positions:
            below = window(i, j, main, size)
            outside += below is None
            differ += window((i + 1) % main, j, main, size) != (None if below is None else (below + 1) % main)
        counted = (outside / len(positions), differ / len(positions))
        said = (_out_of_bounds(main, size), _wrapping(main, size))
        if size <= main:
            assert said == pytest.approx(counted)
        else:
            assert all(one >= other - 1e-9 for one, other in zip(said, counted, strict=True))


@pytest.mark.parametrize(("main", "first", "second"), list(product((1, 4, 9, 16), range(1, 7), range(1, 7))))
def test_share_of_two_windows(main: int, first: int, second: int) -> None:
    positions = list(product(range(main), range(first), range(second)))

    def is_inside(i: int, one: tuple[int, int], other: tuple[int, int]) -> bool:
        below = window(i, *(one[0], main, one[1]))
        return below is not None and window(below, other[0], main, other[1]) is not None

    differ = sum(
        is_inside(i, (j, first), (k, second)) != is_inside(i, (k, second), (j, first)) for i, j, k in positions
    )
    assert _clipped_between(main, first, second) == pytest.approx(differ / len(positions))


def test_a_rule_applies_just_within_its_tolerance() -> None:
    """The share that differs decides: of a window of 3 along H it is 2 * 2 / (3 * H), at most 1/8 from 11 on."""

    def rejecting(*heights: int) -> str | None:
        bindings = [{"H": height} for height in heights]
        spec = Spec.parse("[H]", "[H]", ["H: 1"], ["k=3: 2"]).bound(bindings)
        state = State.root(spec).apply(Step("REDUCE", (), spec.symbols.size("k")))
        shift = Step("SHIFT", state.output)
        found = rejecting_rule(state.apply(shift), Step("UNFOLD", (*state.results(shift), *state.reductions)))
        return None if found is None else found.name

    assert rejecting(10) is None
    assert rejecting(11) == "unfold-above-shift"
    assert rejecting(100, 10) is None  # the worst of the bindings decides


# -- candidates ------------------------------------------------------------------------------------------------------


def test_candidates_say_why() -> None:
    state, _ = build(("SPLIT", [0, 1]), ("SHIFT", [2]))
    block = SPEC.symbols.size("s")
    found = [c for c in candidates(state) if c.verdict.rule == "merge-above-split" and c.parameter == block]
    assert found
    verdict = found[0].verdict
    assert not verdict.canonical
    assert verdict.reason is not None
    assert "parenthesis" in verdict.reason
    assert verdict.before == "[(H*#0 + #1)//s, (H*#0 + #1) % s]"
    assert all(c.distance is None or c.distance >= 0 for c in candidates(state))


def test_proposals_are_legal_and_distinct() -> None:
    state, _ = build(("REDUCE", [], "k"), ("REDUCE", [], "C"), ("SHIFT", [2]))
    steps = list(proposals(state))
    assert len(set(steps)) == len(steps)
    for step in steps:
        state.apply(step)  # raises where Table 1 does not allow it
