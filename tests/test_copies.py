"""Networks that torch does not copy, whose weights are computed, or have no shapes or no values yet."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

import syno_lab as sl
from syno_lab.codegen.tvm_export import export_network
from syno_lab.copies import copied, uncompiled
from syno_lab.errors import SpecError
from syno_lab.models import Selection, find_convolutions, put_in, survey

COMPUTED: dict[str, Callable[[nn.Module], nn.Module]] = {
    "weight_norm": weight_norm,
    "spectral_norm": spectral_norm,
    "pruned": lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
    "pruned bias": lambda layer: prune.l1_unstructured(layer, "bias", 0.5),
    "weight_norm as a parametrization": parametrizations.weight_norm,
    "spectral_norm as a parametrization": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
}


def around(layer: nn.Module) -> nn.Sequential:
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    return nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), layer, *head)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("compute", COMPUTED.values(), ids=COMPUTED)
def test_layers_whose_weights_are_computed_are_copied_and_replaced(compute: Callable[[nn.Module], nn.Module]) -> None:
    torch.manual_seed(0)
    net, x = around(compute(nn.Conv2d(8, 8, 3, padding=1))), torch.randn(2, 4, 6, 6)
    net(x).sum().backward()
    twin = copied(net).eval()
    assert torch.equal(twin(x), net.eval()(x))
    twin.train()(x).sum().backward()
    for one, other in zip(twin.parameters(), net.parameters(), strict=True):
        assert one is not other
        assert one.grad is not None
    seen = survey(net, (4, 6, 6))
    assert [(site.name, site.obstacle) for site in seen.sites] == [("0", None), ("2", None), ("5", None)]
    assert not seen.others
    filled, places = put_in(net, seen.select(), sl.operators.conv1x1())
    assert all(place.replaced for place in places)
    before = filled.train()(x)
    before.sum().backward()
    assert all(one.grad is not None for one in filled.parameters())
    with torch.no_grad():
        for name, one in filled.named_parameters():
            if name.startswith("2."):
                one.zero_()
    assert not filled(x).allclose(before), "the operator's weights and bias are those that count"
    twin = copied(net)
    twin[2] = nn.Identity()
    assert not twin(x).allclose(net(x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("inside", [lambda part: part, lambda part: nn.Sequential(nn.ReLU(), part)])
def test_parts_of_torchscript_are_trained_in_a_copy(inside: Callable[[nn.Module], nn.Module]) -> None:
    part = torch.jit.script(nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)))
    next(part.parameters()).requires_grad_(False)
    net, x = around(inside(part)), torch.randn(2, 4, 6, 6)
    net(x).sum().backward()
    for twin in (copied(net), put_in(net, find_convolutions(net, (4, 6, 6)), sl.operators.separable())[0]):
        of_part = [one for name, one in twin.named_parameters() if name.startswith("2.")]
        assert [one.requires_grad for one in of_part] == [False, True, True, True]
        assert all(one.is_leaf for one in twin.parameters())
        torch.optim.SGD(twin.parameters(), 0.1).zero_grad()
        twin(x).square().sum().backward()
        assert [one.grad is not None for one in of_part] == [False, True, True, True]
    assert torch.equal(copied(net.eval())(x), net(x))


def test_a_parametrized_weight_that_two_layers_have_is_seen_as_shared() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[1].weight = net[0].weight
    parametrizations.spectral_norm(net[0])
    reasons = survey(net, torch.zeros(1, 4)).reasons(Selection(kinds=("linear",)))
    assert reasons == {"0": "it shares its weight with 1", "1": "it shares its weight with 0"}


def test_looking_at_a_parametrized_layer_changes_nothing() -> None:
    net = around(parametrizations.spectral_norm(nn.Conv2d(8, 8, 3, padding=1)))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    survey(net, (4, 6, 6))
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_attributes_that_were_computed_are_copied_wherever_they_are_kept() -> None:
    net = around(nn.Conv2d(8, 8, 3, padding=1))
    output = net(torch.randn(2, 4, 6, 6))
    net.kept, net.function = {"last": [output, (output, 3)]}, lambda x: x  # type: ignore[assignment]
    twin = copied(net)
    first, (second, _) = twin.kept["last"]  # type: ignore[index]
    assert first is second
    assert first is not output
    assert torch.equal(first, output)


@pytest.mark.parametrize("held", [threading.Lock(), (number for number in range(3))], ids=["lock", "generator"])
def test_what_cannot_be_copied_is_one_line_with_the_way_out(held: object) -> None:
    net = around(nn.Conv2d(8, 8, 3, padding=1))
    net.held = held  # type: ignore[assignment]
    with pytest.raises(SpecError, match=r"can be copied, found this Sequential: TypeError: .*; give a function that"):
        copied(net)
    sites = find_convolutions(net, (4, 6, 6))
    with pytest.raises(SpecError, match=r"put the operator into it in place \(in_place=True\)$") as refusal:
        put_in(net, sites, sl.operators.conv1x1())
    assert "\n" not in str(refusal.value)
    assert put_in(net, sites, sl.operators.conv1x1(), in_place=True)[0] is net


def lazy() -> nn.Sequential:
    convolutions = nn.LazyConv2d(8, 3, padding=1), nn.LazyBatchNorm2d(), nn.LazyConv2d(8, 3, padding=1)
    return nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(4))


def test_a_copy_that_ends_the_process_or_lacks_memory_says_so() -> None:
    class Held:
        def __deepcopy__(self, memo: object) -> None:
            raise self.error

        error: BaseException = SystemExit(3)

    net = around(nn.Conv2d(8, 8, 3, padding=1))
    net.held = held = Held()  # type: ignore[assignment]
    with pytest.raises(SpecError, match=r"can be copied, found this Sequential: SystemExit: 3 \(test_copies\.py, line"):
        copied(net)
    for error in (KeyboardInterrupt(), MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")):
        held.error = error
        with pytest.raises(type(error)):
            copied(net)


def test_lazy_layers_have_shapes_after_the_survey() -> None:
    net = lazy()
    assert [type(one) for one in copied(net)] == [type(one) for one in net], "copied before they have shapes"
    sites = survey(net, (4, 6, 6)).select()
    assert [(site.name, site.in_channels) for site in sites] == [("0", 4), ("2", 8)]
    filled, _ = put_in(net, sites, sl.operators.conv1x1())
    assert filled(torch.randn(2, 4, 6, 6)).shape == (2, 4)
    with pytest.raises(SpecError, match=r"found 0\.weight of a lazy layer in this Sequential: run one example through"):
        put_in(lazy(), sites, sl.operators.conv1x1())


def test_a_lazy_layer_that_is_not_called_is_named() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.LazyConv2d(8, 3), nn.LazyLinear(3)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    with pytest.raises(SpecError, match=r"found unused\.weight of a lazy layer in this Net"):
        survey(Net(), (4, 6, 6))


def test_operators_go_into_networks_without_values() -> None:
    net = around(nn.Conv2d(8, 8, 3, padding=1)).to("meta")
    filled, _ = put_in(net, survey(net, (4, 6, 6)).select(), sl.operators.conv1x1())
    assert filled(torch.zeros(2, 4, 6, 6, device="meta")).shape == (2, 4)


def test_a_compiled_network_is_the_network_itself() -> None:
    net = around(nn.Conv2d(8, 8, 3, padding=1))
    assert uncompiled(torch.compile(net, backend="eager")) is net
    assert uncompiled(net) is net


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["weight_norm", "pruned"])
def test_networks_with_computed_weights_are_exported(name: str) -> None:
    net = around(COMPUTED[name](nn.Conv2d(8, 8, 3, padding=1))).eval()
    x = torch.randn(1, 4, 6, 6)
    expected = net(x)
    torch.testing.assert_close(export_network(net, (1, 4, 6, 6)).module()(x), expected)
