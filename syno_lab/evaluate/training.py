"""Training an image classifier, reproducibly, with progress, early stopping and resuming.

Shapes: B images in a batch, C channels, H rows, W columns. The method is the plain one of He et al. 2016, section 4.2
(stochastic gradient descent with momentum 0.9 and weight decay, padded crops and flips for CIFAR) with one cosine cycle
of the learning rate, which suits short trainings better than steps.
"""

from __future__ import annotations

import io
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional

from syno_lab.errors import FormatError, TrainingError
from syno_lab.evaluate.data import Dataset

Stopped = Literal["finished", "early", "time", "diverged", "interrupted"]

MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
WARM_UP = 0.2
"""The share of the steps in which the learning rate rises."""

CURVE_FORMAT = "syno-lab-training"
CURVE_VERSION = 1
_CHECKPOINT_FORMAT = "syno-lab-checkpoint"
_CHECKPOINT_VERSION = 1


@dataclass(frozen=True)
class EpochRecord:
    """One epoch, counted from 1: mean cross entropy in nats, accuracy from 0 to 1, seconds of training and testing.

    The training loss is the mean over the epoch's batches while the weights were changing.
    """

    epoch: int
    train_loss: float
    test_loss: float
    test_accuracy: float
    seconds: float


@dataclass(frozen=True)
class TrainingProgress:
    """Where a training stands, told after every batch.

    ``epoch`` counts from 1. ``phase`` is ``train`` or ``test``, ``batch`` of ``batches`` counts within it; ``loss`` and
    ``accuracy`` are means over the phase so far.
    """

    epoch: int
    epochs: int
    batch: int
    batches: int
    loss: float
    accuracy: float
    phase: Literal["train", "test"] = "train"


@dataclass(frozen=True)
class TrainingResult:
    """What came of a training.

    ``accuracy`` is the **best** test accuracy of any epoch in ``curve`` (0 to 1; choosing the best epoch by the test
    images flatters it a little, :attr:`final_accuracy` does not), None where no epoch was completed. ``stopped``:

    - ``finished``: all epochs were done;
    - ``early``: the test accuracy did not rise for ``patience`` epochs;
    - ``time``: the time limit came; the epoch it cut short is in the curve, as far as it went;
    - ``diverged``: a loss was not a finite number; the curve ends with the epoch before;
    - ``interrupted``: ``should_stop`` said so; the curve ends with the epoch before.

    ``last_loss`` is the last finite loss of a training batch; ``parameters`` the number of trained parameters.
    """

    accuracy: float | None
    curve: tuple[EpochRecord, ...]
    stopped: Stopped
    seed: int
    parameters: int
    last_loss: float | None = None

    @property
    def final_accuracy(self) -> float | None:
        """The test accuracy after the last epoch of the curve, None where there is none."""
        return self.curve[-1].test_accuracy if self.curve else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and dictionaries, for JSON."""
        return {"format": CURVE_FORMAT, "version": CURVE_VERSION, **msgspec.to_builtins(self)}

    @classmethod
    def from_dict(cls, data: object) -> TrainingResult:
        """Make the result of what :meth:`to_dict` returned; FormatError where it is something else."""
        if not isinstance(data, dict) or data.get("format") != CURVE_FORMAT:
            raise FormatError(f"expected a training result with format {CURVE_FORMAT!r}, found {str(data)[:60]!r}")
        if data.get("version") != CURVE_VERSION:
            raise FormatError(
                f"expected a training result of version {CURVE_VERSION}, found version {data.get('version')!r}; "
                "train again or use the version of Syno Lab that wrote it"
            )
        content = {key: value for key, value in data.items() if key not in ("format", "version")}
        unknown = content.keys() - {field.name for field in fields(cls)}
        if unknown:
            raise FormatError(f"expected the fields of a training result, found also {', '.join(sorted(unknown))}")
        try:
            return msgspec.convert(content, cls)
        except msgspec.ValidationError as error:
            raise FormatError(f"expected a training result, found: {error}") from None


def save_curve(result: TrainingResult, path: str | Path) -> None:
    """Write ``result`` to ``path`` as JSON, whole or not at all; TrainingError where the place cannot be written."""
    _write(Path(path), msgspec.json.format(msgspec.json.encode(result.to_dict())))


def load_curve(path: str | Path) -> TrainingResult:
    """Read what :func:`save_curve` wrote; FormatError where it is something else."""
    try:
        return TrainingResult.from_dict(msgspec.json.decode(Path(path).read_bytes()))
    except OSError as error:
        raise FormatError(f"expected a training result in {path}, found: {error.strerror or error}") from None
    except msgspec.DecodeError as error:
        raise FormatError(f"expected a training result as JSON in {path}, found: {error}") from None
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None


def train(
    module: nn.Module,
    dataset: Dataset,
    *,
    epochs: int,
    batch_size: int = 64,
    learning_rate: float = 0.1,
    seed: int = 0,
    time_limit_s: float | None = None,
    patience: int | None = None,
    device: str | torch.device = "cpu",
    augment: bool | None = None,
    on_progress: Callable[[TrainingProgress], None] | None = None,
    checkpoint: str | Path | None = None,
    should_stop: Callable[[], bool] | None = None,
    raise_on_divergence: bool = False,
) -> TrainingResult:
    """Train ``module`` ([B, C, H, W] images to [B, classes] logits) in place, and test it after every epoch.

    Images are normalised by the training images' mean and deviation in each channel; ``augment`` (by default for CIFAR
    only) shifts them by up to 1/8 of their height and width and mirrors half of them. ``learning_rate`` is the highest
    of the cycle. ``time_limit_s`` bounds all seconds spent, those before a resumption too; it and ``should_stop`` are
    looked at after every batch. ``patience`` is the number of epochs to wait for a better test accuracy.

    ``seed`` decides the order of the images, the augmentation and what the module draws (dropout), not the weights that
    the module comes with. On a CPU with a given number of threads, equal weights and seed give equal results to the
    bit. torch's global generator is left as it was.

    With ``checkpoint``, the state is written there after each epoch, and a training that finds one goes on from it to
    the very result of one that was never interrupted, with the weights in the checkpoint in the place of the module's.

    The module ends with its last weights (not those of the best epoch), on ``device``. A loss that is not finite ends
    the training, see :class:`TrainingResult`, or raises TrainingError with ``raise_on_divergence``. Raises
    TrainingError also for numbers out of range, logits of a wrong shape, an unknown device, a module without
    parameters, and a checkpoint that is damaged or belongs to another training.
    """
    _check_numbers(epochs=epochs, batch_size=batch_size, patience=patience)
    _check_positive(learning_rate=learning_rate, time_limit_s=time_limit_s)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TrainingError(f"expected seed as a whole number, found {seed!r}")
    if augment is None:
        augment = dataset.name.startswith("cifar")
    place = _device(device)
    run = _Run(
        module=module.to(place),
        data=_Images(dataset, place, augment),
        settings={
            "dataset": dataset.fingerprint,
            "epochs": epochs,
            "batch_size": batch_size,
            "learning_rate": float(learning_rate),
            "seed": seed,
            "augment": augment,
        },
        checkpoint=None if checkpoint is None else Path(checkpoint),
        limits=_Limits(time_limit_s, should_stop),
        report=on_progress,
    )
    stopped = run.go(patience)
    if stopped == "diverged" and raise_on_divergence:
        raise TrainingError(run.divergence)
    return TrainingResult(
        accuracy=max((record.test_accuracy for record in run.curve), default=None),
        curve=tuple(run.curve),
        stopped=stopped,
        seed=seed,
        parameters=sum(parameter.numel() for parameter in run.parameters),
        last_loss=run.last_loss,
    )


def _check_numbers(**numbers: int | None) -> None:
    for name, value in numbers.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise TrainingError(f"expected {name} as a whole number from 1 up, found {value!r}")


def _check_positive(**numbers: float | None) -> None:
    for name, value in numbers.items():
        if value is not None and not (math.isfinite(value) and value > 0):
            raise TrainingError(f"expected {name} as a number above 0, found {value!r}")


def _device(device: str | torch.device) -> torch.device:
    try:
        place = torch.device(device)
        torch.empty(1, device=place)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise TrainingError(
            f"expected a device of this machine such as 'cpu', found {str(device)!r}: {reason}"
        ) from None
    return place


class _Images:
    """A data set on a device, handed out in normalised float batches."""

    def __init__(self, dataset: Dataset, device: torch.device, augment: bool) -> None:
        # .copy(): torch does not know arrays that cannot be written to.
        self.train_images = torch.from_numpy(dataset.train_images.copy()).to(device)
        self.train_labels = torch.from_numpy(dataset.train_labels.copy()).to(device)
        self.test_images = torch.from_numpy(dataset.test_images.copy()).to(device)
        self.test_labels = torch.from_numpy(dataset.test_labels.copy()).to(device)
        self.classes = len(dataset.classes)
        self.augment = augment
        self.device = device
        mean, deviation = dataset.channel_statistics()
        self._mean = torch.tensor(mean, device=device).view(-1, 1, 1) * 255
        self._scale = 1 / (torch.tensor(deviation, device=device).view(-1, 1, 1) * 255)

    def normalised(self, images: Tensor, dtype: torch.dtype) -> Tensor:
        return (images.to(dtype) - self._mean.to(dtype)) * self._scale.to(dtype)

    def batch(self, indices: Tensor, dtype: torch.dtype, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        where = indices.to(self.device)
        images = self.normalised(self.train_images[where], dtype)
        return (_crop_and_flip(images, draw) if self.augment else images), self.train_labels[where]


def _crop_and_flip(images: Tensor, draw: torch.Generator) -> Tensor:
    """Shift each image [B, C, H, W] by up to 1/8 of its height and width, filling with the mean; mirror half."""
    count, channels, height, width = images.shape
    pad_h, pad_w = height // 8, width // 8
    top = torch.randint(2 * pad_h + 1, (count, 1), generator=draw)
    left = torch.randint(2 * pad_w + 1, (count, 1), generator=draw)
    mirror = torch.rand((count, 1), generator=draw) < 0.5
    columns = torch.arange(width).expand(count, width)
    columns = left + torch.where(mirror, width - 1 - columns, columns)
    rows = top + torch.arange(height)
    padded = functional.pad(images, (pad_w, pad_w, pad_h, pad_h))
    image = torch.arange(count, device=images.device).view(-1, 1, 1, 1)
    channel = torch.arange(channels, device=images.device).view(1, -1, 1, 1)
    return padded[image, channel, rows[:, None, :, None].to(images.device), columns[:, None, None, :].to(images.device)]


class _Stop(Exception):  # noqa: N818 - no error: it carries the reason out of the loops
    def __init__(self, reason: Stopped) -> None:
        super().__init__(reason)
        self.reason = reason


class _Limits:
    """Looks at the clock and asks the caller; both end a training by ``_Stop``."""

    def __init__(self, time_limit_s: float | None, should_stop: Callable[[], bool] | None) -> None:
        self._limit = time_limit_s
        self._should_stop = should_stop
        self._start = time.monotonic()

    def count_from(self, earlier_s: float) -> None:
        self._start -= earlier_s

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._start

    def ask(self) -> None:
        if self._should_stop is not None and self._should_stop():
            raise _Stop("interrupted")

    def look(self) -> None:
        self.ask()
        if self._limit is not None and self.elapsed_s >= self._limit:
            raise _Stop("time")


@dataclass
class _Mean:
    """Sums of losses and hits over the images of a phase."""

    loss_sum: float = 0.0
    hits: int = 0
    count: int = 0

    def add(self, loss: float, logits: Tensor, labels: Tensor) -> None:
        self.loss_sum += loss * len(labels)
        self.hits += int((logits.argmax(1) == labels).sum())
        self.count += len(labels)

    @property
    def loss(self) -> float:
        return self.loss_sum / max(self.count, 1)

    @property
    def accuracy(self) -> float:
        return self.hits / max(self.count, 1)


class _Run:
    """The state of one training."""

    def __init__(
        self,
        module: nn.Module,
        data: _Images,
        settings: dict[str, Any],
        checkpoint: Path | None,
        limits: _Limits,
        report: Callable[[TrainingProgress], None] | None,
    ) -> None:
        self.module = module
        self.data = data
        self.settings = settings
        self.checkpoint = checkpoint
        self.limits = limits
        self.report = report
        self.curve: list[EpochRecord] = []
        self.last_loss: float | None = None
        self.divergence = ""
        self.parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if not self.parameters:
            raise TrainingError(
                f"expected a module with parameters to train, found none in this {type(module).__name__}"
            )
        self.dtype = self.parameters[0].dtype
        self.optimizer = torch.optim.SGD(
            self.parameters,
            lr=settings["learning_rate"],
            momentum=MOMENTUM,
            weight_decay=WEIGHT_DECAY,
            nesterov=True,
        )
        self.batches = _batch_bounds(len(data.train_labels), settings["batch_size"])
        self.test_batches = _batch_bounds(len(data.test_labels), settings["batch_size"], merge_single=False)

    def go(self, patience: int | None) -> Stopped:
        if self.checkpoint is not None and self.checkpoint.exists():
            self._load(self.checkpoint)
        modes = [(part, part.training) for part in self.module.modules()]
        try:
            # Everything random is drawn from the seed and the epoch's number, so that a resumed training needs no
            # generator's state; forking keeps the caller's global generator as it is.
            with torch.random.fork_rng(devices=[self.data.device] if self.data.device.type == "cuda" else []):
                while True:
                    if patience is not None and _waited(self.curve) >= patience:
                        return "early"
                    if len(self.curve) >= self.settings["epochs"]:
                        return "finished"
                    self.limits.look()
                    self._epoch(len(self.curve) + 1)
        except _Stop as stop:
            return stop.reason
        finally:
            for part, training in modes:
                part.training = training

    def _epoch(self, epoch: int) -> None:
        start = time.monotonic()
        draw = torch.Generator().manual_seed(_mix(self.settings["seed"], epoch))
        torch.manual_seed(_mix(self.settings["seed"], -epoch))
        train, out_of_time = _Mean(), False
        try:
            self._train_epoch(epoch, train, draw)
        except _Stop as stop:
            if stop.reason != "time":
                raise
            out_of_time = True
        test = self._test(epoch)
        self.curve.append(EpochRecord(epoch, train.loss, test.loss, test.accuracy, time.monotonic() - start))
        if out_of_time:
            raise _Stop("time")
        if self.checkpoint is not None:
            self._save(self.checkpoint)

    def _train_epoch(self, epoch: int, mean: _Mean, draw: torch.Generator) -> None:
        self.module.train()
        order = torch.randperm(len(self.data.train_labels), generator=draw)
        total = self.settings["epochs"] * len(self.batches)
        for number, (first, last) in enumerate(self.batches, start=1):
            rate = self.settings["learning_rate"] * _cycle((epoch - 1) * len(self.batches) + number - 1, total)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            images, labels = self.data.batch(order[first:last], self.dtype, draw)
            logits = self._logits(images)
            loss = functional.cross_entropy(logits, labels)
            value = self._finite(loss, f"epoch {epoch}, training batch {number} of {len(self.batches)}")
            self.last_loss = value
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            mean.add(value, logits, labels)
            self._tell(epoch, number, len(self.batches), mean, "train")
            if number < len(self.batches):
                self.limits.look()

    @torch.no_grad()
    def _test(self, epoch: int) -> _Mean:
        self.module.eval()
        mean = _Mean()
        for number, (first, last) in enumerate(self.test_batches, start=1):
            images = self.data.normalised(self.data.test_images[first:last], self.dtype)
            labels = self.data.test_labels[first:last]
            logits = self._logits(images)
            loss = functional.cross_entropy(logits, labels)
            mean.add(
                self._finite(loss, f"epoch {epoch}, test batch {number} of {len(self.test_batches)}"), logits, labels
            )
            self._tell(epoch, number, len(self.test_batches), mean, "test")
            # Half a test would be no test, so the clock is not looked at.
            self.limits.ask()
        return mean

    def _logits(self, images: Tensor) -> Tensor:
        logits = self.module(images)
        expected = (len(images), self.data.classes)
        if not isinstance(logits, Tensor) or tuple(logits.shape) != expected:
            found = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise TrainingError(
                f"expected logits {list(expected)} for images {list(images.shape)} from the module, found {found}"
            )
        return logits

    def _finite(self, loss: Tensor, where: str) -> float:
        value = loss.item()
        if not math.isfinite(value):
            last = (
                "there was no finite one before"
                if self.last_loss is None
                else f"the last before was {self.last_loss:.4g}"
            )
            self.divergence = (
                f"expected a finite loss in {where}, found {value} ({last}); "
                f"train with a learning_rate below {self.settings['learning_rate']:g}"
            )
            raise _Stop("diverged")
        return value

    def _tell(self, epoch: int, batch: int, batches: int, mean: _Mean, phase: Literal["train", "test"]) -> None:
        if self.report is not None:
            self.report(
                TrainingProgress(epoch, self.settings["epochs"], batch, batches, mean.loss, mean.accuracy, phase)
            )

    def _save(self, path: Path) -> None:
        buffer = io.BytesIO()
        state = {
            "format": _CHECKPOINT_FORMAT,
            "version": _CHECKPOINT_VERSION,
            "settings": self.settings,
            "curve": msgspec.to_builtins(self.curve),
            "last_loss": self.last_loss,
            "elapsed_s": self.limits.elapsed_s,
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        torch.save(state, buffer)
        _write(path, buffer.getvalue())

    def _load(self, path: Path) -> None:
        other = f"delete {path} or name another checkpoint"
        try:
            # weights_only: nothing but tensors and plain values is admitted, so the file cannot run code.
            state = torch.load(path, map_location=self.data.device, weights_only=True)
        except Exception as error:  # noqa: BLE001 - bytes that are no checkpoint make torch's reader raise anything
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise TrainingError(f"expected a checkpoint in {path}, found: {reason[:120]}; {other}") from None
        found = state.get("format") if isinstance(state, dict) else None
        if found != _CHECKPOINT_FORMAT or state.get("version") != _CHECKPOINT_VERSION:
            raise TrainingError(
                f"expected a checkpoint of version {_CHECKPOINT_VERSION} in {path}, found something else; {other}"
            )
        try:
            for name, value in self.settings.items():
                if state["settings"].get(name) != value:
                    raise TrainingError(
                        f"expected a checkpoint of a training with {name} {value!r} in {path}, "
                        f"found {state['settings'].get(name)!r}; {other}"
                    )
            curve = msgspec.convert(state["curve"], list[EpochRecord])
            self.module.load_state_dict(state["module"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.limits.count_from(float(state["elapsed_s"]))
        except (LookupError, AttributeError, TypeError, ValueError, RuntimeError, msgspec.ValidationError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise TrainingError(
                f"expected a checkpoint of this module in {path}, found: {reason[:120]}; {other}"
            ) from None
        self.curve = curve
        self.last_loss = state["last_loss"]


def _batch_bounds(count: int, size: int, *, merge_single: bool = True) -> list[tuple[int, int]]:
    """Cut ``count`` images into batches; a last one of a single image joins the one before.

    Batch normalisation cannot train on one image where only one pixel is left of it.
    """
    bounds = [(first, min(first + size, count)) for first in range(0, count, size)]
    if merge_single and size > 1 and len(bounds) > 1 and bounds[-1][1] - bounds[-1][0] == 1:
        bounds[-2:] = [(bounds[-2][0], count)]
    return bounds


def _cycle(step: int, steps: int) -> float:
    """Return the share of the highest learning rate at ``step``: half a cosine up to it, then one down to zero."""
    position = (step + 1) / (steps + 1)
    if position < WARM_UP:
        return 0.04 + 0.96 * (1 - math.cos(math.pi * position / WARM_UP)) / 2
    return (1 + math.cos(math.pi * (position - WARM_UP) / (1 - WARM_UP))) / 2


def _mix(seed: int, stream: int) -> int:
    """Return a seed of 63 bits that neighbouring seeds and streams do not share (splitmix64, Steele et al. 2014)."""
    z = (seed * 0x9E3779B97F4A7C15 + stream * 0xD1342543DE82EF95) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return (z ^ (z >> 31)) >> 1


def _waited(curve: Sequence[EpochRecord]) -> int:
    """Return the number of epochs since the first one with the best test accuracy."""
    accuracies = [record.test_accuracy for record in curve]
    return len(accuracies) - 1 - accuracies.index(max(accuracies)) if accuracies else 0


@contextmanager
def _temporary_beside(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    try:
        with _temporary_beside(path) as temporary:
            with temporary.open("wb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            temporary.replace(path)
    except OSError as error:
        raise TrainingError(
            f"expected to write {path}, found: {error.strerror or error}; choose another place"
        ) from None
