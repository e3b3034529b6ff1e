"""The network of a trial: the layers that the operator replaces, with their sizes, and the costs of the network.

An operator's variables get their sizes from the layers. With these sizes, the operator's costs in its view are parts of
the network's costs in the table of trials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.inputs import count_of
from syno_lab.protocol import Operator
from syno_lab.reports.rows import Source, TrialRow

if TYPE_CHECKING:
    from syno_lab.reports.lab import Reading
    from syno_lab.trial import TrialRequest

#: Common data sets by a part of their path, with the number of classes, channels and image size.
_USUAL = {"cifar-100": (100, 3, 32), "cifar-10": (10, 3, 32)}


Places = tuple[tuple[str, Mapping[str, int]], ...]


@dataclass(frozen=True, slots=True)
class InNetwork:
    """The network of a trial, with its parameters and its FLOPs for one example (a multiply-add counts 2).

    ``places`` are the layers that the operator replaces, grouped by equal sizes: a name and the sizes of each group.
    ``replaced`` is the number of replaced layers.
    """

    backbone: str
    places: Places
    flops: int
    params: int
    replaced: int

    def __str__(self) -> str:
        """Describe the costs of the network in a sentence."""
        layers = count_of(self.replaced, "layer")
        return f"{self.backbone} with it in {layers}: {self.flops:,} FLOPs, {self.params:,} parameters"


def in_network(row: TrialRow, source: Source) -> InNetwork:
    """Return a trial's network, built from the settings of its search; no data file is read.

    No code from the lab's folder runs. This imports torch. Raises SynoError where the network is unknown here (a user's
    own network, missing data, no settings of trainings), or has other costs in this version.
    """
    from syno_lab.trial import TrialRequest

    training: Any = source.settings.get("training")
    if not isinstance(training, Mapping) or not row.operator:
        raise SpecError(f"expected the settings of a training in {source.key}, found none")
    if training.get("own"):
        raise SpecError("expected a network of the lab, found one of the user's own; code in a lab's folder is not run")
    request = TrialRequest.from_dict({**training, "operator": row.operator})
    try:
        return _placed(request, row)
    except FormatError:
        raise
    except SynoError as error:
        usual = next((facts for name, facts in _USUAL.items() if name in request.data), None)
        if usual is None:
            raise error
        return _placed(request, row, usual)


def find_network(row: TrialRow, reading: Reading) -> InNetwork | str:
    """Return a trial's network, or the reason why the network is unknown, in one line."""
    source = next(source for source in reading.sources if source.key == row.source)
    try:
        return in_network(row, source)
    except SynoError as error:
        return str(error)


def shown_layers(found: InNetwork | str, operator: Operator) -> tuple[Places | None, str]:
    """Return data for the operator view: the layers of a trial, and a sentence about the operator in the network."""
    if isinstance(found, str):
        return None, f"The layers in which it was trained are not known here: {found}"
    return found.places or None, f"In {found}"


def shared_sizes(networks: Sequence[InNetwork | str]) -> dict[str, int] | None:
    """Return the sizes of the first layer that all trials of one network replace, to compare operators at these sizes.

    None where a network is unknown, the trials are of several networks, or no layer is common to all.
    """
    known = [network for network in networks if isinstance(network, InNetwork)]
    if len(known) < len(networks) or len({network.backbone for network in known}) != 1:
        return None
    by_name = [dict(network.places) for network in known]
    for name in by_name[0]:
        if all(name in places for places in by_name):
            return {variable: size for places in by_name for variable, size in places[name].items()}
    return None


def _placed(request: TrialRequest, row: TrialRow, usual: tuple[int, int, int] | None = None) -> InNetwork:
    """Return the network; ``usual`` are the number of classes, channels and image size if the image files are missing.

    Raises SpecError where its costs differ from the trial's.
    """
    from syno_lab.trial.backbone import full_costs_of, places_of
    from syno_lab.trial.facts import Facts

    facts = None
    if usual is not None:
        outputs, channels, stored = usual
        facts = Facts("images", outputs, channels, request.resolution or stored, stored)
    costs = full_costs_of(request, facts)
    if (costs.flops, costs.params) != (row.flops, row.params):
        raise SpecError(
            f"expected a network of {row.flops:,} FLOPs and {row.params:,} parameters, as the lab says, "
            f"found {costs.flops:,} and {costs.params:,}"
        )
    layers: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for layer in places_of(request, facts):
        if layer.binding is not None:
            layers.setdefault(tuple(layer.binding.items()), []).append(layer.name)
    more = {key: f" and {len(names) - 1} more like it" if len(names) > 1 else "" for key, names in layers.items()}
    places = tuple((names[0] + more[key], dict(key)) for key, names in layers.items())
    return InNetwork(request.backbone, places, costs.flops, costs.params, costs.replaced)
