"""Another user of the machine gets nothing of a lab: run as root, which alone can become somebody else."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import job_kinds
import psutil
import pytest
from labs import TESTS, show_kinds, until

from syno_lab.jobs import Lab
from syno_lab.processes import alive

pytestmark = [
    pytest.mark.cold,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user to try what that one can"),
]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder into which everybody may look: what is private in it is so by its own mode."""
    folder = Path(tempfile.mkdtemp(prefix="syno-lab-others-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_another_user_runs_nothing_and_reads_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    show_kinds(monkeypatch, job_kinds.VARIABLE)
    monkeypatch.setenv("SYNO_LAB_CONFIG", str(place / "config"))
    before = os.umask(0o022)  # as in a notebook's kernel
    try:
        with Lab.open(place / "lab", slots=1) as lab:
            try:
                job = lab.submit("count", {"seconds": 0.05})
                until(lambda: job.record().progress > 0, lab)
                found = intrude(lab, place)
            finally:
                lab.shutdown()
    finally:
        os.umask(before)
    assert found["tried"] >= {"results.sqlite", "1-1.log", "checkpoint.json", "cluster.json", "tls.pem", "worker.log"}
    assert not found["ran"]
    assert not found["heard"]
    assert not found["read"]
    assert not found["listed"]
    assert not found["wide"]


def intrude(lab: Lab, place: Path) -> dict[str, object]:
    """What nobody gets of a running lab, and what has rights for others."""
    marker = place / "marker"
    roots = [*lab.cluster.processes().values(), *(alive.pid_of(lease.child) for lease in lab.ledger.leases())]
    trees = [one for root in roots for one in (psutil.Process(root), *psutil.Process(root).children(recursive=True))]
    links = [link for one in trees for link in one.net_connections() if link.status == psutil.CONN_LISTEN]
    assert len(links) >= 2, "of the scheduler and of the worker"
    modes: dict[Path, int] = {}
    for path in place.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # the job renames its checkpoint meanwhile
            modes[path] = path.lstat().st_mode
    files = [path for path, mode in modes.items() if stat.S_ISREG(mode)]
    folders = [path for path, mode in modes.items() if stat.S_ISDIR(mode)]
    given = {
        "ports": sorted({link.laddr.port for link in links}),
        "files": [*map(str, files), *(f"/proc/{one.pid}/environ" for one in trees)],
        "folders": list(map(str, folders)),
        "marker": str(marker),
    }
    asked = [sys.executable, str(TESTS / "intruder.py"), json.dumps(given)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not marker.exists()
    wide = [path.name for path, mode in modes.items() if not stat.S_ISLNK(mode) and mode & 0o077]
    return found | {"tried": {path.name for path in files}, "wide": wide}
