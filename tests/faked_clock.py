"""Processes whose clock jumps: Debian's faketime, and a thread that turns it back and forth."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

GAPS = Path(__file__).with_name("faketime_gaps.c")
JUMPS_S = (3600, 0, -3600, 0)


def library() -> str | None:
    """Where libfaketime is; None where it is not installed (Debian's package ``faketime``)."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    return str(found[0]) if found else None


class FakedClock:
    """A clock for processes that are given `environment`; ours stays right.

    Args:
        folder: of our own, for the clock's file and what is compiled.
        moves_monotonic: move the monotonic clock too, which no machine does: what is written down of it and what waits
            for it must stand that.
    """

    def __init__(self, folder: Path, *, moves_monotonic: bool) -> None:
        faketime = library()
        assert faketime is not None
        self._stamp, gaps = folder / "clock", folder / "faketime_gaps.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(gaps), str(GAPS), "-ldl"], check=True)
        self.jumps = 0
        self.set(0)
        self.environment = {
            "LD_PRELOAD": f"{gaps}:{faketime}",
            "FAKETIME_TIMESTAMP_FILE": str(self._stamp),
            "FAKETIME_CACHE_DURATION": "1",  # seconds between two looks at the file
            # Files' times are left: Python would take every module for changed, and compile it anew.
            "NO_FAKE_STAT": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "0" if moves_monotonic else "1",
        }

    def set(self, offset_s: int) -> None:
        """Let the clock be so far ahead of ours."""
        half = self._stamp.with_suffix(".new")
        half.write_text(f"{offset_s:+d}\n", encoding="ascii")
        half.replace(self._stamp)

    @contextmanager
    def jumping(self, period_s: float) -> Iterator[None]:
        """Meanwhile the clock jumps by an hour, forth and back; at the end it is ahead of what it ever was."""
        over = threading.Event()

        def jump() -> None:
            for offset in cycle(JUMPS_S):
                if over.wait(period_s):
                    return
                self.set(offset)
                self.jumps += 1

        thread = threading.Thread(target=jump, name="clock", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.set(2 * max(JUMPS_S))
