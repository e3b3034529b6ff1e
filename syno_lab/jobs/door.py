"""The functions of a lab's door. A worker without the lab's folder calls the functions on a worker that has the folder.

A worker on another machine takes a job, renews its lease and sends its results. Each request is a small Dask task on
the worker with the resource :data:`HOME`. The lab keeps the store: only a token's holder can end an attempt.
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

#: The resource of the worker that sees the lab's folder. Tasks that need the folder require this resource.
HOME = "home"
#: The worker's amount of :data:`HOME`, more than all tasks together can require.
HOMES = 100_000
#: The largest size in bytes of a job's folder that is sent, and of its log.
MOST_BYTES, MOST_LOG_BYTES = 1 << 30, 1 << 20

#: The contents of files by their paths in a folder.
Files = dict[str, bytes]


@dataclass(frozen=True)
class Taken:
    """An attempt of a worker on another machine.

    Attributes:
        token: the attempt's token.
        job: the job's record.
        files: the files in the job's folder.
        lab: the identifier of the lab.
    """

    token: str
    job: JobRecord
    files: Files
    lab: str


def take(folder: str, number: int, place: str, boot: str, supervisor: str, version: str) -> Taken | None:
    """Start an attempt for a worker on another machine; None where the job does not wait for an attempt.

    Raises:
        JobError: the worker has another version, the job is not signed, or its folder is too large to send.
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
    """Renew the lease of an attempt, and store the progress, the files and the log that its worker sends.

    Returns:
        The user's request (``pause``, ``cancel`` or an empty text); None where another process has the attempt.
    """
    ledger = _ledger(folder)
    if not attempts.beat(ledger, number, token):
        return None
    if progress is not None:
        attempts.progress(ledger, number, token, *progress)
    _keep(Path(folder), ledger, number, files, log)
    return ledger.job(number).wish


def end(folder: str, number: int, token: str, ending: Ending, files: Files, log: bytes | None) -> bool:
    """Record the ending of an attempt; return False where another process has the attempt."""
    ledger = _ledger(folder)
    if ledger.lease(number, token) is None:
        return False
    _keep(Path(folder), ledger, number, files, log)
    return attempts.end(ledger, number, token, ending)


def files_of(folder: Path, known: dict[str, tuple[int, int]] | None = None) -> Files:
    """Return the files below a folder by their relative paths, without links and special files.

    Args:
        folder: a job's folder.
        known: size and modification time of files that were read before. Only changed files are read. Updated in place.

    Raises JobError where the files are too large to send.
    """
    files: Files = {}
    total = 0
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        with suppress(OSError):  # the job may remove the file meanwhile
            if path.is_symlink() or not path.is_file():
                continue
            status = path.stat()
            total += status.st_size
            if total > MOST_BYTES:
                raise JobError(f"{folder}: expected at most {MOST_BYTES >> 20} MiB of files to send, found more")
            name, stamp = path.relative_to(folder).as_posix(), (status.st_size, status.st_mtime_ns)
            if known is None or known.get(name) != stamp:
                files[name] = path.read_bytes()
                if known is not None:
                    known[name] = stamp
    return files


def write_files(folder: Path, files: Files) -> None:
    """Write files below a folder. Raises JobError for a path outside the folder, before any file is written."""
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
    """Return the jobs in the store that this worker has open. Raises StoreError where there is no lab."""
    from syno_lab.jobs.supervise import open_store
    from syno_lab.store.database import FILE_NAME

    if not (Path(folder) / FILE_NAME).is_file():
        raise StoreError(f"no lab in {folder} any more")
    return Ledger(open_store(folder).database)
