"""The layers of a backbone that an operator replaces, as tasks for tuning: each size once.

The latency of a trial is the sum over the replaced layers alone, for one example: calls x milliseconds of the operator
in each layer. The rest of the network, a stride's pooling and a bias cost the same for every operator and are left out;
:mod:`syno_lab.tuning.network` measures whole networks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from syno_lab.errors import SpecError, TuningError
from syno_lab.models.sites import Site, Strides
from syno_lab.protocol import Operator
from syno_lab.systems import builder_of, operator_for, system_of

#: The word that the store keeps for what a latency covers.
OF = "replaced layers"


@dataclass(frozen=True)
class Layer:
    """An operator in all layers of one size: the first layer's ``name``, the ``binding``, the sum of ``calls``."""

    name: str
    operator: str
    binding: dict[str, int]
    calls: int

    @property
    def task(self) -> dict[str, Any]:
        """The task of a job of kind ``tune``."""
        builder = builder_of(self.operator)
        return {"label": self.name, "operator": self.operator, "binding": self.binding, "builder": builder}


def layers_of(operator: Operator, sites: Sequence[Site], strides: Strides) -> list[Layer]:
    """``operator`` in all ``sites``. Raises SpecError where it does not fit one."""
    text = operator.to_json()
    found = []
    for site, place in zip(sites, system_of(operator).placement(operator, sites, strides).places, strict=True):
        if place.binding is None:
            raise SpecError(f"{place.name}: {place.reason}")
        found.append(Layer(site.name, text, place.binding, site.calls))
    return _merged(found)


def baseline_layers(sites: Iterable[Site]) -> list[Layer]:
    """The layers at the ``sites`` as operators. Raises SpecError for a layer for which no system has an operator."""
    found = ((site, *operator_for(site)) for site in sites)
    return _merged(Layer(site.name, operator.to_json(), sizes, site.calls) for site, operator, sizes in found)


def summed(layers: Sequence[Layer], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Sum the latencies of ``layers`` from the result of a job of kind ``tune``, for the store.

    Raises:
        TuningError: a layer has no latency; the message has the reason.
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
