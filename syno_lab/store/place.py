"""Where a store may lie: its write-ahead log needs memory that its processes share, which only one machine has.

https://www.sqlite.org/wal.html: "WAL does not work over a network filesystem." There it damages the file and
reports no error.
"""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from pathlib import Path

from syno_lab.errors import StoreError

#: File systems whose files another machine may hold as well, by the names that the kernel gives them.
# fmt: off
NETWORK = frozenset((
    "9p", "afpfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.ceph", "fuse.davfs", "fuse.glusterfs",
    "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "panfs", "smb2",
    "smb3", "smbfs", "vboxsf", "webdav",
))
# fmt: on
#: Set to 1 by those who know that only one machine uses the folder.
VARIABLE = "SYNO_LAB_NETWORK_STORE"
_MOUNTS = Path("/proc/self/mountinfo")
#: The variable that names the folder of the lab where the user names none, and the folder where it is not set either.
FOLDER_VARIABLE, DEFAULT_FOLDER = "SYNO_LAB_FOLDER", ".syno-lab"


def lab_folder(given: str | Path | None = None) -> Path:
    """The lab's folder as a whole path: the one given, else that of the variable, else :data:`DEFAULT_FOLDER` here."""
    return Path(given or os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER).expanduser().absolute()


def file_system(path: Path, mounts: str) -> str:
    """Return the type of the file system that holds `path`, given the text of Linux's mountinfo; "" if unknown."""
    place = os.path.realpath(path)
    best, found = -1, ""
    for line in mounts.splitlines():
        left, dash, right = line.partition(" - ")
        fields = left.split()
        if not dash or len(fields) < 5 or not right:
            continue
        mount = fields[4].encode().decode("unicode_escape")  # a blank is written \040
        is_above = place == mount or place.startswith(mount.rstrip("/") + "/")
        if is_above and len(mount) >= best:  # of two on one place the later one counts
            best, found = len(mount), right.split()[0]
    return found


def has_locks(folder: Path) -> bool:
    """Whether a file in `folder` can be locked; SQLite takes a file that cannot for one that another process holds."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
    return True


def refuse_network(path: Path) -> None:
    """Refuse a place on a network file system, unless the user has said that it is all right.

    Raises StoreError with what to do.
    """
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux: nothing is known
        return
    kind = file_system(path, mounts)
    if kind in NETWORK and os.environ.get(VARIABLE) != "1":
        raise StoreError(
            f"the results store {path} would lie on a network file system ({kind}), where SQLite's write-ahead log "
            f"is not safe: choose a folder on a local disk, or set {VARIABLE}=1 if only this machine ever uses it"
        )
