"""Find what disturbed a measurement, from Linux's counters: other processes, a hypervisor, a changing clock rate."""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Limits above which a note is written: share of time stolen by a hypervisor, share of the machine that other processes
#: used, relative change of the clock rate.
STOLEN_LIMIT, OTHERS_LIMIT, CLOCK_LIMIT = 0.02, 0.1, 0.05


@dataclass(frozen=True)
class Machine:
    """The machine's counters: ``ticks`` of all processors (busy, stolen, in all), and the clock rate in MHz.

    None where the system does not provide them.
    """

    ticks: tuple[int, int, int] | None
    mhz: float | None

    @classmethod
    def now(cls) -> Machine:
        """The counters at this moment."""
        ticks: tuple[int, int, int] | None = None
        with contextlib.suppress(OSError, ValueError, IndexError):
            # man 5 proc_stat: user nice system idle iowait irq softirq steal
            found = [int(one) for one in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
            ticks = sum(found) - found[3] - found[4] - found[7], found[7], sum(found)
        return cls(ticks, _clock())

    def disturbed_since(self, before: Machine, threads: int) -> Iterator[str]:
        """Notes on what disturbed a measurement in ``threads`` threads between ``before`` and this moment."""
        processors = os.cpu_count() or 1
        if self.ticks is not None and before.ticks is not None and self.ticks[2] > before.ticks[2]:
            busy, stolen, total = (now - then for now, then in zip(self.ticks, before.ticks, strict=True))
            others = busy / total - threads / processors
            if stolen / total > STOLEN_LIMIT:
                yield f"the hypervisor took {stolen / total:.0%} of the processors' time away"
            if others > OTHERS_LIMIT:
                yield f"other processes used {others:.0%} of the {processors} processors besides"
        load = os.getloadavg()[0]
        if load > processors + 0.5:
            yield f"the load is {load:.1f} on {processors} processors"
        if self.mhz and before.mhz and abs(self.mhz - before.mhz) > CLOCK_LIMIT * before.mhz:
            yield f"the clock went from {before.mhz:.0f} to {self.mhz:.0f} MHz"


def _clock() -> float | None:
    """The mean clock rate of the processors in MHz."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "cpu MHz":
                found.append(float(value))
    return statistics.mean(found) if found else None
