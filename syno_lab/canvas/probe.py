"""The kernel probe of Canvas: how the middle of an output depends on its input (:mod:`syno_lab.common.probe`).

An operator need not be linear, so its kernel is that of its derivatives, at a few random inputs. One backward pass
gives the derivatives of all output channels at all of these inputs: the batch has a copy of an input for each channel.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from syno_lab.canvas.fitted import place_in
from syno_lab.common.probe import SEED, Probe
from syno_lab.errors import SpecError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from syno_lab.canvas.fitted import Fitted
    from syno_lab.canvas.places import Place

#: Random inputs at which the derivatives are taken.
INPUTS = 4
#: Rows and columns of the output, where the operator has whole sizes there.
SIDE = 8
#: The most elements of the input's copies, and the most multiply-adds of the forward pass: tenths of a second.
MOST_ELEMENTS, MOST_FLOPS = 1 << 23, 1 << 33


def probe(operator: Fitted, place: Place) -> Probe | None:
    """The probe of an operator at a place, whose image is made smaller, with weights that are the same each time.

    Batch normalisations are those of fresh modules in evaluation. None where the operator is too large to be probed,
    or its derivatives are no finite numbers.

    Raises:
        SpecError: where the operator does not fit the place.
    """
    import torch

    bound = _smaller(operator, place)
    here = place_in(bound)
    copies = INPUTS * here.c_out
    sizes = operator.input_sizes(bound)[1:]
    if copies * math.prod(sizes) > MOST_ELEMENTS or copies * operator.flops(bound) > MOST_FLOPS:
        return None
    rng = torch.Generator().manual_seed(SEED)  # our own: trainings in other threads draw from torch's
    module = _module(operator, bound, rng)
    images = torch.randn((INPUTS, 1, *sizes), generator=rng).expand(INPUTS, here.c_out, *sizes)
    images = images.reshape(copies, *sizes).requires_grad_()
    with torch.enable_grad():
        out = module(images)[:, :, here.h // 2, here.w // 2].reshape(INPUTS, here.c_out, here.c_out)
        total = out.diagonal(dim1=1, dim2=2).sum()
        # What does not depend on the input at all has no graph.
        found = torch.autograd.grad(total, images)[0] if total.requires_grad else torch.zeros_like(images)
    if not bool(torch.isfinite(found).all()):
        return None
    return Probe.of(*found.reshape(INPUTS, here.c_out, *sizes).numpy().astype("float64"))


def _smaller(operator: Fitted, place: Place) -> dict[str, int]:
    """The binding at the place with a smaller image and the place's own numbers for the dynamic variables."""
    whole = operator.binding(place)
    inner = {name: whole[name] for name in operator.inner}
    outer = {"C_in": place.c_in, "C_out": place.c_out, "KH": place.kh, "KW": place.kw, "N": 1, "s": 1}
    small = replace(place, h=min(place.h, SIDE), w=min(place.w, SIDE))
    for size in (small, place):
        try:
            return operator.complete_binding({**outer, **inner, "H": size.h, "W": size.w})
        except SpecError as error:
            refusal = error
    raise refusal


def _module(operator: Fitted, bound: dict[str, int], rng: torch.Generator) -> nn.Module:
    """The module with FCs that keep the scale of what they read; it is made without a draw from torch's generator."""
    import torch

    with torch.device("meta"):
        module = operator.to_torch(bound)
    module = module.to_empty(device="cpu").eval().requires_grad_(False)
    scales = [len(sizes) for sizes in operator.weight_sizes(bound)]
    for number, weight in enumerate(module.parameters()):
        if scales[number] == 3:
            torch.nn.init.normal_(weight, std=1 / math.sqrt(weight.shape[2]), generator=rng)
        else:  # behind an FC a scale, and behind it an offset
            torch.nn.init.constant_(weight, float(scales[number - 1] == 3))
    for name, buffer in module.named_buffers():
        buffer.fill_(float(name.startswith("var")))
    return module
