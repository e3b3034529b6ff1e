"""``syno-lab search``: operators for a backbone, found, trained, compared with what they replace, and kept."""

from __future__ import annotations

import os
import shlex
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from syno_lab.commands.detach import DetachOption, FolderOption, detach_all, lab_folder
from syno_lab.commands.options import TrackerOption, flag
from syno_lab.commands.output import JsonTarget, Reporter, check_json, say, say_table, write_json
from syno_lab.commands.train import Precision, Rule
from syno_lab.errors import SearchError, SpecError, SynoError

if TYPE_CHECKING:
    from syno_lab.evaluate.jobs import JobHandle, JobRecord, Lab
    from syno_lab.evaluate.searching import SearchSettings, TuningChoice

KIND = "search"
LOOK_S = 0.5
#: Seconds that a search has to come to rest after Ctrl-C; its trainings stop at their next batch.
REST_S = 60.0
DEFAULT_MINUTES = 30.0
#: Epochs from which on the first of them tells enough to be judged by; below, it is a fifth of a training or more.
FEW_EPOCHS = 5


class Method(StrEnum):
    """How the next operator is chosen."""

    mcts = "mcts"
    random = "random"
    evolution = "evolution"


def command(
    backbone: Annotated[str, typer.Option(help="A network of `syno-lab backbone`.")] = "resnet20",
    data: Annotated[
        str | None,
        typer.Option(
            help="A folder with CIFAR or with images in class folders, a text file, or 'digits'. "
            "[default: $SYNO_LAB_DATA, else digits]"
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="How long to search in all, baseline and comparison not counted. [default: 30]"),
    ] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="How many operators to evaluate at most, in all.")] = None,
    method: Annotated[Method, typer.Option()] = Method.mcts,
    seed: Annotated[int, typer.Option(min=0, help="Of the search's choices; trainings have seed 0.")] = 0,
    flops: Annotated[
        float, typer.Option(help="Train no operator with which the network has more than this share of its FLOPs.")
    ] = 0.5,
    traffic: Annotated[
        float,
        typer.Option(
            min=0,
            help="Train no operator that stores more than so many times the elements that the layers in its places "
            "put out (memory traffic: such operators are slow, whatever their FLOPs); 0: no limit.",
        ),
    ] = 4.0,
    from_nothing: Annotated[
        bool,
        flag("--from-nothing", "Do not begin with the known operators (separable, grouped, …) that the space has."),
    ] = False,
    max_primitives: Annotated[int, typer.Option(min=1, help="Steps of an operator.")] = 8,
    epochs: Annotated[int, typer.Option(min=1)] = 3,
    images: Annotated[int | None, typer.Option(min=1, help="Train on the first so many images.")] = None,
    test_images: Annotated[
        int | None, typer.Option(min=1, help="Test on the first so many images, or windows of a text.")
    ] = None,
    resolution: Annotated[int | None, typer.Option(min=1, help="Scale images to this height and width.")] = None,
    batch_size: Annotated[int, typer.Option(min=1)] = 64,
    learning_rate: Annotated[
        float | None, typer.Option(help="The highest of the cycle. [default: 0.1; of a text, 0.001]")
    ] = None,
    stop_early: Annotated[
        Rule, typer.Option(help="End a training that falls behind those before it, by this rule.")
    ] = Rule.canvas,
    to_the_end: Annotated[bool, flag("--to-the-end", "End no training early.")] = False,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds that a training may take. [default: twice the baseline's]")
    ] = None,
    width: Annotated[int | None, typer.Option(min=1, help="Channels of the network. [default: its own]")] = None,
    blocks: Annotated[int | None, typer.Option(min=1, help="Residual blocks in each stage. [default: its own]")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="More of the network, as in layers=2, context=128, strides=shape."),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=0, help="Train the baseline and the best operators on so many seeds; 0 for none.")
    ] = 3,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Trainings at a time. [default: one for each core; on a GPU, 1]")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, …")] = "cpu",
    precision: Annotated[Precision, typer.Option()] = Precision.float32,
    tune_within: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS",
            help="Tune what is at most so many percentage points less accurate than the baseline, while the search "
            "goes on; a latency is the sum over the replaced layers.",
        ),
    ] = None,
    target: Annotated[
        str, typer.Option(help="What to tune for, as for `syno-lab tune`; local is best with --workers 1.")
    ] = "local",
    tracker: TrackerOption = None,
    key: Annotated[str | None, typer.Option(help="The device's key at the tracker. [default: the target]")] = None,
    tune_preset: Annotated[
        str, typer.Option(help="How much tuning one size may cost: quick, normal or thorough.")
    ] = "quick",
    tune_trials: Annotated[
        int | None, typer.Option(min=1, help="Candidates to measure for each size. [default: the preset's]")
    ] = None,
    name: Annotated[str, typer.Option(help="Of the search in its folder.")] = "search",
    folder: FolderOption = None,
    address: Annotated[
        str | None, typer.Option(help="A Dask scheduler to use, tcp://HOST:PORT. [default: one of its own, here]")
    ] = None,
    go_on: Annotated[
        bool, flag("--continue", "Go on with the search of this name; only its end may be set anew.")
    ] = False,
    in_process: Annotated[
        bool, flag("--in-process", "Train in this process, one after another, without jobs.")
    ] = False,
    detach: DetachOption = False,
    json: JsonTarget = None,
) -> None:
    """Search operators for a network by training them in it (Syno, Algorithm 1).

    The baseline is trained on several seeds first; then operators are searched for, known ones that fit first; then the
    best found within a half and a quarter of the baseline's FLOPs, and the best known one, are trained on the same
    seeds. All is kept in the folder as it happens: a search that was stopped or killed goes on with --continue.
    """
    check_json(json)
    place = lab_folder(folder)
    if address is not None and in_process:
        raise SynoError("--address: expected trainings as jobs; leave --in-process out")
    if detach and in_process:
        raise SynoError("--detach: expected a search as a job; leave --in-process out")
    tuning = _tuning(tune_within, target, tracker, key, tune_preset, tune_trials)
    if tuning is not None and in_process:
        raise SynoError("--tune-within: expected tunings as jobs; leave --in-process out")
    if go_on:
        settings = _earlier(place, name, minutes, trials, workers, tuning)
    else:
        from syno_lab.evaluate.searching import SearchSettings
        from syno_lab.evaluate.trial import TrialRequest

        hands = workers or (1 if in_process or device != "cpu" else _cores())
        training = TrialRequest(
            backbone=backbone,
            options=_options(option or [], width, blocks),
            data=_data(data),
            resolution=resolution,
            train_images=images,
            test_images=test_images,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            device=device,
            threads=None if in_process else max(1, _cores() // hands),
            precision=precision.value,
            time_limit_s=time_limit,
            stopping=None if to_the_end else _stopping(stop_early, epochs),
        )
        settings = SearchSettings(
            training=training,
            name=name,
            method=method.value,
            seed=seed,
            minutes=DEFAULT_MINUTES if minutes is None and trials is None else minutes,
            trials=trials,
            max_flops_ratio=flops,
            max_traffic_ratio=traffic or None,
            workers=hands,
            seeds=tuple(range(seeds)),
            limits={"max_primitives": max_primitives},
            starts_with_known=not from_nothing,
            tuning=tuning,
        )
    if detach:
        _check_new(place, settings, go_on)
        detach_all([(KIND, settings.to_dict(), name)], folder, json=json)
        return
    with Reporter() as report:
        if settings.tuning is not None:
            _check_board(settings.tuning)
        if not go_on:
            _check(settings, report)
            _check_new(place, settings, go_on)
        if in_process:
            from syno_lab.evaluate.searching import run_here

            result = _with_advice(
                place, name, True, lambda: run_here(settings, place, report=lambda f, m: report(KIND, f, m))
            )
        else:
            result = _as_job(settings, place, address, report)
    _say(result, json)
    write_json(result, json)


# -- settings --------------------------------------------------------------------------------------------------------


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _data(data: str | None) -> str:
    """Where the data is, whoever reads it from wherever."""
    from syno_lab.evaluate.data import DATA_VARIABLE, DIGITS

    named = data or os.environ.get(DATA_VARIABLE) or DIGITS
    return named if named == DIGITS else str(Path(named).expanduser().absolute())


def _stopping(rule: Rule, epochs: int) -> dict[str, Any]:
    """The rule for early termination as trials are given it.

    With few epochs the first is not judged where others follow: the learning rate has only just come to its highest,
    and accuracies say little yet. ResNet-20's after one of two epochs on three seeds were 0.190, 0.132 and 0.142, and
    then 0.255, 0.317 and 0.362: the rule of Canvas would have ended the two best of them for falling behind the worst.
    """
    has_warmup = rule in (Rule.canvas, Rule.median, Rule.percentile)
    return {"rule": rule.value, **({"warmup": 1} if has_warmup and epochs < FEW_EPOCHS else {})}


def _options(texts: list[str], width: int | None, blocks: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {name: value for name, value in (("width", width), ("blocks", blocks)) if value}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals or not value:
            raise SpecError(f"--option: expected NAME=VALUE such as layers=2, found {text!r}")
        try:
            options[name.strip()] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            options[name.strip()] = value
    return options


def _check(settings: SearchSettings, report: Reporter) -> None:
    """Everything that can be known to be wrong before a job is submitted."""
    from syno_lab.evaluate.searching import Space

    report(KIND, 0.0, "looking at the backbone and the data")
    space = Space(settings)
    shapes = (f"[{', '.join(map(str, shape))}]" for shape in (space.spec.input_shape, space.spec.output_shape))
    report(
        KIND,
        0.0,
        f"{len(space.sites)} layers to replace by operators {' to '.join(shapes)}, {len(space.spec.bindings)} sizes; "
        f"baseline {space.baseline.flops:,} FLOPs, {space.baseline.params:,} parameters",
    )


def _check_new(place: Path, settings: SearchSettings, go_on: bool) -> None:
    """Refuse a name that a search in this folder has."""
    from syno_lab.evaluate.searching import STATUS_FILE, search_folder

    if not go_on and (search_folder(place, settings.name) / STATUS_FILE).exists():
        raise SearchError(
            f"there is a search {settings.name!r} in {place} already: go on with it by "
            f"`{_command(place, settings.name, False)}`, or give this one another --name"
        )


def _tuning(
    within: float | None, target: str, tracker: str | None, key: str | None, preset: str, trials: int | None
) -> TuningChoice | None:
    """What to tune; nothing unless ``within`` is given."""
    from syno_lab.evaluate.searching import TuningChoice

    if within is None:
        given = {"--tracker": tracker, "--key": key, "--tune-trials": trials}
        for option in (option for option, value in given.items() if value is not None):
            raise SynoError(f"{option}: expected --tune-within POINTS beside it, found none")
        return None
    return TuningChoice(within=within, target=target, tracker=tracker, key=key, preset=preset, trials=trials)


def _check_board(tuning: TuningChoice) -> None:
    """Refuse a tracker and a key behind which no device is. Raises TrackerError."""
    from syno_lab.evaluate.tuning import check_tracker
    from syno_lab.evaluate.tuning.tracker import parse_address

    if tuning.tracker is not None:
        check_tracker(*parse_address(tuning.tracker), tuning.board_key, need_free=False)


def _earlier(
    place: Path,
    name: str,
    minutes: float | None,
    trials: int | None,
    workers: int | None,
    tuning: TuningChoice | None,
) -> SearchSettings:
    """The settings of a search that was begun, with a new end, or something new to tune, where one is given."""
    from syno_lab.evaluate.searching import SETTINGS_FILE, SearchSettings, read_json, search_folder

    found = read_json(search_folder(place, name) / SETTINGS_FILE)
    if found is None:
        raise SearchError(
            f"--continue: expected a search {name!r} in {place}, found none; --name and --folder say which"
        )
    given: dict[str, Any] = {"workers": workers} if workers else {}
    if minutes is not None or trials is not None:
        given |= {"minutes": minutes, "trials": trials}
    if tuning is not None:
        given["tuning"] = msgspec.to_builtins(tuning)
    return SearchSettings.from_dict(found | given)


def _command(place: Path, name: str, in_process: bool) -> str:
    words = ["syno-lab", "search", "--continue", "--folder", str(place), "--name", name]
    return shlex.join([*words, "--in-process"] if in_process else words)


# -- as a job --------------------------------------------------------------------------------------------------------


def _with_advice(place: Path, name: str, in_process: bool, work: Any) -> dict[str, Any]:
    """Do the work; who ends it is told how it goes on."""
    try:
        found: dict[str, Any] = work()
    except (KeyboardInterrupt, SystemExit):
        typer.echo(f"the search is kept in {place}; `{_command(place, name, in_process)}` goes on with it", err=True)
        raise
    return found


def _as_job(settings: SearchSettings, place: Path, address: str | None, report: Reporter) -> dict[str, Any]:
    from syno_lab.evaluate.jobs import Lab

    with Lab.open(place, address=address, slots=settings.workers) as lab:
        handle = _job(lab, settings)
        record = handle.record()

        def watch() -> dict[str, Any]:
            nonlocal record
            try:
                while not record.is_ended:
                    report(KIND, record.progress, record.message or f"job {record.id} is {record.state}")
                    if lab.keeper.trouble:
                        report(KIND, record.progress, lab.keeper.trouble)
                    time.sleep(LOOK_S)
                    record = handle.record()
            except (KeyboardInterrupt, SystemExit):
                _pause(lab, handle)
                raise
            return record.result or {}

        result = _with_advice(place, settings.name, False, watch)
        if record.state != "finished":
            raise SynoError(f"the search ended as {record.state}: {record.reason}")
        return result


def _job(lab: Lab, settings: SearchSettings) -> JobHandle:
    """The job that does this search: one that waits, runs or was paused with the same end, or a new one."""
    params = settings.to_dict()
    mine: list[JobRecord] = [job for job in lab.jobs(kind=KIND) if job.params.get("name") == settings.name]
    for job in reversed(mine):
        if job.is_ended:
            continue
        handle = lab.job(job.id)
        if job.params == params or job.state == "running":
            handle.resume()
            return handle
        handle.cancel()
    return lab.submit(KIND, params, name=settings.name)


def _pause(lab: Lab, handle: JobHandle) -> None:
    """The search and its trainings come to rest, at the next batch; what they have is kept."""
    handle.pause()
    for job in lab.jobs(parent=handle.id):
        if not job.is_ended:
            lab.job(job.id).pause()
    deadline = time.monotonic() + REST_S
    while time.monotonic() < deadline:
        if not any(job.state == "running" for job in (handle.record(), *lab.jobs(parent=handle.id))):
            return
        time.sleep(0.2)


# -- what came out ---------------------------------------------------------------------------------------------------


def _say(result: dict[str, Any], json: str | None) -> None:
    baseline = result["baseline"]
    say(
        f"{result['trials']} trials, {result['trials_per_hour']:.0f} an hour, {result['pruned_share']:.0%} pruned; "
        f"overhead of search and store {result['overhead_share']:.2%} of the trainings' time; {result['end']}",
        json,
    )
    if baseline["accuracy"] is not None:
        say(
            f"baseline: {baseline['accuracy']:.4f} ({len(baseline['accuracies'])} seeds), {baseline['flops']:,} FLOPs, "
            f"{baseline['params']:,} parameters",
            json,
        )
    say_table(
        [
            {
                "best within": f"1/{2 if share == 'half' else 4} of the FLOPs",
                "trial": best["number"],
                "accuracy": best["accuracy"],
                "FLOPs": f"{best['flops_ratio']:.3f}",
                "parameters": best["params"],
            }
            for share, best in result["best"].items()
            if best is not None
        ],
        json,
    )
    say_table(
        [
            {
                "known": one["known"],
                "trial": one["number"],
                "accuracy": one["accuracy"],
                "FLOPs": f"{one['flops_ratio']:.3f}",
                "parameters": one["params"],
            }
            for one in result["known"]
        ],
        json,
    )
    for share, one in result["comparisons"].items():
        interval = one["interval"]
        which = "best known" if share == "known" else f"best within a {share}"
        say(
            f"{which} - baseline: {one['measure']} {interval['difference']:+.4f}, "
            f"{interval['confidence']:.0%} interval {interval['low']:+.4f} to {interval['high']:+.4f} "
            f"({len(one['seeds'])} seeds), {one['flops_ratio']:.3f} of the FLOPs, {one['params_ratio']:.3f} of the "
            "parameters",
            json,
        )
    if "tuning" in result:
        _say_tuned(result["tuning"], json)
    if result["last_failure"]:
        failed = sum(number for state, number in result["states"].items() if state not in ("finished", "pruned"))
        say(f"{failed} trials ended without an accuracy, the last: {result['last_failure']}", json)


def _say_tuned(tuning: dict[str, Any], json: str | None) -> None:
    baseline = tuning["baseline_ms"]
    told = tuning["baseline_reason"] if baseline is None else f"baseline {baseline:.4g} ms"
    say(f"{tuning['tuned']} tuned for {tuning['target']}, milliseconds of the {tuning['of']}; {told}", json)
    say_table(
        [
            {
                "front": f"trial {point['number']}",
                "accuracy": point["accuracy"],
                "ms": point["latency_ms"],
                "speedup": None if baseline is None else f"{baseline / point['latency_ms']:.2f}",
            }
            for point in tuning["front"]
        ],
        json,
    )
    for number, reason in tuning["failed"].items():
        say(f"trial {number} was not tuned: {reason}", json)
