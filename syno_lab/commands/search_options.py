"""The options of ``syno-lab search``, in the order of ``--help``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from syno_lab.commands.detach import DetachOption, FolderOption
from syno_lab.commands.options import Built, DataOption, Rule, flag
from syno_lab.errors import SynoError
from syno_lab.inputs import integer, quoted
from syno_lab.settings import Method, SearchChoice, TrainingSettings, TuningSettings
from syno_lab.systems import DEFAULT_NAME


@dataclass(frozen=True)
class Network:
    """The network for which operators are searched, and its data."""

    backbone: Annotated[str, typer.Option(help="A network of `syno-lab backbone`.")] = "resnet20"
    data: DataOption = None
    model: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:FUNCTION",
            help="A network of your own: a function without arguments that returns a torch module. The file is run.",
        ),
    ] = None
    dataset: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:FUNCTION",
            help="Data of your own: a function that returns two torch datasets (train, test) of pairs (tensor, class). "
            "The file is run.",
        ),
    ] = None
    layers: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="With --model: replace the layers whose names match, as in 'layer?.*'. [default: convolutions that "
            "read neighbours, else 1x1 ones, else linear layers]",
        ),
    ] = None


@dataclass(frozen=True)
class Choice:
    """The options that decide which operators are searched, and how."""

    method: Annotated[
        Method | None,
        typer.Option(
            help="estimate: Bayesian, the highest expected reward of many drawn; mcts: Monte Carlo tree search (UCT); "
            "elites: the best of each range of FLOPs, changed; pareto: the front of accuracy and --objectives, changed "
            "(αNAS). [default: estimate; untrained, elites; of whole networks, pareto]"
        ),
    ] = None
    rave: Annotated[bool, flag("--rave", "With --method mcts: value actions wherever they were taken (RAVE), too.")] = (
        False
    )
    flops: Annotated[
        float | None,
        typer.Option(
            help="Train no operator that takes more than this share of the replaced layers' FLOPs. [default: 0.4; of "
            "whole networks, 1]"
        ),
    ] = None
    objectives: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME]",
            help="With --method pareto: the costs that are to be small, of flops, params, latency (of the whole "
            "network on --target, tuned by TVM after each training) and latency-pytorch (in the process that trained). "
            "[default: flops,params]",
        ),
    ] = None
    traffic: Annotated[
        float,
        typer.Option(
            min=0,
            help="Train no operator that stores more than so many times the elements that the replaced layers output "
            "(memory traffic: such operators are slow even with few FLOPs); 0: no limit.",
        ),
    ] = 4.0
    system: Annotated[
        str,
        typer.Option(
            metavar="NAME[,NAME]",
            help="The system whose operators are searched, by its title or format: pgraphs (or syno), canvas, alpha. "
            "Several are searched together.",
        ),
    ] = DEFAULT_NAME
    system_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="What the space of one system alone has, as αNAS's mutations=primer, relax=code, selection=code.",
        ),
    ] = None
    wants: Annotated[
        str,
        typer.Option(
            metavar="WISH",
            help="What every operator must read and mix, as in 'C_in>=m, H>=m'; none for nothing. 'derived': what the "
            "replaced layers do themselves, some channels being enough.",
        ),
    ] = "derived"
    rungs: Annotated[
        bool | None,
        typer.Option(
            "--rungs/--no-rungs",
            help="Train many operators on the network's proxies, and the best of them more and more; --minutes bound "
            "all of it then, baseline and finals included. --no-rungs: train each in the network itself. "
            "[default: in rungs where minutes bound the search and the network has proxies]",
        ),
    ] = None
    from_nothing: Annotated[
        bool,
        flag("--from-nothing", "Do not begin with the known operators (separable, grouped, …) of the space."),
    ] = False
    max_primitives: Annotated[int, typer.Option(min=1, help="The most steps of an operator.")] = 10
    rule: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE.py:FUNCTION",
            help="A rule of your own: a function of a state and a step that returns True to refuse the step. May be "
            "given several times. The file is run.",
        ),
    ] = None
    reward: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:FUNCTION",
            help="A reward of your own: a function of a trained operator (accuracy, flops_ratio, params_ratio, "
            "replaced_ratio, latency_ms) that returns a number from 0 to 1. The file is run. [default: its accuracy]",
        ),
    ] = None


@dataclass(frozen=True)
class Ending:
    """The options that decide which trainings end early."""

    stop_early: Annotated[Rule, typer.Option(help="Prune a training that falls behind earlier ones, by this rule.")] = (
        "canvas"
    )
    to_the_end: Annotated[bool, flag("--to-the-end", "End no training early.")] = False


@dataclass(frozen=True)
class Machine:
    """The options that decide how many trainings run, and with which seeds."""

    seeds: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=10_000,
            help="Train the baseline and the best operators on so many seeds; 0: none. [default: 3; in rungs, 5]",
        ),
    ] = None
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N|gpu",
            help="Trainings at a time; gpu: one for each GPU of this machine, which it has for itself. [default: one "
            "for each core; on a GPU, 1]",
        ),
    ] = None


def parse_workers(text: str | None, *, in_process: bool = False) -> tuple[int | None, float]:
    """Return the number of parallel trainings (None: the default) and the GPUs of each; the text ``gpu`` means one GPU.

    Raises SynoError if the text is neither a number nor ``gpu``, or if the machine has no GPU.
    """
    if text is None:
        return None, 0.0
    if text == "gpu":
        from syno_lab.jobs.gpus import found

        if in_process:
            raise SynoError("--workers gpu: expected trainings as jobs, which have a GPU each; leave --in-process out")
        count = len(found())
        if not count:
            raise SynoError("--workers gpu: expected a GPU on this machine, found none (nvidia-smi -L lists them)")
        return count, 1.0
    count = integer(text) or 0
    if count < 1:
        raise SynoError(f"--workers: expected a number from 1 on, or gpu, found {quoted(text)}")
    return count, 0.0


@dataclass(frozen=True)
class Validating:
    """Whether the proxies are validated instead of a search."""

    validate_proxy: Annotated[
        bool,
        flag(
            "--validate-proxy",
            "Search nothing: train operators drawn at random on each rung and with the full recipe, and say how well "
            "the proxies rank them, beside FLOPs and parameters. The same command continues it.",
        ),
    ] = False
    operators: Annotated[int | None, typer.Option(min=4, help="Operators of --validate-proxy. [default: 30]")] = None
    full_seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds of the full recipe of --validate-proxy. [default: 2]")
    ] = None


@dataclass(frozen=True)
class Run:
    """The options that decide where the search is stored, and which processes do the work."""

    name: Annotated[str, typer.Option(help="The name of the search in its folder.")] = "search"
    folder: FolderOption = None
    address: Annotated[
        str | None,
        typer.Option(help="The Dask scheduler to use, tls://HOST:PORT. [default: a new one on this machine]"),
    ] = None
    go_on: Annotated[
        bool, flag("--continue", "Continue the search of this name; of its settings, only its end may change.")
    ] = False
    in_process: Annotated[
        bool, flag("--in-process", "Train and tune in this process, one after another, without jobs.")
    ] = False
    whole_front: Annotated[
        bool, flag("--all", "Print all trials of the last rung, not only the front and the finals.")
    ] = False
    detach: DetachOption = False


@dataclass(frozen=True)
class Given:
    """All options of the command."""

    network: Network
    search: SearchChoice
    choice: Choice
    training: TrainingSettings
    ending: Ending
    built: Built
    machine: Machine
    validating: Validating
    tuning: TuningSettings
    run: Run
