"""A trained network's prediction or loss for each example of the test part.

Shapes: N test images, M windows of a test text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import torch
from torch import Tensor, nn

from syno_lab.copies import modes_kept
from syno_lab.data.datasets import Dataset
from syno_lab.data.own import OwnData
from syno_lab.data.stream import ImageStream
from syno_lab.data.text import TextData
from syno_lab.training.examples import task_of
from syno_lab.training.loop import Task, cross_entropy, outputs_of
from syno_lab.training.recipes import Arithmetic, Precision
from syno_lab.training.text import TextTask
from syno_lab.training.train import find_device


def image_answers(
    module: nn.Module,
    dataset: Dataset | ImageStream | OwnData,
    *,
    batch_size: int = 64,
    device: str | torch.device = "cpu",
    precision: Precision = "float32",
    channels_last: bool = False,
) -> tuple[list[int], list[float]]:
    """The class that ``module`` predicts for each test image [N], and the loss of each [N] in nats."""
    predictions: list[int] = []
    losses: list[float] = []
    with closing(task_of(dataset, find_device(device), batch_size, "none", channels_last=channels_last)) as task:
        for logits, answers in _tested(module, task, precision):
            predictions += logits.argmax(1).tolist()
            losses += cross_entropy(logits, answers, reduction="none").tolist()
    return predictions, losses


def text_answers(
    module: nn.Module,
    text: TextData,
    *,
    context: int,
    test_windows: int | None = None,
    batch_size: int = 32,
    device: str | torch.device = "cpu",
    precision: Precision = "float32",
) -> list[float]:
    """The mean loss in nats of ``module`` in each window [M] of the test part."""
    task = TextTask(
        text, find_device(device), context=context, batch_size=batch_size, steps=1, test_windows=test_windows
    )
    losses: list[float] = []
    for logits, answers in _tested(module, task, precision):
        losses += cross_entropy(logits, answers, reduction="none").mean(1).tolist()
    return losses


@torch.no_grad()
def _tested(module: nn.Module, task: Task, precision: Precision) -> Iterator[tuple[Tensor, Tensor]]:
    arithmetic = Arithmetic(precision, task.device)
    dtype = next((parameter.dtype for parameter in module.parameters()), torch.float32)
    with modes_kept(module):
        module.to(task.device).eval()
        for number in range(task.test_batches):
            inputs, answers = task.test_batch(number, dtype)
            with arithmetic.forward():
                logits = task.check(outputs_of(module, inputs), inputs)
            yield logits, answers
