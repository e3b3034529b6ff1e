"""A listening socket on loopback that accepts only the user's own account, and a check for loopback addresses.

TVM's RPC has no password. Linux lists the account of each local connection (``/proc/net/tcp``). A connection of another
account is closed before any byte is read. On other systems every account can connect, and `tells` returns False.
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
    """A listening socket, made from its file descriptor. Raises ValueError for an address that is not on loopback."""

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
            # TVM's tracker and server continue after this exception.
            raise ConnectionAbortedError(errno.ECONNABORTED, f"a connection of another account from {peer} was refused")
        return connection, peer


def tells() -> bool:
    """Whether this system lists the account of a connection."""
    return Path("/proc/net/tcp").exists()


def owner_of(connection: socket.socket) -> int | None:
    """Return the user id of a connection's other end on this machine; None for a closed or remote connection."""
    ends = connection.getpeername()[:2], connection.getsockname()[:2]
    # The other end of an IPv4 connection may be an IPv6 socket.
    for table, prefix in (("tcp", ""), ("tcp6", "::ffff:")) if connection.family == socket.AF_INET else (("tcp6", ""),):
        path = Path("/proc/net") / table
        endpoints = [_as_listed(prefix + host, port) for host, port in ends]
        for line in path.read_text(encoding="ascii").splitlines()[1:] if path.exists() else ():
            fields = line.split()
            if fields[1:3] == endpoints and fields[9] != "0":  # a closed connection has inode 0 and user 0
                return int(fields[7])
    return None


def _as_listed(host: str, port: int) -> str:
    """Return an address in the kernel's form: words of 32 bits in native byte order, then the port."""
    packed = ipaddress.ip_address(host).packed
    words = (int.from_bytes(packed[start : start + 4], sys.byteorder) for start in range(0, len(packed), 4))
    return f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"


def is_loopback(host: str) -> bool:
    """Whether an address, or every address of a name, is on loopback."""
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
        return bool(addresses) and all(
            ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses
        )
    except (OSError, ValueError):
        return False
