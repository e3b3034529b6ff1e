"""Child processes of the tests that begin warm: forks of a process that has imported torch, TVM and Dask already.

A worker that starts and imports TVM takes 1 CPU-second; a forked worker takes 0.03. After :func:`install`,
``subprocess.Popen`` forks the processes of ``WARM`` instead of starting them. A forked process has the same parent,
session, files, environment and arguments as a started process, and it ends in the same way. All other commands start.
:func:`forking` says otherwise for a test of process starts, of light imports or of trust.

The process that forks is called the *nursery*. It has one thread and runs nothing between its imports and a fork. It
forks with ``CLONE_PARENT``, so the parent of a new process is the nursery's own parent: the process that calls
``Popen``. Each forked process therefore makes a nursery of its own at once, before it starts any thread.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import importlib
import inspect
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

#: Modules that are run in a fork, by ``python -P -m MODULE``.
WARM = {"syno_lab.processes.worker", "syno_lab.processes.serve", "syno_lab.jobs.child", "dask"}
#: What tests marked ``warm`` run in a fork: ``python -m MODULE``, ``python FILE.py``, and programs by ``python -c``.
PROGRAM = "syno_lab.cli"
#: What a nursery imports: the long imports of these modules, and what torch imports at its first optimizer.
IMPORTS = (
    "torch",
    "torch._dynamo",
    "distributed.cli.dask_scheduler",
    "distributed.cli.dask_worker",
    "syno_lab.jobs.child",
    "syno_lab.trial.run",
    "syno_lab.tuning.tune",
    "tvm.rpc.server",
    "tvm.rpc.tracker",
)
#: Variables that a library reads while it is imported: where one of them differs, the process is started.
_READ_AT_IMPORT = ("LD_", "FAKETIME", "OMP_", "MKL_", "OPENBLAS_", "TVM_", "TORCH", "DASK_", "PYTHON")
#: TVM reads its number of threads when it first runs operators.
_READ_LATER = ("PYTHONUNBUFFERED", "PYTHONPATH", "TVM_NUM_THREADS")
#: A long variable and a long argument, so that /proc has room for the environment of a fork and for its command: a
#: job's processes are found by the former, a board's by the latter.
_ROOM = "SYNO_LAB_TESTS_ROOM", "x" * 16_000

_CLONE_PARENT, _CLONE_CHILD_SETTID, _CLONE_CHILD_CLEARTID = 0x8000, 0x0100_0000, 0x0020_0000
_SYS_CLONE = {"x86_64": 56, "aarch64": 220}
_PR_SET_PDEATHSIG = 1

_started = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_signature = inspect.signature(_started)
_guard = threading.Lock()
_nursery: socket.socket | None = None
_python = sys.executable  # a test may name another
_forked: Literal["none", "own", "programs"] = "own"


def install() -> None:
    """Let ``subprocess.Popen`` fork the processes of ``WARM``, on Linux. The nursery imports at the first request."""
    if sys.platform == "linux" and os.uname().machine in _SYS_CLONE:
        subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]
        _start_nursery()


@contextlib.contextmanager
def forking(commands: Literal["none", "own", "programs"]) -> Iterator[None]:
    """Within the block, fork for no command, for the engine's ``own`` commands, or for the tests' programs too."""
    global _forked
    before, _forked = _forked, commands
    try:
        yield
    finally:
        _forked = before


def _execute_child(popen: subprocess.Popen[Any], *given: Any, **named: Any) -> None:
    """Fork the process where that is possible, else start it; replaces ``Popen``'s method of this name."""
    asked = _signature.bind(popen, *given, **named).arguments
    if not _can_fork(asked):
        return _started(popen, *given, **named)
    pipes = [asked[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
    streams = [own if end == -1 else end for own, end in enumerate((pipes[0], pipes[3], pipes[5]))]
    passed = sorted(asked["pass_fds"])
    request = {
        "argv": list(map(os.fspath, asked["args"])),
        "environment": dict(os.environ if asked["env"] is None else asked["env"]),
        "folder": str(Path.cwd()) if asked["cwd"] is None else os.fspath(asked["cwd"]),
        "passed": passed,
        "umask": asked["umask"],
        "has_session": asked["start_new_session"],
        "group": os.getpgrp(),
    }
    pid = _ask(request, [*streams, *passed])
    if pid is None:
        return _started(popen, *given, **named)
    popen.pid, popen._child_created = pid, True  # type: ignore[attr-defined]
    popen._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
    return None


def _can_fork(asked: Mapping[str, Any]) -> bool:
    args, environment = asked["args"], asked["env"]
    if (
        _forked == "none"
        or isinstance(args, str | bytes | os.PathLike)
        or asked["shell"]
        or asked["executable"] is not None
    ):
        return False
    head = list(args[1:4])
    is_inner = head[:2] == ["-P", "-m"] and head[2] in WARM
    is_code = head[:1] == ["-c"] or head[:2] in (["-P", "-c"], ["-m", PROGRAM]) or str(*head[:1]).endswith(".py")
    is_program = _forked == "programs" and is_code
    if args[0] != _python or not (is_inner or is_program):
        return False
    if asked["preexec_fn"] is not None or any(asked[name] not in (None, -1) for name in ("uid", "gid", "gids")):
        return False
    if not asked["close_fds"] or asked.get("process_group", -1) != -1:
        return False
    return environment is None or _read_at_import(environment) == _read_at_import(os.environ)


def _read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_AT_IMPORT) and name not in _READ_LATER
    }


def _ask(request: Mapping[str, Any], files: Sequence[int]) -> int | None:
    """Return the number of a process that the nursery has forked, or None where the nursery has ended."""
    global _nursery
    with _guard:
        if _nursery is None:
            return None
        try:
            data = json.dumps(request).encode()
            head = len(data).to_bytes(4, "big")
            _nursery.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
            _nursery.sendall(data)
            answer = _received(_nursery, 4)
            return int.from_bytes(answer, "big") or None
        except OSError:
            sys.stderr.write("warm.py: the nursery has ended; from now on processes start\n")
            _nursery.close()
            _nursery = None
            return None


def _received(link: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = link.recv(count - len(data))
        if not part:
            raise ConnectionResetError
        data += part
    return data


def _start_nursery() -> None:
    """Start the first nursery, which imports at the first request."""
    global _nursery
    _nursery, theirs = socket.socketpair()
    environment = {**os.environ, _ROOM[0]: _ROOM[1], "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with theirs:
        subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno()), str(os.getpid()), _ROOM[1][:4_000]],
            pass_fds=[theirs.fileno()],
            env=environment,
        )


def _fork_nursery() -> None:
    """Fork the nursery of this process, which has one thread and has imported everything."""
    global _nursery
    _nursery, theirs = socket.socketpair()
    parent = os.getpid()
    if os.fork():
        theirs.close()
        return
    _nursery.close()
    _nursery = None
    _follow(parent)
    _show(["nursery"], {})  # a test that looks for the process by its command or its environment finds it alone
    # The nursery closes the process's files, because a reader of a pipe waits until every writer has closed it.
    nothing = os.open(os.devnull, os.O_RDWR)
    for file in range(3):
        os.dup2(nothing, file)
    for file in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if file > 2 and file != theirs.fileno():
            with contextlib.suppress(OSError):
                os.close(file)
    _serve(theirs)


def _follow(parent: int) -> None:
    """End this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _serve(link: socket.socket) -> None:
    """Fork a process for each request until the other end of the link is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            head, files, _, _ = socket.recv_fds(link, 4, 64)
            if not head:
                os._exit(0)
            request = json.loads(_received(link, int.from_bytes(head, "big")))
        except OSError:
            os._exit(0)
        _import_all()
        pid = _fork_for_parent()
        if pid == 0:
            link.close()
            _become(request, files)
        for file in files:
            os.close(file)
        try:
            link.sendall(max(0, pid).to_bytes(4, "big"))
        except OSError:
            os._exit(0)


def _import_all() -> None:
    if gc.get_freeze_count():
        return
    from syno_lab.processes.light import import_tvm

    import_tvm()
    for name in IMPORTS:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a fork would copy all that is shared
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        sys.stderr.write(f"warm.py: no forks, as the imports have started {threads - 1} threads\n")
        os._exit(1)


def _fork_for_parent() -> int:
    """Fork as ``os.fork()`` does, but make the new process a child of this process's parent."""
    libc = ctypes.PyDLL(None)
    libc.syscall.restype = libc.pthread_self.restype = ctypes.c_long
    flags, thread = _CLONE_PARENT | signal.SIGCHLD, ctypes.c_void_p(0)
    # The C library keeps the thread's identifier in a record of the thread. The kernel writes the new one there.
    own = ctypes.cast(libc.pthread_self(), ctypes.POINTER(ctypes.c_int))
    for place in range(150, 250):
        if own[place] == os.getpid() and own[place] != own[place - 1]:
            flags |= _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
            thread = ctypes.c_void_p(libc.pthread_self() + 4 * place)
            break
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    machine = os.uname().machine
    last = (ctypes.c_long(0), thread) if machine == "aarch64" else (thread, ctypes.c_long(0))
    pid = int(libc.syscall(_SYS_CLONE[machine], ctypes.c_long(flags), ctypes.c_long(0), ctypes.c_long(0), *last))
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return pid


def _become(request: Mapping[str, Any], files: Sequence[int]) -> NoReturn:
    """Set up this process as the request says, run its program, and end."""
    if request["has_session"]:
        os.setsid()
    elif os.getpgrp() != request["group"]:
        os.setpgid(0, request["group"])
    high = [os.dup(file) for file in _beyond(files, [*range(3), *request["passed"]])]
    for file in files:
        os.close(file)
    for source, target in zip(high, [*range(3), *request["passed"]], strict=True):
        os.dup2(source, target)
        os.close(source)
    os.chdir(request["folder"])
    if request["umask"] >= 0:
        os.umask(request["umask"])
    environment = request["environment"]
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # the imports have asked for it, and the environment names another folder
    _show(request["argv"], environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    is_direct = bool(environment.get("PYTHONUNBUFFERED"))
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(
            open(number, "wb", buffering=0 if is_direct else -1, closefd=False),  # noqa: SIM115
            errors=errors,
            write_through=is_direct,
            line_buffering=number == 2,
        )
        for number, errors in ((1, "strict"), (2, "backslashreplace"))
    )
    for entry in reversed(environment.get("PYTHONPATH", "").split(os.pathsep)):
        if entry and entry not in sys.path:
            sys.path.insert(0, entry)
    _fork_nursery()
    sys.orig_argv = request["argv"]
    words = request["argv"]
    at = next(place for place, word in enumerate(words) if word in ("-c", "-m") or word.endswith(".py"))
    options, kind, rest = words[1:at], words[at], words[at + 1 :]
    sys.argv = {"-c": ["-c", *rest[1:]], "-m": rest}.get(kind, [kind, *rest])
    if "-P" not in options:
        sys.path.insert(0, {"-c": "", "-m": request["folder"]}.get(kind, str(Path(kind).resolve().parent)))
    # runpy warns of a module that was imported before; here that is intended.
    warnings.filterwarnings("ignore", ".*found in sys.modules after import of package", RuntimeWarning)
    code = 0
    try:
        if kind == "-m":
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            if kind == "-c":
                program = compile(rest[0], "<string>", "exec")
            else:
                main.__file__ = kind
                program = compile(Path(kind).read_bytes(), kind, "exec")
            exec(program, vars(main))
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does at its end
        sys.excepthook(*sys.exc_info())
        code = 1
    _end(code)


def _beyond(files: Sequence[int], targets: Sequence[int]) -> Iterator[int]:
    """Yield the files while every number up to the highest target is open, so that no copy gets a target's number."""
    highest = max([*targets, *files])
    last = os.open(os.devnull, os.O_RDONLY)
    fillers = [last]
    while fillers[-1] <= highest:
        fillers.append(os.dup(last))
    yield from files
    for filler in fillers:
        os.close(filler)


def _end(code: int) -> NoReturn:
    """End as an interpreter does: join the threads that are no daemons, run the exit functions, flush the streams."""
    with contextlib.suppress(Exception):
        threading._shutdown()  # type: ignore[attr-defined]
    import atexit

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


def _show(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Write command and environment where the system shows them (``/proc/PID``), the shortest variables first."""
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    variables = (f"{name}={value}" for name, value in sorted(environment.items(), key=lambda one: len(one[1])))
    for first, entries in ((45, argv), (47, variables)):  # proc(5): arg_start and arg_end, env_start and env_end
        begin, room = int(fields[first]), int(fields[first + 1]) - int(fields[first])
        text = b""
        for entry in map(os.fsencode, entries):
            text += entry + b"\0" if len(text) + len(entry) + 1 < room else b""
        ctypes.memset(begin, 0, room)
        ctypes.memmove(begin, text, len(text))


if __name__ == "__main__":
    import warm  # forks import it by this name, and its globals must not be there twice

    os.environ.pop(_ROOM[0])
    subprocess.Popen._execute_child = warm._execute_child  # type: ignore[attr-defined]
    warm._follow(int(sys.argv[2]))
    warm._serve(socket.socket(fileno=int(sys.argv[1])))
