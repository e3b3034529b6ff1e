"""The process of a local board's tracker or RPC server: ``python -m … <parent> tracker|server <socket> …``.

Both are TVM's own loops on a listening socket made by the parent. Unlike ``python -m tvm.exec.rpc_server`` this takes
one process (one import of TVM) instead of two, and goes on serving after a candidate crashed its session: there, the
crash ends the listening thread while the process stays, and every later request waits for ever.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from typing import Any

from syno_lab.evaluate.tuning.light import import_tvm
from syno_lab.evaluate.tuning.process import follow_parent

_log = logging.getLogger("syno_lab.board")


def main(arguments: list[str]) -> None:
    """Serve until killed."""
    follow_parent(int(arguments[0]))
    role, listener = arguments[1], socket.socket(fileno=int(arguments[2]))
    logging.basicConfig(level=logging.INFO)
    import_tvm()
    if role == "tracker":
        _track(listener)
    else:
        _serve(listener, int(arguments[3]), arguments[4])


def _track(listener: socket.socket) -> None:
    from tvm.rpc import base, tracker

    tracker._tracker_server(listener, base.random_key("tracker"))


def _serve(listener: socket.socket, tracker_port: int, key: str) -> None:
    from tvm.rpc import base, server

    connect = base.connect_with_retry

    def connect_without_delay(*arguments: Any, **options: Any) -> socket.socket:
        # The server too sends sizes and texts apart: after each session 40 ms would pass before it is free again.
        link = connect(*arguments, **options)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return link

    base.connect_with_retry = connect_without_delay
    host, port = listener.getsockname()
    home, us = os.getcwd(), os.getpid()  # noqa: PTH109
    # Each session is a fork of this process. Threads do not survive a fork: the session needs a watch of its own.
    os.register_at_fork(after_in_child=lambda: follow_parent(us))
    while True:
        try:
            server._listen_loop(listener, port, key, (host, tracker_port), None, host)
        except (RuntimeError, AssertionError, ValueError) as error:
            # A session's process died (a candidate crashed), the tracker is gone, or a peer spoke nonsense.
            _log.warning("listening again after: %s", error)
            os.chdir(home)


if __name__ == "__main__":
    main(sys.argv[1:])
