"""The outcomes of trainings, and the comparison of an operator with its baseline: plain data, as stored."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from syno_lab.settings import Plain
from syno_lab.store.latencies import Times

State = Literal["finished", "pruned", "diverged", "oom", "timeout", "interrupted", "failed"]
MeasuredOn = Literal["test", "held out"]
#: The measure by which a rung ranks: the accuracy (for text exp(-loss)), the loss on the outcome's examples, or the
#: training loss of the last batches. Losses can rank trials whose accuracies are still equal.
Measure = Literal["accuracy", "loss", "training loss"]


class TrialOutcome(Plain, frozen=True, kw_only=True):
    """The outcome of a trial: its state, its accuracy and its costs.

    Attributes:
        state: ``finished``; ``pruned`` (by the rule for early termination or its patience); ``diverged`` (a loss or
            gradient that is not a number, or no gradient); ``oom`` (out of memory); ``timeout``; ``interrupted`` (on
            request: the next attempt continues from the checkpoint); ``failed`` (an error in the request, the data or
            the files).
        reason: the reason for the state in one line; for ``finished`` empty, or a deviation from the request.
        accuracy: the measure to maximise, after the last epoch; None without a completed epoch. For images: the share
            of images classified correctly. For text: exp(-loss), the geometric mean of the right tokens' probabilities,
            which is 1 / perplexity.
        measured_on: the data for accuracy, losses and predictions: ``test``, or ``held out`` from the training data.
        train_loss: the mean training loss in nats of the last batches (:data:`syno_lab.training.loop.CLOSING`), while
            the weights still change; None without a completed epoch.
        best_accuracy: the highest accuracy of any epoch, for comparison with papers that report that number.
        perplexity: the perplexity per token of a text after the last epoch. ``perplexity_per_byte``: the perplexity per
            byte of UTF-8, by which texts with different tokens are compared.
        curve: for each epoch ``epoch``, ``train_loss``, ``test_loss``, ``accuracy`` (the measure) and ``seconds``; for
            text also ``perplexity``.
        flops, params: the trained network's FLOPs for one example, and its parameters; ``baseline_flops``,
            ``baseline_params``: the same numbers for the network without the operator.
        replaced, places: the number of replaced layers, and of layers that the operator could replace.
        wall_s, cpu_s: seconds of all attempts together, without work that was repeated after a kill.
        work_s: seconds of the training's thread on a processor (on a GPU: wall seconds), without the seconds for
            reading data and building the network.
        latency_ms: if requested, the time of the trained network for one example
            (:func:`syno_lab.trial.meter.latency_ms`).
        peak_mib: peak memory in MiB: of torch's allocations on a GPU, else the growth of the process's memory.
        resumed: the number of epochs that earlier attempts completed.
        batch_size: the batch size of the training; half of the requested size after a retry.
        machine: the machine of the training (:func:`syno_lab.trial.machine.machine_name`). Equal requests give equal
            numbers on one machine, but not on two machines.
        predictions: if requested, the predicted class of each test or held-out image. ``losses``: the loss of each of
            these images, or of each window of a text, in nats.
        by_fold: the accuracy on each fold, after a training on folds. ``accuracy`` is then the accuracy on all images,
            ``standard_error`` its standard error over the images. Other numbers are sums or means over the folds.
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
    by_fold: list[float] | None = None
    standard_error: float | None = None

    @property
    def loss(self) -> float | None:
        """The mean loss in nats on the test or held-out data, after the last epoch; None without an epoch."""
        return self.curve[-1].get("test_loss") if self.curve else None


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A difference with its confidence interval; ``confidence`` is the level, such as 0.95."""

    difference: float
    low: float
    high: float
    confidence: float = 0.95

    def __str__(self) -> str:
        ends = f"{self.low:+.4f} to {self.high:+.4f}"
        return f"{self.difference:+.4f}, {self.confidence:.0%} interval {ends}"


class Comparison(Plain, frozen=True, kw_only=True):
    """The comparison of an operator with its baseline. The defaults are for old files, in which a field may be missing.

    Attributes:
        measure: ``accuracy`` (of images; higher is better) or ``loss`` (of text, in nats; lower is better).
        baseline, operator: the means of the measure over the seeds.
        interval: operator - baseline with a paired bootstrap interval over the test images (or windows). The interval
            shows how much the choice of test images matters; ``by_seed`` shows how much the seed matters.
        by_seed: operator - baseline for each seed.
        over_seeds: operator - baseline with an interval over seeds *and* images
            (:func:`syno_lab.trial.two_way_interval`), the range to expect for another training; None with one seed.
        verdict: the verdict of the comparison (:class:`syno_lab.trial.Verdict`), by ``over_seeds`` if present, else by
            ``interval``. :func:`.verdicts.sentence` words it.
        within: the margin of the verdict "equal" in percentage points or hundredths of a nat; 0: no verdict "equal".
        examples: the number of test examples; 0 if unknown.
        measured_on: the images (or the part of a text) on which the measure was computed.
        machine: the machine of all trainings; empty if unknown.
        seed_spread: the estimated standard deviation of the baseline's accuracy between seeds on this machine; None
            with one seed.
        flops_ratio, params_ratio: FLOPs and parameters of the whole network, divided by the baseline's.
        seeds: the seeds.
        baselines, operators: the outcomes of the trials, in the order of the seeds, without predictions.
        baseline_times, times: the times of the baseline and of the network with the operator; empty if not measured.
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
    within: float = 0.0
    examples: int = 0
    measured_on: MeasuredOn = "test"
    machine: str = ""
    seed_spread: float | None = None
    baseline_times: Times = msgspec.field(default_factory=dict)
    times: Times = msgspec.field(default_factory=dict)

    @property
    def by(self) -> Interval | None:
        """The difference and its interval: over seeds and images if there are several seeds, else over images."""
        return self.over_seeds or self.interval

    @property
    def is_accuracy(self) -> bool:
        """Whether the measure is the accuracy (higher is better), and not the loss in nats (lower is better)."""
        return self.measure == "accuracy"

    @property
    def texts(self) -> tuple[str | None, str | None]:
        """The difference in percentage points or nats, and its interval; None where they are unknown."""
        if self.by is None:
            return None, None
        scale, digits, unit = (100, 1, "points") if self.is_accuracy else (1, 3, "nats")
        by, low, high = (f"{scale * end:+.{digits}f}" for end in (self.by.difference, self.by.low, self.by.high))
        return f"{by} {unit}", f"{low} to {high}"
