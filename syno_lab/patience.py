"""Limit the time of the user's own code: print messages while the code runs, and interrupt it at a deadline."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from syno_lab.errors import CodeError, SynoError

#: Seconds until a message that the code still runs (repeated when the time has doubled), and until the deadline.
SAYS_S, MOST_S = 10.0, 1800.0
_AGAIN_S = 5.0  # seconds until the next interrupt, if the code ignored the last interrupt


@contextmanager
def patient(what: str, kind: type[SynoError] = CodeError) -> Iterator[None]:
    """Run the block, the user's own code, with the deadline :data:`MOST_S`.

    In the main thread the code is then interrupted as by Ctrl-C; a call of a C function is not interrupted. A child
    process that the code forks ends at the end of the block; only the original process continues.

    Args:
        what: the name of the code in messages.
        kind: the class of the error.

    Raises SynoError of class ``kind`` at the deadline.
    """
    stream, process = sys.stderr, os.getpid()
    thread = threading.main_thread() if threading.current_thread() is threading.main_thread() else None
    way_out = "; Ctrl-C ends it" if thread else ""
    lock, is_over, is_late = threading.Lock(), threading.Event(), threading.Event()

    def watch() -> None:
        start, wait = time.monotonic(), min(SAYS_S, MOST_S)
        while not is_over.wait(wait):
            passed = time.monotonic() - start
            if passed < MOST_S:
                with suppress(OSError, ValueError):  # the user's code may have closed the stream
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
