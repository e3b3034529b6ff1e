"""The options of ``syno-lab search``, in the order in which ``--help`` lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from syno_lab.commands.detach import DetachOption, FolderOption
from syno_lab.commands.options import TrackerOption, flag
from syno_lab.commands.train import Precision, Rule
from syno_lab.errors import SynoError
from syno_lab.inputs import integer, quoted

#: The methods that choose the next operator.
Method = Literal["estimate", "mcts", "evolution", "random", "elites", "pareto"]


#: How weights are updated.
Optimizer = Literal["sgd", "adamw"]


@dataclass(frozen=True)
class Network:
    """The network to search operators for, and its data."""

    backbone: Annotated[str, typer.Option(help="A network of `syno-lab backbone`.")] = "resnet20"
    data: Annotated[
        str | None,
        typer.Option(
            help="A folder with CIFAR or with images in class folders, a text file, or 'digits'. "
            "[default: $SYNO_LAB_DATA, else digits]"
        ),
    ] = None
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
    """Which operators are searched, and for how long."""

    minutes: Annotated[
        float | None,
        typer.Option(help="Minutes of search in all, without baseline and comparison. [default: 30; untrained, 5]"),
    ] = None
    trials: Annotated[int | None, typer.Option(min=1, help="The most operators to evaluate, in all.")] = None
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
    virtual_loss: Annotated[
        float,
        typer.Option(min=0, help="With --method mcts: an operator in training counts for so many losses."),
    ] = 0.0
    untrained: Annotated[
        bool,
        flag("--untrained", "Train nothing: rank operators by the score of a probe, about a tenth of a second each."),
    ] = False
    seed: Annotated[int, typer.Option(min=0, help="The seed of the search; trainings have seed 0.")] = 0
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
    lower_within: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS",
            help="After a trial that is at most so many percentage points less accurate than the baseline, train only "
            "operators with a tenth fewer FLOPs than it has, again and again.",
        ),
    ] = None
    system: Annotated[
        str,
        typer.Option(
            metavar="NAME[,NAME]",
            help="The system whose operators are searched, by its title or format: pgraphs (or syno), canvas, alpha. "
            "Several are searched together.",
        ),
    ] = "pgraphs"
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
class Training:
    """How a network is trained."""

    epochs: Annotated[int, typer.Option(min=1)] = 3
    images: Annotated[int | None, typer.Option(min=1, help="Train on the first so many images.")] = None
    test_images: Annotated[
        int | None, typer.Option(min=1, help="Test on the first so many images, or windows of a text.")
    ] = None
    resolution: Annotated[int | None, typer.Option(min=1, help="Scale images to this height and width.")] = None
    batch_size: Annotated[int, typer.Option(min=1)] = 64
    learning_rate: Annotated[
        float | None,
        typer.Option(help="The highest learning rate of the cycle. [default: 0.1; for a text and adamw, 0.001]"),
    ] = None
    optimizer: Annotated[Optimizer, typer.Option(help="For images and data of your own.")] = "sgd"
    stop_early: Annotated[Rule, typer.Option(help="Prune a training that falls behind earlier ones, by this rule.")] = (
        "canvas"
    )
    to_the_end: Annotated[bool, flag("--to-the-end", "End no training early.")] = False
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Train every operator, and the baseline, for so many seconds instead of --epochs, none is ended "
            "early: a faster operator takes more steps. Use --workers 1, so that all have the machine alike.",
        ),
    ] = None
    time_limit: Annotated[
        float | None, typer.Option(help="The most seconds of a training. [default: twice the baseline's]")
    ] = None
    width: Annotated[int | None, typer.Option(min=1, help="Channels of the network. [default: its own]")] = None
    blocks: Annotated[int | None, typer.Option(min=1, help="Residual blocks in each stage. [default: its own]")] = None
    option: Annotated[
        list[str] | None,
        typer.Option(help="Another option of the network, as in layers=2, context=128, strides=shape."),
    ] = None


@dataclass(frozen=True)
class Machine:
    """How much is trained, and on what."""

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
    device: Annotated[str, typer.Option(help="cpu, cuda, …")] = "cpu"
    precision: Annotated[Precision, typer.Option()] = "float32"


def parse_workers(text: str | None, *, in_process: bool = False) -> tuple[int | None, float]:
    """Trainings at a time (None: as usual), and the GPUs that each has for itself: ``gpu`` asks the machine.

    Raises:
        SynoError: for neither a number nor ``gpu``, and where the machine has no GPU.
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
    """Whether the proxies are validated instead of searching."""

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


#: What a latency is of.
TuneWhat = Literal["network", "layers"]


@dataclass(frozen=True)
class Tuning:
    """What is tuned while the search goes on, and for what."""

    tune_within: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS",
            help="Tune trials that are at most so many percentage points less accurate than the baseline, during the "
            "search; a latency is that of --tune-what.",
        ),
    ] = None
    tune_what: Annotated[
        TuneWhat,
        typer.Option(
            help="What is tuned and measured: the whole network, through Relax on the target, or, as a quick estimate, "
            "the layers, whose latencies are summed."
        ),
    ] = "network"
    target: Annotated[
        str, typer.Option(help="The target of tunings, as for `syno-lab tune`; use --workers 1 with local.")
    ] = "local"
    tracker: TrackerOption = None
    key: Annotated[str | None, typer.Option(help="The device's key at the tracker. [default: the target]")] = None
    tune_preset: Annotated[
        str, typer.Option(help="How many candidates a tuning measures: quick, normal or thorough.")
    ] = "quick"
    tune_trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Candidates for each size of layer, and on average for each function of a network: more go to those "
            "that promise most of its time. [default: the preset's]",
        ),
    ] = None


@dataclass(frozen=True)
class Run:
    """Where the search is kept, and who does the work."""

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
    detach: DetachOption = False
