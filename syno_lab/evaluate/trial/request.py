"""What a trial is asked and what it answers: plain data, the same in JSON."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from syno_lab.errors import FormatError

State = Literal["finished", "pruned", "diverged", "oom", "timeout", "interrupted", "failed"]
Precision = Literal["float32", "bfloat16", "float16"]


class TrialRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One training of a backbone, with or without an operator in it; everything it needs, and no objects.

    Attributes:
        backbone: a name of :mod:`syno_lab.models.registry`.
        operator: ``Operator.to_json()``; None: the backbone as it is (the baseline).
        options: what the backbone and its places leave open, see :func:`.backbone.BACKBONE_OPTIONS`.
        data: ``digits``, a folder of CIFAR, a folder of images in class folders, or a text file.
        resolution: height and width that images are scaled to; None: as they are (of an image folder: 224).
        train_images, test_images: at most so many of each are used, the first ones. Of a text, ``test_images`` are
            windows of its test part (None: 256), and all of the rest is for training.
        epochs: of a text, an epoch is ``options["steps"]`` batches.
        batch_size, learning_rate: the learning rate is the highest of its cycle; None: 0.1 for images, 0.001 for text.
        seed: decides weights, order and augmentation.
        device: ``cpu``, ``cuda``, …; ``threads`` of a CPU (None: as torch has them).
        precision: of what autocast lowers.
        time_limit_s: a trial that needs more ends as ``timeout``.
        gives_up: it ends so as soon as the pace of its batches shows that the limit will not do, and not only when it
            is over (for one that is to be compared when whole; not with ``budget_s``).
        budget_s: a training ends after so many seconds and is tested then: it is ``finished`` (Syno, section 9.3).
        stopping: a rule for early termination, such as ``{"rule": "canvas", "theta": 0.5}``; see :mod:`.stopping`.
        rivals: the measure by epoch of earlier trials, with which the rule compares.
        retry_oom: whether a trial that runs out of memory is tried once more with half the batch.
        keep_predictions: whether the outcome has the answer to every test image.
    """

    backbone: str
    operator: str | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    data: str = "digits"
    resolution: int | None = None
    train_images: int | None = None
    test_images: int | None = None
    epochs: int = 3
    batch_size: int = 64
    learning_rate: float | None = None
    seed: int = 0
    device: str = "cpu"
    threads: int | None = None
    precision: Precision = "float32"
    time_limit_s: float | None = None
    gives_up: bool = False
    budget_s: float | None = None
    stopping: dict[str, Any] | None = None
    rivals: list[list[float]] = msgspec.field(default_factory=list)
    retry_oom: bool = True
    keep_predictions: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dictionaries, for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @classmethod
    def from_dict(cls, data: object) -> TrialRequest:
        """Make the request of what :meth:`to_dict` returned; FormatError where it is something else."""
        try:
            return msgspec.convert(data, cls)
        except msgspec.ValidationError as error:
            raise FormatError(f"expected a trial's request, found: {error}") from None


class TrialOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a trial ended and what it cost.

    Attributes:
        state: ``finished``; ``pruned`` (by the rule for early termination, or its patience); ``diverged`` (a loss or
            gradient that is no number, or no gradient at all); ``oom`` (out of memory); ``timeout``; ``interrupted``
            (on request: the next attempt goes on from the checkpoint); ``failed`` (anything wrong with the request,
            the data or the files).
        reason: one line; where ``finished``, empty or what was done otherwise than asked.
        accuracy: the measure that is maximised, after the last epoch: of images the share of test images answered
            rightly; of text exp(-loss), the geometric mean of the probabilities given to the right tokens, which is
            1 / perplexity. None where no epoch was completed.
        best_accuracy: the highest of any epoch, for comparison with those who publish that.
        perplexity: of a text.
        curve: for each epoch ``epoch``, ``train_loss``, ``test_loss``, ``accuracy`` (the measure), ``seconds``, and of
            a text ``perplexity``.
        flops, params: of the network for one example, as trained; ``baseline_flops``, ``baseline_params`` without the
            operator.
        replaced, places: how many of how many layers the operator took.
        wall_s, cpu_s: all attempts together, what was done again after a kill not counted.
        peak_mib: memory the trial took at most: of a GPU, allocated by torch; else the growth of the process.
        resumed: epochs that an earlier attempt had done.
        batch_size: that of the training, after a retry half of what was asked.
        predictions: where asked for, the class given to each test image. ``losses``: the loss of each test image, or
            of each test window of a text, in nats.
    """

    state: State
    reason: str = ""
    accuracy: float | None = None
    best_accuracy: float | None = None
    perplexity: float | None = None
    curve: list[dict[str, float]] = msgspec.field(default_factory=list)
    flops: int = 0
    params: int = 0
    baseline_flops: int = 0
    baseline_params: int = 0
    replaced: int = 0
    places: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_mib: float = 0.0
    resumed: int = 0
    seed: int = 0
    batch_size: int = 0
    device: str = "cpu"
    threads: int = 1
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    predictions: list[int] | None = None
    losses: list[float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dictionaries, for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @classmethod
    def from_dict(cls, data: object) -> TrialOutcome:
        """Make the outcome of what :meth:`to_dict` returned; FormatError where it is something else."""
        try:
            return msgspec.convert(data, cls)
        except msgspec.ValidationError as error:
            raise FormatError(f"expected a trial's outcome, found: {error}") from None
