"""A lab in a folder that cannot be written to is looked at as it is, and what would write says to copy it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import answered, refused

from syno_lab.errors import StoreError
from syno_lab.jobs import Lab
from syno_lab.reports import LabReader
from syno_lab.store import Store

STATUS = Path("/proc/self/status")
# CAP_SYS_ADMIN, which root has not in every container.
MAY_MOUNT = STATUS.exists() and bool(int(re.findall(r"CapEff:\s*(\w+)", STATUS.read_text())[0], 16) & 1 << 21)
COPY = "is in a folder that cannot be written to: copy the whole folder to one of your own and name that"


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Callable[[Path], Path]]:
    """``frozen(folder)``: the folder as one that is only read, by a mount, else by its rights."""
    made: list[Path] = []

    def freeze(folder: Path) -> Path:
        if not MAY_MOUNT:
            if os.geteuid() == 0:
                pytest.skip("rights hold nobody back who is root, and this root may not mount")
            folder.chmod(0o500)
            made.append(folder)
            return folder
        place = tmp_path / f"frozen-{len(made)}"
        place.mkdir()
        subprocess.run(["mount", "--bind", str(folder), str(place)], check=True)
        made.append(place)
        subprocess.run(["mount", "-o", "remount,ro,bind", str(place)], check=True)
        return place

    yield freeze
    for place in made:
        if MAY_MOUNT:
            subprocess.run(["umount", "--lazy", str(place)], check=True)
        else:
            place.chmod(0o700)


def add(store: Store, name: str) -> None:
    log = store.search("s", {})
    log.record(log.add(f"fp-{name}", "{}", [], 1000, 10), {"state": "failed", "reason": "no"})


def lab(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    with Store.open(folder) as store:
        for name in names:
            add(store, name)
    return folder


def seen(place: Path) -> list[str]:
    """The fingerprints of the trials that are shown."""
    with Store.look(place) as store:
        return [trial.fingerprint for log in store.searches() for trial in log.trials()]


def test_a_lab_that_cannot_be_written_to_is_looked_at(
    tmp_path: Path, frozen: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    place = frozen(lab(tmp_path, "a", "b"))
    before = sorted(one.name for one in place.iterdir())
    assert seen(place) == ["fp-a", "fp-b"]
    with LabReader(place) as reader:
        assert [row.fingerprint for row in reader.read().rows] == ["fp-a", "fp-b"]
        assert reader.read() is reader.read()
    with Lab.open(place, start=False) as opened:
        assert opened.jobs() == []
    assert answered(capsys, "jobs", "--folder", str(place)) == f"no jobs in {place}\n"
    for words in (["search", "--continue", "--name", "s"], ["jobs", "watch"]):
        assert COPY in refused(capsys, *words, "--folder", str(place)) or "--continue" in words
    with pytest.raises(StoreError, match=COPY):
        Store.open(place)
    with pytest.raises(StoreError, match=r"cannot be written to|is not there"):
        Store.open(place / "other.sqlite")
    assert sorted(one.name for one in place.iterdir()) == before


@pytest.mark.parametrize("has_index", [True, False])
def test_a_log_that_is_not_in_the_store_yet_is_read_or_refused(
    tmp_path: Path, frozen: Callable[[Path], Path], has_index: bool
) -> None:
    """As a copy of a lab at work, or one whose processes were killed: without the log, trials would be missing."""
    (tmp_path / "copy").mkdir()
    (tmp_path / "lab").mkdir()
    with Store.open(tmp_path / "lab") as store:
        add(store, "a")
        for end in ("", "-wal", *(["-shm"] if has_index else [])):
            shutil.copyfile(f"{store.path}{end}", tmp_path / "copy" / f"{store.path.name}{end}")
    place = frozen(tmp_path / "copy")
    if has_index:
        assert seen(place) == ["fp-a"]
    else:
        with pytest.raises(StoreError, match=COPY):
            seen(place)
    shutil.copytree(place, tmp_path / "own")
    assert seen(tmp_path / "own") == ["fp-a"]


@pytest.mark.skipif(not MAY_MOUNT, reason="only root may mount")
def test_what_is_written_elsewhere_is_seen_or_said(tmp_path: Path, frozen: Callable[[Path], Path]) -> None:
    place = frozen(lab(tmp_path / "lab", "a"))
    with LabReader(place) as reader:
        assert len(reader.read().rows) == 1
        with Store.open(tmp_path / "lab") as store:
            add(store, "b")
            with pytest.raises(StoreError, match="has changed while it was looked at: open it again"):
                reader.read()
            assert len(reader.read().rows) == 2
            add(store, "c")
            assert len(reader.read().rows) == 3
        assert [row.fingerprint for row in reader.read().rows] == ["fp-a", "fp-b", "fp-c"]
