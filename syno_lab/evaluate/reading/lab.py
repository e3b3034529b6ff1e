"""A lab's store read again and again while others write it: through a connection that cannot write.

SQLite lets readers see the last whole state without holding up a writer (https://www.sqlite.org/wal.html), and says at
no cost whether anything has changed. A file that is gone, or another in its place, is noticed by its number on the
disk, without opening it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from syno_lab.errors import StoreError
from syno_lab.evaluate.closing import Closing
from syno_lab.evaluate.jobs.ledger import Ledger
from syno_lab.evaluate.jobs.records import JobRecord
from syno_lab.evaluate.reading.rows import Source, TrialRow, read_run, read_search
from syno_lab.evaluate.store import Store
from syno_lab.evaluate.store.database import FILE_NAME

_JOBS_SINCE = 2
"""The version of a store's file that brought jobs and searches."""


@dataclass(frozen=True)
class Reading:
    """What was in a lab at one moment.

    Attributes:
        folder: of the lab.
        jobs: all of them, in order of submission; those of dead processes are shown as the store has them.
        sources: its runs and searches, in the order in which they were made.
        rows: the trials of all sources, in the same order.
    """

    folder: Path
    jobs: tuple[JobRecord, ...]
    sources: tuple[Source, ...]
    rows: tuple[TrialRow, ...]

    @cached_property
    def by_key(self) -> dict[str, TrialRow]:
        """The rows by their keys."""
        return {row.key: row for row in self.rows}

    @property
    def targets(self) -> tuple[str, ...]:
        """All targets that anything has a latency on."""
        return tuple(dict.fromkeys(target for source in self.sources for target in source.targets))

    def row(self, key: str) -> TrialRow:
        """The trial with this key. Raises StoreError where there is none."""
        if key not in self.by_key:
            raise StoreError(f"no trial {key!r} in {self.folder}")
        return self.by_key[key]

    def of(self, source: str | None = None) -> tuple[TrialRow, ...]:
        """The rows of a source by its key or its name, or all. Raises StoreError where there is no such source."""
        if not source:
            return self.rows
        keys = [one.key for one in self.sources if source in (one.key, one.name)]
        if not keys:
            known = ", ".join(one.key for one in self.sources) or "none"
            raise StoreError(f"no search or run {source!r} in {self.folder}: there is {known}")
        return tuple(row for row in self.rows if row.source == keys[0])


class LabReader(Closing):
    """Reads the lab in a folder (or a store by its file); nothing is written there. A context manager, for threads.

    Nothing is opened before the first :meth:`read`.
    """

    def __init__(self, place: str | Path) -> None:
        path = Path(place).expanduser().absolute()
        self.file = path if path.suffix == ".sqlite" else path / FILE_NAME
        self._guard = threading.Lock()
        self._store: Store | None = None
        self._number: tuple[int, int] | None = None
        self._seen: tuple[int, int] | None = None
        self._last: Reading | None = None

    @property
    def folder(self) -> Path:
        """Of the lab."""
        return self.file.parent

    def read(self) -> Reading:
        """What is there now: the very object of last time where nothing has changed.

        Raises:
            StoreError: the store is not there (any more), damaged, busy or foreign; the next call tries again.
        """
        with self._guard:
            try:
                store = self._opened()
                version = store.database.version()
                if self._last is None or version != self._seen:
                    self._last = _read(store, self.folder)
                    self._seen = version
                return self._last
            except StoreError:
                self._let_go()
                raise

    def close(self) -> None:
        """Close the file; closing twice is fine, and so is reading again."""
        with self._guard:
            self._let_go()

    def _opened(self) -> Store:
        try:
            found = self.file.stat()
        except OSError as error:
            raise StoreError(
                f"the results store {self.file} is not there: expected the folder of a lab, or the file in it"
            ) from error
        number = (found.st_dev, found.st_ino)
        if self._store is not None and number != self._number:
            self._let_go()
        if self._store is None:
            self._store = Store.look(self.file)
            self._number = number
        return self._store

    def _let_go(self) -> None:
        store, self._store = self._store, None
        self._last = self._seen = None
        if store is not None:
            store.close()


def _read(store: Store, folder: Path) -> Reading:
    (version,) = store.database.column("PRAGMA user_version")
    has_jobs = version >= _JOBS_SINCE
    jobs = tuple(Ledger(store.database).jobs()) if has_jobs else ()
    found = [read_run(run) for run in store.runs()]
    if has_jobs:
        found += [read_search(log, store, jobs) for log in store.searches()]
    found.sort(key=lambda one: one[0].created)
    return Reading(folder, jobs, tuple(source for source, _ in found), tuple(row for _, rows in found for row in rows))
