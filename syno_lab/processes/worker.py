"""A worker process that runs one call at a time. A call that crashes or hangs ends only this process.

TVM's own pools start new processes for each batch, and rely on a thread inside the worker for timeouts. The lab's
worker lives for the whole tuning, imports TVM before the time of a call starts, and is killed from outside. Work that
needs no board runs in a fork (:func:`apart`), in which all modules are imported already.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, TypeVarTuple

from syno_lab.errors import SynoError, TrackerError, TuningError
from syno_lab.inputs import printable
from syno_lab.processes.process import describe_exit, end_group, follow_parent, last_line, start_child
from syno_lab.scratch import scratch

#: Seconds within which a process must end after it has sent its result.
_PATIENCE_S = 5.0


def apart(deadline_s: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return ``function(*arguments)`` from a fork of this process, which should have one active thread.

    Raises TuningError with one line where the function raised or crashed, or was killed after ``deadline_s`` seconds.
    """
    forks = multiprocessing.get_context("fork")
    receiver, sender = forks.Pipe(duplex=False)
    process = forks.Process(target=_run, args=(sender, os.getpid(), function, arguments))
    process.start()
    sender.close()
    try:
        if not receiver.poll(deadline_s):
            raise TuningError(f"{function.__name__}: not done after {deadline_s:g} s, killed")
        is_value, answer = receiver.recv()
    except EOFError:
        process.join(_PATIENCE_S)
        exit_text = describe_exit(process.exitcode)
        if process.exitcode == -signal.SIGKILL:
            exit_text += ", as the system does where memory runs out"
        raise TuningError(f"{function.__name__}: the process was {exit_text}") from None
    finally:
        process.kill()
        process.join()
        receiver.close()
    if not is_value:
        raise TuningError(answer)
    return answer


def _run(link: Connection, parent: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    follow_parent(parent)  # a fork does not copy the thread that follows the parent
    try:
        answer = True, function(*arguments)
    except Exception as error:  # noqa: BLE001 - any exception is a result for the caller
        traceback.print_exc()
        answer = False, str(error) if isinstance(error, SynoError) else one_line(error)
    link.send(answer)


def one_line(error: BaseException) -> str:
    """Describe an exception in one line. TVM's messages contain C++ stacks, with the reason in the last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {printable(lines[-1], 300)}" if lines else type(error).__name__


#: Seconds for a new worker to import TVM, which took half a minute on a busy machine.
START_DEADLINE_S = 120.0

_T = TypeVar("_T")
_Given = TypeVarTuple("_Given")


class CallFailedError(Exception):
    """A call has raised an exception in its worker, crashed the worker or timed out. The message is one line."""


class CrashedError(CallFailedError):
    """The process of a call ended before its result. ``ended`` describes its end: ``killed by SIGSEGV``."""

    def __init__(self, name: str, ended: str) -> None:
        super().__init__(f"{name}: the process {'was' if ended.startswith('killed') else 'ended with'} {ended}")
        self.ended = ended


class Worker:
    """A worker process, which starts at the first call, and again after a crash or a timeout. The caller must close it.

    Args:
        log: the file to which the output of the process is appended.
        environment: variables that are added to this process's environment.
        has_tvm: whether TVM is imported before the first call.
        own_group: whether the process leads its own group, which ends with it; otherwise it is in this process's group.
    """

    def __init__(
        self, log: Path, environment: Mapping[str, str] | None = None, *, has_tvm: bool = True, own_group: bool = True
    ) -> None:
        self._log, self._environment, self._has_tvm, self._own_group = log, environment, has_tvm, own_group
        self._process: subprocess.Popen[bytes] | None = None
        self._link: Connection | None = None
        self._closing = Lock()

    def start(self) -> None:
        """Start the process without waiting for it; :meth:`call` waits."""
        if self._process is not None:
            return
        own_end, worker_end = Pipe()
        with worker_end, self._log.open("ab") as log:
            self._process = start_child(
                "syno_lab.processes.worker",
                [str(worker_end.fileno()), *(["tvm"] if self._has_tvm else [])],
                log=log,
                pass_fds=[worker_end.fileno()],
                environment=self._environment,
                own_group=self._own_group,
            )
        self._link, self._ready = own_end, False

    def call(self, function: Callable[[*_Given], _T], *arguments: *_Given, deadline_s: float) -> _T:
        """Return ``function(*arguments)`` from the process, which imports the function by its module and name.

        Raises :class:`CallFailedError`, and :class:`TrackerError` where the function raised TrackerError.
        """
        self.start()
        name = function.__name__.lstrip("_")
        if not self._ready:
            self._wait(START_DEADLINE_S, "start")
            self._linked(name, Connection.recv)
            self._ready = True
        self._linked(name, lambda link: link.send((function, arguments, False)))
        self._wait(deadline_s, name)
        result: _T = _value(*self._linked(name, Connection.recv))
        return result

    def talk(self, function: Callable[..., None], *arguments: Any, period_s: float) -> Iterator[Any]:
        """Yield messages of ``function(say, hear, *arguments)`` in the process; None after a silent ``period_s``.

        The iterator ends with the function. :meth:`tell` sends messages to the function. Raises as :meth:`call` does.
        """
        self.start()
        name = function.__name__.lstrip("_")
        self._linked(name, lambda link: link.send((function, arguments, True)))
        while True:
            if not self._linked(name, lambda link: link.poll(period_s)):
                yield None
                continue
            kind, value = self._linked(name, Connection.recv)
            if kind == "said":
                yield value
            elif kind == "ready":
                self._ready = True
            else:
                return _value(kind, value)

    def tell(self, message: object) -> None:
        """Send a message to the function of :meth:`talk`. If the process has died, :meth:`talk` raises."""
        with suppress(OSError):
            if self._link is not None:
                self._link.send(message)

    def _linked(self, name: str, use: Callable[[Connection], _T]) -> _T:
        """Return ``use(pipe)``. Raises CrashedError where the process died, or another thread closed the pipe."""
        link = self._link
        with suppress(EOFError, OSError):
            if link is not None:
                return use(link)
        process = self._process
        if process is None:  # another thread closed the worker during this call
            raise CrashedError(name, _KILLED)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        self.close()
        raise CrashedError(name, describe_exit(process.returncode))

    def _wait(self, deadline_s: float, name: str) -> None:
        if not self._linked(name, lambda link: link.poll(deadline_s)):
            self.close()
            raise CallFailedError(f"{name}: not done after {deadline_s:g} s, killed")

    def close(self) -> None:
        """Kill the process. If the process is in this group, its children end with its pipe or with the group."""
        # A pool closes its workers while threads wait for results. Each thread then closes its worker.
        with self._closing:
            process, link = self._process, self._link
            self._process = self._link = None
        if process is not None and self._own_group:
            end_group(process)
        elif process is not None:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
        if link is not None:
            link.close()


def _value(kind: str, value: Any) -> Any:
    if kind == "tracker":
        raise TrackerError(value)
    if kind == "error":
        raise CallFailedError(value)
    return value


def once(
    label: str,
    function: Callable[[*_Given], _T],
    *arguments: *_Given,
    deadline_s: float,
    threads: int | None = None,
    has_tvm: bool = True,
) -> _T:
    """Return ``function(*arguments)`` from a new process; TVM runs operators there in ``threads`` threads.

    The process and its temporary folder end with the call. Raises TuningError with one line that begins with ``label``
    where the function raised, crashed its process or timed out; TrackerError where the function raised TrackerError.
    """
    with scratch("syno-worker-") as folder:
        environment = {"TMPDIR": str(folder)} | ({} if threads is None else {"TVM_NUM_THREADS": str(threads)})
        try:
            with closing(Worker(folder / "log", environment, has_tvm=has_tvm)) as worker:
                return worker.call(function, *arguments, deadline_s=deadline_s)
        except CallFailedError as failure:
            more = ""
            if isinstance(failure, CrashedError):
                more = ", as the system does where memory runs out" if failure.ended == _KILLED else ""
                more += f", saying {last!r}" if (last := last_line(folder / "log")) else ""
            raise TuningError(f"{label}: {failure}{more}") from None


_KILLED = describe_exit(-signal.SIGKILL)


class WorkerPool:
    """Workers that share the calls. Each worker gets the variables ``environment``. The caller must close the pool."""

    def __init__(self, size: int, log: Path, environment: Mapping[str, str] | None = None) -> None:
        # The workers are in this process's group, so that a kill of the tuning kills its workers.
        self._all = [Worker(log, environment, own_group=False) for _ in range(size)]
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="tuning-pool")
        for worker in self._all:
            worker.start()
            self._idle.put(worker)

    def call(self, function: Callable[[*_Given], _T], *arguments: *_Given, deadline_s: float) -> _T:
        """Call a function on the next idle worker, as :meth:`Worker.call` does; ``deadline_s`` excludes the wait."""
        worker = self._idle.get()
        try:
            return worker.call(function, *arguments, deadline_s=deadline_s)
        finally:
            self._idle.put(worker)

    def run(self, steps: Callable[[], _T]) -> Future[_T]:
        """Run ``steps()``, with several calls in sequence, in a thread of the pool."""
        return self._threads.submit(steps)

    def submit(self, function: Callable[[*_Given], _T], *arguments: *_Given, deadline_s: float) -> Future[_T]:
        """Return a future of the result of :meth:`call`."""
        return self._threads.submit(lambda: self.call(function, *arguments, deadline_s=deadline_s))

    def close(self) -> None:
        """Kill all workers. Running calls fail."""
        for worker in self._all:
            worker.close()
        self._threads.shutdown(wait=True, cancel_futures=True)


def _main(arguments: list[str]) -> None:
    follow_parent(int(arguments[0]))
    link: Connection = Connection(int(arguments[1]))
    if arguments[2:]:
        from syno_lab.processes.light import import_tvm, tame_intrinsics

        import_tvm()
        tame_intrinsics()  # a scheduled candidate already contains the code of its intrinsics
    link.send(("ready", None))

    def say(message: object) -> None:
        link.send(("said", message))

    while True:
        try:
            function, values, is_talk = link.recv()
        except EOFError:
            return
        answer: tuple[str, Any]
        try:
            answer = ("value", function(say, link.recv, *values) if is_talk else function(*values))
        except TrackerError as error:
            answer = ("tracker", str(error))
        except Exception as error:  # noqa: BLE001 - any exception is a result for the caller
            traceback.print_exc()
            answer = ("error", str(error) if isinstance(error, SynoError) else one_line(error))
        link.send(answer)


if __name__ == "__main__":
    _main(sys.argv[1:])
