"""Check a tracker and its devices: reachability, safety, keys, versions, and a run of a test kernel."""

from __future__ import annotations

import platform
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from syno_lab.errors import TrackerError, TuningError
from syno_lab.processes.findings import Finding
from syno_lab.processes.own_listener import is_loopback
from syno_lab.processes.worker import once
from syno_lab.tuning import jobs
from syno_lab.tuning.board import Board
from syno_lab.tuning.jobs import Device, Effort
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


#: The advice if the tracker has no device.
NO_DEVICE = (
    "Start a board's server: see `syno-lab board`; without a board, `syno-lab board --emulate --fetch` emulates one."
)


def check_up(tracker: str, key: str | None = None, *, target: str | None = None) -> Iterator[Finding]:
    """Check the tracker at ``tracker`` (``host:port``), and its devices under ``key`` or under all keys.

    A kernel is compiled on this machine and runs on one device of each key. The kernel's target is ``target``, else
    the target of the key or of the device. No step waits longer than its deadline. The result lists all faults; only an
    invalid address raises TrackerError.
    """
    host, port = parse_address(tracker)
    name = f"tracker {host}:{port}"
    try:
        summary = tracker_summary(host, port)
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
    for each_key in keys:
        yield from _check_key(summary, host, port, each_key, target)


def _check_key(summary: TrackerSummary, host: str, port: int, key: str, target: str | None) -> Iterator[Finding]:
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
    own_version = host_version()
    for device in devices:
        server = (
            f"TVM {device.tvm} on {device.machine}, {device.conditions}" if device.tvm else "a server without a version"
        )
        try:
            check_versions([device], own_version)
        except TrackerError as error:
            yield Finding(
                f"device {device.address}", False, True, f"{server}; {error}", "The lab sends nothing to it before."
            )
            return
        advice = "" if device.tvm else "It is TVM's own server: run board_server.py there to have versions compared."
        yield Finding(f"device {device.address}", bool(device.tvm), False, f"{server}; TVM {own_version} here", advice)
    target_name = target or _target_of(key, devices[0])
    try:
        check_machines(devices, architecture(check_target(target_name)) if target_name else "", target_name or "")
    except TuningError as error:
        yield Finding(f"key {key}, architecture", False, True, str(error), "The lab sends nothing to it before.")
        return
    if len({device.conditions for device in devices}) > 1:
        yield Finding(
            f"key {key}, alike", False, True, "its devices differ in threads or power mode",
            "Give each kind its own key, or set them alike: their latencies are compared.",
        )  # fmt: skip
    if entry.free:
        yield _try_kernel(host, port, key, target_name)


def _target_of(key: str, device: DeviceInfo) -> str | None:
    """Return the target of a device, from the device's key or from the report of its server."""
    if key in TARGETS:
        return key
    if device.machine == platform.machine() or (not device.machine and is_loopback(device.host)):
        return LOCAL
    arm = '{"kind": "llvm", "keys": ["arm_cpu", "cpu"], "mtriple": "aarch64-linux-gnu"}'
    return arm if device.machine == "aarch64" else None


def _try_kernel(host: str, port: int, key: str, target: str | None) -> Finding:
    name = f"key {key}, a kernel"
    if target is None:
        return Finding(name, False, False, "not tried: the kind of device is unknown", "Name it with --target.")
    from syno_lab.systems import opened

    if target in TARGETS and TARGETS[target].is_gpu:
        return Finding(name, False, False, f"not tried: {target} is a GPU", "Try the processor: --target with -cpu.")
    text = opened(f"known:{_KERNEL}").to_json()
    board = Board(host, port, key)
    try:
        ran = run_remotely(text, _SIZES, board=board, target=target, wait_s=10.0)
    except TuningError as error:
        advice = "Where the board must link it: `apt-get install g++` there, or g++-aarch64-linux-gnu here."
        return Finding(name, False, True, f"built here for {target}: {error}", advice)
    outcome = f"built here for {ran.machine}, ran there; largest difference from the loop nest {ran.error:.1g}"
    advice = "The device computes something else: compare the versions of TVM and apache-tvm-ffi on both sides."
    return Finding(name, ran.error <= TOLERANCE, True, outcome, advice)


#: The preset for measuring the operator's unscheduled loops.
_EFFORT = Effort(repeat=3, min_ms=1)
#: Seconds that a check gets for importing NumPy and compiling, in addition to the device's seconds.
_HOST_S = 60.0
_DTYPE = "float32"


@dataclass(frozen=True)
class RemoteRun:
    """The result of the kernel: ``error`` is the largest difference from the loop nest, relative to the largest output.

    ``machine`` is the architecture of the compiled code (``aarch64``). ``latency_ms`` is the median of a few calls of
    TVM's unscheduled loops.
    """

    error: float
    machine: str
    latency_ms: float


def run_remotely(
    operator: str,
    binding: Mapping[str, int],
    *,
    board: Board,
    target: str,
    wait_s: float = 30.0,
    session_s: float = 60.0,
) -> RemoteRun:
    """Compile ``operator`` (a file's text) for ``target``, run it on ``board``, and check its output for random inputs.

    ``wait_s`` limits the wait for a busy device, and ``session_s`` the use of the device, in seconds. TVM runs in its
    own process. Raises :class:`TrackerError` for faults of tracker and device, :class:`TuningError` for other faults.
    """
    check_target(target)
    device = Device(board, wait_s=wait_s, session_s=session_s, target=target)
    label, deadline_s = f"a kernel for {target} did not run on {board.key}", wait_s + session_s + _HOST_S
    return once(label, _run, device, operator, dict(binding), deadline_s=deadline_s)


def _run(device: Device, operator: str, binding: dict[str, int]) -> RemoteRun:
    import numpy as np

    from syno_lab.codegen.tvm_device import find_target, for_target, machine
    from syno_lab.systems import read_operator
    from syno_lab.tuning.targets import resolve

    resolved = resolve(device.target)
    value = read_operator(operator)
    bound = value.complete_binding(binding)
    shapes = [value.input_sizes(bound), *value.weight_sizes(bound)]
    inputs = jobs.draw([(tuple(shape), _DTYPE) for shape in shapes], 0)
    path = f"{tempfile.gettempdir()}/kernel.{resolved.artifact}"
    module = for_target(value.to_tvm(bound, _DTYPE), find_target(resolved.tvm))
    jobs.compile_candidate(module, resolved.tvm, path)
    arguments = [*((array.shape, _DTYPE) for array in inputs), (tuple(value.output_sizes(bound)), _DTYPE)]
    ran = jobs.measure(device.of(resolved), path, arguments, _EFFORT, inputs)
    expected = value.reference(*(array.astype("float64") for array in inputs), binding=bound)
    error = float(np.abs(ran.output - expected).max() / max(float(np.abs(expected).max()), 1e-30))
    return RemoteRun(error, machine(resolved.tvm), statistics.median(ran.seconds) * 1e3)


def public_address(host: str, port: int, listeners: Callable[[], list[tuple[str, int]]] | None = None) -> str | None:
    """Return the address at which other machines reach the tracker: a remote host, or an address of this machine."""
    if not is_loopback(host):
        return host
    for address, bound in (listeners or _listeners)():
        if bound == port and not is_loopback(address):
            return address
    return None


def _listeners() -> list[tuple[str, int]]:
    import psutil

    try:
        sockets = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return []
    return [(sock.laddr.ip, sock.laddr.port) for sock in sockets if sock.status == psutil.CONN_LISTEN and sock.laddr]


def warning(address: str) -> str:
    """Return the warning about a tracker that other machines or users can reach."""
    return (
        f"listens on {address}: TVM's RPC has no password, whoever reaches it can run any code on the boards; "
        "bind it to 127.0.0.1 and use an SSH tunnel"
    )
