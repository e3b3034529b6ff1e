"""Data sets of the user's own: what they raise, how long they say they are, and what their labels are."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset, TensorDataset

from syno_lab.data import own
from syno_lab.data.own import OwnData
from syno_lab.errors import DataError, TrainingError
from syno_lab.training import train


class Examples(Dataset[Any]):
    """Examples [3] whose labels a function gives; it may raise what it likes."""

    def __init__(self, label: Callable[[int], Any] = lambda index: index % 4, length: Any = 20) -> None:
        self.label, self.length = label, length

    def __len__(self) -> int:
        return self.length() if callable(self.length) else self.length  # type: ignore[no-any-return]

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        return torch.full((3,), float(index)), self.label(index)


class Called(Dataset[Any]):
    """Examples whose reading raises at number 7."""

    def __init__(self, error: Exception | BaseException) -> None:
        self.error = error

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index == 7:
            raise self.error
        return torch.zeros(3), index % 4


GOOD = Examples()


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError("division by zero"),
        AttributeError("'NoneType' object has no attribute 'shape'"),
        SystemExit("no more"),
        StopIteration("at its end"),
        IndexError("list index out of range"),
        AssertionError(),
        FileNotFoundError(2, "No such file or directory", "7.png"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("part", ["training", "test"])
def test_what_a_data_set_raises_is_said_with_the_part_and_the_number(error: BaseException, part: str) -> None:
    parts = (Called(error), GOOD) if part == "training" else (GOOD, Called(error))
    with pytest.raises(DataError, match=rf"example 7 of the {part} part: {type(error).__name__}.*\(test_own.py, line"):
        OwnData.of(parts, "data")
    with pytest.raises(KeyboardInterrupt):
        OwnData.of((Called(KeyboardInterrupt()), GOOD), "data")


def test_the_number_is_that_of_the_data_set_that_was_given() -> None:
    """Also where only some examples are read, and where a part of the training is held out."""
    late = Examples()
    data = OwnData.of((late, late), "data")
    late.label = lambda index: {}[index] if index == 7 else index % 4
    for some in (data.part(10), data.holding_out(0.5), data.holding_out(0.5).part(None, 20)):
        for part in (some.train, some.test):
            if 7 in part.indices and part.name == "training":
                with pytest.raises(DataError, match=r"example 7 of the training part: KeyError: 7 \(test_own.py, line"):
                    some.read(part, range(len(part)))
                break
        else:
            pytest.fail("7 is in one of the parts")


@pytest.mark.parametrize(
    ("length", "said"),
    [
        (0, "expected from 1 to 100,000,000 examples in the test part, found none"),
        (-3, r"the length of the test part: ValueError: __len__\(\) should return >= 0"),
        (10**12, r"found 1000000000000; give some of them, as in torch.utils.data.Subset\(data, range\(10000\)\)"),
        (10**30, "the length of the test part: OverflowError"),
        (2.5, "the length of the test part: TypeError"),
        (lambda: {}["length"], r"the length of the test part: KeyError: 'length' \(test_own.py, line"),
    ],
)
def test_a_length_that_is_none_is_one_line(length: Any, said: str) -> None:
    with pytest.raises(DataError, match=said) as refusal:
        OwnData.of((GOOD, Examples(length=length)), "data")
    assert "\n" not in str(refusal.value)


def test_a_data_set_that_ends_before_its_length_is_one_line() -> None:
    short = Examples(lambda index: [0, 1, 2][index])
    with pytest.raises(DataError, match=r"IndexError: list index out of range \(.*; its length says 20"):
        OwnData.of((GOOD, short), "data")


def test_a_data_set_that_gives_several_at_once_but_fewer_is_read_one_by_one() -> None:
    class Fewer(Examples):
        def __getitems__(self, numbers: list[int]) -> list[Any]:
            return [self[number] for number in numbers[1:]]

    data = OwnData.of((GOOD, Fewer()), "data")
    assert data.test_labels.tolist() == [0, 1, 2, 3] * 5


def test_labels_are_read_for_a_while_only_and_from_all_over_the_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "_READ_AT_ONCE", 256)
    read: list[int] = []

    def label(index: int) -> int:
        read.append(index)
        return index // 10**6

    clock = count(0, 6)
    data = OwnData.of((Examples(label, length=50 * 10**6), GOOD), "data", clock=lambda: float(next(clock)))
    assert len(read) < 1000
    assert data.classes == 50
    data.train.data.label = lambda index: 77  # type: ignore[attr-defined]
    with pytest.raises(DataError, match=r"example 3 of the training part: .*from 0 to 49, .* found 77"):
        data.read(data.train, [3])


@pytest.mark.parametrize(
    ("label", "said"),
    [
        (lambda i: -1 if i == 5 else 0, "example 5 of the test part: expected the label .* from 0 up, found -1"),
        (lambda i: 1.0, r"found 1\.0; give int\(label\)"),
        (lambda i: torch.tensor(1.0), r"found 1\.0; give int\(label\)"),
        (lambda i: nn.functional.one_hot(torch.tensor(i % 4), 4), r"found an array \[4\].*argmax\(\)"),
        (lambda i: [0, 1, 0, 0], r"expected the label as a whole number, found \[0, 1, 0, 0\]"),
        (lambda i: "cat", "found 'cat'; give its number among the sorted names"),
        (lambda i: None, "expected the label as a whole number, found None"),
        (lambda i: 1 if i < 9 else "cat", "example 9 of the test part: .* found 'cat'"),
        (lambda i: 1j, "expected the label as a whole number, found 1j"),
    ],
)
def test_labels_that_are_none_are_said_as_labels(label: Callable[[int], Any], said: str) -> None:
    with pytest.raises(DataError, match=said) as refusal:
        OwnData.of((GOOD, Examples(label)), "data")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("made", [bool, np.int64, np.uint8, torch.tensor, lambda label: np.array(label)])
def test_labels_of_other_kinds_are_numbers_all_the_same(made: Callable[[int], Any]) -> None:
    data = OwnData.of((Examples(lambda i: made(i % 2)),) * 2, "data")
    assert data.classes == 2
    assert data.test_labels.tolist() == [0, 1] * 10


def test_classes_are_those_of_both_parts() -> None:
    whole = Examples(lambda index: index // 5)
    for parts in ((whole, Subset(whole, range(5))), (Subset(whole, range(5)), whole)):
        assert OwnData.of(parts, "data").classes == 4
    assert OwnData.of((whole, Subset(whole, range(5))), "data").remark == (
        "data: labels that one part alone has: 1, 2, 3 in the training part"
    )
    assert not OwnData.of((whole, whole), "data").remark
    whole.classes = list("abcdef")  # type: ignore[attr-defined]
    assert OwnData.of((Subset(whole, range(20)), whole), "data").classes == 6


def test_labels_from_1_are_said_as_that() -> None:
    whole = Examples(lambda index: 1 + index % 4)
    with pytest.raises(TrainingError, match=r"labels from 0 to 3, .* found 1 to 4: the lowest label is 1; subtract it"):
        train(nn.Linear(3, 4), OwnData.of((whole, whole), "data"), epochs=1, batch_size=4)
    train(nn.Linear(3, 5), OwnData.of((whole, whole), "data"), epochs=1, batch_size=4, learning_rate=1e-4)
    said = r"expected logits \[4, 5\] .* found \[4, 4\]; labels are 1 to 4 in the training part and 0 to 3 in the te"
    with pytest.raises(TrainingError, match=said):
        train(nn.Linear(3, 4), OwnData.of((whole, GOOD), "data"), epochs=1, batch_size=4)
    with pytest.raises(TrainingError, match=r"expected logits \[4, 5\]"):
        train(nn.Linear(3, 2), OwnData.of((whole, whole), "data"), epochs=1, batch_size=4)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((GOOD, GOOD, GOOD), "found 3; leave the validation part out, or join it to the training part"),
        ((GOOD,), "found 1; split it"),
        (GOOD, "found an Examples; split it by torch.utils.data.random_split"),
        ({"train": GOOD, "test": GOOD}, "found a dict"),
        ((GOOD, TensorDataset(torch.zeros(4, 3).double(), torch.zeros(4).long())), r"found torch.float64 \[3\]"),
        ((GOOD, TensorDataset(torch.zeros(4, 3))), "found a Tensor"),
        ((GOOD, iter([1])), "with a length, found a list_iterator"),
    ],
)  # fmt: skip
def test_what_is_no_pair_of_data_sets_is_said(given: Any, said: str) -> None:
    with pytest.raises(DataError, match=said) as refusal:
        OwnData.of(given, "data")
    assert "\n" not in str(refusal.value)
