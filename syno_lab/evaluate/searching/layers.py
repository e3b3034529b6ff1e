"""The layers of a backbone in the places that an operator takes, as tasks for tuning: each size once.

A latency of a search is the sum over the replaced layers alone, one example at a time: calls x milliseconds of the
operator in each place. What stays of the network, a stride's pooling and a bias cost the same whatever the operator is,
and are left out; whole networks are :mod:`syno_lab.evaluate.tuning.network`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from syno_lab import operators
from syno_lab.errors import SpecError, TuningError
from syno_lab.ir.operator import Operator
from syno_lab.models.sites import Site, Strides
from syno_lab.models.slot import costs

#: What a latency here is of.
OF = "replaced layers"


@dataclass(frozen=True)
class Layer:
    """An operator in places of one size: ``name`` of the first of them, ``binding``, and all ``calls`` together."""

    name: str
    operator: str
    binding: dict[str, int]
    calls: int

    @property
    def task(self) -> dict[str, Any]:
        """For a job of kind ``tune``."""
        return {"label": self.name, "operator": self.operator, "binding": self.binding}


def layers_of(operator: Operator, sites: Sequence[Site], strides: Strides) -> list[Layer]:
    """``operator`` in all ``sites``. Raises SpecError where it does not fit one."""
    text = operator.to_json()
    found = []
    for site, place in zip(sites, costs(operator, sites, strides=strides), strict=True):
        if place.binding is None:
            raise SpecError(f"{place.name}: {place.reason}")
        found.append(Layer(site.name, text, place.binding, site.calls))
    return _merged(found)


def baseline_layers(sites: Iterable[Site]) -> list[Layer]:
    """What stands in the ``sites`` already, as operators. Raises SpecError for a layer that we have no operator of."""
    return _merged(_as_operator(site) for site in sites)


def summed(layers: Sequence[Layer], answer: Mapping[str, Any]) -> dict[str, Any]:
    """The latency of ``layers`` from the result of a job of kind ``tune``, for the store.

    Raises:
        TuningError: one of them has none, with its reason.
    """
    for name, reason in answer["failed"].items():
        raise TuningError(f"{name}: {reason}")
    results = {result["label"]: result for result in answer["results"]}
    parts = [
        {"name": one.name, "calls": one.calls, "binding": one.binding, "latency_ms": results[one.name]["latency_ms"]}
        for one in layers
    ]
    first = results[layers[0].name]
    return {
        "latency_ms": sum(part["calls"] * part["latency_ms"] for part in parts),
        "of": OF,
        "layers": parts,
        "trials": sum(result["trials"] for result in results.values()),
        **{name: first[name] for name in ("preset", "conditions", "tvm_version")},
    }


def _merged(layers: Iterable[Layer]) -> list[Layer]:
    merged: dict[tuple[str, frozenset[tuple[str, int]]], Layer] = {}
    for one in layers:
        size = one.operator, frozenset(one.binding.items())
        known = merged.get(size)
        merged[size] = one if known is None else replace(known, calls=known.calls + one.calls)
    return list(merged.values())


def _as_operator(site: Site) -> Layer:
    if site.kind == "linear":
        sizes = {"M": site.positions, "K": site.in_channels, "N": site.out_channels}
        return Layer(site.name, operators.matmul().to_json(), sizes, site.calls)
    rows, columns = site.stride
    kernel = site.kernel_size[0]
    is_plain = site.groups == 1 and site.dilation == (1, 1) and site.kernel_size == (kernel, kernel)
    if not is_plain or rows != columns or site.height % rows or site.width % rows:
        raise SpecError(
            f"{site.name}: expected a square convolution without groups and dilation whose stride divides its input"
        )
    sizes = {"N": 1, "C_in": site.in_channels, "C_out": site.out_channels, "k_1": kernel}
    sizes |= {"H": site.height // rows, "W": site.width // rows}
    if rows == 1:
        return Layer(site.name, operators.conv2d().to_json(), sizes, site.calls)
    return Layer(site.name, operators.strided().to_json(), sizes | {"s": rows}, site.calls)
