"""What the trainings of a trial gave, and the comparison of an operator with its baseline: plain data, as stored."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from syno_lab.settings import Plain

State = Literal["finished", "pruned", "diverged", "oom", "timeout", "interrupted", "failed"]
MeasuredOn = Literal["test", "held out"]


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
        latency_ms: if requested, the time of the trained network for one example
            (:func:`syno_lab.trial.meter.latency_ms`).
        peak_mib: peak memory in MiB: on a GPU torch's allocations, else the growth of the process.
        resumed: epochs that earlier attempts had completed.
        batch_size: the batch size of the training; after a retry half of the requested one.
        machine: where it was trained (:func:`syno_lab.trial.machine.machine_name`): equal requests give equal numbers
            on one machine, not on two.
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


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A difference and its confidence interval, for the level ``confidence``."""

    difference: float
    low: float
    high: float
    confidence: float = 0.95

    def __str__(self) -> str:
        ends = f"{self.low:+.4f} to {self.high:+.4f}"
        return f"{self.difference:+.4f}, {self.confidence:.0%} interval {ends}"


class Comparison(Plain, frozen=True, kw_only=True):
    """An operator against its baseline; a field has its default only in a file that does not say it.

    Attributes:
        measure: ``accuracy`` (of images; higher is better) or ``loss`` (of text, in nats; lower is better).
        baseline, operator: the means over the seeds.
        interval: operator - baseline with a paired bootstrap interval over the test images (or windows). The interval
            shows how much the choice of test images matters; ``by_seed`` shows how much the seed matters.
        by_seed: operator - baseline for each seed.
        over_seeds: operator - baseline with an interval over seeds *and* images
            (:func:`syno_lab.trial.two_way_bootstrap`), which says what to expect of another training; None with one
            seed.
        verdict: what the comparison decides (:class:`syno_lab.trial.Verdict`), by ``over_seeds`` where there is it,
            else by ``interval``.
        measured_on: the images (or the part of a text) that it is measured on.
        machine: where all of it was trained; empty where that is not known.
        seed_spread: the standard deviation of the baseline's accuracy over the seeds: what to expect of another seed on
            this machine; None with one seed.
        flops_ratio, params_ratio: operator over baseline, for the whole network.
        seeds: the seeds.
        baselines, operators: the trials, in the order of the seeds; without their predictions.
    """

    measure: Literal["accuracy", "loss"] = "accuracy"
    baseline: float | None = None
    operator: float | None = None
    interval: Interval | None = None
    by_seed: tuple[float, ...] = ()
    flops_ratio: float = 0.0
    params_ratio: float = 0.0
    seeds: tuple[int, ...] = ()
    baselines: tuple[TrialOutcome, ...] = ()
    operators: tuple[TrialOutcome, ...] = ()
    over_seeds: Interval | None = None
    verdict: str = ""
    measured_on: MeasuredOn = "test"
    machine: str = ""
    seed_spread: float | None = None

    @property
    def by(self) -> Interval | None:
        """The difference, over seeds and images where there are several seeds."""
        return self.over_seeds or self.interval

    @property
    def is_accuracy(self) -> bool:
        """Whether it is measured by the accuracy, else by the loss, in nats: less is better."""
        return self.measure == "accuracy"

    @property
    def texts(self) -> tuple[str | None, str | None]:
        """The difference in percentage points or nats, and its interval; None where they are not known."""
        if self.by is None:
            return None, None
        scale, digits, unit = (100, 1, "points") if self.is_accuracy else (1, 3, "nats")
        by, low, high = (f"{scale * end:+.{digits}f}" for end in (self.by.difference, self.by.low, self.by.high))
        return f"{by} {unit}", f"{low} to {high}"
