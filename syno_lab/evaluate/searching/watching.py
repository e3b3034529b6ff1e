"""What a search shows while it runs: its state and its tree as files, written at most once a second."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from syno_lab.errors import TrainingError
from syno_lab.evaluate.training.files import write_whole
from syno_lab.search import MonteCarloTreeSearch, Search

PERIOD_S = 1.0
STATUS_FILE, TREE_FILE, RESULT_FILE, SETTINGS_FILE = "status.json", "tree.json", "result.json", "settings.json"


def search_folder(lab: Path, name: str) -> Path:
    """Where the search ``name`` of the lab in a folder keeps its files."""
    return lab / "searches" / name


def read_json(path: Path) -> dict[str, Any] | None:
    """What one of the files says; None where it is not there. They are written whole, so there is no half of one."""
    try:
        found = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    return found if isinstance(found, dict) else None


class Board:
    """The files of one search, in a folder of theirs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tree_at = -float("inf")
        self._tree_seen: tuple[int, ...] = ()
        folder.mkdir(parents=True, exist_ok=True)

    def show(self, status: dict[str, Any], search: Search | None = None, *, now: bool = False) -> None:
        """Write the files, the tree at most once a second but ``now``. A full disk is no reason to end.

        The tree (of a Monte Carlo tree search) is that of :meth:`syno_lab.search.tree.Tree.to_json`; it is written
        where it has changed.
        """
        with suppress(TrainingError):
            write_whole(self.folder / STATUS_FILE, msgspec.json.encode(status))
            if isinstance(search, MonteCarloTreeSearch) and (now or time.monotonic() - self._tree_at >= PERIOD_S):
                seen = len(search.tree), len(search.told), len(search.outstanding)
                if seen == self._tree_seen and not now:
                    return
                self._tree_at, self._tree_seen = time.monotonic(), seen
                write_whole(self.folder / TREE_FILE, msgspec.json.encode(search.tree.to_json()))
