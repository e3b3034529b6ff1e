"""The fastest of several modules for one operator, measured where it runs: ``to_torch(order="measured")``.

FLOPs do not predict which plan trains fastest. A plan with more FLOPs may read memory less often, and the processor
decides whether a matrix is faster than a convolution. All candidates compute the same function: the tests compare
each with the loop nest. The choice is measured once for each shape and cached for the process.
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

BATCH = 64  # The examples in a timed batch, as many as in a training by default.
MOST_ELEMENTS = 1 << 20  # The limit of elements of the timed input; with larger examples the batch is smaller.
TURNS = 5  # Timed runs of each candidate, after one untimed run.
MOST_FLOPS = 2.0  # A plan with more than this many times the best plan's FLOPs is not tried.
NEAR = 0.95  # A form replaces the default form if it takes less than this share of the default's time.
KEPT = 1024  # The limit of cached choices.


_chosen: dict[Any, Form] = {}


def default_form(operator: Operator, binding: Binding, order: Literal["best", "naive"] = "best") -> Form:
    """Return the default form of a plan, without a measurement: flattened axes have the position with fewer copies.

    By this rule 9 of 15 measured operators have the form ``late``, which takes 0.4 to 0.9 of the other form's time.
    """
    first = Writer(operator, binding, Form(order))
    first.stages()
    if not first.matters:
        return Form(order)
    second = Writer(operator, binding, Form(order, late=True))
    second.stages()
    return Form(order, late=second.copying < first.copying)


def candidates(operator: Operator, binding: Binding) -> dict[Form, str]:
    """Return the forms whose sources differ, each with its source; the default form comes first."""
    most = MOST_FLOPS * plan(operator, binding).flops
    orders: tuple[Literal["best", "naive"], ...] = ("best", "naive")
    sources: dict[Form, str] = {}
    for order in orders:
        if plan(operator, binding, order).flops > most:
            continue
        default = default_form(operator, binding, order)
        for matrices, late in product((True, False), (default.late, not default.late)):
            form = Form(order, matrices, late)
            text = Writer(operator, binding, form).source()
            if text not in sources.values():
                sources[form] = text
    return sources


def fastest(operator: Operator, binding: dict[str, int], make: Callable[[Form], nn.Module]) -> Form:
    """Return the form whose module needs the least processor time forward and backward, in float32.

    ``make`` returns the module of a form. A choice is cached for the process by operator, sizes and torch's number of
    threads. The measurement does not change the random state.
    """
    import torch

    steps = operator.steps  # equal operators may have weights in another order
    key = operator, steps, tuple(sorted(binding.items())), torch.get_num_threads()
    if key not in _chosen:
        while len(_chosen) >= KEPT:
            del _chosen[next(iter(_chosen))]
        with torch.random.fork_rng(devices=[]):
            _chosen[key] = _measured(operator, binding, make)
    return _chosen[key]


def _measured(operator: Operator, binding: dict[str, int], make: Callable[[Form], nn.Module]) -> Form:
    import torch

    sources = candidates(operator, binding)
    if len(sources) == 1:
        return next(iter(sources))
    elements = prod(c.size.at(binding) for c in operator.inputs if c not in operator.state.fixed)
    batch = max(1, min(BATCH, MOST_ELEMENTS // elements))
    sizes = [batch if c in operator.state.fixed else c.size.at(binding) for c in operator.inputs]
    x = torch.randn(sizes, requires_grad=True)
    modules = {form: make(form) for form in sources}
    times: dict[Form, list[float]] = {form: [] for form in sources}
    with torch.enable_grad():
        for _ in range(TURNS + 1):
            for form, module in modules.items():
                times[form].append(_seconds(module, x))
    return least({form: seconds[1:] for form, seconds in times.items()})


def least(times: dict[Form, list[float]]) -> Form:
    """Return the form with the least median time; the default if this is not below ``NEAR`` times its time."""
    medians = {form: statistics.median(seconds) for form, seconds in times.items()}
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
