"""The sampler: the published example, reproducibility, budgets, and specs without a solution."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syno_lab as sl
from syno_lab.errors import SpecError
from syno_lab.synthesis.rules import RULES, rejecting_rule

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
        sampler = sl.Sampler(*CONV, fixed_io_pairs=[(0, 0)], weight_limits="strict", max_primitives=5, seed=seed)
        return [operator for operator, _ in zip(sampler.samples(), range(3), strict=False)]

    assert some(3) == some(3)
    assert some(3) != some(4)
    assert len(set(some(3))) == 3


def test_samples_are_canonical_legal_and_within_every_budget() -> None:
    sampler = sl.Sampler(
        *CONV,
        fixed_io_pairs=[(0, 0)],
        weight_limits="strict",
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
                assert not size.exponents[sampler.spec.symbols.position["H"]], "strict limits keep H out of weights"


def test_enumeration_gives_each_pgraph_once_and_sampling_stays_within_it() -> None:
    spec = ("[C, H]", "[D, H]", ["C=4: 2", "D=6: 1", "H=8: 0"], ["k=3: 2"])
    options = {"max_primitives": 4, "max_tensors": 2, "max_shifts": 0, "max_expands": 0, "weight_limits": "strict"}
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
