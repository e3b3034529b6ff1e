"""Random networks with operators in them, compiled and traced, give what they gave."""

from __future__ import annotations

from collections.abc import Iterator

import compositions
import pytest
import torch
from compositions import Part, Plan, check, draw, is_fault, network, shrunk, smaller

from syno_lab.models import slots

SOME = 6


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("offset", range(SOME))
def test_random_networks_give_the_same_changed_compiled_and_traced(
    offset: int, fresh_seed: int, request: pytest.FixtureRequest
) -> None:
    """Others with each seed of ``--draws``; by itself the same ones, so that none fails by chance."""
    plan = draw(offset if request.config.getoption("--draws") == 1 else fresh_seed + offset)
    found = check(plan)
    if is_fault(found):
        least = shrunk(plan, lambda one: is_fault(check(one)))
        pytest.fail(f"{least}: {check(least)}")


def test_a_network_of_each_kind_of_part_agrees() -> None:
    """Those that the lab promises: nothing of them is refused."""
    linear = tuple(Part(kind, 2) for kind in ("linear", "keyword", "hook", "pre_hook", "no_grad", "asks", "in_place"))
    around = Part("residual", 0, ((Part("layer_norm"), Part("shared", 1)),))
    joined = Part("concatenation", 0, ((Part("again", 1),), (Part("several", 1),)))
    assert set(check(Plan("tokens", (*linear, around, joined, Part("encoder")), 1)).values()) == {"equal"}
    convolved = tuple(Part(kind, 4) for kind in ("conv", "keyword", "hook", "no_grad", "batch_norm", "pool", "dropout"))
    assert set(check(Plan("image", (*convolved, Part("gate", 0, ((Part("conv"),),))), 1)).values()) == {"equal"}


def test_the_check_sees_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator with other weights is a fault, and the smallest network that shows it has no part."""
    honest = compositions._patched

    def other(net: torch.nn.Module, x: torch.Tensor) -> torch.nn.Module:
        changed = honest(net, x)
        with torch.no_grad():
            next(slots(changed)[-1][1].placeholder.parameters()).mul_(1.5)
        return changed

    monkeypatch.setattr(compositions, "_patched", other)
    plan = Plan("flat", (Part("linear"), Part("activation")), 3)
    found = check(plan, ("patched",))
    assert found["patched"].startswith("FAULT patched in evaluation: the output differs")
    assert shrunk(plan, lambda one: is_fault(check(one, ("patched",)))).parts == ()


def test_plans_are_drawn_alike_and_made_smaller() -> None:
    for seed in range(30):
        plan = draw(seed)
        assert plan == draw(seed)
        net, x = network(plan)
        again, _ = network(plan)
        torch.manual_seed(0)
        wanted = net(x)
        torch.manual_seed(0)
        assert torch.equal(again(x), wanted)
        sizes = [repr(one).count("(") for one in smaller(plan)]
        assert sizes
        assert max(sizes) < repr(plan).count("(")
