"""The settings of trainings, tunings and searches: each is a field with its type, help text, default and bounds.

The command line has an option for each setting (:func:`syno_lab.commands.options.with_options`). Calls from Python,
jobs and files use the same structs.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, Self, get_type_hints

import msgspec

from syno_lab.errors import FormatError, SearchError

Optimizer = Literal["sgd", "adamw"]
Augment = Literal["none", "crop", "resized-crop"]
RecipeName = Literal["short", "converged"]
#: The epochs of each recipe, unless the user sets others.
EPOCHS: dict[RecipeName, int] = {"short": 3, "converged": 60}
#: How a search chooses its next operator.
Method = Literal["estimate", "mcts", "evolution", "random", "elites", "pareto"]
#: How the functions of a network share the trials of its tuning.
Scheduler = Literal["gradient", "equal"]


class Plain(msgspec.Struct, frozen=True, kw_only=True):
    """A struct that converts to and from JSON; ``called`` is its name in messages."""

    called: ClassVar[str] = "plain data"

    def to_dict(self) -> dict[str, Any]:
        """Convert the struct to plain numbers, strings, lists and dictionaries."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Return the struct for a result of :meth:`to_dict`. Raises FormatError for data of another form."""
        try:
            return msgspec.convert(data, cls)
        except msgspec.ValidationError as error:
            raise FormatError(f"expected {cls.called}, found: {error}") from None


def setting(
    about: str = "", *names: str, metavar: str = "", least: float | None = None, above: float | None = None
) -> msgspec.Meta:
    """Return the metadata of a field that is a setting.

    Args:
        about: the help text of its option.
        names: the names of the option, if they differ from the name of the field.
        metavar: the placeholder of the option's value in the help text.
        least: the lower bound of the setting's number; see :func:`check_bounds`.
        above: a number that the setting's number must exceed.
    """
    return msgspec.Meta(
        description=about, extra={"names": names, "metavar": metavar or None, "least": least, "above": above}
    )


def settings_of(kind: type[msgspec.Struct]) -> dict[str, msgspec.Meta]:
    """Return the metadata of the fields of a struct that are settings, in their order."""
    hints = get_type_hints(kind, include_extras=True)
    rows = ((name, getattr(hints[name], "__metadata__", ())) for name in kind.__struct_fields__)
    return {name: metadata[0] for name, metadata in rows if metadata and isinstance(metadata[0], msgspec.Meta)}


def check_bounds(settings: msgspec.Struct) -> None:
    """Check that each number is finite and within the bounds of its setting.

    Raises SearchError with the field's name, the bounds and the number.
    """
    for name, about in settings_of(type(settings)).items():
        value, bounds = getattr(settings, name), about.extra or {}
        least, above = bounds["least"], bounds["above"]
        if value is None or (least is None and above is None):
            continue
        if not abs(value) < math.inf or (least is not None and value < least) or (above is not None and value <= above):
            expected = f"a number above {above:g}" if least is None else f"{least:g} or more"
            raise SearchError(f"{name}: expected {expected}, found {value}")


class TrainingSettings(Plain, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a training, in a search or alone. Without ``epochs``, the number in the ``recipe`` is used."""

    called: ClassVar[str] = "the settings of a training"

    recipe: Annotated[
        RecipeName,
        setting("short ranks operators; converged trains for more epochs, on shifted and mirrored images."),
    ] = "short"
    epochs: Annotated[
        int,
        setting(
            "Epochs of a training; of a text so many batches as its option steps. [default: 3; converged, 60]", least=1
        ),
    ] = None  # type: ignore[assignment] # __post_init__ replaces None
    train_images: Annotated[
        int | None, setting("Train on the first so many images.", "--train-images", "--images", least=1)
    ] = None
    test_images: Annotated[int | None, setting("Test on the first so many images, or windows of a text.", least=1)] = (
        None
    )
    folds: Annotated[
        int | None,
        setting(
            "Divide training and test images into so many folds; train on all folds but one and test on this one, each "
            "in turn, so that every image is tested once. A search does so in its finals.",
            least=2,
        ),
    ] = None
    resolution: Annotated[
        int | None, setting("Scale images to this height and width. [default: their own]", least=1)
    ] = None
    batch_size: Annotated[int, setting("Examples in a batch.", least=1)] = 64
    learning_rate: Annotated[
        float | None, setting("The highest learning rate of the cycle. [default: 0.1; for a text and adamw, 0.001]")
    ] = None
    optimizer: Annotated[Optimizer | None, setting("For images and data of your own. [default: sgd]")] = None
    budget_s: Annotated[
        float | None,
        setting(
            "Seconds after which a training stops and is tested. In a search every operator, and the baseline, is "
            "trained for so long instead of --epochs, none is ended early: a faster operator takes more steps. Use "
            "--workers 1, so that all have the machine alike.",
            "--budget",
            metavar="SECONDS",
        ),
    ] = None
    time_limit_s: Annotated[
        float | None,
        setting(
            "The most seconds of a training; a longer one ends as a timeout. [default: none; in a search, twice the "
            "baseline's]",
            "--time-limit",
        ),
    ] = None
    device: Annotated[str, setting("cpu, cuda, …")] = "cpu"

    def __post_init__(self) -> None:
        """Fill in the epochs of the recipe."""
        if self.epochs is None:
            msgspec.structs.force_setattr(self, "epochs", EPOCHS[self.recipe])


class TrialSettings(TrainingSettings, frozen=True, kw_only=True):
    """How a network is trained, and on which device and data it is measured."""

    augment: Annotated[
        Augment | None,
        setting(
            "Changes of training images: shifted and mirrored, or a part of each scaled and mirrored. [default: crop "
            "for CIFAR and, with --recipe converged, all images but digits; resized-crop for folders that are too "
            "large to be held in memory; else none]"
        ),
    ] = None
    seed: Annotated[int, setting("Of weights, order and changes of images.", least=0)] = 0
    steps: Annotated[
        int | None, setting("Train for so many batches and then measure, instead of --epochs.", least=1)
    ] = None
    holdout: Annotated[
        float | None,
        setting("Hold this share of the training images out and measure on them, not on the test images."),
    ] = None
    channels_last: Annotated[
        bool, setting("Keep images in memory with the channels last, which is faster on most CPUs.")
    ] = False


class TuningBudget(Plain, frozen=True, kw_only=True):
    """The target of a tuning, and how many candidates it measures."""

    preset: Annotated[str, setting("How many candidates a tuning measures: quick, normal or thorough.")] = "quick"
    trials: Annotated[
        int | None,
        setting(
            "Candidates to measure; of a network for each layer, and on average for each function. [default: 16, 96 or "
            "512, by the preset]",
            least=1,
        ),
    ] = None
    target: Annotated[str, setting("local, local:THREADS, a Jetson such as jetson-orin-nano-cpu, or a TVM target.")] = (
        "local"
    )
    tracker: Annotated[
        str | None, setting("An RPC tracker. [default: none, this machine itself]", metavar="HOST:PORT")
    ] = None
    key: Annotated[
        str | None, setting("The device's key at the tracker; `tune` must be told it. [default: the target]")
    ] = None


class TuningSettings(TuningBudget, frozen=True, kw_only=True):
    """Which trials of a search are tuned, and how. If ``within`` is None, ``latency`` as objective tunes all trials."""

    preset: Annotated[
        str, setting("How many candidates a tuning measures: quick, normal or thorough.", "--tune-preset")
    ] = "quick"
    trials: Annotated[
        int | None,
        setting(
            "Candidates for each size of layer, and on average for each function of a network: more go to those that "
            "promise most of its time. [default: the preset's]",
            "--tune-trials",
            least=1,
        ),
    ] = None
    within: Annotated[
        float | None,
        setting(
            "Tune trials that are at most so many percentage points less accurate than the baseline, during the "
            "search; a latency is that of --tune-what. Use --workers 1 with the target local.",
            "--tune-within",
            metavar="POINTS",
        ),
    ] = None
    of: Annotated[
        Literal["network", "layers"],
        setting(
            "What is tuned and measured: the whole network, through Relax on the target, or, as a quick estimate, the "
            "layers, whose latencies are summed.",
            "--tune-what",
        ),
    ] = "network"


class SearchChoice(Plain, frozen=True, kw_only=True):
    """How long a search runs, and how it chooses operators."""

    called: ClassVar[str] = "the settings of a search"

    minutes: Annotated[
        float | None,
        setting("Minutes of search in all, without baseline and comparison. [default: 30; untrained, 5]", above=0),
    ] = None
    trials: Annotated[int | None, setting("The most operators to evaluate, in all.", least=1)] = None
    virtual_loss: Annotated[
        float, setting("With --method mcts: an operator in training counts for so many losses.", least=0)
    ] = 0.0
    untrained: Annotated[
        bool, setting("Train nothing: rank operators by the score of a probe, about a tenth of a second each.")
    ] = False
    seed: Annotated[int, setting("The seed of the search; trainings have seed 0.", least=0)] = 0
    anyway: Annotated[
        bool,
        setting(
            "In rungs: search also where the baseline shows that nothing can be learned, because it is not told from a "
            "guess, or because its test examples and seeds cannot tell 10 points."
        ),
    ] = False
    equal_within: Annotated[
        float,
        setting(
            "Call an operator equal to the baseline if the whole interval of their difference is within so many "
            "percentage points.",
            metavar="POINTS",
            above=0,
        ),
    ] = 2.0
    lower_within: Annotated[
        float | None,
        setting(
            "After a trial that is at most so many percentage points less accurate than the baseline, train only "
            "operators with a tenth fewer FLOPs than it has, again and again.",
            metavar="POINTS",
        ),
    ] = None
