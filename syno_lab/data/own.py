"""Data of the user's own: a pair of torch datasets, as they are, offered to this process alone.

Shapes: B examples in a batch; an example is a tensor of any shape [*] with a class, a whole number from 0 up. Nothing
is normalised or augmented: the datasets do that themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, Subset, default_collate

from syno_lab.data.datasets import held_out
from syno_lab.errors import DataError
from syno_lab.inputs import quoted

#: Test examples whose classes tell two data sets of equal shapes apart.
_TOLD_APART = 64
_READ_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class OwnData:
    """Two torch datasets of pairs (tensor [*], class).

    Attributes:
        name: for people.
        train, test: the datasets; both have a length, and all examples have one shape.
        classes: how many there are.
        shape, dtype: of an example.
        fingerprint: tells data sets apart by their lengths, shapes and some classes of the test part; examples are not
            read for it, as transformations may be random.

    Raises:
        DataError: by :meth:`of` and by reading, for examples of another form.
    """

    name: str
    train: Dataset[Any]
    test: Dataset[Any]
    classes: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    fingerprint: str

    @classmethod
    def of(cls, found: object, name: str) -> OwnData:
        """Look at a pair (train, test): its first examples, and all classes of the test part."""
        if not isinstance(found, Sequence) or isinstance(found, str) or len(found) != 2:
            raise DataError(f"{name}: expected two torch datasets (train, test), found {_kind(found)}")
        for part, data in zip(("train", "test"), found, strict=True):
            if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
                raise DataError(
                    f"{name}: expected the {part} part as a torch dataset with a length, found {_kind(data)}"
                )
            if not len(data):
                raise DataError(f"{name}: expected examples in the {part} part, found none")
        train, test = cast("tuple[Dataset[Any], Dataset[Any]]", tuple(found))
        (example, _), (other, _) = _pair(train, name), _pair(test, name)
        if other.shape != example.shape or other.dtype != example.dtype:
            raise DataError(
                f"{name}: expected test examples as the training ones, {example.dtype} {list(example.shape)}, "
                f"found {other.dtype} {list(other.shape)}"
            )
        half = cls(name, train, test, 0, tuple(example.shape), example.dtype, "")
        labels = half.test_labels
        named = getattr(train, "classes", None)
        count = len(named) if isinstance(named, Sequence) else int(labels.max()) + 1
        some = labels[:: max(1, len(labels) // _TOLD_APART)].tolist()
        told = repr((half.train_count, half.test_count, list(example.shape), str(example.dtype), count, some))
        return replace(half, classes=count, fingerprint=hashlib.blake2b(told.encode(), digest_size=16).hexdigest())

    @property
    def train_count(self) -> int:
        """Examples of the training part."""
        return len(cast("Sequence[Any]", self.train))

    @property
    def test_count(self) -> int:
        """Examples of the test part."""
        return len(cast("Sequence[Any]", self.test))

    @cached_property
    def test_labels(self) -> NDArray[np.int64]:
        """The class of each test example; reads the part once."""
        read = [
            self.read(self.test, range(first, min(first + _READ_AT_ONCE, self.test_count)))[1]
            for first in range(0, self.test_count, _READ_AT_ONCE)
        ]
        return np.concatenate([labels.numpy() for labels in read])

    def read(self, part: Dataset[Any], indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The examples [B, *] and classes [B] of one part at the indices."""
        several = getattr(part, "__getitems__", None)
        try:
            pairs = several(list(indices)) if several is not None else [part[index] for index in indices]
            examples, labels = default_collate([tuple(pair)[:2] for pair in pairs])
        except (TypeError, ValueError, RuntimeError, IndexError, KeyError, OSError) as error:
            said = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataError(f"{self.name}: expected pairs of a tensor and a class, found: {said}") from None
        if not isinstance(labels, Tensor) or labels.ndim != 1 or labels.is_floating_point() or labels.is_complex():
            found = f"{labels.dtype} {list(labels.shape[1:])}" if isinstance(labels, Tensor) else _kind(labels)
            raise DataError(f"{self.name}: expected the class of an example as a whole number, found {found}")
        if not isinstance(examples, Tensor) or tuple(examples.shape[1:]) != self.shape:
            found = str(list(examples.shape[1:])) if isinstance(examples, Tensor) else _kind(examples)
            raise DataError(f"{self.name}: expected examples of the shape {list(self.shape)}, found {found}")
        least, most = int(labels.min()), int(labels.max())
        if least < 0 or (self.classes and most >= self.classes):
            top = f"to {self.classes - 1}" if self.classes else "up"
            raise DataError(f"{self.name}: expected classes from 0 {top}, found {least} to {most}")
        return examples, labels.long()

    def part(self, train: int | None = None, test: int | None = None) -> OwnData:
        """The first ``train`` and ``test`` examples (None: all)."""
        return self._of(range(self.train_count)[:train], None if test is None else range(self.test_count)[:test])

    def holding_out(self, share: float) -> OwnData:
        """Data whose test part is a share of the training examples, as :meth:`.Dataset.holding_out` splits them."""
        held = held_out(self.train_count, share, self.name)
        (kept,), (out,) = np.nonzero(~held), np.nonzero(held)
        return replace(self._of(kept.tolist(), None), test=Subset(self.train, out.tolist()))

    def _of(self, train: Sequence[int], test: Sequence[int] | None) -> OwnData:
        counts = f"{len(train)}/{self.test_count if test is None else len(test)}"
        return replace(
            self,
            train=Subset(self.train, train),
            test=self.test if test is None else Subset(self.test, test),
            fingerprint=f"{self.fingerprint} {counts}",
        )


_OFFERED: dict[str, Callable[[], OwnData]] = {}


def offer(name: str, load: Callable[[], OwnData]) -> None:
    """Make data of the user's own readable in this process, by the name ``own:NAME``; loaded when first asked for."""
    _OFFERED[name] = cache(load)


def own_data(name: str) -> OwnData:
    """The data of this name. Raises DataError where this process was not given them, and what loading them raises."""
    if name not in _OFFERED:
        raise DataError(
            f"expected data that this process was given, found {quoted(name)}; name them again, by --dataset or as the "
            "data of syno_lab.improve"
        )
    return _OFFERED[name]()


def _pair(part: Any, name: str) -> tuple[Tensor, Any]:
    read: Callable[[int], Any] = part.__getitem__
    try:
        found = read(0)
    except Exception as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{name}: the first example cannot be read: {type(error).__name__}: {said}") from error
    if not isinstance(found, Sequence) or len(found) < 2 or not isinstance(found[0], Tensor):
        kinds = ", ".join(map(_kind, found)) if isinstance(found, tuple | list) else _kind(found)
        raise DataError(f"{name}: expected examples as pairs of a tensor and a class, found {kinds}")
    return found[0], found[1]


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
