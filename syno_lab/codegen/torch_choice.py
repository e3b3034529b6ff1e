"""The fastest of several equal modules, measured where it will run: ``to_torch(order="measured")``.

FLOPs do not say which plan trains fastest: a plan with more of them may read memory less often, and whether a matrix is
faster than a convolution depends on the processor. All candidates compute the same function (the loop nest is the
oracle of each, in the tests), so that only time decides; it is measured once for a shape and kept for the process.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from syno_lab.codegen.torch_source import Writer
from syno_lab.codegen.torch_tensor import Form
from syno_lab.ir.operator import Operator
from syno_lab.ir.plan import plan
from syno_lab.ir.spec import Binding

if TYPE_CHECKING:
    from torch import Tensor, nn

BATCH = 64  # examples with which candidates are timed: what trainings have by default
MOST_ELEMENTS = 1 << 20  # of the input; of larger examples there are fewer
TURNS = 5  # of all candidates, after one to warm up
MOST_FLOPS = 2.0  # a plan with more times the FLOPs of the best one is not tried
NEAR = 0.95  # another form than the default must take less than this share of its time
KEPT = 1024  # shapes whose choice is remembered


_chosen: dict[Any, Form] = {}


def default_form(operator: Operator, binding: Binding, order: Literal["best", "naive"] = "best") -> Form:
    """The form of a plan that is not measured: flattened axes stand where that copies least, as predicted.

    Of 15 operators of a search whose forms differ, the 9 for which the copies say so took 0.4 to 0.9 of the time.
    """
    first = Writer(operator, binding, Form(order))
    first.stages()
    if not first.matters:
        return Form(order)
    second = Writer(operator, binding, Form(order, late=True))
    second.stages()
    return Form(order, late=second.copying < first.copying)


def candidates(operator: Operator, binding: Binding) -> dict[Form, str]:
    """The forms that differ in their source, with it; the default comes first."""
    most = MOST_FLOPS * plan(operator, binding).flops
    orders: tuple[Literal["best", "naive"], ...] = ("best", "naive")
    found: dict[Form, str] = {}
    for order in orders:
        if plan(operator, binding, order).flops > most:
            continue
        default = default_form(operator, binding, order)
        for matrices, late in product((True, False), (default.late, not default.late)):
            form = Form(order, matrices, late)
            text = Writer(operator, binding, form).source()
            if text not in found.values():
                found[form] = text
    return found


def fastest(operator: Operator, binding: dict[str, int], make: Callable[[Form], nn.Module]) -> Form:
    """The form whose module takes the least processor time forward and backward, in float32.

    ``make`` gives the module of a form. A choice holds for the process, by operator, sizes and torch's number of
    threads. The drawing of random numbers goes on as if nothing had been measured.
    """
    import torch

    steps = operator.steps  # equal operators may number their weights differently
    key = operator, steps, tuple(sorted(binding.items())), torch.get_num_threads()
    if key not in _chosen:
        while len(_chosen) >= KEPT:
            del _chosen[next(iter(_chosen))]
        with torch.random.fork_rng(devices=[]):
            _chosen[key] = _measured(operator, binding, make)
    return _chosen[key]


def _measured(operator: Operator, binding: dict[str, int], make: Callable[[Form], nn.Module]) -> Form:
    import torch

    found = candidates(operator, binding)
    if len(found) == 1:
        return next(iter(found))
    one = prod(c.size.at(binding) for c in operator.inputs if c not in operator.state.fixed)
    batch = max(1, min(BATCH, MOST_ELEMENTS // one))
    sizes = [batch if c in operator.state.fixed else c.size.at(binding) for c in operator.inputs]
    x = torch.randn(sizes, requires_grad=True)
    modules = {form: make(form) for form in found}
    times: dict[Form, list[float]] = {form: [] for form in found}
    with torch.enable_grad():
        for _ in range(TURNS + 1):
            for form, module in modules.items():
                times[form].append(_seconds(module, x))
    return least({form: each[1:] for form, each in times.items()})


def least(times: dict[Form, list[float]]) -> Form:
    """The form with the least median; the first one, the default, where none takes less than ``NEAR`` of its time."""
    medians = {form: statistics.median(each) for form, each in times.items()}
    default, best = next(iter(times)), min(medians, key=medians.__getitem__)
    return best if medians[best] < NEAR * medians[default] else default


def _seconds(module: nn.Module, x: Tensor) -> float:
    import torch

    x.grad = None
    module.zero_grad(set_to_none=True)
    start = time.process_time()
    y = module(x)
    y.backward(torch.ones_like(y))
    return time.process_time() - start
