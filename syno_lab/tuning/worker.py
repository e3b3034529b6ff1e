"""A worker process that runs one call at a time: a call that crashes or never ends takes down only this process.

TVM's own pools start new processes for each batch and rely on a thread inside the worker to notice a timeout; here the
process lives for the whole tuning, has imported TVM before a call's time starts, and is killed from outside.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from syno_lab.errors import SynoError, TrackerError
from syno_lab.processes.apart import one_line
from syno_lab.processes.process import describe_exit, follow_parent, start_child

#: A new worker imports TVM, which took half a minute on a busy machine.
START_DEADLINE_S = 120.0


class CallFailedError(Exception):
    """A call raised in its worker, crashed it or ran out of time; the message is one line."""


class Worker:
    """One worker process, started on first use, and again after a crash or a timeout."""

    def __init__(self, log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._log, self._environment = log, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._link: Connection | None = None

    def start(self) -> None:
        """Start the process without waiting for it; :meth:`call` waits for it."""
        if self._process is not None:
            return
        ours, theirs = Pipe()
        with theirs, self._log.open("ab") as log:
            # In this process's group, so that killing the tuning kills its workers.
            self._process = start_child(
                "syno_lab.tuning.worker",
                [str(theirs.fileno())],
                log=log,
                pass_fds=[theirs.fileno()],
                environment=self._environment,
                own_group=False,
            )
        self._link, self._ready = ours, False

    def call(self, function: Callable[..., Any], *arguments: Any, deadline_s: float) -> Any:
        """``function(*arguments)`` in the process; the function is found there by its module and name.

        Raises :class:`CallFailedError`, and :class:`TrackerError` where the function raised one.
        """
        self.start()
        assert self._process is not None
        assert self._link is not None
        try:
            if not self._ready:
                self._receive(START_DEADLINE_S, "start")
                self._ready = True
            self._link.send((function, arguments))
            outcome, value = self._receive(deadline_s, function.__name__)
        except OSError:
            self._process.wait(10)
            ended = describe_exit(self._process.returncode)
            self.close()
            raise CallFailedError(f"{function.__name__}: the process was {ended}") from None
        if outcome == "tracker":
            raise TrackerError(value)
        if outcome == "error":
            raise CallFailedError(value)
        return value

    def _receive(self, deadline_s: float, what: str) -> tuple[str, Any]:
        assert self._link is not None
        if not self._link.poll(deadline_s):
            self.close()
            raise CallFailedError(f"{what}: not done after {deadline_s:g} s, killed")
        try:
            return self._link.recv()
        except EOFError:
            raise OSError from None

    def close(self) -> None:
        """Kill the process. Its children end with its pipe or with the tuning's group."""
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        if self._link is not None:
            self._link.close()
        self._process = self._link = None


class WorkerPool:
    """Several workers that take calls in turn."""

    def __init__(self, size: int, log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._all = [Worker(log, environment) for _ in range(size)]
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="tuning-pool")
        for worker in self._all:
            worker.start()
            self._idle.put(worker)

    def call(self, function: Callable[..., Any], *arguments: Any, deadline_s: float) -> Any:
        """Like :meth:`Worker.call`, on the next idle worker; the time to wait for one does not count."""
        worker = self._idle.get()
        try:
            return worker.call(function, *arguments, deadline_s=deadline_s)
        finally:
            self._idle.put(worker)

    def run(self, steps: Callable[[], Any]) -> Future[Any]:
        """Run ``steps()`` in a thread of the pool: several calls, one after the other."""
        return self._threads.submit(steps)

    def submit(self, function: Callable[..., Any], *arguments: Any, deadline_s: float) -> Future[Any]:
        """:meth:`call` as a future."""
        return self._threads.submit(self.call, function, *arguments, deadline_s=deadline_s)

    def close(self) -> None:
        """Kill all workers; calls under way fail."""
        for worker in self._all:
            worker.close()
        self._threads.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def workers(size: int, log: Path, environment: Mapping[str, str] | None = None) -> Iterator[WorkerPool]:
    """A pool for the length of a block; ``environment`` adds variables to its processes' environment."""
    pool = WorkerPool(size, log, environment)
    try:
        yield pool
    finally:
        pool.close()


def _main(arguments: list[str]) -> None:
    follow_parent(int(arguments[0]))
    link: Connection = Connection(int(arguments[1]))
    from syno_lab.processes.light import import_tvm, tame_intrinsics

    import_tvm()
    tame_intrinsics()  # a scheduled candidate already contains the code of its intrinsics
    link.send(("ready", time.time()))
    while True:
        try:
            function, call_arguments = link.recv()
        except EOFError:
            return
        answer: tuple[str, Any]
        try:
            answer = ("value", function(*call_arguments))
        except TrackerError as error:
            answer = ("tracker", str(error))
        except Exception as error:  # noqa: BLE001 - an exception is the candidate's result, reported to the caller
            traceback.print_exc()
            answer = ("error", str(error) if isinstance(error, SynoError) else one_line(error))
        link.send(answer)


if __name__ == "__main__":
    _main(sys.argv[1:])
