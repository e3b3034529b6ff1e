"""Setting up a board step by step: what to run on it and here, and which of the steps are done already."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from syno_lab.errors import SynoError, TrackerError, TuningError
from syno_lab.evaluate.tuning import jobs
from syno_lab.evaluate.tuning.board_server import __file__ as _SERVER
from syno_lab.evaluate.tuning.checkup import is_loopback, public_address, warning
from syno_lab.evaluate.tuning.jobs import Device
from syno_lab.evaluate.tuning.targets import TARGETS
from syno_lab.evaluate.tuning.tracker import (
    TrackerSummary,
    check_versions,
    host_version,
    parse_address,
    tracker_summary,
)
from syno_lab.evaluate.tuning.worker import CallFailedError, Worker

#: The Jetsons, which have power modes. Mode 0 has no limit on AGX boards (MAXN, or EDP in NVIDIA's older tables, see
#: jetsonhacks.com of 2018-10-07); an Orin Nano's modes hang on its JetPack, so the step says how to list them.
_JETSONS = ("jetson-orin-nano", "jetson-agx-orin", "jetson-xavier")
#: Packages that TVM's RPC server imports.
_PACKAGES = ("numpy", "psutil", "cloudpickle", "tornado", "ml_dtypes", "typing_extensions")


@dataclass(frozen=True)
class Plan:
    """Which board, and where all is.

    ``device`` is a Jetson's name, or any other name for a board that is none. The tracker runs on this machine. With
    ``ssh`` (``user@board``) all goes through one SSH tunnel and everything listens on loopback; without, the board is
    on the same trusted network and ``host`` is this machine's address there.
    """

    device: str = "jetson-orin-nano"
    key: str = ""
    tracker: str = "127.0.0.1:9190"
    port: int = 9090
    ssh: str | None = "user@jetson"
    python: str = "python3"

    @property
    def name(self) -> str:
        """The key under which the board is registered: that of the target, so that ``--target`` and ``--key`` agree."""
        return self.key or (f"{self.device}-cpu" if f"{self.device}-cpu" in TARGETS else self.device)


@dataclass(frozen=True)
class Step:
    """One step: where to run the commands (``here`` or ``board``), why, and how it stands.

    ``state`` is ``done``, ``to do`` or ``unknown`` (nothing tells from here); ``found`` says what was seen.
    """

    title: str
    where: str
    commands: tuple[str, ...]
    why: str
    state: str = "unknown"
    found: str = ""


def server_file() -> Path:
    """The file that a board needs, of this installation."""
    return Path(_SERVER)


def steps(plan: Plan) -> list[Step]:
    """What to run, in order; no check is made. Raises :class:`TrackerError` for an address that is none."""
    host, port = parse_address(plan.tracker)
    version, ssh = host_version(), plan.ssh
    there = ssh or "the board"
    copied = f"scp {server_file()} {ssh}:board_server.py" if ssh else f"cp {server_file()} board_server.py"
    ffi = _version("apache-tvm-ffi")
    serve = f"{plan.python} board_server.py --tracker {host}:{port} --key {plan.name} --port {plan.port}"
    found = [
        Step("the tracker", "here", (f"python -m tvm.exec.rpc_tracker --host {host} --port {port}",),
             "It hands the boards out. TVM's own default is all addresses: name 127.0.0.1."),
        Step("TVM on the board", "board",
             (f"{plan.python} -m pip install apache-tvm=={version} apache-tvm-ffi=={ffi} {' '.join(_PACKAGES)}",
              "sudo apt-get install g++"),
             "The same versions on both sides, Python 3.10 or newer (JetPack 6 has it); g++ links what is sent."),
        Step("the server's file", "here", (copied,), "One file that needs only TVM."),
    ]  # fmt: skip
    if plan.device in _JETSONS:
        found += [
            Step("power mode", "board", ("sudo nvpmodel -p --verbose", "sudo nvpmodel -m 0", "nvpmodel -q"),
                 "Power modes change which schedule is the fastest: list them, choose one (0: MAXN on AGX)."),
            Step("clocks", "board", ("sudo jetson_clocks",), "Clocks that move make latencies that move."),
        ]  # fmt: skip
    if ssh is not None:
        tunnel = f"ssh -N -R {port}:127.0.0.1:{port} -L {plan.port}:127.0.0.1:{plan.port} {ssh}"
        found.append(Step("the tunnel", "here", (tunnel,), f"Everything stays on loopback, here and on {there}."))
        serve += " --address 127.0.0.1"
    else:
        serve += " --host 0.0.0.0"
    found += [
        Step("the server", "board", (serve,), "Leave it running; it comes back by itself when the tracker restarts."),
        Step("a last look", "here", (f"syno-lab doctor --tracker {plan.tracker} --key {plan.name}",),
             "Runs a kernel on the board and compares it with the loop nest."),
    ]  # fmt: skip
    return found


def checked(plan: Plan, deadline_s: float = 5.0) -> tuple[list[Step], list[str]]:
    """:func:`steps` with what can be told from here, and warnings of one line each."""
    host, port = parse_address(plan.tracker)
    all_steps, warnings = steps(plan), []
    public = public_address(host, port)
    if public is not None:
        warnings.append(f"the tracker {warning(public)}")
    if plan.ssh is None and is_loopback(host):
        warnings.append("without --ssh the board must reach the tracker: --tracker needs this machine's own address")
    try:
        summary: TrackerSummary | None = tracker_summary(host, port, deadline_s)
        seen = {"the tracker": ("done", "it answers")}
    except TrackerError as error:
        summary, seen = None, {"the tracker": ("to do", str(error))}
    entry = None if summary is None else summary.get(plan.name)
    if summary is not None and entry is None:
        known = ", ".join(summary.registered) or "none"
        seen["the server"] = "to do", f"no device is registered as {plan.name!r}; registered keys: {known}"
    if summary is not None and entry is not None:
        seen["the server"] = "done", f"{entry.total} devices, {entry.free} free"
        seen["the server's file"] = ("done", "it runs") if summary.of(plan.name)[0].tvm else ("to do", "a stock server")
        if plan.ssh is not None:
            seen["the tunnel"] = "done", "the server came through"
        try:
            check_versions(summary.of(plan.name), host_version())
            told = ", ".join(one.tvm or "not said" for one in summary.of(plan.name))
            seen["TVM on the board"] = "done", f"TVM {told}"
        except TrackerError as error:
            seen["TVM on the board"] = "to do", str(error)
        else:
            if entry.free:
                seen |= _power(_moment(host, port, plan.name))
    return [replace(one, state=seen[one.title][0], found=seen[one.title][1]) if one.title in seen else one
            for one in all_steps], warnings  # fmt: skip


def _moment(host: str, port: int, key: str) -> Mapping[str, Any]:
    """What a board says of its clocks and power; empty where it cannot be asked."""
    device = Device(host, port, key, "cpu", 10.0, 10.0)
    with tempfile.TemporaryDirectory(prefix="syno-board-", ignore_cleanup_errors=True) as scratch:
        worker = Worker(Path(scratch) / "log")
        try:
            found: dict[str, Any] = json.loads(worker.call(jobs.board_moment, device, deadline_s=30.0))
            return found
        except (CallFailedError, TuningError, ValueError):
            return {}
        finally:
            worker.close()


def _power(moment: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """How power mode and clocks stand, from what a board says."""
    found = {}
    if moment.get("power"):
        found["power mode"] = "done", f"it is {moment['power']}"
    fixed = moment.get("clocks_fixed")
    if fixed is not None:
        warm = moment.get("celsius")
        at = f"{max(moment.get('clocks_mhz') or [0])} MHz" + (f", {warm:.0f} degrees" if warm is not None else "")
        found["clocks"] = ("done", f"fixed at {at}") if fixed else ("to do", f"they move; now {at}")
    return found


def save_server(path: str) -> Path:
    """Copy the server's file to ``path``, a file or a folder. Raises :class:`SynoError`."""
    try:
        return Path(shutil.copy(server_file(), path))
    except OSError as error:
        raise SynoError(f"expected to write the board's server to {path}, found: {error.strerror or error}") from None


def _version(package: str) -> str:
    from importlib import metadata

    return metadata.version(package)
