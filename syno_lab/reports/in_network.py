"""A trial in its network: the layers that its operator replaces, with their sizes, and the costs of the whole.

An operator has its variables' sizes from the layers. The view of a trial's operator needs those, so that the costs that
it shows are parts of the sum that the table of trials has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syno_lab.errors import FormatError, SpecError, SynoError
from syno_lab.inputs import count_of
from syno_lab.protocol import FitsPlaces, Operator
from syno_lab.reports.rows import Source, TrialRow
from syno_lab.systems import system_of

if TYPE_CHECKING:
    from syno_lab.reports.lab import Reading
    from syno_lab.trial import TrialRequest

#: The data that searches are usually made with, by what they must have in a path: these are known without the files.
_USUAL = {"cifar-100": (100, 3, 32), "cifar-10": (10, 3, 32)}


Places = tuple[tuple[str, Mapping[str, int]], ...]


@dataclass(frozen=True, slots=True)
class InNetwork:
    """The network of a trial, with its FLOPs for one example, 2 for each multiply-add, and its parameters.

    ``places`` are the layers that the operator replaces, those of equal sizes together: a name for people, and the
    sizes; ``replaced`` is their number.
    """

    backbone: str
    places: Places
    flops: int
    params: int
    replaced: int

    def __str__(self) -> str:
        """The costs of the whole, in a sentence."""
        layers = count_of(self.replaced, "layer")
        return f"{self.backbone} with it in {layers}: {self.flops:,} FLOPs, {self.params:,} parameters"


def in_network(row: TrialRow, source: Source) -> InNetwork:
    """The network in which a trial was trained, from the settings of its search. No file of data need be there.

    Nothing is run that the lab's folder holds. torch is imported. Raises SynoError where the network is not known here
    (it is the user's own, its data are gone, the source has no settings of trainings), or has other costs here than the
    trial: it was made by another version.
    """
    from syno_lab.trial import TrialRequest

    training: Any = source.settings.get("training")
    if not isinstance(training, Mapping) or not row.operator:
        raise SpecError(f"expected the settings of a training in {source.key}, found none")
    if training.get("own"):
        raise SpecError("expected a network of the lab, found one of the user's own; a lab's folder runs no code")
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
    """A trial's network, or in one line why it is not known here."""
    source = next(one for one in reading.sources if one.key == row.source)
    try:
        return in_network(row, source)
    except SynoError as error:
        return str(error)


def shown_layers(found: InNetwork | str, operator: Operator) -> tuple[Places | None, str]:
    """What the operator view is told of a trial's layers: the places, and a sentence about the operator."""
    if isinstance(found, str):
        return None, f"The layers in which it was trained are not known here: {found}"
    system = system_of(operator)
    has_own = isinstance(system, FitsPlaces) and bool(system.places(operator))  # its numbers, for the same layers
    return None if has_own else found.places, f"In {found}"


def shared_sizes(networks: Sequence[InNetwork | str]) -> dict[str, int] | None:
    """Sizes at which trials of one network can be compared: those of the first layer that all replace.

    None where a network is not known, they are of several networks, or they have no such layer in common.
    """
    known = [one for one in networks if isinstance(one, InNetwork)]
    if len(known) < len(networks) or len({one.backbone for one in known}) != 1:
        return None
    by_name = [dict(one.places) for one in known]
    for name in by_name[0]:
        if all(name in places for places in by_name):
            return {variable: size for places in by_name for variable, size in places[name].items()}
    return None


def _placed(request: TrialRequest, row: TrialRow, usual: tuple[int, int, int] | None = None) -> InNetwork:
    """The network; ``usual`` are classes, channels and size of images whose files are not there.

    Raises SpecError where its costs are not those of the trial.
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
    for place in places_of(request, facts):
        if place.binding is not None:
            layers.setdefault(tuple(place.binding.items()), []).append(place.name)
    more = {key: f" and {len(names) - 1} more like it" if len(names) > 1 else "" for key, names in layers.items()}
    places = tuple((names[0] + more[key], dict(key)) for key, names in layers.items())
    return InNetwork(request.backbone, places, costs.flops, costs.params, costs.replaced)
