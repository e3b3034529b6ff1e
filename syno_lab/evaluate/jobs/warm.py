"""A process that has imported what a kind of job needs and forks those that do it: ``python -m … <fd> <modules>``.

Importing torch and what an optimiser pulls in takes four CPU-seconds, which is more than some trainings take. A process
that is forked has them at once, and shares their memory. It is what it would be had it been started by itself: a
session of its own, the log as its output, its attempt's token in the environment that others can read, and no threads
or generators that it did not draw itself. Where any of that cannot be had, it starts itself by ``exec`` after all.

The worker that supervises jobs talks to it over a socket, in JSON; when the worker is gone, so is this process, and
the forked ones go on. For Linux alone: elsewhere nobody starts it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from syno_lab.evaluate.jobs import alive

#: In place of a token; it is overwritten where it lies, so it is as long as one.
PLACEHOLDER = "0" * 32
#: NumPy's BLAS starts threads when it is imported, which a fork would lose; a forked process starts its own.
BLAS_VARIABLE = "OPENBLAS_NUM_THREADS"
#: Where what that was is kept for them meanwhile.
KEPT_VARIABLE = "SYNO_LAB_BLAS_THREADS"
LARGEST_MESSAGE = 1 << 16
_MODULE = "syno_lab.evaluate.jobs.child"


def command(root: str, number: int, token: str) -> list[str]:
    """What starts the process of an attempt by itself."""
    return [sys.executable, "-P", "-m", _MODULE, root, str(number), token]


def serve(channel: socket.socket, modules: Iterable[str]) -> tuple[str, int, str] | None:
    """Import, then fork and reap as asked; None when nobody asks any more.

    Returns in each forked process as well, with the lab's folder, the job's number and the token.
    """
    for module in modules:
        with contextlib.suppress(ImportError):  # the job says so itself, in its log
            importlib.import_module(module)
    libc = ctypes.CDLL(None)
    libc.getenv.restype, libc.getenv.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    paths = [getattr(module, "__dict__", {}).get("__file__") for module in list(sys.modules.values())]
    written = _written(paths)
    gc.collect()
    gc.freeze()  # a collection would write to all the memory that is shared
    _send(channel, {"ready": _threads()})
    while True:
        message, passed, _, _ = socket.recv_fds(channel, LARGEST_MESSAGE, 1)
        if not message:
            return None
        request = json.loads(message)
        if "reap" in request:
            _send(channel, _reap(request["reap"]))
            continue
        (log,) = passed
        if _written(written) != written:
            os.close(log)
            _send(channel, {"refused": "what was imported has changed since"})
            continue
        root, number, token = request["start"]
        pid = os.fork()
        if pid == 0:
            try:
                _become(channel, libc, log, root, number, token)
            except BaseException:  # noqa: BLE001 - whatever it is, this is not the process to go on with
                os._exit(1)
            return root, number, token
        os.close(log)
        _send(channel, {"pid": pid})


def _become(channel: socket.socket, libc: ctypes.CDLL, log: int, root: str, number: int, token: str) -> None:
    """Make a forked process what one that was started by itself would be."""
    channel.close()
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    for descriptor, place in ((null, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, place)
    os.close(null)
    os.close(log)
    os.chdir(root)
    marked = _mark(libc, token)
    os.environ[alive.TOKEN_VARIABLE] = token  # for the processes that it starts
    threads = os.environ.pop(KEPT_VARIABLE, "")
    del os.environ[BLAS_VARIABLE]
    if threads:
        os.environ[BLAS_VARIABLE] = threads
    if not marked or _has_lost_cuda():
        words = command(root, number, token)
        os.execv(words[0], words)  # noqa: S606 - our own interpreter
    sys.argv = [_MODULE, root, str(number), token]
    if "threadpoolctl" in sys.modules:
        wanted = threads or os.environ.get("OMP_NUM_THREADS", "")  # as OpenBLAS itself reads them
        cores = len(os.sched_getaffinity(0))
        cores = min(cores, int(wanted)) if wanted.isdecimal() else cores
        sys.modules["threadpoolctl"].threadpool_limits(cores, user_api="blas")
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # else every job would draw the same; Python draws its own anew by itself


def _has_lost_cuda() -> bool:
    """Whether something asked for a GPU before the fork: CUDA cannot be used after it."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(getattr(torch.cuda, "_is_in_bad_fork", bool)())


def _mark(libc: ctypes.CDLL, token: str) -> bool:
    """Write the token into this process's environment where others read it; whether they do.

    ``/proc/<pid>/environ`` shows the memory in which the environment was when the program began, which is ours.
    """
    place = libc.getenv(alive.TOKEN_VARIABLE.encode())
    if not place or ctypes.string_at(place) != PLACEHOLDER.encode() or len(token) != len(PLACEHOLDER):
        return False
    ctypes.memmove(place, token.encode(), len(token))
    with contextlib.suppress(OSError):
        return f"{alive.TOKEN_VARIABLE}={token}".encode() in Path("/proc/self/environ").read_bytes().split(b"\0")
    return False


def _reap(pid: int) -> dict[str, Any]:
    """End what the process has left in its group, and say how it ended; it has."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # its number is not given out before we reap it
    try:
        _, status, usage = os.wait4(pid, 0)
    except ChildProcessError:
        return {"code": None, "cpu_s": 0.0}
    return {"code": os.waitstatus_to_exitcode(status), "cpu_s": usage.ru_utime + usage.ru_stime}


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def _written(paths: Iterable[object]) -> dict[str, int]:
    """When the files among ``paths`` were written."""
    found = {}
    for path in paths:
        if isinstance(path, str):
            with contextlib.suppress(OSError):
                found[path] = os.stat(path).st_mtime_ns  # noqa: PTH116 - thousands of them at each start
    return found


def _send(channel: socket.socket, answer: dict[str, Any]) -> None:
    channel.sendall(json.dumps(answer).encode())


def main(arguments: list[str]) -> None:
    """Serve; in a forked process, do the job."""
    try:
        started = serve(socket.socket(fileno=int(arguments[0])), arguments[1:])
    except ConnectionError:  # who asked was killed, and cannot be told
        return
    if started is not None:
        from syno_lab.evaluate.jobs import child

        child.main([str(word) for word in started])


if __name__ == "__main__":
    main(sys.argv[1:])
