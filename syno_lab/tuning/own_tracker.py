"""Run TVM's tracker on loopback, for connections of this account alone: ``python -m syno_lab.tuning.own_tracker``.

TVM's own command, ``python -m tvm.exec.rpc_tracker``, listens on all addresses by default and answers every account of
this machine. The lab's tracker accepts connections through an SSH tunnel of the account.
"""

from __future__ import annotations

import argparse
import logging
import socket
from collections.abc import Sequence

from syno_lab.private import keep_private
from syno_lab.processes.light import import_tvm
from syno_lab.processes.own_listener import OwnListener


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description="Start TVM's RPC tracker on loopback, for this account alone.")
    parser.add_argument("--host", default="127.0.0.1", help="the loopback address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=9190, help="the port to listen on (9190)")
    chosen = parser.parse_args(arguments)
    host = "127.0.0.1" if chosen.host == "localhost" else chosen.host
    keep_private()
    logging.basicConfig(level=logging.INFO)
    try:
        sock = socket.create_server((host, chosen.port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener = OwnListener(fileno=sock.detach())
    except (OSError, OverflowError, ValueError) as error:
        parser.error(f"cannot listen on port {chosen.port} of {chosen.host}: {error}")
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # see board.py
    import_tvm()
    from tvm.rpc import base, tracker

    tracker._tracker_server(listener, base.random_key("tracker"))


if __name__ == "__main__":
    main()
