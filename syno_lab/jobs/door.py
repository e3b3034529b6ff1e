"""The door of a lab's folder for workers that do not see it: run by the worker on the lab's own machine, for them.

Such a worker takes a job, says that it lives, and brings what came out; each is a small task of Dask's on the worker
that has the resource :data:`HOME`. The store stays with the lab, and so does every decision: as for workers that see
the folder, only the holder of an attempt's token can end it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from syno_lab import private
from syno_lab.errors import JobError, StoreError
from syno_lab.inputs import quoted
from syno_lab.jobs import attempts, trust
from syno_lab.jobs.context import job_folder, log_path
from syno_lab.jobs.ledger import Ledger
from syno_lab.jobs.records import Ending, JobRecord
from syno_lab.processes import alive
from syno_lab.scratch import replacing
from syno_lab.version import __version__

#: The resource of the worker that sees the lab's folder: what must run there asks for one.
HOME = "home"
#: As many as nobody asks for at once.
HOMES = 100_000
#: The most bytes of a job's folder that travel, and of its log.
MOST_BYTES, MOST_LOG_BYTES = 1 << 30, 1 << 20

#: Files by their path in a folder.
Files = dict[str, bytes]


@dataclass(frozen=True)
class Taken:
    """An attempt that was begun in the name of a worker elsewhere.

    Attributes:
        token: of the attempt.
        job: its record.
        files: of its folder.
        lab: what tells this lab from others.
    """

    token: str
    job: JobRecord
    files: Files
    lab: str


def take(folder: str, number: int, place: str, boot: str, supervisor: str, version: str) -> Taken | None:
    """Begin an attempt in the name of a worker elsewhere; None where the job does not wait for one.

    Raises:
        JobError: the worker is of another version, nobody has signed the job, or its folder is too large to travel.
    """
    if version != __version__:
        raise JobError(f"expected a worker of Syno Lab {__version__}, found {quoted(version)}: install the same there")
    root, ledger = Path(folder), _ledger(folder)
    trust.check_signed(ledger, ledger.job(number))
    files = files_of(job_folder(root, number))
    lease = attempts.take(ledger, number, holder=(place, boot, supervisor))
    if lease is None:
        return None
    return Taken(lease.token, ledger.job(number), files, f"{alive.place()}\n{root}")


def beat(
    folder: str, number: int, token: str, progress: tuple[float, str] | None, files: Files, log: bytes | None
) -> str | None:
    """Say that an attempt is looked after, and keep what it brings.

    Returns:
        The user's wish (``pause``, ``cancel`` or nothing); None where the attempt was given to somebody else.
    """
    ledger = _ledger(folder)
    if not attempts.beat(ledger, number, token):
        return None
    if progress is not None:
        attempts.progress(ledger, number, token, *progress)
    _keep(Path(folder), ledger, number, files, log)
    return ledger.job(number).wish


def end(folder: str, number: int, token: str, ending: Ending, files: Files, log: bytes | None) -> bool:
    """Write down how an attempt ended, as its own process would have; False where it is somebody else's by now."""
    ledger = _ledger(folder)
    lease = ledger.lease(number)
    if lease is None or lease.token != token:
        return False
    _keep(Path(folder), ledger, number, files, log)
    return attempts.end(ledger, number, token, ending)


def files_of(folder: Path, known: dict[str, tuple[int, int]] | None = None) -> Files:
    """The files below a folder, by their paths in it; links and other things stay.

    Args:
        folder: of a job.
        known: size and time of files that were read before: only others are read, and it is brought up to date.

    Raises JobError where they are too large to travel.
    """
    found: Files = {}
    total = 0
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        with suppress(OSError):  # gone meanwhile
            if path.is_symlink() or not path.is_file():
                continue
            status = path.stat()
            total += status.st_size
            if total > MOST_BYTES:
                raise JobError(f"{folder}: expected at most {MOST_BYTES >> 20} MiB of files to travel, found more")
            name, stamp = path.relative_to(folder).as_posix(), (status.st_size, status.st_mtime_ns)
            if known is None or known.get(name) != stamp:
                found[name] = path.read_bytes()
                if known is not None:
                    known[name] = stamp
    return found


def write_files(folder: Path, files: Files) -> None:
    """Write files below a folder. Raises JobError for a path that leads out of it, before anything is written."""
    for name in files:
        parts = name.split("/")
        if name.startswith("/") or any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts):
            raise JobError(f"expected a path within a job's folder, found {quoted(name)}")
    for name, content in files.items():
        path = folder / name
        if path.is_symlink() or not path.parent.resolve().is_relative_to(folder.resolve()):
            raise JobError(f"expected a file within {folder}, found a link out of it at {quoted(name)}")
        _write(path, content)


def _write(path: Path, content: bytes) -> None:
    private.folder(path.parent)
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def _keep(root: Path, ledger: Ledger, number: int, files: Files, log: bytes | None) -> None:
    private.folder(job_folder(root, number))
    write_files(job_folder(root, number), files)
    if log is not None:
        _write(log_path(root, number, ledger.job(number).attempt), log[-MOST_LOG_BYTES:])


def _ledger(folder: str) -> Ledger:
    """The lab's rows, in the store that this worker has open. Raises StoreError where there is no lab."""
    from syno_lab.jobs.supervise import open_store
    from syno_lab.store.database import FILE_NAME

    if not (Path(folder) / FILE_NAME).is_file():
        raise StoreError(f"no lab in {folder} any more")
    return Ledger(open_store(folder).database)
