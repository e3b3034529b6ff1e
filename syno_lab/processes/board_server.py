"""The RPC server of a board, in one file that needs only Python 3.10 and TVM: copy it there and run it.

``python board_server.py --tracker HOST:PORT --key KEY`` (``syno-lab board`` prints the whole command). Beside TVM's own
``python -m tvm.exec.rpc_server`` it

- tells the tracker TVM's version, the architecture, threads and power mode, so that a wrong version is refused before
  anything is uploaded, and tells a session the clocks, temperature and load of the moment;
- goes on serving after a candidate crashed its session: there, the crash ends the listening thread while the process
  stays, and every later request waits for ever;
- takes its sessions with it when it is killed, where a stock server leaves one that holds its port;
- registers anew when the tracker was restarted, and answers without TVM's delays of 40 ms.

Whoever reaches the server can run any code on the board, for TVM's RPC has no password: it listens on loopback and
nowhere else, and is reached through an SSH tunnel. What it writes only its own account may read.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import ipaddress
import json
import logging
import multiprocessing
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_log = logging.getLogger("syno_lab.board")

#: What the server tells the tracker is under this name in its ``UPDATE_INFO`` message.
INFO = "syno_lab"
#: The function that a session calls for :func:`moment`.
MOMENT_FUNCTION = "syno_lab.board.moment"
#: How often a child looks whether its parent is still there, in seconds.
WATCH_PERIOD_S = 0.25
_FREQUENCIES = "/sys/devices/system/cpu/cpu[0-9]*/cpufreq"


def follow_parent(parent: int) -> None:
    """In a child: kill our whole group as soon as process ``parent`` is no longer our parent, even by ``kill -9``.

    A forked descendant follows the process that forked it. Linux's PR_SET_PDEATHSIG would not do: it fires when the
    parent's *thread* ends, and jobs are started from threads.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_PERIOD_S)
        if os.getpgrp() in (os.getpid(), parent):  # a group made for us, not somebody else's
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="follow-parent", daemon=True).start()


def import_tvm() -> Any:
    """Import TVM without torch, which it would import for interchange: faster, and less that can clash."""
    if "tvm" not in sys.modules:
        sys.modules["torch"] = None  # type: ignore[assignment]
        try:
            importlib.import_module("tvm")
        finally:
            del sys.modules["torch"]
    return sys.modules["tvm"]


def facts() -> dict[str, Any]:
    """What stays the same while the server runs: versions, machine, threads of the operators, power mode."""
    import tvm_ffi

    usable = cores()
    threads = os.environ.get("TVM_NUM_THREADS", "")
    return {
        "tvm": str(import_tvm().__version__),
        "tvm_ffi": str(tvm_ffi.__version__),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": usable,
        "threads": int(threads) if threads.isdecimal() else usable,
        "power": power_mode(),
        "linker": next((name for name in (os.environ.get("CXX", "g++"), "clang++") if shutil.which(name)), ""),
    }


def cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def power_mode() -> str:
    """The name that a Jetson's ``nvpmodel -q`` gives to its power mode, such as ``15W``; empty on other machines."""
    program = shutil.which("nvpmodel")
    if program is None:
        return ""
    try:
        said = subprocess.run([program, "-q"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return next((line.partition(":")[2].strip() for line in said.splitlines() if "Power Mode" in line), "unknown")


def _numbers(pattern: str) -> list[int]:
    found = []
    for path in sorted(Path("/").glob(pattern.lstrip("/"))):
        with contextlib.suppress(OSError, ValueError):
            found.append(int(path.read_text()))
    return found


def moment() -> dict[str, Any]:
    """What changes: power mode, clocks in MHz, whether they are fixed, the highest temperature in Celsius, load."""
    least, most = _numbers(f"{_FREQUENCIES}/scaling_min_freq"), _numbers(f"{_FREQUENCIES}/scaling_max_freq")
    warmest = max(_numbers("/sys/class/thermal/thermal_zone*/temp"), default=None)
    return {
        "power": power_mode(),
        "clocks_mhz": [one // 1000 for one in _numbers(f"{_FREQUENCIES}/scaling_cur_freq")],
        # jetson_clocks sets the least to the most; None where the system does not say.
        "clocks_fixed": least == most if least and most else None,
        "celsius": None if warmest is None else warmest / 1000,
        "load": os.getloadavg()[0],
    }


def serve(listener: socket.socket, tracker: tuple[str, int], key: str, address: str | None) -> None:
    """Serve sessions on ``listener`` for ever; ``address`` is what clients are told, None for what the tracker sees."""
    import_tvm()
    import tvm_ffi
    from tvm.rpc import base, server

    multiprocessing.set_start_method("fork", force=True)  # a session is a fork with TVM in memory, not a new process
    told, connect, send = facts(), base.connect_with_retry, base.sendjson

    def connect_without_delay(*arguments: Any, **options: Any) -> socket.socket:
        # The server sends sizes and texts apart: after each session 40 ms would pass before it is free again.
        link: socket.socket = connect(*arguments, **{"retry_period": 1, **options})
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return link

    def send_with_facts(link: socket.socket, data: Any) -> None:
        if data[0] == base.TrackerCode.UPDATE_INFO:
            data = [data[0], {**data[1], INFO: told}]
        send(link, data)

    base.connect_with_retry, base.sendjson = connect_without_delay, send_with_facts
    tvm_ffi.register_global_func(MOMENT_FUNCTION, lambda: json.dumps(moment()), override=True)
    home, us = os.getcwd(), os.getpid()  # noqa: PTH109
    # Threads do not survive a fork: the session needs a watch of its own.
    os.register_at_fork(after_in_child=lambda: follow_parent(us))
    while True:
        try:
            server._listen_loop(listener, listener.getsockname()[1], key, tracker, None, address)
        except (RuntimeError, AssertionError, ValueError) as error:
            # A session's process died (a candidate crashed), the tracker is gone, or a peer spoke nonsense.
            _log.warning("listening again after: %s", error)
            os.chdir(home)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until killed."""
    wanted = argparse.ArgumentParser(description="Offer this board to an RPC tracker of TVM.")
    wanted.add_argument("--tracker", required=True, metavar="HOST:PORT", help="where the tracker listens")
    wanted.add_argument("--key", required=True, help="the name under which clients ask for this board")
    wanted.add_argument("--host", default="127.0.0.1", help="the loopback address to listen on (127.0.0.1)")
    wanted.add_argument("--port", type=int, default=9090, help="the port to listen on (9090)")
    wanted.add_argument("--address", help="the address that clients are told (as the tracker sees it)")
    wanted.add_argument("--facts", action="store_true", help="print what the tracker would be told, and stop")
    chosen = wanted.parse_args(arguments)
    host, _, port = chosen.tracker.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or len(port) > 5:
        wanted.error(f"expected --tracker HOST:PORT, found {chosen.tracker[:80]!r}")
    if not chosen.key or any(letter.isspace() or letter == ":" for letter in chosen.key):
        wanted.error(f"expected a key without blanks and colons, found {chosen.key!r}")
    listens = "127.0.0.1" if chosen.host == "localhost" else chosen.host
    if not _is_loopback(listens):
        wanted.error(
            f"expected --host 127.0.0.1 or ::1, found {chosen.host!r}: TVM's RPC has no password, whoever reaches the "
            "server can run any code here; reach it through an SSH tunnel (`syno-lab board` prints it)"
        )
    if chosen.facts:
        print(json.dumps({**facts(), **moment()}, indent=1))  # noqa: T201 - a program of its own
        return
    logging.basicConfig(level=logging.INFO)
    os.umask(0o077)
    family = socket.AF_INET6 if ":" in listens else socket.AF_INET
    with socket.create_server((listens, chosen.port), family=family) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        serve(listener, (host.strip("[]"), int(port)), chosen.key, chosen.address)


if __name__ == "__main__":
    main()
