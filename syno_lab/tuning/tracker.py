"""The RPC tracker's protocol (JSON messages over TCP, see ``tvm/rpc/tracker.py``), with a deadline for every exchange.

TVM's own client waits forever for a busy board and for a misspelt key; here every wait ends with a clear error.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, fields
from importlib import metadata
from typing import Any

from syno_lab.errors import TrackerError, TuningError
from syno_lab.inputs import integer, nearest, printable, quoted
from syno_lab.processes.board_server import INFO

_MAGIC = 0x2F271
_SUCCESS, _REQUEST, _SUMMARY = 0, 4, 6
_LARGEST_MESSAGE = 1 << 20
#: The largest lengths, in characters, of a key, a host and a text that other programs report.
_KEY, _HOST, _FACT = 200, 255, 60
#: The longest list in a message, in characters.
_LIST = 200
#: The least time limit of a query to the tracker, in seconds, even if the deadline is nearer.
_LOOK_S = 2.0
#: Seconds between two queries, while the tracker is unreachable or the key has no devices.
_RETRY_S = 0.5
#: The largest number of processors or threads that a device can report.
_MOST_COUNTED = 1 << 20

Address = tuple[str, int]


@dataclass(frozen=True)
class DeviceKey:
    """A device key at a tracker: ``total`` devices, ``free`` of them idle; ``pending`` requests wait for a device."""

    key: str
    free: int
    total: int
    pending: int


@dataclass(frozen=True)
class DeviceInfo:
    """A device at a tracker. TVM's own RPC server reports only the first three fields; the other fields are then empty.

    ``threads`` is the number of threads that run an operator, ``power`` a Jetson's power mode, ``linker`` the device's
    linker.
    """

    key: str
    host: str
    port: int
    tvm: str = ""
    tvm_ffi: str = ""
    python: str = ""
    machine: str = ""
    cores: int = 0
    threads: int = 0
    power: str = ""
    linker: str = ""

    @property
    def address(self) -> str:
        """The address of the device's server, ``host:port``."""
        return f"{self.host}:{self.port}"

    @property
    def conditions(self) -> str:
        """The conditions of a latency besides target and TVM: ``threads=6 power=15W``, or ``unknown``."""
        if not self.tvm:
            return "unknown"
        return f"threads={self.threads}" + (f" power={self.power}" if self.power else "")


@dataclass(frozen=True)
class TrackerSummary:
    """The devices of a tracker, sorted by key. A key with ``total`` 0 was requested, but no device registered it."""

    keys: tuple[DeviceKey, ...]
    devices: tuple[DeviceInfo, ...] = ()

    def of(self, key: str) -> tuple[DeviceInfo, ...]:
        """Return the devices that are registered under ``key``."""
        return tuple(device for device in self.devices if device.key == key)

    def get(self, key: str) -> DeviceKey | None:
        """Return the entry of ``key``, or None if no device is registered under ``key``."""
        return next((entry for entry in self.keys if entry.key == key and entry.total), None)

    @property
    def registered(self) -> tuple[str, ...]:
        """The keys that have at least one device."""
        return tuple(entry.key for entry in self.keys if entry.total)


def parse_address(tracker: str | tuple[str, int]) -> Address:
    """Return ``("host", port)`` from ``"host:port"``, or unchanged from a tuple.

    >>> parse_address("127.0.0.1:9190")
    ('127.0.0.1', 9190)
    """
    host, port = tracker.rpartition(":")[::2] if isinstance(tracker, str) else tracker
    host, number = str(host).removeprefix("[").removesuffix("]"), integer(str(port))
    if not host or host != printable(host, _HOST) or number is None or not 0 < number < 65536:
        raise TrackerError(f"expected the tracker's address as host:port, found {quoted(tracker)}")
    return host, number


class _AwayError(TrackerError):
    """A fault that may be temporary, so that a retry may succeed."""


class _Link:
    """A connection to a tracker; all its reads and writes have the same deadline (a monotonic time)."""

    def __init__(self, host: str, port: int, deadline: float) -> None:
        self._name = f"{host}:{port}"
        self._deadline = deadline
        self._socket: socket.socket | None = None
        try:
            self._socket = socket.create_connection((host, port), timeout=self._left())
            self._socket.sendall(struct.pack("<i", _MAGIC))
            if struct.unpack("<i", self._receive(4))[0] != _MAGIC:
                raise TrackerError(f"{self._name} answers, but it is not an RPC tracker; check the port")
        except BaseException as error:
            self.close()
            if isinstance(error, ConnectionRefusedError):
                raise _AwayError(
                    f"no RPC tracker listens at {self._name}; `syno-lab board` prints how to start one"
                ) from None
            if isinstance(error, socket.gaierror):
                raise TrackerError(f"the tracker's host {quoted(host)} is unknown ({error.strerror})") from None
            if isinstance(error, TimeoutError):
                raise _AwayError(f"nothing at {self._name} answers as an RPC tracker within the deadline") from None
            if isinstance(error, OSError):
                raise _AwayError(f"{self._name} is not reachable as an RPC tracker ({error})") from None
            raise

    def _left(self) -> float:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        return remaining

    def _receive(self, count: int) -> bytes:
        assert self._socket is not None
        received = bytearray()
        while len(received) < count:
            self._socket.settimeout(self._left())
            if hasattr(socket, "TCP_QUICKACK"):
                # The tracker sends a message's size and text separately, and waits for an acknowledgement in between,
                # which Linux would delay by 40 ms. The socket option applies to one answer only.
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            chunk = self._socket.recv(count - len(received))
            if not chunk:
                raise ConnectionResetError("connection closed by the other side")
            received += chunk
        return bytes(received)

    def ask(self, message: list[Any], meanwhile: Callable[[], object] | None = None) -> Any:
        """Send a message and return the answer. Raises OSError (TimeoutError past the deadline) and TrackerError.

        ``meanwhile`` is called every two seconds until the answer comes.
        """
        assert self._socket is not None
        data = json.dumps(message).encode()
        self._socket.settimeout(self._left())
        self._socket.sendall(struct.pack("<i", len(data)) + data)
        while meanwhile is not None and not select.select([self._socket], [], [], min(self._left(), 2.0))[0]:
            meanwhile()
        size = struct.unpack("<i", self._receive(4))[0]
        if not 0 < size <= _LARGEST_MESSAGE:
            raise TrackerError(f"{self._name} is not an RPC tracker: it announces a message of {size} bytes")
        try:
            return json.loads(self._receive(size))
        except (ValueError, RecursionError):
            raise TrackerError(f"{self._name} is not an RPC tracker: its answer is not JSON") from None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def tracker_summary(host: str, port: int, deadline_s: float = 5.0) -> TrackerSummary:
    """List the devices of the tracker at ``host:port``. Raises :class:`TrackerError` without an answer in time."""
    with closing(_Link(host, port, time.monotonic() + deadline_s)) as link:
        try:
            answer = link.ask([_SUMMARY])
        except OSError as error:
            raise TrackerError(f"the RPC tracker at {host}:{port} does not answer ({error or 'deadline'})") from None
    try:
        status, body = answer
        if status != _SUCCESS:
            raise ValueError(status)
        devices = [_device(server) for server in body["server_info"]]
        totals = Counter(device.key for device in devices)
        queues = {
            printable(str(key), _KEY): (int(queue["free"]), int(queue["pending"]))
            for key, queue in body["queue_info"].items()
        }
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError):
        raise TrackerError(f"the RPC tracker at {host}:{port} sent an invalid summary") from None
    return TrackerSummary(
        tuple(
            DeviceKey(key, queues.get(key, (0, 0))[0], totals[key], queues.get(key, (0, 0))[1])
            for key in sorted(totals.keys() | queues.keys())
        ),
        tuple(sorted(devices, key=lambda entry: (entry.key, entry.host, entry.port))),
    )


def _device(server: dict[str, Any]) -> DeviceInfo:
    """Read an entry of the tracker's ``server_info``; a server's report is untrusted, and its texts are shortened."""
    report = server.get(INFO)
    report = report if isinstance(report, dict) else {}
    host, port = server["addr"]
    kinds = {attr.name: type(attr.default) for attr in fields(DeviceInfo) if attr.name not in ("key", "host", "port")}
    more: dict[str, Any] = {}
    for name, kind in kinds.items():
        value = report.get(name)
        if kind is str and isinstance(value, str):
            more[name] = printable(" ".join(value.split()), _FACT)
        elif kind is int and isinstance(value, int) and 0 <= value <= _MOST_COUNTED:
            more[name] = value
    key = printable(str(server["key"]).partition(":")[2], _KEY)
    return DeviceInfo(key, printable(str(host), _HOST), int(port), **more)


def host_version() -> str:
    """Return the version of TVM on this machine, without importing TVM."""
    try:
        return metadata.version("apache-tvm")
    except metadata.PackageNotFoundError:
        raise TuningError("expected the package apache-tvm on this machine, found none; run `make install`") from None


def check_versions(devices: Iterable[DeviceInfo], here: str) -> None:
    """Refuse devices whose TVM release differs from ``here``, because RPC compares only protocol versions.

    Post-releases of a release (0.27.0 and 0.27.0.post1) are equal. TVM's own server does not report its version. Raises
    TrackerError with the device and both versions.
    """
    for device in devices:
        if device.tvm and _release(device.tvm) != _release(here):
            raise TrackerError(
                f"the device {quoted(device.key)} at {device.address} has TVM {device.tvm}, this machine has TVM "
                f"{here}: nothing was sent; install one version on both, on the board `pip install apache-tvm=={here}`"
            )


def check_machines(devices: Iterable[DeviceInfo], expected: str, target: str) -> None:
    """Refuse devices of another architecture than the code for ``target`` needs.

    Every device is accepted if its architecture or ``expected`` is empty; TVM's own server reports no architecture.
    Raises TrackerError with the device and the two architectures.
    """
    for device in devices:
        if device.machine and expected and _family(device.machine) != _family(expected):
            raise TrackerError(
                f"the device {quoted(device.key)} at {device.address} is of the architecture {device.machine}, code "
                f"for the target {quoted(target)} is for {expected}: nothing was sent; name the device's own target "
                "(--target), or start its server with the key of its own kind"
            )


def _family(machine: str) -> str:
    """Return an architecture's family, equal for 32 and 64 bits, because a 64-bit Linux may run 32-bit programs."""
    name = machine.lower()
    if name.startswith(("arm", "aarch")):
        return "arm"
    return "x86" if name in ("x86_64", "amd64", "i386", "i486", "i586", "i686") else name


def _release(version: str) -> str:
    return version.partition("+")[0].partition(".post")[0]


def check_tracker(host: str, port: int, key: str, deadline_s: float = 5.0, *, need_free: bool = True) -> DeviceKey:
    """Check that a device is registered under ``key`` and, with ``need_free``, is free within the deadline.

    Raises :class:`TrackerError` if no program listens, if the program is not a tracker, if the key is unknown (the
    message lists the known keys), or if all devices stay busy.
    """
    deadline = time.monotonic() + deadline_s
    while True:
        summary = tracker_summary(host, port, max(deadline - time.monotonic(), _LOOK_S))
        entry = _entry(summary, host, port, key)
        if entry.free or not need_free:
            return entry
        if time.monotonic() >= deadline:
            raise TrackerError(
                f"no device {quoted(key)} at {host}:{port} became free within {deadline_s:g} s "
                f"({entry.total} registered, {entry.pending} waiting); try again later or restart its RPC server"
            )
        time.sleep(0.1)


def request_device(
    host: str,
    port: int,
    key: str,
    deadline_s: float,
    priority: int = 1,
    *,
    tvm: str | None = None,
    machine: str = "",
    target: str = "",
) -> tuple[str, int, str]:
    """Wait in the tracker's queue for a device; return its server's address, and the one-time key for the connection.

    The caller must connect within about six seconds, or the server registers again. At the deadline the connection is
    closed, which removes the request from the queue. Until the deadline the call also waits for an unreachable tracker
    and for a key without devices, because devices register again after a restart of the tracker. With ``tvm``, a device
    of another version is refused, see :func:`check_versions`. ``machine`` is the architecture that ``target`` needs; a
    device of another architecture is refused, see :func:`check_machines`.

    Raises :class:`TrackerError`.
    """
    deadline = time.monotonic() + deadline_s

    def check() -> None:
        # The tracker accepts a request for any key, so a request for a misspelt key would wait forever.
        try:
            summary = tracker_summary(host, port, min(max(deadline - time.monotonic(), _LOOK_S), 5.0))
        except TrackerError as error:
            raise _AwayError(str(error)) from None
        _entry(summary, host, port, key, _AwayError)
        if tvm is not None:
            check_versions(summary.of(key), tvm)
        check_machines(summary.of(key), machine, target)

    def answer() -> tuple[str, int, str]:
        check()
        try:
            with closing(_Link(host, port, deadline)) as link:
                status, (server, server_port, matchkey) = link.ask([_REQUEST, key, "", priority], meanwhile=check)
                device = str(server), int(server_port), str(matchkey)
        except TimeoutError:
            raise TrackerError(
                f"no device {quoted(key)} at {host}:{port} became free within {deadline_s:g} s"
            ) from None
        except OSError as error:
            raise _AwayError(
                f"the RPC tracker at {host}:{port} closed the connection during the wait for {quoted(key)} ({error})"
            ) from None
        except (TypeError, ValueError, OverflowError):
            raise TrackerError(f"{host}:{port} answered a request for {quoted(key)} with an invalid message") from None
        if status != _SUCCESS:
            raise TrackerError(
                f"the RPC tracker at {host}:{port} refused a request for {quoted(key)} (status {quoted(status)})"
            )
        return device

    while True:
        try:
            return answer()
        except _AwayError as error:
            if deadline - time.monotonic() < _RETRY_S:
                raise TrackerError(str(error)) from None
            time.sleep(_RETRY_S)


def _entry(
    summary: TrackerSummary, host: str, port: int, key: str, kind: type[TrackerError] = TrackerError
) -> DeviceKey:
    entry = summary.get(key)
    if entry is None:
        advice = "check the key" if summary.registered else "`syno-lab board` prints how to start a board's server"
        raise kind(
            f"no device is registered as {quoted(key)} at {host}:{port}; registered keys: {listed(summary, key)}; "
            f"{advice}"
        )
    return entry


def listed(summary: TrackerSummary, key: str = "") -> str:
    """Return the registered keys for a message, the most similar to ``key`` first; ``none`` if no key exists."""
    return printable(", ".join(nearest(key, summary.registered)) or "none", _LIST)
