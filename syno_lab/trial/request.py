"""The request of a trial: plain data with the same form in JSON; for outcomes see :mod:`syno_lab.store.outcomes`."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypedDict, cast

import msgspec

from syno_lab.settings import Optimizer, RecipeName, SearchChoice, TrialSettings
from syno_lab.settings import Plain as Plain
from syno_lab.store.outcomes import MeasuredOn as MeasuredOn
from syno_lab.store.outcomes import State as State
from syno_lab.store.outcomes import TrialOutcome as TrialOutcome
from syno_lab.user_code import UserCode

#: The number of epochs of a training that only its budget of seconds ends.
ENDLESS = 1_000_000

Precision = Literal["float32", "bfloat16", "float16"]


class TrialRequest(TrialSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The request to train a backbone, with or without an operator: all settings, as plain data only.

    :class:`~syno_lab.settings.TrialSettings` describes the other settings.

    Attributes:
        backbone: a name of :mod:`syno_lab.models.registry`, or ``own:NAME`` for a network registered in this process.
        operator: the JSON of an operator of any system; None: the backbone without an operator (the baseline).
        options: options of the backbone and of the replacement, see :attr:`.registry.Backbone.options`.
        data: ``digits``, a folder of CIFAR, a folder of images in class folders, a text file, or ``own:NAME`` for data
            registered in this process.
        resolution: height and width of images; None: as stored (of class folders: the most common size).
        train_images, test_images: the number of images; None: all. For a text, ``test_images`` is a number of test
            windows (None: 256), and the whole training part is used.
        holdout: the share of the training images, or of the end of a text's training part, that is held out. The split
            is the same for every seed, and test images stay unread. None: the outcome is measured on the test images.
        folds: the number of parts of all images. Each fold is tested once, after a training on the other folds; the
            outcome covers all images (:mod:`.trial.folds`). Folds depend on the labels, not on the seed.
        fold: the only fold that is tested, from 1 to ``folds``.
        epochs: with ``budget_s`` and :data:`ENDLESS` epochs, only the time ends the training; the schedule of the
            learning rate then allows a stop at any step.
        steps: the batches of the whole training, with one learning-rate cycle and a final test, but no checkpoint.
        threads: the number of threads of a CPU; None: torch's default.
        precision: the type of the operations whose precision autocast lowers.
        gives_up: whether to end as ``timeout`` before the time limit, once the pace of the batches shows that it is too
            short (for trials that count only when complete; not with ``budget_s``).
        probe_steps: with ``gives_up``, the number of first batches whose pace is measured before the trial may end
            early (None: four). ``time_limit_s`` then limits :attr:`TrialOutcome.work_s`, which other load on the
            machine does not change.
        budget_s: seconds after which the training counts as ``finished`` (Syno, section 9.3).
        stopping: a rule for early termination, such as ``{"rule": "canvas", "theta": 0.5}``; see :mod:`.stopping`.
        rivals: earlier trials' curves (the measure of each epoch); the ``stopping`` rule compares this trial's curve.
        retry_oom: whether a trial that runs out of memory is repeated once with half the batch.
        keep_predictions: whether the outcome has the prediction for every image on which it is measured.
        measure_latency: whether the outcome of a finished training has :attr:`TrialOutcome.latency_ms`.
        own: the user's own functions that make the network (``model``) and the data (``data``), as text
            (:class:`.UserCode`). The code runs only if the user has named the file, or signed the job: :mod:`.own`.
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
    fold: int | None = None

    @property
    def ends_by_clock(self) -> bool:
        """Whether only ``budget_s`` ends the training."""
        return self.budget_s is not None and self.epochs >= ENDLESS


class Training(TypedDict, total=False):
    """The settings of a training in calls from Python: fields of :class:`.TrainingSettings`."""

    recipe: RecipeName
    epochs: int
    batch_size: int
    resolution: int | None
    learning_rate: float | None
    optimizer: Optimizer
    device: str


class Searching(Training, total=False):
    """The settings of a search and of its trainings in calls from Python: fields of :class:`.SearchChoice` too."""

    folds: int | None
    equal_within: float
    anyway: bool


def separated(more: Searching, **limits: object) -> tuple[SearchChoice, Training]:
    """Return the settings of a search, with ``limits``, and the settings of its trainings.

    Raises FormatError where a setting of the search has the wrong type.
    """
    rest = dict(more)
    named = {name: rest.pop(name) for name in ("equal_within", "anyway") if name in rest}
    return SearchChoice.from_dict(limits | named), cast(Training, rest)


def request_of(training: Training, **rest: Any) -> TrialRequest:
    """Return a request without network and data. Raises FormatError for an unknown name or a wrong value."""
    fields = {name: value for name, value in training.items() if (name, value) != ("optimizer", "sgd")}
    return TrialRequest.from_dict({"backbone": "", **fields, **rest})
