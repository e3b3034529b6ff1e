"""How the process of an attempt is started: by itself, or forked by one that has imported what it needs.

Either is in a session of its own, has its attempt's token in its environment and its output in the attempt's log.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syno_lab.errors import JobError
from syno_lab.evaluate.jobs import alive, warm
from syno_lab.evaluate.jobs.kinds import WARM_IMPORTS, kinds, warm_kinds

#: Seconds within which a warm process must have imported all, and those within which it must answer then.
IMPORT_S, ANSWER_S = 300.0, 60.0
#: After so many that died or did not answer, everything is started by itself.
MOST_FAILURES = 3


class StartLostError(JobError):
    """Whether the process was started is not known: its attempt must not be gone on with."""


@dataclass(frozen=True)
class Started:
    """A process of an attempt: ``end()`` once it has ended gives its exit code and the CPU-seconds that it had.

    What it left in its group is killed then. The code is None where it cannot be known.
    """

    pid: int
    end: Callable[[], tuple[int | None, float]]


def start(root: Path, number: int, token: str, log: Path, kind: str) -> Started:
    """Start the process of an attempt.

    Raises:
        OSError: it cannot be started.
        StartLostError: it may have been, but the attempt must be given up.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        started = None
        if kind in warm_kinds() and sys.platform == "linux" and len(token) == len(warm.PLACEHOLDER):
            started = _nursery.start(root, number, token, output.fileno())
        return started or _alone(root, number, token, output.fileno())


def _alone(root: Path, number: int, token: str, output: int) -> Started:
    child = subprocess.Popen(
        warm.command(str(root), number, token),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd=root,
        env=_environment(token),
        start_new_session=True,
    )

    def end() -> tuple[int | None, float]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)  # its number is not given out before we reap it
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        return child.returncode, usage.ru_utime + usage.ru_stime

    return Started(child.pid, end)


def _environment(token: str) -> dict[str, str]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", alive.TOKEN_VARIABLE: token}


class _Server:
    """One warm process and what it has forked."""

    def __init__(self, modules: Sequence[str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = _environment(warm.PLACEHOLDER)
        environment[warm.KEPT_VARIABLE] = environment.get(warm.BLAS_VARIABLE, "")
        environment[warm.BLAS_VARIABLE] = "1"
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "syno_lab.evaluate.jobs.warm", str(theirs.fileno()), *modules],
                stdin=subprocess.DEVNULL,
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._channel = ours
        self._guard = threading.Lock()
        self._children = 0
        self._is_retired = False
        self.is_fit = self._answer(IMPORT_S).get("ready") == 1  # one thread: it may fork

    def start(self, root: Path, number: int, token: str, output: int) -> Started | None:
        """Fork; None where it will not. Raises StartLostError where it does not answer."""
        with self._guard:
            answer = self._ask({"start": [str(root), number, token]}, [output])
            if "pid" not in answer:
                return None
            self._children += 1
        pid = int(answer["pid"])
        return Started(pid, lambda: self._end(pid))

    def _end(self, pid: int) -> tuple[int | None, float]:
        with self._guard:
            self._children -= 1
            try:
                answer = self._ask({"reap": pid})
            except StartLostError:
                answer = {"code": None, "cpu_s": 0.0}
            if self._is_retired and not self._children:
                self._close()
        return answer["code"], answer["cpu_s"]

    @property
    def is_up(self) -> bool:
        """Whether it can be asked, as far as one can tell without asking."""
        return self._channel.fileno() >= 0 and self._process.poll() is None

    def retire(self) -> None:
        """Let it go when the last of its children has ended."""
        with self._guard:
            self._is_retired = True
            if not self._children:
                self._close()

    def _ask(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any]:
        try:
            socket.send_fds(self._channel, [json.dumps(request).encode()], descriptors)
        except OSError as error:
            raise StartLostError(f"the process that starts jobs is gone ({error})") from None
        return self._answer(ANSWER_S)

    def _answer(self, seconds: float) -> dict[str, Any]:
        self._channel.settimeout(seconds)
        try:
            message = self._channel.recv(warm.LARGEST_MESSAGE)
        except OSError as error:
            message, reason = b"", str(error)
        else:
            reason = "it ended"
        if not message:
            self._close()
            raise StartLostError(f"the process that starts jobs does not answer ({reason})")
        found: dict[str, Any] = json.loads(message)
        return found

    def _close(self) -> None:
        """It ends when nobody can ask it any more; where it hangs, at once."""
        self._channel.close()

        def wait() -> None:
            try:
                self._process.wait(5.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

        threading.Thread(target=wait, name=f"reap-{self._process.pid}", daemon=True).start()


class _Nursery:
    """The warm process of this one, if there is one; started with the first job that it can do."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._server: _Server | None = None
        self._failures = 0

    def start(self, root: Path, number: int, token: str, output: int) -> Started | None:
        """Fork; None where the process must be started by itself. Raises StartLostError."""
        with self._guard:
            for _ in range(2):  # the second where what the first had imported has changed
                server = self._fit()
                if server is None:
                    return None
                try:
                    started = server.start(root, number, token, output)
                except StartLostError:
                    self._failures += 1
                    self._server = None
                    raise
                if started is not None:
                    return started
                server.retire()
                self._server = None
        return None

    def _fit(self) -> _Server | None:
        if self._server is not None and not self._server.is_up:
            self._failures += 1
            self._server.retire()
            self._server = None
        if self._server is None and self._failures < MOST_FAILURES:
            try:
                self._server = _Server(_modules())
            except (StartLostError, OSError):
                self._failures += 1
            else:
                if not self._server.is_fit:
                    self._server.retire()
                    self._server, self._failures = None, MOST_FAILURES
        return self._server


def _modules() -> list[str]:
    """What is worth having imported: what the warm kinds are in, and what they are known to need in the end."""
    known = kinds()
    homes = [known[kind].partition(":")[0] for kind in sorted(warm_kinds()) if kind in known]
    extra = [module for kind in sorted(warm_kinds()) for module in WARM_IMPORTS.get(kind, ())]
    return list(dict.fromkeys(["syno_lab.evaluate.jobs.child", *homes, *extra]))


_nursery = _Nursery()
