"""Measure the use of processor, memory and GPU by the jobs on this machine, and by the whole machine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import psutil

from syno_lab.inputs import count_of, integer
from syno_lab.jobs.gpus import told_by_driver
from syno_lab.jobs.ledger import Lease
from syno_lab.processes import alive

_MIB, _GIB = 1 << 20, 1 << 30
#: Seconds between two queries of the GPU's driver; a query takes 0.1 s.
GPU_S = 5.0
_GPU_PATIENCE_S = 2.0


@dataclass(frozen=True)
class Usage:
    """The resources that the processes of a job use.

    Attributes:
        cores: processor seconds per second since the last measurement; None at the first measurement.
        memory_mib: resident memory in MiB; shared memory counts for every process.
        gpu_mib: GPU memory in MiB; None where the job uses no GPU memory or the driver does not report it.
    """

    cores: float | None
    memory_mib: float
    gpu_mib: float | None = None

    def __str__(self) -> str:
        cores = [] if self.cores is None else [f"{self.cores:.1f} cores"]
        gpu = [] if self.gpu_mib is None else [f"GPU {self.gpu_mib:,.0f} MiB"]
        return ", ".join([*cores, f"{self.memory_mib:,.0f} MiB", *gpu])


class UsageMeter:
    """Measures the processes of jobs repeatedly. Processor use is the average between two measurements."""

    def __init__(self) -> None:
        self._before: dict[int, float] = {}  # each process's processor seconds at the last call
        self._at = 0.0
        self._gpus: dict[int, float] = {}
        self._asked_at = -float("inf")
        psutil.cpu_percent()  # the first result of cpu_percent has no meaning

    def look(self, leases: Iterable[Lease]) -> dict[int, Usage]:
        """Return the usage of each job with a lease, by the job's number, without jobs on other machines."""
        now, before = time.monotonic(), self._before
        own = {lease.job: list(_processes(lease)) for lease in leases if lease.is_here and alive.is_alive(lease.child)}
        gpus = self._on_gpus(now) if own else {}
        self._before, usages = {}, {}
        for job, processes in own.items():
            spent, memory, gpu, is_first = 0.0, 0.0, 0.0, True
            for process in processes:
                with suppress(psutil.Error):
                    times, number = process.cpu_times(), process.pid
                    self._before[number] = seconds = times.user + times.system
                    memory += process.memory_info().rss
                    gpu += gpus.get(number, 0.0)
                    if number in before:
                        spent, is_first = spent + seconds - before[number], False
            cores = None if is_first or now <= self._at else max(0.0, spent) / (now - self._at)
            usages[job] = Usage(cores, memory / _MIB, gpu or None)
        self._at = now
        return usages

    def machine(self) -> str:
        """Describe the usage of this machine: processor since the last call, memory, and GPU memory."""
        memory, count = psutil.virtual_memory(), psutil.cpu_count() or 1
        words = f"processor {psutil.cpu_percent():.0f} % of {count_of(count, 'core')}"
        words += f", memory {(memory.total - memory.available) / _GIB:.1f} of {memory.total / _GIB:.1f} GiB"
        gpu = sum(self._on_gpus(time.monotonic()).values())
        return f"{words}, GPU {gpu:,.0f} MiB" if gpu else words

    def _on_gpus(self, now: float) -> dict[int, float]:
        """Return the GPU memory of each process in MiB, from NVIDIA's driver; empty without a driver."""
        if now - self._asked_at >= GPU_S:
            self._asked_at = now
            options = "--query-compute-apps=pid,used_gpu_memory", "--format=csv,noheader,nounits"
            self._gpus = on_gpus(told_by_driver(*options, timeout_s=_GPU_PATIENCE_S))
        return self._gpus


def on_gpus(text: str) -> dict[int, float]:
    """Parse lines ``pid, MiB`` of ``nvidia-smi`` into MiB by process; skip lines that have no numbers."""
    memory: dict[int, float] = {}
    for line in text.splitlines():
        pid, mib = (integer(part.strip()) for part in (*line.split(","), "")[:2])
        if pid is not None and mib is not None:
            memory[pid] = memory.get(pid, 0.0) + mib
    return memory


def _processes(lease: Lease) -> Iterator[psutil.Process]:
    with suppress(psutil.Error):
        first = psutil.Process(alive.pid_of(lease.child))
        yield first
        yield from first.children(recursive=True)
