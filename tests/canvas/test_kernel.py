"""Drafts and kernels of Canvas: Theorem 1 while they grow, shapes, refusals, costs counted by hand."""

import random

import pytest
from canvas_growth import BINDING, SIZES, candidates, grow, grown, kernel
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from syno_lab.canvas.kernel import MOST_NODES, Draft, Kernel, Node, Substitution
from syno_lab.canvas.primitives import PRIMITIVES, Primitive, flops_of
from syno_lab.canvas.shape import INPUT, SLOTS, SPATIAL, SYMBOLS, C, G, Shape, parse
from syno_lab.errors import PrimitiveError, SpecError

RELU = Primitive("relu")
FC = Primitive("fc", "C")
SEEDS = st.integers(0, 2**32 - 1)


def theorem_1(shape: Shape) -> bool:
    """Section 6.2, read from the exponents; the dynamic variables are the last eight."""
    first = SYMBOLS.position["x0"]
    in_shape = 0
    for name in SLOTS:
        powers = shape.size(name).exponents[first:]
        if min(powers) < 0 or (name in SPATIAL and any(powers)):
            return False
        in_shape += sum(powers)
    return in_shape <= 1


def draft(*nodes: tuple[str, str, tuple[int, ...]]) -> Draft:
    return Draft(tuple(Node(Primitive(name, parameter), inputs) for name, parameter, inputs in nodes))


@settings(max_examples=60)
@given(SEEDS, st.integers(1, 14))
def test_theorem_1_holds_after_every_step_and_substitution(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    found = Draft()
    for _ in range(steps):
        found = grow(found, rng)
        assert all(map(theorem_1, found.shapes))
        assert found == Draft(found.nodes)
        assert found.shapes == Draft(found.nodes).shapes
        for number in found.variables:
            for by in SIZES:
                try:
                    after = found.substitute(number, by)
                except PrimitiveError:
                    continue
                assert all(map(theorem_1, after.shapes))
                assert number not in after.variables
                assert after.shapes == tuple(shape.substituted(number, by) for shape in found.shapes)


@settings(max_examples=30)
@given(SEEDS, st.integers(0, 10))
def test_refusal_and_apply_agree(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    found = grown(rng, steps)
    before = (found.nodes, found.shapes)
    for primitive, inputs in candidates(found, rng):
        refusal = found.refusal(primitive, inputs)
        if refusal is None:
            after = found.apply(primitive, inputs)
            assert after.nodes == (*found.nodes, Node(primitive, inputs))
            assert after.shapes[:-1] == found.shapes
            assert hash(after) == hash(Draft(after.nodes))
        else:
            with pytest.raises(PrimitiveError) as caught:
                found.apply(primitive, inputs)
            assert str(caught.value).endswith(refusal)
            assert "\n" not in refusal
    assert (found.nodes, found.shapes) == before


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        ([("group", "G", (0,))], "[G, C/G, H, W]"),
        ([("group", "each", (0,))], "[C, H, W]"),
        ([("unfold", "H,W", (0,)), ("group", "each", (1,))], "[C, KH, KW, H, W]"),
        ([("shift", "H+1,W-1", (0,))], "[C, H, W]"),
        ([("unfold", "W", (0,)), ("unfold", "H", (1,))], "[C, KH, KW, H, W]"),
        ([("unfold", "H,W", (0,)), ("fc", "x0", (1,))], "[x0, H, W]"),
        ([("fc", "x0", (0,)), ("group", "G", (1,))], "[G, x0/G, H, W]"),
        ([("fold_avg", "C", (0,))], "[H, W]"),
        ([("fold_max", "H", (0,)), ("fold_avg", "W", (1,)), ("fold_avg", "C", (2,))], "[]"),
        ([("softmax", "C,H,W", (0,))], "[C, H, W]"),
        ([("fold_avg", "C", (0,)), ("mul", "C", (1, 0))], "[C, H, W]"),
        ([("fold_avg", "H", (0,)), ("fold_avg", "W", (1,)), ("sub", "H..W", (2, 0))], "[C, H, W]"),
    ],
)
def test_shapes(nodes: list[tuple[str, str, tuple[int, ...]]], shape: str) -> None:
    assert str(draft(*nodes).shapes[-1]) == shape


def test_grouping_every_channel_fills_the_group_slot() -> None:
    assert draft(("unfold", "H", (0,)), ("group", "each", (1,))).shapes[-1].filled == ("G", "KH", "H", "W")


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([("group", "G", (0,)), ("group", "G", (1,))], r"node 1: group: expected a tensor that is not in groups yet"),
        ([("fold_avg", "C", (0,)), ("group", "each", (1,))], "expected a tensor with channels"),
        ([("fc", "C/G", (0,)), ("group", "G", (1,))], "C/G² is no whole number"),
        ([("group", "2", (0,))], "expected a parameter among G | each, found '2'".replace("|", r"\|")),
        ([("fold_avg", "H", (0,)), ("shift", "H+1", (1,))], "expected a tensor with axis H"),
        ([("shift", "H+2", (0,))], "expected a parameter among"),
        ([("unfold", "H", (0,)), ("unfold", "H,W", (1,))], "expected a tensor without a window in slot KH"),
        ([("fold_avg", "H", (0,)), ("unfold", "H", (1,))], "expected a tensor with axis H"),
        ([("fc", "C/x0", (0,))], "a dynamic variable is below the line"),
        ([("fc", "x0", (0,)), ("group", "each", (1,)), ("fc", "C", (2,))], "groups without a dynamic variable"),
        ([("group", "G", (0,)), ("fc", "KH", (1,))], "expected channels that G groups divide, found KH"),
        ([("fc", "K", (0,))], "unknown variable 'K'"),
        ([("relu", "6", (0,))], "expected no parameter, found '6'"),
        ([("fold_max", "KH", (0,))], "expected a tensor with axis KH"),
        ([("softmax", "C,W", (0,))], "expected adjacent axes of C,H,W, found 'C,W'"),
        ([("softmax", "", (0,))], "expected adjacent axes"),
        ([("add", "C", (0,))], "add: expected 2 inputs, found 1"),
        ([("fold_avg", "C", (0,)), ("add", "C", (0, 1))], "the number of repeats: 1/C is not always a whole number"),
        ([("fold_avg", "C", (0,)), ("add", "", (1, 0))], "expected a LHS that begins and ends as"),
        ([("add", "C..X", (0, 0))], "expected slots such as C or C..KW, found 'C..X'"),
        ([("fc", "KH", (0,)), ("add", "C", (1, 0))], "the number of repeats: C/KH is not always a whole number"),
        ([("conv", "", (0,))], "expected a primitive among group, .*, found 'conv'"),
        ([("relu", "", (1,))], "expected tensors that come before the node, 0 to 0, found 1"),
        ([("relu", "", (-1,))], "expected tensors that come before the node, 0 to 0, found -1"),
    ],
)
def test_refusals(nodes: list[tuple[str, str, tuple[int, ...]]], why: str) -> None:
    with pytest.raises(PrimitiveError, match=why) as caught:
        draft(*nodes)
    assert "\n" not in str(caught.value)


def test_too_many_nodes_are_refused() -> None:
    full = Draft(tuple(Node(Primitive("sin"), (number,)) for number in range(MOST_NODES)))
    with pytest.raises(PrimitiveError, match="expected at most 64 nodes, found more"):
        full.apply(RELU, (0,))


def test_a_substitution_reaches_every_shape() -> None:
    before = draft(("fc", "x0", (0,)), ("group", "G", (1,)), ("fc", "x1", (2,)), ("fold_avg", "H", (1,)))
    assert before.variables == (0, 1)
    assert before.fresh == 2
    after = before.substitute(0, parse("x1*G"))
    assert [str(shape) for shape in after.shapes] == [
        "[C, H, W]",
        "[G·x1, H, W]",
        "[G, x1, H, W]",
        "[x1, H, W]",
        "[G·x1, W]",
    ]
    assert after.fresh == 0
    assert str(Substitution(0, C / G)) == "x0 := C/G"


@pytest.mark.parametrize(
    ("number", "by", "why"),
    [
        (0, "KH", r"x0 := KH: node 1: group .*KH/G is no whole number"),
        (0, "C/G^2", r"x0 := C/G²: C/G² is no whole number"),
        (0, "x0*C", "expected a size without x0"),
        (3, "C", r"expected a dynamic variable of the draft \(x0\), found x3"),
        (0, "1", "x0 := 1: node 1: group: expected a tensor with channels"),
    ],
)
def test_refused_substitutions(number: int, by: str, why: str) -> None:
    with pytest.raises(PrimitiveError, match=why):
        draft(("fc", "x0", (0,)), ("group", "G", (1,))).substitute(number, parse(by))


def test_a_kernel_has_one_leaf_with_the_elements_of_the_image() -> None:
    with pytest.raises(PrimitiveError, match="expected one tensor that no node uses, found t1, t2"):
        draft(("relu", "", (0,)), ("abs", "", (0,))).kernel()
    with pytest.raises(PrimitiveError, match=r"expected an output of C·H·W elements, found \[C, W\]"):
        draft(("fold_avg", "H", (0,))).kernel()
    with pytest.raises(PrimitiveError, match=r"expected an output of C·H·W elements, found \[x0, H, W\]"):
        Kernel(draft(("fc", "x0", (0,))).nodes)
    assert draft(("fc", "x0", (0,))).kernel() == Kernel((Node(FC, (0,)),))
    with pytest.raises(PrimitiveError, match=r"found \[x0, W\]"):
        draft(("fold_avg", "H", (0,)), ("fc", "x0", (1,))).kernel()


def test_equal_kernels_are_written_alike() -> None:
    one = draft(("group", "G", (0,)), ("fc", "C/G*G", (1,)), ("fc", "C", (2,))).kernel()
    other = draft(("group", "G", (0,)), ("fc", "C", (1,)), ("fc", "1*C", (2,))).kernel()
    assert one == other
    assert hash(one) == hash(other)


def conv2d() -> Kernel:
    return draft(("unfold", "H,W", (0,)), ("fc", "C", (1,))).kernel()


def test_costs_by_hand() -> None:
    binding = {"C": 8, "H": 4, "W": 6, "KH": 3, "KW": 5}
    assert conv2d().weight_sizes(binding) == ((1, 8, 8 * 15),)
    assert conv2d().params(binding) == 8 * 8 * 15
    assert conv2d().flops(binding) == 2 * 8 * 8 * 15 * 24
    # The windows stand beside the input first, then beside the output.
    assert conv2d().memory(binding) == 4 * (8 * 24 * 15 + 8 * 24 + 8 * 8 * 15)
    separable = draft(("unfold", "H,W", (0,)), ("group", "each", (1,)), ("fc", "C", (2,)), ("fc", "C", (3,))).kernel()
    assert separable.weight_sizes(binding) == ((8, 1, 15), (1, 8, 8))
    assert separable.flops(binding) == 2 * 8 * 15 * 24 + 2 * 8 * 8 * 24
    # The grouped windows are a view: they stand beside the input, then beside the first FC's result.
    assert separable.memory(binding) == 4 * (8 * 24 * 15 + 8 * 24 + 8 * 15 + 64)
    # The output stands beside both sides of the last addition.
    residual = draft(("relu", "", (0,)), ("add", "", (1, 0))).kernel()
    assert residual.memory(binding) == 4 * 3 * 8 * 24
    assert separable.variables == ("C", "H", "W", "KH", "KW")


@pytest.mark.parametrize(
    ("name", "number"),
    [
        *(("relu", 1), ("gelu", 4), ("sigmoid", 3), ("tanh", 5), ("abs", 1), ("exp", 1), ("neg", 1), ("sin", 1)),
        *(("fold_avg", 1), ("fold_max", 1), ("softmax", 3), ("shift", 0), ("unfold", 0), ("group", 0)),
    ],
)
def test_flops_for_each_element(name: str, number: int) -> None:
    parameter = PRIMITIVES[name].offers(INPUT)[0]
    cost = flops_of(Primitive(name, parameter), (INPUT,))
    assert cost.number * cost.size.at({"C": 2, "H": 3, "W": 5}) == number * 30


def test_a_broadcast_costs_its_right_side() -> None:
    cost = flops_of(Primitive("mul", "H..W"), (Shape.of(C="C"), INPUT))
    assert (cost.number, cost.size) == (1, INPUT.volume)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"KH": 4}, "expected an odd number for KH, found 4"),
        ({"C": 0}, "expected a whole number from 1 up for C, found 0"),
        ({"W": None}, "expected a whole number from 1 up for W, found None"),
        ({"x0": 9}, r"size G\^-1\*x0 is 9/2 for .*expected a positive integer"),
    ],
)
def test_refused_bindings(change: dict[str, int], why: str) -> None:
    found = draft(("unfold", "H", (0,)), ("fc", "x0", (1,)), ("group", "G", (2,)), ("fc", "C", (3,))).kernel()
    with pytest.raises(SpecError, match=why):
        found.flops({"C": 8, "H": 4, "W": 6, "KH": 3, "G": 2, "x0": 10} | change)


def test_repeats_must_be_whole_at_a_binding() -> None:
    # [C, H, W] onto [x0, H, W]: x0 is a multiple of C.
    found = draft(("fc", "x0", (0,)), ("add", "C", (0, 1)), ("fc", "C", (2,))).kernel()
    assert found.flops({"C": 4, "H": 2, "W": 2, "x0": 8}) == 2 * 4 * 8 * 4 + 8 * 4 + 2 * 8 * 4 * 4
    with pytest.raises(SpecError, match="x0"):
        found.flops({"C": 4, "H": 2, "W": 2, "x0": 10})


@settings(max_examples=25)
@given(SEEDS, st.integers(1, 8))
def test_costs_of_kernels_grown_by_chance(seed: int, steps: int) -> None:
    found = kernel(random.Random(seed), steps)
    assert Kernel(found.nodes) == found
    assert set(found.variables) <= BINDING.keys()
    assume(all(size.is_integral(BINDING) for size in found.conditions))  # x0/C² is rare, and not whole here
    params = sum(a.at(BINDING) * b.at(BINDING) * c.at(BINDING) for a, b, c in found.weights)
    assert found.params(BINDING) == params
    floats = found.memory(BINDING) // 4 - params
    sizes = [shape.volume.at(BINDING) for shape in found.shapes]
    assert max(sizes) <= floats <= sum(sizes)


def test_every_primitive_has_a_card() -> None:
    assert len(PRIMITIVES) == 20
    for kind in PRIMITIVES.values():
        assert kind.signature in kind.card
        assert "source: Canvas, Table 1" in kind.card
