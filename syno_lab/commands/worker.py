"""``syno-lab worker``: run jobs of a lab that is on another machine."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syno_lab import private
from syno_lab.commands.output import say, tell, write_json
from syno_lab.errors import JobError
from syno_lab.inputs import count_of, printable, quoted

if TYPE_CHECKING:
    from syno_lab.jobs.endpoint import Endpoint

_JOIN_S = 20.0
_END_S = 10.0
#: Seconds within which a scheduler must answer. A worker that ends after fewer seconds than this is not started again.
_LOOK_S, _SHORT_S = 5.0, 30.0


def command(
    scheduler: Annotated[
        str, typer.Argument(metavar="tls://HOST:PORT", help="What `syno-lab jobs serve` has printed.")
    ],
    certificate: Annotated[
        Path, typer.Option(metavar="FILE", help="The file that `syno-lab jobs serve` has written, copied to here.")
    ],
    listen: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="This machine's address, as the lab's machine sees it; with TLS."),
    ] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Jobs at a time. [default: one for every two cores]")] = None,
    gpus: Annotated[
        str,
        typer.Option(metavar="all|N|NAME,...", help="The GPUs that jobs may have, one each unless they ask for more."),
    ] = "0",
    patience: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="How long a scheduler that went away is looked for.")
    ] = 120.0,
) -> None:
    """Run jobs of a lab on another machine, until Ctrl-C.

    If the scheduler ends, the worker waits for it, and joins it again when the lab has restarted it.

    The machines share no folder: operators, checkpoints and results are sent, and the results store stays with the lab.
    Data must be here under the same path. Whoever has the certificate's file can run code on both machines.
    """
    from syno_lab.jobs import away
    from syno_lab.jobs import gpus as devices
    from syno_lab.jobs.cluster import CORES_A_SLOT, SPARE_THREADS, check_own_address, dask_command, dask_environment
    from syno_lab.jobs.dispatch import SLOT, scheduler_name
    from syno_lab.jobs.endpoint import Endpoint
    from syno_lab.processes.process import cores

    if not scheduler.startswith("tls://"):
        raise JobError(f"expected a scheduler's address as tls://HOST:PORT, found {quoted(scheduler)}")
    if not certificate.is_file():
        raise JobError(f"--certificate: expected the file that `syno-lab jobs serve` writes, found {certificate}")
    private.check_own(certificate)
    endpoint = Endpoint(scheduler, *[str(certificate.absolute())] * 2)
    host = _own_address(scheduler, listen)
    check_own_address(host)
    names = devices.parse(gpus)
    job_slots = slots or max(1, cores() // CORES_A_SLOT)
    name: str | None = scheduler_name(endpoint, _JOIN_S)
    home = private.folder(private.config_folder() / away.FOLDER)
    resources = f"{SLOT}={job_slots}" + (f" {devices.GPU}={len(names)}" if names else "")
    environment = dask_environment(certificate.absolute(), f"worker of {scheduler}", ",".join(names))
    words = dask_command(
        "worker", scheduler, "--no-nanny", "--nthreads", str(job_slots + SPARE_THREADS), "--memory-limit", "0",
        "--host", host, "--resources", resources, "--death-timeout", "30", "--local-directory", str(home),
    )  # fmt: skip

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            errors="replace", cwd=home, env={**environment, away.VARIABLE: "1"}, start_new_session=True,
            umask=private.UMASK,
        )  # fmt: skip

    with_gpus = f", GPUs {', '.join(names)}" if names else ""
    process = start()
    say(f"joins {scheduler} with {count_of(job_slots, 'slot')}{with_gpus}; Ctrl-C ends it")
    write_json({"scheduler": scheduler, "slots": job_slots, "gpus": list(names), "listen": host, "pid": process.pid})
    while True:
        start_time = time.monotonic()
        last = _follow(process)
        is_short, joined = time.monotonic() - start_time < _SHORT_S, name
        name = _find_scheduler(endpoint, 0.0)
        if name == joined and is_short:  # the worker itself failed: a new worker would fail too
            raise JobError(f"the worker has ended: {printable(last, 300) or 'no word from it'}")
        if name is None:
            tell(f"the scheduler at {scheduler} went away, and its jobs here stop; looks for it for {patience:g} s")
            name = _find_scheduler(endpoint, patience)
        if name is None:
            raise JobError(
                f"the scheduler at {scheduler} has not come back within {patience:g} s: start it on the lab's machine "
                "with `syno-lab jobs serve`, then this worker again"
            )
        process = start()
        tell(f"joins {scheduler} again")


def _follow(process: subprocess.Popen[str]) -> str:
    """Wait for the end of a worker, and return its last line; end the worker if this command ends."""
    last = ""
    try:
        assert process.stderr is not None
        for line in process.stderr:
            last = line.strip() or last
        process.wait()
    finally:
        _end(process)
    return last


def _find_scheduler(endpoint: Endpoint, patience_s: float) -> str | None:
    """Return the identifier of the scheduler if it answers within ``patience_s`` seconds, else None."""
    from syno_lab.jobs.dispatch import scheduler_name

    deadline = time.monotonic() + patience_s
    while True:
        try:
            return scheduler_name(endpoint, _LOOK_S)
        except JobError:
            if time.monotonic() >= deadline:
                return None
            time.sleep(1.0)


def _own_address(scheduler: str, listen: str | None) -> str:
    """Return the address on which this machine listens: ``listen``, or loopback if the scheduler is on this machine."""
    from syno_lab.processes.own_listener import is_loopback

    if listen is not None:
        return listen
    host = scheduler.partition("://")[2].rpartition(":")[0].strip("[]")
    if is_loopback(host):
        return "127.0.0.1"
    raise JobError(f"expected --listen ADDRESS, this machine's address as {host} sees it: the scheduler connects there")


def _end(process: subprocess.Popen[str]) -> None:
    """End the worker. A running job stops; the lab runs it on another worker, from the checkpoints that were sent."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    deadline = time.monotonic() + _END_S
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
