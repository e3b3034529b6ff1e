"""``syno-lab network``: compares a backbone with an operator in every slot with the same backbone of convolutions."""

from __future__ import annotations

from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syno_lab.commands.helping import complete_operator
from syno_lab.commands.operands import load_operator
from syno_lab.commands.output import JsonTarget, Reporter, check_json, say, say_table, write_json
from syno_lab.errors import SpecError

if TYPE_CHECKING:
    from syno_lab.tuning.versus import LayerComparison, NetworkComparison


class Part(StrEnum):
    """The parts of a network that are compared."""

    both = "both"
    whole = "whole"
    layers = "layers"


def command(
    operator: Annotated[
        str, typer.Argument(help="A known operator or an operator file.", autocompletion=complete_operator)
    ],
    backbone: Annotated[str, typer.Option(help="The network: see `syno-lab backbone`.")] = "resnet20",
    part: Annotated[Part, typer.Option(help="The whole network, layer by layer, or both.")] = Part.both,
    resolution: Annotated[int | None, typer.Option(min=1, help="Height and width of the images.")] = None,
    classes: Annotated[int | None, typer.Option(min=1, help="Classes. [default: the backbone's]")] = None,
    preset: Annotated[
        str, typer.Option(help="How many candidates a tuning measures: quick, normal or thorough.")
    ] = "quick",
    trials: Annotated[
        int | None, typer.Option(min=1, help="Candidates of each function and layer. [default: by the preset]")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads that the networks run in. [default: all cores]")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often both whole networks are measured, in turn.")] = 3,
    deadline: Annotated[float, typer.Option(min=1, help="Seconds for each function and layer.")] = 900.0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[Path, typer.Option(help="The folder for schedules, records and logs.")] = Path(".syno-lab/network"),
    json: JsonTarget = None,
) -> None:
    """Tune a backbone with the operator in every slot and with convolutions there, alike, and compare latencies.

    The target is this machine's processor; 3x3 convolutions of stride 1 become conv2d's pGraph. Records of layers are
    kept in --out.
    """
    check_json(json)
    label, value = load_operator(operator)
    from syno_lab.models.registry import backbone as find_backbone
    from syno_lab.systems import system_of
    from syno_lab.tuning.presets import find_preset
    from syno_lab.tuning.targets import LOCAL
    from syno_lab.tuning.versus import compare_layers, compare_networks

    if system_of(value).is_whole:
        if part is Part.layers:
            raise SpecError(f"--part: expected whole for a whole network of {system_of(value).title}, found layers")
        part = Part.whole
    find_preset(preset)
    chosen = find_backbone(backbone)
    if chosen.domain != "images":
        raise SpecError(f"expected a backbone for images, which has convolutions, found {chosen.name}")
    target = LOCAL if threads is None else f"{LOCAL}:{threads}"
    side = resolution or chosen.size
    net = chosen.build(outputs=classes).eval()
    image = (3, side, side)
    layers: tuple[LayerComparison, ...] = ()
    whole: NetworkComparison | None = None
    with ExitStack() as stack:
        report = stack.enter_context(Reporter())
        options: dict[str, Any] = {"folder": out, "selection": chosen.selection, "trials": trials}
        options |= {"preset": preset, "seed": seed, "on_progress": report}
        if part is not Part.whole:
            layers = compare_layers(value, net, image, target=target, deadline_s=deadline * 64, **options)
        if part is not Part.layers:
            whole = compare_networks(value, net, image, threads=threads, rounds=rounds, deadline_s=deadline, **options)
    told = {"operator": label, "backbone": chosen.name, "image": list(image), "target": target}
    count = trials or find_preset(preset).trials
    where = f"on {target}, at most {count} candidates for each function and layer"
    write_json(told | {"trials": count} | _tell(label, chosen.name, where, layers, whole, json), json)


def _tell(
    label: str,
    name: str,
    where: str,
    layers: tuple[LayerComparison, ...],
    whole: NetworkComparison | None,
    json: str | None,
) -> dict[str, Any]:
    """Print the results, ``where`` and how they were measured, and return them for JSON."""
    from syno_lab.tuning.versus import geometric_mean

    told: dict[str, Any] = {}
    if layers:
        say_table([_row(one, label) for one in layers], json)
        for one in layers:
            for what, found in (("conv2d", one.convolution), (label, one.operator)):
                if isinstance(found, str):
                    say(f"{what}, {one.shape}: not tuned: {found}", json)
        mean = geometric_mean(layers)
        if mean is not None:
            say(
                f"layer by layer, {where}: {label} is {mean:.2f} times as fast as conv2d (geometric mean over the "
                "layers, not the network)",
                json,
            )
        told |= {"layers": [one.to_dict() for one in layers], "geometric_mean": mean}
    if whole is not None:
        stays = [place for place in whole.places if not place.replaced]
        say(f"{label} is in {len(whole.places) - len(stays)} of {len(whole.places)} places of {name}", json)
        for what, network in (("convolutions", whole.convolutions), (label, whole.operator)):
            last = network.measurements[-1]
            say(
                f"{name} with {what}: {network.latency_ms:.3f} ms (median of {len(network.measurements)} rounds, best "
                f"{network.best_ms:.3f} ms), {last.tuned} of {last.functions} functions tuned",
                json,
            )
            for function, reason in network.failed.items():
                say(f"  {function}: not tuned: {reason}", json)
        say(f"whole network, {where}: {whole.speedup:.2f} times as fast as with convolutions", json)
        told["whole"] = whole.to_dict()
    return told


def _row(one: LayerComparison, label: str) -> dict[str, Any]:
    def shown(found: Any) -> str:
        return "–" if isinstance(found, str) else f"{found.latency_ms:.4f}"

    speedup = "–" if one.speedup is None else f"{one.speedup:.2f}"
    return {
        "layer": one.shape,
        "places": len(one.sites),
        "conv2d ms": shown(one.convolution),
        f"{label} ms": shown(one.operator),
        "times as fast": speedup,
    }
