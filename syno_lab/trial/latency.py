"""The time that a network takes for one example, measured by PyTorch in the process that trained it."""

from __future__ import annotations

import statistics
import time

import torch
from torch import Tensor, nn

#: The first passes, which are slower, are not counted.
WARM_UP = 3
MOST_PASSES, MOST_S = 30, 2.0


@torch.no_grad()
def latency_ms(net: nn.Module, example: Tensor) -> float:
    """The median time of a forward pass in evaluation mode, in ms.

    On a CPU with one thread it is the time of this thread on a processor, which other work on the machine lengthens
    less; otherwise the time that passed.

    Args:
        net: on the example's device; stays in the mode that it is in.
        example: a batch of one.
    """
    is_alone = example.device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.thread_time if is_alone else time.perf_counter
    was_training = net.training
    net.eval()
    times: list[float] = []
    end = time.perf_counter() + MOST_S
    while len(times) < WARM_UP + MOST_PASSES and (len(times) <= WARM_UP or time.perf_counter() < end):
        start = clock()
        net(example)
        if example.device.type == "cuda":
            torch.cuda.synchronize(example.device)
        times.append(clock() - start)
    net.train(was_training)
    return 1000 * statistics.median(times[WARM_UP:])
