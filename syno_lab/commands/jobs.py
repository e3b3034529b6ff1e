"""``syno-lab jobs``: list the jobs of a lab that wait, run or have ended, and control them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from syno_lab import private
from syno_lab.commands.detach import FolderOption, hand_over, use_lab
from syno_lab.commands.options import flag, with_options
from syno_lab.commands.output import say, say_table, table, tell, write_json
from syno_lab.errors import JobError, SynoError
from syno_lab.inputs import QUOTED, printable, quoted
from syno_lab.jobs.records import JobState
from syno_lab.jobs.trust import code_in, is_signed, unsigned

if TYPE_CHECKING:
    from syno_lab.jobs import JobRecord, Lab

#: The exit status of ``watch`` if a job has ended without a result.
NOT_ALL_FINISHED = 1
#: The share of a job that must be done before its remaining time is shown.
LEAST_DONE = 0.02
_PERIOD_S = 0.5
_PATIENCE_S = 5.0
_MESSAGE_LENGTH = 100
_REQUEST_LENGTH = 2_000

app = typer.Typer(help="List, watch and control the jobs of a lab.", invoke_without_command=True)


KindOption = Annotated[str | None, typer.Option(help="Only jobs of this kind: train, search, tune.")]
StateOption = Annotated[JobState | None, typer.Option(help="Only jobs in this state.")]
Job = Annotated[int, typer.Argument(metavar="JOB", help="A job's number.")]
Jobs = Annotated[list[int], typer.Argument(metavar="JOB…", help="Numbers of jobs.")]


def job_row(record: JobRecord) -> dict[str, str]:
    """Describe a job in a row of the table: its kind and name, its state and the reason.

    ``done`` is in percent, ``left`` is the estimated remaining time, and ``wall_s`` is the sum of the seconds of all
    attempts, including the current one.
    """
    seconds = record.wall_s
    if record.state == "running" and record.started is not None:
        seconds += max(0.0, (datetime.now(UTC) - datetime.fromisoformat(record.started)).total_seconds())
    state = f"{record.state}, to {record.wish}" if record.wish else record.state
    message = " ".join((record.reason or record.message).split())
    return {
        "job": str(record.id),
        "kind": record.kind,
        "name": record.name,
        "state": state,
        "done": f"{100 * record.progress:.0f} %",
        "left": left_text(record, seconds),
        "attempt": f"{record.attempt}",
        "wall_s": f"{seconds:.1f}",
        "message": message if len(message) <= _MESSAGE_LENGTH else message[: _MESSAGE_LENGTH - 1] + "…",
    }


def left_text(record: JobRecord, seconds: float) -> str:
    """Estimate the remaining time of a running job from its progress after ``seconds``; empty if unknown."""
    if record.state != "running" or not LEAST_DONE <= record.progress < 1:
        return ""
    remaining = seconds * (1 - record.progress) / record.progress
    for most, unit, name in ((90, 1, "s"), (90 * 60, 60, "min"), (36 * 3600, 3600, "h")):
        if remaining < most:
            return f"about {max(1, round(remaining / unit))} {name}"
    return f"about {remaining / 86400:.0f} days"


def possible_actions(record: JobRecord) -> tuple[str, ...]:
    """Return the actions among ``pause``, ``resume``, ``cancel`` and ``retry`` that the job's state allows."""
    if record.state == "finished" or record.wish == "cancel":
        return ()
    if record.is_ended:
        return ("retry",)
    return ("resume" if record.state == "paused" or record.wish == "pause" else "pause", "cancel")


@app.callback()
@with_options
def every(
    context: typer.Context, folder: FolderOption = None, kind: KindOption = None, state: StateOption = None
) -> None:
    """List, watch and control the jobs of a lab; without a subcommand, list them."""
    if context.invoked_subcommand is None:
        list_jobs(folder, kind, state)
    elif any(value is not None for value in context.params.values()):
        raise SynoError(f"expected the options after {quoted(context.invoked_subcommand)}, found them before it")


@app.command(name="list")
def list_jobs(folder: FolderOption = None, kind: KindOption = None, state: StateOption = None) -> None:
    """List the jobs, after correcting the states of jobs whose process is dead."""
    with use_lab(folder, start=False) as lab:
        records = lab.jobs(kind=kind, state=state)
        if not records:
            say(f"no jobs in {lab.folder}")
    _say_jobs(records)


@app.command()
def show(job: Job, folder: FolderOption = None) -> None:
    """Show the record of a job: its parameters, attempts and result."""
    with use_lab(folder, start=False) as lab:
        handle = lab.job(job)
        record, attempts = handle.record(), handle.attempts()
    facts = msgspec.to_builtins(record)
    for name, value in facts.items():
        say(f"{name + ':':<13} {_fact(value)}")
    for attempt in attempts:
        ending = "runs" if attempt.ended is None else attempt.cause or "gave its result"
        say(f"attempt {attempt.attempt}: {ending}, {attempt.wall_s:.1f} s, on {attempt.host}")
    write_json({**facts, "attempts": msgspec.to_builtins(attempts)})


@app.command()
def watch(
    jobs: Annotated[list[int] | None, typer.Argument(metavar="[JOB…]", help="Numbers. [default: all jobs]")] = None,
    folder: FolderOption = None,
) -> int:
    """Watch jobs until none of them waits or runs. Ctrl-C ends only the watching.

    The exit status is 0 if all jobs have finished, else 1.
    """
    with use_lab(folder) as lab:
        records = _follow(lab, jobs or None)
        if not records:
            say(f"no jobs in {lab.folder}")
    _say_jobs(records)
    return 0 if all(record.state == "finished" for record in records) else NOT_ALL_FINISHED


def _steering(action: str, about: str) -> None:
    """Add a command that performs an action on each job."""
    runs = action in ("resume", "retry")

    def command(jobs: Jobs, folder: FolderOption = None) -> None:
        with use_lab(folder, start=runs) as lab:
            handles = [lab.job(job) for job in jobs]  # look up all jobs first, so that a wrong number changes nothing
            for handle in handles:
                record = handle.record()
                if action not in possible_actions(record):
                    can = " or ".join(possible_actions(record))
                    rest = f"; it can be asked to {can}" if can else ""
                    raise SynoError(f"job {record.id} is {record.state} and cannot be asked to {action}{rest}")
                getattr(handle, action)()
            if runs:
                hand_over(lab)
            records = [handle.record() for handle in handles]
        _say_jobs(records)

    app.command(name=action, help=about)(command)


_steering("cancel", "End jobs, and the jobs that they submitted; their files are kept.")
_steering("pause", "Stop jobs at their next checkpoint, until `resume`.")
_steering("resume", "Let paused jobs continue from their checkpoints.")
_steering("retry", "Queue jobs again that failed, died or were cancelled; they continue from their checkpoints.")


@app.command()
def allow(
    jobs: Annotated[list[int] | None, typer.Argument(metavar="[JOB…]", help="Numbers of jobs.")] = None,
    every: Annotated[bool, flag("--all", "All jobs that wait because they lack your signature.")] = False,
    yes: Annotated[bool, flag("--yes", "Do not ask: allow the jobs that are shown.")] = False,
    folder: FolderOption = None,
) -> None:
    """Show the code and the parameters of jobs that you have not submitted, and let them run in your name.

    A lab that was copied from another person runs no jobs until then.
    """
    if bool(jobs) == every:
        raise SynoError("expected the numbers of jobs, or --all")
    with use_lab(folder) as lab:
        records = [lab.job(number).record() for number in jobs or [job.id for job in lab.jobs() if not job.is_ended]]
        pending = [record for record in records if not is_signed(lab.ledger, record)]
        for record in pending:
            _say_request(record)
        if pending and not yes:
            if not sys.stdin.isatty():
                raise SynoError(f"{len(pending)} to allow, shown above: the same command with --yes signs them")
            typer.confirm("Run this as you?", abort=True, err=True)
        for record in pending:
            lab.job(record.id).allow(record)
        hand_over(lab)
        allowed = [lab.job(record.id).record() for record in pending]
        if not pending:
            say("nothing to allow: all of these jobs are signed with your key")
    _say_jobs(allowed)


def _say_request(record: JobRecord) -> None:
    """Print a job's parameters, and its code line by line, without control characters."""
    for code in code_in(record.params):
        say(f"job {record.id} runs this code, {quoted(code.get('name'))} of {quoted(code.get('origin'))}:")
        for line in str(code["source"]).expandtabs().splitlines():
            say(f"  | {printable(line)}")
    say(f"job {record.id}: {quoted(record.kind)} {quoted(record.name)}, with")
    for name, value in record.params.items():
        say(f"  {printable(name, QUOTED)}: {printable(_fact(msgspec.to_builtins(value)), _REQUEST_LENGTH)}")


@app.command()
def log(
    job: Job,
    folder: FolderOption = None,
    attempt: Annotated[int | None, typer.Option(min=1, help="Which attempt. [default: the last]")] = None,
    tail: Annotated[int | None, typer.Option(min=1, help="Only the last lines.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show new lines until the job ends.")] = False,
) -> None:
    """Show the log of a job."""
    with use_lab(folder, start=False) as lab:
        handle = lab.job(job)
        text = handle.log(attempt)
        shown = text if tail is None else "".join(text.splitlines(keepends=True)[-tail:])
        _say_text(shown)
        while follow and not (record := handle.record()).is_ended and record.reason != unsigned(job):
            time.sleep(_PERIOD_S)
            before, text = text, handle.log(attempt)
            _say_text(text[len(before) :] if text.startswith(before) else text)  # else a new attempt's log
    write_json({"job": job, "log": text})


@app.command()
def stop(folder: FolderOption = None) -> None:
    """Pause all jobs and end the lab's workers on this machine; `resume` lets the jobs continue."""
    with use_lab(folder, start=False) as lab:
        pending = [record.id for record in lab.jobs() if not record.is_ended]
        for number in pending:
            lab.job(number).pause()
        deadline = time.monotonic() + _PATIENCE_S
        while lab.jobs(state="running") and time.monotonic() < deadline:  # jobs stop at their next checkpoint
            time.sleep(_PERIOD_S)
        lab.shutdown()
        say(f"stopped the workers of {lab.folder}; jobs on hold: {', '.join(map(str, pending)) or 'none'}")
    write_json({"stopped": True, "jobs": pending})


@app.command()
def serve(
    listen: Annotated[
        str, typer.Option(metavar="ADDRESS", help="This machine's address for workers of other machines; with TLS.")
    ],
    certificate: Annotated[
        Path, typer.Option(metavar="FILE", help="Where to write the file that opens the cluster: copy it to them.")
    ],
    port: Annotated[int | None, typer.Option(min=1, max=65_535, help="Of the scheduler. [default: 8786]")] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Jobs at a time on this machine.")] = None,
    gpus: Annotated[
        str | None, typer.Option(metavar="all|N", help="GPUs of this machine that jobs may ask for. [default: none]")
    ] = None,
    idle_minutes: Annotated[
        float, typer.Option(min=0.01, help="The cluster ends after so long without a job.")
    ] = 720.0,
    folder: FolderOption = None,
) -> None:
    """Have the lab's scheduler listen on an address of this machine, so that other machines can join as workers.

    Traffic is encrypted, and only workers with the certificate's file can join: copy it, as over SSH, and keep it
    secret. On the other machine `syno-lab worker tls://ADDRESS:PORT --certificate FILE` joins.
    """
    from syno_lab.commands.detach import lab_folder
    from syno_lab.jobs import Lab
    from syno_lab.jobs.gpus import parse

    is_other = not certificate.is_file() or b"-----BEGIN " not in certificate.read_bytes()[:100]
    if certificate.exists() and is_other:  # writing would destroy its content
        raise JobError(f"--certificate: expected a new file, or one of an earlier certificate, found {certificate}")
    count = None if gpus is None else len(parse(gpus))
    settings: dict[str, Any] = {"slots": slots, "gpus": count, "idle_minutes": idle_minutes}
    root = lab_folder(folder)
    _check_own_lab(root)
    with Lab.open(root, **settings, listen=listen, port=port, start=False, is_thorough=False) as lab:
        address = lab.cluster.serve().address
        certificate.unlink(missing_ok=True)
        with private.create(certificate, "xb") as file:
            file.write(lab.cluster.certificate())
    say(f"{address} waits for workers; the certificate is in {certificate}, for you alone. On the other machine:")
    command = f"syno-lab worker {address} --certificate {certificate.name}"
    say(f"  {command}")
    write_json({"address": address, "certificate": str(certificate), "command": command})


def _check_own_lab(root: Path) -> None:
    """Refuse to serve a folder that another user owns or may write to, because other machines run jobs from it.

    First remove other users' rights on the lab if the user owns it, as when a lab is opened.
    """
    from syno_lab.store.database import FILE_NAME

    if root.is_dir():
        private.narrow_lab(root, FILE_NAME)
        try:
            private.check_own(root)
        except SynoError as error:
            raise JobError(f"{error}; other machines take jobs from it: copy the lab to a folder of your own") from None


def _say_jobs(records: Sequence[JobRecord]) -> None:
    say_table([job_row(record) for record in records])
    write_json(records)


def _say_text(text: str) -> None:
    if text:
        say(text.removesuffix("\n"))


def _follow(lab: Lab, numbers: Iterable[int] | None) -> list[JobRecord]:
    """Return the records at the end; print changes on standard error, as a table on a terminal, else as lines."""
    from rich.console import Console
    from rich.live import Live

    wanted = None if numbers is None else {lab.job(number).id for number in numbers}

    def look() -> list[JobRecord]:
        all_records = lab.jobs()
        return all_records if wanted is None else [record for record in all_records if record.id in wanted]

    console = Console(stderr=True)
    records = look()
    printed: dict[int, str] = {}
    with Live(console=console, transient=True, auto_refresh=False) as live:
        while True:
            if console.is_terminal:
                live.update(table([job_row(record) for record in records]), refresh=True)
            else:
                now = {record.id: f"job {record.id}: {record.state} {record.reason}".rstrip() for record in records}
                for number, line in now.items():
                    if printed.get(number) != line:
                        tell(line)
                printed = now
            if not any(record.state in ("waiting", "running") for record in records):
                return records
            time.sleep(_PERIOD_S)
            records = look()


def _fact(value: object) -> str:
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    return "–" if value is None or value == "" else str(value)
