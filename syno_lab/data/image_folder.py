"""Read a folder of images in class folders, such as the unpacked ImageNet.

The folder has a training part and a test part with the same class folders, or only class folders; then every fifth
image is a test image (:mod:`.layout`). Shapes: N images, C = 3 channels, H and W the size to which images are scaled.
"""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import chain, islice, zip_longest
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import psutil
from numpy.typing import NDArray

from syno_lab.data.layout import Layout, find_layout, images
from syno_lab.errors import DataError
from syno_lab.inputs import QUOTED, printable, read_bytes

if TYPE_CHECKING:
    from PIL import Image

SIZE = 224
"""The height and width to which large photos of many sizes are scaled, as usual for ImageNet (He et al. 2016)."""

Size = tuple[int, int]
"""A height and a width in pixels."""

MOST_BYTES = 1 << 28
"""The largest size of an image file in bytes."""

# Pillow also reads other formats, and starts another program to read EPS. The first bytes of a file decide the format.
_FORMS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "PPM", "TIFF")
_LARGE = 1 << 24  # number of pixels; larger images are decoded one at a time
_TEST_EVERY = 5
_LOOKED_AT = 256  # The number of files that are checked for transparency.
_SIZED = 1024  # The number of files whose sizes decide the common size.
_BITS, _PHOTOMETRIC, _ORIENTATION = 258, 262, 274  # The numbers of TIFF tags.
_large = Lock()
LEAST_AREA, MOST_SIDES = 0.08, 4 / 3
_DECODERS = 8  # number of threads: reading waits for the disk, and decoding releases Python's lock


@dataclass(frozen=True)
class ImageFolder:
    """The image files, each with the index of its class, sorted so that the first images of all classes come first.

    ``parts``: the parts' folder names, empty if every fifth image is a test image; ``unread``: folders not read.
    """

    path: Path
    classes: tuple[str, ...]
    train: tuple[tuple[Path, int], ...]
    test: tuple[tuple[Path, int], ...]
    parts: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @cached_property
    def sizes(self) -> Counter[Size]:
        """The number of images of each size among the first 1,024, without damaged files."""
        files = chain(self.train, self.test)
        return Counter(size for file, _ in islice(files, _SIZED) if (size := _size_of(file)) is not None)

    @property
    def size(self) -> Size:
        """The most common size of the images, with which networks are trained unless the user chooses a resolution.

        Photos usually have many sizes. So if most images have other sizes, and the most common size is larger than
        :data:`SIZE`, the size is :data:`SIZE`.
        """
        most = max(self.sizes, key=lambda size: (self.sizes[size], -math.prod(size), size), default=(SIZE, SIZE))
        is_usual = 2 * self.sizes[most] >= self.sizes.total()
        return most if is_usual or min(most) <= SIZE else (SIZE, SIZE)

    def size_at(self, resolution: int | None) -> Size:
        """Return the height and width to which the images are scaled; ``resolution`` None: :attr:`size`."""
        return self.size if resolution is None else (resolution, resolution)

    def plan(self, resolution: int | None = None) -> str:
        """Describe how the folder is read, in one line; check the first 256 files for transparency."""
        of = [f" from {printable(name, QUOTED)}" for name in self.parts] or ["", ", every fifth image"]
        text = f"{self.path}: {len(self.classes)} classes, {len(self.train):,} images to train on{of[0]}, "
        text += f"{len(self.test):,} to test on{of[1]}"
        if self.unread:
            text += f"; not read: {printable(', '.join(self.unread), QUOTED)}"
        size = self.size_at(resolution)
        if others := self.sizes.total() - self.sizes[size]:
            among = "" if len(self.train) + len(self.test) <= _SIZED else f" of the first {_SIZED:,}"
            text += f"; {others:,}{among} images have another size: they are scaled and cropped to {size[0]}x{size[1]}"
        clear = next((file for file, _ in self.train[:_LOOKED_AT] if has_transparency(file)), None)
        return text if clear is None else f"{text}; transparent pixels become white, as in {clear.name}"


def find_image_folder(path: Path) -> ImageFolder:
    """List the images of ``path``. Raises DataError as :func:`.find_layout` does, and for a part without images."""
    layout = find_layout(path)
    train = [_files(of) for of in layout.train.values()]
    if layout.test is None:
        test = [of[_TEST_EVERY - 1 :: _TEST_EVERY] for of in train]
        train = [[file for number, file in enumerate(of, 1) if number % _TEST_EVERY] for of in train]
    else:
        test = [_files(layout.test[name]) for name in layout.train]
    for part, files in (("train", train), ("test", test)):
        if not any(files):
            raise DataError(f"{path}: expected images to {part} on, found none; each class needs a few")
    return ImageFolder(path, tuple(layout.train), _in_turn(train), _in_turn(test), layout.parts, layout.unread)


def own_size(path: Path, layout: Layout) -> Size:
    """Return :attr:`ImageFolder.size` of a folder; the last call's size, if no class folder has changed."""
    folders = (of for of in layout.train.values() if isinstance(of, Path))
    return _own_size(path, tuple(folder.stat().st_mtime_ns for folder in folders))


@lru_cache(maxsize=8)
def _own_size(path: Path, _changed: tuple[int, ...]) -> Size:
    return find_image_folder(path).size


def _files(of: Path | Sequence[Path]) -> list[Path]:
    return sorted(images(of, is_deep=True)) if isinstance(of, Path) else list(of)


def read_image_folder(
    folder: ImageFolder, *, size: int | None = None, train_images: int | None = None, test_images: int | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]:
    """Read the images [N, 3, H, W] and labels [N] of both parts; the two numbers limit how many images are read.

    ``size`` is H and W; None: the folder's :attr:`~ImageFolder.size`. Images of another size are scaled until they
    cover H and W, and cropped to their middle. All images stay in memory.
    Raises DataError for an image that cannot be read, images larger than the free memory, or a size or number below 1.
    """
    check_numbers(size=size, train_images=train_images, test_images=test_images)
    train, test = folder.train[:train_images], folder.test[:test_images]
    at = folder.size_at(size)
    needed, available = (len(train) + len(test)) * 3 * math.prod(at), psutil.virtual_memory().available
    if needed > available:
        raise DataError(
            f"{folder.path}: expected memory for {len(train) + len(test):,} images of {at[0]}x{at[1]}, "
            f"{needed / 2**30:.1f} GiB, found {available / 2**30:.1f}; take fewer images or a lower resolution"
        )
    return *_read(train, at), *_read(test, at)


def check_numbers(**numbers: int | None) -> None:
    """Raise DataError, with the argument's name, for a number below 1; None means no limit."""
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise DataError(f"expected {name} as a whole number from 1 up, found {number}")


def _in_turn(files: Sequence[Sequence[Path]]) -> tuple[tuple[Path, int], ...]:
    """Return the files with the classes in turn, so that the first files cover all classes."""
    labelled = [[(file, label) for file in part] for label, part in enumerate(files)]
    return tuple(pair for pair in chain.from_iterable(zip_longest(*labelled)) if pair is not None)


def _read(files: Sequence[tuple[Path, int]], size: Size) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    pixels = np.empty((len(files), 3, *size), dtype=np.uint8)

    def read(index: int) -> None:
        pixels[index] = decode(files[index][0], partial(fit, size=size))

    with ThreadPoolExecutor(_DECODERS) as pool:
        for _ in pool.map(read, range(len(files))):
            pass
    return pixels, np.array([label for _, label in files], dtype=np.int64)


def decode(path: Path, change: Callable[[Image.Image], Image.Image]) -> NDArray[np.uint8]:
    """Decode a file to RGB, apply ``change`` to the upright image, and return it as uint8 [3, H, W].

    Transparent pixels become white. If a file has several images, the first is read. Grey levels of 16 bits are divided
    by 257. Raises DataError for a file that is no image, a damaged image, levels of 32 bits, and floats outside 0 to 1.
    """
    try:
        with _opened(path) as image, _large if image.width * image.height > _LARGE else nullcontext():
            changed = change(_upright(image))
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except Exception as error:  # noqa: BLE001 - Pillow's decoders can raise any exception on a damaged file
        message = str(getattr(error, "strerror", None) or error)
        reason = (message.partition(" <")[0].splitlines() or [type(error).__name__])[0][:120]
        raise DataError(f"{path}: expected an image, found: {reason}; remove it or get it again") from None
    return np.asarray(changed).transpose(2, 0, 1)


def has_transparency(path: Path) -> bool:
    """Return whether the header of a file allows transparent pixels; False for a file that is no image."""
    with suppress(Exception), _opened(path) as image:  # Pillow can raise any exception on a damaged file
        return image.has_transparency_data
    return False


def _size_of(path: Path) -> Size | None:
    """Return the size of the upright image from the file's header; None for a file that is no image."""
    with suppress(Exception), _opened(path) as image:  # Pillow can raise any exception on a damaged file
        # Pillow returns the upright size of a TIFF.
        is_turned = image.format != "TIFF" and image.getexif().get(_ORIENTATION, 1) > 4
        return (image.width, image.height) if is_turned else (image.height, image.width)
    return None


def _opened(path: Path) -> Image.Image:
    from PIL import Image

    return Image.open(io.BytesIO(read_bytes(path, MOST_BYTES)), formats=_FORMS)


def _upright(image: Image.Image) -> Image.Image:
    """Return the image in RGB, turned as its EXIF orientation demands; transparent pixels become white."""
    from PIL import Image, ImageOps

    tags, form = getattr(image, "tag_v2", {}), image.format
    image.load()  # Loading turns a TIFF image upright.
    with suppress(Exception):  # Damaged EXIF data leaves the image unchanged.
        ImageOps.exif_transpose(image, in_place=True)
    if image.mode[0] in "IF":
        return Image.fromarray(_of_8_bits(image, form, tags)).convert("RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")
    clear = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear).convert("RGB")


def _of_8_bits(image: Image.Image, form: str | None, tags: Mapping[int, int | tuple[int, ...]]) -> NDArray[np.uint8]:
    """Return the levels [H, W] of a grey image of more than 8 bits; ``tags`` are the tags of a TIFF."""
    levels = np.asarray(image).astype(np.float64)
    low, high = levels.min(), levels.max()
    if image.mode.startswith("I;16") or (image.mode == "I" and form in ("PNG", "PPM")):  # up to 16 bits a pixel
        levels /= 4095 if tags.get(_BITS) in (12, (12,)) else 65535
        levels = 1 - levels if tags.get(_PHOTOMETRIC) == 0 else levels
    elif image.mode != "F" or not (low >= 0 and high <= 1):
        kind = "floats" if image.mode == "F" else "32 bits"
        raise DataError(
            f"expected levels of 8 or 16 bits or floats from 0 to 1, found {kind} from {low:g} to {high:g}; save 8 bits"
        )
    if "transparency" in image.info:
        levels[np.asarray(image) == image.info["transparency"]] = 1
    return np.rint(levels * 255).astype(np.uint8)


def fit(image: Image.Image, size: Size) -> Image.Image:
    """Scale an image until it covers ``size``, and crop it to its middle."""
    from PIL import Image, ImageOps

    return ImageOps.fit(image, size[::-1], Image.Resampling.BILINEAR)


def resized_crop(image: Image.Image, size: Size, choices: Sequence[float]) -> Image.Image:
    """Scale a random rectangle of the image to ``size`` and perhaps mirror it: the usual augmentation for ImageNet.

    The rectangle has 0.08 to 1 of the image's area, and an aspect ratio from 3/4 to 4/3 (Szegedy et al. 2015, section
    6). Crops of narrow images are smaller. ``choices``: five numbers from 0 to 1, for area, ratio, left, top, mirror.
    """
    from PIL import Image, ImageOps

    box, mirror = crop_box(image.width, image.height, choices)
    crop = image.resize(size[::-1], Image.Resampling.BILINEAR, box=box)
    return ImageOps.mirror(crop) if mirror else crop


def crop_box(width: float, height: float, choices: Sequence[float]) -> tuple[tuple[float, float, float, float], bool]:
    """Return the rectangle (left, top, right, bottom) of :func:`resized_crop`, and whether it is mirrored."""
    area = (LEAST_AREA + (1 - LEAST_AREA) * choices[0]) * width * height
    sides = math.exp((2 * choices[1] - 1) * math.log(MOST_SIDES))
    wide, high = min(math.sqrt(area * sides), width), min(math.sqrt(area / sides), height)
    left, top = (width - wide) * choices[2], (height - high) * choices[3]
    return (left, top, left + wide, top + high), choices[4] < 0.5
