"""Reads a lab's store repeatedly while other processes write it, through a read-only connection.

SQLite shows readers the last committed state without blocking a writer (https://www.sqlite.org/wal.html), and reports
changes by a cheap query. The inode number reveals that the file was removed or replaced.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from syno_lab.errors import StoreError
from syno_lab.inputs import QUOTED, printable, quoted
from syno_lab.jobs.ledger import Lease, Ledger
from syno_lab.jobs.records import JobRecord
from syno_lab.reports.rows import Source, TrialRow, read_search
from syno_lab.store import Store
from syno_lab.store.database import FILE_NAME, Closing
from syno_lab.store.rungs import FINAL


@dataclass(frozen=True)
class Reading:
    """The contents of a lab at one time: jobs in order of submission, searches in order of creation, and all trials.

    A job whose process has died has the state that is in the store.
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
        """All targets on which at least one trial has a latency."""
        return tuple(dict.fromkeys(target for source in self.sources for target in source.targets))

    @property
    def rungs(self) -> tuple[str, ...]:
        """All rungs on which a search has trained, without the finals."""
        return tuple(dict.fromkeys(rung for source in self.sources for rung in source.rungs if rung != FINAL))

    def row(self, key: str) -> TrialRow:
        """Return the trial with this key. Raises StoreError for an unknown key."""
        if key not in self.by_key:
            raise StoreError(f"no trial {quoted(key)} in {self.folder}")
        return self.by_key[key]

    def of(self, source: str | None = None) -> tuple[TrialRow, ...]:
        """Return the rows of a source by its key or name, or all. Raises StoreError where there is no such source."""
        if not source:
            return self.rows
        keys = [entry.key for entry in self.sources if source in (entry.key, entry.name)]
        if not keys:
            known = printable(", ".join(entry.key for entry in self.sources), 2 * QUOTED) or "none"
            raise StoreError(f"no search {quoted(source)} in {self.folder}: there is {known}")
        return tuple(row for row in self.rows if row.source == keys[0])


class LabReader(Closing):
    """Reads the lab in a folder or a store's file, and writes nothing. A context manager, safe to use from threads.

    The first :meth:`read` opens the file.
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
        """The lab's folder."""
        return self.file.parent

    def read(self) -> Reading:
        """Read the current contents; return the same object as in the last call if nothing has changed.

        Raises StoreError where the store is missing, damaged, busy or of another program; a later call may succeed.
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

    def leases(self) -> list[Lease]:
        """Return the leases of running attempts; none before the first :meth:`read`."""
        with self._guard:
            return [] if self._store is None else Ledger(self._store.database).leases()

    def close(self) -> None:
        """Close the file. A second call does nothing, and :meth:`read` opens the file again."""
        with self._guard:
            self._let_go()

    def _opened(self) -> Store:
        number = None
        with suppress(OSError):  # a missing file, which :meth:`.Store.look` refuses
            status = self.file.stat()
            number = status.st_dev, status.st_ino
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
    jobs = tuple(Ledger(store.database).jobs())
    pairs = [read_search(log, store, jobs) for log in store.searches()]
    pairs.sort(key=lambda pair: pair[0].created)
    return Reading(folder, jobs, tuple(source for source, _ in pairs), tuple(row for _, rows in pairs for row in rows))
