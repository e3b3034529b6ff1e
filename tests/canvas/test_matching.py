"""Shape matching of broadcasts: the paper's examples, and a search over all spans and factors as the oracle."""

import random

import pytest
from canvas_growth import SPANS, grown
from hypothesis import given, settings
from hypothesis import strategies as st

from syno_lab.canvas.kernel import Draft, Node
from syno_lab.canvas.matching import broadcast, matches
from syno_lab.canvas.primitives import PRIMITIVES, Primitive
from syno_lab.canvas.shape import Shape
from syno_lab.errors import PrimitiveError

IMAGE = {"H": "H", "W": "W"}
OF_C = {"1", "C", "G", "C/G"}


def offers(lhs: Shape, rhs: Shape) -> dict[str, str]:
    """The choices for the dynamic variable, with the slots; an empty text where nothing is substituted."""
    return {match.substitution.by.pretty if match.substitution else "": match.parameter for match in matches(lhs, rhs)}


@pytest.mark.parametrize(
    ("lhs", "rhs", "span", "choices"),
    [
        # Section 6.2's first example; 1 is among the factors, as in its second.
        ({"C": "x1", **IMAGE}, {"C": "C", "KH": "KH", **IMAGE}, "C..KH", OF_C | {"C·KH", "KH", "G·KH", "C·KH/G"}),
        # Its second: [x1, KH, H, W] onto [G, x2/G, KH, KW, H, W].
        (
            {"C": "x1", "KH": "KH", **IMAGE},
            {"G": "G", "C": "x2/G", "KH": "KH", "KW": "KW", **IMAGE},
            "G..KW",
            {"1", "x2", "KW", "KW·x2"},
        ),
        # Section 4's: x1/G divides C/G · KH.
        (
            {"G": "G", "C": "x1/G", **IMAGE},
            {"G": "G", "C": "C/G", "KH": "KH", **IMAGE},
            "C..KH",
            {"G", "C", "G·KH", "C·KH"},
        ),
        ({"C": "C"}, {"C": "C", **IMAGE}, "H..W", {""}),
        (IMAGE, {"C": "C", **IMAGE}, "C", {""}),
        ({}, {"C": "C", **IMAGE}, "C..W", {""}),
        (
            {"C": "x0"},
            {"C": "C", **IMAGE},
            "C..W",
            OF_C | {"H", "C·H", "H·G", "C·H/G", "W", "C·W", "W·G", "C·W/G"} | {"H·W", "C·H·W", "H·W·G", "C·H·W/G"},
        ),
        ({"C": "C", **IMAGE}, {"C": "C", **IMAGE}, "", {""}),
        ({"C": "x0", **IMAGE}, {"C": "x0", **IMAGE}, "", {""}),
        # Only what stands above the line is factored: x1 = x0 and x1 = 1.
        ({"C": "x1", **IMAGE}, {"C": "x0", **IMAGE}, "C", {"1", "x0"}),
        # A dynamic variable on the right is left to the solver by constraints.
        ({"C": "C", **IMAGE}, {"C": "x0", **IMAGE}, "C", {""}),
        ({"G": "G", "C": "C/G", **IMAGE}, {"C": "C", **IMAGE}, "C", {""}),
        # The right side has nothing where the left one has x0.
        ({"C": "x0", **IMAGE}, IMAGE, "", {"1"}),
        ({"G": "G", "C": "x0/G", **IMAGE}, {"G": "G", **IMAGE}, "", {"G"}),
    ],
)
def test_worked_cases(lhs: dict[str, str], rhs: dict[str, str], span: str, choices: set[str]) -> None:
    found = offers(Shape.of(**lhs), Shape.of(**rhs))
    assert found.keys() == choices
    assert set(found.values()) == {span}


@pytest.mark.parametrize(
    ("lhs", "rhs"),
    [
        ({"C": "C", **IMAGE}, IMAGE),
        ({"C": "KH", **IMAGE}, {"C": "C", **IMAGE}),
        ({"C": "C", "H": "H"}, {"C": "C", "W": "W"}),
        ({"C": "x0", "KH": "KH", **IMAGE}, {"C": "C", **IMAGE}),
        ({"C": "G", **IMAGE}, {"C": "C/G", **IMAGE}),
    ],
)
def test_no_match(lhs: dict[str, str], rhs: dict[str, str]) -> None:
    assert matches(Shape.of(**lhs), Shape.of(**rhs)) == ()


def test_suffix_goes_before_prefix() -> None:
    # [C, C] would match [C, KH, C] by its first C too, were there such slots: G and C hold the same size here.
    lhs, rhs = Shape.of(G="C", H="H"), Shape.of(G="C", C="C", H="H")
    assert offers(lhs, rhs) == {"": "G"}


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 10))
def test_matches_apply_and_are_all_that_do(seed: int, steps: int) -> None:
    draft = grown(random.Random(seed), steps)
    for left in set(draft.shapes):
        for right in set(draft.shapes):
            found = matches(left, right)
            for parameter, substitution in found:
                after = left if substitution is None else left.substituted(*substitution)
                assert PRIMITIVES["mul"].applies(parameter, (after, right))
            if not found and left.free is None:
                # Other slots would strip less, which asks for as much of M: what does not match matches in no span.
                assert not any(PRIMITIVES["mul"].applies(span, (left, right)) for span in SPANS)


def draft(*nodes: tuple[str, str, tuple[int, ...]]) -> Draft:
    return Draft(tuple(Node(Primitive(name, parameter), inputs) for name, parameter, inputs in nodes))


def test_figure_9_a_s_match() -> None:
    # Fold H and W, FC to x0, multiply onto the input with x0 := H·W.
    folded = draft(("fold_avg", "H", (0,)), ("fold_avg", "W", (1,)), ("fc", "x0", (2,)))
    found = broadcast(folded, "mul", 3, 0, by="H*W")
    assert str(found.shapes[3]) == "[H·W]"
    assert found.nodes[-1] == Node(Primitive("mul", "C..W"), (3, 0))
    assert found.kernel().variables == ("C", "H", "W")


def test_a_match_is_kept_when_more_is_substituted() -> None:
    # x1 := x0 first; later x0 := C would match by the channels themselves, but the slots stay those of the match.
    one = draft(("fc", "x0", (0,)), ("fc", "x1", (0,)))
    two = broadcast(one, "add", 2, 1, by="1")
    after = two.substitute(0, two.shapes[0].size("C"))
    assert after.nodes[-1] == Node(Primitive("add", "C"), (2, 1))
    assert [*map(str, after.shapes)] == ["[C, H, W]", "[C, H, W]", "[H, W]", "[C, H, W]"]


def test_a_substitution_that_breaks_another_tensor_is_refused() -> None:
    one = draft(("fc", "x0", (0,)), ("group", "G", (1,)))
    with pytest.raises(PrimitiveError, match="x0 := 1: node 1: group: expected a tensor with channels"):
        broadcast(one, "add", 1, 0, by="1")


@pytest.mark.parametrize(
    ("lhs", "rhs", "by", "why"),
    [
        (1, 0, None, r"add: \[x0, H, W\] onto \[C, H, W\]: expected .*C/G.* for x0, found None"),
        (1, 0, "KH", r"expected .* for x0, found 'KH'"),
        (0, 0, "C", "expected no size, as nothing is left to choose, found 'C'"),
        (0, 2, None, r"expected a LHS that repeats inside a RHS, found \[C, H, W\] and \[C, W\]"),
        (0, 3, None, "expected tensors 0 to 2, found 0 and 3"),
    ],
)
def test_refusals(lhs: int, rhs: int, by: str | None, why: str) -> None:
    with pytest.raises(PrimitiveError, match=why):
        broadcast(draft(("fc", "x0", (0,)), ("fold_max", "H", (0,))), "add", lhs, rhs, by)
