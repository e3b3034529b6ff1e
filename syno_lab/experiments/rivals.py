"""The rivals of a finalist: three known ways to save as many FLOPs, each trained once, beside the finals."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

import msgspec

from syno_lab.errors import SpecError
from syno_lab.models.registry import backbone
from syno_lab.protocol import Operator
from syno_lab.systems import known_operators
from syno_lab.trial import TrialRequest
from syno_lab.trial.backbone import full_costs_of, sites_of

NAMES = ("separable", "grouped", "narrowed")


def rival_of(name: str, request: TrialRequest) -> tuple[str, TrialRequest | str]:
    """Return the title and the training of a rival of the request's operator, or the reason why there is none.

    ``separable``: a separable convolution in its place. ``grouped``: the layers by groups, with the count, among those
    that divide the channels of all layers, whose network has the nearest FLOPs. ``narrowed``: the network itself with
    the width of the nearest FLOPs.
    """
    rivals: dict[str, TrialRequest] = {}
    reason = f"expected another number of {'groups' if name == 'grouped' else 'channels'}, found none"
    if name == "separable":
        rivals[name] = msgspec.structs.replace(request, operator=known_operators()[name]().to_json())
    elif name == "grouped":
        sites = sites_of(request)
        common = gcd(*(size for site in sites for size in (site.in_channels, site.out_channels)))
        make: Callable[..., Operator] = known_operators()["grouped" if sites[0].kind == "conv2d" else "grouped_linear"]
        for count in (count for count in range(2, common + 1) if common % count == 0):
            rivals[f"{name}, {count} groups"] = msgspec.structs.replace(request, operator=make(count).to_json())
    else:
        usual = backbone(request.backbone).options.get("width", 1)
        for width in range(1, int(request.options.get("width", usual))):
            options = request.options | {"width": width}
            rivals[f"{name}, width {width}"] = msgspec.structs.replace(request, operator=None, options=options)
    target, distances = full_costs_of(request).flops, dict[str, int]()
    for title, rival in rivals.items():
        try:
            distances[title] = abs(full_costs_of(rival).flops - target)
        except SpecError as error:
            reason = str(error)
    title = min(distances, key=distances.__getitem__, default=name)
    return title, rivals[title] if distances else reason
