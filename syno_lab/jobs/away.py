"""A job on a machine that does not see the lab's folder: ``syno-lab worker`` there takes it through the lab's door.

The worker has a small lab of its own for each lab that it works for, in its user's configuration folder: a store, the
job's folder and its log. The job runs there as any job does (:mod:`.supervise`), and what it leaves travels: its files
while it runs, so that another machine goes on from its checkpoint, its log, its result.
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

#: In the environment of a worker that another machine has joined with: it sees no lab's folder.
VARIABLE = "SYNO_LAB_AWAY"
#: In the user's configuration folder: a small lab for each lab that this machine works for.
FOLDER = "away"
#: Seconds between two signs of life, and between two looks at the files of a job that runs.
BEAT_S, FILES_S = 1.0, 10.0
#: Seconds within which the door must answer, and for which a lab that does not is asked again.
ANSWER_S, PATIENCE_S = 30.0, 120.0
#: In the environment, for tests: seconds between two looks at a job's files.
FILES_VARIABLE = "SYNO_LAB_AWAY_FILES_S"


def is_away() -> bool:
    """Whether this process is a worker that joined from another machine."""
    return bool(os.environ.get(VARIABLE))


def run(folder: str, number: int) -> None:
    """Do a job of the lab in ``folder`` elsewhere, if it still waits; return when its attempt has ended.

    Raises JobError where the lab has no door, or the job may not travel.
    """
    from syno_lab.jobs.dispatch import worker_client
    from syno_lab.jobs.supervise import Supervisor, open_store

    client = worker_client()
    taken: door.Taken | None = _ask(
        client, door.take, folder, number, alive.place(), alive.boot(), alive.me(), __version__
    )
    if taken is None:
        return
    root = private.folder(private.config_folder() / FOLDER / hashlib.sha256(taken.lab.encode()).hexdigest()[:32])
    ledger = Ledger(open_store(str(root)).database)
    token = taken.token
    known: dict[str, tuple[int, int]] = {}
    try:
        job = _brought(ledger, root, taken.job, taken.files, known)
        lease = attempts.take(ledger, job.id)
        if lease is None:
            raise JobError(f"job {job.id} cannot be begun here")
    except (JobError, StoreError, OSError) as error:
        ending = Ending("stopped", f"it could not be begun on {alive.place().partition('/')[0]}: {error}")
        _ask(client, door.end, folder, number, token, ending, {}, None)
        return
    over = threading.Event()
    teller = threading.Thread(
        target=_tell,
        args=(client, folder, token, ledger, root, number, known, over),
        name=f"away-{number}",
        daemon=True,
    )
    teller.start()
    try:
        Supervisor(ledger, root, lease).run()
    finally:
        over.set()
        teller.join()
    ended = ledger.job(number)
    with suppress(JobError):
        log = _log(root, ended)
        try:
            files = door.files_of(job_folder(root, number), known)
        except JobError as error:  # too large: the result travels all the same
            files, log = {}, (log or b"") + f"\n{error}\n".encode()
        ending = _how(ledger, ended)
        insist(lambda line: None, lambda: _ask(client, door.end, folder, number, token, ending, files, log), PATIENCE_S)
        shutil.rmtree(job_folder(root, number), ignore_errors=True)


def _brought(
    ledger: Ledger, root: Path, job: JobRecord, files: door.Files, known: dict[str, tuple[int, int]]
) -> JobRecord:
    """The job in the small lab, waiting, signed here: the lab's machine has looked at its own user's signature."""
    for lease in ledger.leases():  # of a worker here that lost the scheduler, and began the job before
        if lease.job == job.id:
            alive.end_attempt(lease.token, alive.TERM_S)
    place = job_folder(root, job.id)
    shutil.rmtree(place, ignore_errors=True)
    private.folder(place)
    door.write_files(place, files)
    door.files_of(place, known)
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
    """Until the attempt is over: bring what it says and leaves, and take the user's wishes to it."""
    every = float(os.environ.get(FILES_VARIABLE) or FILES_S)
    silent_since: float | None = None
    looked = time.monotonic()
    while not over.wait(BEAT_S):
        with suppress(StoreError):
            job = ledger.job(number)
            files: door.Files = {}
            log: bytes | None = None
            if time.monotonic() - looked >= every:
                looked = time.monotonic()
                with suppress(JobError):  # said at the end
                    files, log = door.files_of(job_folder(root, number), known), _log(root, job)
            try:
                wish = _ask(client, door.beat, folder, number, token, (job.progress, job.message), files, log)
            except JobError:
                known_lost = [name for name in files if name in known]
                for name in known_lost:  # it did not arrive
                    del known[name]
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since < PATIENCE_S:
                    continue
                wish = None  # the lab is gone: it has given the job to somebody else, or will
            else:
                silent_since = None
            _heed(ledger, number, wish)


def _heed(ledger: Ledger, number: int, wish: str | None) -> None:
    """Take a wish to the small lab's job, where the supervisor and the job's own process see it."""
    with ledger.database.transaction():
        job = ledger.job(number)
        wanted = "cancel" if wish is None else wish
        if job.state == "running" and job.wish != wanted:
            ledger.write(replace(job, wish=wanted))


def _how(ledger: Ledger, job: JobRecord) -> Ending:
    """How the attempt ended, for the lab."""
    seconds = job.wall_s, job.cpu_s
    if job.state == "finished":
        return Ending("finished", "", job.result, *seconds)
    if job.state == "failed":
        return Ending("failed", job.reason, None, *seconds)
    cause = next((one.cause for one in reversed(ledger.attempts(job.id)) if one.attempt == job.attempt), "")
    return Ending("died" if job.state == "poisoned" else "stopped", cause or job.reason, None, *seconds)


def _log(root: Path, job: JobRecord) -> bytes | None:
    with suppress(OSError):
        return log_path(root, job.id, job.attempt).read_bytes()[-door.MOST_LOG_BYTES :]
    return None


def _ask(client: Client, what: Callable[..., Any], *words: Any) -> Any:
    """The door's answer. Raises JobError where it does not answer, or refuses."""
    try:
        asked: Future[Any] = client.submit(
            what, *words, key=f"syno-door-{uuid.uuid4().hex}", resources={door.HOME: 1}, pure=False, priority=100
        )
        return asked.result(ANSWER_S)
    except (JobError, StoreError):
        raise
    except Exception as error:
        name = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise JobError(f"the lab's own machine does not answer ({name})") from error
