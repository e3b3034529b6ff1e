"""The images that a request names, cut to the numbers it asks for."""

from __future__ import annotations

from dataclasses import replace

from syno_lab.errors import DataError
from syno_lab.evaluate.data import Dataset, load_dataset
from syno_lab.evaluate.trial.request import TrialRequest


def images_of(request: TrialRequest) -> Dataset:
    """The request's data set, at most ``train_images`` and ``test_images`` of it, the first ones.

    Raises:
        DataError: where it is not there or damaged, or for a number of images below 1.
    """
    return limited(load_dataset(request.data), request.train_images, request.test_images)


def limited(dataset: Dataset, train_images: int | None, test_images: int | None) -> Dataset:
    """The first ``train_images`` and ``test_images`` of a data set; None: all."""
    for name, count in (("train_images", train_images), ("test_images", test_images)):
        if count is not None and count < 1:
            raise DataError(f"expected {name} as a whole number from 1 up, found {count}")
    if train_images is None and test_images is None:
        return dataset
    return replace(
        dataset,
        train_images=dataset.train_images[:train_images],
        train_labels=dataset.train_labels[:train_images],
        test_images=dataset.test_images[:test_images],
        test_labels=dataset.test_labels[:test_images],
    )
