"""The request and the outcome of a trial: plain data, the same in JSON."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypedDict

import msgspec

from syno_lab.settings import Optimizer, TrialSettings
from syno_lab.settings import Plain as Plain

#: Epochs of a training that only its budget of seconds ends.
ENDLESS = 1_000_000

State = Literal["finished", "pruned", "diverged", "oom", "timeout", "interrupted", "failed"]
Precision = Literal["float32", "bfloat16", "float16"]
MeasuredOn = Literal["test", "held out"]


class TrialRequest(TrialSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One training of a backbone, with or without an operator; complete, and plain data only.

    :class:`~syno_lab.settings.TrialSettings` says what its other settings are.

    Attributes:
        backbone: a name of :mod:`syno_lab.models.registry`, or ``own:NAME`` for a network that this process was given.
        operator: the JSON of an operator of any system; None: the backbone without one (the baseline).
        options: options of the backbone and of the replacement, see :attr:`.registry.Backbone.options`.
        data: ``digits``, a folder of CIFAR, a folder of images in class folders, a text file, or ``own:NAME`` for data
            that this process was given.
        resolution: None: images as they are (of an image folder: 224).
        train_images, test_images: None: all. For a text, ``test_images`` counts windows of its test part (None: 256),
            and the training part is used whole.
        holdout: of a text's training part, its end; the split is the same for every seed, and the test images stay
            unread. None: all are trained on, and the outcome is measured on the test images.
        epochs: with ``budget_s`` and :data:`ENDLESS` epochs the training ends by the clock alone, and so does its
            schedule of learning rates.
        steps: the network is measured once, the learning rate's cycle spans them, and a stopped training begins anew.
        threads: of a CPU; None: as torch has them.
        precision: the type that autocast computes in, where it lowers precision.
        gives_up: end as ``timeout`` as soon as the pace of the batches shows that the time limit is too short, and not
            only when it is over (for trials that count only when complete; not with ``budget_s``).
        probe_steps: with ``gives_up``, the number of first batches whose pace is measured before the trial may end so
            (None: four). ``time_limit_s`` then counts :attr:`TrialOutcome.work_s`, which other load on the machine does
            not change.
        budget_s: the training counts as ``finished`` when they are over (Syno, section 9.3).
        stopping: a rule for early termination, such as ``{"rule": "canvas", "theta": 0.5}``; see :mod:`.stopping`.
        rivals: curves of earlier trials (the measure after each epoch), with which the rule compares.
        retry_oom: whether a trial that runs out of memory is tried once more with half the batch.
        keep_predictions: whether the outcome has the prediction for every image that it is measured on.
        measure_latency: whether the outcome of a finished training has :attr:`TrialOutcome.latency_ms`.
        own: the user's own functions that make the network (``model``) and the data (``data``), as text
            (:class:`.UserCode`). It is run only where the user has named the file, or signed the job: :mod:`.own`.
    """

    called: ClassVar[str] = "a trial's request"

    backbone: str
    operator: str | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    data: str = "digits"
    threads: int | None = None
    precision: Precision = "float32"
    gives_up: bool = False
    stopping: dict[str, Any] | None = None
    rivals: list[list[float]] = msgspec.field(default_factory=list)
    retry_oom: bool = True
    keep_predictions: bool = False
    measure_latency: bool = False
    probe_steps: int | None = None
    own: dict[str, dict[str, str]] | None = None

    @property
    def ends_by_clock(self) -> bool:
        """Whether only ``budget_s`` ends the training."""
        return self.budget_s is not None and self.epochs >= ENDLESS


class TrialOutcome(Plain, frozen=True, kw_only=True):
    """The outcome of a trial: how it ended, its accuracy and its costs.

    Attributes:
        state: ``finished``; ``pruned`` (by the rule for early termination, or its patience); ``diverged`` (a loss or
            gradient that is no number, or no gradient at all); ``oom`` (out of memory); ``timeout``; ``interrupted``
            (on request: the next attempt continues from the checkpoint); ``failed`` (anything wrong with the request,
            the data or the files).
        reason: one line; of a ``finished`` trial empty, or how the training differed from the request.
        accuracy: the measure to maximise, after the last epoch: for images the share of images classified correctly;
            for text exp(-loss), the geometric mean of the probabilities given to the right tokens, which is
            1 / perplexity. None where no epoch was completed.
        measured_on: the images (or the part of a text) of accuracy, losses and predictions: ``test``, or ``held out``
            from the training images.
        train_loss: the mean training loss in nats of the last batches (:data:`syno_lab.training.loop.CLOSING`), while
            the weights still changed; None where no epoch was completed.
        best_accuracy: the highest accuracy of any epoch, for comparison with papers that report it.
        perplexity: for a text, after the last epoch, for each token; ``perplexity_per_byte``: for each byte of UTF-8,
            which compares texts in different tokens.
        curve: for each epoch ``epoch``, ``train_loss``, ``test_loss``, ``accuracy`` (the measure), ``seconds``, and of
            a text ``perplexity``.
        flops, params: of the network for one example, as trained; ``baseline_flops``, ``baseline_params`` without the
            operator.
        replaced, places: the number of layers that the operator replaced, and of those that it was offered.
        wall_s, cpu_s: seconds of all attempts together, without work that a kill made the trial repeat.
        work_s: seconds for which the training's thread was on a processor (of a GPU: wall seconds), without those for
            reading data and building the network.
        latency_ms: if requested, the time of the trained network for one example (:func:`.meter.latency_ms`).
        peak_mib: peak memory in MiB: on a GPU torch's allocations, else the growth of the process.
        resumed: epochs that earlier attempts had completed.
        batch_size: the batch size of the training; after a retry half of the requested one.
        machine: where it was trained (:func:`.machine.machine_name`): equal requests give equal numbers on one machine,
            not on two.
        predictions: if requested, the predicted class of each image that it is measured on. ``losses``: the loss of
            each of them, or of each window of a text, in nats.
    """

    called: ClassVar[str] = "a trial's outcome"

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
    measured_on: MeasuredOn = "test"
    train_loss: float | None = None
    machine: str = ""
    work_s: float = 0.0
    latency_ms: float | None = None
    perplexity_per_byte: float | None = None

    @property
    def loss(self) -> float | None:
        """The mean loss in nats on what it is measured on, after the last epoch; None where there is none."""
        return self.curve[-1].get("test_loss") if self.curve else None


class Training(TypedDict, total=False):
    """How networks are trained, as calls from Python are told: fields of :class:`.TrainingSettings`."""

    epochs: int
    batch_size: int
    learning_rate: float | None
    optimizer: Optimizer
    device: str


def request_of(training: Training, **rest: Any) -> TrialRequest:
    """A request whose network and data are still to come. Raises FormatError for an unknown name or another value."""
    given = {name: value for name, value in training.items() if (name, value) != ("optimizer", "sgd")}
    return TrialRequest.from_dict({"backbone": "", **given, **rest})
