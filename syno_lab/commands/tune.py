"""``syno-lab tune``: one operator by TVM MetaSchedule, on a device behind an RPC tracker."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from syno_lab.commands.operands import complete_binding, load_operator
from syno_lab.commands.output import JsonTarget, Reporter, check_json, say, write_json
from syno_lab.errors import SynoError


def command(
    operator: Annotated[str, typer.Argument(help="A known operator's name or an operator file.")],
    bind: Annotated[
        list[str] | None, typer.Option(metavar="NAME=NUMBER", help="A size such as C_in=64; may be repeated.")
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Candidates to measure.")] = 16,
    target: Annotated[
        str, typer.Option(help="local, local:THREADS, a Jetson such as jetson-orin-nano-cpu, or a TVM target.")
    ] = "local",
    tracker: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="An RPC tracker. [default: one of our own on 127.0.0.1]")
    ] = None,
    key: Annotated[str | None, typer.Option(help="The device's key at the tracker.")] = None,
    dtype: Annotated[str, typer.Option(help="float16, float32 or float64.")] = "float32",
    deadline: Annotated[float, typer.Option(help="Seconds for all of it.")] = 900.0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[Path, typer.Option(help="The folder for the log.")] = Path(".syno-lab/tuning"),
    json: JsonTarget = None,
) -> None:
    """Search for the fastest schedule of an operator and measure it on the device."""
    check_json(json)
    if (tracker is None) != (key is None):
        raise SynoError("expected --tracker HOST:PORT and --key KEY together, or neither for a board of our own")
    label, value = load_operator(operator)
    bound = complete_binding(value, bind or [])
    from syno_lab.evaluate.tuning import TuningProgress, TuningTask, check_tracker, local_board, tune
    from syno_lab.evaluate.tuning.targets import check_target
    from syno_lab.evaluate.tuning.tracker import parse_address

    task = TuningTask(label, value.to_json(), bound, dtype)
    check_target(target)
    with ExitStack() as stack:
        report = stack.enter_context(Reporter())

        def progress(now: TuningProgress) -> None:
            best = "" if now.best_ms is None else f", best {now.best_ms:.4f} ms"
            report("tune", now.trial / now.trials, f"trial {now.trial} of {now.trials}{best}, {now.failed} failed")

        if tracker is not None and key is not None:
            address = parse_address(tracker)
            check_tracker(*address, key, min(5.0, deadline), need_free=False)
        else:
            report("tune", 0.0, "starting a tracker and an RPC server on 127.0.0.1")
            board = stack.enter_context(local_board())
            address, key = board.address, board.key
        report("tune", 0.0, "importing TVM")
        result = tune(
            task,
            tracker=address,
            key=key,
            target=target,
            trials=trials,
            seed=seed,
            work_dir=out,
            on_progress=progress,
            deadline_s=deadline,
        )
    say(
        f"{label}: {result.latency_ms:.4f} ms (median of {result.repeats}, best {result.best_ms:.4f} ms) "
        f"after {result.trials} trials, {result.failed} failed, {result.seconds:.1f} s, for {result.target}",
        json,
    )
    write_json({**result.to_dict(), "binding": bound}, json)
