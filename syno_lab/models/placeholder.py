"""Slots in a network that a synthesised operator fills.

As in Syno's README, ``Placeholder({"H": 32, "W": 32})`` states the values of a specification's symbolic variables for
one layer of the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from torch import nn

from syno_lab.errors import SpecError, SynoError
from syno_lab.inputs import MOST_DIGITS, positive, quoted


class KernelPack(Protocol):
    """An operator with one binding of its variables."""

    @property
    def binding(self) -> Mapping[str, int]:
        """The value of every variable, coefficients included."""

    def module(self) -> nn.Module:
        """Return a new module with new random weights."""


class Placeholder(nn.Module):
    """A slot for an operator; ``mapping`` has the values of variables in this slot, such as ``{"H": 32, "W": 32}``.

    The slot is empty until :meth:`fill`; calling an empty slot raises SynoError. ``kernel`` is the module in the slot,
    or None. Raises SpecError unless the mapping is from names to positive integers.
    """

    kernel: nn.Module | None

    def __init__(self, mapping: Mapping[str, int]) -> None:
        super().__init__()
        if not isinstance(mapping, Mapping):
            raise SpecError(f'a Placeholder needs a mapping such as {{"H": 32, "W": 32}}, found {quoted(mapping)}')
        self._mapping: dict[str, int] = {}
        for name, value in mapping.items():
            number = positive(value)
            if not isinstance(name, str) or number is None:
                raise SpecError(
                    "a Placeholder maps names of variables to whole numbers from 1 up, "
                    f"found {quoted(name)}: {quoted(value)}; at most {MOST_DIGITS} digits are read"
                )
            self._mapping[name] = number
        self.register_module("kernel", None)

    @property
    def mapping(self) -> dict[str, int]:
        """A copy of the mapping: the values of variables in this slot."""
        return dict(self._mapping)

    def fill(self, module: nn.Module) -> None:
        """Put ``module`` into the slot; it replaces an earlier module. Raises SpecError if ``module`` is no module."""
        if not isinstance(module, nn.Module):
            raise SpecError(f"a Placeholder is filled with a torch module, found a {type(module).__name__}")
        self.kernel = module

    def empty(self) -> None:
        """Remove the module from the slot."""
        self.kernel = None

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Apply the module in the slot: first the positional inputs, then the named inputs, whatever their names."""
        if self.kernel is None:
            raise SynoError(
                f"the {quoted(self)} is empty; fill it by sampler.replace(net, kernel_packs) or by its fill(module)"
            )
        return self.kernel(*inputs, *named.values())

    def __repr__(self) -> str:
        state = "" if self.kernel is None else f", kernel={self.kernel!r}"
        return f"Placeholder({_words(self._mapping)}{state})"


def _words(mapping: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in mapping.items())


def placeholders(net: nn.Module) -> list[tuple[str, Placeholder]]:
    """Return every Placeholder of ``net`` once, with its dotted module name, in the order of definition."""
    return [(name, module) for name, module in net.named_modules() if isinstance(module, Placeholder)]


def mappings_of(net: nn.Module) -> list[Mapping[str, int]]:
    """Return the mapping of every Placeholder of ``net``."""
    return [placeholder.mapping for _, placeholder in placeholders(net)]


def replace(net: nn.Module, kernel_packs: Iterable[KernelPack]) -> nn.Module:
    """Implement :meth:`.Sampler.replace`."""
    packs = list(kernel_packs)
    slots = placeholders(net)
    if not slots:
        raise SpecError(f"expected a network with Placeholders, found none in this {type(net).__name__}")
    chosen: list[KernelPack] = []
    missing: list[str] = []
    for name, slot in slots:
        pack = next((pack for pack in packs if slot.mapping.items() <= dict(pack.binding).items()), None)
        if pack is None:
            missing.append(f"{name or 'the network itself'} ({_words(slot.mapping)})")
        else:
            chosen.append(pack)
    if missing:
        offered = "; ".join(_words(pack.binding) for pack in packs) or "none at all"
        raise SpecError(
            f"expected a kernel for each Placeholder, found none for {', '.join(missing)}; there are kernels for: "
            f"{offered}; give the Sampler this network or its mappings"
        )
    kernels = [pack.module() for pack in chosen]
    for (_, slot), kernel in zip(slots, kernels, strict=True):
        slot.fill(kernel.train(slot.training))
    return net
