"""``syno-lab network``: compare a backbone that has an operator in every slot with the original backbone."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from syno_lab.commands.detach import FolderOption
from syno_lab.commands.operands import OPERATOR, complete_operator, load_operator
from syno_lab.commands.options import check_board
from syno_lab.commands.output import Reporter, say, say_table, write_json
from syno_lab.errors import SpecError
from syno_lab.settings import Scheduler, TuningBudget
from syno_lab.versioned import JSON

if TYPE_CHECKING:
    from syno_lab.tuning.versus import LayerComparison, NetworkComparison


#: The parts of a network that can be compared: its layers, or the whole network.
Part = Literal["both", "whole", "layers"]


def command(
    operator: Annotated[str, typer.Argument(help=f"{OPERATOR}.", autocompletion=complete_operator)],
    backbone: Annotated[str, typer.Option(help="The network: see `syno-lab backbone`.")] = "resnet20",
    part: Annotated[Part, typer.Option(help="The whole network, layer by layer, or both.")] = "both",
    resolution: Annotated[
        int | None, typer.Option(min=1, help="Height and width of the images; tokens of a text.")
    ] = None,
    classes: Annotated[
        int | None, typer.Option(min=1, help="Classes; tokens that a text may have. [default: the backbone's]")
    ] = None,
    *,
    tuned: TuningBudget,
    scheduler: Annotated[
        Scheduler,
        typer.Option(
            help="How a network's functions share the trials: gradient (TVM's task scheduler: more for those that "
            "promise most of the network's time) or equal."
        ),
    ] = "gradient",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of this machine that networks run in. [default: all cores]")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often both whole networks are measured, in turn.")] = 3,
    deadline: Annotated[
        float, typer.Option(min=1, help="Seconds to tune all functions of a network, and all layers.")
    ] = 57600.0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[Path, typer.Option(help="The folder for schedules, records and logs.")] = Path(".syno-lab/network"),
    folder: FolderOption = None,
) -> None:
    """Tune a backbone with the operator in every slot, and the same backbone with convolutions; compare latencies.

    Each network is tuned and then measured through Relax where it runs: on this machine, or on the board behind
    --tracker. Both networks have the same trials, rules and scheduler; 3x3 convolutions of stride 1 become conv2d's
    pGraph. Records are kept in --out: functions that both networks call are tuned once.
    """
    preset, trials, target, tracker, key = msgspec.structs.astuple(tuned)
    label, value, _ = load_operator(operator, folder)
    from syno_lab.models.registry import backbone as find_backbone
    from syno_lab.protocol import OfNetworks
    from syno_lab.systems import system_of
    from syno_lab.tuning.board import Board
    from syno_lab.tuning.options import find_preset
    from syno_lab.tuning.targets import LOCAL, check_target, local_threads
    from syno_lab.tuning.tracker import parse_address
    from syno_lab.tuning.versus import compare_layers, compare_networks

    if isinstance(system_of(value), OfNetworks):
        if part == "layers":
            raise SpecError(f"--part: expected whole for a whole network of {system_of(value).title}, found layers")
        part = "whole"
    find_preset(preset)
    chosen = find_backbone(backbone)
    is_text = chosen.domain == "text"
    if is_text and part == "layers":
        raise SpecError(
            f"--part: expected whole for a backbone without convolutions such as {chosen.name}, found layers"
        )
    part = "whole" if is_text else part
    board = None if tracker is None else Board(*parse_address(tracker), key or target)
    if key is not None and tracker is None:
        raise SpecError(f"--key: expected --tracker beside {key}, found none")
    if board is not None and threads is not None:
        raise SpecError("--threads: expected no threads beside --tracker, whose board has its own")
    if tracker is not None:
        check_board(tracker, key or target)
    if threads is not None and local_threads(check_target(target)) is not None:
        target = f"{LOCAL}:{threads}"
    size = resolution or chosen.size
    net = chosen.build(outputs=classes, size=size).eval()
    example = chosen.example(size=size)
    layers: tuple[LayerComparison, ...] = ()
    comparison: NetworkComparison | None = None
    with ExitStack() as stack:
        report = stack.enter_context(Reporter())
        options: dict[str, Any] = {"folder": out, "selection": chosen.selection, "trials": trials}
        options |= {"preset": preset, "seed": seed, "on_progress": report, "board": board, "target": target}
        options["deadline_s"] = deadline
        if part != "whole":
            layers = compare_layers(value, net, (3, size, size), **options)
        if part != "layers":
            options |= {"scheduler": scheduler, "threads": threads, "rounds": rounds}
            comparison = compare_networks(value, net, example, **options)
    facts: dict[str, Any] = {"operator": label, "backbone": chosen.name, "target": target}
    facts |= {"tokens": size} if is_text else {"image": [3, size, size]}
    facts |= {"tracker": tracker, "scheduler": scheduler}
    count = trials or find_preset(preset).trials
    where = f"for {target}, at most {count} candidates for each layer"
    ordinary = "its own layers" if is_text else "convolutions"
    write_json(facts | {"trials": count} | _print_results(label, chosen.name, ordinary, where, layers, comparison))


def _print_results(
    label: str, name: str, others: str, where: str, layers: tuple[LayerComparison, ...], whole: NetworkComparison | None
) -> dict[str, JSON]:
    """Print the results, the device ``where`` and how the networks were measured; return data for JSON.

    ``others`` is the name in the results of the layers that the operator replaces.
    """
    from syno_lab.tuning.versus import geometric_mean

    facts: dict[str, Any] = {}
    if layers:
        say_table([_row(comparison, label) for comparison in layers])
        for comparison in layers:
            for side, result in (("conv2d", comparison.convolution), (label, comparison.operator)):
                if isinstance(result, str):
                    say(f"{side}, {comparison.shape}: not tuned: {result}")
        mean = geometric_mean(layers)
        if mean is not None:
            say(
                f"layer by layer, {where}: {label} is {mean:.2f} times as fast as conv2d (geometric mean over the "
                "layers, not the network)"
            )
        facts |= {"layers": [comparison.to_dict() for comparison in layers], "geometric_mean": mean}
    if whole is not None:
        stays = [place for place in whole.places if not place.replaced]
        say(f"{label} is in {len(whole.places) - len(stays)} of {len(whole.places)} places of {name}")
        for side, network in ((others, whole.convolutions), (label, whole.operator)):
            last = network.measurements[-1]
            say(
                f"{name} with {side}: {network.latency_ms:.3f} ms (median of {len(network.measurements)} rounds, best "
                f"{network.best_ms:.3f} ms), {last.tuned} of {last.functions} functions tuned, {network.trials} "
                f"trials in all, {network.known} of them from the records"
            )
            for function, reason in network.failed.items():
                say(f"  {function}: not tuned: {reason}")
        say(f"whole network through Relax on {whole.where}: {whole.speedup:.2f} times as fast as with {others}")
        facts["whole"] = whole.to_dict()
    return facts


def _row(comparison: LayerComparison, label: str) -> dict[str, JSON]:
    def shown(result: Any) -> str:
        return "–" if isinstance(result, str) else f"{result.latency_ms:.4f}"

    speedup = "–" if comparison.speedup is None else f"{comparison.speedup:.2f}"
    return {
        "layer": comparison.shape,
        "places": len(comparison.sites),
        "conv2d ms": shown(comparison.convolution),
        f"{label} ms": shown(comparison.operator),
        "times as fast": speedup,
    }
