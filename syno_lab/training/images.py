"""Image classification as a training task: normalised batches, shifted and mirrored where that helps.

Shapes: B images in a batch, C channels, H rows, W columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from syno_lab.data.datasets import Dataset
from syno_lab.data.image_folder import crop_box
from syno_lab.data.stream import CHOICES, Batch, Decoder, ImageStream, workers_for
from syno_lab.errors import TrainingError
from syno_lab.inputs import quoted
from syno_lab.training.loop import logits_of
from syno_lab.training.schedule import InBatches

Augment = Literal["none", "crop", "resized-crop"]
"""The changes of training images: none; ``crop`` shifts by up to 1/8 and mirrors half (He et al. 2016, for CIFAR);
``resized-crop`` scales a part of each and mirrors half (Szegedy et al. 2015, for ImageNet)."""


def augmentation(dataset: Dataset | ImageStream, chosen: Augment | bool | None) -> Augment:
    """What is done to training images: as chosen, by default what is usual for the data; TrainingError for others.

    By default ``crop`` for CIFAR, ``resized-crop`` for a stream of images, and none for other data.
    """
    if isinstance(chosen, bool):
        return "crop" if chosen else "none"
    if chosen is None:
        usual: Augment = "crop" if dataset.name.startswith("cifar") else "none"
        return "resized-crop" if isinstance(dataset, ImageStream) else usual
    if chosen not in get_args(Augment):
        raise TrainingError(f"augment: expected one of {', '.join(get_args(Augment))}, found {quoted(chosen)}")
    return chosen


class _Images(InBatches):
    """The common part of both tasks: normalised batches [B, C, H, W] of a layout, and labels."""

    def __init__(
        self,
        dataset: Dataset | ImageStream,
        device: torch.device,
        batch_size: int,
        augment: Augment,
        *,
        channels_last: bool = False,
    ) -> None:
        super().__init__(len(dataset.train_labels), len(dataset.test_labels), batch_size)
        self._train_labels = torch.from_numpy(dataset.train_labels.copy()).to(device)
        self._test_labels = torch.from_numpy(dataset.test_labels.copy()).to(device)
        self._classes = len(dataset.classes)
        self._augment = augment
        self._layout = torch.channels_last if channels_last else torch.contiguous_format
        self.device = device
        mean, deviation = dataset.channel_statistics
        self._mean = torch.tensor(mean, device=device).view(-1, 1, 1) * 255
        self._scale = 1 / (torch.tensor(deviation, device=device).view(-1, 1, 1) * 255)

    def check(self, outputs: object, inputs: Tensor) -> Tensor:
        """Return the module's outputs if they are logits [B, classes]; raise TrainingError if not."""
        return logits_of(outputs, [len(inputs), self._classes], f"images {list(inputs.shape)}")

    def _normalised(self, images: Tensor, dtype: torch.dtype) -> Tensor:
        return (images.to(dtype) - self._mean.to(dtype)) * self._scale.to(dtype)


class ImageTask(_Images):
    """A data set on a device, read in normalised float batches [B, C, H, W] with labels [B]."""

    def __init__(
        self, dataset: Dataset, device: torch.device, batch_size: int, augment: Augment, *, channels_last: bool = False
    ) -> None:
        super().__init__(dataset, device, batch_size, augment, channels_last=channels_last)
        self._train_images = _held(dataset.train_images, device)
        self._test_images = _held(dataset.test_images, device)

    def train_batch(self, number: int, dtype: torch.dtype, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return images and labels of batch ``number``, from 0."""
        first, last = self._train_bounds[number]
        indices = self._order[first:last]
        images = self._normalised(_rows(self._train_images, indices, self.device), dtype)
        if self._augment == "crop":
            images = crop_and_flip(images, draw)
        elif self._augment == "resized-crop":
            images = resized_crop_and_flip(images, draw)
        return images.contiguous(memory_format=self._layout), self._train_labels[indices.to(self.device)]

    def test_batch(self, number: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return test images and labels of batch ``number``, from 0."""
        first, last = self._test_bounds[number]
        images = _rows(self._test_images, slice(first, last), self.device)
        images = self._normalised(images, dtype).contiguous(memory_format=self._layout)
        return images, self._test_labels[first:last]


class StreamTask(_Images):
    """A stream of images on a device: batches as those of :class:`ImageTask`, decoded in processes of their own.

    The seed decides which part of each image is seen, whatever the number of processes. Batches are asked for in order,
    from 0 on.
    """

    def __init__(
        self,
        stream: ImageStream,
        device: torch.device,
        batch_size: int,
        augment: Augment,
        *,
        channels_last: bool = False,
    ) -> None:
        super().__init__(stream, device, batch_size, augment, channels_last=channels_last)
        self._stream = stream
        self._decoder = Decoder(stream, workers_for(torch.get_num_threads()))
        self._images: Iterator[NDArray[np.uint8]] = iter(())

    def close(self) -> None:
        """End the processes."""
        self._images = iter(())
        self._decoder.close()

    def start_epoch(self, draw: torch.Generator) -> None:
        """Draw the order of the images and what is seen of each, and begin to decode."""
        super().start_epoch(draw)
        seen = None
        if self._augment == "resized-crop":
            seen = torch.rand((len(self._order), CHOICES), generator=draw).numpy()
        self._images = self._decoder.images([
            Batch(
                tuple(self._stream.train[place][0] for place in self._order[first:last].tolist()),
                None if seen is None else seen[first:last],
            )
            for first, last in self._train_bounds
        ])  # fmt: skip

    def train_batch(self, number: int, dtype: torch.dtype, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return images and labels of batch ``number``, from 0. Raises DataError for one that cannot be decoded."""
        first, last = self._train_bounds[number]
        images = self._decoded(dtype)
        images = crop_and_flip(images, draw) if self._augment == "crop" else images
        labels = self._train_labels[self._order[first:last].to(self.device)]
        return images.contiguous(memory_format=self._layout), labels

    def test_batch(self, number: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return test images and labels of batch ``number``, from 0. Raises as :meth:`train_batch`."""
        first, last = self._test_bounds[number]
        if not number:
            files = self._stream.test
            self._images = self._decoder.images(
                [Batch(tuple(name for name, _ in files[start:end])) for start, end in self._test_bounds]
            )
        return self._decoded(dtype).contiguous(memory_format=self._layout), self._test_labels[first:last]

    def _decoded(self, dtype: torch.dtype) -> Tensor:
        return self._normalised(torch.from_numpy(next(self._images)).to(self.device), dtype)


def resized_crop_and_flip(images: Tensor, draw: torch.Generator) -> Tensor:
    """Scale a part of each image [B, C, H, W] to its size, and mirror half; see :func:`.image_folder.resized_crop`."""
    count, _, height, width = images.shape
    across = torch.empty(count, 2, 3)
    for place, choices in enumerate(torch.rand((count, CHOICES), generator=draw).tolist()):
        (left, top, right, bottom), mirror = crop_box(width, height, choices)
        # Coordinates of affine_grid: the image's edges are at -1 and 1.
        wide, high = (right - left) / width, (bottom - top) / height
        middle = (left + right) / width - 1, (top + bottom) / height - 1
        across[place] = torch.tensor([[-wide if mirror else wide, 0.0, middle[0]], [0.0, high, middle[1]]])
    grid = functional.affine_grid(across.to(images), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def _held(images: NDArray[np.uint8], device: torch.device) -> Tensor | NDArray[np.uint8]:
    """The images on the GPU if it has room for them, else unchanged."""
    if device.type == "cuda" and images.nbytes < torch.cuda.mem_get_info(device)[0] // 2:
        # A copy, because torch does not support read-only arrays.
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
