"""``syno-lab tune``: tune operators by TVM MetaSchedule, on this machine or on a device at an RPC tracker."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from syno_lab.commands.detach import DetachOption, FolderOption, detach_all
from syno_lab.commands.operands import OPERATOR, complete_binding, complete_operator, load_operator, sized
from syno_lab.commands.options import check_board, flag
from syno_lab.commands.output import Reporter, say, write_json
from syno_lab.errors import SynoError, TuningError
from syno_lab.inputs import quoted
from syno_lab.settings import TuningBudget
from syno_lab.systems import builder_of
from syno_lab.versioned import JSON

if TYPE_CHECKING:
    from syno_lab.tuning import TuningProgress, TuningResult, TuningTask


def command(
    operator: Annotated[
        list[str],
        typer.Argument(help=f"{OPERATOR}; several may be given.", autocompletion=complete_operator),
    ],
    bind: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="A size, as in --bind N=1; one for each variable of the operators."),
    ] = None,
    *,
    tuned: TuningBudget,
    dtype: Annotated[str, typer.Option(help="float16, float32 or float64.")] = "float32",
    deadline: Annotated[float | None, typer.Option(help="Seconds for all operators. [default: by the trials]")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A schedule rule, or FILE.py:FUNCTION; may be repeated. [default: the lab's and TVM's]",
        ),
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:FUNCTION", help="A function that schedules the whole program; it replaces all rules."
        ),
    ] = None,
    strategy: Annotated[str, typer.Option(help="evolutionary, replay-trace or replay-func.")] = "evolutionary",
    cost_model: Annotated[str, typer.Option(help="xgboost, random, or FILE.py:CLASS.")] = "xgboost",
    mutator: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SHARE",
            help="A mutator with its share, or FILE.py:FUNCTION=SHARE; may be repeated. [default: TVM's]",
        ),
    ] = None,
    postprocessor: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A postprocessor, or FILE.py:FUNCTION; may be repeated. [default: TVM's]"),
    ] = None,
    start_from: Annotated[
        Path | None,
        typer.Option(
            help="A folder of records, of any method, to start from: trials of the same program, machine and TVM."
        ),
    ] = None,
    compare: Annotated[
        bool, flag("--compare", "Measure PyTorch eager and torch.compile as well (target local).")
    ] = False,
    out: Annotated[Path, typer.Option(help="The folder for logs.")] = Path(".syno-lab/tuning"),
    records: Annotated[
        Path | None,
        typer.Option(help="The folder of records, from which repeated tunings are answered. [default: OUT/records]"),
    ] = None,
    folder: FolderOption = None,
    detach: DetachOption = False,
) -> None:
    """Search the fastest schedule of each operator and measure it on the target.

    A job keeps its records in the folder `tuning` of the lab.
    """
    preset, trials, target, tracker, key = msgspec.structs.astuple(tuned)
    if (tracker is None) != (key is None):
        raise SynoError("expected --tracker HOST:PORT and --key KEY together, or neither to tune on this machine")
    tasks = _tasks(operator, folder, bind, dtype)
    from syno_lab.tuning import Method, TuningOptions, tune_queue
    from syno_lab.tuning.method import to_job
    from syno_lab.tuning.options import enough_s, find_preset
    from syno_lab.tuning.records import record_files
    from syno_lab.tuning.targets import check_target, local_threads

    budget = find_preset(preset).trials if trials is None else trials
    seconds = deadline if deadline is not None else enough_s(budget, len(tasks))
    check_target(target)
    if start_from is not None:
        record_files(start_from)
    shares = None if mutator is None else _shares(mutator)
    last = None if postprocessor is None else tuple(postprocessor)
    method = Method(tuple(rule) if rule else Method.rules, space, strategy, cost_model, shares, last)
    if compare and local_threads(target) is None:
        raise SynoError(f"--compare: expected --target local, on which PyTorch runs as well, found {quoted(target)}")
    if detach:
        if compare or records is not None or start_from is not None:
            raise SynoError(
                "--detach: expected a tuning alone, in its lab; leave --compare, --records and --start-from out"
            )
        params: dict[str, Any] = {"tasks": [task.request() for task in tasks], **msgspec.structs.asdict(tuned)}
        params |= {"seed": seed, "deadline_s": seconds, **to_job(method)}
        detach_all([("tune", params, ", ".join(task.label for task in tasks))], folder)
        return
    if folder is not None and not any("#" in name for name in operator):
        raise SynoError("--folder: expected --detach or a trial with it; without them, use --out and --records")
    store = records if records is not None else out / "records"
    done_of: dict[str, float] = {}
    with ExitStack() as stack:
        report = stack.enter_context(Reporter())

        def progress(now: TuningProgress) -> None:
            done_of[now.label] = now.trial / now.trials
            name = f"{now.label}: " if len(tasks) > 1 else ""
            report("tune", sum(done_of.values()) / len(tasks), f"{name}{now}")

        if tracker is not None and key is not None:
            check_board(tracker, key, seconds)
        report("tune", 0.0, "looking at the records, then importing TVM")
        chosen = {**msgspec.structs.asdict(tuned), "trials": budget, "seed": seed, "deadline_s": seconds}
        options = TuningOptions(work_dir=out, store=store, method=method, start=start_from, **chosen)
        done = tune_queue(tasks, options, on_progress=progress)
        results, failed = done.results, done.failed
        if results and all(result.from_records for result in results.values()):
            report("tune", 1.0, "all candidates are in the records")
    rows = [_print_result(task, results[task.label], store, compare) for task in tasks if task.label in results]
    for label, reason in failed.items():
        if not rows:
            raise TuningError(f"{label}: {reason}")
        say(f"{label}: not tuned: {reason}")
    write_json(rows[0] if len(tasks) == 1 else {"results": rows, "failed": failed})


def _tasks(names: list[str], folder: Path | None, bind: list[str] | None, dtype: str) -> list[TuningTask]:
    """Return a task for each operator, with the sizes of that operator's variables."""
    from syno_lab.tuning import TuningTask

    sizes = [(text.partition("=")[0].strip(), text) for text in bind or ()]
    loaded = [load_operator(name, folder) for name in names]
    known = {name for _, value, _ in loaded for name in value.variables}
    tasks = []
    for found in loaded:
        label, value, _ = found
        own_sizes = [text for name, text in sizes if name in value.variables or name not in known]
        text = value.to_json()
        tasks.append(TuningTask(label, text, complete_binding(value, sized(found, own_sizes)), dtype, builder_of(text)))
    return tasks


def _shares(texts: list[str]) -> list[tuple[str, float]]:
    """Parse mutators with their shares from ``NAME=SHARE``."""
    shares = []
    for text in texts:
        name, _, share = text.rpartition("=")
        try:
            shares.append((name, float(share)))
        except ValueError:
            raise SynoError(f"--mutator: expected NAME=SHARE, as in tile-size=0.9, found {quoted(text)}") from None
    return shares


def _print_result(task: TuningTask, result: TuningResult, store: Path, compare: bool) -> dict[str, JSON]:
    """Print a result with its comparison, and return data for JSON."""
    from syno_lab.tuning.job import describe

    say(describe(result))
    row: dict[str, Any] = {
        **result.to_dict(),
        "binding": dict(task.binding),
        "seconds_per_trial": result.seconds_per_trial,
    }
    if compare:
        from syno_lab.tuning.measuring import WAYS, measure
        from syno_lab.tuning.records import key_of
        from syno_lab.tuning.targets import LOCAL

        key = key_of(task, result.target, result.tvm_version, result.conditions, result.method)
        threads = int(result.conditions.partition("threads=")[2].partition(" ")[0] or 0) or None
        comparison = measure(task, record=(store, key), threads=threads)
        for timing in comparison.timings:
            speedup = comparison.speedup(timing.way)
            more = "" if speedup is None or timing.way == "eager" else f", {speedup:.2f} times as fast as eager"
            say(f"  {timing}{more}")
            for note in timing.notes:
                say(f"    {note}")
        for way, reason in comparison.failed.items():
            say(f"  {WAYS[way]}: {reason}")
        for note in comparison.notes:
            say(f"  {LOCAL}: {note}")
        row["comparison"] = comparison.to_dict()
    return row
