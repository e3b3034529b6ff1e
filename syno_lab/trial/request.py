"""The request of a trial: plain data, the same in JSON; its outcome is in :mod:`syno_lab.store.outcomes`."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypedDict

import msgspec

from syno_lab.settings import Optimizer, TrialSettings
from syno_lab.settings import Plain as Plain
from syno_lab.store.outcomes import MeasuredOn as MeasuredOn
from syno_lab.store.outcomes import State as State
from syno_lab.store.outcomes import TrialOutcome as TrialOutcome
from syno_lab.user_code import UserCode

#: Epochs of a training that only its budget of seconds ends.
ENDLESS = 1_000_000

Precision = Literal["float32", "bfloat16", "float16"]


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
    own: dict[str, UserCode] | None = None

    @property
    def ends_by_clock(self) -> bool:
        """Whether only ``budget_s`` ends the training."""
        return self.budget_s is not None and self.epochs >= ENDLESS


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
