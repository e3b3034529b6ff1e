"""Train an image classifier or a language model, reproducibly, with progress, early stopping and resuming.

The module also returns a trained network's predictions and losses for the test part. Shapes: B examples in a batch, C
channels, H rows, W columns, T tokens, V tokens of a vocabulary, N test images, M windows of a test text. The method for
images is from He et al. 2016, section 4.2 (stochastic gradient descent with momentum 0.9 and weight decay, padded crops
and flips for CIFAR). One cosine cycle of the learning rate replaces the paper's steps, because it suits short trainings
better. The method for texts is AdamW with clipped gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from syno_lab.copies import modes_kept
from syno_lab.data.datasets import Dataset
from syno_lab.data.own import OwnData
from syno_lab.data.stream import ImageStream
from syno_lab.data.text import TextData
from syno_lab.errors import TrainingError
from syno_lab.inputs import quoted
from syno_lab.settings import RecipeName
from syno_lab.training.checkpoint import Settings
from syno_lab.training.limits import Limits
from syno_lab.training.loop import Course, Judge, Loop, Task, Watch, cross_entropy, outputs_of
from syno_lab.training.recipes import Arithmetic, Numbers, Precision, Recipe, image_recipe, text_recipe
from syno_lab.training.records import Resumption, TrainingProgress, TrainingResult
from syno_lab.training.tasks import Augment, TextTask, augmentation, task_of


def train(
    module: nn.Module,
    dataset: Dataset | ImageStream | OwnData,
    *,
    epochs: int,
    recipe: RecipeName | Numbers = "short",
    batch_size: int = 64,
    learning_rate: float | None = None,
    seed: int = 0,
    time_limit_s: float | None = None,
    gives_up: bool = False,
    probe_steps: int | None = None,
    patience: int | None = None,
    device: str | torch.device = "cpu",
    precision: Precision = "float32",
    augment: Augment | bool | None = None,
    ends_by_clock: bool = False,
    steps: int | None = None,
    channels_last: bool = False,
    optimizer: str = "sgd",
    on_progress: Callable[[TrainingProgress], None] | None = None,
    on_resume: Callable[[Resumption], None] | None = None,
    judge: Judge | None = None,
    checkpoint: str | Path | None = None,
    should_stop: Callable[[], bool] | None = None,
    raise_on_divergence: bool = False,
) -> TrainingResult:
    """Train ``module`` ([B, C, H, W] images to [B, classes] logits) in place, and test it after every epoch.

    Images are normalised by the training images' mean and deviation in each channel; ``augment`` selects the
    augmentation (:data:`.tasks.Augment`, True: ``crop``; the default depends on the data). Data of the user's own
    (:class:`.OwnData`) are neither normalised nor augmented, and are tensors of any shape. ``recipe`` is ``short`` or
    ``converged``, or other numbers (:class:`.Numbers`). ``learning_rate`` is the highest learning rate of the cycle
    (None: the recipe's, with ``adamw`` 0.001); ``optimizer`` is ``sgd`` or ``adamw``. ``time_limit_s`` limits the time
    in seconds, including the time before a resumption; the limit and ``should_stop`` are checked after every batch.
    With ``gives_up`` the training ends as soon as the pace of its batches shows that the limit is too short.
    ``patience`` is the number of epochs to wait for a better test accuracy. ``judge`` is called after every epoch
    except the last, and may end the training (:mod:`.trial.stopping` has rules for it).

    ``ends_by_clock`` is for a training that only ``time_limit_s`` ends (see :func:`train_text`).

    ``steps`` is the number of batches of the whole training, and ``epochs`` is then ignored: the curve has one record,
    the training is tested only at its end, and it has no checkpoint. ``channels_last`` stores images and the weights of
    ``nn.Conv2d`` with the channels last in memory. ``probe_steps`` is the least number of batches that ``gives_up``
    measures (default: four). With ``probe_steps`` the time limit counts the seconds for which this thread is on a
    processor, so that other load on the machine does not count.

    ``seed`` determines the order of the images, the augmentation and the module's random numbers (dropout), but not the
    module's initial weights. On a CPU with a given number of threads, equal weights and seed give equal results to the
    bit. torch's global generator keeps its state. ``precision`` ``bfloat16`` or ``float16`` is the type of operations
    that autocast changes (matrix products, convolutions), not of weights. With float16 the loss is scaled. Use bfloat16
    and float16 on GPUs: on a CPU bfloat16 gains little, and convolutions in float16 take many times longer.

    With ``checkpoint``, the state is written to that file after each epoch. A training that finds the file calls
    ``on_resume`` and continues from the checkpoint, with the checkpoint's weights in the module. The result equals the
    result of an uninterrupted training.

    At the end, the module has the last weights (not the best epoch's), on ``device``. A loss or gradient that is not
    finite, and gradients that stay zero, end the training (see :class:`TrainingResult`), or raise TrainingError with
    ``raise_on_divergence``. TrainingError is also raised for numbers out of range, logits of a wrong shape, an unknown
    device, a module without parameters, and a checkpoint that is damaged or belongs to another training.
    """
    _check(
        seed,
        {"epochs": epochs, "batch_size": batch_size, "patience": patience, "steps": steps, "probe_steps": probe_steps},
        {"learning_rate": learning_rate, "time_limit_s": time_limit_s},
    )
    made = image_recipe(optimizer, recipe, ends_by_clock=ends_by_clock)
    kind: Augment = "none" if isinstance(dataset, OwnData) else augmentation(dataset, augment, crops=made.crops)
    chosen = find_device(device)
    if channels_last:
        to_channels_last(module)
    limits = Limits(time_limit_s, should_stop, gives_up=gives_up, probe_steps=probe_steps, is_cpu=chosen.type == "cpu")
    with closing(task_of(dataset, chosen, batch_size, kind, channels_last=channels_last)) as task:
        return _train(
            module,
            task,
            made,
            precision,
            Course(epochs, steps, batch_size, float(learning_rate or made.learning_rate), seed),
            {"dataset": dataset.fingerprint, "augment": kind, "channels_last": channels_last},
            checkpoint,
            Watch(limits, on_progress, on_resume, judge, patience),
            raises=raise_on_divergence,
        )


def train_text(
    module: nn.Module,
    text: TextData,
    *,
    context: int,
    epochs: int,
    steps: int = 100,
    batch_size: int = 32,
    learning_rate: float | None = None,
    seed: int = 0,
    ends_by_clock: bool = False,
    time_limit_s: float | None = None,
    gives_up: bool = False,
    probe_steps: int | None = None,
    test_windows: int | None = None,
    total_steps: int | None = None,
    device: str | torch.device = "cpu",
    precision: Precision = "float32",
    on_progress: Callable[[TrainingProgress], None] | None = None,
    on_resume: Callable[[Resumption], None] | None = None,
    judge: Judge | None = None,
    checkpoint: str | Path | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> TrainingResult:
    """Train a language model (tokens [B, T] of int64 to logits [B, T, V]) in place, and test it after every epoch.

    An epoch is ``steps`` batches of ``batch_size`` windows of ``context`` tokens, drawn at random from the training
    part. A test uses adjacent windows from the beginning of the test part (at most ``test_windows``). The test loss is
    the mean over the tokens of the test in nats; :attr:`.EpochRecord.perplexity` is its exponential. ``ends_by_clock``
    is for a training that ends by ``time_limit_s``, not after a number of steps (Syno, section 9.3: 30 minutes for each
    operator). The learning rate's schedule then allows a stop at any step; without ``ends_by_clock`` it is one cosine
    cycle.

    ``total_steps`` means the same as ``steps`` of :func:`train`, which describes all other arguments and errors too.
    """
    _check(
        seed,
        {"epochs": epochs, "batch_size": batch_size, "steps": steps, "context": context, "test_windows": test_windows}
        | {"total_steps": total_steps, "probe_steps": probe_steps},
        {"learning_rate": learning_rate, "time_limit_s": time_limit_s},
    )
    limits = Limits(time_limit_s, should_stop, gives_up=gives_up, probe_steps=probe_steps)
    recipe = text_recipe(ends_by_clock=ends_by_clock)
    return _train(
        module,
        TextTask(
            text, find_device(device), context=context, batch_size=batch_size, steps=steps, test_windows=test_windows
        ),
        recipe,
        precision,
        Course(epochs, total_steps, batch_size, float(learning_rate or recipe.learning_rate), seed),
        {"dataset": text.fingerprint, "context": context, "steps": steps, "test_windows": test_windows},
        checkpoint,
        Watch(limits, on_progress, on_resume, judge),
    )


def to_channels_last(module: nn.Module) -> None:
    """Store the weights of each ``nn.Conv2d`` with the channels last; operators' weights keep their layout."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            part.weight.data = part.weight.data.contiguous(memory_format=torch.channels_last)


def _train(
    module: nn.Module,
    task: Task,
    recipe: Recipe,
    precision: Precision,
    course: Course,
    settings: Settings,
    checkpoint: str | Path | None,
    watch: Watch,
    *,
    raises: bool = False,
) -> TrainingResult:
    """Train on the task's device. The result depends on ``settings``, ``course``, ``recipe`` and ``precision``."""
    all_settings = {**settings, **asdict(course), "recipe": recipe.name, "precision": precision}
    arithmetic = Arithmetic(precision, task.device)
    loop = Loop(module.to(task.device), task, recipe, arithmetic, course, all_settings, checkpoint, watch)
    stopped = loop.go()
    if stopped == "diverged" and raises:
        raise TrainingError(loop.reason)
    return TrainingResult(
        accuracy=max((record.test_accuracy for record in loop.curve), default=None),
        curve=tuple(loop.curve),
        stopped=stopped,
        seed=course.seed,
        parameters=sum(parameter.numel() for parameter in loop.parameters),
        last_loss=loop.last_loss,
        reason=loop.reason,
    )


def _check(seed: int, counts: Mapping[str, int | None], amounts: Mapping[str, float | None]) -> None:
    for name, value in counts.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise TrainingError(f"expected {name} as a whole number from 1 up, found {quoted(value)}")
    for name, amount in amounts.items():
        if amount is not None and not (math.isfinite(amount) and amount > 0):
            raise TrainingError(f"expected {name} as a number above 0, found {quoted(amount)}")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TrainingError(f"expected seed as a whole number, found {quoted(seed)}")


def find_device(device: str | torch.device) -> torch.device:
    """Return the device with this name. Raises TrainingError if the machine lacks the device."""
    try:
        chosen = torch.device(device)
        torch.empty(1, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise TrainingError(
            f"expected a device of this machine such as 'cpu', found {quoted(str(device))}: {reason}"
        ) from None
    return chosen


def image_answers(
    module: nn.Module,
    dataset: Dataset | ImageStream | OwnData,
    *,
    batch_size: int = 64,
    device: str | torch.device = "cpu",
    precision: Precision = "float32",
    channels_last: bool = False,
) -> tuple[list[int], list[float]]:
    """Return the class that ``module`` predicts for each test image [N], and each image's loss [N] in nats."""
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
    """Return the mean loss in nats of ``module`` in each window [M] of the test part."""
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
