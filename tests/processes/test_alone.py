"""One at a time: the second of two searches of one name says that the first runs, and how to watch it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import refused

from syno_lab.errors import SynoError
from syno_lab.experiments import LOCK_FILE, SearchSettings, search_folder
from syno_lab.jobs import Lab
from syno_lab.processes.alone import alone, holder
from syno_lab.trial import TrialRequest

pytestmark = pytest.mark.cold

HOLD = "import sys; from pathlib import Path; from syno_lab.processes.alone import alone\n"
HOLD += "with alone(Path(sys.argv[1]), 'busy'): print('held', flush=True); sys.stdin.read()"


@contextmanager
def held(lock: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock; killed at the end."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_the_lock_ends_with_its_holder_however_that_ends(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert holder(lock) is None
    with held(lock) as process:
        assert holder(lock) == f"process {process.pid}"
        with (
            pytest.raises(SynoError, match=f"^taken by process {process.pid}, {{}}$"),
            alone(lock, "taken by {who}, {}"),
        ):
            pass
    assert holder(lock) is None
    with alone(lock, "busy"):
        assert lock.read_text() == str(os.getpid())
        with pytest.raises(SynoError, match="busy"), alone(lock, "busy", patience_s=0):
            pass  # not twice in one process either
    assert lock.stat().st_mode & 0o777 == 0o600


def test_a_lock_is_no_way_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(SynoError, match="expected a file that can be locked"), alone(tmp_path / "link", "busy"):
        pass
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(SynoError, match="expected a file that can be locked"), alone(tmp_path / "fifo", "busy"):
        pass
    assert holder(tmp_path / "fifo") is None


@pytest.mark.parametrize("words", [(), ("--in-process",), ("--detach",)])
def test_the_second_search_says_how_to_watch_the_first(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("search", "--data", "digits", "--folder", str(tmp_path), *words)
    with held(search_folder(tmp_path, "search") / LOCK_FILE) as process:
        line = refused(capsys, *command)
    assert f"the search 'search' in {tmp_path} is already running (process {process.pid}): watch it" in line
    with Lab.open(tmp_path, start=False) as lab:
        lab.submit("search", SearchSettings(training=TrialRequest(backbone="resnet20"), trials=1).to_dict())
        before = lab.jobs()
        line = refused(capsys, *command)
        assert f"is waiting already, as job 1: watch it by `syno-lab jobs watch 1 --folder {tmp_path}`" in line
        assert lab.jobs() == before, "nothing of the first is changed"
