"""Operators put into the places of a network's layers, and taken out again.

A :class:`Slot` stands where a convolution or linear layer was and keeps it. It does what belongs to the place and not
to the operator: the pooling that a stride becomes, the bias, and a linear layer's many positions as one axis.

Shapes: N images or positions, C_in and C_out channels, H rows, W columns, s a stride.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from torch import Tensor, nn

from syno_lab.copies import check_shapes, copied
from syno_lab.errors import SpecError
from syno_lab.models.layers import Example, arguments
from syno_lab.models.placeholder import Placeholder
from syno_lab.models.sites import Site, Strides, check_strides
from syno_lab.models.stand_in import InPlaceOf, keep_padding
from syno_lab.models.tried import try_network
from syno_lab.protocol import Operator
from syno_lab.systems import binding_for, is_operator
from syno_lab.versioned import JSON


@dataclass(frozen=True)
class Place:
    """A site and what became of it: ``binding`` of the operator there, or None and the ``reason`` why it stays.

    ``flops`` and ``params`` are the operator's there for one example, all calls together (the layer's own where it
    stays), a bias among the parameters; pooling and bias are no multiply-adds and not counted.
    """

    name: str
    binding: dict[str, int] | None
    reason: str | None
    flops: int
    params: int

    @property
    def replaced(self) -> bool:
        """Whether the operator stands there."""
        return self.reason is None

    def to_dict(self) -> dict[str, JSON]:
        """For JSON."""
        return {**asdict(self), "replaced": self.replaced}


class Slot(InPlaceOf):
    """Stands in the place of ``original`` with a :class:`.Placeholder` that an operator fills.

    A convolution: [N, C_in, H, W] to [N, C_out, ⌈H/s⌉, ⌈W/s⌉]; with ``strides="pool"`` the operator works on H x W and
    an average pooling of s x s follows (windows at the far edge may be smaller), with ``"shape"`` the operator changes
    the size itself. A linear layer: [..., C_in] to [..., C_out]; the operator sees all positions as one axis N. A bias
    is a copy of the original's, added at the end. What the network may ask it, see :class:`.InPlaceOf`;
    :attr:`original` gives the layer back.
    """

    refusal = SpecError

    def __init__(self, site: Site, original: nn.Module, strides: Strides = "pool") -> None:
        check_strides(strides)
        obstacle = site.obstacle_to(strides)
        if obstacle is not None:
            raise SpecError(f"expected a layer that an operator can replace, found {site.name}: {obstacle}")
        super().__init__(original, site.name or "the network itself")
        mapping = site.binding(strides)
        if site.kind == "conv2d":
            del mapping["N"]  # any batch will do, and a spec has a default for it
        self.placeholder = Placeholder(mapping)
        self.is_linear = site.kind == "linear"
        pools = site.kind == "conv2d" and strides == "pool" and site.stride != (1, 1)
        self.pool = nn.AvgPool2d(site.stride, ceil_mode=True) if pools else None

    def operate(self, x: Tensor) -> Tensor:
        """The operator alone."""
        return cast("Tensor", self.placeholder(x))


def slots(net: nn.Module) -> list[tuple[str, Slot]]:
    """Return every Slot of ``net`` once, with its dotted name, in the order of definition."""
    return [(name, module) for name, module in net.named_modules() if isinstance(module, Slot)]


def with_slots(
    net: nn.Module, sites: Iterable[Site], *, strides: Strides = "pool", in_place: bool = False
) -> nn.Module:
    """Return ``net`` with an empty slot at each site, in a copy unless ``in_place``.

    The placeholders in them are those that ``sl.Sampler(net=…)`` and its ``replace`` look for. Raises SpecError for a
    site that the network has not, or that no operator can have; nothing is changed then.
    """
    chosen = list(sites)
    check_shapes(net)
    result = net if in_place else copied(net, "put the operator into it in place (in_place=True)")
    known = dict(result.named_modules())
    missing = [site.name for site in chosen if site.name not in known]
    if missing:
        raise SpecError(f"expected sites of this {type(net).__name__}, found {', '.join(map(repr, missing))}")
    places = {site.name: known[site.name] for site in chosen}
    originals = {name: old.original if isinstance(old, Slot) else old for name, old in places.items()}
    result = swap(result, {places[site.name]: Slot(site, originals[site.name], strides) for site in chosen})
    keep_padding(result)
    return result


def swap(net: nn.Module, new: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """Put each value of ``new`` wherever its key stands in ``net``, in its mode of training; return the network."""
    if net in new:
        return new[net].train(net.training)
    for parent in list(net.modules()):
        for name, child in list(parent._modules.items()):
            if child is not None and child in new:
                setattr(parent, name, new[child].train(child.training))
    return net


def put_in(
    net: nn.Module,
    sites: Sequence[Site],
    operator: Operator,
    *,
    strides: Strides = "pool",
    partial: bool = False,
    in_place: bool = False,
    example: Example | None = None,
) -> tuple[nn.Module, list[Place]]:
    """Return ``net`` with ``operator`` at each site, in a copy unless ``in_place``, and what became of each site.

    Every site gets weights of its own, on the device and of the type of those they replace; an operator that is in a
    site already makes room. ``partial``: where the operator does not fit, the layer stays. ``example``: as
    :func:`.survey` takes it; the changed network is tried with it once in evaluation and once in training, as a copy.
    Raises SpecError where it fits nowhere, or, unless ``partial``, not everywhere, or does not work with ``example``;
    nothing is changed then.
    """
    places = costs(operator, sites, strides=strides)
    stays = [place for place in places if not place.replaced]
    if stays and (not partial or len(stays) == len(places)):
        share = "fits none" if len(stays) == len(places) else f"does not fit {len(stays)}"
        raise SpecError(
            f"expected an operator for {len(places)} layers, found one that {share} of them: {stays[0].name}: "
            f"{stays[0].reason}"
        )
    kernels = {place.name: operator.to_torch(place.binding) for place in places if place.binding is not None}
    chosen = [site for site in sites if site.name in kernels]

    def filled(kernels: Mapping[str, nn.Module], in_place: bool) -> nn.Module:
        return _fill(with_slots(net, chosen, strides=strides, in_place=in_place), kernels)

    if example is not None:
        _try(net, filled(copy.deepcopy(kernels), False), example)
    return filled(kernels, in_place), places


def _fill(net: nn.Module, kernels: Mapping[str, nn.Module]) -> nn.Module:
    for name, slot in slots(net):
        if name in kernels:
            weight = slot.original.weight
            assert isinstance(weight, Tensor)
            slot.placeholder.fill(kernels[name].to(weight.device, weight.dtype).train(slot.training))
    return net


def _try(net: nn.Module, changed: nn.Module, example: Example) -> None:
    """Raise SpecError where ``changed``, a copy, does not work, and say so where ``net`` does not either."""

    def call(one: nn.Module) -> Any:
        positional, named = arguments(one, example, batch=2)  # one image alone has no variance to train with
        return one(*positional, **named)

    try:
        try_network(changed, call)
    except SpecError as error:
        try:
            try_network(copied(net), call)
        except SpecError:
            raise SpecError(f"{error}; so it is without an operator too") from error
        raise


@dataclass(frozen=True)
class InSlots:
    """An operator in every slot that it fits (:class:`syno_lab.protocol.Placement`)."""

    operator: Operator
    sites: Sequence[Site]
    strides: Strides = "pool"

    @property
    def places(self) -> list[Place]:
        """See :func:`costs`."""
        return costs(self.operator, self.sites, strides=self.strides)

    def apply(self, net: nn.Module) -> nn.Module:
        """See :func:`put_in`; where the operator does not fit, the layer stays."""
        return put_in(net, self.sites, self.operator, strides=self.strides, partial=True, in_place=True)[0]


def take_out(net: nn.Module) -> nn.Module:
    """Put the original layers with their own weights back into all slots of ``net``, in place; return the network.

    Raises SpecError where there is no slot.
    """
    found = slots(net)
    if not found:
        raise SpecError(f"expected a network with operators in slots, found none in this {type(net).__name__}")
    for _, slot in found:
        slot.original._is_full_backward_hook = slot._is_full_backward_hook  # the hooks themselves are shared
    net = swap(net, {slot: slot.original for _, slot in found})
    keep_padding(net)
    return net


def costs(operator: Operator, sites: Sequence[Site], *, strides: Strides = "pool") -> list[Place]:
    """What ``operator`` would cost at each site, without building anything; a site it does not fit says why.

    Raises SpecError where there are no sites.
    """
    if not sites:
        raise SpecError("expected at least one layer to put an operator into, found none")
    places = []
    for site in sites:
        obstacle = site.obstacle_to(strides)
        binding: dict[str, int] | None = None
        flops = params = 0
        if obstacle is None:
            try:
                binding = _fitted(operator, site, strides)
                flops = operator.flops(binding) * site.calls
                params = operator.params(binding) + (site.out_channels if site.bias else 0)
            except SpecError as error:
                binding, obstacle = None, str(error)
        if obstacle is not None:
            flops, params = site.flops, site.params
        places.append(Place(site.name, binding, obstacle, flops, params))
    return places


def _shapes(site: Site, strides: Strides) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if site.kind == "linear":
        return (site.positions, site.in_channels), (site.positions, site.out_channels)
    stride = site.form(strides).stride
    image = (1, site.in_channels, site.height, site.width)
    return image, (1, site.out_channels, site.height // stride, site.width // stride)


def _fitted(operator: Operator, site: Site, strides: Strides) -> dict[str, int]:
    """The values of ``operator``'s variables in a place: the place's own, then its spec's defaults.

    A variable that is an axis of the input or output by itself has the size of that axis here, whatever its name;
    others are matched by name (s, a stride). Raises SpecError where the sizes do not fit, a variable has no value, or
    the first axis (images, positions) is not fixed in the operator's spec.
    """
    wanted = _shapes(site, strides)
    bound = operator.complete_binding(_named(operator, site, strides))
    found = (tuple(operator.input_sizes(bound)), tuple(operator.output_sizes(bound)))
    if found != wanted:
        raise SpecError(
            f"expected an operator from {list(wanted[0])} to {list(wanted[1])}, "
            f"found one from {list(found[0])} to {list(found[1])}"
        )
    return bound


def _named(operator: Operator, site: Site, strides: Strides) -> dict[str, int]:
    """The values that a place has for ``operator``'s variables, whatever the operator calls them."""
    if not is_operator(operator):  # of nobody's system: its variables have the usual names
        return site.binding(strides)
    named = site.binding(strides)
    if site.kind == "conv2d":
        named |= dict(zip(("window_h", "window_w"), site.kernel_size, strict=True))
    return binding_for(operator, named, *_shapes(site, strides))
