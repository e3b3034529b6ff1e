"""Sign the requests of the user's account with a key that nobody else can read.

A lab's folder may be a copy from another person, so its requests may come from anybody. A request runs only with a
signature that this account made at submission. The key is in the user's configuration folder. See ``docs/security.md``.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from pathlib import Path

from syno_lab.errors import SynoError
from syno_lab.inputs import read_bytes
from syno_lab.private import check_own, config_folder, create

KEY_FILE = "signing.key"
KEY_BYTES = 32


def sign(purpose: str, content: str) -> str:
    """Return the signature of a text for a purpose: 64 hexadecimal digits. The first call creates the key.

    Raises SynoError if the configuration folder or the key cannot be created or is not the user's own.
    """
    return _signature(_key(), purpose, content)


def is_signed(purpose: str, content: str, signature: str | None) -> bool:
    """Return whether this signature of this text for this purpose was made with the user's own key.

    Raises SynoError if the configuration folder or the key is not the user's own or cannot be read.
    """
    return hmac.compare_digest(
        _signature(_key(), purpose, content).encode(), (signature or "").encode("utf-8", "replace")
    )


def _signature(key: bytes, purpose: str, content: str) -> str:
    text = f"{len(purpose)}:{purpose}:{content}".encode("utf-8", "surrogatepass")
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def _key() -> bytes:
    """Read the user's key, or create it. A new key appears complete to other processes."""
    path = Path(KEY_FILE)
    try:
        path = config_folder() / KEY_FILE
        if not path.exists():
            _make(path)
        check_own(path)
        key = read_bytes(path, KEY_BYTES)
    except OSError as error:
        raise SynoError(
            f"the key that jobs are signed with, {path}, cannot be read or made ({error.strerror or error}): let "
            "SYNO_LAB_CONFIG name a folder of your own"
        ) from None
    if len(key) != KEY_BYTES:
        raise SynoError(f"{path}: expected a key of {KEY_BYTES} bytes, found {len(key)}; delete it to have a new one")
    return key


def _make(path: Path) -> None:
    half = path.with_name(f"{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with create(half, "xb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # another process has created the key first; use that key
            os.link(half, path)
    finally:
        half.unlink(missing_ok=True)
