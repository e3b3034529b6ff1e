"""Split data into training and test parts: held-out examples and folds, for all trainings alike.

NumPy's ``RandomState`` never changes its stream (NEP 19), so a split is equal on all machines. Scikit-learn's
``StratifiedKFold`` does not promise this, and refuses more folds than the largest class has images. Shapes: N examples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syno_lab.errors import DataError
from syno_lab.inputs import quoted

_SEED = 20_160


def held_out(count: int, share: float, name: str = "data") -> NDArray[np.bool_]:
    """Return a mask of ``count`` training images: True for a random ``share`` to hold out, at least one and not all."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise DataError(f"holdout: expected a share of the training images between 0 and 1, found {quoted(share)}")
    if count < 2:
        raise DataError(f"{name}: expected two or more training images to hold some of them out, found {count}")
    order = np.random.RandomState(_SEED).permutation(count)
    is_held_out = np.zeros(count, dtype=np.bool_)
    is_held_out[order[: min(max(1, round(share * count)), count - 1)]] = True
    return is_held_out


def folds_of(
    labels: NDArray[np.int64], folds: int, fold: int | None, name: str = "data"
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of the images to train on and to test on, of N images with ``labels`` [N].

    The images of each class are shuffled and dealt to the folds in turn, so that any two folds differ by at most one
    image of each class. ``fold``, from 1, is tested. Without ``fold``, both parts have all images, in the order of the
    folds. Raises DataError for fewer than two folds, and for more folds than images.
    """
    if isinstance(folds, bool) or not isinstance(folds, int) or not 2 <= folds <= len(labels):
        raise DataError(f"{name}: expected 2 to {len(labels)} folds of {len(labels)} images, found {quoted(folds)}")
    order = np.random.RandomState(_SEED).permutation(len(labels))
    number = np.empty(len(labels), np.int64)
    number[order[np.argsort(labels[order], kind="stable")]] = np.arange(len(labels)) % folds
    if fold is None:
        return (everything := np.argsort(number, kind="stable")), everything
    return np.flatnonzero(number != fold - 1), np.flatnonzero(number == fold - 1)
