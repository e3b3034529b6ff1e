"""Who trains for a search: the jobs of a lab, or threads of this process. Either gives futures of outcomes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from syno_lab.evaluate.trial import TrialRequest, run_trial

if TYPE_CHECKING:
    from syno_lab.evaluate.jobs import JobHandle, Lab

TRAIN = "train"


@dataclass(frozen=True)
class Running:
    """A training that was begun: the future of its outcome as a dictionary, and the number of its job, if it is one."""

    future: Future[dict[str, Any]]
    job: int | None = None


class Evaluators(Protocol):
    """What a search trains with. Names are unique in a lab and stay when a search goes on in another process."""

    def submit(self, name: str, request: TrialRequest) -> Running:
        """Begin a training."""

    def find(self, name: str) -> Running | None:
        """The training of this name that was begun before, by whichever process; None where there is none to go on."""


class JobEvaluators:
    """Trainings as jobs of kind ``train``; they go on when the search's own process ends.

    Args:
        lab: an open lab; within a job that of its context, so that cancelling the search cancels them.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def submit(self, name: str, request: TrialRequest) -> Running:
        """See :class:`Evaluators`."""
        return self._running(self._lab.submit(TRAIN, request.to_dict(), name=name))

    def find(self, name: str) -> Running | None:
        """See :class:`Evaluators`. What was paused with the search goes on; what was cancelled with it does not."""
        jobs = self._lab.ledger.jobs("kind=? AND name=?", (TRAIN, name))
        if not jobs or jobs[-1].state == "cancelled" or jobs[-1].wish == "cancel":
            return None
        handle = self._lab.job(jobs[-1].id)
        handle.resume()
        return self._running(handle)

    def _running(self, handle: JobHandle) -> Running:
        return Running(handle.future(), handle.id)


class LocalEvaluators:
    """Trainings in threads of this process, for tests and for who wants no cluster; a context manager.

    Args:
        folder: checkpoints and outcomes, a folder for each name.
        workers: trainings at a time; torch's global generator is theirs in common, so more than one are not
            reproducible to the last digit.
        should_stop: asked after each batch.
        train: what a training is, ``run_trial`` unless told otherwise.
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

    def submit(self, name: str, request: TrialRequest) -> Running:
        """See :class:`Evaluators`."""
        folder = self._place(name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "request.json").write_bytes(msgspec.json.encode(request))

        def work() -> dict[str, Any]:
            outcome: dict[str, Any] = self._train(request, folder=folder, should_stop=self._should_stop).to_dict()
            return outcome

        return Running(self._threads.submit(work))

    def find(self, name: str) -> Running | None:
        """See :class:`Evaluators`."""
        try:
            request = msgspec.json.decode((self._place(name) / "request.json").read_bytes(), type=TrialRequest)
        except (OSError, msgspec.MsgspecError):  # not begun, or killed while it was written
            return None
        return self.submit(name, request)

    def _place(self, name: str) -> Path:
        return self._folder / name.replace(": ", "/").replace(" ", "-")

    def __enter__(self) -> LocalEvaluators:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed.set()
        self._threads.shutdown(cancel_futures=True)
