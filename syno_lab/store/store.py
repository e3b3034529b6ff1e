"""Opens a store and finds the searches in it."""

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
    """The results of a lab's folder, in one SQLite file; a context manager, made by `Store.open`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, path: str | Path, *, is_thorough: bool = True) -> Store:
        """Open the store at `path`, a file or a folder with `results.sqlite`; create a missing store.

        `is_thorough=False` skips the check of the complete file, for frequent calls. Raises StoreError, without a
        change of the file, where it is damaged, foreign, of another version, busy or cannot be created.
        """
        location = Path(path).expanduser().absolute()
        if location.is_dir():
            private.narrow_lab(location, FILE_NAME)
        return cls(Database(location / FILE_NAME if location.is_dir() else location, is_thorough=is_thorough))

    @classmethod
    def look(cls, path: str | Path) -> Store:
        """Open the store at `path`, a file or a folder, for reading: no file is changed or created.

        A call that would write raises StoreError.

        Raises StoreError where there is no store, or it is damaged, foreign or of another version.
        """
        location = Path(path).expanduser().absolute()
        file = location / FILE_NAME if location.is_dir() else location
        return cls(Database(file, is_thorough=False, is_read_only=True))

    @property
    def path(self) -> Path:
        """The SQLite file. To copy the file, use SQLite's own backup, or close it in all processes."""
        return self._database.path

    @property
    def database(self) -> Database:
        """The open database, for packages with more tables in the file."""
        return self._database

    def search(self, name: str, settings: Mapping[str, JSON] | None = None) -> SearchLog:
        """Return the log of the search of this name; create the search if it does not exist and `settings` are given.

        Raises StoreError where the search does not exist or has other settings, or the name is not valid for a folder.
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
                f"{difference(log.settings, json.loads(text))}; repeat the old settings, or take another name"
            )
        return log

    def searches(self) -> list[SearchLog]:
        """Return the logs of all searches in the order of creation."""
        rows = self._database.read(_SEARCH, "FROM syno_searches ORDER BY search")
        return [SearchLog(self._database, *row) for row in rows]

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._database.close()
