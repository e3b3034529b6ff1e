"""The sampler: the published example, reproducibility, budgets, and specs without a solution."""

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syno_lab as sl
from syno_lab.errors import SpecError
from syno_lab.ir.spec import Spec
from syno_lab.ir.state import State, Step
from syno_lab.synthesis.graph import Graph
from syno_lab.synthesis.rules import RULES, Rule, rejecting_rule
from syno_lab.synthesis.sampler import Sampler
from syno_lab.synthesis.walks import Walker, _Deck

CONV = (
    "[N, C_in, H, W]",
    "[N, C_out, H, W]",
    ["N=1: 0", "C_in=16: 2", "C_out=16: 2", "H=8: 0", "W=8: 0"],
    ["k_1=3: 4", "g=4: 3"],
)


class Model(nn.Module):
    """The network of syno-readme.md."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel_1 = sl.Placeholder({"H": 32, "W": 32})
        self.kernel_2 = sl.Placeholder({"H": 16, "W": 16})
        self.kernel_3 = sl.Placeholder({"H": 16, "W": 16})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.kernel_1(x)
        x = x.view(1, 1, 32, 32)
        x = F.avg_pool2d(x, 2)
        x = x.view(16, 16)
        x = self.kernel_2(x)
        return self.kernel_3(x)


#: Two spaces as Syno's own configurations write them.
GRAPH = {
    "input_shape": "[N, H_in: unordered]",
    "output_shape": "[N, H_out: unordered]",
    "primary_specs": ["N=2: 0", "H_in=60: 2", "H_out=60: 2"],
    "coefficient_specs": ["k_1=2: 2", "k_2=3: 2", "k_3=5: 2"],
}
VIDEO = {
    "input_shape": "[N, C_in: unordered, T, H, H]",
    "output_shape": "[N, C_out: unordered, T, H, H]",
    "primary_specs": ["N=2: 0", "C_in=64: 3", "C_out=64: 4", "T=4: 0", "H=8: 0"],
    "coefficient_specs": ["k_1=3: 2", "k_2=7: 2", "s=2: 2", "g=32: 3"],
    "fixed_io_pairs": [(0, 0)],
}


@pytest.mark.filterwarnings("ignore::syno_lab.errors.ReadingWarning")
@pytest.mark.parametrize(("fields", "name"), [(GRAPH, "H_in"), (VIDEO, "C_in")])
def test_spaces_as_syno_writes_them_are_those_of_unordered(fields: dict[str, Any], name: str) -> None:
    plain = {key: text.replace(": unordered", "") if isinstance(text, str) else text for key, text in fields.items()}
    operators = [sl.Sampler(**one, seed=3).sample() for one in (fields, plain | {"unordered": (name,)})]
    assert operators[0] == operators[1]
    assert operators[0].spec.unordered == (name,)


@pytest.mark.parametrize(("given", "wanted"), [("[N, D, H]", "[N, 1, H]"), ("[N, 1, H]", "[1, N, 1, H]")])
def test_an_axis_of_size_one_that_nothing_makes_is_refused_at_once(given: str, wanted: str) -> None:
    sampler = sl.Sampler(wanted, given, ["N=2", "H=8", "D=8"], ["k=3"], seed=0)
    with pytest.raises(SpecError, match="no primitive makes an axis of the size 1; declare it, as in 'C=1'"):
        sampler.sample(seconds=0.5)
    declared = sl.Sampler(wanted.replace("1", "C"), given.replace("1", "C"), ["N=2", "H=8", "D=8", "C=1"], ["k=3"])
    assert declared.sample().state.is_complete


def test_axes_of_size_one_that_the_output_has_are_found() -> None:
    for shapes in (("[N, 1, H]", "[N, 1, H]"), ("[1, C]", "[1, D]")):
        sampler = sl.Sampler(*shapes, ["N=2", "H=8", "C=4", "D=4"], ["k=3"], fixed_io_pairs=[(0, 0)], seed=0)
        assert sampler.sample().state.is_complete


def test_the_published_example_runs() -> None:
    net = Model()
    sampler = sl.Sampler(
        "[H, W]",
        "[H, W]",
        ["H: 2", "W: 2"],
        ["s_1=2: 2", "s_2=3: 2"],
        net=net,
    )
    operator = sampler.sample()
    kernel_packs = operator.construct_kernel_packs()
    sampler.replace(net, kernel_packs)
    result = net(torch.randn(32, 32))
    assert result.shape == (16, 16)
    result.sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())
    assert [pack.binding["H"] for pack in kernel_packs] == [32, 16]


def test_a_seed_gives_the_same_operators() -> None:
    def some(seed: int) -> list[sl.Operator]:
        sampler = sl.Sampler(*CONV, fixed_io_pairs=[(0, 0)], weight_limits="primary", max_primitives=5, seed=seed)
        return [operator for operator, _ in zip(sampler.samples(), range(3), strict=False)]

    assert some(3) == some(3)
    assert some(3) != some(4)
    assert len(set(some(3))) == 3


def test_samples_are_canonical_legal_and_within_every_budget() -> None:
    sampler = sl.Sampler(
        *CONV,
        fixed_io_pairs=[(0, 0)],
        weight_limits="primary",
        max_primitives=7,
        max_tensors=3,
        max_flops=300_000,
        min_flops=2_000,
        max_params=3_000,
        max_memory=60_000,
        max_shifts=1,
        seed=5,
    )
    binding = sampler.spec.binding_maps[0]
    for operator, _ in zip(sampler.samples(), range(5), strict=False):
        state = sampler.root()
        for step in operator.steps:
            assert rejecting_rule(state, step) is None
            state = state.apply(step)
        assert state.is_complete
        assert len(operator.steps) <= 7
        assert 1 <= len(operator.weights) <= 2
        assert 2_000 <= operator.flops(binding) <= 300_000
        assert operator.params(binding) <= 3_000
        assert operator.memory(binding) <= 60_000
        assert sum(step.primitive == "SHIFT" for step in operator.steps) <= 1
        for weight in operator.weights:
            for size in weight.shape:
                assert not size.exponents[sampler.spec.symbols.position["H"]], (
                    "limits of primaries keep H out of weights"
                )


def test_enumeration_gives_each_pgraph_once_and_sampling_stays_within_it() -> None:
    spec = ("[C, H]", "[D, H]", ["C=4: 2", "D=6: 1", "H=8: 0"], ["k=3: 2"])
    options = {"max_primitives": 4, "max_tensors": 2, "max_shifts": 0, "max_expands": 0, "weight_limits": "primary"}
    every = list(sl.Sampler(*spec, seed=0, **options).enumerate(4))
    assert len(set(every)) == len(every) > 3
    sampler = sl.Sampler(*spec, seed=1, **options)
    drawn = {sampler.sample() for _ in range(150)}
    assert drawn <= set(every)
    assert len(drawn) > len(every) // 2
    # conv1d is among them: REDUCE C and k, a weight [C, k, D], an UNFOLD.
    assert any([s.primitive for s in o.steps] == ["REDUCE", "REDUCE", "SHARE", "UNFOLD"] for o in every)


def test_no_solution_is_said_at_once_and_why() -> None:
    with pytest.raises(SpecError, match=r"cannot be reached from the output .* no primitive may introduce C_in"):
        sl.Sampler("[N, C_in, H]", "[N, C_out, H]", ["N: 0", "C_in: 0", "C_out: 1", "H: 0"]).sample()


def test_too_few_steps_end_in_one_line() -> None:
    with pytest.raises(SpecError, match="at most 1 primitives"):
        sl.Sampler("[C, H]", "[D, H]", ["C: 1", "D: 1", "H: 0"], max_primitives=1).sample()


def test_contradictory_budgets_are_refused() -> None:
    with pytest.raises(SpecError, match="min_flops 9 is more than max_flops 8"):
        sl.Sampler("[H]", "[H]", ["H"], max_flops=8, min_flops=9)
    with pytest.raises(SpecError, match="needs max_tensors of at least 3"):
        sl.Sampler("[H]", "[H]", ["H"], min_weights=2, max_tensors=2)
    with pytest.raises(SpecError, match="unknown limit 'max_foo'"):
        sl.Sampler("[H]", "[H]", ["H"], max_foo=2)


def test_packs_need_sizes() -> None:
    operator = sl.Sampler("[C, H]", "[D, H]", ["C: 1", "D: 1", "H: 0"], max_primitives=3, seed=0).sample()
    with pytest.raises(SpecError, match="no kernel packs without concrete sizes"):
        operator.construct_kernel_packs()


def test_rules_are_a_table_with_reasons() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.reason.endswith(".") and rule.before and rule.after and rule.section for rule in RULES)


# -- against enumeration ---------------------------------------------------------------------------------------------

COUNTABLE = [
    Spec.parse("[H]", "[H]", ["H=63: 0"], ["s=3: 2"], max_primitives=3, max_tensors=2, max_reduces=1, min_weights=0),
    Spec.parse("[C, H]", "[D, H]", ["C=12: 1", "D=21: 1", "H=5: 0"], ["k=3: 1"], max_primitives=4, max_expands=0),
]
each_countable = pytest.mark.parametrize("spec", COUNTABLE, ids=lambda spec: f"{spec.output_shape}")


def chi_square_bound(degrees: int) -> float:
    """What a chi-square variable exceeds less than once in 10^6 (Wilson and Hilferty 1931; 4.892 is six nines)."""
    third = 2 / (9 * degrees)
    return degrees * (1 - third + 4.892 * math.sqrt(third)) ** 3


@each_countable
def test_sample_is_uniform_over_enumeration(spec: Spec) -> None:
    sampler = Sampler.from_spec(spec)
    print(f"seed {sampler.seed}")
    every = list(sampler.enumerate())
    assert sampler.is_uniform
    draws = 30 * len(every)
    seen = Counter(sampler.sample() for _ in range(draws))
    assert seen.keys() <= set(every)
    expected = draws / len(every)
    statistic = sum((seen[operator] - expected) ** 2 / expected for operator in every)
    assert statistic < chi_square_bound(len(every) - 1), f"{statistic} over {len(every)} operators, seed {sampler.seed}"


@each_countable
@pytest.mark.parametrize(
    ("nodes", "spread"), [(4_000, True), (0, True), (0, False)], ids=["counted", "spread", "neighbourhoods"]
)
def test_samples_give_each_operator_once_and_all(
    spec: Spec, nodes: int, spread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syno_lab.synthesis.sampler.COUNTABLE_NODES", nodes)
    sampler = Sampler.from_spec(spec, spread=spread)
    print(f"seed {sampler.seed}")
    found = list(sampler.samples())
    assert sampler.is_uniform == bool(nodes)
    assert len(found) == len(set(found))
    assert set(found) == set(Sampler.from_spec(spec).enumerate())


@pytest.mark.parametrize("nodes", [4_000, 0], ids=["counted", "in walks"])
def test_a_seed_repeats_samples_and_draws(nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syno_lab.synthesis.sampler.COUNTABLE_NODES", nodes)

    def some(seed: int) -> list[sl.Operator]:
        sampler = Sampler.from_spec(COUNTABLE[1], seed=seed)
        return [*islice(sampler.samples(), 20), *(sampler.sample() for _ in range(5))]

    assert some(3) == some(3)
    assert some(3) != some(4)


# -- draws that spread -----------------------------------------------------------------------------------------------

WIDE = Spec.parse(
    "[C, H]", "[D, H]", ["C=12: 2", "D=21: 1", "H=10: 0"], ["k=3: 2", "s=2: 2"], max_primitives=6, max_tensors=3
)


def test_every_multiset_of_reduces_comes_once_a_round() -> None:
    graph = Graph(WIDE)
    deck = _Deck(graph, 6, random.Random(3), lambda move: 1.0, lambda move: 1.0)
    moves = graph.moves(graph.root, 6)
    numbers = Counter(move.cost for move in moves)
    dealt = [deck.deal() for _ in range(len(numbers) * max(numbers.values()))]
    for start in range(0, len(dealt), len(numbers)):
        assert {move.cost for move, _ in dealt[start : start + len(numbers)]} == set(numbers)
    for number, many in numbers.items():
        sizes = [move.sizes for move, _ in dealt if move.cost == number]
        for start in range(0, len(sizes) - many + 1, many):
            assert len(set(sizes[start : start + many])) == many
    assert all(move.cost + move.need <= most <= 6 for move, most in dealt)


def test_what_gives_nothing_new_comes_rarely() -> None:
    graph = Graph(WIDE)
    deck = _Deck(graph, 6, random.Random(3), lambda move: 1.0, lambda move: 1.0)
    number, many = min(
        Counter(move.cost for move in graph.moves(graph.root, 6)).items(), key=lambda item: (item[1] < 2, item[1])
    )
    alike = [move.sizes for move in graph.moves(graph.root, 6) if move.cost == number]
    assert many == len(alike) > 1
    dealt: Counter[object] = Counter()
    for _ in range(600):
        move, _ = deck.deal()
        dealt[move.sizes] += 1
        deck.reward(move.sizes != alike[0])
    assert 0 < dealt[alike[0]] < min(dealt[sizes] for sizes in alike[1:]) / 2


@pytest.mark.parametrize(("spread", "most"), [(True, _Deck.FEW), (False, 4_000)])
def test_few_paths_of_one_place(spread: bool, most: int) -> None:
    walker = Walker(Graph(WIDE), 6, random.Random(1), spread=spread)
    found = [len(walker.walk()) for _ in range(20)]
    assert max(found) <= most
    assert spread or max(found) > _Deck.FEW


def test_draws_that_spread_meet_more_multisets_of_reduces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syno_lab.synthesis.sampler.COUNTABLE_NODES", 0)

    def roots(spread: bool) -> int:
        drawn = islice(Sampler.from_spec(WIDE, seed=1, spread=spread).samples(), 50)
        return len({tuple(sorted(str(c.size) for c in operator.reductions)) for operator in drawn})

    assert roots(True) > 2 * roots(False)


def row(name: str, match: Callable[[State, Step], bool]) -> Rule:
    """A rule as a user writes it in a notebook."""
    return Rule(name, "X", "-", "I want none.", "mine", "exact", match)


def test_a_rule_of_your_own_restricts_samples() -> None:
    mine = row("no-weight-of-H", lambda _, step: any(str(c.size) == "H" for c in step.operands + step.given))
    found = set(Sampler.from_spec(COUNTABLE[1], rules=(*RULES, mine)).samples())
    every = set(Sampler.from_spec(COUNTABLE[1]).enumerate())
    assert found == {o for o in every if all(str(c.size) != "H" for s in o.steps for c in s.operands + s.given)}
    assert 0 < len(found) < len(every)


OF_REDUCES: dict[str, Callable[[State, Step], bool]] = {
    "by size": lambda state, step: step.primitive == "REDUCE" and str(step.parameter) == "k",
    "by state": lambda state, step: step.primitive == "REDUCE" and bool(state.reductions),
}


@pytest.mark.parametrize("nodes", [4_000, 0], ids=["counted", "in walks"])
@pytest.mark.parametrize("which", OF_REDUCES)
def test_a_rule_of_your_own_refuses_sums(which: str, nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The root of the search takes REDUCEs together; a rule is asked for each of them all the same."""
    monkeypatch.setattr("syno_lab.synthesis.sampler.COUNTABLE_NODES", nodes)
    match, spec = OF_REDUCES[which], COUNTABLE[1]

    def obeys(operator: sl.Operator) -> bool:
        state = State.root(spec)
        for step in operator.steps:
            if match(state, step):
                return False
            state = state.apply(step)
        return True

    sampler = Sampler.from_spec(spec, seed=1, rules=(*RULES, row("few-sums", match)))
    every = set(Sampler.from_spec(spec).enumerate())
    kept = {operator for operator in every if obeys(operator)}
    assert 0 < len(kept) < len(every)
    assert set(sampler.enumerate()) == kept
    assert set(islice(sampler.samples(), 2 * len(kept))) == kept


@pytest.mark.parametrize("nodes", [4_000, 0], ids=["counted", "in walks"])
def test_a_rule_that_rejects_everything_is_named(nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syno_lab.synthesis.sampler.COUNTABLE_NODES", nodes)
    monkeypatch.setattr("syno_lab.synthesis.sampler.MAX_REJECTED", 200)
    sampler = Sampler.from_spec(COUNTABLE[1], rules=(*RULES, row("nothing-goes", lambda state, step: True)))
    for draw in (sampler.sample, lambda: next(sampler.samples())):
        with pytest.raises(SpecError, match="no operator found: rule 'nothing-goes' rejects all of them"):
            draw()


@pytest.mark.parametrize("nodes", [4_000, 0], ids=["counted", "in walks"])
def test_a_rule_is_not_blamed_for_what_a_budget_rejects(nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syno_lab.synthesis.sampler.COUNTABLE_NODES", nodes)
    monkeypatch.setattr("syno_lab.synthesis.sampler.MAX_REJECTED", 200)
    spec = replace(COUNTABLE[1], limits=replace(COUNTABLE[1].limits, max_flops=1))
    sampler = Sampler.from_spec(spec, rules=(*RULES, row("nothing-goes", lambda state, step: True)))
    with pytest.raises(SpecError, match=r"no operator found from .* with at most .*these budgets; raise"):
        sampler.sample()


def test_the_space_itself_is_not_a_rule_to_leave_out() -> None:
    rules = tuple(rule for rule in RULES if rule.name != "expand-of-unfold")
    with pytest.raises(SpecError, match=r"rules: expected every row of kind 'space'.*expand-of-unfold is missing"):
        Sampler.from_spec(COUNTABLE[1], rules=rules)


def test_sampling_stops_when_told_even_where_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syno_lab.synthesis.sampler.COUNTABLE_NODES", 0)
    asked = iter([False] * 30)
    sampler = Sampler.from_spec(
        COUNTABLE[1], rules=(*RULES, row("sums-only", lambda state, step: step.primitive != "REDUCE"))
    )
    with pytest.raises(sl.SynoError, match="stopped while"):
        next(sampler.samples(should_stop=lambda: next(asked, True)))


def test_what_walks_leave_is_counted_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A space that is too large to be counted goes on being walked when walks repeat themselves."""
    every = set(Sampler.from_spec(COUNTABLE[1]).enumerate())
    monkeypatch.setattr("syno_lab.synthesis.sampler.COUNTABLE_NODES", 0)
    monkeypatch.setattr("syno_lab.synthesis.sampler._RECENT", 50)
    monkeypatch.setattr("syno_lab.synthesis.nodes.Nodes.MOST_NODES", 20)
    monkeypatch.setattr("syno_lab.synthesis.walks.Walker.NODES_A_WALK", 10)
    sampler = Sampler.from_spec(COUNTABLE[1], seed=5, spread=False)
    found = list(islice(sampler.samples(), len(every) // 2))
    assert set(found) <= every
    assert len(set(found)) == len(found)
