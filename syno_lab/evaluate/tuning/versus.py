"""A backbone with an operator in every place against the same backbone with convolutions, both tuned alike.

As a whole (Syno, Figure 5) and layer by layer (Figure 9), on this machine's processor. The convolutions that make room
are conv2d's pGraph with the backbone's own weights where they are 3x3 of stride 1, so that both networks have the same
rules, budgets and layouts; all other layers are the backbone's own, in both.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import torch

from syno_lab.codegen.tvm_job import NetworkMeasurement, measure_network
from syno_lab.errors import SpecError
from syno_lab.evaluate.tuning.network import tune_functions
from syno_lab.evaluate.tuning.presets import Budget
from syno_lab.evaluate.tuning.tune import tune_queue
from syno_lab.evaluate.tuning.values import TuningProgress, TuningResult, TuningTask
from syno_lab.models.layers import survey
from syno_lab.models.selection import Selection
from syno_lab.models.slot import Place, put_in, slots

if TYPE_CHECKING:
    from torch import nn

    from syno_lab.evaluate.tuning.board import Board
    from syno_lab.ir.operator import Operator
    from syno_lab.models.sites import Site

#: Told what is done (``convolutions``, ``operator``, ``layers``, ``measure``), how much of it (0 to 1) and in words.
Progress = Callable[[str, float, str], None]


@dataclass(frozen=True)
class WholeNetwork:
    """One of the two networks: every measurement of it, the functions that were tuned, and which failed why."""

    measurements: tuple[NetworkMeasurement, ...]
    tuned: int
    failed: dict[str, str]

    @property
    def latency_ms(self) -> float:
        """The median of the rounds' medians."""
        return statistics.median(one.latency_ms for one in self.measurements)

    @property
    def best_ms(self) -> float:
        """The least of all."""
        return min(one.best_ms for one in self.measurements)


@dataclass(frozen=True)
class NetworkComparison:
    """``convolutions`` and ``operator`` are the networks of each; ``places`` says where the operator stands."""

    convolutions: WholeNetwork
    operator: WholeNetwork
    places: tuple[Place, ...]

    @property
    def speedup(self) -> float:
        """How many times faster the network with the operator is, by the medians."""
        return self.convolutions.latency_ms / self.operator.latency_ms

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            **{
                name: asdict(one) | {"latency_ms": one.latency_ms, "best_ms": one.best_ms}
                for name, one in (("convolutions", self.convolutions), ("operator", self.operator))
            },
            "places": [one.to_dict() for one in self.places],
            "speedup": self.speedup,
        }


@dataclass(frozen=True)
class LayerComparison:
    """One shape of layer, which ``sites`` of the network have: both tunings, or why there is none."""

    shape: str
    sites: tuple[str, ...]
    convolution: TuningResult | str
    operator: TuningResult | str

    @property
    def speedup(self) -> float | None:
        """How many times faster the operator is, by the medians; None where one of them failed."""
        if isinstance(self.convolution, str) or isinstance(self.operator, str):
            return None
        return self.convolution.latency_ms / self.operator.latency_ms

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""

        def plain(one: TuningResult | str) -> dict[str, Any]:
            return {"error": one} if isinstance(one, str) else one.to_dict()

        both = {"convolution": plain(self.convolution), "operator": plain(self.operator)}
        return {"shape": self.shape, "sites": list(self.sites), "speedup": self.speedup, **both}


def geometric_mean(layers: Sequence[LayerComparison]) -> float | None:
    """Of the speedups over the network's layers, each as often as it stands there; None where there is none."""
    found = [(one.speedup, len(one.sites)) for one in layers if one.speedup is not None]
    if not found:
        return None
    return math.exp(sum(count * math.log(ratio) for ratio, count in found) / sum(count for _, count in found))


def both_networks(
    operator: Operator, net: nn.Module, image: tuple[int, int, int], selection: Selection | None = None
) -> tuple[nn.Module, nn.Module, tuple[Place, ...]]:
    """``net`` with conv2d's pGraph, and with ``operator``, in the places that ``selection`` chooses and that it fits.

    ``image`` is ``(C, H, W)``. The first computes what ``net`` computes. Raises SpecError where it fits nowhere.
    """
    from syno_lab.operators import conv2d

    sites = survey(net, image).select(selection)
    replaced, places = put_in(net, sites, operator, partial=True)
    taken = {one.name for one in places if one.replaced}
    alike = [site for site in sites if site.name in taken and _is_plain(site)]
    if not alike:
        return net, replaced, tuple(places)
    base, _ = put_in(net, alike, conv2d())
    with torch.no_grad():
        for _, slot in slots(base):
            (weight,) = slot.placeholder.parameters()
            original = slot.original.weight
            assert isinstance(original, torch.Tensor)
            weight.copy_(original.permute(1, 2, 3, 0))  # [C_out, C_in, k, k] to the pGraph's [C_in, k, k, C_out]
    return base, replaced, tuple(places)


def compare_networks(
    operator: Operator,
    net: nn.Module,
    image: tuple[int, int, int],
    *,
    board: Board,
    folder: str | os.PathLike[str],
    selection: Selection | None = None,
    threads: int | None = None,
    repeats: int = 10,
    rounds: int = 3,
    on_progress: Progress | None = None,
    **budget: Unpack[Budget],
) -> NetworkComparison:
    """Tune both networks of :func:`both_networks` alike for this machine's processor, and measure them in turn.

    ``budget`` is that of each different function of either network. Schedules go to two folders in ``folder``, where a
    second call adds to them. Each of ``rounds`` measures one network and then the other, ``repeats`` times. Raises as
    :func:`~syno_lab.evaluate.tuning.network.tune_network` does.
    """
    if rounds < 1:
        raise SpecError(f"expected at least one round of measurements, found {rounds}")
    say = on_progress or (lambda *_: None)
    base, replaced, places = both_networks(operator, net, image, selection)
    nets = {"convolutions": base.eval(), "operator": replaced.eval()}
    example = (1, *image)
    done: dict[str, tuple[dict[str, TuningResult], dict[str, str]]] = {}
    for name, one in nets.items():

        def tell(function: str, number: int, total: int, name: str = name) -> None:
            say(name, (number - 1) / total, f"{function}, {number} of {total} functions")

        done[name] = tune_functions(one, example, board=board, records=Path(folder) / name, on_progress=tell, **budget)
    found: dict[str, list[NetworkMeasurement]] = {name: [] for name in nets}
    for number in range(rounds):
        for name in list(nets) if number % 2 == 0 else list(nets)[::-1]:
            say("measure", number / rounds, f"{name}, round {number + 1} of {rounds}")
            records = Path(folder) / name if done[name][0] else None
            found[name].append(measure_network(nets[name], example, records=records, threads=threads, repeats=repeats))
    whole = {name: WholeNetwork(tuple(found[name]), len(done[name][0]), done[name][1]) for name in nets}
    return NetworkComparison(whole["convolutions"], whole["operator"], places)


def compare_layers(
    operator: Operator,
    net: nn.Module,
    image: tuple[int, int, int],
    *,
    board: Board,
    folder: str | os.PathLike[str],
    selection: Selection | None = None,
    target: str = "local",
    on_progress: Progress | None = None,
    **budget: Unpack[Budget],
) -> tuple[LayerComparison, ...]:
    """The operator against conv2d, tuned alike, on every different shape of the 3x3 layers of stride 1 that it fits.

    One queue, fair between all of them, each with ``budget`` (but its ``deadline_s`` is for all); records are kept in
    ``folder``, so that nothing is tuned twice. Raises as :func:`~syno_lab.evaluate.tuning.tune.tune_queue` does, and
    SpecError where there is no such layer.
    """
    from syno_lab.models.slot import costs
    from syno_lab.operators import conv2d

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
    for shape, places in shapes.items():
        plain = conv2d()
        binding = plain.complete_binding(by_name[places[0].name].binding())
        assert places[0].binding is not None
        tasks.append(TuningTask(f"conv2d, {shape}", plain.to_json(), binding))
        tasks.append(TuningTask(f"operator, {shape}", operator.to_json(), places[0].binding))
    shares: dict[str, float] = {}

    def tell(now: TuningProgress) -> None:
        shares[now.label] = now.trial / now.trials
        if on_progress is not None:
            on_progress("layers", sum(shares.values()) / len(tasks), f"{now.label}: {now}")

    done = tune_queue(
        tasks,
        tracker=board.address,
        key=board.key,
        target=target,
        work_dir=Path(folder) / "logs",
        store=Path(folder) / "layers",
        on_progress=tell,
        **budget,
    )

    def result(label: str) -> TuningResult | str:
        return done.results.get(label) or done.failed[label]

    return tuple(
        LayerComparison(
            shape, tuple(one.name for one in places), result(f"conv2d, {shape}"), result(f"operator, {shape}")
        )
        for shape, places in shapes.items()
    )


def _is_plain(site: Site) -> bool:
    """Whether conv2d's pGraph computes what the layer does."""
    is_convolution = site.kind == "conv2d" and site.kernel_size == (3, 3) and site.stride == (1, 1)
    return is_convolution and site.groups == 1 and site.dilation == (1, 1) and site.obstacle is None
