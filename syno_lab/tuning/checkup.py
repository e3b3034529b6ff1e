"""Check a tracker and its devices: reachable, open to others, keys, devices, versions, and whether a kernel runs."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator

from syno_lab.errors import TrackerError, TuningError
from syno_lab.processes.addresses import is_loopback
from syno_lab.processes.findings import Finding
from syno_lab.tuning.board import Board
from syno_lab.tuning.targets import LOCAL, TARGETS, architecture, check_target
from syno_lab.tuning.tracker import (
    DeviceInfo,
    TrackerSummary,
    check_machines,
    check_versions,
    host_version,
    listed,
    parse_address,
    tracker_summary,
)

#: The test kernel: small, with padding and a reduction.
_KERNEL, _SIZES = "conv2d", {"N": 1, "C_in": 4, "C_out": 4, "H": 6, "W": 6, "k_1": 3}
#: The largest allowed difference of a device's float32 from the loop nest, relative to the largest output.
TOLERANCE = 1e-4


#: The advice where the tracker has no device.
NO_DEVICE = (
    "Start a board's server: see `syno-lab board`; without a board, `syno-lab board --emulate --fetch` emulates one."
)


def check_up(
    tracker: str, key: str | None = None, *, target: str | None = None, deadline_s: float = 5.0, session_s: float = 60.0
) -> Iterator[Finding]:
    """Check the tracker at ``tracker`` (``host:port``) and at the devices under ``key``, or under all its keys.

    A kernel is compiled here and run on one device of each key, for ``target`` or for the target that the key or the
    device names. No wait is longer than the deadlines. A fault is a finding, not an exception; only an invalid address
    raises TrackerError.
    """
    host, port = parse_address(tracker)
    name = f"tracker {host}:{port}"
    try:
        summary = tracker_summary(host, port, deadline_s)
    except TrackerError as error:
        yield Finding(name, False, True, str(error), "Run `syno-lab board` for the commands that start one.")
        return
    yield Finding(name, True, True, f"answers, with {len(summary.devices)} devices")
    public = public_address(host, port)
    if public is not None:
        yield Finding(f"{name}, safety", False, False, warning(public), "Run `syno-lab board` for the way by SSH.")
    if not summary.registered:
        yield Finding("keys", False, True, "no device is registered", NO_DEVICE)
        return
    keys = summary.registered if key is None else (key,)
    if key is not None and summary.get(key) is None:
        yield Finding(
            f"key {key}", False, True, f"no device is registered as {key!r}", f"Registered keys: {listed(summary)}."
        )
        return
    for one in keys:
        yield from _check_key(summary, host, port, one, target, session_s)


def _check_key(
    summary: TrackerSummary, host: str, port: int, key: str, target: str | None, session_s: float
) -> Iterator[Finding]:
    entry, devices = summary.get(key), summary.of(key)
    assert entry is not None
    waiting = f", {entry.pending} requests wait" if entry.pending else ""
    yield Finding(
        f"key {key}",
        entry.free > 0,
        False,
        f"{entry.total} devices, {entry.free} free, {entry.total - entry.free} busy{waiting}",
        "Wait for the tuning that holds it; where there is none, restart the board's server.",
    )
    here = host_version()
    for device in devices:
        told = (
            f"TVM {device.tvm} on {device.machine}, {device.conditions}" if device.tvm else "a server without a version"
        )
        try:
            check_versions([device], here)
        except TrackerError as error:
            yield Finding(
                f"device {device.address}", False, True, f"{told}; {error}", "The lab sends nothing to it before."
            )
            return
        advice = "" if device.tvm else "It is TVM's own server: run board_server.py there to have versions compared."
        yield Finding(f"device {device.address}", bool(device.tvm), False, f"{told}; TVM {here} here", advice)
    wanted = target or _target_of(key, devices[0])
    try:
        check_machines(devices, architecture(check_target(wanted)) if wanted else "", wanted or "")
    except TuningError as error:
        yield Finding(f"key {key}, architecture", False, True, str(error), "The lab sends nothing to it before.")
        return
    if len({device.conditions for device in devices}) > 1:
        yield Finding(
            f"key {key}, alike", False, True, "its devices differ in threads or power mode",
            "Give each kind its own key, or set them alike: their latencies are compared.",
        )  # fmt: skip
    if entry.free:
        yield _try_kernel(host, port, key, wanted, session_s)


def _target_of(key: str, device: DeviceInfo) -> str | None:
    """The target of a device, by its key or by what its server reports."""
    if key in TARGETS:
        return key
    if device.machine == platform.machine() or (not device.machine and is_loopback(device.host)):
        return LOCAL
    arm = '{"kind": "llvm", "keys": ["arm_cpu", "cpu"], "mtriple": "aarch64-linux-gnu"}'
    return arm if device.machine == "aarch64" else None


def _try_kernel(host: str, port: int, key: str, target: str | None, session_s: float) -> Finding:
    name = f"key {key}, a kernel"
    if target is None:
        return Finding(name, False, False, "not tried: the kind of device is unknown", "Name it with --target.")
    from syno_lab.systems import opened
    from syno_lab.tuning.remote import run_remotely

    if target in TARGETS and TARGETS[target].is_gpu:
        return Finding(name, False, False, f"not tried: {target} is a GPU", "Try the processor: --target with -cpu.")
    text = opened(_KERNEL).to_json()
    board = Board(host, port, key)
    try:
        ran = run_remotely(text, _SIZES, board=board, target=target, wait_s=10.0, session_s=session_s)
    except TuningError as error:
        advice = "Where the board must link it: `apt-get install g++` there, or g++-aarch64-linux-gnu here."
        return Finding(name, False, True, f"built here for {target}: {error}", advice)
    found = f"built here for {ran.machine}, ran there; largest difference from the loop nest {ran.error:.1g}"
    advice = "The device computes something else: compare the versions of TVM and apache-tvm-ffi on both sides."
    return Finding(name, ran.error <= TOLERANCE, True, found, advice)


# -- safety ------------------------------------------------------------------------------------------------------------


def public_address(host: str, port: int, listeners: Callable[[], list[tuple[str, int]]] | None = None) -> str | None:
    """The address at which others can reach the tracker: its host's on another machine, else the one it is bound to."""
    if not is_loopback(host):
        return host
    for address, bound in (listeners or _listeners)():
        if bound == port and not is_loopback(address):
            return address
    return None


def _listeners() -> list[tuple[str, int]]:
    import psutil

    try:
        found = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return []
    return [(one.laddr.ip, one.laddr.port) for one in found if one.status == psutil.CONN_LISTEN and one.laddr]


def warning(address: str) -> str:
    """The warning about a tracker that others can reach."""
    return (
        f"listens on {address}: TVM's RPC has no password, whoever reaches it can run any code on the boards; "
        "bind it to 127.0.0.1 and use an SSH tunnel"
    )
