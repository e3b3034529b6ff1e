"""A file system without locks: each place that needs one names its file and says what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cold

#: Locks fail as on a mount of NFS whose server has none.
NO_LOCKS = """
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>
int flock(int file, int how) { errno = ENOLCK; return -1; }
int fcntl64(int file, int how, ...) {
    va_list more; va_start(more, how); long given = va_arg(more, long); va_end(more);
    if (how == F_SETLK || how == F_SETLKW) { errno = ENOLCK; return -1; }
    return syscall(SYS_fcntl, file, how, given);
}
int fcntl(int file, int how, ...) {
    va_list more; va_start(more, how); long given = va_arg(more, long); va_end(more);
    return fcntl64(file, how, given);
}
"""
TRIED = """
import sys
from pathlib import Path
from syno_lab.errors import SynoError
from syno_lab.jobs.cluster import Cluster, Settings
from syno_lab.processes.alone import alone, holder
from syno_lab.scratch import scratch
from syno_lab.store import Store, database
place = Path(sys.argv[1])
database.BUSY_SECONDS = 0.2  # SQLite takes what cannot be locked for what another process holds
(place / "lab").mkdir()
def search():
    with alone(place / "a.lock", "busy"):
        pass
def cluster():
    with Cluster(place, Settings())._locked():
        pass
for tried in (search, lambda: holder(place / "a.lock"), cluster, lambda: Store.open(place / "lab")):
    try:
        tried()
    except SynoError as error:
        print(error)
with scratch("x-", place) as folder:  # needs none: nobody else can hold it either
    print(folder.is_dir())
"""


@pytest.mark.skipif(shutil.which("cc") is None or sys.platform != "linux", reason="needs a compiler for a library")
def test_a_file_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    library = tmp_path / "no_locks.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)], input=NO_LOCKS, text=True, check=True
    )
    place = tmp_path / "place"
    place.mkdir()
    given = {**os.environ, "LD_PRELOAD": str(library), "SYNO_LAB_CONFIG": str(tmp_path / "config")}
    done = subprocess.run(
        [sys.executable, "-c", TRIED, str(place)], env=given, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    search, holder, cluster, store, is_folder = done.stdout.splitlines()
    assert search == holder == f"{place}/a.lock cannot be locked (No locks available); use a folder on a local disk"
    assert cluster.endswith("cluster.lock cannot be locked (No locks available); use a folder on a local disk")
    assert cluster.startswith(str(tmp_path / "config"))
    assert store.startswith(f"the results store {place}/lab/results.sqlite cannot be locked (")
    assert store.endswith("as on a file system without locks: use a folder on a local disk")
    assert is_folder == "True"
