"""Open a store and find what is in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from syno_lab import private
from syno_lab.errors import StoreError
from syno_lab.inputs import QUOTED, is_plain_name, printable, quoted
from syno_lab.versioned import JSON

from .database import FILE_NAME, Closing, Database
from .records import difference, to_text
from .searches import SearchLog

_SEARCH = "search, name, settings, created"


class Store(Closing):
    """The results of a laboratory folder, in one SQLite file; a context manager, made by `Store.open`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, path: str | Path, *, is_thorough: bool = True) -> Store:
        """Open the store at `path`, a file, or a folder that holds `results.sqlite`; make it where there is none.

        `is_thorough=False` leaves out reading the whole file for damage, for processes that open it often.
        Raises StoreError where the file is damaged, foreign, of another version, busy, or cannot be made. It is left as
        it was.
        """
        place = Path(path).expanduser().absolute()
        if place.is_dir():
            private.narrow_lab(place, FILE_NAME)
        return cls(Database(place / FILE_NAME if place.is_dir() else place, is_thorough=is_thorough))

    @classmethod
    def look(cls, path: str | Path) -> Store:
        """Open the store at `path`, a file or a folder, only to read it: nothing in it or beside it is changed.

        What would write raises StoreError.

        Raises StoreError: there is none, or it is damaged, foreign or of another version.
        """
        place = Path(path).expanduser().absolute()
        file = place / FILE_NAME if place.is_dir() else place
        return cls(Database(file, is_thorough=False, is_read_only=True))

    @property
    def path(self) -> Path:
        """The SQLite file. Copy it only while nobody has it open, or with SQLite's own backup."""
        return self._database.path

    @property
    def database(self) -> Database:
        """The open file, for the rooms that keep tables of their own in it."""
        return self._database

    def search(self, name: str, settings: Mapping[str, JSON] | None = None) -> SearchLog:
        """Return the log of the search of this name; make it when there is none and `settings` are given.

        Raises StoreError where the search was made with other settings (named in the message), it does not exist, or
        the name cannot be one of a folder, in which its files are.
        """
        if not is_plain_name(name):
            raise StoreError(f"expected the name of a search, which can be one of a folder, found {quoted(name)}")
        text = None if settings is None else to_text(settings, "settings")
        with self._database.transaction():
            rows = self._database.read(_SEARCH, "FROM syno_searches WHERE name=?", (name,))
            if not rows:
                if text is None:
                    known = ", ".join(sorted(repr(log.name) for log in self.searches())) or "none"
                    known = printable(known, 2 * QUOTED)
                    raise StoreError(f"no search {quoted(name)} in {self.path}; there is {known}")
                (key,) = self._database.column("SELECT COALESCE(MAX(search), 0) + 1 FROM syno_searches")
                created = datetime.now(UTC).isoformat(timespec="seconds")
                self._database.write("INSERT", "syno_searches", _SEARCH, (key, name, text, created))
                rows = self._database.read(_SEARCH, "FROM syno_searches WHERE name=?", (name,))
        log = SearchLog(self._database, *rows[0])
        if text is not None and log.settings != json.loads(text):
            raise StoreError(
                f"search {quoted(name)} in {self.path} was made with other settings: "
                f"{difference(log.settings, json.loads(text))}; give them as they were, or another name"
            )
        return log

    def searches(self) -> list[SearchLog]:
        """Return the logs of all searches in the order in which they were made."""
        rows = self._database.read(_SEARCH, "FROM syno_searches ORDER BY search")
        return [SearchLog(self._database, *row) for row in rows]

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        self._database.close()
