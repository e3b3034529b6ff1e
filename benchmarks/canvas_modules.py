"""Canvas's kernels as they are drawn, in all places of ResNet-20: which run, stay finite, and learn.

``python benchmarks/canvas.py --part modules`` calls this. Nothing is chosen by a trial run: the first kernels of a seed
are taken as the sampler with its defaults gives them. Each is built at every place, and is run forwards and backwards;
the first of them are trained for 24 steps of SGD on 128 images.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from common import say

from syno_lab.canvas import Sampler

if TYPE_CHECKING:
    import torch
    from torch import nn


STEPS, BATCH, RATE, IMAGES = 24, 32, 0.05, 128
#: The mean loss of the last four steps must be so much below that of the first three.
FALL = 0.1


def modules(given: Any, before: dict[str, Any], keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Kernels in all 18 places of ResNet-20.

    Args:
        given: the options ``seed``, ``data``, ``kernels`` (how many are built and run) and ``trained`` (how many of
            these are trained).
        before: what an earlier run has kept: its kernels are not run again where they are the same ones.
        keep: called with the result so far.
    """
    import torch

    from syno_lab.data.datasets import load_dataset
    from syno_lab.models.registry import BACKBONES

    torch.set_num_threads(1)
    data = load_dataset(given.data)
    images = torch.from_numpy(data.train_images[:IMAGES].copy()).float() / 128 - 1
    labels = torch.from_numpy(data.train_labels[:IMAGES].copy())

    def network() -> nn.Module:
        torch.manual_seed(0)
        return BACKBONES["resnet20"].build(outputs=10)

    sampler = Sampler(network(), example=(3, 32, 32), seed=given.seed)
    known = {row["key"]: row for row in before.get("rows", ()) if before.get("seed") == given.seed}
    rows: list[dict[str, Any]] = []
    while len(rows) < given.kernels:
        operator, is_trained = sampler.sample(), len(rows) < given.trained
        key = operator.fingerprint()
        row = known.get(key, {})
        if not row or (is_trained and "losses" not in row):
            row = {"key": key, "kernel": str(operator)}
            try:
                net = sampler.replace(network(), operator).train()
                row |= _run(net, images, labels, STEPS if is_trained else 1)
            except Exception as error:  # noqa: BLE001 - whatever is raised is a failure of this kernel
                row["error"] = f"{type(error).__name__}: {error}"
            say(f"{len(rows) + 1}: {row}")
        rows.append(row)
        if len(rows) % 10 == 0:
            keep(_report(given.seed, rows))
    return _report(given.seed, rows)


def _run(net: nn.Module, images: torch.Tensor, labels: torch.Tensor, steps: int) -> dict[str, Any]:
    """Some steps of SGD.

    Returns:
        ``finite``: whether the loss and all gradients are finite numbers in each step. ``without_gradient``: how many
        weights have none. ``still``: how many weights of FCs have a gradient of zeros alone in each step. After more
        than one step also ``losses``, those before the first step that is not finite.
    """
    import torch
    from torch.nn import functional as F

    optimiser = torch.optim.SGD(net.parameters(), lr=RATE)
    weights = [one for one in net.parameters() if one.ndim == 3]
    moved: set[int] = set()
    losses: list[float] = []
    is_finite, without = True, 0
    batch = BATCH if steps > 1 else 2
    for step in range(steps):
        chosen = (torch.arange(batch) + batch * step) % len(images)
        loss = F.cross_entropy(net(images[chosen]), labels[chosen])
        optimiser.zero_grad()
        loss.backward()
        gradients = [one.grad for one in net.parameters()]
        without = sum(one is None for one in gradients)
        moved |= {number for number, one in enumerate(weights) if one.grad is not None and bool(one.grad.any())}
        is_finite = bool(torch.isfinite(loss)) and all(
            one is None or bool(torch.isfinite(one).all()) for one in gradients
        )
        if not is_finite:
            break
        losses.append(loss.item())
        optimiser.step()
    found = {"finite": is_finite, "without_gradient": without, "still": len(weights) - len(moved)}
    return found | ({"losses": [round(one, 4) for one in losses]} if steps > 1 else {})


def _falls(row: dict[str, Any]) -> bool:
    losses = row["losses"]
    return bool(row["finite"] and statistics.fmean(losses[-4:]) < statistics.fmean(losses[:3]) - FALL)


def _report(seed: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    run = [row for row in rows if "error" not in row]
    trained = [row for row in run if "losses" in row]
    return {
        "seed": seed,
        "kernels": len(rows),
        "build_and_run": len(run),
        "trained": len(trained),
        "finite": sum(row["finite"] for row in trained),
        "falls": sum(map(_falls, trained)),
        "all_weights_have_gradients": sum(not row["without_gradient"] for row in run),
        "no_gradient_is_zero": sum(not row["still"] for row in trained),
        "rows": rows,
    }
