"""Measure a trial's wall seconds, CPU seconds and peak memory, and the times of networks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import torch
from torch import Tensor, nn

from syno_lab.effort import peak_bytes
from syno_lab.store.latencies import TIMES, Times
from syno_lab.training.loop import cross_entropy
from syno_lab.training.recipes import Arithmetic
from syno_lab.training.train import find_device
from syno_lab.trial.backbone import build, one_example
from syno_lab.trial.facts import facts_of
from syno_lab.trial.request import TrialRequest

Key = TypeVar("Key")
_MIB = 1 << 20
_CLEAR = Path("/proc/self/clear_refs")
#: The number of first forward passes that are not counted, because first passes are slower.
_WARM_UP = 3
_MOST_PASSES, _MOST_S = 30, 2.0
#: The least and the largest number of rounds of times that are measured in turns.
FEWEST_ROUNDS, MOST_ROUNDS = 3, 15


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
            with suppress(OSError):
                _CLEAR.write_text("5")  # proc(5): resets the peak resident set size
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


@torch.no_grad()
def latency_ms(net: nn.Module, example: Tensor) -> float:
    """Return the median time of a forward pass in evaluation mode, in ms.

    On a CPU with one thread, the time is this thread's CPU time, on which other load has less influence. In all other
    cases the time is wall time.

    Args:
        net: a network on the example's device; its mode (training or evaluation) is restored.
        example: a batch of one example.
    """
    clock = _clock(example.device)
    was_training = net.training
    net.eval()
    times: list[float] = []
    end = time.perf_counter() + _MOST_S
    while len(times) < _WARM_UP + _MOST_PASSES and (len(times) <= _WARM_UP or time.perf_counter() < end):
        start = clock()
        net(example)
        times.append(clock() - start)
    net.train(was_training)
    return 1000 * statistics.median(times[_WARM_UP:])


def _clock(device: torch.device) -> Callable[[], float]:
    """Return a clock in seconds that waits for the work of the device."""

    def clock() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    return time.thread_time if device.type == "cpu" and torch.get_num_threads() == 1 else clock


@contextmanager
def threads_of(count: int | None) -> Iterator[None]:
    """Use this number of threads of torch in the block; None: the current number."""
    before = torch.get_num_threads()
    if count is not None and count >= 1:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def times_in_turns(requests: Mapping[Key, TrialRequest], limit_s: float) -> dict[Key, Times]:
    """Measure the networks of these requests, untrained and on one device, in turns; return the median times in ms.

    A forward pass is in evaluation mode; a training step has forward pass, loss, gradients and update. In each round
    each network runs once, so that other load changes all times alike. The first round does not count. Rounds end after
    ``limit_s`` wall seconds, but not before :data:`FEWEST_ROUNDS`. The clock is that of :func:`latency_ms`.
    """
    first = next(iter(requests.values()))
    device = find_device(first.device)
    with threads_of(first.threads):
        clock, end = _clock(device), time.perf_counter() + limit_s
        runs = [(key, *run) for key, request in requests.items() for run in _runs(request, device)]
        found: dict[Key, dict[str, list[float]]] = {key: {} for key in requests}
        for number in range(MOST_ROUNDS):
            if number >= FEWEST_ROUNDS and time.perf_counter() >= end:
                break
            runs = [*runs[1:], runs[0]]
            for key, name, net, is_training, run in runs:
                net.train(is_training)
                start = clock()
                run()
                found[key].setdefault(name, []).append(1000 * (clock() - start))
    return {key: {name: statistics.median(by[name]) for name in TIMES if name in by} for key, by in found.items()}


def _runs(request: TrialRequest, device: torch.device) -> Iterator[tuple[str, nn.Module, bool, Callable[[], None]]]:
    """Yield each name in :data:`TIMES`, the network, whether to train it, and a function that has run once."""
    net, example = build(request).module.to(device), one_example(facts_of(request)).to(device)
    layout = torch.channels_last if request.channels_last and example.dim() == 4 else torch.contiguous_format
    if layout is torch.channels_last:
        net.to(memory_format=layout)  # type: ignore[call-overload]
    arithmetic, optimizer = Arithmetic(request.precision, device), torch.optim.SGD(net.parameters(), lr=0.0)

    def forward(x: Tensor) -> None:
        with torch.no_grad(), arithmetic.forward():
            net(x)

    def step(x: Tensor) -> None:
        with arithmetic.forward():
            logits = net(x)
        optimizer.zero_grad(set_to_none=True)
        cross_entropy(logits, torch.zeros(logits.shape[:-1], dtype=torch.int64, device=device)).backward()
        optimizer.step()

    for name, count in zip(TIMES, (1, request.batch_size) * 2, strict=True):
        is_training = name.startswith("step")
        batch = example.repeat(count, *[1] * (example.dim() - 1)).contiguous(memory_format=layout)
        run = partial(step if is_training else forward, batch)
        net.train(is_training)
        with suppress(*[ValueError] * (is_training and count == 1)):  # a BatchNorm does not train on one value
            run()
            yield name, net, is_training, run
