"""What a trial costs beside its arithmetic, and what lower precision brings on this processor.

``overhead``: CPU time of ``run_trial`` (data read, network built, gradients checked, checkpoint and outcome written)
over that of a bare loop of forward, backward and optimizer over the same batches, the median of pairs that take turns.
``precision``: time of a training step under autocast over that in float32, likewise. ``costs``: milliseconds to know
the FLOPs and parameters of a network with an operator without building it.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import about, parser_with_data, save, say, typed, use_one_core

TURNS = 5


def main() -> None:
    """Measure and save."""
    given = parser_with_data(__doc__ or "", 500).parse_args()
    core = use_one_core(given.core)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    result = {
        "about": about(typed(), core),
        "overhead": overhead(str(given.data), given.images),
        "precision": precision(),
        "costs": costs(str(given.data)),
    }
    save("training", result)


def overhead(data: str, images: int) -> dict[str, Any]:
    """``run_trial`` over a bare loop, on ResNet-20 and CIFAR-10; seconds are those of the CPU."""
    import torch
    from torch.nn.functional import cross_entropy

    from syno_lab.trial import TrialRequest, run_trial
    from syno_lab.trial.backbone import build

    request = TrialRequest(backbone="resnet20", data=data, train_images=images, test_images=1, epochs=1, threads=1)
    torch.set_num_threads(1)

    def trial() -> float:
        with tempfile.TemporaryDirectory() as folder:
            outcome = run_trial(request, folder=Path(folder))
        assert outcome.state == "finished", outcome.reason
        return outcome.cpu_s

    def bare() -> float:
        net = build(request).module.train()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
        batch, labels = torch.rand(64, 3, 32, 32), torch.randint(10, (64,))
        start = time.process_time()
        for first in range(0, images, 64):
            size = min(64, images - first)
            optimizer.zero_grad(set_to_none=True)
            cross_entropy(net(batch[:size]), labels[:size]).backward()
            optimizer.step()
        return time.process_time() - start

    trial(), bare()  # what loads on use
    pairs = []
    for turn in range(TURNS):
        pairs.append((trial(), bare()))
        say(f"overhead {turn + 1} of {TURNS}: {pairs[-1][0]:.2f} s against {pairs[-1][1]:.2f} s")
    return {
        "images": images,
        "trial_cpu_s": statistics.median(one for one, _ in pairs),
        "bare_cpu_s": statistics.median(other for _, other in pairs),
        "ratio": statistics.median(one / other for one, other in pairs),
    }


def precision() -> list[dict[str, Any]]:
    """A training step in bfloat16 over one in float32; one in float16 takes minutes on a CPU, so nobody would."""
    import torch
    from torch import nn

    from syno_lab.models.gpt import gpt_tiny
    from syno_lab.models.resnet import resnet20

    cases: list[tuple[str, nn.Module, torch.Tensor]] = [
        ("resnet20, 64 images of 32x32", resnet20(), torch.rand(64, 3, 32, 32)),
        ("gpt_tiny, 32 windows of 64 tokens", gpt_tiny(), torch.randint(256, (32, 64))),
    ]
    rows = []
    for name, net, inputs in cases:
        steps = {kind: _step(net, inputs, kind) for kind in ("float32", "bfloat16")}
        times: dict[str, list[float]] = {kind: [] for kind in steps}
        for turn in range(TURNS + 1):
            for kind, step in steps.items():
                start = time.process_time()
                step()
                if turn:  # the first loads kernels
                    times[kind].append(time.process_time() - start)
        row: dict[str, Any] = {"case": name, "float32_ms": 1e3 * statistics.median(times["float32"])}
        pairs = zip(times["bfloat16"], times["float32"], strict=True)
        row["bfloat16_ratio"] = statistics.median(one / other for one, other in pairs)
        say(str(row))
        rows.append(row)
    return rows


def _step(net: Any, inputs: Any, kind: str) -> Callable[[], None]:
    import torch

    def step() -> None:
        with torch.autocast("cpu", getattr(torch, kind), enabled=kind != "float32"):
            outputs = net(inputs)
        outputs.float().logsumexp(-1).mean().backward()

    return step


def costs(data: str) -> dict[str, Any]:
    """Milliseconds for the costs of a network with an operator."""
    from syno_lab import operators
    from syno_lab.trial import TrialRequest, costs_of

    rows = {}
    for name in ("resnet20", "resnet34"):
        texts = [getattr(operators, kind)().to_json() for kind in ("conv2d", "separable", "operator_1")]
        costs_of(TrialRequest(backbone=name, data=data))
        times = []
        for _ in range(TURNS):
            for text in texts:
                start = time.process_time()
                costs_of(TrialRequest(backbone=name, data=data, operator=text))
                times.append(time.process_time() - start)
        rows[f"{name}_ms"] = 1e3 * statistics.median(times)
    return rows


if __name__ == "__main__":
    main()
