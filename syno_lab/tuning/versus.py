"""Compare two equally tuned forms of a backbone: with an operator, and with convolutions, in the replaced layers.

The comparison is for whole networks (Syno, Figure 5) or for each layer (Figure 9), on this machine or a board. In the
baseline, replaced 3x3 convolutions of stride 1 are conv2d's pGraph with the backbone's own weights, so that the two
networks have the same rules, budgets and layouts. All other layers are the backbone's own in both networks.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec
import torch
from torch import Tensor

from syno_lab.errors import SpecError
from syno_lab.models.layers import survey
from syno_lab.models.sites import Selection, Site
from syno_lab.models.slot import Place, put_in, slots
from syno_lab.protocol import OfNetworks
from syno_lab.scratch import scratch
from syno_lab.systems import builder_of, system_of
from syno_lab.tuning.network import FunctionsTuning, NetworkMeasurement, Part, compiled, run_networks, tune_functions
from syno_lab.tuning.options import Budget, TuningOptions
from syno_lab.tuning.tune import tune_queue
from syno_lab.tuning.values import TuningProgress, TuningResult, TuningTask
from syno_lab.versioned import JSON

if TYPE_CHECKING:
    from torch import nn

    from syno_lab.protocol import Operator

#: A callback; its arguments are the stage (``convolutions``, ``operator``, ``layers``, ``measure``), the progress from
#: 0 to 1, and a text.
Progress = Callable[[str, float, str], None]


@dataclass(frozen=True)
class WholeNetwork:
    """One of the two networks: all its measurements, the tuned functions, and the reason of each failure.

    ``trials`` are the candidates of all functions. ``known`` is the number of candidates from records of the other
    network or of an earlier comparison. ``parts``: see :attr:`.FunctionsTuning.parts`.
    """

    measurements: tuple[NetworkMeasurement, ...]
    tuned: int
    failed: dict[str, str]
    trials: int = 0
    known: int = 0
    parts: tuple[Part, ...] = ()

    @property
    def latency_ms(self) -> float:
        """The median of the rounds' medians."""
        return statistics.median(round_of.latency_ms for round_of in self.measurements)

    @property
    def best_ms(self) -> float:
        """The least of all measurements."""
        return min(round_of.best_ms for round_of in self.measurements)


@dataclass(frozen=True)
class NetworkComparison:
    """``convolutions`` and ``operator`` are the two networks; ``places`` are the layers that the operator replaces.

    ``where`` is the address of the device that ran the two networks, or ``this machine``.
    """

    convolutions: WholeNetwork
    operator: WholeNetwork
    places: tuple[Place, ...]
    where: str = ""

    @property
    def speedup(self) -> float:
        """The speedup of the network with the operator, by the medians."""
        return self.convolutions.latency_ms / self.operator.latency_ms

    def to_dict(self) -> dict[str, JSON]:
        """Return the comparison as JSON data."""
        return {
            **{
                name: msgspec.to_builtins(network) | {"latency_ms": network.latency_ms, "best_ms": network.best_ms}
                for name, network in (("convolutions", self.convolutions), ("operator", self.operator))
            },
            "places": [place.to_dict() for place in self.places],
            "speedup": self.speedup,
            "where": self.where,
        }


@dataclass(frozen=True)
class LayerComparison:
    """The common shape of the layers ``sites``, with its two tunings or the reason of a missing tuning."""

    shape: str
    sites: tuple[str, ...]
    convolution: TuningResult | str
    operator: TuningResult | str

    @property
    def speedup(self) -> float | None:
        """The speedup of the operator, by the medians; None if a tuning failed."""
        if isinstance(self.convolution, str) or isinstance(self.operator, str):
            return None
        return self.convolution.latency_ms / self.operator.latency_ms

    def to_dict(self) -> dict[str, JSON]:
        """Return the comparison as JSON data."""

        def plain(result: TuningResult | str) -> JSON:
            return {"error": result} if isinstance(result, str) else result.to_dict()

        both = {"convolution": plain(self.convolution), "operator": plain(self.operator)}
        return {"shape": self.shape, "sites": list(self.sites), "speedup": self.speedup, **both}


def geometric_mean(layers: Sequence[LayerComparison]) -> float | None:
    """Return the geometric mean of the speedups, weighted by each shape's number of layers; None without speedups."""
    speedups = [(layer.speedup, len(layer.sites)) for layer in layers if layer.speedup is not None]
    if not speedups:
        return None
    return math.exp(sum(count * math.log(ratio) for ratio, count in speedups) / sum(count for _, count in speedups))


def both_networks(
    operator: Operator, net: nn.Module, example: tuple[int, int, int] | Tensor, selection: Selection | None = None
) -> tuple[nn.Module, nn.Module, tuple[Place, ...]]:
    """Return ``net`` with conv2d's pGraph, and ``net`` with ``operator``, in the selected layers that ``operator``
    fits.

    ``example`` is ``(C, H, W)`` of an image, or tokens [1, T]. The first network computes the same as ``net``, and is
    ``net`` itself if none of these layers is a convolution. If ``operator`` is a whole network, the results are ``net``
    and that network. Raises SpecError if ``operator`` fits no layer, or belongs to another network.
    """
    from syno_lab.systems import opened

    if isinstance(system_of(operator), OfNetworks):
        placement = system_of(operator).placement(operator, [], "pool")
        return net, placement.apply(net), tuple(placement.places)
    sites = survey(net, example).select(selection)
    replaced, places = put_in(net, sites, operator, partial=True)
    replaced_names = {place.name for place in places if place.replaced}
    alike = [site for site in sites if site.name in replaced_names and _is_plain(site)]
    if not alike:
        return net, replaced, tuple(places)
    base, _ = put_in(net, alike, opened("known:conv2d"))
    with torch.no_grad():
        for _, slot in slots(base):
            (weight,) = slot.placeholder.parameters()
            original = slot.original.weight
            assert isinstance(original, torch.Tensor)
            weight.copy_(original.permute(1, 2, 3, 0))  # from [C_out, C_in, k, k] to the pGraph's [C_in, k, k, C_out]
    return base, replaced, tuple(places)


def compare_networks(
    operator: Operator,
    net: nn.Module,
    example: tuple[int, int, int] | Tensor,
    *,
    folder: str | os.PathLike[str],
    selection: Selection | None = None,
    repeats: int = 10,
    rounds: int = 3,
    on_progress: Progress | None = None,
    **how: Unpack[Budget],
) -> NetworkComparison:
    """Tune both networks of :func:`both_networks` for ``target`` with equal budgets, and measure them in turn.

    ``example`` is ``(C, H, W)`` of an image, or tokens [1, T]; for tokens, ``convolutions`` are the network's own
    layers. The two networks have the same budget, rules and task scheduler. The folder ``folder`` has all trials by
    function: common functions are tuned once, and a second call adds trials. Each of ``rounds`` rounds measures one
    network and then the other, ``repeats`` times. Raises as :func:`~syno_lab.tuning.network.tune_network` does.
    """
    if rounds < 1:
        raise SpecError(f"expected at least one round of measurements, found {rounds}")
    say = on_progress or (lambda *_: None)
    base, replaced, places = both_networks(operator, net, example, selection)
    nets = {"convolutions": base.eval(), "operator": replaced.eval()}
    tokens = isinstance(example, Tensor)
    shape = tuple(example.shape) if isinstance(example, Tensor) else (1, *example)
    tunings: list[FunctionsTuning] = []
    with scratch("syno-networks-") as work_dir:
        for name, network in nets.items():

            def tell(now: TuningProgress, name: str = name) -> None:
                say(name, now.trial / now.trials, f"{now.label}: {now}")

            say(name, 0.0, "looking at its functions")
            tunings.append(tune_functions(network, shape, records=folder, tokens=tokens, on_progress=tell, **how))
        ready = [compiled(tuning, work_dir, name=name) for name, tuning in zip(nets, tunings, strict=True)]
        say("measure", 0.0, f"{' and '.join(nets)} in turn, {rounds} rounds")
        rounds_found, where = run_networks(ready, tunings[0].options, repeats=repeats, rounds=rounds)
    convolutions, with_operator = (
        WholeNetwork(tuple(rounds_of), len(tuning.results), tuning.failed, tuning.trials, tuning.known, tuning.parts)
        for tuning, rounds_of in zip(tunings, rounds_found, strict=True)
    )
    return NetworkComparison(convolutions, with_operator, places, where)


def compare_layers(
    operator: Operator,
    net: nn.Module,
    image: tuple[int, int, int],
    *,
    folder: str | os.PathLike[str],
    selection: Selection | None = None,
    on_progress: Progress | None = None,
    **how: Unpack[Budget],
) -> tuple[LayerComparison, ...]:
    """Compare the operator with conv2d, both tuned, on each shape of a 3x3 layer of stride 1 that the operator fits.

    All shapes are tuned in one queue, in turn, each with the same budget; only ``deadline_s`` limits all of them.
    Tunings with records in ``folder`` are not repeated. Raises as :func:`~syno_lab.tuning.tune.tune_queue` does, and
    SpecError if there is no such layer.
    """
    from syno_lab.models.slot import costs
    from syno_lab.systems import opened

    sites = [site for site in survey(net, image).select(selection) if _is_plain(site)]
    fitting = [place for place in costs(operator, sites) if place.replaced] if sites else []
    if not fitting:
        raise SpecError("expected a 3x3 convolution of stride 1 that the operator can replace, found none")
    by_name = {site.name: site for site in sites}
    shapes: dict[str, list[Place]] = {}
    for place in fitting:
        site = by_name[place.name]
        channels = f"{site.in_channels} to {site.out_channels} channels"
        shapes.setdefault(f"{channels}, {site.height}x{site.width}", []).append(place)
    tasks: list[TuningTask] = []
    text = operator.to_json()
    builder = builder_of(text)
    for shape, places in shapes.items():
        plain = opened("known:conv2d")
        binding = plain.complete_binding(by_name[places[0].name].binding())
        assert places[0].binding is not None
        tasks.append(TuningTask(f"conv2d, {shape}", plain.to_json(), binding))
        tasks.append(TuningTask(f"operator, {shape}", text, places[0].binding, builder=builder))
    shares: dict[str, float] = {}

    def tell(now: TuningProgress) -> None:
        shares[now.label] = now.trial / now.trials
        if on_progress is not None:
            on_progress("layers", sum(shares.values()) / len(tasks), f"{now.label}: {now}")

    folder = Path(folder)
    settings: dict[str, Any] = {**how}
    board = settings.pop("board", None)
    options = TuningOptions(work_dir=folder / "logs", store=folder / "layers", **settings).on(board)
    outcome = tune_queue(tasks, options, on_progress=tell)

    def result(label: str) -> TuningResult | str:
        return outcome.results.get(label) or outcome.failed[label]

    return tuple(
        LayerComparison(
            shape, tuple(layer.name for layer in places), result(f"conv2d, {shape}"), result(f"operator, {shape}")
        )
        for shape, places in shapes.items()
    )


def _is_plain(site: Site) -> bool:
    """Return whether conv2d's pGraph computes the same as the layer."""
    is_convolution = site.kind == "conv2d" and site.kernel_size == (3, 3) and site.stride == (1, 1)
    return is_convolution and site.groups == 1 and site.dilation == (1, 1) and site.obstacle is None
