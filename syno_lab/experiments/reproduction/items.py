"""What a part has done so far: each result is on the disk as it comes, so that a kill costs one at most."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from syno_lab import private
from syno_lab.errors import FormatError
from syno_lab.experiments.driver import Stopped
from syno_lab.inputs import read_json
from syno_lab.training.files import write_whole
from syno_lab.versioned import reason

_MOST_BYTES = 1 << 26


class Work:
    """The folder of one part, its items, and whom to tell.

    Args:
        folder: for what the part keeps: ``items.json``, records, checkpoints, a lab.
        report: told ``(fraction, message)``.
        should_stop: asked between batches and candidates.
    """

    def __init__(self, folder: Path, report: Callable[[float, str], None], should_stop: Callable[[], bool]) -> None:
        private.folder(folder)
        self.folder, self.report, self.should_stop = folder, report, should_stop
        self._file = folder / "items.json"
        self._items = read_object(self._file) or {}

    def item(self, key: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of this name: the stored one, else that of ``make``, which is stored before it is returned.

        Raises:
            Stopped: ``should_stop`` returned True meanwhile; the item is not stored then.
        """
        found = self._items.get(key)
        if not isinstance(found, dict):
            found = make()
            self.check()
            self._items[key] = found
            write_whole(self._file, msgspec.json.encode(self._items))
        return found

    def check(self) -> None:
        """Raise Stopped where ``should_stop`` returns True."""
        if self.should_stop():
            raise Stopped("stopped; the same call goes on")


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file of ours; None where there is no file.

    Raises:
        FormatError: it is no JSON object.
    """
    try:
        found = read_json(path, _MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FormatError(f"{path}: expected a file of a reproduction, found: {error.strerror or error}") from None
    except msgspec.DecodeError as error:
        raise FormatError(f"{path}: expected a file of a reproduction: {reason(error)}") from None
    if not isinstance(found, dict):
        raise FormatError(f"{path}: expected a JSON object, found {type(found).__name__}")
    return found
