"""The files of a running search, for views: its status and its tree, written at most once a second."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from syno_lab import inputs, private
from syno_lab.errors import TrainingError
from syno_lab.reports.searched import RESULT, STATUS, Searched, searched
from syno_lab.search import MonteCarloTreeSearch, Search
from syno_lab.training.files import write_whole
from syno_lab.versioned import JSON

PERIOD_S = 1.0
MOST_BYTES = 1 << 28  # the largest file, in bytes
STATUS_FILE, TREE_FILE, RESULT_FILE, SETTINGS_FILE = STATUS, "tree.json", RESULT, "settings.json"
#: The lock file that the process of a running search holds.
LOCK_FILE = "search.lock"


def search_folder(lab: Path, name: str) -> Path:
    """Return the folder with the files of the search ``name``, in the lab folder ``lab``."""
    return lab / "searches" / name


def read_json(path: Path) -> dict[str, JSON] | None:
    """Read a search file; None where the file does not exist. Writes are atomic, so no incomplete file is read."""
    try:
        content = inputs.read_json(path, MOST_BYTES)
    except (OSError, msgspec.DecodeError):
        return None
    return content if isinstance(content, dict) else None


def read_status(folder: Path) -> Searched:
    """Read the status of the search with its files in ``folder``; an empty status if there is no file."""
    return searched(read_json(folder / STATUS_FILE))


class Board:
    """Writes the files of one search into the search's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tree_at = -float("inf")
        self._tree_seen: tuple[int, ...] = ()
        private.folder(folder)

    def write(self, name: str, content: bytes) -> None:
        """Write a search file atomically. Raises TrainingError for a failed write, DiskFullError on a full disk."""
        write_whole(self.folder / name, content)

    def show(self, status: Searched, fields: Sequence[str], search: Search | None = None, *, now: bool = False) -> None:
        """Write these fields of the status; write the tree too, but at most once a second unless ``now``.

        A full disk does not end the search.

        The tree of a Monte Carlo tree search (:meth:`syno_lab.search.tree.Tree.to_json`) is written only after changes.
        """
        with suppress(TrainingError):
            write_whole(self.folder / STATUS_FILE, msgspec.json.encode(status.said(fields)))
            if isinstance(search, MonteCarloTreeSearch) and (now or time.monotonic() - self._tree_at >= PERIOD_S):
                size = len(search.tree), len(search.told), len(search.outstanding)
                if size == self._tree_seen and not now:
                    return
                self._tree_at, self._tree_seen = time.monotonic(), size
                write_whole(self.folder / TREE_FILE, msgspec.json.encode(search.tree.to_json()))
