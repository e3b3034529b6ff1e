"""Find, download and read data sets of images.

Shapes: N images, C channels, H rows, W columns. A data set comes from a folder that the user names: CIFAR-10 or
CIFAR-100 (:mod:`.cifar`), or images in class folders (:mod:`.image_folder`). Scikit-learn's digits are a data set that
needs neither a folder nor a network connection.
"""

from __future__ import annotations

import hashlib
import logging
import lzma
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from syno_lab.data.cifar import CIFAR_FORMATS, MOST_BYTES, CifarFormat, find_cifar, read_cifar
from syno_lab.data.image_folder import check_numbers, find_image_folder, read_image_folder
from syno_lab.data.layout import holds_images
from syno_lab.data.splits import folds_of, held_out
from syno_lab.errors import DataError
from syno_lab.inputs import QUOTED, printable, quoted
from syno_lab.scratch import folder_of, scratch

CIFAR_URL = "https://www.cs.toronto.edu/~kriz/"
"""The address where the archives of CIFAR are published."""

DATA_VARIABLE = "SYNO_LAB_DATA"
"""The environment variable that names the default data folder."""

DIGITS = "digits"
"""The path that selects scikit-learn's digits, whatever the environment variable says."""

_COUNTED_AT_ONCE = 4096
"""The number of images whose pixels are counted at a time; counting needs eight times their memory."""

DownloadProgress = Callable[[int, int], None]
"""A callback; its arguments are the bytes received so far and the bytes expected (0 if unknown)."""

Statistics = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Mean and standard deviation [C] of each channel, pixels scaled to 0 … 1."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with a label for each, in a training part and a test part; the arrays are read-only.

    ``train_images`` and ``test_images``: uint8 [N, C, H, W], 0 is dark. ``train_labels`` and ``test_labels``: int64
    [N], indices into ``classes``. ``name``: ``cifar-10``, ``cifar-100``, ``digits`` or an image folder's; ``source``:
    the source of the data, a text for people. Raises DataError for inconsistent arrays.
    """

    name: str
    source: str
    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            images, labels = getattr(self, f"{part}_images"), getattr(self, f"{part}_labels")
            if images.dtype != np.uint8 or images.ndim != 4 or not images.size:
                raise DataError(
                    f"{self.name}: expected {part}_images as uint8 [N, C, H, W] with N > 0, "
                    f"found {images.dtype} {list(images.shape)}"
                )
            if labels.dtype != np.int64 or labels.shape != images.shape[:1]:
                raise DataError(
                    f"{self.name}: expected {part}_labels as int64 [{len(images)}], "
                    f"found {labels.dtype} {list(labels.shape)}"
                )
            if labels.min() < 0 or labels.max() >= len(self.classes):
                raise DataError(
                    f"{self.name}: expected {part}_labels from 0 to {len(self.classes) - 1}, "
                    f"found {labels.min()} to {labels.max()}"
                )
            images.setflags(write=False)
            labels.setflags(write=False)
        if self.train_images.shape[1:] != self.test_images.shape[1:]:
            raise DataError(
                f"{self.name}: expected test images of the training images' shape {list(self.train_images.shape[1:])}, "
                f"found {list(self.test_images.shape[1:])}"
            )

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """The shape [C, H, W] of every image."""
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width

    @cached_property
    def fingerprint(self) -> str:
        """A hash of images and labels, 128 bits in hexadecimal; it does not depend on form and folder of the files."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.train_images, self.train_labels, self.test_images, self.test_labels):
            digest.update(repr(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def part(self, train_images: int | None = None, test_images: int | None = None) -> Dataset:
        """Return the first ``train_images`` and ``test_images`` (None: all). Raises DataError for a number below 1."""
        check_numbers(train_images=train_images, test_images=test_images)
        if train_images is None and test_images is None:
            return self
        return replace(
            self,
            train_images=self.train_images[:train_images],
            train_labels=self.train_labels[:train_images],
            test_images=self.test_images[:test_images],
            test_labels=self.test_labels[:test_images],
        )

    def holding_out(self, share: float) -> Dataset:
        """Return a data set whose test part is a share of this data set's training images, held out from training.

        The split depends only on the number of training images, not on a seed or a machine (NumPy's ``RandomState``
        never changes its stream, NEP 19). The test images of this data set are in neither part. Raises DataError for a
        share that is not between 0 and 1, and for a single training image.
        """
        is_held_out = held_out(len(self.train_labels), share, self.name)
        return replace(
            self,
            train_images=self.train_images[~is_held_out],
            train_labels=self.train_labels[~is_held_out],
            test_images=self.train_images[is_held_out],
            test_labels=self.train_labels[is_held_out],
        )

    def folded(self, folds: int, fold: int | None = None) -> Dataset:
        """Return all images, training images first, in the two parts that :func:`.splits.folds_of` returns."""
        images = np.concatenate((self.train_images, self.test_images))
        labels = np.concatenate((self.train_labels, self.test_labels))
        train, test = folds_of(labels, folds, fold, self.name)
        parts = images[train], labels[train], images[test], labels[test]
        return Dataset(self.name, self.source, *parts, self.classes)

    @cached_property
    def channel_statistics(self) -> Statistics:
        """Mean and deviation [C] over all training images, see :func:`statistics_of`."""
        firsts = range(0, len(self.train_images), _COUNTED_AT_ONCE)
        return statistics_of(self.train_images[first : first + _COUNTED_AT_ONCE] for first in firsts)


def statistics_of(batches: Iterable[NDArray[np.uint8]]) -> Statistics:
    """Return the mean and the deviation of each channel over batches of images [N, C, H, W], pixels scaled to 0 … 1.

    Mean and deviation are computed from counts of pixel values, not by floating-point sums, so the order of the images
    does not matter. A channel with a single value has the deviation 1, so that division by the deviation is safe.
    """
    levels = np.arange(256) / 255
    by_batch = (
        np.stack([np.bincount(some[:, c].ravel(), minlength=256) for c in range(some.shape[1])]) for some in batches
    )
    counts = sum(by_batch, np.zeros((), np.int64))
    share = counts / counts.sum(axis=1, keepdims=True)
    mean = share @ levels
    deviation = np.sqrt((share * (levels - mean[:, None]) ** 2).sum(axis=1))
    return mean, np.where(deviation > 1e-12, deviation, 1.0)


def load_dataset(
    path: str | Path | None = None,
    *,
    download: bool = False,
    progress: DownloadProgress | None = None,
    base_url: str = CIFAR_URL,
    known_hash: str | None = None,
    size: int | None = None,
    train_images: int | None = None,
    test_images: int | None = None,
    holdout: float | None = None,
) -> Dataset:
    """Read a data set: from ``path``, else from the folder in ``SYNO_LAB_DATA``, else scikit-learn's digits.

    ``path`` is a folder in one of the four published forms of CIFAR (``cifar-10-batches-bin``, ``cifar-10-batches-py``,
    ``cifar-100-binary``, ``cifar-100-python``) or a parent of such folders, of which the first in this order is read.
    ``path`` may also be a folder of images in class folders (see :mod:`.image_folder`), or ``"digits"``. A CIFAR file
    may have any number of complete records.

    ``size``: height and width to which images in class folders are scaled, by default their own size, the most common
    one (:attr:`.ImageFolder.size`); other images are not scaled. ``train_images`` and ``test_images``: how many of the
    first images are used; other images in class folders are not read. ``holdout``: the share of the training images
    that becomes the test part (:meth:`Dataset.holding_out`). The data set's own test images are then not used, and
    ``test_images`` counts held-out images.

    With ``download``, a missing folder is downloaded first: the form that the path's last part names, else
    ``cifar-10-batches-bin`` into that path. Without ``path`` and ``SYNO_LAB_DATA``, the user's cache folder is used.
    ``base_url`` and ``known_hash`` are for mirrors, see :func:`download_cifar`.

    Raises DataError for a missing folder or file, an empty folder, a file with an incomplete record, a label out of
    range, a pickle with more than plain data, and a download that fails.
    """
    chosen = path if path is not None else os.environ.get(DATA_VARIABLE) or None
    if chosen is None and download:
        import pooch

        chosen = pooch.os_cache("syno-lab")
    if chosen is None or str(chosen) == DIGITS:
        return _part(_load_digits(), train_images, test_images, holdout)
    folder = data_path(chosen)
    if not download and is_class_folders(folder):
        layout = find_image_folder(folder)
        tests = test_images if holdout is None else 1
        read = read_image_folder(layout, size=size, train_images=train_images, test_images=tests)
        return _part(Dataset(folder.name, str(folder), *read, layout.classes), None, test_images, holdout)
    try:
        if download and not holds_cifar(folder):
            form = next((form for form in CIFAR_FORMATS if form.folder == folder.name), None)
            parent = folder.parent if form else folder
            folder = download_cifar(
                (form or CIFAR_FORMATS[0]).folder, parent, progress=progress, base_url=base_url, known_hash=known_hash
            )
        folder, form = find_cifar(folder)
    except DataError as error:
        if path is None and DATA_VARIABLE in os.environ:
            raise DataError(f"{error} (the path comes from the environment variable {DATA_VARIABLE})") from None
        raise
    arrays = read_cifar(folder, form, has_test=holdout is None)
    if holdout is not None:  # a data set must have a test part; `_part` replaces this placeholder
        arrays = arrays._replace(test_images=arrays.train_images[:1], test_labels=arrays.train_labels[:1])
    return _part(Dataset(form.name, str(folder), *arrays), train_images, test_images, holdout)


def _part(dataset: Dataset, train_images: int | None, test_images: int | None, holdout: float | None) -> Dataset:
    if holdout is None:
        return dataset.part(train_images, test_images)
    return dataset.part(train_images).holding_out(holdout).part(None, test_images)


def data_path(chosen: str | Path) -> Path:
    """Return the path of a data set. Raises DataError for a path that is too long, or a circle of links."""
    try:
        folder = Path(chosen).expanduser()
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"expected a data folder, found {quoted(str(chosen))}: {reason}; check the path") from None
    return folder


def holds_cifar(path: Path) -> bool:
    """Return whether ``path`` is a folder of CIFAR, or a parent of such a folder."""
    if not path.is_dir() or not any(path.iterdir()):
        return False
    try:
        find_cifar(path)
    except DataError:
        return False
    return True


def is_class_folders(path: Path) -> bool:
    """Return whether ``path`` is read as images in class folders, because it contains images, but not CIFAR."""
    return not holds_cifar(path) and path.is_dir() and holds_images(path)


def _load_digits() -> Dataset:
    """Return the 1,797 images of 8 x 8 pixels of handwritten digits of scikit-learn, the last 360 as the test part.

    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI 1998. The images are ordered by
    writer, so that almost no writer has images in both parts. The 17 grey levels are scaled to 0 … 255.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    labels = bunch.target.astype(np.int64)
    train, test, classes = slice(None, -360), slice(-360, None), tuple(map(str, bunch.target_names))
    source = "scikit-learn's digits"
    return Dataset(DIGITS, source, images[train], labels[train], images[test], labels[test], classes)


def download_cifar(
    form: str,
    folder: str | Path,
    *,
    progress: DownloadProgress | None = None,
    base_url: str = CIFAR_URL,
    known_hash: str | None = None,
    timeout_s: float = 30,
) -> Path:
    """Download one published form of CIFAR, named by its folder (``"cifar-10-batches-bin"``), and unpack it.

    Returns ``folder/form``. The archive must have the published MD5, or ``known_hash`` (``"md5:…"`` or ``"sha256:…"``)
    where a mirror has another archive. The archive is unpacked in a hidden folder beside the final folder. The hidden
    folder is renamed at the end, so that an interrupted download leaves no incomplete data. Existing data are not
    replaced. ``timeout_s`` is the time limit in seconds for an answer of the server.

    Raises DataError for an unknown form, a server that does not answer, a wrong checksum, or an archive with more than
    plain files in its folder.
    """
    published = next((candidate for candidate in CIFAR_FORMATS if candidate.folder == form), None)
    if published is None:
        names = ", ".join(candidate.folder for candidate in CIFAR_FORMATS)
        raise DataError(f"expected the form to download as one of {names}, found {quoted(form)}")
    parent = Path(folder).expanduser()
    goal = parent / published.folder
    try:
        with folder_of(goal), scratch(".syno-lab-", parent) as work:
            archive = _fetch(published, work, progress, base_url, known_hash or f"md5:{published.md5}", timeout_s)
            _unpack(archive, published.folder, work)
            if goal.is_dir() and not any(goal.iterdir()):
                goal.rmdir()
            (work / published.folder).rename(goal)
    except OSError as error:
        raise DataError(f"expected to write {goal}, found: {error.strerror or error}; choose another folder") from None
    return goal


class _Meter:
    """A progress bar for pooch that calls a callback."""

    def __init__(self, report: DownloadProgress | None) -> None:
        self.total = 0
        self._done = 0
        self._report = report

    def update(self, count: int) -> None:
        self._done += count
        if self._report is not None and count:
            # pooch counts complete blocks, although the last block is shorter.
            self._report(min(self._done, self.total) if self.total else self._done, self.total)

    def reset(self) -> None:
        self._done = 0  # pooch calls `reset` after the last byte

    def close(self) -> None:
        pass


def _fetch(
    form: CifarFormat, folder: Path, progress: DownloadProgress | None, base_url: str, known_hash: str, timeout_s: float
) -> Path:
    import pooch
    import requests

    url = base_url.rstrip("/") + "/" + form.archive
    by_hand = f"download it yourself, unpack it and name the folder {form.folder}"
    try:
        with _quiet(pooch.get_logger()):
            fetched = pooch.retrieve(
                url,
                known_hash=known_hash,
                fname=form.archive,
                path=folder,
                downloader=pooch.HTTPDownloader(progressbar=_Meter(progress), chunk_size=1 << 16, timeout=timeout_s),
            )
    except requests.HTTPError as error:
        status = f"the answer {error.response.status_code}" if error.response is not None else "an HTTP error"
        raise DataError(f"expected an archive at {url}, found {status}; {by_hand}") from None
    except requests.RequestException as error:
        raise DataError(
            f"expected an answer from {url}, found none ({type(error).__name__}); check the network, or {by_hand}"
        ) from None
    except ValueError as error:
        if "hash" not in str(error):
            raise DataError(f"expected an address to download from, found {quoted(url)} ({error})") from None
        raise DataError(f"expected an archive with {known_hash} at {url}, found another file; {by_hand}") from None
    return Path(fetched)


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    # pooch logs each download and unknown hashes to standard error; the caller has a progress callback instead.
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _unpack(archive: Path, root: str, folder: Path) -> None:
    """Extract the plain files in ``root`` of ``archive`` to ``folder/root``; refuse an archive with other entries.

    tarfile's own "data" filter exists only since Python 3.11.4. The published archives have no subfolders.
    """
    (folder / root).mkdir()
    try:
        with tarfile.open(archive, "r:*") as tar:
            for member in tar:
                parts = PurePosixPath(member.name).parts
                if member.isdir() and parts in ((), (root,)):
                    continue
                stream = tar.extractfile(member) if member.isreg() else None
                is_ours = len(parts) == 2 and parts[0] == root and parts[1] != ".." and member.size <= MOST_BYTES
                if stream is None or not is_ours:
                    raise DataError(
                        f"expected only plain files in {root}/ in {archive.name}, of at most {MOST_BYTES} bytes, "
                        f"found {quoted(member.name)} of {member.size}; "
                        "nothing was unpacked: get the archive from its publisher"
                    )
                with (folder / root / parts[1]).open("xb") as out:
                    shutil.copyfileobj(stream, out)
    except OSError as error:  # the disk is full, or a name is too long or occurs twice
        raise DataError(f"{archive.name} cannot be unpacked to {folder}: {error.strerror or error}") from None
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
        reason = printable((str(error).splitlines() or [type(error).__name__])[0].rstrip(":"), QUOTED)
        raise DataError(f"expected a tar archive in {archive.name}, found: {reason}") from None
