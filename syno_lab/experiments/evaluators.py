"""The trainings of a search: as jobs of a lab, or in threads of this process. Both return futures of outcomes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from syno_lab import private
from syno_lab.inputs import read_json
from syno_lab.training.files import write_whole
from syno_lab.trial import TrialRequest, run_trial

if TYPE_CHECKING:
    from syno_lab.jobs import JobHandle, Lab

TRAIN = "train"
#: The largest request file that is read, in bytes.
MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Running:
    """A training under way: the future of its outcome as a dictionary, and the number of its job, if it has one."""

    future: Future[dict[str, Any]]
    job: int | None = None


class Evaluators(Protocol):
    """Runs trainings for a search. Names are unique in a lab and stay when another process continues the search."""

    def submit(self, name: str, request: TrialRequest) -> Running:
        """Begin a training."""

    def find(self, name: str) -> Running | None:
        """The training of this name that any process began before; None where there is none to continue."""


class JobEvaluators:
    """Trainings as jobs of kind ``train``; they continue when the search's own process ends.

    Args:
        lab: an open lab; a search that is a job uses the lab of its context, so that cancelling it cancels its
            trainings.
        resources: what each training asks of a worker; None: what its kind of job asks.
    """

    def __init__(self, lab: Lab, resources: Mapping[str, float] | None = None) -> None:
        self._lab, self._resources = lab, resources

    def submit(self, name: str, request: TrialRequest) -> Running:
        """See :class:`Evaluators`."""
        return self._running(self._lab.submit(TRAIN, request.to_dict(), name=name, resources=self._resources))

    def find(self, name: str) -> Running | None:
        """See :class:`Evaluators`. A training paused with the search continues; one cancelled with it does not."""
        from syno_lab.jobs.trust import is_signed

        jobs = self._lab.ledger.jobs("kind=? AND name=?", (TRAIN, name))
        if not jobs or jobs[-1].state == "cancelled" or jobs[-1].wish == "cancel":
            return None
        if not jobs[-1].is_ended and not is_signed(self._lab.ledger, jobs[-1]):
            return None  # the job came with the folder, unsigned: submit the training anew
        handle = self._lab.job(jobs[-1].id)
        handle.resume()
        return self._running(handle)

    def _running(self, handle: JobHandle) -> Running:
        return Running(handle.future(), handle.id)


class LocalEvaluators:
    """Trainings in threads of this process, for tests and for users without a cluster; a context manager.

    Args:
        folder: has a subfolder for each name, with its checkpoints and outcome.
        workers: trainings at a time; they share torch's global generator, so with more than one the results are not
            reproducible to the last digit.
        should_stop: asked after each batch.
        train: the function that does a training; by default ``run_trial``.
    """

    def __init__(
        self,
        folder: Path,
        workers: int = 1,
        should_stop: Callable[[], bool] = lambda: False,
        train: Callable[..., Any] = run_trial,
    ) -> None:
        self._folder = folder
        self._is_closed = threading.Event()
        self._should_stop = lambda: self._is_closed.is_set() or should_stop()
        self._train = train
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="training")

    @property
    def should_stop(self) -> Callable[[], bool]:
        """Whether work in these threads must end: the threads are being closed, or the caller asks for it."""
        return self._should_stop

    def begin(self, work: Callable[[], dict[str, Any]]) -> Running:
        """Run other work in the same threads: it waits in the same queue as the trainings."""
        return Running(self._threads.submit(work))

    def submit(self, name: str, request: TrialRequest) -> Running:
        """See :class:`Evaluators`."""
        folder = self.folder_of(name)
        private.folder(folder)
        write_whole(folder / "request.json", msgspec.json.encode(request))

        def work() -> dict[str, Any]:
            outcome: dict[str, Any] = self._train(request, folder=folder, should_stop=self._should_stop).to_dict()
            return outcome

        return self.begin(work)

    def find(self, name: str) -> Running | None:
        """See :class:`Evaluators`."""
        try:
            request = read_json(self.folder_of(name) / "request.json", MOST_BYTES, TrialRequest)
        except (OSError, msgspec.MsgspecError):  # not begun
            return None
        return self.submit(name, request)

    def folder_of(self, name: str) -> Path:
        """The folder with the files of this name's work."""
        return self._folder / name.replace(": ", "/").replace(" ", "-")

    def __enter__(self) -> LocalEvaluators:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed.set()
        self._threads.shutdown(cancel_futures=True)
