"""Folders for a store. The processes of a store share memory for its write-ahead log, so they must run on one machine.

https://www.sqlite.org/wal.html: "WAL does not work over a network filesystem." The log would damage files silently.
"""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from pathlib import Path

from syno_lab.errors import StoreError

#: Linux's names of network file systems, whose files another machine may have open too.
# fmt: off
NETWORK = frozenset((
    "9p", "afpfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.ceph", "fuse.davfs", "fuse.glusterfs",
    "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "panfs", "smb2",
    "smb3", "smbfs", "vboxsf", "webdav",
))
# fmt: on
#: The environment variable to set to 1 if only one machine uses the folder.
VARIABLE = "SYNO_LAB_NETWORK_STORE"
_MOUNTS = Path("/proc/self/mountinfo")
#: The environment variable with the default folder of the lab, and the folder if it is not set.
FOLDER_VARIABLE, DEFAULT_FOLDER = "SYNO_LAB_FOLDER", ".syno-lab"


def lab_folder(given: str | Path | None = None) -> Path:
    """Return the lab's folder as an absolute path: `given`, else the variable's value, else :data:`DEFAULT_FOLDER`."""
    return Path(given or os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER).expanduser().absolute()


def file_system(path: Path, mounts: str) -> str:
    """Return the type of the file system of `path`, from the text of Linux's mountinfo; "" if unknown."""
    real_path = os.path.realpath(path)
    best, kind = -1, ""
    for line in mounts.splitlines():
        before, dash, after = line.partition(" - ")
        fields = before.split()
        if not dash or len(fields) < 5 or not after:
            continue
        mount = fields[4].encode().decode("unicode_escape")  # mountinfo has \040 in place of a blank
        is_above = real_path == mount or real_path.startswith(mount.rstrip("/") + "/")
        if is_above and len(mount) >= best:  # if a path has two mounts, the later mount is visible
            best, kind = len(mount), after.split()[0]
    return kind


def has_locks(folder: Path) -> bool:
    """Whether a file in `folder` can be locked. If locks are impossible, SQLite reports a file as locked."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
    return True


def refuse_network(path: Path) -> None:
    """Refuse a path on a network file system, unless the user has set :data:`VARIABLE`.

    Raises StoreError; the message has the remedy.
    """
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:  # only Linux has the file mountinfo
        return
    kind = file_system(path, mounts)
    if kind in NETWORK and os.environ.get(VARIABLE) != "1":
        raise StoreError(
            f"the results store {path} would lie on a network file system ({kind}), where SQLite's write-ahead log "
            f"is not safe: choose a folder on a local disk, or set {VARIABLE}=1 if only this machine ever uses it"
        )
