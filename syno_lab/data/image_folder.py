"""Read a folder of images in class folders, such as the unpacked ImageNet.

Either ``train`` and ``val`` (or ``validation``, ``test``) with the same class folders in each, or only the class
folders; then every fifth image is a test image. Shapes: N images, C = 3 channels, H = W the size they are scaled to.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import psutil
from numpy.typing import NDArray

from syno_lab.errors import DataError
from syno_lab.inputs import read_bytes

if TYPE_CHECKING:
    from PIL import Image

SIZE = 224
"""The default height and width that images are scaled to: those usual for ImageNet (He et al. 2016)."""

TEST_FOLDERS = ("val", "validation", "test")
"""Possible names of the test part's folder; the first that exists is used."""

SUFFIXES = frozenset({".jpeg", ".jpg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".tif", ".tiff"})

MOST_BYTES = 1 << 28
"""The most bytes of one image file."""

# Pillow reads other formats too, and runs a program for one of them (EPS). A file's first bytes decide its format.
_FORMS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "PPM", "TIFF")
_LARGE = 1 << 24  # pixels: such images are decoded one at a time
_TEST_EVERY = 5
_large = Lock()
LEAST_AREA, MOST_SIDES = 0.08, 4 / 3
_DECODERS = 8  # threads: reading waits for the disk, and decoding releases Python's lock


@dataclass(frozen=True)
class ImageFolder:
    """The image files, each with the index of its class: the first of each class before the second of any."""

    path: Path
    classes: tuple[str, ...]
    train: tuple[tuple[Path, int], ...]
    test: tuple[tuple[Path, int], ...]


def is_image_folder(path: Path) -> bool:
    """Whether ``path`` is a folder with images in class folders, in ``train`` or at once."""
    if not path.is_dir():
        return False
    root = path / "train" if (path / "train").is_dir() else path
    return any(next(_images(folder), None) is not None for folder in _folders(root))


def class_names(path: Path) -> tuple[str, ...]:
    """The classes of an image folder, in order; its images are not read."""
    root = path / "train" if (path / "train").is_dir() else path
    return tuple(folder.name for folder in _folders(root))


def find_image_folder(path: Path) -> ImageFolder:
    """List the images of ``path``.

    Raises:
        DataError: the folder has no class folders, a part is missing or empty, or the test part has other classes.
    """
    if not is_image_folder(path):
        raise DataError(
            f"expected images in class folders in {path}, found none; name a folder with one folder for each class, "
            "or with such folders in train and val"
        )
    if not (path / "train").is_dir():
        return _split(path)
    root = next((path / name for name in TEST_FOLDERS if (path / name).is_dir()), None)
    if root is None:
        raise DataError(f"expected {' or '.join(TEST_FOLDERS)} beside train in {path}, found neither")
    classes = class_names(path)
    others = sorted({folder.name for folder in _folders(root)} ^ set(classes))
    if others:
        raise DataError(
            f"expected the class folders of {path / 'train'} in {root} too, found {', '.join(others[:3])} in only one"
        )
    parts = [[sorted(_images(part / name)) for name in classes] for part in (path / "train", root)]
    return _listed(path, classes, *parts)


def read_image_folder(
    folder: ImageFolder, *, size: int = SIZE, train_images: int | None = None, test_images: int | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]:
    """Read the images [N, 3, size, size] and labels [N] of both parts, or of each only the first so many.

    The shorter side is scaled to ``size``, and the longer one cropped to its middle. All images are held in memory.

    Raises:
        DataError: for an image that cannot be read, images larger than the free memory, or a size or number below 1.
    """
    for name, number in (("size", size), ("train_images", train_images), ("test_images", test_images)):
        if number is not None and number < 1:
            raise DataError(f"expected {name} as a whole number from 1 up, found {number}")
    train, test = folder.train[:train_images], folder.test[:test_images]
    needed, there = (len(train) + len(test)) * 3 * size * size, psutil.virtual_memory().available
    if needed > there:
        raise DataError(
            f"{folder.path}: expected memory for {len(train) + len(test):,} images of {size}x{size}, "
            f"{needed / 2**30:.1f} GiB, found {there / 2**30:.1f}; take fewer images or a lower resolution"
        )
    return *_read(train, size), *_read(test, size)


def _folders(root: Path) -> list[Path]:
    return sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _images(folder: Path) -> Iterator[Path]:
    return (entry for entry in folder.iterdir() if entry.suffix.lower() in SUFFIXES and not entry.name.startswith("."))


def _split(path: Path) -> ImageFolder:
    folders = _folders(path)
    files = [sorted(_images(folder)) for folder in folders]
    train = [[file for place, file in enumerate(of, 1) if place % _TEST_EVERY] for of in files]
    test = [of[_TEST_EVERY - 1 :: _TEST_EVERY] for of in files]
    return _listed(path, class_names(path), train, test)


def _listed(
    path: Path, classes: tuple[str, ...], train: Sequence[Sequence[Path]], test: Sequence[Sequence[Path]]
) -> ImageFolder:
    for part, files in (("train", train), ("test", test)):
        if not any(files):
            raise DataError(f"{path}: expected images to {part} on, found none; each class needs a few")
    return ImageFolder(path, classes, _in_turn(train), _in_turn(test))


def _in_turn(files: Sequence[Sequence[Path]]) -> tuple[tuple[Path, int], ...]:
    """Take one file of each class in turn, so that the first files cover all classes."""
    labelled = [[(file, label) for file in of] for label, of in enumerate(files)]
    return tuple(pair for pair in chain.from_iterable(zip_longest(*labelled)) if pair is not None)


def _read(files: Sequence[tuple[Path, int]], size: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    images = np.empty((len(files), 3, size, size), dtype=np.uint8)

    def read(place: int) -> None:
        images[place] = decode(files[place][0], lambda image: fit(image, size))

    with ThreadPoolExecutor(_DECODERS) as pool:
        for _ in pool.map(read, range(len(files))):
            pass
    return images, np.array([label for _, label in files], dtype=np.int64)


def decode(path: Path, change: Callable[[Image.Image], Image.Image]) -> NDArray[np.uint8]:
    """The image of a file in RGB after ``change``, as uint8 [3, H, W].

    Raises:
        DataError: for a file that is no image, or damaged.
    """
    from PIL import Image

    try:
        content = read_bytes(path, MOST_BYTES)
        with (
            Image.open(io.BytesIO(content), formats=_FORMS) as image,
            _large if image.width * image.height > _LARGE else nullcontext(),
        ):
            changed = change(image.convert("RGB"))
    except Exception as error:  # noqa: BLE001 - Pillow's decoders can raise any exception on a damaged file
        said = str(getattr(error, "strerror", None) or error)
        reason = (said.splitlines() or [type(error).__name__])[0][:120]
        raise DataError(f"{path}: expected an image, found: {reason}; remove it or get it again") from None
    return np.asarray(changed).transpose(2, 0, 1)


def fit(image: Image.Image, size: int) -> Image.Image:
    """The image with its shorter side scaled to ``size``, and the longer one cropped to its middle."""
    from PIL import Image, ImageOps

    return ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR)


def resized_crop(image: Image.Image, size: int, choices: Sequence[float]) -> Image.Image:
    """A rectangle of the image scaled to ``size``, and mirrored or not: the usual augmentation for ImageNet.

    Its area is 0.08 to 1 of the image's and its sides are as 3 to 4 up to 4 to 3 (Szegedy et al. 2015, section 6), less
    where the image is too narrow for it. ``choices``: five numbers from 0 to 1, for area, sides, left, top and mirror.
    """
    from PIL import Image, ImageOps

    box, mirror = crop_box(image.width, image.height, choices)
    found = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    return ImageOps.mirror(found) if mirror else found


def crop_box(width: float, height: float, choices: Sequence[float]) -> tuple[tuple[float, float, float, float], bool]:
    """The rectangle (left, top, right, bottom) of :func:`resized_crop`, and whether it is mirrored."""
    area = (LEAST_AREA + (1 - LEAST_AREA) * choices[0]) * width * height
    sides = math.exp((2 * choices[1] - 1) * math.log(MOST_SIDES))
    wide, high = min(math.sqrt(area * sides), width), min(math.sqrt(area / sides), height)
    left, top = (width - wide) * choices[2], (height - high) * choices[3]
    return (left, top, left + wide, top + high), choices[4] < 0.5
