"""The training loop of all tasks: epochs, tests, checkpoints, and all conditions that end a training.

Shapes: B examples in a batch, T tokens of a text, V possible answers (classes or tokens).
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from syno_lab.blame import blamed
from syno_lab.copies import modes_kept
from syno_lab.errors import TrainingError
from syno_lab.models.tried import blame
from syno_lab.training.checkpoint import Settings, Standing, Trained, load_checkpoint, save_checkpoint
from syno_lab.training.limits import Limits, Stop
from syno_lab.training.recipes import Arithmetic, Recipe, mix
from syno_lab.training.records import EpochRecord, Resumption, Stopped, TrainingProgress

Judge = Callable[[Sequence[EpochRecord]], str | None]
"""A callback that is called after every epoch except the last. It returns the reason to end the training, or None."""

ZERO_GRADIENTS = 3
"""A training ends after this number of successive batches (or a whole epoch) with zero gradients at a loss above 0."""

CLOSING, CLOSING_SHARE = 20, 0.25
"""A training's closing loss is the mean over this number of last batches, at most this share of an epoch's batches."""

SKIPPED_STEPS = 20
"""A training ends after this number of successive batches whose gradients overflow float16 at every loss scale."""


class Task(Protocol):
    """A training task: batches for training and for tests, numbered from 0."""

    device: torch.device

    @property
    def train_batches(self) -> int:
        """The number of batches of an epoch."""

    @property
    def test_batches(self) -> int:
        """The number of batches of a test."""

    def start_epoch(self, draw: torch.Generator) -> None:
        """Draw the random choices that all batches of the epoch share."""

    def train_batch(self, number: int, dtype: torch.dtype, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return inputs [B, …] and right answers [B] or [B, T] of a training batch."""

    def test_batch(self, number: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return inputs [B, …] and right answers [B] or [B, T] of a test batch."""

    def check(self, outputs: object, inputs: Tensor) -> Tensor:
        """Return the module's outputs if they are logits [B, V] or [B, T, V]; raise TrainingError if not."""


@dataclass(frozen=True)
class Watch:
    """The caller's callbacks, which receive the progress or may end the training."""

    limits: Limits
    progress: Callable[[TrainingProgress], None] | None = None
    resumed: Callable[[Resumption], None] | None = None
    judge: Judge | None = None
    patience: int | None = None


@dataclass
class _Mean:
    """Sums of losses and of right answers over a phase (training or test) of an epoch."""

    loss_sum: float = 0.0
    hits: int = 0
    count: int = 0

    def add(self, loss: float, logits: Tensor, answers: Tensor) -> None:
        self.loss_sum += loss * answers.numel()
        self.hits += int((logits.argmax(-1) == answers).sum())
        self.count += answers.numel()

    @property
    def loss(self) -> float:
        return self.loss_sum / max(self.count, 1)

    @property
    def accuracy(self) -> float:
        return self.hits / max(self.count, 1)


def cross_entropy(logits: Tensor, answers: Tensor, *, reduction: str = "mean", smoothing: float = 0.0) -> Tensor:
    """Return the cross entropy in nats of logits [B, V] or [B, T, V] for answers [B] or [B, T], at least in float32.

    ``smoothing`` is the share of each answer that is divided among all V answers.
    """
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    flat = functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), answers.reshape(-1), reduction=reduction, label_smoothing=smoothing
    )
    return flat.reshape(answers.shape) if reduction == "none" else flat


def outputs_of(module: nn.Module, inputs: Tensor) -> object:
    """Return a module's outputs. Every exception except a lack of memory becomes a TrainingError of one line."""
    with blamed("the network", TrainingError, partial(blame, module)):
        return module(inputs)


def logits_of(outputs: object, shape: list[int], inputs: str) -> Tensor:
    """Return a module's outputs for ``inputs``. Raises TrainingError if the outputs are not logits of this shape."""
    if not isinstance(outputs, Tensor) or list(outputs.shape) != shape:
        actual = list(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise TrainingError(f"expected logits {shape} for {inputs} from the module, found {actual}")
    return outputs


@dataclass(frozen=True)
class Course:
    """The length, batch size, learning rate and seed of a training; with ``total_steps`` the training has one epoch."""

    epochs: int
    total_steps: int | None
    batch_size: int
    learning_rate: float
    seed: int


class Loop:
    """The state of a training in this process; a checkpoint must have the same ``settings``."""

    def __init__(
        self,
        module: nn.Module,
        task: Task,
        recipe: Recipe,
        arithmetic: Arithmetic,
        course: Course,
        settings: Settings,
        checkpoint: str | Path | None,
        watch: Watch,
    ) -> None:
        self.module = module
        self.task = task
        self.recipe = recipe
        self.arithmetic = arithmetic
        self.course = course
        self.settings = settings
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        self.watch = watch
        self.curve: list[EpochRecord] = []
        self.last_loss: float | None = None
        self.reason = ""
        self.parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if not self.parameters:
            raise TrainingError(
                f"expected a module with parameters to train, found none in this {type(module).__name__}"
            )
        self.dtype = self.parameters[0].dtype
        self.optimizer = recipe.optimizer(self.parameters, course.learning_rate)
        self._trained = Trained(module, self.optimizer, arithmetic.scaler)
        self._without_gradient = 0
        self._skipped = 0
        # With ``total_steps``, a training is one epoch of that number of batches. When all batches of the task are
        # used, the task starts again. The network is tested once, at the end.
        self._epochs = course.epochs if course.total_steps is None else 1
        self._batches = task.train_batches if course.total_steps is None else course.total_steps
        self._closing: list[float] = []

    def go(self) -> Stopped:
        """Train until a condition ends the training, and return the way in which it ended."""
        if self.checkpoint is not None and self.checkpoint.exists():
            self._resume(self.checkpoint)
        devices = [self.task.device] if self.task.device.type == "cuda" else []
        try:
            # All random numbers come from the seed and the number of the epoch, so a resumed training needs no state of
            # a generator. `fork_rng` restores the caller's global generator.
            with modes_kept(self.module), torch.random.fork_rng(devices=devices):
                while True:
                    patience, accuracies = self.watch.patience, [record.test_accuracy for record in self.curve]
                    best = accuracies.index(max(accuracies)) if accuracies else 0  # the first of equally good epochs
                    if patience is not None and accuracies and len(accuracies) - 1 - best >= patience:
                        return "early"
                    if len(self.curve) >= self._epochs:
                        return "finished"
                    if self.curve and self.watch.judge is not None:
                        reason = self.watch.judge(self.curve)
                        if reason:
                            raise Stop("pruned", reason)
                    self.watch.limits.look()
                    self._epoch(len(self.curve) + 1)
        except Stop as stop:
            self.reason = stop.reason
            return stop.stopped

    def _resume(self, path: Path) -> None:
        standing = load_checkpoint(path, self.settings, self._trained, self.task.device)
        self.curve, self.last_loss = standing.curve, standing.last_loss
        self.watch.limits.count_from(standing.wall_s, standing.cpu_s, standing.work_s)
        if self.watch.resumed is not None:
            self.watch.resumed(Resumption(len(self.curve), standing.wall_s, standing.cpu_s, standing.work_s))

    def _epoch(self, epoch: int) -> None:
        start = time.monotonic()
        draw = torch.Generator().manual_seed(mix(self.course.seed, epoch))
        torch.manual_seed(mix(self.course.seed, -epoch))
        train, out_of_time = _Mean(), False
        try:
            self._train_epoch(epoch, train, draw)
        except Stop as stop:
            if stop.stopped != "time":
                raise
            out_of_time = True
        test = self._test(epoch)
        closing = fmean(self._closing) if self._closing else None
        self.curve.append(EpochRecord(epoch, train.loss, test.loss, test.accuracy, time.monotonic() - start, closing))
        if out_of_time:
            raise Stop("time")
        if self.checkpoint is not None and self.course.total_steps is None:
            limits = self.watch.limits
            standing = Standing(self.curve, self.last_loss, limits.wall_s, limits.cpu_s, limits.work_s)
            save_checkpoint(self.checkpoint, self.settings, self._trained, standing)

    def _train_epoch(self, epoch: int, mean: _Mean, draw: torch.Generator) -> None:
        self.module.train()
        self._without_gradient = self._skipped = 0
        limits, batches = self.watch.limits, self._batches
        total, first = self._epochs * batches, (epoch - 1) * batches
        tests = (self._epochs - epoch + 1) * self.task.test_batches
        last_losses: deque[float] = deque(maxlen=max(1, min(CLOSING, int(CLOSING_SHARE * batches))))
        limits.begin()
        for number in range(batches):
            where = f"epoch {epoch}, training batch {number + 1} of {batches}"
            rate = self.course.learning_rate * self.recipe.rate(first + number, total)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            index = number % self.task.train_batches
            if not index:
                self.task.start_epoch(draw)
            inputs, answers = self.task.train_batch(index, self.dtype, draw)
            logits, loss = self._forward(inputs, answers)
            value = self._finite(loss, where)
            self.last_loss = value
            last_losses.append(value)
            self._closing = list(last_losses)
            self.optimizer.zero_grad(set_to_none=True)
            self._step(loss, value, where)
            mean.add(value, logits, answers)
            self._tell(epoch, number + 1, batches, mean, "train")
            limits.lap("train")
            if number + 1 < batches:
                limits.look()
                done = first + number + 1
                limits.project(done, total - done, tests)

    def _forward(self, inputs: Tensor, answers: Tensor) -> tuple[Tensor, Tensor]:
        with self.arithmetic.forward():
            logits = self.task.check(outputs_of(self.module, inputs), inputs)
        return logits, cross_entropy(logits, answers, smoothing=self.recipe.smoothing if self.module.training else 0.0)

    def _step(self, loss: Tensor, value: float, where: str) -> None:
        scaler = self.arithmetic.scaler
        with blamed("the network, backward", TrainingError):
            scaler.scale(loss).backward()
        scaler.unscale_(self.optimizer)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        size = norm.item() if gradients else 0.0
        self._without_gradient = self._without_gradient + 1 if size == 0 and value > 0 else 0
        if self._without_gradient >= min(ZERO_GRADIENTS, self.task.train_batches):
            raise Stop(
                "diverged",
                f"expected gradients in {where}, found nothing but zeros in {self._without_gradient} batches in a row "
                f"at a loss of {value:.4g}; the training learns nothing",
            )
        if not math.isfinite(size):
            self._skipped += 1
            # A scaler skips the batch and reduces its scale; without a scaler the weights would become NaN.
            if not scaler.is_enabled() or self._skipped >= SKIPPED_STEPS:
                raise Stop("diverged", f"expected finite gradients in {where}, found {size}; {self._advice}")
        else:
            self._skipped = 0
            if self.recipe.largest_norm is not None:
                torch.nn.utils.clip_grads_with_norm_(self.parameters, self.recipe.largest_norm, norm)
        scaler.step(self.optimizer)
        scaler.update()

    @torch.no_grad()
    def _test(self, epoch: int) -> _Mean:
        self.module.eval()
        mean = _Mean()
        batches = self.task.test_batches
        self.watch.limits.begin()
        for number in range(batches):
            inputs, answers = self.task.test_batch(number, self.dtype)
            logits, loss = self._forward(inputs, answers)
            mean.add(self._finite(loss, f"epoch {epoch}, test batch {number + 1} of {batches}"), logits, answers)
            self._tell(epoch, number + 1, batches, mean, "test")
            self.watch.limits.lap("test")
            # An incomplete test is useless, so the time limit is not checked here.
            self.watch.limits.ask()
        return mean

    @property
    def _advice(self) -> str:
        return f"train with a learning_rate below {self.course.learning_rate:g}"

    def _finite(self, loss: Tensor, where: str) -> float:
        value = loss.item()
        if not math.isfinite(value):
            last = (
                "no loss was finite before"
                if self.last_loss is None
                else f"the last finite loss was {self.last_loss:.4g}"
            )
            raise Stop("diverged", f"expected a finite loss in {where}, found {value} ({last}); {self._advice}")
        return value

    def _tell(self, epoch: int, batch: int, batches: int, mean: _Mean, phase: Literal["train", "test"]) -> None:
        if self.watch.progress is not None:
            self.watch.progress(TrainingProgress(epoch, self._epochs, batch, batches, mean.loss, mean.accuracy, phase))
