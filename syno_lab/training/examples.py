"""Classification of the user's own examples as a training task, and the task of any data set.

Shapes: B examples in a batch, V classes that a module tells apart; an example is a tensor of any shape [*].
"""

from __future__ import annotations

import torch
from torch import Tensor

from syno_lab.data.datasets import Dataset
from syno_lab.data.own import OwnData
from syno_lab.data.stream import ImageStream
from syno_lab.errors import TrainingError
from syno_lab.training.images import Augment, ImageTask, StreamTask
from syno_lab.training.schedule import InBatches


def task_of(
    dataset: Dataset | ImageStream | OwnData,
    device: torch.device,
    batch_size: int,
    augment: Augment,
    *,
    channels_last: bool = False,
) -> ExampleTask | ImageTask | StreamTask:
    """The training task of a data set, to be closed; data of the user's own are not augmented."""
    if isinstance(dataset, OwnData):
        return ExampleTask(dataset, device, batch_size, channels_last=channels_last)
    if isinstance(dataset, ImageStream):
        return StreamTask(dataset, device, batch_size, augment, channels_last=channels_last)
    return ImageTask(dataset, device, batch_size, augment, channels_last=channels_last)


class ExampleTask(InBatches):
    """Data of the user's own, read batch by batch [B, *] with classes [B]; random transformations are drawn anew."""

    def __init__(self, data: OwnData, device: torch.device, batch_size: int, *, channels_last: bool = False) -> None:
        super().__init__(data.train_count, data.test_count, batch_size)
        self._data = data
        self._layout = torch.channels_last if channels_last and len(data.shape) == 3 else torch.contiguous_format
        self.device = device

    def train_batch(self, number: int, dtype: torch.dtype, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return examples and classes of batch ``number``, from 0."""
        first, last = self._train_bounds[number]
        return self._moved(*self._data.read(self._data.train, self._order[first:last].tolist()), dtype)

    def test_batch(self, number: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return test examples and classes of batch ``number``, from 0."""
        return self._moved(*self._data.read(self._data.test, range(*self._test_bounds[number])), dtype)

    def check(self, outputs: object, inputs: Tensor) -> Tensor:
        """Return the module's outputs, or their field ``logits``, if they are logits [B, V] of all classes or more.

        Models of ``transformers`` return such fields. Raises TrainingError if they are not.
        """
        logits = getattr(outputs, "logits", outputs)
        classes = self._data.classes
        is_right = isinstance(logits, Tensor) and logits.ndim == 2 and len(logits) == len(inputs)
        if not isinstance(logits, Tensor) or not is_right or logits.shape[1] < classes:
            found = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            lowest = self._data.lowest
            if is_right and isinstance(logits, Tensor) and lowest > 0 and classes - lowest <= logits.shape[1]:
                raise TrainingError(
                    f"expected labels from 0 to {logits.shape[1] - 1}, as this module tells {logits.shape[1]} classes "
                    f"apart, found {lowest} to {classes - 1}: the lowest label is {lowest}; subtract it from each"
                )
            raise TrainingError(
                f"expected logits {[len(inputs), classes]} for examples {list(inputs.shape)} from the module, "
                f"found {found}; labels are {self._data.labels}"
            )
        return logits

    def _moved(self, examples: Tensor, classes: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        examples = examples.to(self.device, dtype if examples.is_floating_point() else examples.dtype)
        return examples.contiguous(memory_format=self._layout), classes.to(self.device)
