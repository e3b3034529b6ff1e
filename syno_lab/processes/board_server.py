"""The RPC server of a board, in one file that needs only Python 3.10 and TVM. Copy the file to the board and run it.

``python board_server.py --tracker HOST:PORT --key KEY`` (``syno-lab board`` prints the whole command). The server
differs from TVM's own ``python -m tvm.exec.rpc_server``:

* The tracker gets TVM's version, the architecture, threads and power mode, so that a client refuses a wrong version
  before an upload. A session gets the current clocks, temperature and load.
* The server continues after a candidate has crashed its session. In TVM's server the crash ends the listening thread
  but not the process, and every later request waits for ever.
* The sessions end when the server is killed. With TVM's server, a session continues and keeps the port.
* The server registers again after a restart of the tracker, and answers without TVM's delays of 40 ms.

Any client of the server can run any code on the board, because TVM's RPC has no password. So the server listens on
loopback alone, for an SSH tunnel. Only the account of the server may read the server's files.
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

#: The key of the server's facts in its ``UPDATE_INFO`` message to the tracker.
INFO = "syno_lab"
#: The function that a session calls for :func:`moment`.
MOMENT_FUNCTION = "syno_lab.board.moment"
#: Seconds between two checks by a child process that its parent is alive.
WATCH_PERIOD_S = 0.25
_FREQUENCIES = "/sys/devices/system/cpu/cpu[0-9]*/cpufreq"


def follow_parent(parent: int) -> None:
    """In a child process, kill the own group as soon as ``parent`` is not its parent any more, even after ``kill -9``.

    A forked descendant must also call this function, with its own parent. Linux's PR_SET_PDEATHSIG is not enough: it
    acts when the parent's *thread* ends, and threads start the jobs.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_PERIOD_S)
        if os.getpgrp() in (os.getpid(), parent):  # kill only a group that was made for this child
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="follow-parent", daemon=True).start()


def import_tvm() -> Any:
    """Import TVM without torch, to save time and prevent conflicts; TVM would import torch for interchange."""
    if "tvm" not in sys.modules:
        sys.modules["torch"] = None  # type: ignore[assignment]
        try:
            importlib.import_module("tvm")
        finally:
            del sys.modules["torch"]
    return sys.modules["tvm"]


def facts() -> dict[str, Any]:
    """Return the constant facts of the server: versions, machine, threads of operators, and power mode at the start."""
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
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def power_mode() -> str:
    """Return a Jetson's power mode from ``nvpmodel -q``, such as ``15W``; empty on other machines."""
    program = shutil.which("nvpmodel")
    if program is None:
        return ""
    try:
        output = subprocess.run([program, "-q"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return next((line.partition(":")[2].strip() for line in output.splitlines() if "Power Mode" in line), "unknown")


def _numbers(pattern: str) -> list[int]:
    numbers = []
    for path in sorted(Path("/").glob(pattern.lstrip("/"))):
        with contextlib.suppress(OSError, ValueError):
            numbers.append(int(path.read_text()))
    return numbers


def moment() -> dict[str, Any]:
    """Return the current state: power mode, clocks in MHz, whether they are fixed, highest temperature in °C, load."""
    least, most = _numbers(f"{_FREQUENCIES}/scaling_min_freq"), _numbers(f"{_FREQUENCIES}/scaling_max_freq")
    warmest = max(_numbers("/sys/class/thermal/thermal_zone*/temp"), default=None)
    return {
        "power": power_mode(),
        "clocks_mhz": [clock // 1000 for clock in _numbers(f"{_FREQUENCIES}/scaling_cur_freq")],
        # jetson_clocks sets the lowest frequency to the highest; None where the system reports no frequencies.
        "clocks_fixed": least == most if least and most else None,
        "celsius": None if warmest is None else warmest / 1000,
        "load": os.getloadavg()[0],
    }


def serve(listener: socket.socket, tracker: tuple[str, int], key: str, address: str | None) -> None:
    """Serve sessions on ``listener`` for ever. Clients get ``address``; None: the address that the tracker sees."""
    import_tvm()
    import tvm_ffi
    from tvm.rpc import base, server

    multiprocessing.set_start_method("fork", force=True)  # a session is a fork with TVM in memory
    constants, connect, send = facts(), base.connect_with_retry, base.sendjson

    def connect_without_delay(*arguments: Any, **options: Any) -> socket.socket:
        # The server sends sizes and texts separately, which would cost 40 ms after each session without this option.
        link: socket.socket = connect(*arguments, **{"retry_period": 1, **options})
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return link

    def send_with_facts(link: socket.socket, data: Any) -> None:
        if data[0] == base.TrackerCode.UPDATE_INFO:
            data = [data[0], {**data[1], INFO: constants}]
        send(link, data)

    base.connect_with_retry, base.sendjson = connect_without_delay, send_with_facts
    tvm_ffi.register_global_func(MOMENT_FUNCTION, lambda: json.dumps(moment()), override=True)
    home, us = os.getcwd(), os.getpid()  # noqa: PTH109
    # A fork has no threads of its parent, so the session needs its own thread that follows the parent.
    os.register_at_fork(after_in_child=lambda: follow_parent(us))
    while True:
        try:
            server._listen_loop(listener, listener.getsockname()[1], key, tracker, None, address)
        except (RuntimeError, AssertionError, ValueError) as error:
            # A session's process died after a candidate crashed, the tracker has ended, or a client broke the protocol.
            _log.warning("listening again after: %s", error)
            os.chdir(home)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description="Offer this board to an RPC tracker of TVM.")
    parser.add_argument("--tracker", required=True, metavar="HOST:PORT", help="where the tracker listens")
    parser.add_argument("--key", required=True, help="the name under which clients ask for this board")
    parser.add_argument("--host", default="127.0.0.1", help="the loopback address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=9090, help="the port to listen on (9090)")
    parser.add_argument("--address", help="the address that clients are told (as the tracker sees it)")
    parser.add_argument("--facts", action="store_true", help="print what the tracker would be told, and stop")
    options = parser.parse_args(arguments)
    host, _, port = options.tracker.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or len(port) > 5:
        parser.error(f"expected --tracker HOST:PORT, found {options.tracker[:80]!r}")
    if not options.key or any(letter.isspace() or letter == ":" for letter in options.key):
        parser.error(f"expected a key without blanks and colons, found {options.key!r}")
    listens = "127.0.0.1" if options.host == "localhost" else options.host
    if not _is_loopback(listens):
        parser.error(
            f"expected --host 127.0.0.1 or ::1, found {options.host!r}: TVM's RPC has no password, whoever reaches the "
            "server can run any code here; reach it through an SSH tunnel (`syno-lab board` prints it)"
        )
    if options.facts:
        print(json.dumps({**facts(), **moment()}, indent=1))  # noqa: T201 - a program of its own
        return
    logging.basicConfig(level=logging.INFO)
    os.umask(0o077)
    family = socket.AF_INET6 if ":" in listens else socket.AF_INET
    with socket.create_server((listens, options.port), family=family) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        serve(listener, (host.strip("[]"), int(port)), options.key, options.address)


if __name__ == "__main__":
    main()
