"""Use of processor, memory and GPU by the jobs that run on this machine, and by all of it."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import psutil

from syno_lab.inputs import count_of, integer
from syno_lab.jobs.ledger import Lease
from syno_lab.processes import alive

_MIB, _GIB = 1 << 20, 1 << 30
#: Seconds between two questions to the driver of the GPU, which take a tenth of a second each.
GPU_S = 5.0
_GPU_PATIENCE_S = 2.0


@dataclass(frozen=True)
class Usage:
    """What the processes of a job use.

    Attributes:
        cores: processor seconds in a second, since the look before; None at the first look.
        memory_mib: resident memory; what several processes share counts for each.
        gpu_mib: memory of the GPU; None where none is used or the driver does not tell.
    """

    cores: float | None
    memory_mib: float
    gpu_mib: float | None = None

    def __str__(self) -> str:
        cores = [] if self.cores is None else [f"{self.cores:.1f} cores"]
        gpu = [] if self.gpu_mib is None else [f"GPU {self.gpu_mib:,.0f} MiB"]
        return ", ".join([*cores, f"{self.memory_mib:,.0f} MiB", *gpu])


class UsageMeter:
    """Looks at the processes of jobs again and again; processor use is that between two looks."""

    def __init__(self) -> None:
        self._before: dict[int, float] = {}  # processor seconds by process
        self._at = 0.0
        self._gpus: dict[int, float] = {}
        self._asked_at = -float("inf")
        psutil.cpu_percent()  # the first answer is about nothing

    def look(self, leases: Iterable[Lease]) -> dict[int, Usage]:
        """What the jobs with these leases use, by their numbers; jobs on other machines are left out."""
        now, was = time.monotonic(), self._before
        mine = {lease.job: list(_processes(lease)) for lease in leases if lease.is_here and alive.is_alive(lease.child)}
        gpus = self._on_gpus(now) if mine else {}
        self._before, found = {}, {}
        for job, processes in mine.items():
            spent, memory, gpu, is_first = 0.0, 0.0, 0.0, True
            for process in processes:
                with suppress(psutil.Error):
                    times, number = process.cpu_times(), process.pid
                    self._before[number] = seconds = times.user + times.system
                    memory += process.memory_info().rss
                    gpu += gpus.get(number, 0.0)
                    if number in was:
                        spent, is_first = spent + seconds - was[number], False
            cores = None if is_first or now <= self._at else max(0.0, spent) / (now - self._at)
            found[job] = Usage(cores, memory / _MIB, gpu or None)
        self._at = now
        return found

    def machine(self) -> str:
        """The use of this whole machine in words: processor since the last question, memory, and the GPU's memory."""
        memory, count = psutil.virtual_memory(), psutil.cpu_count() or 1
        words = f"processor {psutil.cpu_percent():.0f} % of {count_of(count, 'core')}"
        words += f", memory {(memory.total - memory.available) / _GIB:.1f} of {memory.total / _GIB:.1f} GiB"
        gpu = sum(self._on_gpus(time.monotonic()).values())
        return f"{words}, GPU {gpu:,.0f} MiB" if gpu else words

    def _on_gpus(self, now: float) -> dict[int, float]:
        """MiB of GPU memory by process, as NVIDIA's driver tells; nothing where there is none."""
        program = shutil.which("nvidia-smi")
        if program is not None and now - self._asked_at >= GPU_S:
            self._asked_at, self._gpus = now, {}
            with suppress(OSError, subprocess.SubprocessError):
                done = subprocess.run(
                    [program, "--query-compute-apps=pid,used_gpu_memory", "--format=csv,noheader,nounits"],
                    capture_output=True,
                    text=True,
                    timeout=_GPU_PATIENCE_S,
                    check=True,
                )
                self._gpus = on_gpus(done.stdout)
        return self._gpus


def on_gpus(text: str) -> dict[int, float]:
    """MiB by process, of lines ``pid, MiB`` as ``nvidia-smi`` writes them; lines without numbers are left out."""
    found: dict[int, float] = {}
    for line in text.splitlines():
        pid, mib = (integer(part.strip()) for part in (*line.split(","), "")[:2])
        if pid is not None and mib is not None:
            found[pid] = found.get(pid, 0.0) + mib
    return found


def _processes(lease: Lease) -> Iterator[psutil.Process]:
    with suppress(psutil.Error):
        first = psutil.Process(alive.pid_of(lease.child))
        yield first
        yield from first.children(recursive=True)
