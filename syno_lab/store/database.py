"""The SQLite file under the store: its creation, checks, writes and errors.

A finished write survives a kill of the process at any moment (write-ahead log, synchronous=FULL). Several processes and
threads may use one file. Opening a damaged or foreign file, or a file of another version, raises an error of one line.
The last column of each row is a digest, because SQLite does not detect a flipped bit inside a number.

Only SQLite may open the file. A process that closes another handle of the file loses SQLite's locks on the file
(https://www.sqlite.org/howtocorrupt.html, section 2.2).
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from syno_lab import private
from syno_lab.errors import StoreError

from .place import has_locks, refuse_network
from .schema import APPLICATION_ID, KINDS, SCHEMA_VERSION, SCRIPT

FILE_NAME = "results.sqlite"
BUSY_SECONDS = 30.0
_NOTHING = type(None)
#: The Python types of the values in a column, for each type of SQLite.
_VALUES: dict[str, tuple[type, ...]] = {
    "TEXT": (str, _NOTHING),
    "TEXT NOT NULL": (str,),
    "INTEGER": (int, _NOTHING),
    "INTEGER NOT NULL": (int,),
    "REAL": (float, int, _NOTHING),
    "REAL NOT NULL": (float, int),
}


#: The advice for a lab in a folder without write permission.
COPY = "copy the whole folder to one of your own and name that"


def is_frozen(folder: Path) -> bool:
    """Whether a folder cannot be written, because it belongs to another user, or is on a read-only medium or mount."""
    return not os.access(folder, os.W_OK)


def digest(values: Sequence[object]) -> str:
    """Return a hash of 64 bits over a row's values, by which a reader detects a changed row."""
    return hashlib.blake2b(repr(tuple(values)).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _uri(path: Path, mode: str) -> str:
    return f"file:{quote(str(path))}?mode={mode}"


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    """Raise every error of SQLite as a StoreError of one line."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise StoreError(f"the results store {path} cannot hold a text that is not Unicode ({error.reason})") from error
    except (sqlite3.Error, UnicodeDecodeError) as error:
        name = getattr(error, "sqlite_errorname", "") or ""
        if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")) and is_frozen(path.parent):
            reason = f"is in a folder that cannot be written to: {COPY}"
        elif name.endswith("LOCK") or (name.startswith("SQLITE_BUSY") and not has_locks(path.parent)):
            reason = f"cannot be locked ({error}), as on a file system without locks: use a folder on a local disk"
        elif name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            reason = f"is busy: another process has held it for {BUSY_SECONDS:g} s; end that process or try again"
        elif name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            reason = f"cannot be read or written ({error}): check free space and permissions; what was saved is safe"
        else:
            reason = damage(str(error))
        raise StoreError(f"the results store {path} {reason}") from error


def damage(problem: str) -> str:
    """Return the message for a damaged file."""
    problem = " ".join(problem.split())
    return f"is damaged or no Syno Lab store ({problem}): move it away or restore a copy; nothing was changed"


class Closing(ABC):
    """A base class of context managers: the end of a ``with`` block calls :meth:`close`."""

    @abstractmethod
    def close(self) -> None:
        """Close the files and connections. A second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Database(Closing):
    """An open store file. Threads may share the connection; a forked process must not use it.

    Args:
        path: the file of the store; a missing file is created.
        is_thorough: whether to check the whole file for damage. The digests of rows are always checked.
        is_read_only: whether to open an existing file without any write.
    """

    def __init__(self, path: Path, *, is_thorough: bool = True, is_read_only: bool = False) -> None:
        self.path = path
        self.is_read_only = is_read_only
        self._looks = "ro"
        self._unchanged: tuple[int, int, int] | None = None
        self._writes = 0
        self._pid = os.getpid()
        self._guard = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        refuse_network(path)
        try:
            if not is_read_only and not path.parent.is_dir():
                private.folder(path.parent)
            exists = path.exists()
        except OSError as error:
            raise StoreError(f"the results store {path} cannot be reached: {error.strerror or error}") from error
        if not exists and is_read_only:
            raise StoreError(f"the results store {path} is not there: expected the folder of a lab, or the file in it")
        if not exists:
            self._create()
        if is_read_only and is_frozen(path.parent) and not self._state()[-1]:
            self._looks, self._unchanged = "ro&immutable=1", self._state()  # else SQLite creates files beside it
        self._check(is_thorough)
        with _errors(path):
            self._connection = sqlite3.connect(
                _uri(path, self._looks if is_read_only else "rw"),
                uri=True,
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            if not is_read_only:
                prepare(self._connection)

    def _create(self) -> None:
        """Create the file under another name and rename it, so that no process can open an incomplete store."""
        with self.exclusive():
            if self.path.exists():  # another process has created the file first
                return
            new = self.path.with_name(self.path.name + "-new")
            parts = [new, new.with_name(new.name + "-wal"), new.with_name(new.name + "-shm")]
            try:
                for part in parts:  # A killed process left incomplete files.
                    part.unlink(missing_ok=True)
                private.create(new, "xb").close()  # SQLite's other files get the mode of this file
                with _errors(self.path), closing(sqlite3.connect(new, isolation_level=None)) as connection:
                    connection.execute("PRAGMA journal_mode=WAL")
                    connection.executescript(f"BEGIN; {SCRIPT} COMMIT;")
                new.replace(self.path)
            except OSError as error:
                raise StoreError(f"the results store {self.path} cannot be made: {error.strerror or error}") from error
            finally:
                for part in parts:
                    part.unlink(missing_ok=True)

    def _check(self, is_thorough: bool) -> None:
        """Raise StoreError for a damaged or foreign file, and for a file of another version. Write nothing.

        A read-only connection keeps the write-ahead log; a writing connection moves it into the file on close.
        """
        if not self.path.is_file() or self.path.stat().st_size == 0:
            raise StoreError(f"the results store {self.path} {damage('it is not a file or is empty')}")
        for side in ("-wal", "-shm", "-journal"):  # SQLite opens side files too, and would wait for a FIFO for ever
            side_file = self.path.with_name(self.path.name + side)
            if os.path.lexists(side_file) and not side_file.is_file():
                raise StoreError(f"the results store {self.path} {damage(f'{side_file.name} beside it is no file')}")
        with (
            _errors(self.path),
            closing(sqlite3.connect(_uri(self.path, self._looks), uri=True, timeout=BUSY_SECONDS)) as file,
        ):
            (application,) = file.execute("PRAGMA application_id").fetchone()
            (version,) = file.execute("PRAGMA user_version").fetchone()
            (health,) = file.execute("PRAGMA integrity_check(1)").fetchone() if is_thorough else ("ok",)
        if health != "ok":
            raise StoreError(f"the results store {self.path} {damage(health)}")
        if application != APPLICATION_ID:
            raise StoreError(f"the results store {self.path} {damage('it was made by another program')}")
        if version != SCHEMA_VERSION:
            age, todo = ("a newer", "update, or use") if version > SCHEMA_VERSION else ("an older", "use")
            raise StoreError(
                f"the results store {self.path} has version {version}, this Syno Lab reads version {SCHEMA_VERSION}: "
                f"it was made by {age} Syno Lab; {todo} another folder"
            )

    def _state(self) -> tuple[int, int, int]:
        """Return values that change with each write: the file's time and size, and the size of the write-ahead log."""
        status, log = self.path.stat(), self.path.with_name(self.path.name + "-wal")
        return status.st_mtime_ns, status.st_size, log.stat().st_size if log.is_file() else 0

    @contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        if os.getpid() != self._pid:
            raise StoreError(f"the results store {self.path} was opened by another process: open it again in this one")
        with self._guard:
            if self._connection is None:
                raise StoreError(f"the results store {self.path} is closed")
            if self._unchanged is not None and self._unchanged != self._state():
                raise StoreError(f"the results store {self.path} has changed while it was looked at: open it again")
            with _errors(self.path):
                yield self._connection

    def read(self, columns: str, rest: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Select `columns` of rows, check each row's digest and return the rows without digests.

        The columns must have the names and the order of the `write` call.

        Raises StoreError where a row differs from the written row, or a value has not the type of its column.
        """
        with self._use() as connection:
            rows = connection.execute(f"SELECT {columns}, digest {rest}", parameters).fetchall()
        for *values, stored_digest in rows:
            if stored_digest != digest(values):
                raise StoreError(f"the results store {self.path} {damage('a row differs from what was written')}")
        kinds = KINDS[rest.split()[1]]
        types = [(name, _VALUES[kinds[name]]) for name in columns.split(", ")]
        for *values, _ in rows:
            for (name, kind), value in zip(types, values, strict=True):
                if not isinstance(value, kind) or (value.__class__ is float and not isfinite(value)):
                    raise StoreError(f"the results store {self.path} {damage(f'{name} of a row holds something else')}")
        return [tuple(values) for *values, _ in rows]

    def column(self, query: str, parameters: Sequence[object] = ()) -> list[Any]:
        """Return the result of a query with one column, for keys and counts. No digest is checked."""
        return [value for (value,) in self.columns(query, parameters)]

    def columns(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the result of a query. No digest is checked."""
        with self._use() as connection:
            return connection.execute(query, parameters).fetchall()

    def version(self) -> tuple[int, int]:
        """Return a value that changes with each write by any process; a cheap call."""
        with self._use() as connection:
            (changes,) = connection.execute("PRAGMA data_version").fetchone()
            return changes, self._writes

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all writes of the block; after an exception, commit no write."""
        with self._use() as connection:
            connection.execute("BEGIN IMMEDIATE")
            self._writes += 1
            try:
                yield
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:  # SQLite has already rolled back after some errors
                    connection.execute("ROLLBACK")

    def write(self, verb: str, table: str, columns: str, values: Sequence[object]) -> None:
        """Insert one row with its digest. `verb` is INSERT, INSERT OR REPLACE or INSERT OR IGNORE."""
        with self._use() as connection:
            self._writes += 1
            marks = ", ".join("?" * (len(values) + 1))
            connection.execute(f"{verb} INTO {table} ({columns}, digest) VALUES ({marks})", (*values, digest(values)))

    def remove(self, table: str, key: str, value: object) -> int:
        """Delete the rows of a table whose column `key` has this value; return the number of rows."""
        with self._use() as connection:
            self._writes += 1
            return connection.execute(f"DELETE FROM {table} WHERE {key}=?", (value,)).rowcount  # noqa: S608 - names of ours

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Exclude other processes of this program during the block, without a lock on the store itself.

        The lock is SQLite's lock on an empty file next to the store, so it ends when this process ends.
        """
        with _errors(self.path):
            name = self.path.with_name(self.path.name + "-lock")
            lock = sqlite3.connect(name, timeout=BUSY_SECONDS, isolation_level=None)
            with closing(lock):
                lock.execute("BEGIN EXCLUSIVE")
                with suppress(OSError):  # chmod fails for a file of another user
                    name.chmod(0o600)
                yield

    def close(self) -> None:
        """Close the connection. A second call does nothing."""
        with self._guard:
            connection, self._connection = self._connection, None
            if connection is not None and os.getpid() == self._pid:
                with _errors(self.path):
                    connection.close()


def prepare(connection: sqlite3.Connection) -> None:
    """Set the options that make a finished write durable. SQLite stores only the journal mode in the file."""
    connection.execute(f"PRAGMA busy_timeout={int(BUSY_SECONDS * 1000)}")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA journal_mode=WAL")
