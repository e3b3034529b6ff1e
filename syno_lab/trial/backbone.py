"""Build the network of a trial: the request's backbone, with the operator in place of layers.

The module needs only facts about the data (:class:`.Facts`), so costs are counted without reading the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from syno_lab.blame import blamed
from syno_lab.copies import check_values, lacks_shapes
from syno_lab.errors import SpecError
from syno_lab.inputs import quoted
from syno_lab.models.layers import Survey, survey
from syno_lab.models.parts import AtResolution
from syno_lab.models.registry import Backbone, OwnNetwork, backbone
from syno_lab.models.sites import Selection, Site, Strides, check_strides
from syno_lab.models.slot import Place
from syno_lab.patience import patient
from syno_lab.protocol import OfNetworks, Placement
from syno_lab.systems import read_operator, system_of
from syno_lab.trial.facts import Facts, facts_of
from syno_lab.trial.own import whose
from syno_lab.trial.request import TrialRequest

#: Options of all backbones: ``strides`` ("pool" or "shape"), ``pointwise`` (replace 1x1 convolutions too), and lists:
#: ``match`` and ``leave`` have patterns of names of layers to replace and to keep, ``kinds`` has types of layers
#: (``conv2d``, ``linear``).
PLACE_OPTIONS = ("strides", "pointwise", "match", "leave", "kinds")

#: Options of text data: ``tokens`` ("bytes", "characters" or "bpe"), ``vocabulary`` (tokens of bpe), ``context``
#: (tokens of a window), ``steps`` (batches in an epoch).
TEXT_OPTIONS = ("tokens", "vocabulary", "context", "steps")


@dataclass
class Costs:
    """FLOPs (2 for each multiply-add) and parameters of a network for one example, and of its baseline."""

    flops: int
    params: int
    baseline_flops: int
    baseline_params: int
    replaced: int
    places: int


@dataclass
class Network(Costs):
    """A network ready for training, and its costs."""

    module: nn.Module


def survey_of(request: TrialRequest, facts: Facts | None = None) -> Survey:
    """Count all layers of the request's backbone without an operator; no weights are allocated.

    ``facts`` describe data whose files are missing; None: the facts of the request's data.
    """
    options = {name: value for name, value in request.options.items() if name not in PLACE_OPTIONS}
    return _survey(request.backbone, msgspec.json.encode(options, order="sorted"), facts or facts_of(request))


def sites_of(request: TrialRequest, facts: Facts | None = None) -> list[Site]:
    """Return the layers of the request's backbone that an operator replaces; raise SpecError if there are none."""
    return survey_of(request, facts).select(_selection(backbone(request.backbone), request.options))


def costs_of(request: TrialRequest) -> tuple[int, int]:
    """Return FLOPs and parameters of the request's network for one example, without training or allocating weights.

    Raises SynoError for a request that cannot be trained: an unknown backbone, missing data, or an operator that fits
    no layer.
    """
    counted = full_costs_of(request)
    return counted.flops, counted.params


def places_of(request: TrialRequest, facts: Facts | None = None) -> list[Place]:
    """Return for each layer the operator's sizes, or why the operator does not fit; empty without an operator."""
    return [] if request.operator is None else list(_placement(request, request.operator, facts).places)


def full_costs_of(request: TrialRequest, facts: Facts | None = None) -> Costs:
    """Return the costs of the network and of its baseline, and the number of layers that the operator replaces."""
    layers, sites = survey_of(request, facts), sites_of(request, facts)
    if request.operator is None:
        return Costs(layers.flops, layers.params, layers.flops, layers.params, 0, len(sites))
    operator = read_operator(request.operator)
    system = system_of(operator)
    places = system.placement(operator, sites, _strides(request.options)).places
    replaced = sum(placed.replaced for placed in places)
    if isinstance(system, OfNetworks):
        return Costs(*system.network_costs(operator), layers.flops, layers.params, replaced, len(places))
    if not replaced:
        raise SpecError(
            f"expected an operator that fits some of {len(places)} layers of {request.backbone}, found one that fits "
            f"none: {places[0].name}: {places[0].reason}"
        )
    flops = layers.flops + sum(placed.flops for placed in places) - sum(site.flops for site in sites)
    params = layers.params + sum(placed.params for placed in places) - sum(site.params for site in sites)
    return Costs(flops, params, layers.flops, layers.params, replaced, len(places))


def build(request: TrialRequest) -> Network:
    """Build the request's network with weights drawn from its seed; torch's global generator keeps its state.

    Equal seeds give equal weights to the layers that baseline and operator share. Raises as :func:`costs_of`.
    """
    counted, facts = full_costs_of(request), facts_of(request)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(request.seed)
        module = _build(request.backbone, request.options, facts, None)
        if request.operator is not None:
            module = _placement(request, request.operator).apply(module)
    if facts.stored_size is not None and facts.stored_size != facts.size:
        module = AtResolution(module, facts.size)
    return Network(**vars(counted), module=module)


def example_of(request: TrialRequest) -> tuple[nn.Module, tuple[int, int, int] | Tensor]:
    """Return the request's backbone without weights or operator, and its input: a shape [C, H, W], or tokens [1, T]."""
    facts = facts_of(request)
    with torch.random.fork_rng(devices=[]):  # a user's network may draw random weights
        return _build(request.backbone, request.options, facts, "meta"), _example(facts)


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Raise SpecError for an option that the backbone ``name`` does not have."""
    chosen = backbone(name)
    allowed = [*chosen.options, *PLACE_OPTIONS, *(TEXT_OPTIONS if chosen.domain == "text" else ())]
    unknown = sorted(options.keys() - set(allowed))
    if unknown:
        raise SpecError(
            f"options of {chosen.name}: expected some of {', '.join(allowed)}, found {', '.join(map(repr, unknown))}"
        )
    dropout = options.get("dropout", 0.0)
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise SpecError(f"dropout: expected a number from 0 to below 1, found {quoted(dropout)}")


@lru_cache(maxsize=32)
def _survey(name: str, options: bytes, facts: Facts) -> Survey:
    with torch.random.fork_rng(devices=[]):  # a user's network may draw random weights
        net = _build(name, msgspec.json.decode(options), facts, "meta")
        try:
            with patient("the network", SpecError), blamed("the network", SpecError):
                return survey(net, _example(facts))
        except SpecError as error:
            raise SpecError(f"{whose(name)}{error}") from error


def one_example(facts: Facts) -> Tensor:
    """Return a batch of one example as input of a network for the data: an image of zeros, or tokens."""
    example = _example(facts)
    return example if isinstance(example, Tensor) else torch.zeros(1, *example)


def _example(facts: Facts) -> tuple[int, int, int] | Tensor:
    if facts.domain == "text":
        return torch.zeros(1, facts.size, dtype=torch.int64)
    if facts.shape is not None:
        # A training casts floating-point data to float32, the type of the network.
        return torch.zeros(1, *facts.shape, dtype=torch.float32 if facts.dtype.is_floating_point else facts.dtype)
    return (facts.channels, facts.size, facts.size)


def _build(name: str, options: Mapping[str, Any], facts: Facts, device: str | None) -> nn.Module:
    check_options(name, options)
    chosen = backbone(name)
    if chosen.domain != facts.domain:
        raise SpecError(
            f"expected {chosen.domain} for the backbone {chosen.name}, found {facts.domain} as data; "
            "name other data or another backbone"
        )
    accepted = {key: value for key, value in options.items() if key in chosen.options}
    size = facts.size if chosen.domain == "text" else None
    net = chosen.build(outputs=facts.outputs, in_channels=facts.channels, size=size, device=device, options=accepted)
    if isinstance(chosen, OwnNetwork):
        with blamed(f"{whose(name)}the network", SpecError):
            check_values(net)
            if lacks_shapes(net) is not None:
                survey(net, _example(facts))
    return net


def _placement(request: TrialRequest, text: str, facts: Facts | None = None) -> Placement:
    operator = read_operator(text)
    return system_of(operator).placement(operator, sites_of(request, facts), _strides(request.options))


def _strides(options: Mapping[str, Any]) -> Strides:
    strides: Strides = options.get("strides", "pool")
    check_strides(strides)
    return strides


def _selection(chosen: Backbone, options: Mapping[str, Any]) -> Selection:
    changes: dict[str, Any] = {"pointwise": True} if options.get("pointwise") else {}
    for option, attribute in (("match", "names"), ("kinds", "kinds"), ("leave", "leave")):
        patterns = options.get(option, [])
        if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
            raise SpecError(f"{option}: expected a list of patterns of names, found {quoted(patterns)}")
        if option in options:
            changes[attribute] = tuple(patterns)
    return replace(chosen.selection, strides=_strides(options), **changes)
