"""A listening socket on loopback that takes connections of this account alone, and which addresses are loopback.

TVM's RPC has no password. Linux tells to whom the other end of a connection within the machine belongs
(``/proc/net/tcp``): one of another account is closed before a byte of it is read. Other systems do not tell, and there
every account of the machine gets in; `tells` says which it is.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import sys
from pathlib import Path
from typing import Any


class OwnListener(socket.socket):
    """Made from the file number of a listening socket. Raises ValueError where that listens elsewhere."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        host = self.getsockname()[0]
        if not ipaddress.ip_address(host).is_loopback:
            raise ValueError(f"expected a socket on loopback, found one on {host}: TVM's RPC has no password")

    def accept(self) -> tuple[socket.socket, Any]:
        """As `socket.socket.accept`. Raises ConnectionAbortedError for a connection of another account."""
        connection, peer = super().accept()
        if tells() and owner_of(connection) not in (os.geteuid(), 0):
            connection.close()
            # Both loops of TVM go on after it.
            raise ConnectionAbortedError(errno.ECONNABORTED, f"a connection of another account from {peer} was refused")
        return connection, peer


def tells() -> bool:
    """Whether this system tells whose a connection is."""
    return Path("/proc/net/tcp").exists()


def owner_of(connection: socket.socket) -> int | None:
    """The user of the other end of a connection within this machine; None where it is closed or not of this machine."""
    ends = connection.getpeername()[:2], connection.getsockname()[:2]
    # The other end of an IPv4 connection may be an IPv6 socket.
    for table, prefix in (("tcp", ""), ("tcp6", "::ffff:")) if connection.family == socket.AF_INET else (("tcp6", ""),):
        path = Path("/proc/net") / table
        wanted = [_as_listed(prefix + host, port) for host, port in ends]
        for line in path.read_text(encoding="ascii").splitlines()[1:] if path.exists() else ():
            fields = line.split()
            if fields[1:3] == wanted and fields[9] != "0":  # closed already: no inode, and 0 for its user
                return int(fields[7])
    return None


def _as_listed(host: str, port: int) -> str:
    """An address as the kernel lists it: words of 32 bits in the machine's order of bytes, then the port."""
    packed = ipaddress.ip_address(host).packed
    words = (int.from_bytes(packed[place : place + 4], sys.byteorder) for place in range(0, len(packed), 4))
    return f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"


def is_loopback(host: str) -> bool:
    """Whether an address, or all that a name stands for, is this machine alone."""
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
        return bool(found) and all(ipaddress.ip_address(one.partition("%")[0]).is_loopback for one in found)
    except (OSError, ValueError):
        return False
