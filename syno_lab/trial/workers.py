"""Worker processes that run one trial after another: short trials need not start Python and torch.

In a new process a trial needs about 2.3 CPU seconds before its first batch: it imports torch, and torch loads its
compiler for the first optimizer. A training on the first rung takes 1.2 CPU seconds. If a trial crashes its process or
does not end, its outcome is a failure or a timeout, and the next trial has a new process.
"""

from __future__ import annotations

import queue
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from syno_lab import private
from syno_lab.blame import said_by
from syno_lab.errors import DiskFullError, SynoError, TrainingError
from syno_lab.processes.worker import START_DEADLINE_S, CallFailedError, CrashedError, Worker
from syno_lab.trial.own import check_brought
from syno_lab.trial.request import TrialOutcome, TrialRequest
from syno_lab.versioned import JSON

#: The default limit in seconds, which ends a trial that hangs. A slow trial has a limit of its own
#: (``TrialRequest.time_limit_s``).
DEADLINE_S = 3600.0
#: Seconds between two calls of ``should_stop``.
LOOK_S = 0.1
LOG_FILE = "workers.log"


class TrialWorker(Worker):
    """A process that runs trials, started at the first trial and again after a crash; a context manager.

    Args:
        log: the file for the process's output.
    """

    def __init__(self, log: Path) -> None:
        # The worker is in this process's group, so that a signal that ends the group ends the worker too.
        super().__init__(log, has_tvm=False, own_group=False)

    def run(
        self,
        request: TrialRequest,
        *,
        folder: Path,
        should_stop: Callable[[], bool] = lambda: False,
        deadline_s: float = DEADLINE_S,
    ) -> TrialOutcome:
        """Run :func:`.run_trial` in the process. A crash gives the state ``failed``, the deadline ``timeout``.

        If ``should_stop`` returns True, the process ends and the outcome is ``interrupted``; a later call continues
        from the last checkpoint. Raises DiskFullError as ``run_trial`` does, TrainingError if no process can be
        started, and CodeError for code of the user's own that this process has not run (:func:`.own.check_brought`).
        """
        if should_stop():
            return TrialOutcome(state="interrupted", reason="before it began", seed=request.seed)
        check_brought(request)
        began = time.monotonic()
        self._begin()
        answer: TrialOutcome | DiskFullError | None = None
        try:
            for message in self.talk(_trial, request.to_dict(), Path(folder).absolute(), period_s=LOOK_S):
                if message is not None:
                    answer = message
                elif should_stop():
                    self.close()
                    return TrialOutcome(state="interrupted", reason="stopped on request", seed=request.seed)
                elif time.monotonic() - began > deadline_s:
                    self.close()
                    reason = f"no answer from its process in {deadline_s:g} s, so it was ended"
                    return TrialOutcome(state="timeout", reason=reason, seed=request.seed)
        except CrashedError as crash:
            return TrialOutcome(state="failed", reason=f"its process was {crash.ended}", seed=request.seed)
        assert answer is not None
        if isinstance(answer, DiskFullError):
            raise answer
        return answer

    def _begin(self) -> None:
        """Start a process, if there is none, and let it import torch."""
        if self._process is not None:
            return
        private.folder(self._log.parent)
        private.create(self._log, "ab").close()
        try:
            self.call(_prepare, deadline_s=START_DEADLINE_S)
        except CallFailedError as error:
            self.close()  # a process that failed to import torch may still run
            problem = error.ended if isinstance(error, CrashedError) else str(error)
            raise TrainingError(f"expected a process for trials, found it {problem}; see {self._log}") from None

    def __enter__(self) -> TrialWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class TrialWorkers:
    """Several processes for trials; :meth:`run` uses the next idle process. Thread-safe; a context manager.

    ``LocalRunner(folder, workers, should_stop, train=pool.run)`` runs a search's trainings in the processes.
    """

    def __init__(self, count: int, log: Path) -> None:
        self._all = [TrialWorker(log) for _ in range(count)]
        self._idle: queue.SimpleQueue[TrialWorker] = queue.SimpleQueue()
        for worker in self._all:
            self._idle.put(worker)

    def run(self, request: TrialRequest, **how: Any) -> TrialOutcome:
        """Call :meth:`TrialWorker.run` of an idle worker; the deadline does not count the wait for an idle worker."""
        worker = self._idle.get()
        try:
            return worker.run(request, **how)
        finally:
            self._idle.put(worker)

    def __enter__(self) -> TrialWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._all:
            worker.close()


def _prepare() -> None:
    """Make a new process ready for trials."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers.
    import syno_lab.trial.run  # The import of torch is no part of a trial's time.

    assert syno_lab.trial.run
    private.keep_private()


def _trial(say: Callable[[object], None], _: Callable[[], object], params: dict[str, JSON], folder: Path) -> None:
    """Run a request in a worker, and send its outcome."""
    from syno_lab.trial.own import bring
    from syno_lab.trial.run import run_trial

    answer: TrialOutcome | DiskFullError
    try:
        private.folder(folder)
        request = TrialRequest.from_dict(params)
        bring(request)  # the parent process has run this code, see check_brought
        answer = run_trial(request, folder=folder)
    except DiskFullError as error:
        answer = error
    except SynoError as error:  # the request has another version, or the code fails
        answer = TrialOutcome(state="failed", reason=str(error))
    except Exception as error:  # noqa: BLE001 - a bug: the search continues, and its store has the reason
        traceback.print_exc()
        answer = TrialOutcome(state="failed", reason=said_by(error))
    say(answer)
