"""Kernel packs: an operator made concrete for one placeholder's sizes, in the words of ``syno-readme.md``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from syno_lab.errors import SpecError
from syno_lab.ir.operator import Operator

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class KernelPack:
    """An operator under one binding; :meth:`module` makes a fresh module each time."""

    operator: Operator
    items: tuple[tuple[str, int], ...]

    @property
    def binding(self) -> dict[str, int]:
        """The concrete sizes."""
        return dict(self.items)

    @property
    def source(self) -> str:
        """The PyTorch source."""
        from syno_lab.codegen.torch_module import to_torch_source

        return to_torch_source(self.operator, self.binding)

    def module(self) -> nn.Module:
        """A new module with weights of its own."""
        from syno_lab.codegen.torch_module import to_torch

        return to_torch(self.operator, self.binding)


def construct_kernel_packs(operator: Operator) -> list[KernelPack]:
    """The method :meth:`.Operator.construct_kernel_packs`."""
    if not operator.spec.bindings:
        raise SpecError("no kernel packs without concrete sizes: give the Sampler a net, mappings, or default values")
    return [KernelPack(operator, items) for items in operator.spec.bindings]
