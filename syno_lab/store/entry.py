"""What runs and searches in a store have in common: a name, and the settings that they were made with."""

from __future__ import annotations

from typing import Any

from .database import Database
from .records import from_text


class Entry:
    """A run or a search in a store."""

    def __init__(self, database: Database, key: int, name: str, settings: str, created: str) -> None:
        self._database = database
        self._key = key
        self._settings = settings
        self.name = name
        self.created = created
        """When it was first made: ISO 8601, UTC."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self._settings})"

    @property
    def settings(self) -> dict[str, Any]:
        """What it was made with; it cannot change."""
        return from_text(self._settings, dict, "settings")
