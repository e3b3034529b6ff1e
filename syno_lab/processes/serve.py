"""The process of a local board's tracker or RPC server: ``python -m … <parent> tracker|server <socket> …``.

The tracker is TVM's own loop, with a listening socket from the parent. The server is the same as on every board
(:mod:`syno_lab.processes.board_server`). The two refuse other accounts, if the system lists a connection's account.
"""

from __future__ import annotations

import logging
import sys

from syno_lab.processes.board_server import follow_parent, serve
from syno_lab.processes.light import import_tvm
from syno_lab.processes.own_listener import OwnListener


def main(arguments: list[str]) -> None:
    """Serve until killed."""
    follow_parent(int(arguments[0]))
    role, listener = arguments[1], OwnListener(fileno=int(arguments[2]))
    logging.basicConfig(level=logging.INFO)
    import_tvm()
    if role == "tracker":
        from tvm.rpc import base, tracker

        tracker._tracker_server(listener, base.random_key("tracker"))
    else:
        host = listener.getsockname()[0]
        serve(listener, (host, int(arguments[3])), arguments[4], host)


if __name__ == "__main__":
    main(sys.argv[1:])
