"""Work that a view does beside the kernel's main thread: shown while it lasts, cancelled when somebody says so.

Python cannot end a thread from outside, so long work calls ``should_stop`` often. What does not (a drawing, a
formula) ends by itself in a second or two, and nobody sees what comes of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from syno_lab.errors import StoppedError

#: Seconds that the main thread waits for work that a message has begun: most of it is over then, and needs no word.
GRACE_S = 0.25
_POLL_S = 0.1  # a signal that another thread took wakes nobody up
_ENDS_WITHIN_S = 5.0  # what has been interrupted, even on a machine that is busy


class Work(threading.Thread):
    """One piece of work; :class:`Works` begins it.

    Attributes:
        what: what is being done, in words.
        since: when it began, in seconds of the epoch.
        slot: only the latest work of a slot counts.
        is_rest: whether the request that began it is carried out already; it is answered before this is over.
        is_told: whether the page has been told of it.
        is_cancelled: whether somebody said that it should end.
        error: what it ended with, once it is over.
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
        """Do the work. An exception is kept in :attr:`error`."""
        try:
            self._do(self)
        except Exception as error:  # noqa: BLE001 whoever waits for it has to do with it
            self.error = error
        with self.works.lock:
            for call in self._then:
                call()
            self._is_over.set()
            self.works.forget(self)

    def should_stop(self) -> bool:
        """Whether nobody waits for it any more: it was cancelled, or something else was asked."""
        return self._is_dropped.is_set()

    def drop(self) -> None:
        """Nobody waits for it any more."""
        self._is_dropped.set()

    def say(self, what: str) -> None:
        """Set the description of the work from now on."""
        with self.works.lock:
            self.what = what
            self.works.show()

    def tell(self) -> None:
        """The page is told that this is being done, unless it is over."""
        with self.works.lock:
            if not self.is_told and not self._is_over.is_set() and not self.should_stop():
                self.is_told = True
                self._late()
                self.works.show()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is over, or so long; whether it is."""
        return self._is_over.wait(seconds)

    def then(self, call: Callable[[], None]) -> None:
        """Call this when it is over, under the view's lock."""
        with self.works.lock:
            if self._is_over.is_set():
                call()
            else:
                self._then.append(call)

    @contextmanager
    def delivering(self) -> Iterator[None]:
        """The view's lock, to show what was found.

        Raises:
            StoppedError: when nobody waits for it any more.
        """
        with self.works.lock:
            if self.should_stop():
                raise StoppedError(f"stopped while {self.what}")
            yield


Do = Callable[[Work], None]


class Works:
    """The running work of one view.

    Args:
        lock: under which the view's traits are written.
        shown: called with what is to be shown of it: ``what`` and ``since``, or nothing.
        cancelled: called for each work that is cancelled, under the lock.
    """

    def __init__(
        self, lock: threading.RLock, shown: Callable[[dict[str, Any]], None], cancelled: Callable[[Work], None]
    ) -> None:
        self.lock = lock
        self._shown, self._cancelled = shown, cancelled
        self._latest: dict[str, Work] = {}

    def begin(self, what: str, do: Do, slot: str = "", late: Callable[[], None] = lambda: None) -> Work:
        """Begin work and cancel the earlier work of the slot.

        Args:
            what: what is being done, in words.
            do: does it, in another thread; it writes traits in :meth:`Work.delivering` alone.
            slot: of which the latest work counts.
            late: called when the page is told of it, under the lock.
        """
        work = Work(self, what, do, slot, late)
        with self.lock:
            old = self._latest.get(slot)
            if old is not None:
                old.drop()
            self._latest[slot] = work
        here = threading.current_thread()
        if isinstance(here, Work) and here.works is self:
            work.run()  # asked for by somebody who watches our traits: another thread would wait for our lock
        else:
            work.start()
        return work

    def of(self, slot: str = "") -> Work | None:
        """The running work of a slot."""
        return self._latest.get(slot)

    def forget(self, work: Work) -> None:
        """It is over, or nobody waits for it any more."""
        if self._latest.get(work.slot) is work:
            del self._latest[work.slot]
        self.show()

    def drop(self, slot: str = "") -> None:
        """Something else has been asked."""
        with self.lock:
            work = self._latest.get(slot)
            if work is not None:
                work.drop()
                self.forget(work)

    def close(self) -> None:
        """Nobody waits for anything any more, and nothing is shown of it."""
        with self.lock:
            for work in self._latest.values():
                work.drop()
            self._latest.clear()

    def cancel(self, *works: Work) -> list[Work]:
        """These come to nothing, all if none is named; which they were."""
        with self.lock:
            found = [work for work in self._latest.values() if not works or work in works]
            for work in found:
                work.is_cancelled = True
                work.drop()
                self.forget(work)
                self._cancelled(work)
        return found

    def through(self, begin: Callable[[], Work]) -> None:
        """Begin work from a cell, and wait for its end; an interrupt of the cell cancels it.

        Raises what it ended with; where something else was asked meanwhile, nothing.
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
        """The page sees what the latest work does that it has been told of."""
        told = [work for work in self._latest.values() if work.is_told]
        newest = max(told, key=lambda work: work.since, default=None)
        self._shown({} if newest is None else {"what": newest.what, "since": newest.since})
