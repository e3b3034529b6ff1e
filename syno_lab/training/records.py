"""Progress and results of a training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Stopped = Literal["finished", "early", "pruned", "time", "slow", "diverged", "interrupted"]


@dataclass(frozen=True)
class EpochRecord:
    """An epoch, counted from 1: mean cross entropy in nats, accuracy from 0 to 1, seconds of training and testing.

    The training loss is the mean over the epoch's batches, measured while the weights change (with label smoothing, for
    the smoothed labels). The closing loss is the mean over the epoch's last batches (:data:`.loop.CLOSING`). A text's
    losses and accuracy refer to the next token.
    """

    epoch: int
    train_loss: float
    test_loss: float
    test_accuracy: float
    seconds: float
    closing_loss: float | None = None

    @property
    def perplexity(self) -> float:
        """The exponential of the test loss: a uniform guess among this number of tokens has this loss."""
        return math.exp(min(self.test_loss, 700.0))  # exp() overflows above 709


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of a training, reported after every batch.

    ``epoch`` counts from 1. ``phase`` is ``train`` or ``test``; ``batch`` of ``batches`` counts within the phase.
    ``loss`` and ``accuracy`` are means over the finished batches of the phase.
    """

    epoch: int
    epochs: int
    batch: int
    batches: int
    loss: float
    accuracy: float
    phase: Literal["train", "test"] = "train"


@dataclass(frozen=True)
class Resumption:
    """The progress in a checkpoint from which a training resumes: finished epochs, and their wall and CPU seconds.

    ``work_s``: seconds for which the training's thread was on a processor (:attr:`.limits.Limits.work_s`).
    """

    epochs: int
    wall_s: float
    cpu_s: float
    work_s: float = 0.0


@dataclass(frozen=True)
class TrainingResult:
    """The result of a training.

    ``accuracy`` is the **best** test accuracy of the epochs in ``curve``, 0 to 1, None if no epoch was completed. The
    choice of the best epoch makes this accuracy slightly too high, unlike :attr:`final_accuracy`. ``stopped``:

    * ``finished``: all epochs were completed.
    * ``early``: the test accuracy did not rise for ``patience`` epochs.
    * ``pruned``: the judge ended the training, see ``reason``.
    * ``time``: the time limit was reached; the curve includes the incomplete last epoch.
    * ``slow``: the measured pace showed that the training would exceed the time limit; the curve ends with the epoch
      before.
    * ``diverged``: a loss or a gradient was not a finite number, or all gradients stayed zero; the curve ends with the
      epoch before.
    * ``interrupted``: ``should_stop`` returned True; the curve ends with the epoch before.

    ``last_loss`` is the last finite loss of a training batch; ``parameters`` the number of trained parameters;
    ``reason`` says in one line why a training was pruned, diverged or was too slow.
    """

    accuracy: float | None
    curve: tuple[EpochRecord, ...]
    stopped: Stopped
    seed: int
    parameters: int
    last_loss: float | None = None
    reason: str = ""

    @property
    def final_accuracy(self) -> float | None:
        """The test accuracy after the last epoch of the curve, None for an empty curve."""
        return self.curve[-1].test_accuracy if self.curve else None

    @property
    def perplexity(self) -> float | None:
        """The perplexity of a text after the last epoch of the curve, None for an empty curve."""
        return self.curve[-1].perplexity if self.curve else None
