"""Images in class folders that are decoded while a network trains, for folders that are too large for the memory.

Worker processes of torch's ``DataLoader`` decode only the next few batches, so the memory in use does not depend on the
number of images. Shapes: N images, B in a batch, C = 3 channels, H and W the size to which images are scaled.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from syno_lab.data.datasets import Statistics, statistics_of
from syno_lab.data.image_folder import ImageFolder, Size, check_numbers, decode, fit, resized_crop
from syno_lab.data.splits import folds_of, held_out
from syno_lab.errors import DataError

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

MOST_HELD = 1 << 29
"""The largest number of bytes of a folder's decoded images in memory; a larger folder is streamed."""

MOST_COUNTED = 2048
"""Mean and deviation of the channels are those of this number of first training images, which cover all classes."""

PREFETCH = 2
"""The number of batches that each worker process decodes in advance."""

CHOICES = 5
"""The number of random numbers from 0 to 1 for the augmentation of one image."""

_Files = tuple[tuple[str, int], ...]


@dataclass(frozen=True, eq=False)
class ImageStream:
    """Image files with the index of their classes, in a training part and a test part; no image is decoded yet.

    ``train`` and ``test`` have file names relative to ``source``; ``size`` is (H, W).
    """

    name: str
    source: str
    train: _Files
    test: _Files
    classes: tuple[str, ...]
    size: Size

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """The shape [C, H, W] of every image."""
        return 3, *self.size

    @cached_property
    def train_labels(self) -> NDArray[np.int64]:
        """The classes of the training images [N]."""
        return np.array([label for _, label in self.train], np.int64)

    @cached_property
    def test_labels(self) -> NDArray[np.int64]:
        """The classes of the test images [N]."""
        return np.array([label for _, label in self.test], np.int64)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the files' names, sizes in bytes and classes, 128 bits in hexadecimal; no contents are read.

        Raises DataError for a missing file.
        """
        digest = hashlib.blake2b("x".join(map(str, dict.fromkeys(self.size))).encode(), digest_size=16)
        for part in (self.train, self.test):
            for name, label in part:
                try:
                    length = (Path(self.source) / name).stat().st_size
                except OSError as error:
                    raise DataError(f"{Path(self.source) / name}: expected an image, found: {error.strerror}") from None
                digest.update(f"{name}\0{label}\0{length}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def part(self, train_images: int | None = None, test_images: int | None = None) -> ImageStream:
        """Return the first ``train_images`` and ``test_images`` (None: all). Raises DataError for a number below 1."""
        check_numbers(train_images=train_images, test_images=test_images)
        return replace(self, train=self.train[:train_images], test=self.test[:test_images])

    def holding_out(self, share: float) -> ImageStream:
        """Return a stream that holds out the same images as :meth:`.Dataset.holding_out`."""
        is_out = held_out(len(self.train), share, self.name)
        return replace(self, train=tuple(compress(self.train, ~is_out)), test=tuple(compress(self.train, is_out)))

    def folded(self, folds: int, fold: int | None = None) -> ImageStream:
        """Return a stream with the same parts as :meth:`.Dataset.folded`."""
        files = self.train + self.test
        parts = folds_of(np.array([label for _, label in files], np.int64), folds, fold, self.name)
        train, test = (tuple(files[index] for index in part) for part in parts)
        return replace(self, train=train, test=test)

    @cached_property
    def channel_statistics(self) -> Statistics:
        """Mean and deviation [C] over the first training images, at most :data:`MOST_COUNTED`."""
        files = (Path(self.source) / name for name, _ in self.train[:MOST_COUNTED])
        return statistics_of(decode(file, partial(fit, size=self.size))[None] for file in files)


def stream_of(folder: ImageFolder, size: int | None = None) -> ImageStream:
    """Return the images of a folder as a stream; ``size`` is H and W, None: the folder's :attr:`.ImageFolder.size`."""
    train, test = (
        tuple((str(file.relative_to(folder.path)), label) for file, label in part)
        for part in (folder.train, folder.test)
    )
    return ImageStream(folder.path.name, str(folder.path), train, test, folder.classes, folder.size_at(size))


@dataclass(frozen=True)
class Batch:
    """The files of a batch: their ``names`` [B], and the random numbers for augmentation [B, CHOICES], or None."""

    names: tuple[str, ...]
    choices: NDArray[np.float64] | None = None


class Decoder:
    """Decodes the batches of a stream in ``workers`` processes, in order.

    The processes start with the first batch. The processes end with :meth:`close` or with the decoder's process.
    """

    def __init__(self, stream: ImageStream, workers: int) -> None:
        self._batches: Sequence[Batch] = ()
        self._files = _Batches(Path(stream.source), stream.size)
        self._workers = workers
        self._loader: DataLoader[Any] | None = None

    def close(self) -> None:
        """End the processes after the last iterator of :meth:`images` is deleted."""
        self._loader = None

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches)

    def images(self, batches: Sequence[Batch]) -> Iterator[NDArray[np.uint8]]:
        """Yield the images uint8 [B, C, H, W] of each batch; a call invalidates iterators of earlier calls.

        Raises DataError if an image cannot be decoded.
        """
        from torch.utils.data import DataLoader

        self._batches = batches
        if self._loader is None:
            self._loader = DataLoader(
                self._files,  # type: ignore[arg-type] # a map of batches to arrays
                batch_size=None,  # each entry of the sampler is already a batch
                sampler=self,
                collate_fn=_as_it_is,  # arrays, because containers have little shared memory for tensors
                num_workers=self._workers,
                prefetch_factor=PREFETCH,
                persistent_workers=True,
            )
        for images in self._loader:
            if isinstance(images, str):
                raise DataError(images)
            yield images


class _Batches:
    """Decodes a batch in a worker process; returns an error as a line of text."""

    def __init__(self, root: Path, size: Size) -> None:
        self._root, self._size = root, size

    def __getitem__(self, batch: Batch) -> NDArray[np.uint8] | str:
        images = np.empty((len(batch.names), 3, *self._size), np.uint8)
        for index, name in enumerate(batch.names):
            change = partial(fit, size=self._size)
            if batch.choices is not None:
                change = partial(resized_crop, size=self._size, choices=batch.choices[index].tolist())
            try:
                images[index] = decode(self._root / name, change)
            except DataError as error:
                return str(error)
        return images


def _as_it_is(images: Any) -> Any:
    return images


def workers_for(threads: int) -> int:
    """Return the number of decoding processes for a training with ``threads`` threads."""
    return max(1, min(8, math.ceil(threads / 2)))
