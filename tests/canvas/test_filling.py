"""The solver by constraints: Figure 3, budgets that are kept and used, brute force over one variable, reasons."""

import random
from fractions import Fraction
from math import lcm
from statistics import median

import pytest
from canvas_growth import kernel as grown_kernel
from hypothesis import given, settings
from hypothesis import strategies as st

from syno_lab.canvas.fitted import Fitted, fill, group_choices
from syno_lab.canvas.kernel import Draft, Kernel, Node
from syno_lab.canvas.matching import matches
from syno_lab.canvas.places import Budget, Place
from syno_lab.canvas.primitives import PRIMITIVES, Primitive
from syno_lab.canvas.sampler import Sampler
from syno_lab.errors import SpecError

#: ResNet-20's on CIFAR-10, without the first convolution.
RESNET_20 = (
    Place(16, 16, 32, 32, layers=6),
    Place(16, 32, 16, 16, stride=2),
    Place(32, 32, 16, 16, layers=5),
    Place(32, 64, 8, 8, stride=2),
    Place(64, 64, 8, 8, layers=5),
)


def kernel(*nodes: tuple[str, str, tuple[int, ...]]) -> Kernel:
    return Kernel(tuple(Node(Primitive(name, parameter), inputs) for name, parameter, inputs in nodes))


#: Two FCs with x0 channels between them.
BOTTLENECK = kernel(("fc", "x0", (0,)), ("relu", "", (1,)), ("fc", "C", (2,)))
GROUPED = kernel(("group", "G", (0,)), ("fc", "x0", (1,)), ("group", "G", (2,)), ("fc", "C", (3,)))
#: [G·KH, H, W] is broadcast onto [x0, H, W].
FIGURE_3 = kernel(("fc", "G*KH", (0,)), ("fc", "x0", (0,)), ("add", "C", (1, 2)), ("fc", "C", (3,)))


def chain(rng: random.Random) -> Kernel:
    """A kernel in which one to three dynamic variables are left: FCs in a row, with what may stand between them."""
    draft = Draft()
    for _ in range(rng.randint(1, 3)):
        for name in rng.sample(("unfold", "group", "relu", "shift", "mul", "add"), 3):
            tip = len(draft.nodes)
            kind = PRIMITIVES[name]
            choices = [(Primitive(name, offer), (tip,)) for offer in kind.offers(draft.shapes[-1])]
            for lhs in range(tip) if kind.arity == 2 else ():
                found = matches(draft.shapes[lhs], draft.shapes[-1])
                choices += [(Primitive(name, m.parameter), (lhs, tip)) for m in found if m.substitution is None]
            after = draft.apply(*rng.choice(choices)) if choices else draft
            if after.refusal(Primitive("fc", "C"), (len(after.nodes),)) is None:  # not in x0 groups
                draft = after
        draft = draft.apply(Primitive("fc", f"x{draft.fresh}"), (len(draft.nodes),))
    return draft.apply(Primitive("fc", "C"), (len(draft.nodes),)).kernel()


def costs(
    kernel: Kernel, places: tuple[Place, ...], groups: int, values: tuple[dict[str, int], ...]
) -> tuple[int, int]:
    """FLOPs and parameters over all places, by the kernel's own count."""
    bound = [place.binding(groups) | numbers for place, numbers in zip(places, values, strict=True)]
    times = [place.layers * place.parts for place in places]
    flops = sum(n * kernel.flops(binding) for n, binding in zip(times, bound, strict=True))
    flops += sum(
        place.stride**2 * place.c_in * place.h * place.w * place.layers for place in places if place.stride > 1
    )
    return flops, sum(n * kernel.params(binding) for n, binding in zip(times, bound, strict=True))


def lcms(kernel: Kernel, place: Place, groups: int) -> dict[str, int]:
    """The least multiple of each variable for which all sizes are whole."""
    binding = place.binding(groups)
    found = {}
    for name in (name for name in kernel.variables if name.startswith("x")):
        ratios = []
        for size in kernel.conditions:
            powers = dict(zip(size.symbols.names, size.exponents, strict=True))
            if powers[name]:
                ratio = Fraction(1)
                for symbol, power in powers.items():
                    ratio *= Fraction(binding.get(symbol, 1)) ** power
                ratios.append(ratio)
        found[name] = lcm(*[ratio.denominator for ratio in ratios])
    return found


def solved(found: Fitted | str) -> Fitted:
    assert isinstance(found, Fitted), found
    return found


def test_figure_3_of_the_paper() -> None:
    places = (Place(8, 8, 4, 4, kh=3), Place(32, 32, 4, 4, kh=5))
    assert solved(fill(FIGURE_3, places, Budget(), 4)).solutions == ((12,), (60,))
    most = costs(FIGURE_3, places, 4, ({"x0": 48}, {"x0": 240}))
    for budget in (Budget(max_flops=most[0]), Budget(max_params=most[1]), Budget(*most)):
        found = solved(fill(FIGURE_3, places, budget, 4))
        assert found.solutions == ((48,), (240,))
        assert found.spent == most


def test_groups_are_drawn_from_the_common_divisors() -> None:
    places = (Place(32, 32, 4, 4), Place(48, 96, 4, 4))
    assert group_choices(GROUPED, places) == (2, 4, 8, 16)  # section 6.3's example
    assert group_choices(BOTTLENECK, places) == (1,)
    sampler = Sampler(places, max_flops=None)
    assert {sampler.fit(GROUPED).fitted.groups for _ in range(60)} == {2, 4, 8, 16}


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.integers(0, 8), st.floats(0.02, 2), st.floats(0.02, 2))
def test_solutions_are_legal_within_the_budget_and_full(seed: int, steps: int, flops: float, params: float) -> None:
    rng = random.Random(seed)
    kernel = chain(rng) if steps > 3 else grown_kernel(rng, 1 + steps)  # those grown seldom leave a variable
    places = (Place(8, 8, 6, 4, layers=2), Place(8, 16, 3, 2, 5, 3, stride=2), Place(24, 12, 3, 2, 1, 1))
    budget = Budget.of_shares(places, max_flops=flops, max_params=params)
    groups = rng.choice(group_choices(kernel, places))
    found = fill(kernel, places, budget, groups)
    if isinstance(found, str):
        base = fill(kernel, places, Budget(), groups)
        assert isinstance(base, str) or base.spent.flops > budget.max_flops or base.spent.params > budget.max_params
        return
    bindings = [found.binding(place) for place in places]
    for binding in bindings:
        kernel.complete_binding(binding)
    assert found.spent == costs(kernel, places, found.groups, tuple(bindings))
    assert found.spent.flops <= budget.max_flops
    assert found.spent.params <= budget.max_params
    for i, place in enumerate(places):
        for name, unit in lcms(kernel, place, found.groups).items():
            assert bindings[i][name] % unit == 0
            more = [dict(binding) for binding in bindings]
            more[i][name] += unit
            over = costs(kernel, places, found.groups, tuple(more))
            assert over[0] > budget.max_flops or over[1] > budget.max_params, f"{name} at {place}"


@pytest.mark.parametrize(("tested", "groups"), [(BOTTLENECK, 1), (GROUPED, 2), (GROUPED, 4), (FIGURE_3, 4)])
def test_one_variable_is_the_largest_that_fits(tested: Kernel, groups: int) -> None:
    place = Place(8, 8, 3, 3, layers=2)
    unit = lcms(tested, place, groups)["x0"]
    table = {x: costs(tested, (place,), groups, ({"x0": x},)) for x in range(unit, 60 * unit, unit)}
    for most in range(table[unit][1], table[unit * 40][1], 37):
        found = solved(fill(tested, (place,), Budget(max_params=most), groups))
        assert found.solutions == ((max(x for x, (_, params) in table.items() if params <= most),),)
    for most in range(table[unit][0], table[unit * 40][0], 997):
        found = solved(fill(tested, (place,), Budget(max_flops=most), groups))
        assert found.solutions == ((max(x for x, (flops, _) in table.items() if flops <= most),),)


def test_the_binding_budget_is_used() -> None:
    used = []
    for seed in range(200):
        rng = random.Random(seed)
        kernel = chain(rng)
        budget = Budget.of_shares(RESNET_20, max_flops=rng.uniform(0.1, 1), max_params=rng.uniform(0.1, 1))
        found = fill(kernel, RESNET_20, budget, rng.choice(group_choices(kernel, RESNET_20)))
        if isinstance(found, Fitted) and any(found.solutions):
            used.append(max(found.spent.flops / budget.max_flops, found.spent.params / budget.max_params))
    assert len(used) >= 50
    assert max(used) <= 1
    assert median(used) >= 0.985


def test_equal_places_share_one_solution_in_any_order() -> None:
    apart = tuple(Place(p.c_in, p.c_out, p.h, p.w, p.kh, p.kw, p.stride) for p in RESNET_20 for _ in range(p.layers))
    budget = Budget.of_shares(RESNET_20, max_flops=0.4)
    assert budget == Budget.of_shares(apart, max_flops=0.4)
    together = solved(fill(BOTTLENECK, RESNET_20, budget))
    assert solved(fill(BOTTLENECK, apart, budget)) == together
    mixed = solved(fill(BOTTLENECK, random.Random(1).sample(apart, len(apart)), budget))
    assert [mixed.binding(place) for place in RESNET_20] == [together.binding(place) for place in RESNET_20]


@pytest.mark.parametrize(
    ("tested", "places", "budget", "groups", "reason"),
    [
        (BOTTLENECK, (), Budget(), 1, "expected at least one place, found none"),
        (GROUPED, (Place(9, 9, 4, 4),), Budget(), 2, "expected a whole number for C/G with G=2, found 9/2"),
        (BOTTLENECK, (Place(8, 8, 4, 4),), Budget(), 0, "groups: expected a whole number from 1 up, found 0"),
        (BOTTLENECK, (Place(8, 8, 4, 4),), Budget(max_params=15), 1, "expected at most 15 parameters, found 16"),
        (
            BOTTLENECK,
            (Place(8, 8, 4, 4),),
            Budget(max_flops=9),
            1,
            "base solution: expected at most 9 FLOPs, found 528",
        ),
        (
            BOTTLENECK,
            (Place(8, 8, 4, 4),),
            Budget(max_params=100, min_flops=10**6),
            1,
            "filled solution: expected at least 1000000 FLOPs, found 3168",
        ),
    ],
)
def test_the_reason_is_one_line(
    tested: Kernel, places: tuple[Place, ...], budget: Budget, groups: int, reason: str
) -> None:
    found = fill(tested, places, budget, groups)
    assert isinstance(found, str)
    assert found.endswith(reason)
    assert "\n" not in found


def test_channels_without_a_common_divisor_leave_no_groups() -> None:
    with pytest.raises(SpecError, match=r"^groups: expected channels with a common divisor from 2 up, found 8, 9$"):
        GROUPED.fit((Place(8, 8, 4, 4), Place(9, 9, 4, 4)))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: Place(0, 8, 4, 4), "1 up for c_in, found 0"),
        (lambda: Place(8, 12, 4, 4), "found 8 and 12"),
        (lambda: Place(8, 8, 4, 4, 2), "an odd number for kh, found 2"),
        (lambda: Budget(max_flops=-1), "for max_flops, found -1"),
        (lambda: Budget(max_params=5, min_params=6), "min_params of at most 5"),
        (lambda: Budget.of_shares(RESNET_20, max_flops=float("nan")), "a share above 0 for max_flops, found nan"),
    ],
)
def test_bad_numbers_are_refused(wrong: object, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        wrong()
