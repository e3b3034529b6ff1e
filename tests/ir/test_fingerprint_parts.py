"""What the fast fingerprint stands on: parts, their numbers, the products of these, and the binding to compare on."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from whole_fingerprint import terms, whole_fingerprint

from syno_lab.commands.pgraphs.specs import load_spec
from syno_lab.errors import SpecError
from syno_lab.ir.build import Build
from syno_lab.ir.fingerprint import (
    confirmed_repeats,
    confirming_binding,
    distinct_key,
    fingerprint,
    fingerprint_binding,
)
from syno_lab.ir.fingerprint_parts import DIV, MOD, SHIFT, SPLIT, STRIDE, UNFOLD, PartKey, parts, sizes_under
from syno_lab.ir.fingerprint_table import MODULUS, Facts, facts, refined
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.operators import conv2d, operator_1

SMALL = {"N": 1, "C_in": 4, "C_out": 6, "H": 5, "W": 7, "k_1": 3}


# -- numbers of a product are products of numbers -------------------------------------------------------------------


def random_part(rng: random.Random, first_axis: int) -> PartKey:
    """A part of one to three iterators with two members, made of all operations."""
    iterators = tuple((first_axis + i if rng.random() < 0.5 else -1, rng.choice((2, 3, 4, 6))) for i in range(3))

    def expression(depth: int) -> object:
        kind = rng.choice((SHIFT, SPLIT, DIV, MOD, UNFOLD, STRIDE, None)) if depth else None
        if kind is None:
            return rng.randrange(3)
        if kind == SPLIT:
            return (SPLIT, expression(depth - 1), expression(depth - 1), 6)
        if kind == UNFOLD:
            return (UNFOLD, expression(depth - 1), expression(depth - 1), 1, rng.choice((3, 5)))
        return (kind, expression(depth - 1), rng.choice((2, 3)))

    inputs = tuple((first_axis + i, expression(2)) for i in range(rng.randint(0, 2)))
    members = tuple(tuple(expression(1) for _ in range(rng.randint(1, 2))) for _ in range(2))
    return PartKey(iterators, inputs, members, tuple(expression(2) for _ in range(rng.randint(0, 1))))


def beside(one: PartKey, two: PartKey) -> PartKey:
    """Both parts as one."""
    by = len(one.iterators)

    def moved(expression: object) -> object:
        if isinstance(expression, int):
            return expression + by
        operation, *rest = expression  # type: ignore[misc]
        trees = 2 if operation in (SPLIT, UNFOLD) else 1
        return (operation, *map(moved, rest[:trees]), *rest[trees:])

    return PartKey(
        one.iterators + two.iterators,
        one.inputs + tuple((axis, moved(e)) for axis, e in two.inputs),
        tuple((*a, *map(moved, b)) for a, b in zip(one.members, two.members, strict=True)),
        one.bounds + tuple(map(moved, two.bounds)),
    )


@pytest.mark.parametrize("case", range(40))
def test_two_parts_taken_as_one_give_the_product(rng: random.Random, case: int) -> None:
    rng = random.Random(rng.random() + case)
    one, two = random_part(rng, 0), random_part(rng, 3)
    a, b, both = facts(one), facts(two), facts(beside(one, two))
    if a.is_empty or b.is_empty:
        assert both.is_empty
        return
    assert both.is_visible == (a.is_visible and b.is_visible)
    assert both.apart == a.apart * b.apart % MODULUS
    assert both.pairs == tuple(p * q % MODULUS for p, q in zip(a.pairs, b.pairs, strict=True))
    assert both.finer == tuple(p & q for p, q in zip(a.finer, b.finer, strict=True))
    assert both.single == a.single & b.single
    for names, absent in (((0, 1), ()), ((1, 0), (2,)), ((-1, 0), (1,))):
        assert refined(beside(one, two), names, absent) == (
            refined(one, names, absent) * refined(two, names, absent) % MODULUS
        )


def test_a_part_without_a_member_is_one_where_it_has_one_element() -> None:
    """What ``absent`` and ``apart`` stand for."""
    with_one = PartKey(((0, 4), (-1, 1)), ((0, 0),), ((1,), (0,)), ())
    without = PartKey(((0, 4),), ((0, 0),), ((0,),), ())
    assert facts(with_one).single == 1
    assert facts(with_one).pairs == (facts(without).apart, facts(without).pairs[0])
    assert refined(with_one, (0, 1), ()) == refined(without, (1,), (0,))


def test_pairs_by_hand() -> None:
    """The number of a weight is the sum over pairs of terms that meet in it: here terms 0 and 2, 1 and 3."""
    low_digit = facts(PartKey(((0, 4),), (), (((MOD, 0, 2),),), ()))
    high_digit = facts(PartKey(((0, 4),), (), (((DIV, 0, 2),),), ()))
    alone = facts(PartKey(((0, 4),), (), ((0,),), ()))
    all_of_it = facts(PartKey(((0, 4),), (), (((STRIDE, (MOD, 0, 1), 2),),), ()))
    assert len({low_digit.pairs, high_digit.pairs, alone.pairs, all_of_it.pairs}) == 4
    assert all_of_it.pairs == (all_of_it.apart,)
    assert low_digit == Facts(False, True, (1,), 0, low_digit.apart, low_digit.pairs)


# -- parts -----------------------------------------------------------------------------------------------------------


def keys_of(operator: Operator, binding: dict[str, int]) -> list[PartKey]:
    return [key for key, _ in parts(operator, sizes_under(tuple(binding.items())), ())]


def test_a_convolution_falls_apart() -> None:
    """The batch, the channels, and each axis of the image with its window."""
    channel_in, channel_out = PartKey(((-1, 4),), ((1, 0),), ((0,),), ()), PartKey(((1, 6),), (), ((0,),), ())
    height = PartKey(((2, 5), (-1, 3)), ((2, (UNFOLD, 0, 1, 1, 5)),), ((1,),), ())
    width = PartKey(((3, 7), (-1, 3)), ((3, (UNFOLD, 0, 1, 1, 7)),), ((1,),), ())
    assert set(keys_of(conv2d(), SMALL)) == {
        PartKey(((0, 1),), ((0, 0),), (), ()),
        channel_in,
        channel_out,
        height,
        width,
    }


def test_what_is_undone_connects_nothing() -> None:
    build = Build("[C, H]", "[C, H]", ["C=4", "H=6"], ["s=2"])
    c, h = build.output
    high, low = build.merge(build.split(c, h), "H")
    top, bottom = build.merge(low, "s")
    build.contract(share=[high, build.split(top, bottom)])
    operator = build.finish(*build.state.data)
    assert set(keys_of(operator, {"C": 4, "H": 6, "s": 2})) == {
        PartKey(((0, 4),), ((0, 0),), ((0,),), ()),
        PartKey(((1, 6),), ((1, 0),), ((0,),), ()),
    }


def test_the_bounds_of_an_unfold_that_is_dropped_count() -> None:
    build = Build("[]", "[H]", ["H=3"], ["k=3"])
    (h,) = build.output
    window = build.reduce("k")
    build.contract(share=[window])
    build.expand(build.unfold(h, window))
    dropped = build.finish()
    plain = Build("[]", "[H]", ["H=3"], ["k=3"])
    window = plain.reduce("k")
    plain.contract(share=[window])
    plain.expand(window)
    plain.expand(plain.output[0])
    binding = {"H": 3, "k": 3}
    assert fingerprint(dropped, binding) != fingerprint(plain.finish(), binding)


def test_an_operator_that_is_zero() -> None:
    """An axis of 1 under a window whose steps pass over it has no terms at all."""

    def zero(shifted: bool) -> Operator:
        build = Build("[H, H]", "[H, H]", ["H"], ["k", "s"])
        one, two = build.output
        top = build.unfold(one, build.stride(build.reduce("k"), "s"))
        return build.finish(top, build.shift(two) if shifted else two)

    binding = {"H": 1, "k": 3, "s": 2}
    assert len(terms(zero(True), binding).count) == 0
    assert fingerprint(zero(True), binding) == fingerprint(zero(False), binding)
    larger = binding | {"H": 4}
    assert fingerprint(zero(True), larger) != fingerprint(zero(False), larger)


# -- reductions that only weights see --------------------------------------------------------------------------------


def factored(*sizes: str, order: int = 1) -> Operator:
    """``Y[o] = sum X[c] W1[c, m...] W2[m..., o]`` with an m of each of ``sizes``."""
    build = Build("[C]", "[O]", ["C", "O", "M"], ["s"])
    (o,) = build.output
    middle = [build.reduce(size) for size in sizes]
    c = build.reduce("C")
    build.contract(share=[c, *middle])
    build.contract(share=[c], give=[*middle[::order], o]) if order else build.contract(share=[c], give=[o, *middle])
    return build.finish(c)


def test_the_size_of_a_bottleneck_shows_and_its_layout_does_not() -> None:
    binding = {"C": 3, "O": 5, "M": 6, "s": 2}
    whole = fingerprint(factored("M"), binding)
    assert fingerprint(factored("s^-1*M", "s"), binding) == whole
    assert fingerprint(factored("s", "s^-1*M", order=-1), binding) == whole
    assert fingerprint(factored("s^-1*M"), binding) != whole
    assert fingerprint(factored("M", "s"), binding) != whole


def web(weights: int, *links: str) -> Operator:
    """``Y[o]`` from ``X[c]`` by weights that all have c; a link ``"02"`` is a reduction in weights 0 and 2 alone."""
    build = Build("[C]", "[O]", ["C", "O", "M"])
    (o,) = build.output
    reductions = {build.reduce("M"): {int(end) for end in link} for link in links}
    c = build.reduce("C")
    for number in range(weights):
        mine = [r for r, ends in reductions.items() if number in ends]
        gone = [r for r in mine if number == max(reductions[r])]
        given = [*gone, o] if number == weights - 1 else gone
        build.contract(share=[c, *(r for r in mine if r not in gone)], give=given)
    return build.finish(c)


WEBS = [
    # two of which the first two are one function, and the third is another
    (web(3, "01", "12"), web(3, "10", "02"), web(3, "02", "12")),  # the weight of o at an end, and in the middle
    # a ring of six, the same with its weights made in another order, and two rings of three
    (
        web(7, "01", "12", "23", "34", "45", "50"),
        web(7, "02", "24", "41", "13", "35", "50"),
        web(7, "01", "12", "20", "34", "45", "53"),
    ),
]


@pytest.mark.parametrize("webs", WEBS, ids=["chain", "rings"])
def test_who_meets_whom_shows_and_the_order_of_weights_does_not(webs: tuple[Operator, ...]) -> None:
    """In a ring each weight alone looks like every other: only refinement tells, and only the least of all orders."""
    binding = {"C": 2, "O": 3, "M": 2}
    one, again, other = (fingerprint(operator, binding) for operator in webs)
    assert one == again != other
    one, again, _ = (whole_fingerprint(operator, binding) for operator in webs)
    assert one == again


# -- the same everywhere, and bounded --------------------------------------------------------------------------------


def test_fingerprints_are_the_same_on_every_machine() -> None:
    """Stored runs name operators by them: change these digits only with a new version of the store's format."""
    assert fingerprint(conv2d(), SMALL) == "b180cf11ecd70acf96a926904d5b42fa"
    binding = {"N": 1, "C_in": 4, "C_out": 8, "H": 5, "W": 7, "k_1": 3, "g": 2, "s": 2}
    assert fingerprint(operator_1(), binding) == "f2291f591663c41dfeb287e6107048e9"


def test_the_memory_of_parts_is_bounded() -> None:
    for memory in (facts, refined):
        assert memory.cache_info().maxsize is not None


# -- bindings --------------------------------------------------------------------------------------------------------


def test_the_binding_of_the_conv_spec() -> None:
    spec, _ = load_spec("conv-authors", weight_limits="free")
    binding = fingerprint_binding(spec)
    channels_and_image = [binding[name] for name in ("C_in", "C_out", "H", "W")]
    assert len({*channels_and_image, *(n // binding["g"] for n in channels_and_image)}) == 8
    assert all(n % binding["g"] == 0 and n > 15 for n in channels_and_image)  # 15: the window k_1 * k_2
    assert (binding["k_1"], binding["k_2"], binding["s"], binding["N"]) == (3, 5, 2, 1)
    assert binding["g"] == 4  # even as 16 is, and neither 2, 3 nor 5


def test_sizes_that_are_legal_are_integers_on_the_binding() -> None:
    for name in ("conv-authors", "readme"):
        spec, _ = load_spec(name)
        binding = fingerprint_binding(spec)
        for text in ("g^-1*C_in", "g^-1*H", "g^-2*C_in*H") if name == "conv-authors" else ("s_1^-2*H", "s_1^-1*W"):
            size = spec.symbols.size(text)
            assert spec.is_legal(size)
            assert size.is_integral(binding)


def test_large_coefficients_keep_parity_and_divisors() -> None:
    spec = Spec.parse("[H]", "[H]", ["H=480"], ["s=2", "a=8", "b=7", "c=15", "d=16", "e=16"])
    binding = fingerprint_binding(spec)
    assert binding["s"] == 2
    assert all(binding[n] % 2 == p % 2 for n, p in (("a", 8), ("b", 7), ("c", 15), ("d", 16)))
    assert binding["d"] == binding["e"]  # as they are equal in the spec
    assert len({binding[n] for n in "sabcd"}) == 5
    assert binding["d"] % binding["a"] == 0 == binding["a"] % 2


def test_a_repeat_by_chance_is_found_on_the_confirming_binding() -> None:
    """Four SHIFTs of a digit of g are none where g is 4, as it is on the usual binding."""
    spec, _ = load_spec("conv-authors", weight_limits="free")

    def shifted(times: int) -> Operator:
        state = State.root(spec).apply(Step("REDUCE", (), spec.symbols.size("C_in")))
        channel = state.data[-1]
        state = state.apply(Step("SHARE", (channel,), given=(state.data[1],)))
        state = state.apply(Step("MERGE", (state.data[1],), spec.symbols.size("g")))
        high, low = state.data[-2:]
        for _ in range(times):
            state = state.apply(Step("SHIFT", (low,)))
            low = state.data[-1]
        return state.apply(Step("SPLIT", (high, low))).operator()

    assert distinct_key(shifted(4)) == distinct_key(shifted(0)) != distinct_key(shifted(1))
    larger = confirming_binding(spec)
    assert fingerprint(shifted(4), larger) != fingerprint(shifted(0), larger) == fingerprint(shifted(16), larger)
    operators = [shifted(times) for times in (0, 4, 1, 16)]
    keys = [distinct_key(operator) for operator in operators]
    assert len(set(keys)) == 2
    assert confirmed_repeats(operators, keys) == 1
    assert confirmed_repeats(operators[:3], keys[:3]) == 0


def test_an_operator_that_needs_more_gets_a_larger_binding() -> None:
    spec = Spec.parse("[s^-3*H, s^3]", "[H]", ["H"], ["s=4"])
    build = Build("[s^-3*H, s^3]", "[H]", ["H"], ["s=4"])
    operator = build.finish(*build.merge(build.output[0], "s^3"))
    assert fingerprint_binding(spec)["H"] % 64
    binding = dict(distinct_key(operator)[0])
    assert binding["H"] % 64 == 0
    assert distinct_key(operator) == (tuple(binding.items()), fingerprint(operator, binding))
    with pytest.raises(SpecError, match="expected a positive integer"):
        fingerprint(operator, fingerprint_binding(spec))


def test_coefficients_that_do_not_divide_get_their_own_values() -> None:
    """15/5 is an integer, 7/5 is not, and no primary can mend it."""
    build = Build("[f^-1*c]", "[f^-1*c]", [], ["c=15", "f=5"])
    operator = build.finish(*build.output)
    assert dict(distinct_key(operator)[0])["c"] % 5 == 0
    build = Build("[f^-2*c]", "[f^-2*c]", [], ["c=50", "f=5"])
    operator = build.finish(*build.output)
    assert distinct_key(operator)[0] == (("c", 50), ("f", 5))


def test_the_same_function_has_the_same_key_whatever_else_the_spec_limits() -> None:
    spec, _ = load_spec("conv-authors", weight_limits="free")
    assert fingerprint_binding(replace(spec, limits=replace(spec.limits, max_primitives=9))) == fingerprint_binding(
        spec
    )
