"""The user's own code may run for long, or for ever: a line says that it still runs, and at a deadline it is ended."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from syno_lab.errors import CodeError, SynoError

#: Seconds after which a line says that code still runs (again after twice as long, and so on), and its deadline.
SAYS_S, MOST_S = 10.0, 1800.0
_AGAIN_S = 5.0  # where code goes on although it was interrupted


@contextmanager
def patient(what: str, kind: type[SynoError] = CodeError) -> Iterator[None]:
    """Around code of the user's own that is run once: its deadline is :data:`MOST_S`.

    In the main thread it is interrupted then, as by Ctrl-C; code that does not come back from C goes on. A child that
    the code forks ends where the code ends: only the process that was asked goes on.

    Args:
        what: what messages call the code.
        kind: of the error.

    Raises SynoError of that kind, at the deadline.
    """
    stream, process = sys.stderr, os.getpid()
    thread = threading.main_thread() if threading.current_thread() is threading.main_thread() else None
    way_out = "; Ctrl-C ends it" if thread else ""
    lock, is_over, is_late = threading.Lock(), threading.Event(), threading.Event()

    def watch() -> None:
        begun, wait = time.monotonic(), min(SAYS_S, MOST_S)
        while not is_over.wait(wait):
            passed = time.monotonic() - begun
            if passed < MOST_S:
                with suppress(OSError, ValueError):  # the code may have closed it
                    print(f"{what} has run for {passed:.0f} s{way_out}", file=stream, flush=True)
                wait = min(passed, MOST_S - passed)
                continue
            if thread is None or thread.ident is None:
                return
            with lock:
                if not is_over.is_set():
                    is_late.set()
                    signal.pthread_kill(thread.ident, signal.SIGINT)
            wait = _AGAIN_S

    watcher = threading.Thread(target=watch, daemon=True, name="patience")
    watcher.start()
    try:
        try:
            yield
        finally:
            if os.getpid() != process:
                os._exit(0)
            with lock:
                is_over.set()
    except KeyboardInterrupt:
        if not is_late.is_set():
            raise
        raise kind(f"{what}: expected an end within {MOST_S:.0f} s, found none; it was interrupted") from None
