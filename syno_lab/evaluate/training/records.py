"""What a training tells while it goes on and when it has ended."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import msgspec

from syno_lab.errors import FormatError
from syno_lab.evaluate.training.files import write_whole

Stopped = Literal["finished", "early", "pruned", "time", "slow", "diverged", "interrupted"]

CURVE_FORMAT = "syno-lab-training"
CURVE_VERSION = 1


@dataclass(frozen=True)
class EpochRecord:
    """One epoch, counted from 1: mean cross entropy in nats, accuracy from 0 to 1, seconds of training and testing.

    The training loss is the mean over the epoch's batches while the weights were changing. Of a text, losses and
    accuracy are those of the next token.
    """

    epoch: int
    train_loss: float
    test_loss: float
    test_accuracy: float
    seconds: float

    @property
    def perplexity(self) -> float:
        """The exponential of the test loss: the next token is as hard to guess as one of so many equally likely."""
        return math.exp(min(self.test_loss, 700.0))  # beyond that no float is


@dataclass(frozen=True)
class TrainingProgress:
    """Where a training stands, told after every batch.

    ``epoch`` counts from 1. ``phase`` is ``train`` or ``test``, ``batch`` of ``batches`` counts within it; ``loss`` and
    ``accuracy`` are means over the phase so far.
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
    """What a training found in its checkpoint: the epochs done, and the wall and CPU seconds that they took."""

    epochs: int
    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class TrainingResult:
    """What came of a training.

    ``accuracy`` is the **best** test accuracy of any epoch in ``curve`` (0 to 1; choosing the best epoch by the test
    images flatters it a little, :attr:`final_accuracy` does not), None where no epoch was completed. ``stopped``:

    - ``finished``: all epochs were done;
    - ``early``: the test accuracy did not rise for ``patience`` epochs;
    - ``pruned``: the judge said so, see ``reason``;
    - ``time``: the time limit came; the epoch it cut short is in the curve, as far as it went;
    - ``slow``: the pace measured showed that it would not have ended within the limit; the curve ends with the epoch
      before;
    - ``diverged``: a loss or a gradient was not a finite number, or all gradients stayed zero; the curve ends with the
      epoch before;
    - ``interrupted``: ``should_stop`` said so; the curve ends with the epoch before.

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
        """The test accuracy after the last epoch of the curve, None where there is none."""
        return self.curve[-1].test_accuracy if self.curve else None

    @property
    def perplexity(self) -> float | None:
        """Of a text: that after the last epoch of the curve, None where there is none."""
        return self.curve[-1].perplexity if self.curve else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and dictionaries, for JSON."""
        return {"format": CURVE_FORMAT, "version": CURVE_VERSION, **msgspec.to_builtins(self)}

    @classmethod
    def from_dict(cls, data: object) -> TrainingResult:
        """Make the result of what :meth:`to_dict` returned; FormatError where it is something else."""
        if not isinstance(data, dict) or data.get("format") != CURVE_FORMAT:
            raise FormatError(f"expected a training result with format {CURVE_FORMAT!r}, found {str(data)[:60]!r}")
        if data.get("version") != CURVE_VERSION:
            raise FormatError(
                f"expected a training result of version {CURVE_VERSION}, found version {data.get('version')!r}; "
                "train again or use the version of Syno Lab that wrote it"
            )
        content = {key: value for key, value in data.items() if key not in ("format", "version")}
        unknown = content.keys() - {field.name for field in fields(cls)}
        if unknown:
            raise FormatError(f"expected the fields of a training result, found also {', '.join(sorted(unknown))}")
        try:
            return msgspec.convert(content, cls)
        except msgspec.ValidationError as error:
            raise FormatError(f"expected a training result, found: {error}") from None


def save_curve(result: TrainingResult, path: str | Path) -> None:
    """Write ``result`` to ``path`` as JSON, whole or not at all; TrainingError where the place cannot be written."""
    write_whole(Path(path), msgspec.json.format(msgspec.json.encode(result.to_dict())))


def load_curve(path: str | Path) -> TrainingResult:
    """Read what :func:`save_curve` wrote; FormatError where it is something else."""
    try:
        return TrainingResult.from_dict(msgspec.json.decode(Path(path).read_bytes()))
    except OSError as error:
        raise FormatError(f"expected a training result in {path}, found: {error.strerror or error}") from None
    except msgspec.DecodeError as error:
        raise FormatError(f"expected a training result as JSON in {path}, found: {error}") from None
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None
