"""Read a request's data for training and for tests, once for all trials of a process."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from pathlib import Path

from syno_lab.data.datasets import DIGITS, Dataset, data_path, holds_cifar, is_class_folders, load_dataset
from syno_lab.data.image_folder import find_image_folder
from syno_lab.data.own import OwnData, own_data
from syno_lab.data.stream import MOST_HELD, ImageStream, stream_of
from syno_lab.data.text import TextData
from syno_lab.models.registry import OWN
from syno_lab.trial.facts import facts_of, text_of
from syno_lab.trial.request import TrialRequest

#: The default number of batches in an epoch of text.
STEPS = 100
#: The default number of test windows of a text; all windows would take longer than an epoch.
TEST_WINDOWS = 256
#: The files of a folder: name, size and time of the last change (in ns), which together show a change.
_Files = tuple[tuple[str, int, int], ...]


def examples_of(request: TrialRequest) -> Dataset | ImageStream | OwnData:
    """Return the data of the request: images, or the user's own data; the outcome is measured on its test part.

    With ``folds`` but no ``fold`` both parts have all images. Raises DataError if the data cannot be read.
    """
    if not request.data.startswith(OWN):
        images = images_of(request)
        return images if request.folds is None else images.folded(request.folds, request.fold)
    own = own_data(request.data).part(request.train_images)
    return (own if request.holdout is None else own.holding_out(request.holdout)).part(None, request.test_images)


def images_of(request: TrialRequest) -> Dataset | ImageStream:
    """Return the request's images; the outcome is measured on the test part: held-out images if the request has any.

    Images in class folders that would take more than :data:`.stream.MOST_HELD` bytes in memory are streamed.

    The last data sets, except images in class folders, stay cached until their files change. So the many short trials
    of a process read their data once. Raises DataError if the data cannot be read.
    """
    settings = (request.data, request.resolution, request.train_images, request.test_images, request.holdout)
    if request.data == DIGITS:
        return _load(*settings)
    folder = data_path(request.data)
    return _load(*settings, _files(folder)) if holds_cifar(folder) else _load.__wrapped__(*settings)


def plan_of_data(request: TrialRequest) -> list[str]:
    """Return lines for a plan: the data in short, then how a folder is read, or a remark on the user's own data.

    The first line is ``300 images, 40x40, 6 classes, 240/60, 4 batches an epoch``; 240/60 are the numbers of examples
    to train and to test on. Raises DataError if the data cannot be read.
    """
    facts = facts_of(request)
    if facts.domain == "text":
        text = text_of(request)
        kind = f"tokens of text, {facts.outputs} different ones, windows of {facts.size} tokens"
        return [_in_short((len(text.train), len(text.test)), kind, batches_of(request)[0])]
    shape: tuple[int, ...] = (facts.size, facts.size)
    more: list[str] = []
    if request.data.startswith(OWN):
        own = examples_of(request)
        assert isinstance(own, OwnData)
        counts, shape, more = (len(own.train), len(own.test)), own.shape, list(filter(None, [own.remark]))
    elif request.data != DIGITS and is_class_folders(folder := data_path(request.data)):
        found = find_image_folder(folder)
        counts = len(found.train[: request.train_images]), len(found.test[: request.test_images])
        shape, more = found.size_at(request.resolution), [found.plan(request.resolution)]
    else:
        images = images_of(request)
        counts = len(images.train_labels), len(images.test_labels)
    classes = f"{facts.outputs} classes"
    if request.folds is not None:
        test = sum(counts) // request.folds
        counts, classes = (sum(counts) - test, test), f"{classes}, {request.folds} folds"
    noun = "images" if len(shape) == 2 else "examples"
    kind = f"{noun}, {'x'.join(map(str, shape))}, {classes}"
    return [_in_short(counts, kind, -(-counts[0] // request.batch_size)), *more]


def _in_short(counts: tuple[int, int], kind: str, batches: int) -> str:
    many = "batch" if batches == 1 else "batches"
    return f"{sum(counts):,} {kind}, {counts[0]:,}/{counts[1]:,}, {batches:,} {many} an epoch"


def held_text_of(request: TrialRequest) -> TextData:
    """Return the request's text; with ``holdout``, the test part is a part of the training text."""
    text = text_of(request)
    return text if request.holdout is None else text.holding_out(request.holdout)


def batches_of(request: TrialRequest) -> tuple[int, int]:
    """Return the number of batches of an epoch and of a test. Raises DataError if the data cannot be read."""
    if facts_of(request).domain == "text":
        return request.options.get("steps", STEPS), -(-(request.test_images or TEST_WINDOWS) // request.batch_size)
    data = examples_of(request)
    train, test = (data.train, data.test) if isinstance(data, OwnData) else (data.train_labels, data.test_labels)
    return -(-len(train) // request.batch_size), -(-len(test) // request.batch_size)


def _files(folder: Path) -> _Files:
    states = []
    for entry in sorted((*folder.iterdir(), *folder.glob("*/*"))):
        status = entry.stat()
        states.append((str(entry), status.st_size, status.st_mtime_ns))
    return tuple(states)


@lru_cache(maxsize=2)
def _load(
    data: str,
    size: int | None,
    train_images: int | None,
    test_images: int | None,
    holdout: float | None,
    _files: _Files = (),
) -> Dataset | ImageStream:
    if data != DIGITS and is_class_folders(folder := data_path(data)):
        stream = stream_of(find_image_folder(folder), size).part(train_images)
        stream = stream if holdout is None else stream.holding_out(holdout)
        stream = stream.part(None, test_images)
        if (len(stream.train) + len(stream.test)) * prod(stream.image_shape) > MOST_HELD:
            return stream
    return load_dataset(data, size=size, train_images=train_images, test_images=test_images, holdout=holdout)
