"""Language modelling as a training task: predict each token of a window from the tokens before it.

Shapes: B windows in a batch, T tokens of a window, V tokens of the vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from syno_lab.data.text import TextData
from syno_lab.errors import TrainingError
from syno_lab.training.loop import logits_of
from syno_lab.training.schedule import InBatches


class TextTask(InBatches):
    """A text on a device: inputs int64 [B, T] with the tokens after each of them [B, T].

    An epoch is ``steps`` batches of windows drawn at random; a test uses the windows of the test part that do not
    overlap, from its beginning, at most ``test_windows``. Raises TrainingError for a text whose training or test part
    is shorter than a window.
    """

    def __init__(
        self,
        text: TextData,
        device: torch.device,
        *,
        context: int,
        batch_size: int,
        steps: int,
        test_windows: int | None = None,
    ) -> None:
        for part, values in (("train", text.train), ("test", text.test)):
            if len(values) < context + 1:
                raise TrainingError(
                    f"expected at least {context + 1} tokens to {part} on, for windows of {context}, found "
                    f"{len(values)} in {text.source}; take a longer text or a shorter context"
                )
        self.device = device
        self._vocabulary = text.tokens.size
        self._train = torch.from_numpy(text.train.copy()).to(device)
        self._test = torch.from_numpy(text.test.copy()).to(device)
        self._context = context
        self._batch_size = batch_size
        self._steps = steps
        windows = (len(text.test) - 1) // context
        super().__init__(0, windows if test_windows is None else min(windows, test_windows), batch_size)

    @property
    def train_batches(self) -> int:
        """Batches of an epoch."""
        return self._steps

    def start_epoch(self, draw: torch.Generator) -> None:
        """Do nothing: each batch draws its own windows."""

    def train_batch(self, number: int, dtype: torch.dtype, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return windows drawn at random, and for each of their tokens the next one."""
        starts = torch.randint(len(self._train) - self._context, (self._batch_size,), generator=draw)
        return self._windows(self._train, starts)

    def test_batch(self, number: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the windows of batch ``number``, from 0."""
        first, last = self._test_bounds[number]
        return self._windows(self._test, torch.arange(first, last) * self._context)

    def check(self, outputs: object, inputs: Tensor) -> Tensor:
        """Return the module's outputs if they are logits [B, T, V]; raise TrainingError if not."""
        return logits_of(outputs, [*inputs.shape, self._vocabulary], f"tokens {list(inputs.shape)}")

    def _windows(self, tokens: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        where = (starts[:, None] + torch.arange(self._context + 1)).to(self.device)
        found = tokens[where]
        return found[:, :-1], found[:, 1:]
