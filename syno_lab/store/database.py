"""The SQLite file under the store: how it is made, checked, written, shared and refused.

Promises: what a finished call wrote survives a kill of the process at any moment (write-ahead log, synchronous=FULL);
several processes and threads may use one file; a damaged or foreign file, and one of another version, is refused with
one line and stays as it is. Each row of ours ends with a digest, because SQLite does not notice a bit that flips inside
a number.

The file is never opened other than through SQLite: closing a plain handle on it would drop the locks that SQLite
holds for this process (https://www.sqlite.org/howtocorrupt.html, section 2.2).
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
#: The values that a column of each kind may hold.
_VALUES: dict[str, tuple[type, ...]] = {
    "TEXT": (str, _NOTHING),
    "TEXT NOT NULL": (str,),
    "INTEGER": (int, _NOTHING),
    "INTEGER NOT NULL": (int,),
    "REAL": (float, int, _NOTHING),
    "REAL NOT NULL": (float, int),
}


#: What to do with a lab in a folder that cannot be written to.
COPY = "copy the whole folder to one of your own and name that"


def is_frozen(folder: Path) -> bool:
    """Whether nothing can be written in a folder: another's, or on a medium or a mount that is only read."""
    return not os.access(folder, os.W_OK)


def digest(values: Sequence[object]) -> str:
    """Return 64 bits over a row's values; what was read is compared with what was written."""
    return hashlib.blake2b(repr(tuple(values)).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _uri(path: Path, mode: str) -> str:
    return f"file:{quote(str(path))}?mode={mode}"


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn every error of SQLite into one line for the user."""
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


def damage(found: str) -> str:
    """Say what a damaged file means for the user."""
    found = " ".join(found.split())
    return f"is damaged or no Syno Lab store ({found}): move it away or restore a copy; nothing was changed"


class Closing(ABC):
    """A base class: a ``with`` block calls the :meth:`close` of the subclass when it ends."""

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
    """An open store file. One connection, guarded so that threads may share it; not to be used after a fork.

    Args:
        path: the file; made where there is none.
        is_thorough: read the whole file once to see that it is undamaged; rows have their digests either way.
        is_read_only: look and never write: the file must be there.
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
            self._looks, self._unchanged = "ro&immutable=1", self._state()  # else SQLite would make files beside it
        self._check(is_thorough)
        with _told(path):
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
        """Build the file beside its place and move it there whole, so that no half-made store can be found."""
        with self.exclusive():
            if self.path.exists():  # another process was faster
                return
            half = self.path.with_name(self.path.name + "-new")
            parts = [half, half.with_name(half.name + "-wal"), half.with_name(half.name + "-shm")]
            try:
                for left in parts:  # by a process that was killed here
                    left.unlink(missing_ok=True)
                private.create(half, "xb").close()  # what SQLite adds beside it later has its mode
                with _told(self.path), closing(sqlite3.connect(half, isolation_level=None)) as connection:
                    connection.execute("PRAGMA journal_mode=WAL")
                    connection.executescript(f"BEGIN; {SCRIPT} COMMIT;")
                half.replace(self.path)
            except OSError as error:
                raise StoreError(f"the results store {self.path} cannot be made: {error.strerror or error}") from error
            finally:
                for left in parts:
                    left.unlink(missing_ok=True)

    def _check(self, is_thorough: bool) -> None:
        """Refuse a damaged or foreign file, and one of another version, through a connection that cannot write.

        A read-only connection also leaves the write-ahead log where it is, which a writing one would move into the
        file when it closes.
        """
        if not self.path.is_file() or self.path.stat().st_size == 0:
            raise StoreError(f"the results store {self.path} {damage('it is not a file or is empty')}")
        for side in ("-wal", "-shm", "-journal"):  # SQLite opens them too, and would wait for a FIFO for ever
            beside = self.path.with_name(self.path.name + side)
            if os.path.lexists(beside) and not beside.is_file():
                raise StoreError(f"the results store {self.path} {damage(f'{beside.name} beside it is no file')}")
        with (
            _told(self.path),
            closing(sqlite3.connect(_uri(self.path, self._looks), uri=True, timeout=BUSY_SECONDS)) as file,
        ):
            (found,) = file.execute("PRAGMA application_id").fetchone()
            (version,) = file.execute("PRAGMA user_version").fetchone()
            (health,) = file.execute("PRAGMA integrity_check(1)").fetchone() if is_thorough else ("ok",)
        if health != "ok":
            raise StoreError(f"the results store {self.path} {damage(health)}")
        if found != APPLICATION_ID:
            raise StoreError(f"the results store {self.path} {damage('it was made by another program')}")
        if version != SCHEMA_VERSION:
            age, todo = ("a newer", "update, or use") if version > SCHEMA_VERSION else ("an older", "use")
            raise StoreError(
                f"the results store {self.path} has version {version}, this Syno Lab reads version {SCHEMA_VERSION}: "
                f"it was made by {age} Syno Lab; {todo} another folder"
            )

    def _state(self) -> tuple[int, int, int]:
        """What changes when somebody writes: the file's time and size, and the size of the log beside it."""
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
            with _told(self.path):
                yield self._connection

    def read(self, columns: str, rest: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Select `columns` of whole rows and return them without their digests, which must be right.

        The columns must be those, in the order, that `write` was given.

        Raises StoreError: a row differs from what was written, or holds what its columns are not for.
        """
        with self._use() as connection:
            rows = connection.execute(f"SELECT {columns}, digest {rest}", parameters).fetchall()
        for *values, seal in rows:
            if seal != digest(values):
                raise StoreError(f"the results store {self.path} {damage('a row differs from what was written')}")
        kinds = KINDS[rest.split()[1]]
        wanted = [(name, _VALUES[kinds[name]]) for name in columns.split(", ")]
        for *values, _ in rows:
            for (name, kind), value in zip(wanted, values, strict=True):
                if not isinstance(value, kind) or (value.__class__ is float and not isfinite(value)):
                    raise StoreError(f"the results store {self.path} {damage(f'{name} of a row holds something else')}")
        return [tuple(values) for *values, _ in rows]

    def column(self, query: str, parameters: Sequence[object] = ()) -> list[Any]:
        """Return the one column that a query asks for; for keys and counts, as no digest guards them."""
        return [value for (value,) in self.columns(query, parameters)]

    def columns(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return what a query asks for, without a look at digests."""
        with self._use() as connection:
            return connection.execute(query, parameters).fetchall()

    def version(self) -> tuple[int, int]:
        """Return a value that differs once anybody has written to the file; it costs next to nothing to ask."""
        with self._use() as connection:
            (others,) = connection.execute("PRAGMA data_version").fetchone()
            return others, self._writes

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all writes inside one: all of them are kept, or none."""
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
        """Insert one row with its digest; `verb` is INSERT, INSERT OR REPLACE or INSERT OR IGNORE."""
        with self._use() as connection:
            self._writes += 1
            marks = ", ".join("?" * (len(values) + 1))
            connection.execute(f"{verb} INTO {table} ({columns}, digest) VALUES ({marks})", (*values, digest(values)))

    def remove(self, table: str, key: str, value: object) -> int:
        """Delete the rows of a table whose column `key` has this value; return how many there were."""
        with self._use() as connection:
            self._writes += 1
            return connection.execute(f"DELETE FROM {table} WHERE {key}=?", (value,)).rowcount  # noqa: S608 - names of ours

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other processes of ours out, without locking the store itself.

        The lock is one that SQLite takes on an empty file beside the store, so it ends with its holder, however that
        ends.
        """
        with _told(self.path):
            name = self.path.with_name(self.path.name + "-lock")
            lock = sqlite3.connect(name, timeout=BUSY_SECONDS, isolation_level=None)
            with closing(lock):
                lock.execute("BEGIN EXCLUSIVE")
                with suppress(OSError):  # somebody else's, who lets us write
                    name.chmod(0o600)
                yield

    def close(self) -> None:
        """Close the connection; closing twice is fine."""
        with self._guard:
            connection, self._connection = self._connection, None
            if connection is not None and os.getpid() == self._pid:
                with _told(self.path):
                    connection.close()


def prepare(connection: sqlite3.Connection) -> None:
    """Set what makes a finished write last; SQLite keeps none of it but the journal mode in the file."""
    connection.execute(f"PRAGMA busy_timeout={int(BUSY_SECONDS * 1000)}")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA journal_mode=WAL")
