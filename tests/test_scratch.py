"""Temporary folders: gone with their owner, however it ends, and nobody else's are touched."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from syno_lab.scratch import SUFFIX, clear, scratch

OWNER = """
import sys, time
from syno_lab.scratch import scratch
with scratch(sys.argv[1], sys.argv[2] or None) as folder:
    (folder / "deep").mkdir()
    (folder / "deep" / "file").write_text("x")
    print(folder, flush=True)
    time.sleep(600)
"""


def start(prefix, within):
    """A process that owns such a folder, and the folder."""
    words = [sys.executable, "-c", OWNER, prefix, str(within or "")]
    owner = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    return owner, owner.stdout.readline().strip()


def end(owner):
    owner.kill()
    owner.wait()
    owner.stdout.close()


def test_what_a_dead_owner_left_is_removed_and_a_live_one_s_stays(tmp_path):
    alive, his = start(".tuning-", tmp_path)
    dead, its = start(".tuning-", tmp_path)
    stopped, theirs = start(".tuning-", tmp_path)
    try:
        stopped.send_signal(signal.SIGSTOP)
        end(dead)
        assert (Path(its) / "deep" / "file").is_file(), "a kill leaves all of it"
        with scratch(".tuning-", tmp_path) as mine:
            assert mine.stat().st_mode & 0o777 == 0o700
            assert sorted(tmp_path.iterdir()) == sorted(Path(one) for one in (mine, his, theirs))
            assert clear(tmp_path, ".tuning-") == [], "not one's own either"
        assert not mine.exists()
    finally:
        end(alive)
        end(stopped)
    assert len(clear(tmp_path, ".tuning-")) == 2
    assert list(tmp_path.iterdir()) == []


def test_those_of_one_s_temporary_files_are_all_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    owners = [start(prefix, None)[0] for prefix in ("syno-board-", "syno-remote-")]
    for owner in owners:
        end(owner)
    assert len(list(tmp_path.iterdir())) == 2
    with scratch("syno-measure-") as mine:
        assert list(tmp_path.iterdir()) == [mine]
    with pytest.raises(ValueError, match="expected a prefix that begins with 'syno-', found 'mine-'"), scratch("mine-"):
        pass


def test_nothing_else_is_removed(tmp_path):
    outside = tmp_path / "outside"
    (outside / "kept").mkdir(parents=True)
    place = tmp_path / "place"
    place.mkdir()
    link = place / f".tuning-abcdefgh{SUFFIX}"
    link.symlink_to(outside)
    others = [".tuning-abcdefgh", f".tuning-abc{SUFFIX}", f".library-abcdefgh{SUFFIX}", f"my.tuning-abcdefgh{SUFFIX}"]
    for name in others:
        (place / name).mkdir()
    (place / f".tuning-12345678{SUFFIX}").write_text("a file")
    dead = place / f".tuning-qwertyui{SUFFIX}"
    dead.mkdir()
    (dead / "link").symlink_to(outside)
    assert clear(place, ".tuning-") == [dead]
    assert (outside / "kept").is_dir()
    assert {one.name for one in place.iterdir()} == {link.name, *others, f".tuning-12345678{SUFFIX}"}
    assert clear(tmp_path / "none", ".tuning-") == []


@pytest.mark.skipif(os.getuid() != 0, reason="makes a folder of another user's: root only")
def test_another_user_s_stays(tmp_path):
    his = tmp_path / f".tuning-abcdefgh{SUFFIX}"
    his.mkdir()
    os.chown(his, 65534, 65534)
    assert clear(tmp_path, ".tuning-") == []
    assert his.is_dir()


def test_a_file_s_long_name_fits(tmp_path):
    with scratch("." + "\N{OLD PERSIAN SIGN A}" * 60 + "-", tmp_path) as folder:
        assert folder.is_dir()
