"""Run one trial, from a request to an outcome; only a full disk or a bug raises an exception."""

from __future__ import annotations

import gc
import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch

from syno_lab.blame import is_theirs, said_by
from syno_lab.data.text import TextData
from syno_lab.effort import is_out_of_memory
from syno_lab.errors import DiskFullError, SynoError, TrainingError
from syno_lab.inputs import read_json
from syno_lab.models.registry import OWN
from syno_lab.store.courses import CURVE_FILE, write_course
from syno_lab.training import EpochRecord, Resumption, TrainingProgress, TrainingResult, train, train_text
from syno_lab.training.checkpoint import DamagedCheckpointError
from syno_lab.training.files import write_whole
from syno_lab.training.train import image_answers, text_answers
from syno_lab.trial.backbone import Network, build, one_example
from syno_lab.trial.examples import STEPS, TEST_WINDOWS, examples_of, held_text_of
from syno_lab.trial.facts import Facts, context_of, facts_of
from syno_lab.trial.folds import Report, run_folds
from syno_lab.trial.machine import machine_name
from syno_lab.trial.meter import Meter, latency_ms, threads_of
from syno_lab.trial.request import State, TrialOutcome, TrialRequest
from syno_lab.trial.stopping import parse_rule
from syno_lab.version import __version__

if TYPE_CHECKING:
    from syno_lab.data.datasets import Dataset
    from syno_lab.data.own import OwnData
    from syno_lab.data.stream import ImageStream

OUTCOME_FILE = "outcome.json"
_MOST_BYTES = 1 << 28  # an outcome's file may have a prediction for each test image

# States in which another run of the same trial would end too.
_LASTING: tuple[State, ...] = ("finished", "pruned", "diverged", "timeout")


def run_trial(
    request: TrialRequest,
    *,
    folder: Path,
    report: Report = lambda fraction, message: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrialOutcome:
    """Train as ``request`` describes, and return the outcome.

    Each epoch writes a checkpoint to ``folder``. A trial that finds its own checkpoint reports this and continues;
    except for the seconds, its outcome equals the outcome of an uninterrupted trial. A trial that finds its own outcome
    in ``folder`` returns this outcome. At the end of a trial, its outcome is written to ``folder/outcome.json`` and
    its checkpoint is removed, unless a later call may continue the trial.

    ``report(fraction, message)`` and ``should_stop`` are called after every batch. However the trial ends, the result
    is a :class:`.TrialOutcome`: bad requests, missing data and exceptions of the user's own code have the state
    ``failed``. KeyboardInterrupt passes through, and so does SystemExit, unless the user's own code raised it.

    Raises DiskFullError if the disk has no room for a checkpoint, because a full disk is no property of the operator. A
    later call, with room, continues from the last checkpoint.
    """
    folder = Path(folder)
    if request.fold is None and (request.folds or 0) > 0:
        return run_folds(run_trial, request, folder=folder, report=report, should_stop=should_stop)
    earlier = _known_outcome(folder / OUTCOME_FILE, request)
    if earlier is not None:
        report(1.0, f"{earlier.state} in an earlier attempt")
        return earlier
    trial = _Trial(request, folder, report, should_stop)
    with _short_collections(), Meter(request.device) as meter, threads_of(request.threads):
        end = trial.attempt(request.batch_size)
        if end.state == "oom" and request.retry_oom and request.batch_size > 1:
            # After the except clause, nothing refers to the first attempt's objects, so their memory can be freed.
            _free_memory()
            half = request.batch_size // 2
            report(0.0, f"{end.reason}; once more with half the batch, {half}")
            again = trial.attempt(half)
            reason = f"out of memory with a batch of {request.batch_size}, so trained with one of {half}"
            again.reason = f"{reason}; {again.reason}" if again.reason else reason
            end = again
    outcome = _outcome(trial, end, meter)
    if outcome.state in _LASTING:
        outcome = _keep(outcome, request, folder)
    report(1.0, _summary(outcome))
    return outcome


@dataclass
class _End:
    """The result of one attempt to train."""

    state: State
    reason: str = ""
    result: TrainingResult | None = None
    predictions: list[int] | None = None
    losses: list[float] | None = None
    batch_size: int = 0
    latency_ms: float | None = None


@dataclass
class _Trial:
    """The data that all attempts of a trial share."""

    request: TrialRequest
    folder: Path
    report: Report
    should_stop: Callable[[], bool]
    network: Network | None = None
    facts: Facts | None = None
    earlier: Resumption = field(default_factory=lambda: Resumption(0, 0.0, 0.0))
    work_s: float = 0.0
    bytes_per_token: float = 1.0
    began: float = 0.0

    def attempt(self, batch_size: int) -> _End:
        try:
            end = self._train(batch_size)
        except DiskFullError:
            raise
        except SynoError as error:
            end = _End("failed", str(error))
        except BaseException as error:
            if is_out_of_memory(error):
                end = _End("oom", said_by(error) if str(error) else "out of memory")
            elif isinstance(error, RuntimeError | ValueError | OSError) or (self._is_own and is_theirs(error)):
                end = _End("failed", said_by(error))
            else:
                raise  # a bug of the lab, or Ctrl-C by the user
        finally:
            # The weights are no longer needed, and a retry needs their memory.
            if self.network is not None:
                self.network.module = torch.nn.Identity()
        end.batch_size = batch_size
        return end

    @property
    def _is_own(self) -> bool:
        """Whether the request has code of the user's own, which may have raised the exception."""
        return any(name.startswith(OWN) for name in (self.request.backbone, self.request.data))

    def _train(self, batch_size: int) -> _End:
        request = self.request
        if self.should_stop():
            return _End("interrupted", "before it began")
        if request.threads is not None and request.threads < 1:
            raise TrainingError(f"expected threads as a whole number from 1 up, found {request.threads}")
        self.report(0.0, f"reading {request.data}")
        self.facts = facts_of(request)
        data: Dataset | ImageStream | OwnData | TextData = (
            held_text_of(request) if self.facts.domain == "text" else examples_of(request)
        )
        if isinstance(data, TextData):
            context = context_of(request)
            windows = min((len(data.test) - 1) // context, request.test_images or TEST_WINDOWS)
            self.bytes_per_token = data.bytes_per_token(max(windows, 1) * context)
        self.network = build(request)
        if self.network.replaced:
            where = f"an operator in {self.network.replaced} of {self.network.places} layers"
            self.report(0.0, f"{request.backbone} with {where}, {self.network.flops:,} FLOPs")
        clock = time.thread_time if request.device == "cpu" else time.monotonic
        start, self.began = clock(), time.monotonic()
        result = self._fit(data, batch_size)
        self.work_s = clock() - start
        end = _End(*_STATES[result.stopped], result)
        end.reason = result.reason or end.reason
        if result.stopped == "time" and self._ends_by_clock and result.curve:
            end.state, end.reason = "finished", ""
        elif result.stopped == "time":
            end.reason = f"its time of {request.time_limit_s or request.budget_s:g} s was over"
        if end.state == "finished" and request.keep_predictions:
            self.report(1.0, "predicting the test data")
            self._answer(data, end, batch_size)
        if end.state == "finished" and request.measure_latency:
            end.latency_ms = latency_ms(self.network.module, one_example(self.facts).to(request.device))
        return end

    @property
    def _ends_by_clock(self) -> bool:
        """Whether ``budget_s``, and not ``time_limit_s``, ends this training."""
        request = self.request
        return request.budget_s is not None and request.budget_s <= (request.time_limit_s or math.inf)

    def _fit(self, data: Any, batch_size: int) -> TrainingResult:
        request, network, facts = self.request, self.network, self.facts
        assert network is not None
        assert facts is not None
        rule = None if request.stopping is None else parse_rule(request.stopping)

        def judge(curve: Sequence[EpochRecord]) -> str | None:
            write_course(self.folder / CURVE_FILE, self.rows(curve))
            measures = [self.measure(record) for record in curve]
            return None if rule is None else rule.reason(measures, request.rivals, request.epochs)

        limits = [limit for limit in (request.time_limit_s, request.budget_s) if limit is not None]
        shared: dict[str, Any] = {
            "epochs": request.epochs,
            "batch_size": batch_size,
            "learning_rate": request.learning_rate,
            "seed": request.seed,
            "time_limit_s": min(limits, default=None),
            "gives_up": request.gives_up and request.budget_s is None,
            "device": request.device,
            "precision": request.precision,
            "probe_steps": request.probe_steps,
            "on_progress": self._progress,
            "on_resume": self._resumed,
            "judge": judge,
            "checkpoint": self.folder / f"checkpoint-{batch_size}.pt",
            "should_stop": self.should_stop,
        }
        begin = partial(
            train,
            network.module,
            data,
            steps=request.steps,
            channels_last=request.channels_last,
            ends_by_clock=request.ends_by_clock,
            augment=request.augment,
            recipe=request.recipe,
            optimizer=request.optimizer or "sgd",
            **shared,
        )
        if facts.domain == "text":
            begin = partial(
                train_text,
                network.module,
                data,
                context=context_of(request),
                steps=request.options.get("steps", STEPS),
                total_steps=request.steps,
                ends_by_clock=request.budget_s is not None,
                test_windows=request.test_images or TEST_WINDOWS,
                **shared,
            )
        try:
            return begin()
        except DamagedCheckpointError as error:
            self.report(0.0, f"starts from the beginning: {error}")
            shared["checkpoint"].unlink()
            return begin()

    def _answer(self, data: Any, end: _End, batch_size: int) -> None:
        assert self.network is not None
        request = self.request
        where: dict[str, Any] = {"batch_size": batch_size, "device": request.device, "precision": request.precision}
        if self.facts is not None and self.facts.domain == "images":
            where["channels_last"] = request.channels_last
            end.predictions, end.losses = image_answers(self.network.module, data, **where)
        else:
            end.losses = text_answers(
                self.network.module,
                data,
                context=context_of(request),
                test_windows=request.test_images or TEST_WINDOWS,
                **where,
            )

    def measure(self, record: EpochRecord) -> float:
        """Return the measure to maximise: the accuracy for images, exp(-loss) for a text."""
        is_text = self.facts is not None and self.facts.domain == "text"
        return math.exp(-record.test_loss) if is_text else record.test_accuracy

    def per_byte(self, row: dict[str, float]) -> float | None:
        """Return the perplexity per byte from a row of :meth:`rows`; None for images."""
        if "perplexity" not in row:
            return None
        return math.exp(min(row["test_loss"] / self.bytes_per_token, 700.0))  # exp() overflows above 709

    def rows(self, curve: Sequence[EpochRecord]) -> list[dict[str, float]]:
        """Return the curve as rows of an outcome."""
        is_text = self.facts is not None and self.facts.domain == "text"
        return [
            {
                "epoch": record.epoch,
                "train_loss": record.train_loss,
                "test_loss": record.test_loss,
                "accuracy": self.measure(record),
                "seconds": record.seconds,
                **({"perplexity": record.perplexity} if is_text else {}),
            }
            for record in curve
        ]

    def _progress(self, now: TrainingProgress) -> None:
        share = (now.epoch - 1 + (now.batch / max(now.batches, 1) if now.phase == "train" else 1.0)) / now.epochs
        test = "" if now.phase == "train" else "test "
        total = f" of {now.epochs}"
        if self.request.ends_by_clock and self.request.budget_s:
            share = (time.monotonic() - self.began + self.earlier.wall_s) / self.request.budget_s
            total = f", {min(share, 1.0):.0%} of {self.request.budget_s:g} s"
        self.report(
            min(share, 1.0),
            f"epoch {now.epoch}{total}: {test}loss {now.loss:.3f}, accuracy {now.accuracy:.3f}",
        )

    def _resumed(self, resumption: Resumption) -> None:
        self.earlier = resumption
        self.report(
            min(resumption.epochs / self.request.epochs, 1.0),
            f"resumed from a checkpoint after epoch {resumption.epochs}"
            + (f" of {self.request.epochs}" if self.request.steps is None and not self.request.ends_by_clock else ""),
        )


_STATES: dict[str, tuple[State, str]] = {
    "finished": ("finished", ""),
    "early": ("pruned", "nothing better for its patience"),
    "pruned": ("pruned", ""),
    "time": ("timeout", ""),
    "slow": ("timeout", ""),
    "diverged": ("diverged", ""),
    "interrupted": ("interrupted", "stopped on request"),
}


def _outcome(trial: _Trial, end: _End, meter: Meter) -> TrialOutcome:
    request, network, result = trial.request, trial.network, end.result
    curve = trial.rows(result.curve if result is not None else ())
    threads = request.threads or torch.get_num_threads()
    return TrialOutcome(
        state=end.state,
        reason=end.reason,
        accuracy=curve[-1]["accuracy"] if curve else None,
        best_accuracy=max((row["accuracy"] for row in curve), default=None),
        perplexity=curve[-1].get("perplexity") if curve else None,
        perplexity_per_byte=trial.per_byte(curve[-1]) if curve else None,
        curve=curve,
        **({} if network is None else {name: cost for name, cost in vars(network).items() if name != "module"}),
        wall_s=trial.earlier.wall_s + meter.wall_s,
        cpu_s=trial.earlier.cpu_s + meter.cpu_s,
        peak_mib=meter.peak_mib,
        resumed=trial.earlier.epochs,
        seed=request.seed,
        batch_size=end.batch_size,
        device=_device_name(request.device),
        threads=threads,
        versions=versions(),
        predictions=end.predictions,
        losses=end.losses,
        measured_on="test" if request.holdout is None else "held out",
        train_loss=result.curve[-1].closing_loss if result is not None and result.curve else None,
        machine=machine_name(request.device, threads),
        work_s=trial.earlier.work_s + trial.work_s,
        latency_ms=end.latency_ms,
    )


def versions() -> dict[str, str]:
    """Return the versions of the packages on which a training's numbers depend."""
    return {
        "syno_lab": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }


def _device_name(device: str) -> str:
    if device.startswith("cuda") and torch.cuda.is_available():
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return device


def _summary(outcome: TrialOutcome) -> str:
    measures = "" if outcome.accuracy is None else f", accuracy {outcome.accuracy:.4f}"
    if outcome.perplexity is not None:
        measures = f", perplexity {outcome.perplexity:.2f} a token"
        if outcome.perplexity_per_byte is not None:
            measures += f", {outcome.perplexity_per_byte:.3f} a byte"
    return f"{outcome.state}{measures}{f' ({outcome.reason})' if outcome.reason else ''}"


def _keep(outcome: TrialOutcome, request: TrialRequest, folder: Path) -> TrialOutcome:
    """Write the outcome before removing the checkpoints, so that a kill between the two loses nothing."""
    content = {"request": request.to_dict(), "outcome": outcome.to_dict()}
    try:
        write_whole(folder / OUTCOME_FILE, msgspec.json.encode(content))
    except TrainingError as error:
        reason = f"{outcome.reason}; the outcome could not be saved: {error}".removeprefix("; ")
        return msgspec.structs.replace(outcome, reason=reason)
    for file in (*folder.glob("checkpoint-*.pt"), folder / CURVE_FILE):
        file.unlink(missing_ok=True)
    return outcome


def _known_outcome(path: Path, request: TrialRequest) -> TrialOutcome | None:
    """Return the outcome of an earlier attempt at the same request, or None."""
    try:
        content = read_json(path, _MOST_BYTES)
        if TrialRequest.from_dict(content["request"]) == request:
            return TrialOutcome.from_dict(content["outcome"])
    except (OSError, msgspec.DecodeError, KeyError, TypeError, SynoError):
        return None
    return None


@contextmanager
def _short_collections() -> Iterator[None]:
    """Free the memory after the block; garbage collections leave out older objects, which took 0.3 s for each trial."""
    is_first = not gc.get_freeze_count()
    gc.freeze()
    try:
        yield
    finally:
        _free_memory()
        if is_first:
            gc.unfreeze()


def _free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
