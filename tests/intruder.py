"""Another user of the machine: what it can do to the processes and files of a lab. Begins as root, to import all first.

``python intruder.py '{"ports": […], "files": […], "folders": […], "marker": "…"}'`` prints as JSON what it got:
``ran`` (ports where its function was run, and by which way), ``heard`` (ports that answered it), ``read`` and
``listed`` (files and folders), each a list that should be empty.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from distributed import Client
from distributed.comm import connect
from distributed.protocol.pickle import dumps

#: The user ``nobody``.
NOBODY = 65534


def mark(path: str) -> int:
    """What it wants to be run by somebody else."""
    with open(path, "a") as file:  # noqa: PTH123 - must run where nothing is imported
        file.write(f"{os.getuid()}\n")
    return os.getuid()


def run_on_worker(address: str, marker: str, patience_s: float, **options: Any) -> Any:
    """Ask a worker to run a function, as a scheduler does."""

    async def ask() -> Any:
        comm = await connect(address, timeout=patience_s, **options)
        try:
            function, words = dumps(mark), dumps((marker,))
            await comm.write({"op": "run", "function": function, "args": words, "reply": True, "close": True})
            return await asyncio.wait_for(comm.read(), patience_s)
        finally:
            comm.abort()

    return asyncio.run(ask())


def run_by_scheduler(address: str, marker: str, patience_s: float) -> Any:
    """Submit a function, as a client does."""
    with Client(address, timeout=patience_s, set_as_default=False) as client:
        return client.submit(mark, marker, pure=False).result(timeout=patience_s)


def contexts(own: Path) -> Iterator[tuple[str, ssl.SSLContext]]:
    """TLS that believes whoever answers: without a certificate, and with one of its own."""
    for way, certificate in (("without a certificate", None), ("with its own", own)):
        found = ssl.create_default_context()
        found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
        if certificate is not None:
            found.load_cert_chain(certificate)
        yield way, found


def answer(port: int, context: ssl.SSLContext | None, patience_s: float) -> bytes:
    """What a port says to somebody who connects and asks something."""
    with contextlib.ExitStack() as stack:
        link: socket.socket = stack.enter_context(socket.create_connection(("127.0.0.1", port), patience_s))
        if context is not None:
            link = stack.enter_context(context.wrap_socket(link))
        link.sendall(b"GET / HTTP/1.0\r\n\r\n")
        link.settimeout(patience_s)
        return link.recv(100)
    return b""


def within(attempt: Callable[[], Any], seconds: float) -> str | None:
    """What it gives, in time and without an error; Dask waits for ever for some answers."""
    got: list[str] = []

    def run() -> None:
        with contextlib.suppress(Exception):
            got.append(repr(attempt())[:200])

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return got[0] if got else None


def attack(ports: list[int], marker: str, secure: dict[str, ssl.SSLContext], patience_s: float) -> dict[str, list[Any]]:
    """All ways on all ports."""
    ran: list[Any] = []
    heard: list[Any] = []
    for port in ports:
        tries: dict[str, Callable[[], Any]] = {
            "as a client": partial(run_by_scheduler, f"tcp://127.0.0.1:{port}", marker, patience_s),
            "as a scheduler": partial(run_on_worker, f"tcp://127.0.0.1:{port}", marker, patience_s),
        }
        for way, context in secure.items():
            options = {"ssl_context": context, "require_encryption": True}
            tries[way] = partial(run_on_worker, f"tls://127.0.0.1:{port}", marker, patience_s, **options)
        for way, attempt in tries.items():
            if (got := within(attempt, 2 * patience_s)) is not None:
                ran.append((port, way, got))
        for context in (None, *secure.values()):
            with contextlib.suppress(OSError):
                if said := answer(port, context, patience_s):
                    heard.append((port, repr(said)))
    return {"ran": ran, "heard": heard}


def look(files: list[str], folders: list[str]) -> dict[str, list[str]]:
    """Which of these can be read."""
    read, listed = [], []
    for file in files:
        with contextlib.suppress(PermissionError), open(file, "rb") as content:  # noqa: PTH123
            content.read(1)
            read.append(file)
    for folder in folders:
        with contextlib.suppress(PermissionError):
            os.listdir(folder)  # noqa: PTH208
            listed.append(folder)
    return {"read": read, "listed": listed}


def main() -> None:
    """Import all that is needed, become nobody, and try."""
    from syno_lab.jobs import tls

    given = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        tls.make(own := Path(folder) / "own.pem")
        secure = dict(contexts(own))
    with socket.socket() as nothing:  # much is imported only where something fails
        nothing.bind(("127.0.0.1", 0))
        attack([nothing.getsockname()[1]], os.devnull, secure, 0.1)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    found = attack(given["ports"], given["marker"], secure, 3.0)
    print(json.dumps(found | look(given["files"], given["folders"])), flush=True)
    os._exit(0)  # what still waits for an answer is left


if __name__ == "__main__":
    main()
