"""What a part has done so far: each result is on the disk as it comes, so that a kill costs one at most."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from syno_lab import private
from syno_lab.errors import FormatError
from syno_lab.experiments.driver import Stopped
from syno_lab.inputs import read_json
from syno_lab.store.records import finite
from syno_lab.training.files import write_whole
from syno_lab.versioned import reason

_MOST_BYTES = 1 << 26
_KEPT_EVERY_S = 10.0  # the time that a part has taken: a kill costs that much of it


class Work:
    """The folder of one part, its items, and whom to tell.

    Args:
        folder: for what the part keeps: ``items.json``, records, checkpoints, a lab.
        report: told ``(fraction, message)``.
        should_stop: asked between batches and candidates.
        clock: in seconds.
    """

    def __init__(
        self,
        folder: Path,
        report: Callable[[float, str], None],
        should_stop: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        private.folder(folder)
        self.folder, self.should_stop, self._told, self._clock = folder, should_stop, report, clock
        self._file, self._time_file = folder / "items.json", folder / "seconds.json"
        self._items = read_object(self._file) or {}
        self._earlier = finite((read_object(self._time_file) or {}).get("seconds")) or 0.0
        self._began = self._kept = clock()

    @property
    def seconds(self) -> float:
        """That the part has taken so far, those of processes that were stopped or killed among them."""
        return self._earlier + self._clock() - self._began

    def report(self, fraction: float, message: str) -> None:
        """Tell it, and now and then keep the time that the part has taken."""
        self._told(fraction, message)
        if self._clock() - self._kept >= _KEPT_EVERY_S:
            self._keep_time()

    def _keep_time(self) -> None:
        self._kept = self._clock()
        write_whole(self._time_file, msgspec.json.encode({"seconds": self.seconds}))

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
            self._keep_time()
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
