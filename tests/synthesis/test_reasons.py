"""Reasons: what a rejected step shows is about that very step, and both sides are what the rule says they are.

The oracles: the proposed side, put back over the state's own coordinates, must be what the step makes; both sides are
evaluated at every point; and where a rule is exact, the fingerprints of both sides as operators are equal.
"""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import pytest
import sympy

from syno_lab.errors import PrimitiveError, SynoError
from syno_lab.ir.coordinate import Coordinate, Node
from syno_lab.ir.fingerprint import fingerprint
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.pgraphs.menu import menu, why
from syno_lab.synthesis.candidates import Verdict, candidates
from syno_lab.synthesis.expressions import expression, iterators, name
from syno_lab.synthesis.matches import TOLERANCE
from syno_lab.synthesis.rewrites import REWRITES, rewrite
from syno_lab.synthesis.rewrites_parts import Part, Rewrite, Side
from syno_lab.synthesis.rules import RULES, Rule, rejecting_rule
from syno_lab.synthesis.space import proposals

BY_NAME = {rule.name: rule for rule in RULES}
REWRITING = [rule for rule in RULES if rule.kind != "space"]

SPECS = [
    Spec.parse("[H]", "[H]", ["H=8: 1"], ["s=2: 4", "k=3: 2"], max_primitives=9, max_shifts=4, max_strides=2),
    Spec.parse("[C, H]", "[D, H, W]", ["C=4: 2", "D=6: 2", "H=8: 2", "W=6: 2"], ["k=3: 3", "s=2: 4"], max_tensors=4),
    Spec.parse("[C, H]", "[D, H]", ["C=4: 1", "D=3: 1", "H=16: 1"], ["e=2: 3"], max_tensors=4, max_shifts=3),
    Spec.parse(
        "[N, C, H, W]",
        "[N, D, H, W]",
        ["N=2", "C=4: 2", "D=6: 1", "H=4: 1", "W=6: 1"],
        ["k=3: 3", "s=2: 2", "e=2: 1"],
        fixed_io_pairs=[(0, 0)],
    ),
]


def test_every_rule_that_rewrites_has_a_rewrite() -> None:
    assert {rule.name for rule in REWRITING} <= set(REWRITES)
    assert set(REWRITES) <= set(BY_NAME), "a rewrite of a rule that is gone"


# -- the proposed side is what the step makes ------------------------------------------------------------------------


def put_back(coordinate: Coordinate, over: Mapping[Coordinate, Coordinate]) -> Coordinate:
    """A coordinate over wildcards, over the state's coordinates that they stand for."""
    if coordinate in over:
        return over[coordinate]
    node = coordinate.node
    operands = tuple(put_back(c, over) for c in node.operands)
    return Coordinate(Node(node.primitive, operands, node.parameter), coordinate.index, coordinate.size)


def assert_it_is_about(found: Rewrite, state: State, step: Step) -> None:
    """The proposed side contains what ``step`` adds to ``state``."""
    side = found.before.state
    over = dict(zip(side.output, found.bottoms, strict=True))
    summed = found.summed or state.results(step)  # a REDUCE's own iterator is new
    over.update(zip(side.reductions, summed, strict=len(side.reductions) > 0))
    if step.primitive == "EXPAND":
        assert step.operands[0] in [put_back(c, over) for c in side.expanded]
    elif step.primitive == "SHARE":
        weights = [{put_back(c, over) for c in weight.coordinates} for weight in side.weights]
        assert set(step.operands + step.given) in weights
    else:
        assert set(state.results(step)) <= {put_back(c, over) for c in found.before.tops}


def rejected(state: State, step: Step) -> Iterator[tuple[Rule, Rewrite | None]]:
    """Every rule that rejects a step, with its rewrite."""
    for rule in REWRITING:
        if rejecting_rule(state, step, (rule,)) is not None:
            yield rule, rewrite(rule.name, state, step)


def walk(rng: random.Random, spec: Spec) -> Iterator[tuple[State, Step]]:
    """States by chance, canonical or not, each with some of its steps of every kind."""
    state = State.root(spec)
    while steps := list(proposals(state)):
        kinds: dict[str, list[Step]] = {}
        for step in steps:
            kinds.setdefault(step.primitive, []).append(step)
        yield from ((state, step) for found in kinds.values() for step in rng.sample(found, min(3, len(found))))
        state = state.apply(rng.choice(kinds[rng.choice(sorted(kinds))]))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.output_shape}")
def test_both_sides_of_every_rejected_step(spec: Spec, rng: random.Random) -> None:
    binding = spec.binding_maps[0]
    seen, wordless = Counter[str](), Counter[str]()
    greatest: dict[str, float] = {}
    for state, step in itertools.chain.from_iterable(walk(rng, spec) for _ in range(25)):
        for rule, found in rejected(state, step):
            seen[rule.name] += 1
            if found is None:
                wordless[rule.name] += 1
                continue
            where = f"{rule.name}: {found.text()}\nstate {state.steps}\nstep {step}"
            assert_it_is_about(found, state, step)
            assert found.before.sizes == found.after.sizes, where
            assert len(set(found.texts())) == 2, where  # nothing is rewritten to itself
            if found.points(binding) > 20_000:
                continue
            share = found.differing(binding)
            assert 0 <= share <= 1
            greatest[rule.name] = max(share, greatest.get(rule.name, 0))
            if rule.kind == "exact":
                assert share == 0, where
                if found.points(binding) <= 600:
                    assert fingerprint(found.before.operator, binding) == fingerprint(found.after.operator, binding)
            else:
                assert share <= TOLERANCE, where
    print(
        *(f"{rule}: {seen[rule]} seen, at most {greatest.get(rule, 0):.4f} differs" for rule in sorted(seen)), sep="\n"
    )
    assert sum(seen.values()) > 100
    assert not wordless


# -- one example of each ---------------------------------------------------------------------------------------------

SPEC = Spec.parse(
    "[C, H]", "[D, H, W]", ["C=8: 2", "D=8: 2", "H=16: 2", "W=16: 2"], ["k=3: 3", "s=2: 4", "e=4: 2"], max_primitives=12
)

# Coordinates are numbered as they come: outputs D 0, H 1, W 2, then what the steps add.
EXAMPLES: dict[str, list[tuple]] = {
    "absorbed-but-for-border": [
        ("REDUCE", [], "k"),
        ("SHARE", [0, 1, 3]),
        ("UNFOLD", [1, 3]),
        ("SHARE", [0], None, [4]),
    ],
    "absorbed-through-views": [("SHARE", [0, 1]), ("SPLIT", [0, 1]), ("SHARE", [2, 3], None, [])],
    "absorbed-weight": [("SHARE", [0, 1]), ("SHARE", [0], None, [])],
    "contraction-order": [("SHARE", [0, 1]), ("SHARE", [1, 2], None, [])],
    "dilated-window": [("REDUCE", [], "e"), ("MERGE", [1], "s"), ("UNFOLD", [4, 3]), ("SPLIT", [6, 5])],
    "expand-above-shift": [("SHIFT", [1]), ("MERGE", [3], "s"), ("EXPAND", [4])],
    "expand-of-reduction": [("REDUCE", [], "k"), ("EXPAND", [3])],
    "expand-of-shared": [("SHARE", [0, 1]), ("EXPAND", [0])],
    "expand-of-unfold": [("REDUCE", [], "k"), ("UNFOLD", [1, 3]), ("EXPAND", [4])],
    "expand-of-view": [("SPLIT", [0, 1]), ("EXPAND", [3])],
    "give-above-shift": [("SHIFT", [1]), ("MERGE", [3], "s"), ("SHARE", [5, 0], None, [4])],
    "give-view": [("SPLIT", [0, 2]), ("SHARE", [1], None, [3])],
    "merge-above-shift-above-split": [("SPLIT", [0, 1]), ("SHIFT", [3]), ("MERGE", [4], "H")],
    "merge-above-split": [("SPLIT", [0, 1]), ("MERGE", [3], "s*H")],
    "merge-above-unfold": [("REDUCE", [], "k"), ("UNFOLD", [1, 3]), ("MERGE", [4], "s^-1*H")],
    "merge-of-low-digit": [("MERGE", [1], "s^2"), ("MERGE", [4], "s")],
    "merge-of-reduction": [("REDUCE", [], "H"), ("MERGE", [3], "s^-1*H")],
    "reduce-first": [("SHIFT", [0]), ("REDUCE", [], "k")],
    "share-above-shift": [("SPLIT", [0, 1]), ("SHIFT", [3]), ("MERGE", [4], "H"), ("SHARE", [6, 2], None, [])],
    "shift-above-reduction": [("REDUCE", [], "k"), ("SPLIT", [3, 1]), ("SHIFT", [4])],
    "shift-above-rejoined": [("MERGE", [1], "s"), ("SHARE", [4]), ("SPLIT", [3, 4]), ("SHIFT", [5])],
    "shifts-all-around": [("REDUCE", [], "s"), ("SHIFT", [3]), ("SHIFT", [4])],
    "shifts-of-a-block": [("REDUCE", [], "s"), ("SPLIT", [1, 3]), ("SHIFT", [4]), ("SHIFT", [5])],
    "split-of-reductions": [("REDUCE", [], "s"), ("REDUCE", [], "H"), ("SPLIT", [3, 4])],
    "split-of-split": [("SPLIT", [1, 2]), ("SPLIT", [0, 3])],
    "split-undoes-merge": [("MERGE", [1], "s"), ("SPLIT", [3, 4])],
    "unfold-above-shift": [("REDUCE", [], "k"), ("SHIFT", [1]), ("UNFOLD", [4, 3])],
    "unfold-of-reductions": [("REDUCE", [], "C"), ("REDUCE", [], "k"), ("UNFOLD", [3, 4])],
    "unfold-one-sided": [
        ("REDUCE", [], "s"),
        ("REDUCE", [], "s"),
        ("SHARE", [3]),
        ("UNFOLD", [1, 3]),
        ("UNFOLD", [5, 4]),
    ],
    "unfold-windows": [("REDUCE", [], "k"), ("REDUCE", [], "e"), ("UNFOLD", [1, 3]), ("UNFOLD", [5, 4])],
    "view-above-share": [("SHARE", [1]), ("MERGE", [1], "s")],
    "view-of-reduction": [("REDUCE", [], "C"), ("MERGE", [3], "s")],
    "window-and-offset": [
        ("REDUCE", [], "k"),
        ("REDUCE", [], "k"),
        ("SHARE", [3]),
        ("SPLIT", [1, 3]),
        ("UNFOLD", [5, 4]),
    ],
    "window-rejoins-blocks": [("REDUCE", [], "s"), ("MERGE", [1], "s"), ("SPLIT", [4, 3]), ("UNFOLD", [6, 5])],
}


def propose(moves: list[tuple]) -> tuple[State, Step]:
    """All moves but the last applied, and the last proposed."""
    state = State.root(SPEC)
    coordinates = list(state.output)
    steps: list[tuple[State, Step]] = []
    for move in moves:
        primitive, operands, parameter, given = (*move, None, None, None)[:4]
        step = Step(
            primitive,
            tuple(coordinates[i] for i in operands),
            None if parameter is None else SPEC.symbols.size(parameter),
            tuple(coordinates[i] for i in given or ()),
        )
        steps.append((state, step))
        coordinates.extend(state.results(step))
        state = state.apply(step)
    return steps[-1]


def example(rule: str) -> Rewrite:
    """The rewrite of a rule's example, whether or not another rule or the order of weights decides first."""
    state, step = propose(EXAMPLES[rule])
    found = rewrite(rule, state, step)
    assert found is not None
    return found


def test_every_rewrite_has_an_example() -> None:
    assert set(EXAMPLES) == set(REWRITES)


def test_what_people_read(golden: Callable[[str, str], None]) -> None:
    lines = []
    for rule in sorted(EXAMPLES):
        state, step = propose(EXAMPLES[rule])
        verdict = Verdict(BY_NAME[rule], state, step)
        lines += [f"{rule} ({BY_NAME[rule].kind})", f"  before  {verdict.before}", f"  after   {verdict.after}"]
        assert verdict.rewrite is not None
        lines += [f"  text    {verdict.rewrite.text()}", f"  latex   {verdict.latex}"]
        lines += [f"  differs {verdict.differing:.4f}"] if verdict.differing is not None else []
    golden("synthesis/reasons.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("rule", sorted(EXAMPLES))
def test_the_example_is_about_its_step(rule: str) -> None:
    state, step = propose(EXAMPLES[rule])
    found = example(rule)
    assert rejecting_rule(state, step, (BY_NAME[rule],)) is not None
    assert_it_is_about(found, state, step)
    if BY_NAME[rule].kind == "exact":
        assert found.differing(SPEC.binding_maps[0]) == 0


# Corners that chance seldom meets.
CORNERS: list[tuple[str, list[tuple]]] = [
    ("absorbed-through-views", [("SHARE", [1]), ("MERGE", [1], "s"), ("SHARE", [3], None, [4])]),
    (  # the window stays in the data, and its bounds with it
        "absorbed-through-views",
        [("REDUCE", [], "k"), ("SHARE", [0, 1, 3]), ("UNFOLD", [1, 3]), ("SHARE", [0, 4], None, [])],
    ),
    ("absorbed-through-views", [("MERGE", [1], "s"), ("SHARE", [3]), ("SPLIT", [3, 4]), ("SHARE", [5], None, [])]),
    ("absorbed-weight", [("SHARE", [0]), ("SHARE", [1], None, [0])]),
    ("absorbed-weight", [("SHARE", [0, 1], None, [2]), ("SHARE", [1], None, [0])]),
    ("contraction-order", [("SHARE", [0, 1]), ("SHARE", [2], None, [1])]),
    ("contraction-order", [("SHARE", [2]), ("SHARE", [0]), ("SHARE", [1], None, [])]),
    (
        "contraction-order",
        [("SHARE", [2], None, [1]), ("SPLIT", [0, 2]), ("REDUCE", [], "k"), ("SHARE", [4], None, [])],
    ),
    (
        "dilated-window",
        [("REDUCE", [], "e"), ("MERGE", [1], "s^2"), ("MERGE", [4], "s"), ("UNFOLD", [7, 3]), ("SPLIT", [8, 5])],
    ),
    ("expand-of-reduction", [("REDUCE", [], "D"), ("MERGE", [3], "s"), ("EXPAND", [5])]),
    (  # the digits of a reduction, the low one as the high one
        "dilated-window",
        [("REDUCE", [], "e"), ("REDUCE", [], "H"), ("MERGE", [4], "s^-1*H"), ("UNFOLD", [6, 3]), ("SPLIT", [7, 5])],
    ),
    ("expand-of-view", [("MERGE", [1], "s"), ("EXPAND", [3]), ("EXPAND", [4])]),
    ("expand-of-view", [("STRIDE", [1], "s"), ("EXPAND", [3])]),
    ("expand-above-shift", [("SHIFT", [1]), ("SHIFT", [3]), ("MERGE", [4], "s"), ("SHARE", [6]), ("EXPAND", [5])]),
    (  # an earlier weight has both digits as well, the new one a SPLIT that fixes the low one
        "give-above-shift",
        [
            ("SHIFT", [1]),
            ("MERGE", [3], "s"),
            ("SHARE", [4, 5]),
            ("SPLIT", [0, 5]),
            ("SHARE", [6, 2], None, [4]),
        ],
    ),
    ("give-view", [("MERGE", [1], "s^2"), ("MERGE", [3], "s"), ("SHARE", [0], None, [4, 6])]),
    ("give-view", [("MERGE", [1], "s"), ("SHARE", [0, 3, 4]), ("SHARE", [2], None, [4, 3])]),
    ("give-view", [("SPLIT", [0, 1]), ("SHARE", [3]), ("SHARE", [2], None, [3])]),
    ("merge-above-shift-above-split", [("SPLIT", [0, 1]), ("SHIFT", [3]), ("SHIFT", [4]), ("MERGE", [5], "H")]),
    ("merge-above-split", [("SPLIT", [0, 1]), ("MERGE", [3], "s")]),
    ("merge-above-split", [("SPLIT", [0, 1]), ("MERGE", [3], "H")]),
    (  # e divides H, though not the H/(e*s) of the last SPLIT
        "merge-above-split",
        [("MERGE", [1], "e^-1*s^-1*H"), ("SPLIT", [0, 3]), ("SPLIT", [5, 4]), ("MERGE", [6], "e")],
    ),
    (
        "merge-above-split",
        [
            ("MERGE", [1], "e^-1*s^-1*H"),
            ("SPLIT", [0, 3]),
            ("SHARE", [5]),
            ("SPLIT", [5, 4]),
            ("MERGE", [6], "e"),
        ],
    ),
    ("merge-of-reduction", [("REDUCE", [], "H"), ("MERGE", [3], "s"), ("MERGE", [4], "e")]),
    ("reduce-first", [("SHARE", [0], None, [1]), ("REDUCE", [], "k")]),
    ("reduce-first", [("MERGE", [1], "s"), ("REDUCE", [], "C"), ("REDUCE", [], "k")]),
    (
        "share-above-shift",
        [("SPLIT", [0, 1]), ("SHIFT", [3]), ("SHIFT", [4]), ("MERGE", [5], "H"), ("SHARE", [7], None, [2])],
    ),
    ("shift-above-reduction", [("REDUCE", [], "k"), ("SPLIT", [3, 0]), ("SPLIT", [4, 1]), ("SHIFT", [5])]),
    ("shift-above-rejoined", [("MERGE", [1], "s"), ("SHIFT", [3]), ("SHIFT", [5]), ("SPLIT", [6, 4]), ("SHIFT", [7])]),
    (
        "shift-above-rejoined",
        [("MERGE", [1], "s^2"), ("MERGE", [4], "s"), ("SHARE", [6]), ("SPLIT", [5, 6]), ("SHIFT", [7])],
    ),
    ("split-of-reductions", [("REDUCE", [], "s"), ("REDUCE", [], "H"), ("SPLIT", [0, 3]), ("SPLIT", [5, 4])]),
    ("split-of-split", [("SPLIT", [1, 2]), ("SHARE", [3]), ("SPLIT", [0, 3])]),
    ("shift-above-reduction", [("REDUCE", [], "H"), ("MERGE", [3], "s"), ("SPLIT", [5, 1]), ("SHIFT", [6])]),
    ("split-undoes-merge", [("REDUCE", [], "H"), ("MERGE", [3], "s"), ("SPLIT", [5, 4])]),
    ("split-undoes-merge", [("REDUCE", [], "H"), ("MERGE", [3], "s"), ("SPLIT", [0, 5]), ("SPLIT", [6, 4])]),
    ("split-undoes-merge", [("MERGE", [1], "s"), ("SPLIT", [0, 3]), ("SPLIT", [5, 4])]),
    ("split-undoes-merge", [("MERGE", [1], "s^2"), ("MERGE", [3], "s"), ("SPLIT", [6, 4])]),
    ("split-undoes-merge", [("MERGE", [1], "s^2"), ("MERGE", [3], "s"), ("SPLIT", [5, 6])]),
    ("view-above-share", [("SHARE", [0, 1]), ("SHARE", [1, 0], None, [2]), ("SPLIT", [1, 0])]),
    ("view-of-reduction", [("REDUCE", [], "C"), ("SHIFT", [3])]),
    ("view-of-reduction", [("REDUCE", [], "C"), ("REDUCE", [], "k"), ("SPLIT", [3, 4])]),
    (
        "window-and-offset",
        [("REDUCE", [], "k"), ("REDUCE", [], "k"), ("SPLIT", [1, 3]), ("SHARE", [5]), ("UNFOLD", [5, 4])],
    ),
    ("view-of-reduction", [("REDUCE", [], "s"), ("REDUCE", [], "s"), ("SPLIT", [0, 3]), ("SPLIT", [5, 4])]),
    ("view-of-reduction", [("REDUCE", [], "s"), ("REDUCE", [], "D"), ("MERGE", [4], "s"), ("SPLIT", [5, 3])]),
    (
        "window-rejoins-blocks",
        [
            ("REDUCE", [], "s"),
            ("REDUCE", [], "H"),
            ("MERGE", [4], "s^-1*H"),
            ("SPLIT", [6, 3]),
            ("SHARE", [7, 5]),
            ("UNFOLD", [7, 5]),
        ],
    ),
    (  # the weight has them all
        "window-rejoins-blocks",
        [("REDUCE", [], "s"), ("MERGE", [1], "s"), ("SPLIT", [4, 3]), ("SHARE", [6, 5]), ("UNFOLD", [6, 5])],
    ),
    (  # a weight that has the digits alone, and blocks before them
        "window-rejoins-blocks",
        [
            ("REDUCE", [], "s"),
            ("MERGE", [1], "s"),
            ("SHARE", [4, 5]),
            ("SPLIT", [0, 4]),
            ("SPLIT", [6, 3]),
            ("UNFOLD", [7, 5]),
        ],
    ),
]


@pytest.mark.parametrize(("rule", "moves"), CORNERS, ids=lambda value: value if isinstance(value, str) else "")
def test_corners(rule: str, moves: list[tuple]) -> None:
    state, step = propose(moves)
    found = rewrite(rule, state, step)
    assert found is not None
    assert_it_is_about(found, state, step)
    assert found.before.sizes == found.after.sizes
    assert BY_NAME[rule].kind != "exact" or found.differing(SPEC.binding_maps[0]) == 0, found.text()


@pytest.mark.parametrize("rule", [rule for rule in sorted(EXAMPLES) if BY_NAME[rule].kind == "exact"])
def test_exact_examples_agree_under_other_sizes(rule: str, rng: random.Random) -> None:
    found = example(rule)
    for _ in range(8):
        sizes = {
            "C": 2 * rng.randint(1, 4),
            "D": 2 * rng.randint(1, 3),
            "H": 4 * rng.randint(1, 4),
            "W": rng.randint(1, 6),
        }
        binding = {**sizes, "k": rng.randint(1, 5), "s": 2, "e": 2 * rng.randint(1, 3)}
        assert found.differing(binding) == 0, binding


@pytest.mark.parametrize("rule", sorted(EXAMPLES))
def test_the_canonical_side_is_legal(rule: str) -> None:
    side = example(rule).after
    state = State.root(side.state.spec)
    for step in side.state.steps:
        if step.primitive == "SHARE" and not step.operands:
            assert rule == "expand-of-shared"  # of a weight only the coordinate that is dropped is shown
            return
        try:
            state = state.apply(step)
        except PrimitiveError as refused:
            pytest.fail(f"{step} is not legal: {refused}")
    assert set(side.tops) <= set(state.data)


# -- text and sympy say what is computed -----------------------------------------------------------------------------


def points(side: Side, binding: dict[str, int], rng: random.Random, number: int = 60) -> Iterator[dict[str, int]]:
    """Values of the wildcards and reductions of a side, by name."""
    loops = [*side.state.output, *side.state.reductions]
    for _ in range(number):
        yield {str(side.names[c]): rng.randrange(c.size.at(binding)) for c in loops}


def value(coordinate: Coordinate, leaves: Mapping[Coordinate, int], binding: Mapping[str, int]) -> int:
    """Table 1, once more by hand."""
    node = coordinate.node
    if coordinate in leaves:
        return leaves[coordinate]
    args = [value(c, leaves, binding) for c in node.operands]
    sizes = [c.size.at(binding) for c in node.operands]
    match node.primitive:
        case "SPLIT":
            return sizes[1] * args[0] + args[1]
        case "MERGE":
            assert node.parameter is not None
            return divmod(args[0], node.parameter.at(binding))[coordinate.index]
        case "SHIFT":
            return (args[0] + 1) % sizes[0]
        case "UNFOLD":
            return args[0] + args[1] - sizes[1] // 2
        case "STRIDE":
            assert node.parameter is not None
            return node.parameter.at(binding) * args[0]
    raise AssertionError(node.primitive)


@pytest.mark.parametrize("rule", sorted(EXAMPLES))
def test_text_and_sympy_compute_what_the_primitives_do(rule: str, rng: random.Random) -> None:
    binding = SPEC.binding_maps[0]
    found = example(rule)
    for side in (found.before, found.after):
        shown = [*side.tops, *side.state.expanded, *(c for w in side.state.weights for c in w.coordinates)]
        for coordinate in shown:
            tree = expression(coordinate, side.names)
            code = compile(str(tree).replace("#", "w"), rule, "eval")
            formula = tree.sympy()
            for point in points(side, binding, rng, 12):
                leaves = {c: point[str(n)] for c, n in side.names.items()}
                expected = value(coordinate, leaves, binding)
                names = {k.replace("#", "w"): v for k, v in point.items()}
                assert eval(code, {}, {**binding, **names}) == expected, tree
                assert formula.subs({s: {**binding, **point}[s.name] for s in formula.free_symbols}) == expected, tree


def test_sympy_of_the_example_in_the_paper() -> None:
    before, after = example("merge-above-split").sympy()
    H, s = sympy.symbols("H s", integer=True, positive=True)
    i, j = sympy.symbols("#0 #1", integer=True, nonnegative=True)
    assert before.subs({H: 16, s: 2, i: 5, j: 7}) == sympy.Tuple((16 * 5 + 7) // 32, (16 * 5 + 7) % 32)
    assert after.subs({H: 16, s: 2, i: 5, j: 7}) == sympy.Tuple(5 // 2, 16 * (5 % 2) + 7)
    assert before != after


def test_sympy_of_a_sum() -> None:
    before, after = example("unfold-of-reductions").sympy()
    assert isinstance(before, sympy.Sum)
    assert isinstance(after, sympy.Sum)
    assert [str(limit[0]) for limit in before.limits] == ["r0", "r1"]
    assert str(after.limits[0][2]) == "C - 1"


# -- the share that differs ------------------------------------------------------------------------------------------


def test_shares_worked_out_by_hand() -> None:
    binding = SPEC.binding_maps[0]  # H = 16, C = 8, k = 3
    # A window of 3 along 16 is out of bounds once at each end.
    assert example("expand-of-unfold").differing(binding) == pytest.approx(2 / (3 * 16))
    assert example("unfold-of-reductions").differing(binding) == pytest.approx(2 / (3 * 8))
    # In blocks of 8 there is one border inside, crossed once in each direction.
    assert example("merge-above-unfold").differing(binding) == pytest.approx(2 / (3 * 16))
    # Every last element of a block of 16 is carried, out of 8 blocks.
    assert example("merge-above-shift-above-split").differing(binding) == pytest.approx(1 / 16)


def sides(shape: str, *makers: Callable[[Part], Side]) -> list[Side]:
    return [make(Part(SPEC, SPEC.symbols.shape(shape))) for make in makers]


def test_what_differs_is_seen() -> None:
    binding = SPEC.binding_maps[0]

    def weight(part: Part, *numbers: int) -> Side:
        part.share([part.bottoms[i] for i in numbers])
        return part.side(*part.bottoms)

    def two_weights(part: Part) -> Side:
        part.share(part.bottoms[:1])
        return weight(part, 1)

    plain, rolled, only, both, apart = sides(
        "[k, s]",
        lambda part: part.side(*part.bottoms),
        lambda part: part.side(*part.view("SHIFT", part.bottoms[0]), part.bottoms[1]),
        lambda part: weight(part, 0),
        lambda part: weight(part, 0, 1),
        two_weights,
    )

    def differing(one: Side, other: Side) -> float:
        return Rewrite((), one, other).differing(binding)

    assert differing(plain, plain) == 0
    assert differing(plain, rolled) == 1
    assert differing(only, both) > 0  # W[i] is not W[i, j]
    assert differing(both, only) > 0
    assert differing(both, apart) == 1  # of rank one, and of full rank
    assert differing(plain, only) == 1


def test_too_many_points_are_refused() -> None:
    with pytest.raises(SynoError, match=r"expected at most \d+ points, found \d+; use a smaller binding"):
        example("give-view").differing(dict.fromkeys(SPEC.symbols.names, 1 << 10))


# -- the verdict -----------------------------------------------------------------------------------------------------


def test_explanations_are_made_when_asked_for() -> None:
    program = """
import sys
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State
from syno_lab.synthesis.candidates import candidates
state = State.root(Spec.parse("[H]", "[H]", ["H=8: 1"], ["s=2: 2", "k=3: 1"]))
state = state.apply(next(c.step for c in candidates(state) if c.primitive == "MERGE"))
found = [c for c in candidates(state) if not c.verdict.canonical]
assert found
assert not {"sympy", "syno_lab.synthesis.rewrites"} & set(sys.modules)
assert all(c.verdict.before and c.verdict.after for c in found)
assert "sympy" not in sys.modules
assert any(c.verdict.rewrite and c.verdict.rewrite.sympy() for c in found)
assert "sympy" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_rule_of_your_own_shows_its_own_words() -> None:
    mine = Rule("no-shift", "SHIFT", "nothing", "I want none.", "mine", "approximate", lambda s, step: True)
    state, step = propose([("SHIFT", [0])])
    verdict = Verdict(rejecting_rule(state, step, (mine,)), state, step)
    assert (verdict.rule, verdict.before, verdict.after) == ("no-shift", "SHIFT", "nothing")
    assert verdict.rewrite is verdict.latex is verdict.differing is None


def test_a_canonical_step_has_no_reason() -> None:
    verdict = Verdict(None, *propose([("SHIFT", [0])]))
    assert verdict.canonical
    assert (verdict.rule, verdict.reason, verdict.before, verdict.after, verdict.latex) == (None,) * 5
    assert verdict.rewrite is None
    assert verdict == Verdict()


def test_an_exact_rule_differs_nowhere_and_an_unbound_spec_cannot_tell() -> None:
    state, step = propose(EXAMPLES["merge-above-split"])
    assert Verdict(BY_NAME["merge-above-split"], state, step).differing is None
    unbound = Spec.parse("[H]", "[H]", ["H: 1"], ["k: 2"])
    state = State.root(unbound).apply(Step("REDUCE", (), unbound.symbols.size("k")))
    state = state.apply(Step("UNFOLD", state.data))
    verdict = Verdict(BY_NAME["expand-of-unfold"], state, Step("EXPAND", state.data))
    assert verdict.before == "X[]*1[#0 + #1 - k//2]"
    assert verdict.differing is None


def test_the_menu_shows_this_state(rng: random.Random) -> None:
    state, step = propose(EXAMPLES["unfold-above-shift"])
    found = candidates(state)
    items = {found[item.index].step: item for group in menu(state, found, shown=1000) for item in group.pruned}
    told = why(state, found[(item := items[step]).index])
    assert (told.text, told.rule) == ("UNFOLD (i_H + 1) % H, r_k", "unfold-above-shift")
    assert told.before == "[(#0 + 1) % H + #1 - k//2]"
    assert told.after == "[(#0 + #1 - k//2 + 1) % H] with #0 = i_H, #1 = r_k"
    assert told.reason == f"{item.reason} Here {found[item.index].verdict.differing:.1%} of the elements differ."
    assert (told.latex, "<path" in told.svg) == (found[item.index].verdict.latex, True)


# -- expressions -----------------------------------------------------------------------------------------------------


def test_expressions_over_iterators() -> None:
    state, step = propose(EXAMPLES["merge-above-unfold"])
    high, low = state.results(step)
    names = iterators(state)
    assert str(expression(high, names)) == "(i1 + r0 - k//2)//(H//s)"
    assert expression(low, names).latex == (r"(i_{1} + r_{0} - \left\lfloor k / 2 \right\rfloor) \bmod (H/s)")
    with pytest.raises(KeyError, match="has no name"):
        expression(high, {})
    with pytest.raises(TypeError, match="expected an expression, a size or an integer, found float"):
        name("i") + 1.5
