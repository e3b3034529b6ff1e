"""What runs the trainings and tunings of a search: the jobs of a lab, or threads of this process."""

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
#: Seconds between two looks at what runs.
LOOK_S = 0.5

Report = Callable[[float, str], None]
#: A training, or the parameters of a tuning (:func:`syno_lab.tuning.job.run`).
Work = TrialRequest | Mapping[str, JSON]
Key = TypeVar("Key")


class Stopped(SynoError):  # noqa: N818 - not an error, but a way to end the loop
    """The caller stopped the search; it can be continued from the store."""


@dataclass(frozen=True)
class Running:
    """Work under way: the future of its result, and the number of its job, if it has one."""

    future: Future[dict[str, JSON]]
    job: int | None = None

    def result(self) -> dict[str, JSON]:
        """The result of a training that has ended, a :class:`.TrialOutcome` as a dictionary.

        For a training without one it is an outcome with the reason. Raises DiskFullError where the disk is full: that
        is no outcome, and the search can continue once there is room.
        """
        try:
            return self.future.result()
        except DiskFullError:
            raise
        except CancelledError:
            return {"state": "interrupted", "reason": "its job was cancelled", "accuracy": None}
        except SynoError as error:  # a job that failed or was given up
            return {"state": "failed", "reason": str(error), "accuracy": None}


class Runner(Protocol):
    """Runs the work of a search. Names are unique in a lab and stay when another process continues the search."""

    def submit(self, name: str, work: Work) -> Running:
        """Begin a training or a tuning."""

    def find(self, name: str, work: Work) -> Running | None:
        """The work of this name that any process began before; None where there is none to continue.

        A training continues as it was begun, a tuning only with the same parameters.
        """


def train_all(
    runner: Runner,
    wanted: Mapping[Key, tuple[str, TrialRequest]],
    report: Callable[[int, int], None],
    should_stop: Callable[[], bool],
    stopped: str,
) -> dict[Key, TrialOutcome]:
    """Do these trainings, each a name and a request, all together; ``report`` is told how many of how many have ended.

    Raises:
        Stopped: ``should_stop`` returned True; ``stopped`` is its line. What has ended is kept.
        DiskFullError: a training has no room.
    """
    running = {key: runner.find(*each) or runner.submit(*each) for key, each in wanted.items()}
    futures = {one.future: one for one in running.values()}
    left = set(futures)
    while left:
        if should_stop():
            raise Stopped(stopped)
        report(len(running) - len(left), len(running))
        ended, left = wait(left, timeout=LOOK_S, return_when=FIRST_COMPLETED)
        for future in ended:
            futures[future].result()  # a full disk ends all of it at once
    return {key: TrialOutcome.from_dict(one.result()) for key, one in running.items()}


class JobRunner:
    """Jobs of kind ``train`` and ``tune``; they continue when the search's own process ends.

    Args:
        lab: an open lab; a search that is a job uses the lab of its context, so that cancelling it cancels its work.
        resources: what each training asks of a worker; None: what its kind of job asks.
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
        """See :class:`Runner`. Work paused with the search continues; work cancelled with it does not."""
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
                handle.allow(job)  # its parameters are exactly those of this search
        elif not job.is_ended and not is_signed(self._lab.ledger, job):
            return None  # the job came with the folder, unsigned: submit the training anew
        handle.resume()
        return Running(handle.future(), handle.id)


class LocalRunner:
    """Threads of this process, for tests and for users without a cluster; a context manager.

    With one thread, nothing else runs while a tuning's candidates are timed. A tuning that is begun again continues
    from its records.

    Args:
        folder: has a subfolder for each name, with its checkpoints and outcome.
        workers: threads; trainings share torch's global generator, so with more than one the results are not
            reproducible to the last digit.
        should_stop: asked after each batch.
        train: the function that does a training; by default ``run_trial``.
        lab: the lab's folder, where tunings keep their records.
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
        """See :class:`Runner`; a tuning ends with its process."""
        if not isinstance(work, TrialRequest):
            return None
        place = self._folder / name.replace(": ", "/").replace(" ", "-") / "request.json"
        try:
            begun: TrialRequest = read_json(place, MOST_BYTES, TrialRequest)
        except (OSError, msgspec.MsgspecError):  # not begun
            return None
        return self.submit(name, begun)

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed.set()
        self._threads.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class _Here:
    """The context of a tuning that is not a job (:class:`syno_lab.tuning.job.Workplace`): nobody watches it."""

    root: Path
    folder: Path
    should_stop: Callable[[], bool]

    def report(self, fraction: float, message: str = "") -> None:
        """Ignore it."""

    def log(self, line: str) -> None:
        """Ignore it: the tuning's own log has it."""
