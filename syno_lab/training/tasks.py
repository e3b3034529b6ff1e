"""Training tasks: the batches of a data set on a device, for images, examples of the user's own, and texts.

Shapes: B examples in a batch, C channels, H rows, W columns, T tokens of a window, V classes or tokens; an example of
the user's own is a tensor of any shape [*].
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Generic, Literal, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from syno_lab.data.datasets import DIGITS, Dataset
from syno_lab.data.image_folder import crop_box
from syno_lab.data.own import OwnData
from syno_lab.data.stream import CHOICES, Batch, Decoder, ImageStream, workers_for
from syno_lab.data.text import TextData
from syno_lab.errors import TrainingError
from syno_lab.inputs import quoted
from syno_lab.training.loop import logits_of

Augment = Literal["none", "crop", "resized-crop"]
"""The changes of training images: none; ``crop`` shifts by up to 1/8 and mirrors half (He et al. 2016, for CIFAR);
``resized-crop`` scales a part of each image and mirrors half (Szegedy et al. 2015, for ImageNet)."""

_Data = TypeVar("_Data", Dataset, ImageStream)


def augmentation(dataset: Dataset | ImageStream, chosen: Augment | bool | None, *, crops: bool = False) -> Augment:
    """Return the chosen augmentation, or the default for the data. Raises TrainingError for an unknown name.

    The default is ``crop`` for CIFAR (with ``crops`` for all images but digits), ``resized-crop`` for a stream of
    images, and ``none`` for other data.
    """
    if isinstance(chosen, bool):
        return "crop" if chosen else "none"
    if chosen is None:
        is_cropped = dataset.name.startswith("cifar") or (crops and dataset.name != DIGITS)
        usual: Augment = "crop" if is_cropped else "none"
        return "resized-crop" if isinstance(dataset, ImageStream) else usual
    if chosen not in get_args(Augment):
        raise TrainingError(f"augment: expected one of {', '.join(get_args(Augment))}, found {quoted(chosen)}")
    return chosen


def batch_bounds(count: int, size: int, *, merge_single: bool = True) -> list[tuple[int, int]]:
    """Divide ``count`` images into batches; a last batch with a single image is added to the batch before.

    Batch normalisation cannot train on a single image if a feature map has a single pixel.
    """
    bounds = [(first, min(first + size, count)) for first in range(0, count, size)]
    if merge_single and size > 1 and len(bounds) > 1 and bounds[-1][1] - bounds[-1][0] == 1:
        bounds[-2:] = [(bounds[-2][0], count)]
    return bounds


class InBatches:
    """Examples that a task reads in batches, with a new order of the training part in each epoch."""

    def __init__(
        self, train_count: int, test_count: int, batch_size: int, device: torch.device, *, channels_last: bool = False
    ) -> None:
        self.device = device
        self._layout = torch.channels_last if channels_last else torch.contiguous_format
        self._train_count = train_count
        self._train_bounds = batch_bounds(train_count, batch_size)
        self._test_bounds = batch_bounds(test_count, batch_size, merge_single=False)
        self._order = torch.empty(0, dtype=torch.int64)

    @property
    def train_batches(self) -> int:
        """The number of batches of an epoch."""
        return len(self._train_bounds)

    @property
    def test_batches(self) -> int:
        """The number of batches of a test."""
        return len(self._test_bounds)

    def start_epoch(self, draw: torch.Generator) -> None:
        """Draw the order of the examples."""
        self._order = torch.randperm(self._train_count, generator=draw)

    def close(self) -> None:
        """End the processes that the task has started."""


def resized_crop_and_flip(images: Tensor, draw: torch.Generator) -> Tensor:
    """Scale a part of each image [B, C, H, W] to full size, and mirror half; see :func:`.image_folder.resized_crop`."""
    count, _, height, width = images.shape
    across = torch.empty(count, 2, 3)
    for number, choices in enumerate(torch.rand((count, CHOICES), generator=draw).tolist()):
        (left, top, right, bottom), mirror = crop_box(width, height, choices)
        # In the coordinates of affine_grid, the edges of the image are at -1 and 1.
        wide, high = (right - left) / width, (bottom - top) / height
        middle = (left + right) / width - 1, (top + bottom) / height - 1
        across[number] = torch.tensor([[-wide if mirror else wide, 0.0, middle[0]], [0.0, high, middle[1]]])
    grid = functional.affine_grid(across.to(images), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def _held(images: NDArray[np.uint8], device: torch.device) -> Tensor | NDArray[np.uint8]:
    """Copy the images to the GPU if its free memory suffices, else return the images unchanged."""
    if device.type == "cuda" and images.nbytes < torch.cuda.mem_get_info(device)[0] // 2:
        # Copy the array, because torch does not support read-only arrays.
        return torch.from_numpy(images.copy()).to(device)
    return images


def _rows(images: Tensor | NDArray[np.uint8], where: Tensor | slice, device: torch.device) -> Tensor:
    if isinstance(images, Tensor):
        return images[where.to(device) if isinstance(where, Tensor) else where]
    return torch.from_numpy(np.array(images[where.numpy() if isinstance(where, Tensor) else where])).to(device)


def crop_and_flip(images: Tensor, draw: torch.Generator) -> Tensor:
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


class _Images(InBatches, Generic[_Data]):
    """The common part of the tasks of images: normalised batches [B, C, H, W] in a memory layout, and labels [B].

    A subclass opens the data, and returns the pixels of a batch on the device.
    """

    _changes: ClassVar[Mapping[Augment, Callable[[Tensor, torch.Generator], Tensor]]] = {
        "crop": crop_and_flip,
        "resized-crop": resized_crop_and_flip,
    }

    def __init__(
        self, dataset: _Data, device: torch.device, batch_size: int, augment: Augment, *, channels_last: bool = False
    ) -> None:
        counts = len(dataset.train_labels), len(dataset.test_labels)
        super().__init__(*counts, batch_size, device, channels_last=channels_last)
        self._train_labels = torch.from_numpy(dataset.train_labels.copy()).to(device)
        self._test_labels = torch.from_numpy(dataset.test_labels.copy()).to(device)
        self._classes = len(dataset.classes)
        self._augment = augment
        mean, deviation = dataset.channel_statistics
        self._mean = torch.tensor(mean, device=device).view(-1, 1, 1) * 255
        self._scale = 1 / (torch.tensor(deviation, device=device).view(-1, 1, 1) * 255)
        self._open(dataset)

    @abstractmethod
    def _open(self, dataset: _Data) -> None: ...

    @abstractmethod
    def _train_pixels(self, indices: Tensor) -> Tensor: ...

    @abstractmethod
    def _test_pixels(self, number: int) -> Tensor: ...

    def train_batch(self, number: int, dtype: torch.dtype, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return images and labels of batch ``number``, from 0."""
        indices = self._order[slice(*self._train_bounds[number])]
        images = self._normalised(self._train_pixels(indices), dtype)
        if self._augment in self._changes:
            images = self._changes[self._augment](images, draw)
        return images.contiguous(memory_format=self._layout), self._train_labels[indices.to(self.device)]

    def test_batch(self, number: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return test images and labels of batch ``number``, from 0."""
        images = self._normalised(self._test_pixels(number), dtype).contiguous(memory_format=self._layout)
        return images, self._test_labels[slice(*self._test_bounds[number])]

    def check(self, outputs: object, inputs: Tensor) -> Tensor:
        """Return the module's outputs if they are logits [B, classes]; raise TrainingError if not."""
        return logits_of(outputs, [len(inputs), self._classes], f"images {list(inputs.shape)}")

    def _normalised(self, images: Tensor, dtype: torch.dtype) -> Tensor:
        return (images.to(dtype) - self._mean.to(dtype)) * self._scale.to(dtype)


class ImageTask(_Images[Dataset]):
    """A data set on a device, read in normalised float batches [B, C, H, W] with labels [B]."""

    def _open(self, dataset: Dataset) -> None:
        self._train_images = _held(dataset.train_images, self.device)
        self._test_images = _held(dataset.test_images, self.device)

    def _train_pixels(self, indices: Tensor) -> Tensor:
        return _rows(self._train_images, indices, self.device)

    def _test_pixels(self, number: int) -> Tensor:
        return _rows(self._test_images, slice(*self._test_bounds[number]), self.device)


class StreamTask(_Images[ImageStream]):
    """A stream of images on a device, with batches as in :class:`ImageTask`; worker processes decode the images.

    The seed determines the visible part of each image, for any number of processes. Batches must be read in order, from
    0 on. Raises DataError for an image that cannot be decoded.
    """

    _changes: ClassVar = {"crop": crop_and_flip}  # worker processes do the augmentation "resized-crop"

    def _open(self, dataset: ImageStream) -> None:
        self._stream = dataset
        self._decoder = Decoder(dataset, workers_for(torch.get_num_threads()))
        self._images: Iterator[NDArray[np.uint8]] = iter(())

    def close(self) -> None:
        """End the worker processes."""
        self._images = iter(())
        self._decoder.close()

    def start_epoch(self, draw: torch.Generator) -> None:
        """Draw the order of the images and the visible part of each image, and start to decode."""
        super().start_epoch(draw)
        choices = None
        if self._augment == "resized-crop":
            choices = torch.rand((len(self._order), CHOICES), generator=draw).numpy()
        self._images = self._decoder.images([
            Batch(
                tuple(self._stream.train[index][0] for index in self._order[first:last].tolist()),
                None if choices is None else choices[first:last],
            )
            for first, last in self._train_bounds
        ])  # fmt: skip

    def _train_pixels(self, indices: Tensor) -> Tensor:
        return torch.from_numpy(next(self._images)).to(self.device)

    def _test_pixels(self, number: int) -> Tensor:
        if not number:
            names = [name for name, _ in self._stream.test]
            self._images = self._decoder.images([Batch(tuple(names[slice(*bounds)])) for bounds in self._test_bounds])
        return torch.from_numpy(next(self._images)).to(self.device)


class ExampleTask(InBatches):
    """Data of the user's own in batches [B, *] with classes [B]; random transformations differ in each read."""

    def __init__(self, data: OwnData, device: torch.device, batch_size: int, *, channels_last: bool = False) -> None:
        is_last = channels_last and len(data.shape) == 3
        super().__init__(len(data.train), len(data.test), batch_size, device, channels_last=is_last)
        self._data = data

    def train_batch(self, number: int, dtype: torch.dtype, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return examples and classes of batch ``number``, from 0."""
        first, last = self._train_bounds[number]
        return self._moved(*self._data.read(self._data.train, self._order[first:last].tolist()), dtype)

    def test_batch(self, number: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return test examples and classes of batch ``number``, from 0."""
        return self._moved(*self._data.read(self._data.test, range(*self._test_bounds[number])), dtype)

    def check(self, outputs: object, inputs: Tensor) -> Tensor:
        """Return the module's outputs, or their field ``logits``, if these are logits [B, V] for at least all classes.

        Outputs of ``transformers`` models have a field ``logits``. Raises TrainingError for outputs of another form.
        """
        logits = getattr(outputs, "logits", outputs)
        classes = self._data.classes
        is_right = isinstance(logits, Tensor) and logits.ndim == 2 and len(logits) == len(inputs)
        if not isinstance(logits, Tensor) or not is_right or logits.shape[1] < classes:
            actual = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            lowest = self._data.lowest
            if is_right and isinstance(logits, Tensor) and lowest > 0 and classes - lowest <= logits.shape[1]:
                raise TrainingError(
                    f"expected labels from 0 to {logits.shape[1] - 1}, as this module has {logits.shape[1]} classes, "
                    f"found {lowest} to {classes - 1}: the lowest label is {lowest}; subtract it from each label"
                )
            raise TrainingError(
                f"expected logits {[len(inputs), classes]} for examples {list(inputs.shape)} from the module, "
                f"found {actual}; labels are {self._data.labels}"
            )
        return logits

    def _moved(self, examples: Tensor, classes: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        examples = examples.to(self.device, dtype if examples.is_floating_point() else examples.dtype)
        return examples.contiguous(memory_format=self._layout), classes.to(self.device)


class TextTask(InBatches):
    """A text on a device: inputs int64 [B, T], and for each token of the inputs the next token [B, T].

    An epoch is ``steps`` batches of windows drawn at random. A test uses adjacent windows from the beginning of the
    test part, at most ``test_windows``. Raises TrainingError for a text whose training or test part is shorter than a
    window.
    """

    def __init__(
        self,
        text: TextData,
        device: torch.device,
        *,
        context: int,
        batch_size: int,
        steps: int,
        test_windows: int | None = None,
    ) -> None:
        for part, values in (("train", text.train), ("test", text.test)):
            if len(values) < context + 1:
                raise TrainingError(
                    f"expected at least {context + 1} tokens to {part} on, for windows of {context}, found "
                    f"{len(values)} in {text.source}; take a longer text or a shorter context"
                )
        self._vocabulary = text.tokens.size
        self._train = torch.from_numpy(text.train.copy()).to(device)
        self._test = torch.from_numpy(text.test.copy()).to(device)
        self._context = context
        self._batch_size = batch_size
        self._steps = steps
        windows = (len(text.test) - 1) // context
        super().__init__(0, windows if test_windows is None else min(windows, test_windows), batch_size, device)

    @property
    def train_batches(self) -> int:
        """The number of batches of an epoch."""
        return self._steps

    def start_epoch(self, draw: torch.Generator) -> None:
        """Do nothing, because each batch draws its own windows."""

    def train_batch(self, number: int, dtype: torch.dtype, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return windows drawn at random, and for each of their tokens the next token."""
        starts = torch.randint(len(self._train) - self._context, (self._batch_size,), generator=draw)
        return self._windows(self._train, starts)

    def test_batch(self, number: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the windows of batch ``number``, from 0."""
        first, last = self._test_bounds[number]
        return self._windows(self._test, torch.arange(first, last) * self._context)

    def check(self, outputs: object, inputs: Tensor) -> Tensor:
        """Return the module's outputs if they are logits [B, T, V]; raise TrainingError if not."""
        return logits_of(outputs, [*inputs.shape, self._vocabulary], f"tokens {list(inputs.shape)}")

    def _windows(self, tokens: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        where = (starts[:, None] + torch.arange(self._context + 1)).to(self.device)
        windows = tokens[where]
        return windows[:, :-1], windows[:, 1:]


def task_of(
    dataset: Dataset | ImageStream | OwnData,
    device: torch.device,
    batch_size: int,
    augment: Augment,
    *,
    channels_last: bool = False,
) -> ExampleTask | ImageTask | StreamTask:
    """Return the training task of a data set; the caller must close it. Data of the user's own are not augmented."""
    if isinstance(dataset, OwnData):
        return ExampleTask(dataset, device, batch_size, channels_last=channels_last)
    if isinstance(dataset, ImageStream):
        return StreamTask(dataset, device, batch_size, augment, channels_last=channels_last)
    return ImageTask(dataset, device, batch_size, augment, channels_last=channels_last)
