"""Worker processes that run one trial after another: a short trial does not pay for starting Python and torch.

A process of its own costs a trial about 2.3 CPU-seconds before its first batch: torch is imported, and torch loads its
compiler at the first optimizer. On the first rung a training takes 1.2. A trial that crashes its process, or does not
end, has that as its outcome, and the next one has a new process. Requests and outcomes travel as JSON.
"""

from __future__ import annotations

import contextlib
import gc
import queue
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from syno_lab import private
from syno_lab.blame import said_by
from syno_lab.errors import DiskFullError, SynoError, TrainingError
from syno_lab.processes.process import describe_exit, follow_parent, start_child
from syno_lab.trial.own import check_brought
from syno_lab.trial.request import TrialOutcome, TrialRequest

#: Seconds in which a new process must have imported torch, on a busy machine too.
START_DEADLINE_S = 120.0
#: Seconds that a trial may take unless the caller says otherwise: for what hangs, not for what is slow
#: (``TrialRequest.time_limit_s``).
DEADLINE_S = 3600.0
#: Seconds between two questions whether to stop.
LOOK_S = 0.1
LOG_FILE = "workers.log"

_READY = b'"ready"'


class _Message(msgspec.Struct):
    """What a worker answers: an outcome, or the reason why the disk has no room."""

    outcome: TrialOutcome | None = None
    full: str = ""


class TrialWorker:
    """One process for trials, started at the first one, and again after a crash; a context manager.

    Args:
        log: the file that gets the process's output.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._link: Connection | None = None

    def run(
        self,
        request: TrialRequest,
        *,
        folder: Path,
        should_stop: Callable[[], bool] = lambda: False,
        deadline_s: float = DEADLINE_S,
    ) -> TrialOutcome:
        """:func:`.run_trial` in the process. A crash gives the state ``failed``, ``deadline_s`` gives ``timeout``.

        With ``should_stop`` the process is ended and the outcome is ``interrupted``; a later call continues from the
        last checkpoint. Raises DiskFullError as ``run_trial`` does, TrainingError where no process can be started, and
        CodeError for code of the user's own that this process was not given itself (:func:`.own.check_brought`).
        """
        if should_stop():
            return TrialOutcome(state="interrupted", reason="before it began", seed=request.seed)
        check_brought(request)
        began = time.monotonic()
        link = self._started()
        content = {"request": request.to_dict(), "folder": str(Path(folder).absolute())}
        try:
            link.send_bytes(msgspec.json.encode(content))
            while not link.poll(LOOK_S):
                if should_stop():
                    self.close()
                    return TrialOutcome(state="interrupted", reason="stopped on request", seed=request.seed)
                if time.monotonic() - began > deadline_s:
                    self.close()
                    reason = f"no answer from its process in {deadline_s:g} s, so it was ended"
                    return TrialOutcome(state="timeout", reason=reason, seed=request.seed)
            answer = msgspec.json.decode(link.recv_bytes(), type=_Message)
        except (EOFError, OSError):
            reason = f"its process was {self._ended()}"
            return TrialOutcome(state="failed", reason=reason, seed=request.seed)
        if answer.outcome is None:
            raise DiskFullError(answer.full)
        return answer.outcome

    def _started(self) -> Connection:
        if self._link is not None:
            return self._link
        ours, theirs = Pipe()
        private.folder(self._log.parent)
        with theirs, private.create(self._log, "ab") as log:
            # In this process's group, so that whoever ends this process ends its workers too.
            arguments = [str(theirs.fileno())]
            self._process = start_child(__name__, arguments, log=log, pass_fds=[theirs.fileno()], own_group=False)
        self._link = ours
        try:
            if not ours.poll(START_DEADLINE_S) or ours.recv_bytes() != _READY:
                raise EOFError
        except (EOFError, OSError):
            raise TrainingError(f"expected a process for trials, found it {self._ended()}; see {self._log}") from None
        return ours

    def _ended(self) -> str:
        """How the process ended; afterwards there is none."""
        process = self._process
        assert process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        said = describe_exit(process.returncode)
        self.close()
        return said

    def close(self) -> None:
        """End the process; the next trial starts another."""
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        if self._link is not None:
            self._link.close()
        self._process = self._link = None

    def __enter__(self) -> TrialWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class TrialWorkers:
    """Several such processes; :meth:`run` takes the next idle one. A context manager, for threads.

    ``LocalRunner(folder, workers, should_stop, train=pool.run)`` makes a search's trainings of them.
    """

    def __init__(self, count: int, log: Path) -> None:
        self._all = [TrialWorker(log) for _ in range(count)]
        self._idle: queue.SimpleQueue[TrialWorker] = queue.SimpleQueue()
        for worker in self._all:
            self._idle.put(worker)

    def run(self, request: TrialRequest, **how: Any) -> TrialOutcome:
        """:meth:`TrialWorker.run` on an idle worker; the time to wait for one does not count."""
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


def _main(arguments: list[str]) -> None:
    follow_parent(int(arguments[0]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us; it is no crash of a trial
    link: Connection = Connection(int(arguments[1]))
    from syno_lab.trial.own import bring
    from syno_lab.trial.run import run_trial

    private.keep_private()
    link.send_bytes(_READY)
    is_first = True
    while True:
        try:
            asked = msgspec.json.decode(link.recv_bytes())
        except EOFError:
            return
        place = Path(asked["folder"])
        try:
            private.folder(place)
            request = TrialRequest.from_dict(asked["request"])
            bring(request)  # the parent was given this code itself: check_brought
            answer = _Message(run_trial(request, folder=place))
        except DiskFullError as error:
            answer = _Message(full=str(error))
        except SynoError as error:  # a request of another version of Syno Lab, or its code
            answer = _Message(TrialOutcome(state="failed", reason=str(error)))
        except Exception as error:  # noqa: BLE001 - a bug: the search goes on, and its store has the reason
            traceback.print_exc()
            answer = _Message(TrialOutcome(state="failed", reason=said_by(error)))
        link.send_bytes(msgspec.json.encode(answer))
        if is_first:
            # Everything is imported now. A trial ends with a garbage collection, which then takes a hundredth of the
            # time: it took a tenth of a trial's.
            gc.freeze()
            is_first = False


if __name__ == "__main__":
    _main(sys.argv[1:])
