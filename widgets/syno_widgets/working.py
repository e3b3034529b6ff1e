"""Work of a view in a thread beside the kernel's main thread: shown while it runs, and cancelled on request.

Python cannot end a thread from outside, so long work calls ``should_stop`` often. Work without such calls (a drawing, a
formula) ends by itself in a second or two, and its result is not shown.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from syno_lab.errors import StoppedError

#: Seconds for which the main thread waits for new work: most work ends in this time and is not shown.
GRACE_S = 0.25
_POLL_S = 0.1  # Seconds between two checks: a signal that another thread received does not end a wait.
_ENDS_WITHIN_S = 5.0  # The most seconds until interrupted work ends, also on a busy machine.


class Work(threading.Thread):
    """One piece of work; :class:`Works` begins it.

    Attributes:
        what: the description of the work.
        since: its start, in seconds of the epoch.
        slot: only the latest work of a slot is used.
        is_rest: whether the request that began it is already carried out; then the answer does not wait for the work.
        is_told: whether the page shows it.
        is_cancelled: whether it was cancelled.
        error: the exception that ended it, or None.
    """

    def __init__(self, works: Works, what: str, do: Do, slot: str, late: Callable[[], None]) -> None:
        super().__init__(name=f"syno-lab {what}", daemon=True)
        self.what, self.slot, self.since = what, slot, time.time()
        self.is_told = self.is_rest = self.is_cancelled = False
        self.error: Exception | None = None
        self.works = works
        self._do, self._late = do, late
        self._is_dropped = threading.Event()
        self._is_over = threading.Event()
        self._then: list[Callable[[], None]] = []

    def run(self) -> None:
        """Do the work; store an exception in :attr:`error`."""
        try:
            self._do(self)
        except Exception as error:  # noqa: BLE001 the waiting caller handles it
            self.error = error
        with self.works.lock:
            for call in self._then:
                call()
            self._is_over.set()
            self.works.forget(self)

    def should_stop(self) -> bool:
        """Tell whether the result is unwanted: the work was cancelled or replaced."""
        return self._is_dropped.is_set()

    def drop(self) -> None:
        """Mark the result as unwanted."""
        self._is_dropped.set()

    def say(self, what: str) -> None:
        """Set the description of the work from now on."""
        with self.works.lock:
            self.what = what
            self.works.show()

    def tell(self) -> None:
        """Show the work on the page, unless it has ended."""
        with self.works.lock:
            if not self.is_told and not self._is_over.is_set() and not self.should_stop():
                self.is_told = True
                self._late()
                self.works.show()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the work has ended, or for ``seconds``; return whether it has ended."""
        return self._is_over.wait(seconds)

    def then(self, call: Callable[[], None]) -> None:
        """Call ``call`` when the work has ended, under the view's lock."""
        with self.works.lock:
            if self._is_over.is_set():
                call()
            else:
                self._then.append(call)

    @contextmanager
    def delivering(self) -> Iterator[None]:
        """Hold the view's lock in the block, to show the result.

        Raises:
            StoppedError: the result is unwanted.
        """
        with self.works.lock:
            if self.should_stop():
                raise StoppedError(f"stopped while {self.what}")
            yield


Do = Callable[[Work], None]


class Works:
    """The running work of one view.

    Args:
        lock: the lock under which the view's traits are written.
        shown: called with the work to show, ``what`` and ``since``, or with {}.
        cancelled: called for each cancelled work, under the lock.
    """

    def __init__(
        self, lock: threading.RLock, shown: Callable[[dict[str, Any]], None], cancelled: Callable[[Work], None]
    ) -> None:
        self.lock = lock
        self._shown, self._cancelled = shown, cancelled
        self._latest: dict[str, Work] = {}

    def begin(self, what: str, do: Do, slot: str = "", late: Callable[[], None] = lambda: None) -> Work:
        """Begin work and drop the earlier work of the slot.

        Args:
            what: the description of the work.
            do: does the work in another thread; it writes traits only within :meth:`Work.delivering`.
            slot: the slot, of which only the latest work is used.
            late: called when the page shows the work, under the lock.
        """
        work = Work(self, what, do, slot, late)
        with self.lock:
            old = self._latest.get(slot)
            if old is not None:
                old.drop()
            self._latest[slot] = work
        here = threading.current_thread()
        if isinstance(here, Work) and here.works is self:
            work.run()  # called by an observer of the view's traits: another thread would wait for the lock
        else:
            work.start()
        return work

    def of(self, slot: str = "") -> Work | None:
        """Return the running work of a slot."""
        return self._latest.get(slot)

    def forget(self, work: Work) -> None:
        """Remove work that has ended or is unwanted."""
        if self._latest.get(work.slot) is work:
            del self._latest[work.slot]
        self.show()

    def drop(self, slot: str = "") -> None:
        """Drop the work of a slot, because another request has replaced it."""
        with self.lock:
            work = self._latest.get(slot)
            if work is not None:
                work.drop()
                self.forget(work)

    def close(self) -> None:
        """Drop all work, and show none of it."""
        with self.lock:
            for work in self._latest.values():
                work.drop()
            self._latest.clear()

    def cancel(self, *works: Work) -> list[Work]:
        """Cancel the given works, or all works; return the cancelled works."""
        with self.lock:
            cancelled = [work for work in self._latest.values() if not works or work in works]
            for work in cancelled:
                work.is_cancelled = True
                work.drop()
                self.forget(work)
                self._cancelled(work)
        return cancelled

    def through(self, begin: Callable[[], Work]) -> None:
        """Begin work from a cell, and wait for its end; an interrupt of the cell cancels it.

        Raises the exception that ended the work, unless another request has replaced the work.
        """
        try:
            work = begin()
            if not work.wait(GRACE_S):
                work.tell()
                while not work.wait(_POLL_S):
                    pass
        except KeyboardInterrupt:
            for cancelled in self.cancel():
                cancelled.wait(_ENDS_WITHIN_S)
            raise
        if work.error is not None and (work.is_cancelled or not work.should_stop()):
            raise work.error

    def show(self) -> None:
        """Show the latest visible work on the page."""
        visible = [work for work in self._latest.values() if work.is_told]
        newest = max(visible, key=lambda work: work.since, default=None)
        self._shown({} if newest is None else {"what": newest.what, "since": newest.since})
