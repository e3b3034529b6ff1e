"""Slots and filling them, with the network of Syno's README."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from syno_lab.errors import SpecError, SynoError
from syno_lab.models import KernelPack, Placeholder, placeholders, replace


class Model(nn.Module):
    """The example of the README, word for word."""

    def __init__(self):
        super().__init__()
        self.kernel_1 = Placeholder({"H": 32, "W": 32})
        self.kernel_2 = Placeholder({"H": 16, "W": 16})
        self.kernel_3 = Placeholder({"H": 16, "W": 16})

    def forward(self, x: torch.Tensor):
        x = self.kernel_1(x)
        x = x.view(1, 1, 32, 32)
        x = F.avg_pool2d(x, 2)
        x = x.view(16, 16)
        x = self.kernel_2(x)
        return self.kernel_3(x)


@dataclass(frozen=True)
class MatrixPack:
    """A real kernel: multiplication by a learned H x H matrix."""

    binding: Mapping[str, int]

    def module(self) -> nn.Module:
        return nn.Linear(self.binding["W"], self.binding["H"], bias=False)


PACKS: list[KernelPack] = [MatrixPack({"H": 32, "W": 32, "s_1": 2}), MatrixPack({"H": 16, "W": 16, "s_1": 2})]


def test_the_network_of_the_readme_is_filled_and_runs():
    net = Model()
    replace(net, PACKS)
    x = torch.randn(32, 32)
    middle = F.avg_pool2d(net.kernel_1.kernel(x).view(1, 1, 32, 32), 2).view(16, 16)
    assert torch.equal(net(x), net.kernel_3.kernel(net.kernel_2.kernel(middle)))
    assert net.kernel_1.kernel.weight.shape == (32, 32)
    # Two slots of one mapping have weights of their own, and an optimiser sees all of them.
    assert net.kernel_2.kernel is not net.kernel_3.kernel
    assert len(list(net.parameters())) == 3


def test_slots_are_listed_once_each_with_their_names():
    net = Model()
    net.again = net.kernel_1
    assert [(name, slot.mapping) for name, slot in placeholders(net)] == [
        ("kernel_1", {"H": 32, "W": 32}),
        ("kernel_2", {"H": 16, "W": 16}),
        ("kernel_3", {"H": 16, "W": 16}),
    ]
    assert placeholders(nn.Linear(1, 1)) == []


def test_a_slot_can_be_filled_and_emptied():
    slot = Placeholder({"H": 4})
    assert slot.kernel is None
    with pytest.raises(SynoError, match=r"the Placeholder\(H=4\) is empty; fill it") as refusal:
        slot(torch.zeros(4))
    assert "\n" not in str(refusal.value)
    kernel = nn.Linear(4, 4)
    slot.fill(kernel)
    x = torch.randn(4)
    assert torch.equal(slot(x), kernel(x))
    assert "kernel=Linear" in repr(slot)
    slot.fill(nn.Identity())
    assert torch.equal(slot(x), x)
    slot.empty()
    assert slot.kernel is None
    assert list(slot.parameters()) == []
    with pytest.raises(SpecError, match="filled with a torch module, found a int"):
        slot.fill(3)


def test_a_mapping_is_the_slots_own():
    given = {"H": 4}
    slot = Placeholder(given)
    given["H"] = 5
    slot.mapping["H"] = 6
    assert slot.mapping == {"H": 4}
    assert copy.deepcopy(slot).mapping == {"H": 4}


@pytest.mark.parametrize("mapping", [{"H": 0}, {"H": 1.5}, {"H": True}, {3: 3}, {"H": "8"}])
def test_a_wrong_mapping_is_refused(mapping):
    with pytest.raises(SpecError, match="a Placeholder maps names of variables to whole numbers from 1 up, found"):
        Placeholder(mapping)


def test_no_mapping_is_refused():
    with pytest.raises(SpecError, match=r"a Placeholder needs a mapping such as .* found \['H'\]"):
        Placeholder(["H"])


def test_a_missing_kernel_is_named_and_nothing_is_changed():
    net = Model()
    with pytest.raises(
        SpecError, match=r"found none for kernel_2 \(H=16, W=16\), kernel_3 \(H=16, W=16\); .* for: H=32, W=32, s_1=2;"
    ):
        replace(net, PACKS[:1])
    assert all(slot.kernel is None for _, slot in placeholders(net))
    with pytest.raises(SpecError, match=r"kernels for: none at all"):
        replace(net, [])


def test_a_kernel_that_fails_to_be_made_changes_nothing():
    class Broken(MatrixPack):
        def module(self) -> nn.Module:
            raise SynoError("no weights today")

    net = Model()
    with pytest.raises(SynoError, match="no weights today"):
        replace(net, [PACKS[0], Broken({"H": 16, "W": 16})])
    assert all(slot.kernel is None for _, slot in placeholders(net))


def test_a_network_without_slots_is_refused():
    with pytest.raises(SpecError, match="expected a network with Placeholders, found none in this Linear"):
        replace(nn.Linear(1, 1), PACKS)


def test_the_first_pack_that_fits_is_taken_and_the_mode_is_kept():
    net = nn.Sequential(Placeholder({"W": 3})).eval()
    replace(net, iter([MatrixPack({"H": 2, "W": 4}), MatrixPack({"H": 5, "W": 3}), MatrixPack({"H": 7, "W": 3})]))
    assert net[0].kernel.weight.shape == (5, 3)
    assert not net[0].kernel.training
