"""PyTorch from an operator: readable source that depends on torch alone, and the module that it defines.

:func:`to_torch` executes the source that :func:`to_torch_source` returns; :mod:`.torch_source` writes it from the
lowering plan (Syno, section 8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from syno_lab.codegen.stage_kinds import Contraction
from syno_lab.codegen.torch_choice import Form, default_form, fastest
from syno_lab.codegen.torch_source import Writer
from syno_lab.errors import SpecError
from syno_lab.generated import module_of
from syno_lab.ir.operator import Operator
from syno_lab.ir.spec import Binding

if TYPE_CHECKING:
    from torch import nn

Order = Literal["best", "naive", "measured"]
Pool = tuple[int, int] | None


def to_torch(
    operator: Operator,
    binding: Binding | None = None,
    *,
    scale: float = 1.0,
    compile: bool = False,  # noqa: A002 - the name that torch gives it
    recompute: bool | None = None,
    order: Order = "best",
    pool: Pool = None,
) -> nn.Module:
    """Implement :meth:`.Operator.to_torch`; :mod:`.torch_choice` implements the order ``"measured"``."""
    bound = operator.complete_binding(binding)
    return _made(operator, bound, float(scale), recompute, _form(operator, bound, order, pool), is_compiled=compile)


def _form(operator: Operator, bound: dict[str, int], order: Order, pool: Pool = None) -> Form:
    if order == "measured":
        form = fastest(operator, bound, lambda form: _made(operator, bound, 1.0, None, form))
    else:
        form = default_form(operator, bound, order)
    return form._replace(pool=pool)


def _made(
    operator: Operator, bound: dict[str, int], scale: float, recompute: bool | None, form: Form, **options: bool
) -> nn.Module:
    source = Writer(operator, bound, form, scale, recompute).source()
    return module_of(_made, source, operator, bound, scale, recompute, form, **options)


def to_torch_source(
    operator: Operator,
    binding: Binding | None = None,
    *,
    scale: float = 1.0,
    recompute: bool | None = None,
    order: Order = "best",
    pool: Pool = None,
) -> str:
    """Implement :meth:`.Operator.to_torch_source`."""
    bound = operator.complete_binding(binding)
    return Writer(operator, bound, _form(operator, bound, order, pool), float(scale), recompute).source()


def recognised(
    operator: Operator, binding: Binding | None = None, order: Order = "best"
) -> tuple[tuple[Contraction, ...], ...]:
    """Return the recognised products of each stage, in the order of computation."""
    bound = operator.complete_binding(binding)
    written = Writer(operator, bound, _form(operator, bound, order)).stages()
    return tuple(stage.kinds for stage in written)


@dataclass(frozen=True)
class KernelPack:
    """An operator with the sizes of one placeholder; the class is named as in ``syno-readme.md``.

    :meth:`module` makes a new module on each call.
    """

    operator: Operator
    items: tuple[tuple[str, int], ...]

    @property
    def binding(self) -> dict[str, int]:
        """The concrete sizes."""
        return dict(self.items)

    @property
    def source(self) -> str:
        """The PyTorch source of the module."""
        return to_torch_source(self.operator, self.binding)

    def module(self) -> nn.Module:
        """Return a new module with new weights."""
        return to_torch(self.operator, self.binding)


def construct_kernel_packs(operator: Operator) -> list[KernelPack]:
    """Implement :meth:`.Operator.construct_kernel_packs`."""
    if not operator.spec.bindings:
        raise SpecError("no kernel packs without concrete sizes: give the Sampler a net, mappings, or default values")
    return [KernelPack(operator, items) for items in operator.spec.bindings]
