"""What only the user may read, and what others may: by the bits of the files that are made."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from syno_lab import private
from syno_lab.store import Store


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """That of most users, and nothing kept of other tests."""
    before = os.umask(0o022)
    yield
    os.umask(before)
    private._before.clear()


def bits(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_and_files(tmp_path: Path) -> None:
    made = private.folder(tmp_path / "a" / "b")
    assert (bits(made), bits(made.parent)) == (0o700, 0o700)
    made.chmod(0o755)
    assert bits(private.folder(made)) == 0o700
    with private.create(made / "file") as file:
        file.write(b"x")
    assert bits(made / "file") == 0o600
    (made / "link").symlink_to(made / "file")
    with pytest.raises(OSError, match="symbolic link"):
        private.create(made / "link")
    os.mkfifo(made / "fifo")
    with pytest.raises(OSError):  # noqa: PT011 - the system's word for it differs
        private.create(made / "fifo")
    with pytest.raises(FileExistsError):
        private.folder(made / "file")


def test_a_lab_of_wider_modes_is_narrowed_when_it_is_opened(tmp_path: Path) -> None:
    lab = tmp_path / "lab"
    lab.mkdir()
    with Store.open(lab):
        assert bits(lab) == 0o700
    for path in (lab, *lab.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with Store.open(lab) as store:
        store.search("r", {})
        assert {bits(path) for path in lab.iterdir()} == {0o600}
        assert len(list(lab.iterdir())) >= 3, "the file, its log and its shared memory"
        assert bits(lab) == 0o700


def test_a_folder_that_is_not_a_lab_s_alone_keeps_its_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, shared = tmp_path / "project", tmp_path / "shared"
    project.mkdir()
    (project / "notes.txt").write_text("x")
    shared.mkdir()
    shared.chmod(0o1777)
    for folder, mode in ((project, 0o755), (shared, 0o1777)):
        with Store.open(folder):
            assert bits(folder) == mode
            assert bits(folder / "results.sqlite") == 0o600
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    with Store.open(home):
        assert bits(home) == 0o755


def test_a_command_writes_for_its_user_alone_but_what_the_user_names(tmp_path: Path) -> None:
    code = "import os, sys; from syno_lab.cli import main; s = main(); print(oct(os.umask(0)), s)"
    words = ["operators", "--json", "named.json"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "0o77 0"
    assert bits(tmp_path / "named.json") == 0o644


def test_in_a_process_of_somebody_else_nothing_changes() -> None:
    with private.usual():
        assert os.umask(0o022) == 0o022
    private.keep_private()
    with private.usual():
        assert os.umask(0o022) == 0o022
    assert os.umask(0o022) == 0o077
