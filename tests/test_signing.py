"""The key that only the user can read: what it signs, and who may not have touched it."""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from syno_lab import signing
from syno_lab.errors import SynoError


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "config" / "syno-lab"
    monkeypatch.setenv("SYNO_LAB_CONFIG", str(folder))
    return folder


def test_the_key_is_made_once_and_is_the_users_alone(config: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: signing.sign("job", "text"), range(32)))
    assert len(made) == 1
    key = config / signing.KEY_FILE
    assert [stat.S_IMODE(path.stat().st_mode) for path in (config, key)] == [0o700, 0o600]
    assert list(config.iterdir()) == [key], "nothing is left of the others' attempts"
    assert made == {hmac.new(key.read_bytes(), b"3:job:text", hashlib.sha256).hexdigest()}


def test_a_signature_holds_for_one_text_purpose_and_key(config: Path) -> None:
    signature = signing.sign("job", "text")
    assert signing.is_signed("job", "text", signature)
    for purpose, text, given in (
        ("job", "text.", signature),
        ("jobt", "ext", signature),
        ("other", "text", signature),
        ("job", "text", signature[:-1] + ("0" if signature[-1] != "0" else "1")),
        ("job", "text", ""),
        ("job", "text", None),
        ("job", "text", "ä\ud800"),
    ):
        assert not signing.is_signed(purpose, text, given)
    (config / signing.KEY_FILE).unlink()
    assert not signing.is_signed("job", "text", signature)


@pytest.mark.parametrize("what", ["short", "long", "folder", "fifo", "writable", "writable folder"])
def test_a_key_that_is_not_one_is_refused_in_one_line(config: Path, what: str) -> None:
    config.mkdir(parents=True, mode=0o700)
    key = config / signing.KEY_FILE
    if what == "folder":
        key.mkdir()
    elif what == "fifo":
        os.mkfifo(key, 0o600)
    else:
        key.write_bytes(bytes({"short": 3, "long": 33}.get(what, 32)))
        key.chmod(0o622 if what == "writable" else 0o600)
    if what == "writable folder":
        # Whoever may write there could put a key of theirs in its place; what is the user's own is closed to others.
        config.chmod(0o777)
        signing.sign("job", "text")
        assert stat.S_IMODE(config.stat().st_mode) == 0o700
        return
    with pytest.raises(SynoError, match=r"expected|cannot be read or made|others may write") as refused:
        signing.sign("job", "text")
    assert "\n" not in str(refused.value)
    assert str(key) in str(refused.value)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SYNO_LAB_CONFIG", str(tmp_path / "file" / "below"))
    with pytest.raises(SynoError, match="let SYNO_LAB_CONFIG name a folder of your own"):
        signing.sign("job", "text")
