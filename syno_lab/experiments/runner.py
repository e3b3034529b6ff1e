"""Runs the trainings and tunings of a search: as jobs of a lab, or in threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from syno_lab import private
from syno_lab.errors import DiskFullError, SynoError
from syno_lab.inputs import read_json
from syno_lab.training.files import write_whole
from syno_lab.trial import TrialOutcome, TrialRequest, run_trial
from syno_lab.versioned import JSON

if TYPE_CHECKING:
    from syno_lab.jobs import Lab

TRAIN, TUNE = "train", "tune"
#: The largest request file that is read, in bytes.
MOST_BYTES = 1 << 20
#: Seconds between two checks of running trainings and tunings.
LOOK_S = 0.5

Report = Callable[[float, str], None]
#: A training, or the parameters of a tuning (:func:`syno_lab.tuning.job.run`).
Work = TrialRequest | Mapping[str, JSON]
Key = TypeVar("Key")


class Stopped(SynoError):  # noqa: N818 - not an error, but a way to end the loop
    """The caller stopped the search; it can be continued from the store."""


@dataclass(frozen=True)
class Running:
    """A running training or tuning: the future of its result, and the number of its job (None without a job)."""

    future: Future[dict[str, JSON]]
    job: int | None = None

    def result(self) -> dict[str, JSON]:
        """Return the result of a training that has ended, a :class:`.TrialOutcome` as a dictionary.

        If the training failed, the result has the reason. Raises DiskFullError if the disk is full, because this is no
        outcome of the operator; the search can continue once there is room.
        """
        try:
            return self.future.result()
        except DiskFullError:
            raise
        except CancelledError:
            return {"state": "interrupted", "reason": "its job was cancelled", "accuracy": None}
        except SynoError as error:  # the job failed or is poisoned
            return {"state": "failed", "reason": str(error), "accuracy": None}


class Runner(Protocol):
    """Runs the trainings and tunings of a search. A name is unique in a lab and stays in a continued search."""

    def submit(self, name: str, work: Work) -> Running:
        """Start a training or a tuning."""

    def find(self, name: str, work: Work) -> Running | None:
        """Return the training or tuning of this name that some process has started; None if none can be continued.

        A training continues with its first request, a tuning only if its parameters are unchanged.
        """


def train_all(
    runner: Runner,
    wanted: Mapping[Key, tuple[str, TrialRequest]],
    report: Callable[[int, int], None],
    should_stop: Callable[[], bool],
    stopped: str,
) -> dict[Key, TrialOutcome]:
    """Run these trainings (name and request) together; call ``report`` with the numbers of ended and all trainings.

    Raises:
        Stopped: ``should_stop`` returned True; ``stopped`` is the message. Ended trainings are stored.
        DiskFullError: the disk has no room for a training.
    """
    running = {key: runner.find(*item) or runner.submit(*item) for key, item in wanted.items()}
    futures = {entry.future: entry for entry in running.values()}
    pending = set(futures)
    while pending:
        if should_stop():
            raise Stopped(stopped)
        report(len(running) - len(pending), len(running))
        ended, pending = wait(pending, timeout=LOOK_S, return_when=FIRST_COMPLETED)
        for future in ended:
            futures[future].result()  # this raises DiskFullError at once
    return {key: TrialOutcome.from_dict(entry.result()) for key, entry in running.items()}


class JobRunner:
    """Jobs of kind ``train`` and ``tune``. The jobs continue when the search's own process ends.

    Args:
        lab: an open lab. A search that is a job passes its context's lab, so that a cancellation includes trainings.
        resources: the resources of each training; None: the defaults for jobs of kind ``train``.
    """

    def __init__(self, lab: Lab, resources: Mapping[str, float] | None = None) -> None:
        self._lab, self._resources = lab, resources

    def submit(self, name: str, work: Work) -> Running:
        """See :class:`Runner`."""
        if isinstance(work, TrialRequest):
            handle = self._lab.submit(TRAIN, work.to_dict(), name=name, resources=self._resources)
        else:
            handle = self._lab.submit(TUNE, work, name=name)
        return Running(handle.future(), handle.id)

    def find(self, name: str, work: Work) -> Running | None:
        """See :class:`Runner`. A job that was paused with the search continues; a cancelled job does not."""
        from syno_lab.jobs.trust import is_signed

        is_training = isinstance(work, TrialRequest)
        jobs = self._lab.ledger.jobs("kind=? AND name=?", (TRAIN if is_training else TUNE, name))
        if not jobs or jobs[-1].state == "cancelled" or jobs[-1].wish == "cancel":
            return None
        job, handle = jobs[-1], self._lab.job(jobs[-1].id)
        if not is_training:
            if job.params != work:
                return None
            if not job.is_ended:
                handle.allow(job)  # allowed, because its parameters equal the search's
        elif not job.is_ended and not is_signed(self._lab.ledger, job):
            return None  # an unsigned job of a copied lab: submit another job
        handle.resume()
        return Running(handle.future(), handle.id)


class LocalRunner:
    """Runs trainings and tunings in threads of this process, for users without a cluster; a context manager.

    With one thread, no training runs while a tuning measures schedules. A tuning continues from its records.

    Args:
        folder: the folder with a subfolder for each training or tuning, for checkpoints and outcome.
        workers: the number of threads. Trainings share torch's global generator, so with several threads the results
            are not reproducible to the last digit.
        should_stop: called after each batch.
        train: the function that runs a training; by default ``run_trial``.
        lab: the lab's folder, where tunings store their records.
    """

    def __init__(
        self,
        folder: Path,
        workers: int = 1,
        should_stop: Callable[[], bool] = lambda: False,
        train: Callable[..., TrialOutcome] = run_trial,
        lab: Path | None = None,
    ) -> None:
        self._folder, self._lab = folder, lab or folder
        self._is_closed = threading.Event()
        self._should_stop = lambda: self._is_closed.is_set() or should_stop()
        self._train = train
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="training")

    def submit(self, name: str, work: Work) -> Running:
        """See :class:`Runner`."""
        folder = self._folder / name.replace(": ", "/").replace(" ", "-")
        if not isinstance(work, TrialRequest):
            from syno_lab.tuning.job import run

            return Running(self._threads.submit(run, dict(work), _Here(self._lab, folder, self._should_stop)))
        private.folder(folder)
        write_whole(folder / "request.json", msgspec.json.encode(work))

        def train() -> dict[str, JSON]:
            return self._train(work, folder=folder, should_stop=self._should_stop).to_dict()

        return Running(self._threads.submit(train))

    def find(self, name: str, work: Work) -> Running | None:
        """See :class:`Runner`; None for a tuning, because it ends with its process."""
        if not isinstance(work, TrialRequest):
            return None
        request_file = self._folder / name.replace(": ", "/").replace(" ", "-") / "request.json"
        try:
            request: TrialRequest = read_json(request_file, MOST_BYTES, TrialRequest)
        except (OSError, msgspec.MsgspecError):  # a training that has not started has no file
            return None
        return self.submit(name, request)

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed.set()
        self._threads.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class _Here:
    """The context of a tuning that is not a job (:class:`syno_lab.tuning.job.Workplace`), without an observer."""

    root: Path
    folder: Path
    should_stop: Callable[[], bool]

    def report(self, fraction: float, message: str = "") -> None:
        """Ignore the report."""

    def log(self, line: str) -> None:
        """Ignore the line, because the tuning's own log has it."""
