"""Replace layers of a network by operators, and put the layers back.

A :class:`Slot` replaces a convolution or linear layer and stores it. A slot handles everything that does not depend on
the operator: the pooling for a stride, the bias, and a linear layer's positions as one axis.

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
from syno_lab.protocol import Operator, with_pool
from syno_lab.systems import binding_for, is_operator
from syno_lab.versioned import JSON


@dataclass(frozen=True)
class Place:
    """The result for one layer: the operator's ``binding``, or None and the ``reason`` why the layer is not replaced.

    ``flops`` and ``params`` are of the operator, or of the layer that stays, for one example over all calls. A
    bias counts as parameters. Pooling and bias are no multiply-adds and do not count as FLOPs.
    """

    name: str
    binding: dict[str, int] | None
    reason: str | None
    flops: int
    params: int

    @property
    def replaced(self) -> bool:
        """Whether the operator replaces the layer."""
        return self.reason is None

    def to_dict(self) -> dict[str, JSON]:
        """Return a dictionary for JSON."""
        return {**asdict(self), "replaced": self.replaced}


class Slot(InPlaceOf):
    """A replacement of the layer ``original``, with a :class:`.Placeholder` that an operator fills.

    A convolution maps [N, C_in, H, W] to [N, C_out, ⌈H/s⌉, ⌈W/s⌉]. With ``strides="pool"`` the operator works on H x W.
    An average pooling of s x s follows; its windows at the far edge may be smaller. A module with a method ``pooled``
    for that pooling computes both (:class:`syno_lab.protocol.Pools`). With ``"shape"`` the operator itself changes the
    image's size. A linear layer maps [..., C_in] to [..., C_out]; the operator has all positions as
    one axis N. A bias is a copy of the original's bias, added at the end. For the attributes see :class:`.InPlaceOf`;
    :attr:`original` is the replaced layer.
    """

    refusal = SpecError
    placeholder: Placeholder

    def __init__(self, site: Site, original: nn.Module, strides: Strides = "pool") -> None:
        check_strides(strides)
        obstacle = site.obstacle_to(strides)
        if obstacle is not None:
            raise SpecError(f"expected a layer that an operator can replace, found {site.name}: {obstacle}")
        super().__init__(original, site.name or "the network itself")
        mapping = site.binding(strides)
        if site.kind == "conv2d":
            del mapping["N"]  # an operator takes any batch size; its spec has a default
        self.placeholder = Placeholder(mapping)
        self.is_linear = site.kind == "linear"
        stride = site.pool(strides)
        self.pool = None if stride is None else nn.AvgPool2d(stride, ceil_mode=True)

    def operate(self, x: Tensor) -> Tensor:
        """Apply the operator alone."""
        return cast("Tensor", self.placeholder(x))


def slots(net: nn.Module) -> list[tuple[str, Slot]]:
    """Return every Slot of ``net`` once, with its dotted module name, in the order of definition."""
    return [(name, module) for name, module in net.named_modules() if isinstance(module, Slot)]


def with_slots(
    net: nn.Module, sites: Iterable[Site], *, strides: Strides = "pool", in_place: bool = False
) -> nn.Module:
    """Return ``net`` with an empty slot at each site, in a copy unless ``in_place``.

    ``sl.Sampler(net=…)`` and its ``replace`` use the placeholders in the slots. Raises SpecError for a site that is not
    in the network, or that no operator can replace; the network is unchanged then.
    """
    chosen = list(sites)
    check_shapes(net)
    result = net if in_place else copied(net, "put the operator into it in place (in_place=True)")
    by_name = dict(result.named_modules())
    missing = [site.name for site in chosen if site.name not in by_name]
    if missing:
        raise SpecError(f"expected sites of this {type(net).__name__}, found {', '.join(map(repr, missing))}")
    places = {site.name: by_name[site.name] for site in chosen}
    originals = {name: layer.original if isinstance(layer, Slot) else layer for name, layer in places.items()}
    result = swap(result, {places[site.name]: Slot(site, originals[site.name], strides) for site in chosen})
    keep_padding(result)
    return result


def swap(net: nn.Module, new: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """Replace each key of ``new`` in ``net`` by its value, which gets the key's training mode; return the network."""
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
    """Return ``net`` with ``operator`` at each site, in a copy unless ``in_place``, and the result for each site.

    Every site gets new weights, with the device and dtype of the replaced weights. An earlier operator at a site is
    replaced. ``partial``: whether layers that the operator does not fit may stay. ``example``: an example for
    :func:`.survey`; a copy of the changed network runs it once in evaluation and once in training. Raises SpecError
    when the operator fits nowhere, when it does not fit everywhere and ``partial`` is not set, or when the network
    fails with ``example``. After an error the network is unchanged.
    """
    places = costs(operator, sites, strides=strides)
    stays = [place for place in places if not place.replaced]
    if stays and (not partial or len(stays) == len(places)):
        share = "fits none" if len(stays) == len(places) else f"does not fit {len(stays)}"
        raise SpecError(
            f"expected an operator for {len(places)} layers, found one that {share} of them: {stays[0].name}: "
            f"{stays[0].reason}"
        )
    pools = {site.name: with_pool(operator, site.pool(strides)) for site in sites}
    kernels = {
        place.name: operator.to_torch(place.binding, **pools[place.name])
        for place in places
        if place.binding is not None
    }
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
    """Raise SpecError when the changed copy fails on ``example``; the message reports whether ``net`` fails too."""

    def call(network: nn.Module) -> Any:
        positional, named = arguments(network, example, batch=2)  # batch normalisation cannot train on one image
        return network(*positional, **named)

    try:
        try_network(changed, call)
    except SpecError as error:
        try:
            try_network(copied(net), call)
        except SpecError:
            raise SpecError(f"{error}; the network fails without an operator too") from error
        raise


@dataclass(frozen=True)
class InSlots:
    """Puts one operator into every slot that it fits (:class:`syno_lab.protocol.Placement`)."""

    operator: Operator
    sites: Sequence[Site]
    strides: Strides = "pool"

    @property
    def places(self) -> list[Place]:
        """See :func:`costs`."""
        return costs(self.operator, self.sites, strides=self.strides)

    def apply(self, net: nn.Module) -> nn.Module:
        """See :func:`put_in`; layers that the operator does not fit are not replaced."""
        return put_in(net, self.sites, self.operator, strides=self.strides, partial=True, in_place=True)[0]


def take_out(net: nn.Module) -> nn.Module:
    """Put the original layers with their weights back into all slots of ``net``, in place; return the network.

    Raises SpecError when the network has no slot.
    """
    in_net = slots(net)
    if not in_net:
        raise SpecError(f"expected a network with operators in slots, found none in this {type(net).__name__}")
    for _, slot in in_net:
        slot.original._is_full_backward_hook = slot._is_full_backward_hook  # the hooks are shared
    net = swap(net, {slot: slot.original for _, slot in in_net})
    keep_padding(net)
    return net


def costs(operator: Operator, sites: Sequence[Site], *, strides: Strides = "pool") -> list[Place]:
    """Return the cost of ``operator`` at each site without building a network, or the reason why it does not fit.

    Raises SpecError when there are no sites.
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
    """Return the values of ``operator``'s variables at a site: the site's own values, then the spec's defaults.

    A variable that is the whole size of an input or output axis gets the size of the layer's axis. All further
    variables are matched by name (such as s, the stride). Raises SpecError when the sizes do not fit, a variable has no
    value, or the first axis (images, positions) is not fixed in the operator's spec.
    """
    needed = _shapes(site, strides)
    bound = operator.complete_binding(_named(operator, site, strides))
    offered = (tuple(operator.input_sizes(bound)), tuple(operator.output_sizes(bound)))
    if offered != needed:
        raise SpecError(
            f"expected an operator from {list(needed[0])} to {list(needed[1])}, "
            f"found one from {list(offered[0])} to {list(offered[1])}"
        )
    return bound


def _named(operator: Operator, site: Site, strides: Strides) -> dict[str, int]:
    """Return the values of ``operator``'s variables at a site, by the names that the operator gives them."""
    if not is_operator(operator):  # an operator without a system has the usual names
        return site.binding(strides)
    named = site.binding(strides)
    if site.kind == "conv2d":
        named |= dict(zip(("window_h", "window_w"), site.kernel_size, strict=True))
    return binding_for(operator, named, *_shapes(site, strides))
