"""Which network addresses are this machine's alone."""

from __future__ import annotations

import ipaddress
import socket


def is_loopback(host: str) -> bool:
    """Whether an address, or all that a name stands for, is this machine alone."""
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
        return bool(found) and all(ipaddress.ip_address(one.partition("%")[0]).is_loopback for one in found)
    except (OSError, ValueError):
        return False
