"""Data of the user's own: a pair of torch datasets that only this process can read.

Shapes: B examples in a batch; an example is a tensor of any shape [*] with a class, a whole number from 0 up. The lab
does not normalise or augment the examples, because the datasets themselves do so.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, Subset, default_collate

from syno_lab.blame import blamed, is_theirs, said_by
from syno_lab.data.splits import held_out
from syno_lab.errors import DataError
from syno_lab.inputs import kind_of, quoted

#: The number of test examples whose classes are in the fingerprint.
_TOLD_APART = 64
_READ_AT_ONCE = 256
#: The largest number of examples in a part; the limit exists because their random order is in memory.
MOST = 100_000_000
#: The time limit in seconds for reading the labels of a part; labels that are not read in this time stay unknown.
LOOK_S = 10.0
_MOST_LISTED = 5


@dataclass(frozen=True, eq=False)
class Part:
    """A part: examples of a dataset, by their indices in it; ``name`` is ``"training"`` or ``"test"``."""

    data: Dataset[Any]
    name: str
    indices: Sequence[int]

    @classmethod
    def of(cls, data: Any, name: str, whose: str) -> Part:
        """Return all examples of a dataset. Raises DataError if the dataset has no length."""
        if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
            raise DataError(
                f"{whose}: expected the {name} part as a torch dataset with a length, found {kind_of(data)}"
            )
        with blamed(f"{whose}: the length of the {name} part", DataError):
            count = len(data)
        if not 0 < count <= MOST:
            raise DataError(
                f"{whose}: expected from 1 to {MOST:,} examples in the {name} part, found {count or 'none'}"
                + ("; give some of them, as in torch.utils.data.Subset(data, range(10000))" if count else "")
            )
        return cls(data, name, range(count))

    def __len__(self) -> int:
        return len(self.indices)

    def some(self, chosen: Sequence[int]) -> Part:
        """Return the examples at the ``chosen`` indices."""
        if isinstance(chosen, range):
            return replace(self, indices=self.indices[chosen.start : chosen.stop : chosen.step])
        return replace(self, indices=[self.indices[index] for index in chosen])

    def taken(self, chosen: Sequence[int], whose: str) -> list[Any]:
        """Read examples from the dataset. Raises DataError with the number of the example that cannot be read."""
        numbers = [self.indices[index] for index in chosen]
        several: Callable[[list[int]], list[Any]] = getattr(self.data, "__getitems__", lambda numbers: [])
        try:
            examples = list(several(numbers))
            if len(examples) == len(numbers):
                return examples
        except BaseException as error:
            if not is_theirs(error):
                raise
        examples = []  # examples are read singly, so that an error names one
        for number in numbers:
            try:
                examples.append(self.data[number])
            except BaseException as error:
                if not is_theirs(error):
                    raise
                hint = f"; its length says {len(self.data):,}" if isinstance(error, IndexError | StopIteration) else ""  # type: ignore[arg-type]
                raise DataError(f"{whose}: {self.said(number)}: {said_by(error)}{hint}") from error
        return examples

    def said(self, number: int) -> str:
        """Return the name of an example in messages."""
        return f"example {number} of the {self.name} part"


@dataclass(frozen=True, eq=False)
class OwnData:
    """Two torch datasets of pairs (tensor [*], class).

    Attributes:
        name: the data's name, a text for people.
        train, test: the examples of each part; all examples have the same shape.
        classes: the number of classes.
        shape, dtype: the shape and the type of an example.
        lowest: the lowest class among the labels that were read; ``labels`` describes the labels of both parts.
        remark: a line about unusual labels; empty for usual labels.
        fingerprint: a text that depends on lengths, shapes and the classes of some test examples. The text does not
            depend on pixels, because transformations may be random.

    :meth:`of` and the methods that read examples raise DataError for examples of another form.
    """

    name: str
    train: Part
    test: Part
    classes: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    fingerprint: str
    lowest: int = 0
    labels: str = ""
    remark: str = ""

    @classmethod
    def of(cls, found: object, name: str, clock: Callable[[], float] = time.monotonic) -> OwnData:
        """Check the first examples of a pair (train, test), and read labels of each part for :data:`LOOK_S` s.

        The number of classes is the length of the training part's ``classes``, else the highest label read, plus 1.
        """
        if not isinstance(found, Sequence) or isinstance(found, str) or len(found) != 2:
            count = f"{len(found)}" if isinstance(found, list | tuple) else kind_of(found)
            way = "; split it by torch.utils.data.random_split" if hasattr(found, "__getitem__") else ""
            way = "; leave the validation part out, or join it to the training part" if count == "3" else way
            raise DataError(f"{name}: expected two torch datasets (train, test), found {count}{way}")
        train, test = (Part.of(data, part, name) for part, data in zip(("training", "test"), found, strict=True))
        example, test_example = _first(train, name), _first(test, name)
        if test_example.shape != example.shape or test_example.dtype != example.dtype:
            raise DataError(
                f"{name}: expected test examples as the training ones, {example.dtype} {list(example.shape)}, "
                f"found {test_example.dtype} {list(test_example.shape)}"
            )
        half = cls(name, train, test, 0, tuple(example.shape), example.dtype, "")
        some = half.read(test, range(0, len(test), max(1, len(test) // _TOLD_APART)))[1].tolist()
        identity = repr((len(train), len(test), list(example.shape), str(example.dtype), some))
        declared = _classes(train.data)
        labels_read = {part: half._seen(part, clock) for part in (train, test) if declared is None or part is test}
        found_in = [(labels, f"in the {part.name} part") for part, (labels, _) in labels_read.items()]
        all_labels = set.union(*(labels for labels, _ in found_in))
        alone: list[str] = []
        if declared is None and all(is_all for _, is_all in labels_read.values()):
            common = set.intersection(*(labels for labels, _ in found_in))
            alone = [f"{_listed(labels - common)} {where}" for labels, where in found_in if labels - common]
        return replace(
            half,
            classes=max(all_labels) + 1 if declared is None else declared,
            lowest=min(all_labels),
            labels=" and ".join(f"{min(labels)} to {max(labels)} {where}" for labels, where in found_in),
            remark=f"{name}: labels that one part alone has: {', '.join(alone)}" if alone else "",
            fingerprint=hashlib.blake2b(identity.encode(), digest_size=16).hexdigest(),
        )

    @cached_property
    def test_labels(self) -> NDArray[np.int64]:
        """The class of each test example; the test part is read only once."""
        numbers = range(len(self.test))
        some = (numbers[first : first + _READ_AT_ONCE] for first in numbers[::_READ_AT_ONCE])
        return torch.cat([self.read(self.test, indices)[1] for indices in some]).numpy()

    def _seen(self, part: Part, clock: Callable[[], float]) -> tuple[set[int], bool]:
        """Read labels, spread over a part, for :data:`LOOK_S` seconds; return the labels and whether all were read."""
        end, steps = clock() + LOOK_S, -(-len(part) // _READ_AT_ONCE)
        labels: set[int] = set()
        for step in range(steps):
            labels |= set(self.read(part, range(step, len(part), steps))[1].tolist())
            if clock() > end and step + 1 < steps:
                return labels, False
        return labels, True

    def read(self, part: Part, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Read the examples [B, *] and classes [B] of a part at the indices. Raises DataError for wrong examples."""
        pairs = part.taken(indices, self.name)
        for index, pair in zip(indices, pairs, strict=True):
            if message := self._odd(pair):
                raise DataError(f"{self.name}: {part.said(part.indices[index])}: {message}")
        try:
            examples, labels = default_collate([(pair[0], int(pair[1])) for pair in pairs])
        except (TypeError, ValueError, RuntimeError) as error:
            where = f"in {len(pairs)} examples of the {part.name} part"
            message = f"expected pairs of a tensor and a class, found: {said_by(error)}, {where}"
            raise DataError(f"{self.name}: {message}") from error
        return examples, labels

    def _odd(self, pair: Any) -> str:
        """Return a message about a wrong example; empty for a correct example."""
        if not _is_pair(pair):
            return f"expected a pair of a tensor and a class, found {_kinds(pair)}"
        example, label = pair[0], pair[1]
        if tuple(example.shape) != self.shape or example.dtype != self.dtype:
            return (
                f"expected {self.dtype} {list(self.shape)} as the first example, found {example.dtype} "
                f"{list(example.shape)}"
            )
        if isinstance(label, Tensor | np.generic | np.ndarray):
            if label.ndim:
                way = "int(label)" if label.shape == (1,) else "label.argmax(), if it is one-hot"
                return f"expected the label as a whole number, found an array {list(label.shape)}; give {way}"
            label = label.item()
        if not isinstance(label, int):
            ways = {float: "; give int(label)", str: "; give its number among the sorted names"}
            return f"expected the label as a whole number, found {quoted(label)}{ways.get(type(label), '')}"
        if label < 0 or (self.classes and label >= self.classes):
            top = f"to {self.classes - 1}, as in `classes` or in the labels read at first" if self.classes else "up"
            return f"expected the label as a whole number from 0 {top}, found {label}"
        return ""

    def part(self, train: int | None = None, test: int | None = None) -> OwnData:
        """Return data of the first ``train`` and ``test`` examples (None: all)."""
        return self._of(range(len(self.train))[:train], None if test is None else range(len(self.test))[:test])

    def holding_out(self, share: float) -> OwnData:
        """Return data whose test part is a share of the training examples; see :meth:`.Dataset.holding_out`."""
        is_held_out = held_out(len(self.train), share, self.name)
        (train,), (test,) = np.nonzero(~is_held_out), np.nonzero(is_held_out)
        return replace(self._of(train.tolist(), None), test=self.train.some(test.tolist()))

    def _of(self, train: Sequence[int], test: Sequence[int] | None) -> OwnData:
        counts = f"{len(train)}/{len(self.test if test is None else test)}"
        return replace(
            self,
            train=self.train.some(train),
            test=self.test if test is None else self.test.some(test),
            fingerprint=f"{self.fingerprint} {counts}",
        )


_OFFERED: dict[str, Callable[[], OwnData]] = {}


def offer(name: str, load: Callable[[], OwnData]) -> None:
    """Register data of the user's own in this process as ``own:NAME``; the first use loads the data."""
    _OFFERED[name] = cache(load)


def own_data(name: str) -> OwnData:
    """Return the registered data of a name. Raises DataError for an unregistered name, and any error of loading."""
    if name not in _OFFERED:
        raise DataError(
            f"expected data that this process has loaded, found {quoted(name)}; name them again, by --dataset or as "
            "the data of syno_lab.improve"
        )
    return _OFFERED[name]()


def _first(part: Part, whose: str) -> Tensor:
    (pair,) = part.taken([0], whose)
    if not _is_pair(pair):
        raise DataError(f"{whose}: expected examples as pairs of a tensor and a class, found {_kinds(pair)}")
    example: Tensor = pair[0]
    return example


def _is_pair(pair: object) -> bool:
    return isinstance(pair, Sequence) and len(pair) >= 2 and isinstance(pair[0], Tensor)


def _classes(data: Any) -> int | None:
    """Return the number of ``classes`` of a dataset, or of the dataset behind a subset; None without this attribute."""
    while isinstance(data, Subset) and not hasattr(data, "classes"):
        data = data.dataset
    classes = getattr(data, "classes", None)
    return len(classes) if isinstance(classes, Sequence) else None


def _listed(labels: set[int]) -> str:
    ordered = sorted(labels)
    return ", ".join(map(str, ordered[:_MOST_LISTED])) + (", …" if len(ordered) > _MOST_LISTED else "")


def _kinds(pair: object) -> str:
    return ", ".join(map(kind_of, pair)) if isinstance(pair, tuple | list) else kind_of(pair)
