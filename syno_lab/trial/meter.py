"""Measure a trial's wall seconds, CPU seconds and peak memory, and its network's time for an example."""

from __future__ import annotations

import statistics
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import torch
from torch import Tensor, nn

from syno_lab.effort import peak_bytes

_MIB = 1 << 20
_CLEAR = Path("/proc/self/clear_refs")
#: The number of first forward passes that are not counted, because first passes are slower.
_WARM_UP = 3
_MOST_PASSES, _MOST_S = 30, 2.0


class Meter:
    """A context manager that measures the time and memory of this process inside the block.

    ``wall_s``: wall time; ``cpu_s``: CPU time of all threads; ``peak_mib``: on a CUDA device torch's peak allocation,
    else the largest growth of the process's resident memory. Linux can reset the peak of resident memory; on other
    systems, growth below an earlier peak of the process is not measured. The values are final when the block ends.
    """

    def __init__(self, device: str = "cpu") -> None:
        self._cuda = device if device.startswith("cuda") and torch.cuda.is_available() else None
        self.wall_s = self.cpu_s = self.peak_mib = 0.0
        self._start = self._cpu_start = self._before = 0.0

    def __enter__(self) -> Meter:
        self._start, self._cpu_start = time.monotonic(), time.process_time()
        if self._cuda is not None:
            torch.cuda.reset_peak_memory_stats(self._cuda)
        else:
            _forget_peak()
            self._before = peak_bytes() / _MIB
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.read()

    def read(self) -> None:
        """Update the measured values."""
        self.wall_s = time.monotonic() - self._start
        self.cpu_s = time.process_time() - self._cpu_start
        if self._cuda is not None:
            self.peak_mib = torch.cuda.max_memory_allocated(self._cuda) / _MIB
        else:
            self.peak_mib = max(0.0, peak_bytes() / _MIB - self._before)


def _forget_peak() -> None:
    with suppress(OSError):
        _CLEAR.write_text("5")  # this resets the peak resident set size (proc(5))


@torch.no_grad()
def latency_ms(net: nn.Module, example: Tensor) -> float:
    """Return the median time of a forward pass in evaluation mode, in ms.

    On a CPU with one thread, the time is this thread's CPU time, on which other load has less influence. In all other
    cases the time is wall time.

    Args:
        net: a network on the example's device; its mode (training or evaluation) is restored.
        example: a batch of one example.
    """
    is_alone = example.device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.thread_time if is_alone else time.perf_counter
    was_training = net.training
    net.eval()
    times: list[float] = []
    end = time.perf_counter() + _MOST_S
    while len(times) < _WARM_UP + _MOST_PASSES and (len(times) <= _WARM_UP or time.perf_counter() < end):
        start = clock()
        net(example)
        if example.device.type == "cuda":
            torch.cuda.synchronize(example.device)
        times.append(clock() - start)
    net.train(was_training)
    return 1000 * statistics.median(times[_WARM_UP:])
