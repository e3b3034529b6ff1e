"""Run a real RPC tracker and a real RPC server on this machine during a ``with`` block."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from syno_lab.errors import TrackerError, TuningError
from syno_lab.inputs import quoted
from syno_lab.processes.process import cores, describe_exit, end_group, last_line, start_child
from syno_lab.scratch import scratch
from syno_lab.tuning.tracker import Address, DeviceKey, parse_address, tracker_summary

LOOPBACK = "127.0.0.1"
SERVE = "syno_lab.processes.serve"


@dataclass(frozen=True)
class Board:
    """A device behind a tracker at ``host:port``, registered as ``key``."""

    host: str
    port: int
    key: str

    @classmethod
    def of(cls, tracker: str | Address | None, key: str | None) -> Board | None:
        """Return the board under ``key`` at ``tracker`` (``host:port``); None (this machine) if both are missing.

        Raises TuningError if one of the two is missing, and TrackerError for an invalid address.
        """
        if (tracker is None) != (key is None):
            raise TuningError("expected tracker and key together, or neither to tune on this machine")
        return None if tracker is None or key is None else cls(*parse_address(tracker), key)

    @property
    def address(self) -> Address:
        """The address of the tracker."""
        return self.host, self.port


@contextlib.contextmanager
def local_board(
    key: str = "local", *, threads: int | None = None, devices: int = 1, deadline_s: float = 90.0
) -> Iterator[Board]:
    """Start a tracker and an RPC server for this machine's CPU on free loopback ports; stop both at the end.

    ``threads`` is the number of threads that run an operator (default: all processors), ``devices`` the number of
    servers that are registered under the key. When the block ends, also by an exception, tracker, server and their
    children are killed by group. If this process is killed, its children end by themselves. Raises
    :class:`TrackerError` if tracker and server are not ready by the deadline.
    """
    check_key(key)
    if devices < 1:
        raise TrackerError(f"expected at least one device, found {devices}")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch("syno-board-"))
        environment = {
            "TMPDIR": str(folder),  # this folder's removal removes a killed session's files
            "TVM_NUM_THREADS": str(threads or cores()),
        }
        tracker, port = start_part(stack, folder, "tracker", environment=environment)
        children = {"tracker": tracker}
        for role in ["server", *(f"server-{number}" for number in range(2, devices + 1))]:
            children[role], _ = start_part(stack, folder, role, str(port), key, environment=environment)
        late = f"the local RPC server did not register as {quoted(key)} in time; is TVM installed completely?"
        board, end = Board(LOOPBACK, port, key), time.monotonic() + deadline_s
        wait_for(board, lambda entry: entry.free >= devices, children, folder, end, part="the local RPC {}", late=late)
        yield board


def start_part(
    stack: contextlib.ExitStack, folder: Path, role: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], int]:
    """Start the tracker or a server, until ``stack`` ends; return its process and its port, which is bound already."""
    with listen() as listener:  # the child has its own copy
        log = stack.enter_context((folder / f"{role}.log").open("wb"))
        command = [role.partition("-")[0], str(listener.fileno()), *arguments]
        child = start_child(SERVE, command, log=log, pass_fds=[listener.fileno()], environment=environment)
        stack.callback(end_group, child)
        return child, int(listener.getsockname()[1])


def check_key(key: str) -> None:
    """Raise TrackerError for a text that is not a valid device key."""
    if not key or any(letter.isspace() or letter == ":" for letter in key):
        raise TrackerError(f"expected a device key without blanks and colons, found {quoted(key)}")


def listen() -> socket.socket:
    """Return a socket on a free port of this machine's loopback."""
    listener = socket.create_server((LOOPBACK, 0))
    # Connections inherit this option on Linux. Without the option each exchange with the tracker can take 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def wait_for(
    board: Board,
    is_there: Callable[[DeviceKey], bool],
    children: Mapping[str, subprocess.Popen[bytes]],
    folder: Path,
    deadline: float,
    *,
    part: str,
    late: str,
) -> None:
    """Wait until a board has registered at the tracker: until ``is_there`` returns True for the entry of its key.

    ``children`` maps each role to a process of the board, which writes its log into ``folder``. ``deadline`` is a value
    of ``time.monotonic``. ``part`` is the name of a process in messages, with ``{}`` for the role; ``late`` is the
    message at the deadline. Raises TrackerError at the deadline, or if a process has ended.
    """
    while True:
        for role, child in children.items():
            if child.poll() is not None:
                output = last_line(folder / f"{role}.log") or "no output"
                raise TrackerError(f"{part.format(role)} ended ({describe_exit(child.returncode)}): {output}")
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TrackerError(late)
        # While the tracker imports TVM, its port takes connections but does not answer, so each try is short.
        with contextlib.suppress(TrackerError):
            entry = tracker_summary(*board.address, min(remaining, 2.0)).get(board.key)
            if entry is not None and is_there(entry):
                return
        time.sleep(0.05)
