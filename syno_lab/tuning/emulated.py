"""An emulated aarch64 board: an emulator of the board's processor runs the real RPC server on this machine.

The server's Python, its libraries and its linker are from an aarch64 Linux. So code for a Jetson's processor is linked,
loaded and run as on a Jetson. An emulator's latencies have no meaning.

    syno-lab board --emulate --fetch    # a tracker and the board, until Ctrl-C; 220 MB at first, no root needed
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from syno_lab.errors import TrackerError
from syno_lab.inputs import quoted
from syno_lab.processes.process import cores, end_group, spawn
from syno_lab.scratch import scratch
from syno_lab.tuning.board import LOOPBACK, SERVE, Board, check_key, listen, start_part, wait_for
from syno_lab.tuning.emulated_files import BoardFiles, find_board
from syno_lab.tuning.tracker import parse_address, tracker_summary

KEY = "jetson-orin-nano-cpu"

#: Prefixes of this machine's environment variables that the board's programs must not get.
_NOT_FOR_THE_BOARD = ("PYTHON", "LD_", "VIRTUAL_ENV", "CONDA", "QEMU_")


@contextlib.contextmanager
def emulated_board(
    key: str = KEY,
    *,
    tracker: str | tuple[str, int] | None = None,
    folder: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    deadline_s: float = 240.0,
) -> Iterator[Board]:
    """Start an emulated aarch64 board with the key ``key``, at ``tracker`` or at a new tracker; stop both at the end.

    The board's files come from the cache ``folder`` (see :func:`~syno_lab.tuning.emulated_files.fetch_board`; nothing
    is downloaded here). The address ``tracker`` must be on this machine's loopback. Operators run in ``threads``
    threads (default: all processors). As with :func:`~syno_lab.tuning.board.local_board` no process survives the block.
    The emulator needs about 15 seconds to import TVM. Raises TuningError if the files are missing or damaged, and
    TrackerError if the board is not ready by the deadline.
    """
    check_key(key)
    address = None if tracker is None else parse_address(tracker)
    if address is not None and address[0] not in (LOOPBACK, "localhost"):
        raise TrackerError(f"an emulated board registers only at a tracker on {LOOPBACK}, found {quoted(address[0])}")
    files = find_board(folder)
    deadline = time.monotonic() + deadline_s
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(scratch("syno-board-"))
        children: dict[str, subprocess.Popen[bytes]] = {}
        before = 0
        if address is None:
            children["tracker"], port = start_part(stack, home, "tracker")
            address = LOOPBACK, port
        else:
            address = LOOPBACK, address[1]
            entry = tracker_summary(*address).get(key)
            before = 0 if entry is None else entry.total
        with listen() as listener:
            log = stack.enter_context((home / "server.log").open("wb"))
            server = _start_server(files, home, listener, address[1], key, threads or cores(), log)
            stack.callback(end_group, server)
            children["server"] = server
        late = f"the emulated board did not register as {quoted(key)} in time; this machine may be too busy"
        board, part = Board(*address, key), "the emulated board's {}"
        wait_for(board, lambda now: now.total > before and now.free > 0, children, home, deadline, part=part, late=late)
        yield board


def _start_server(
    files: BoardFiles, home: Path, listener: socket.socket, port: int, key: str, threads: int, log: IO[bytes]
) -> subprocess.Popen[bytes]:
    # The package `syno_lab` has the server's loop. The board gets no other package of this machine.
    (home / "lab").mkdir()
    (home / "lab" / "syno_lab").symlink_to(Path(__file__).parent.parent)
    python = _program(home / "python", files, [files.python], zeroth=str(home / "python"))
    libraries = files.root / ("lib" if _libc(files.root / "lib").is_file() else "usr/lib")
    linker = files.root / "usr" / "bin" / "aarch64-linux-gnu-ld"
    libc = _libc(libraries)
    compiler = _program(home / "c++", files, [linker], after=[libc.with_name("libm.so.6"), libc])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_FOR_THE_BOARD)}
    environment |= {
        "CXX": str(compiler),  # the compiler with which TVM's runtime links uploaded objects
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONHOME": str(files.root / "usr"),
        "PYTHONPATH": os.pathsep.join([str(files.wheels), str(home / "lab")]),
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(home),
        "TVM_NUM_THREADS": str(threads),
    }
    command = [str(python), "-P", "-m", SERVE, str(os.getpid()), "server", str(listener.fileno()), str(port), key]
    return spawn(command, log, environment, folder=home, pass_fds=[listener.fileno()])


def _libc(libraries: Path) -> Path:
    return libraries / "aarch64-linux-gnu" / "libc.so.6"


def _program(
    path: Path, files: BoardFiles, command: list[Path], *, zeroth: str = "", after: Sequence[Path] = ()
) -> Path:
    """Write a script that runs a board's program in the emulator. The script for Python is its ``sys.executable``."""
    emulator = [files.emulator, "-L", str(files.root), *(["-0", zeroth] if zeroth else [])]
    begin, end = shlex.join([*emulator, *map(str, command)]), shlex.join(map(str, after))
    lines = ["#!/bin/sh"]
    if after:  # -fPIC is for a compiler; a linker reads it as another option
        lines.append('for one; do shift; [ "$one" = -fPIC ] || set -- "$@" "$one"; done')
    lines.append(f'exec {begin} "$@" {end}'.rstrip())
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    path.chmod(0o755)
    return path
