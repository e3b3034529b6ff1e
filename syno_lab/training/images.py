"""Image classification as a training task: normalised batches, shifted and mirrored where that helps.

Shapes: B images in a batch, C channels, H rows, W columns.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from syno_lab.data.datasets import Dataset
from syno_lab.errors import TrainingError
from syno_lab.training.schedule import batch_bounds


class ImageTask:
    """A data set on a device, read in normalised float batches [B, C, H, W] with labels [B]."""

    def __init__(
        self, dataset: Dataset, device: torch.device, batch_size: int, augment: bool, *, channels_last: bool = False
    ) -> None:
        self._train_images = _held(dataset.train_images, device)
        self._train_labels = torch.from_numpy(dataset.train_labels.copy()).to(device)
        self._test_images = _held(dataset.test_images, device)
        self._test_labels = torch.from_numpy(dataset.test_labels.copy()).to(device)
        self._classes = len(dataset.classes)
        self._augment = augment
        self._layout = torch.channels_last if channels_last else torch.contiguous_format
        self.device = device
        mean, deviation = dataset.channel_statistics()
        self._mean = torch.tensor(mean, device=device).view(-1, 1, 1) * 255
        self._scale = 1 / (torch.tensor(deviation, device=device).view(-1, 1, 1) * 255)
        self._train_bounds = batch_bounds(len(self._train_labels), batch_size)
        self._test_bounds = batch_bounds(len(self._test_labels), batch_size, merge_single=False)
        self._order = torch.empty(0, dtype=torch.int64)

    @property
    def train_batches(self) -> int:
        """Batches of an epoch."""
        return len(self._train_bounds)

    @property
    def test_batches(self) -> int:
        """Batches of a test."""
        return len(self._test_bounds)

    def start_epoch(self, draw: torch.Generator) -> None:
        """Draw the order of the images."""
        self._order = torch.randperm(len(self._train_labels), generator=draw)

    def train_batch(self, number: int, dtype: torch.dtype, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return images and labels of batch ``number``, from 0."""
        first, last = self._train_bounds[number]
        indices = self._order[first:last]
        images = self._normalised(_rows(self._train_images, indices, self.device), dtype)
        images = crop_and_flip(images, draw) if self._augment else images
        return images.contiguous(memory_format=self._layout), self._train_labels[indices.to(self.device)]

    def test_batch(self, number: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return test images and labels of batch ``number``, from 0."""
        first, last = self._test_bounds[number]
        images = _rows(self._test_images, slice(first, last), self.device)
        images = self._normalised(images, dtype).contiguous(memory_format=self._layout)
        return images, self._test_labels[first:last]

    def check(self, outputs: object, inputs: Tensor) -> Tensor:
        """Return the module's outputs if they are logits [B, classes]; raise TrainingError if not."""
        expected = (len(inputs), self._classes)
        if not isinstance(outputs, Tensor) or tuple(outputs.shape) != expected:
            found = list(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
            raise TrainingError(
                f"expected logits {list(expected)} for images {list(inputs.shape)} from the module, found {found}"
            )
        return outputs

    def _normalised(self, images: Tensor, dtype: torch.dtype) -> Tensor:
        return (images.to(dtype) - self._mean.to(dtype)) * self._scale.to(dtype)


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
