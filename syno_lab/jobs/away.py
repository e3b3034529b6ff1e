"""Jobs on a machine that does not see the lab's folder. On that machine ``syno-lab worker`` takes a job through `door`.

For each lab, the worker has a small lab in the user's configuration folder: a store, and the job's folder and log. The
job runs there as any job does (:mod:`.supervise`). The worker sends the job's files to the lab while the job runs, so
that another machine can continue from the checkpoint. At the end of the job, the worker sends the log and the result.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno_lab import private
from syno_lab.errors import JobError, StoreError
from syno_lab.jobs import attempts, door, trust
from syno_lab.jobs.child import insist
from syno_lab.jobs.context import job_folder, log_path
from syno_lab.jobs.ledger import Ledger
from syno_lab.jobs.records import Ending, JobRecord
from syno_lab.processes import alive
from syno_lab.version import __version__

if TYPE_CHECKING:
    from distributed import Client, Future

#: An environment variable that marks a worker that joined from elsewhere. Joined workers do not see the lab's folder.
VARIABLE = "SYNO_LAB_AWAY"
#: The folder in the user's configuration folder with a small lab for each lab whose jobs run on this machine.
FOLDER = "away"
#: Seconds between two heartbeats, and seconds between two checks of a running job's files.
BEAT_S, FILES_S = 1.0, 10.0
#: Seconds within which the door must answer, and seconds for which requests to a silent lab are repeated.
ANSWER_S, PATIENCE_S = 30.0, 120.0
#: An environment variable for tests: seconds between two checks of a job's files.
FILES_VARIABLE = "SYNO_LAB_AWAY_FILES_S"


def run(folder: str, number: int) -> None:
    """Run a waiting job of the lab in ``folder`` on this machine; return when the attempt has ended.

    Raises JobError where the lab has no door, or the job cannot run on another machine.
    """
    from syno_lab.jobs.dispatch import worker_client
    from syno_lab.jobs.supervise import Supervisor, open_store

    client = worker_client()
    attempt: door.Taken | None = _ask(
        client, door.take, folder, number, alive.place(), alive.boot(), alive.me(), __version__
    )
    if attempt is None:
        return
    root = private.folder(private.config_folder() / FOLDER / hashlib.sha256(attempt.lab.encode()).hexdigest()[:32])
    ledger = Ledger(open_store(str(root)).database)
    token = attempt.token
    known: dict[str, tuple[int, int]] = {}
    try:
        job = _copy_job(ledger, root, attempt.job, attempt.files, known)
        lease = attempts.take(ledger, job.id)
        if lease is None:
            raise JobError(f"job {job.id} cannot start here")
    except (JobError, StoreError, OSError) as error:
        ending = Ending("stopped", f"it could not be begun on {alive.place().partition('/')[0]}: {error}")
        _ask(client, door.end, folder, number, token, ending, {}, None)
        return
    over = threading.Event()
    messenger = threading.Thread(
        target=_tell,
        args=(client, folder, token, ledger, root, number, known, over),
        name=f"away-{number}",
        daemon=True,
    )
    messenger.start()
    try:
        Supervisor(ledger, root, lease).run()
    finally:
        over.set()
        messenger.join()
    ended = ledger.job(number)
    with suppress(JobError):
        log = _log(root, ended)
        try:
            files = door.files_of(job_folder(root, number), known)
        except JobError as error:  # too large files are left out of the final message
            files, log = {}, (log or b"") + f"\n{error}\n".encode()
        ending = _how(ledger, ended)
        insist(lambda line: None, lambda: _ask(client, door.end, folder, number, token, ending, files, log), PATIENCE_S)
        shutil.rmtree(job_folder(root, number), ignore_errors=True)


def _copy_job(
    ledger: Ledger, root: Path, job: JobRecord, files: door.Files, known: dict[str, tuple[int, int]]
) -> JobRecord:
    """Copy the job into the small lab as waiting. Sign the copy; the lab's machine has checked the job's signature."""
    for lease in ledger.leases():  # a worker on this machine may have lost the scheduler during an earlier attempt
        if lease.job == job.id:
            alive.end_attempt(lease.token, alive.TERM_S)
    copied_folder = job_folder(root, job.id)
    shutil.rmtree(copied_folder, ignore_errors=True)
    private.folder(copied_folder)
    door.write_files(copied_folder, files)
    door.files_of(copied_folder, known)
    fresh = replace(
        job, state="waiting", wish="", after=(), parent=None, max_attempts=1, deaths=0, result=None,
        attempt=job.attempt - 1, wall_s=0.0, cpu_s=0.0, reason="", started=None, ended=None,
    )  # fmt: skip
    with ledger.database.transaction():
        for table in ("syno_leases", "syno_attempts", "syno_progress"):
            ledger.database.remove(table, "job", job.id)
        ledger.write(fresh)
        trust.sign(ledger, ledger.job(job.id))
    return ledger.job(job.id)


def _tell(
    client: Client,
    folder: str,
    token: str,
    ledger: Ledger,
    root: Path,
    number: int,
    known: dict[str, tuple[int, int]],
    over: threading.Event,
) -> None:
    """Send the attempt's progress, log and files to the lab until it ends; pass the user's requests to the job."""
    every = float(os.environ.get(FILES_VARIABLE) or FILES_S)
    silent_since: float | None = None
    checked = time.monotonic()
    while not over.wait(BEAT_S):
        with suppress(StoreError):
            job = ledger.job(number)
            files: door.Files = {}
            log: bytes | None = None
            if time.monotonic() - checked >= every:
                checked = time.monotonic()
                with suppress(JobError):  # the final message logs this error
                    files, log = door.files_of(job_folder(root, number), known), _log(root, job)
            try:
                wish = _ask(client, door.beat, folder, number, token, (job.progress, job.message), files, log)
            except JobError:
                lost = [name for name in files if name in known]
                for name in lost:  # the file must be sent again
                    del known[name]
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since < PATIENCE_S:
                    continue
                wish = None  # an unreachable lab gives the job to another worker
            else:
                silent_since = None
            _heed(ledger, number, wish)


def _heed(ledger: Ledger, number: int, wish: str | None) -> None:
    """Write a request of the user into the small lab's job, where the supervisor and the job's process read it."""
    with ledger.database.transaction():
        job = ledger.job(number)
        wanted = "cancel" if wish is None else wish
        if job.state == "running" and job.wish != wanted:
            ledger.write(replace(job, wish=wanted))


def _how(ledger: Ledger, job: JobRecord) -> Ending:
    """Return the ending of the attempt in the form in which the lab records it."""
    seconds = job.wall_s, job.cpu_s
    if job.state == "finished":
        return Ending("finished", "", job.result, *seconds)
    if job.state == "failed":
        return Ending("failed", job.reason, None, *seconds)
    cause = next((past.cause for past in reversed(ledger.attempts(job.id)) if past.attempt == job.attempt), "")
    return Ending("died" if job.state == "poisoned" else "stopped", cause or job.reason, None, *seconds)


def _log(root: Path, job: JobRecord) -> bytes | None:
    with suppress(OSError):
        return log_path(root, job.id, job.attempt).read_bytes()[-door.MOST_LOG_BYTES :]
    return None


def _ask(client: Client, call: Callable[..., Any], *args: Any) -> Any:
    """Call a function of the door. Raises JobError where the door does not answer or refuses."""
    try:
        request: Future[Any] = client.submit(
            call, *args, key=f"syno-door-{uuid.uuid4().hex}", resources={door.HOME: 1}, pure=False, priority=100
        )
        return request.result(ANSWER_S)
    except (JobError, StoreError):
        raise
    except Exception as error:
        name = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise JobError(f"the lab's own machine does not answer ({name})") from error
