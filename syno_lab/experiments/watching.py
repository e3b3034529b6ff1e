"""The files of a running search, for views: its state and its tree, written at most once a second."""

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
MOST_BYTES = 1 << 28  # of one file
STATUS_FILE, TREE_FILE, RESULT_FILE, SETTINGS_FILE = STATUS, "tree.json", RESULT, "settings.json"
#: The lock that the process doing the search holds.
LOCK_FILE = "search.lock"


def search_folder(lab: Path, name: str) -> Path:
    """The folder with the files of the search ``name``, in the lab folder ``lab``."""
    return lab / "searches" / name


def read_json(path: Path) -> dict[str, JSON] | None:
    """Read one of the files; None where it does not exist. Files are written whole, so no half-written one is read."""
    try:
        found = inputs.read_json(path, MOST_BYTES)
    except (OSError, msgspec.DecodeError):
        return None
    return found if isinstance(found, dict) else None


def read_status(folder: Path) -> Searched:
    """What the status of the search with its files in ``folder`` says; nothing where there is none."""
    return searched(read_json(folder / STATUS_FILE))


class Board:
    """The files of one search, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tree_at = -float("inf")
        self._tree_seen: tuple[int, ...] = ()
        private.folder(folder)

    def write(self, name: str, content: bytes) -> None:
        """Write one of the files whole. Raises TrainingError where that fails, DiskFullError on a full disk."""
        write_whole(self.folder / name, content)

    def show(self, status: Searched, fields: Sequence[str], search: Search | None = None, *, now: bool = False) -> None:
        """Write these fields of the status, and the tree at most once a second unless ``now``.

        A full disk does not end the search.

        The tree (of a Monte Carlo tree search) is that of :meth:`syno_lab.search.tree.Tree.to_json`; it is written only
        if it has changed.
        """
        with suppress(TrainingError):
            write_whole(self.folder / STATUS_FILE, msgspec.json.encode(status.said(fields)))
            if isinstance(search, MonteCarloTreeSearch) and (now or time.monotonic() - self._tree_at >= PERIOD_S):
                seen = len(search.tree), len(search.told), len(search.outstanding)
                if seen == self._tree_seen and not now:
                    return
                self._tree_at, self._tree_seen = time.monotonic(), seen
                write_whole(self.folder / TREE_FILE, msgspec.json.encode(search.tree.to_json()))
