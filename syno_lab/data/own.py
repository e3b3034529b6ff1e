"""Data of the user's own: a pair of torch datasets, as they are, offered to this process alone.

Shapes: B examples in a batch; an example is a tensor of any shape [*] with a class, a whole number from 0 up. Nothing
is normalised or augmented: the datasets do that themselves.
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
from syno_lab.data.datasets import held_out
from syno_lab.errors import DataError
from syno_lab.inputs import kind_of, quoted

#: Test examples whose classes tell two data sets of equal shapes apart.
_TOLD_APART = 64
_READ_AT_ONCE = 256
#: Examples of a part at most: their order is drawn in memory.
MOST = 100_000_000
#: Seconds for the labels of a part: the classes of what is not read by then are not known.
LOOK_S = 10.0
_MOST_LISTED = 5


@dataclass(frozen=True, eq=False)
class Part:
    """Examples of one of the datasets that were given, ``"training"`` or ``"test"``, by their numbers there."""

    data: Dataset[Any]
    name: str
    indices: Sequence[int]

    @classmethod
    def of(cls, data: Any, name: str, whose: str) -> Part:
        """All examples of a dataset, which must have a length. Raises DataError."""
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
        """Some of these examples."""
        if isinstance(chosen, range):
            return replace(self, indices=self.indices[chosen.start : chosen.stop : chosen.step])
        return replace(self, indices=[self.indices[index] for index in chosen])

    def taken(self, chosen: Sequence[int], whose: str) -> list[Any]:
        """What the dataset gives for these examples of it. Raises DataError with the number of one that it cannot."""
        numbers = [self.indices[index] for index in chosen]
        several: Callable[[list[int]], list[Any]] = getattr(self.data, "__getitems__", lambda numbers: [])
        try:
            found = list(several(numbers))
            if len(found) == len(numbers):
                return found
        except BaseException as error:
            if not is_theirs(error):
                raise
        found = []  # one by one, so that it comes out which one is at fault
        for number in numbers:
            try:
                found.append(self.data[number])
            except BaseException as error:
                if not is_theirs(error):
                    raise
                more = f"; its length says {len(self.data):,}" if isinstance(error, IndexError | StopIteration) else ""  # type: ignore[arg-type]
                raise DataError(f"{whose}: {self.said(number)}: {said_by(error)}{more}") from error
        return found

    def said(self, number: int) -> str:
        """An example as messages name it."""
        return f"example {number} of the {self.name} part"


@dataclass(frozen=True, eq=False)
class OwnData:
    """Two torch datasets of pairs (tensor [*], class).

    Attributes:
        name: for people.
        train, test: the examples; all have one shape.
        classes: how many there are.
        shape, dtype: of an example.
        lowest: the lowest class that an example has, as far as they were read; ``labels`` has those of both parts.
        remark: what is odd about the classes, in one line; empty where nothing is.
        fingerprint: tells data sets apart by their lengths, shapes and some classes of the test part; examples are not
            read for it, as transformations may be random.

    Raises DataError by :meth:`of` and by reading, for examples of another form.
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
        """Look at a pair (train, test): its first examples, and the classes of both parts, for :data:`LOOK_S` each.

        There are as many classes as the training part names in ``classes``, else as its highest label and that of the
        test part say.
        """
        if not isinstance(found, Sequence) or isinstance(found, str) or len(found) != 2:
            count = f"{len(found)}" if isinstance(found, list | tuple) else kind_of(found)
            way = "; split it by torch.utils.data.random_split" if hasattr(found, "__getitem__") else ""
            way = "; leave the validation part out, or join it to the training part" if count == "3" else way
            raise DataError(f"{name}: expected two torch datasets (train, test), found {count}{way}")
        train, test = (Part.of(data, part, name) for part, data in zip(("training", "test"), found, strict=True))
        example, other = _first(train, name), _first(test, name)
        if other.shape != example.shape or other.dtype != example.dtype:
            raise DataError(
                f"{name}: expected test examples as the training ones, {example.dtype} {list(example.shape)}, "
                f"found {other.dtype} {list(other.shape)}"
            )
        half = cls(name, train, test, 0, tuple(example.shape), example.dtype, "")
        some = half.read(test, range(0, len(test), max(1, len(test) // _TOLD_APART)))[1].tolist()
        told = repr((len(train), len(test), list(example.shape), str(example.dtype), some))
        named = _classes(train.data)
        seen = {part: half._seen(part, clock) for part in (train, test) if named is None or part is test}
        found_in = [(labels, f"in the {part.name} part") for part, (labels, _) in seen.items()]
        all_labels = set.union(*(labels for labels, _ in found_in))
        alone: list[str] = []
        if named is None and all(is_all for _, is_all in seen.values()):
            both = set.intersection(*(labels for labels, _ in found_in))
            alone = [f"{_listed(labels - both)} {where}" for labels, where in found_in if labels - both]
        return replace(
            half,
            classes=max(all_labels) + 1 if named is None else named,
            lowest=min(all_labels),
            labels=" and ".join(f"{min(labels)} to {max(labels)} {where}" for labels, where in found_in),
            remark=f"{name}: labels that one part alone has: {', '.join(alone)}" if alone else "",
            fingerprint=hashlib.blake2b(told.encode(), digest_size=16).hexdigest(),
        )

    @cached_property
    def test_labels(self) -> NDArray[np.int64]:
        """The class of each test example; reads the part once."""
        numbers = range(len(self.test))
        some = (numbers[first : first + _READ_AT_ONCE] for first in numbers[::_READ_AT_ONCE])
        return torch.cat([self.read(self.test, one)[1] for one in some]).numpy()

    def _seen(self, part: Part, clock: Callable[[], float]) -> tuple[set[int], bool]:
        """The labels of a part, read for so long from all over it, and whether these are all."""
        end, steps = clock() + LOOK_S, -(-len(part) // _READ_AT_ONCE)
        found: set[int] = set()
        for step in range(steps):
            found |= set(self.read(part, range(step, len(part), steps))[1].tolist())
            if clock() > end and step + 1 < steps:
                return found, False
        return found, True

    def read(self, part: Part, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The examples [B, *] and classes [B] of one part at the indices. Raises DataError for others than these."""
        pairs = part.taken(indices, self.name)
        for index, pair in zip(indices, pairs, strict=True):
            if said := self._odd(pair):
                raise DataError(f"{self.name}: {part.said(part.indices[index])}: {said}")
        try:
            examples, labels = default_collate([(pair[0], int(pair[1])) for pair in pairs])
        except (TypeError, ValueError, RuntimeError) as error:
            where = f"in {len(pairs)} examples of the {part.name} part"
            said = f"expected pairs of a tensor and a class, found: {said_by(error)}, {where}"
            raise DataError(f"{self.name}: {said}") from error
        return examples, labels

    def _odd(self, pair: Any) -> str:
        """What is wrong with an example, in words; empty where nothing is."""
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
        """The first ``train`` and ``test`` examples (None: all)."""
        return self._of(range(len(self.train))[:train], None if test is None else range(len(self.test))[:test])

    def holding_out(self, share: float) -> OwnData:
        """Data whose test part is a share of the training examples, as :meth:`.Dataset.holding_out` splits them."""
        held = held_out(len(self.train), share, self.name)
        (kept,), (out,) = np.nonzero(~held), np.nonzero(held)
        return replace(self._of(kept.tolist(), None), test=self.train.some(out.tolist()))

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


def _first(part: Part, whose: str) -> Tensor:
    (found,) = part.taken([0], whose)
    if not _is_pair(found):
        raise DataError(f"{whose}: expected examples as pairs of a tensor and a class, found {_kinds(found)}")
    example: Tensor = found[0]
    return example


def _is_pair(found: object) -> bool:
    return isinstance(found, Sequence) and len(found) >= 2 and isinstance(found[0], Tensor)


def _classes(data: Any) -> int | None:
    """How many classes a dataset names, or the one that it is a subset of."""
    while isinstance(data, Subset) and not hasattr(data, "classes"):
        data = data.dataset
    named = getattr(data, "classes", None)
    return len(named) if isinstance(named, Sequence) else None


def _listed(labels: set[int]) -> str:
    found = sorted(labels)
    return ", ".join(map(str, found[:_MOST_LISTED])) + (", …" if len(found) > _MOST_LISTED else "")


def _kinds(found: object) -> str:
    return ", ".join(map(kind_of, found)) if isinstance(found, tuple | list) else kind_of(found)
