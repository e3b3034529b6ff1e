"""A worker process that runs one call at a time: a call that crashes or never ends takes down only this process.

TVM's own pools start new processes for each batch and rely on a thread inside the worker to notice a timeout; here the
process lives for the whole tuning, has imported TVM before a call's time starts, and is killed from outside. What runs
on this machine alone runs in a fork (:func:`apart`): what was imported is there at once.
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

#: For a process that gave its answer to end by itself.
_PATIENCE_S = 5.0


def apart(deadline_s: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """``function(*arguments)`` in a fork of this process, which should have one thread at work.

    Raises TuningError with one line, where the function raised, crashed its process, or was not done in ``deadline_s``
    seconds and was killed.
    """
    forks = multiprocessing.get_context("fork")
    ours, theirs = forks.Pipe(duplex=False)
    process = forks.Process(target=_run, args=(theirs, os.getpid(), function, arguments))
    process.start()
    theirs.close()
    try:
        if not ours.poll(deadline_s):
            raise TuningError(f"{function.__name__}: not done after {deadline_s:g} s, killed")
        is_value, answer = ours.recv()
    except EOFError:
        process.join(_PATIENCE_S)
        ended = describe_exit(process.exitcode)
        if process.exitcode == -signal.SIGKILL:
            ended += ", as the system does where memory runs out"
        raise TuningError(f"{function.__name__}: the process was {ended}") from None
    finally:
        process.kill()
        process.join()
        ours.close()
    if not is_value:
        raise TuningError(answer)
    return answer


def _run(link: Connection, parent: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    follow_parent(parent)  # threads do not survive a fork
    try:
        answer = True, function(*arguments)
    except Exception as error:  # noqa: BLE001 - whatever a candidate does is its result, reported to the caller
        traceback.print_exc()
        answer = False, str(error) if isinstance(error, SynoError) else one_line(error)
    link.send(answer)


def one_line(error: BaseException) -> str:
    """The gist of an exception in one line; TVM's texts carry C++ stacks and put the reason last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {printable(lines[-1], 300)}" if lines else type(error).__name__


#: A new worker imports TVM, which took half a minute on a busy machine.
START_DEADLINE_S = 120.0

_T = TypeVar("_T")
_Given = TypeVarTuple("_Given")


class CallFailedError(Exception):
    """A call raised in its worker, crashed it or ran out of time; the message is one line."""


class CrashedError(CallFailedError):
    """A call's process ended before it answered; ``ended`` says how: ``killed by SIGSEGV``."""

    def __init__(self, what: str, ended: str) -> None:
        super().__init__(f"{what}: the process {'was' if ended.startswith('killed') else 'ended with'} {ended}")
        self.ended = ended


class Worker:
    """One worker process, started on first use, and again after a crash or a timeout; to be closed.

    Args:
        log: the file to whose end its output goes.
        environment: variables that are added to ours.
        has_tvm: TVM is imported before the first call.
        own_group: the process leads a group, which ends with it; else it is of our group.
    """

    def __init__(
        self,
        log: Path,
        environment: Mapping[str, str] | None = None,
        *,
        has_tvm: bool = True,
        own_group: bool = True,
    ) -> None:
        self._log, self._environment, self._has_tvm, self._own_group = log, environment, has_tvm, own_group
        self._process: subprocess.Popen[bytes] | None = None
        self._link: Connection | None = None
        self._closing = Lock()

    def start(self) -> None:
        """Start the process without waiting for it; :meth:`call` waits for it."""
        if self._process is not None:
            return
        ours, theirs = Pipe()
        with theirs, self._log.open("ab") as log:
            self._process = start_child(
                "syno_lab.processes.worker",
                [str(theirs.fileno()), *(["tvm"] if self._has_tvm else [])],
                log=log,
                pass_fds=[theirs.fileno()],
                environment=self._environment,
                own_group=self._own_group,
            )
        self._link, self._ready = ours, False

    def call(self, function: Callable[[*_Given], _T], *arguments: *_Given, deadline_s: float) -> _T:
        """``function(*arguments)`` in the process; the function is found there by its module and name.

        Raises :class:`CallFailedError`, and :class:`TrackerError` where the function raised one.
        """
        self.start()
        name = function.__name__.lstrip("_")
        if not self._ready:
            self._wait(START_DEADLINE_S, "start")
            self._linked(name, Connection.recv)
            self._ready = True
        self._linked(name, lambda link: link.send((function, arguments, False)))
        self._wait(deadline_s, name)
        found: _T = _value(*self._linked(name, Connection.recv))
        return found

    def talk(self, function: Callable[..., None], *arguments: Any, period_s: float) -> Iterator[Any]:
        """What ``function(say, hear, *arguments)`` says in the process; None after each ``period_s`` without a word.

        It ends when the function does. What the function hears is given to :meth:`tell`. Raises as :meth:`call` does.
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
        """Let the function of :meth:`talk` hear something; if its process has died, :meth:`talk` raises."""
        with suppress(OSError):
            if self._link is not None:
                self._link.send(message)

    def _linked(self, name: str, use: Callable[[Connection], _T]) -> _T:
        """What ``use`` gives for the pipe. Raises CrashedError where the process died, or another thread closed it."""
        link = self._link
        with suppress(EOFError, OSError):
            if link is not None:
                return use(link)
        raise self._crash(name)

    def _wait(self, deadline_s: float, what: str) -> None:
        if not self._linked(what, lambda link: link.poll(deadline_s)):
            self.close()
            raise CallFailedError(f"{what}: not done after {deadline_s:g} s, killed")

    def _crash(self, name: str) -> CrashedError:
        process = self._process
        if process is None:  # closed by another thread in the middle of this call
            return CrashedError(name, _KILLED)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        self.close()
        return CrashedError(name, describe_exit(process.returncode))

    def close(self) -> None:
        """Kill the process. Children of one in our group end with its pipe or with the group."""
        # A pool closes its workers while their threads wait for answers, and each of these threads closes too.
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
    """``function(*arguments)`` in a process of its own, which ends with it; TVM runs operators in ``threads`` threads.

    Its folder for temporary files is removed with it. Raises TuningError where it raised, crashed its process or ran
    out of time: one line that begins with ``label``; TrackerError where it raised one.
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
                more += f", saying {said!r}" if (said := last_line(folder / "log")) else ""
            raise TuningError(f"{label}: {failure}{more}") from None


_KILLED = describe_exit(-signal.SIGKILL)


class WorkerPool:
    """Several workers that take calls in turn; ``environment`` is added to theirs. To be closed."""

    def __init__(self, size: int, log: Path, environment: Mapping[str, str] | None = None) -> None:
        # In this process's group, so that killing the tuning kills its workers.
        self._all = [Worker(log, environment, own_group=False) for _ in range(size)]
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="tuning-pool")
        for worker in self._all:
            worker.start()
            self._idle.put(worker)

    def call(self, function: Callable[[*_Given], _T], *arguments: *_Given, deadline_s: float) -> _T:
        """Like :meth:`Worker.call`, on the next idle worker; the time to wait for one does not count."""
        worker = self._idle.get()
        try:
            return worker.call(function, *arguments, deadline_s=deadline_s)
        finally:
            self._idle.put(worker)

    def run(self, steps: Callable[[], _T]) -> Future[_T]:
        """Run ``steps()`` in a thread of the pool: several calls, one after the other."""
        return self._threads.submit(steps)

    def submit(self, function: Callable[[*_Given], _T], *arguments: *_Given, deadline_s: float) -> Future[_T]:
        """:meth:`call` as a future."""
        return self._threads.submit(lambda: self.call(function, *arguments, deadline_s=deadline_s))

    def close(self) -> None:
        """Kill all workers; calls under way fail."""
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
            function, given, is_talk = link.recv()
        except EOFError:
            return
        answer: tuple[str, Any]
        try:
            answer = ("value", function(say, link.recv, *given) if is_talk else function(*given))
        except TrackerError as error:
            answer = ("tracker", str(error))
        except Exception as error:  # noqa: BLE001 - an exception is the candidate's result, reported to the caller
            traceback.print_exc()
            answer = ("error", str(error) if isinstance(error, SynoError) else one_line(error))
        link.send(answer)


if __name__ == "__main__":
    _main(sys.argv[1:])
