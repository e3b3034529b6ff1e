"""What the user's own account has asked for, signed with a key that nobody else can read.

A request in a lab's folder may be anybody's: the folder may have been copied from somebody else. One that runs carries
a signature made here when it was submitted, with a key in the user's configuration folder. See ``docs/security.md``.
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
    """The signature of a text for one purpose: 64 hexadecimal digits. The key is made on first use.

    Raises SynoError where the configuration folder or the key cannot be made, or is not the user's own.
    """
    return _signature(_key(), purpose, content)


def is_signed(purpose: str, content: str, signature: str | None) -> bool:
    """Whether the user's own key made this signature of this text for this purpose.

    Raises SynoError where the configuration folder or the key is not the user's own, or cannot be read.
    """
    return hmac.compare_digest(
        _signature(_key(), purpose, content).encode(), (signature or "").encode("utf-8", "replace")
    )


def _signature(key: bytes, purpose: str, content: str) -> str:
    text = f"{len(purpose)}:{purpose}:{content}".encode("utf-8", "surrogatepass")
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def _key() -> bytes:
    """The user's key, made where there is none; whole from the first moment that another process can see it."""
    place = Path(KEY_FILE)
    try:
        place = config_folder() / KEY_FILE
        if not place.exists():
            _make(place)
        check_own(place)
        key = read_bytes(place, KEY_BYTES)
    except OSError as error:
        raise SynoError(
            f"the key that jobs are signed with, {place}, cannot be read or made ({error.strerror or error}): let "
            "SYNO_LAB_CONFIG name a folder of your own"
        ) from None
    if len(key) != KEY_BYTES:
        raise SynoError(f"{place}: expected a key of {KEY_BYTES} bytes, found {len(key)}; delete it to have a new one")
    return key


def _make(place: Path) -> None:
    half = place.with_name(f"{place.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with create(half, "xb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # another process was faster: its key is the key
            os.link(half, place)
    finally:
        half.unlink(missing_ok=True)
