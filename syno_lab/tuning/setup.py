"""List the steps to set up a board: the commands to run on the board and on this machine, and each step's state."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Annotated

import msgspec

from syno_lab.errors import SynoError, TrackerError, TuningError
from syno_lab.inputs import printable
from syno_lab.processes.board_server import __file__ as SERVER
from syno_lab.processes.worker import once
from syno_lab.tuning import jobs
from syno_lab.tuning.board import Board
from syno_lab.tuning.checkup import is_loopback, public_address, warning
from syno_lab.tuning.jobs import Device
from syno_lab.tuning.targets import TARGETS, architecture
from syno_lab.tuning.tracker import (
    TrackerSummary,
    check_machines,
    check_versions,
    host_version,
    listed,
    parse_address,
    tracker_summary,
)

#: The Jetsons, which have power modes. Mode 0 has no limit on AGX boards (MAXN, or EDP in NVIDIA's older tables, see
#: jetsonhacks.com of 2018-10-07). The modes of an Orin Nano depend on the JetPack version, so the step has the command
#: that lists the modes.
_JETSONS = ("jetson-orin-nano", "jetson-agx-orin", "jetson-xavier")
#: Packages that TVM's RPC server imports.
_PACKAGES = ("numpy", "psutil", "cloudpickle", "tornado", "ml_dtypes", "typing_extensions")


#: Upper limits of the clock rate and the temperature that a board reports; larger values are not shown.
_MOST_MHZ, _MOST_CELSIUS = 1_000_000, 1000
#: The placeholder for the board's SSH address until the user names it.
PLACEHOLDER = "user@jetson"


@dataclass(frozen=True)
class Plan:
    """The plan of a set-up: the board, and the addresses of the tracker and the server.

    ``device`` is a Jetson's name, or any name for another board. The tracker runs on this machine. All connections use
    one SSH tunnel to ``ssh`` (``user@board``, None for `PLACEHOLDER`), and every address is on loopback.
    """

    device: str = "jetson-orin-nano"
    key: str = ""
    tracker: str = "127.0.0.1:9190"
    port: int = 9090
    ssh: str | None = PLACEHOLDER
    python: str = "python3"

    @property
    def name(self) -> str:
        """The board's key: the target's name, so that ``--target`` and ``--key`` are equal."""
        return self.key or (f"{self.device}-cpu" if f"{self.device}-cpu" in TARGETS else self.device)


@dataclass(frozen=True)
class Step:
    """A step: where to run its commands (``here`` or ``board``), its purpose, and its state.

    ``state`` is ``done``, ``to do`` or ``unknown`` (this machine cannot check it); ``found`` is what the check found.
    """

    title: str
    where: str
    commands: tuple[str, ...]
    why: str
    state: str = "unknown"
    found: str = ""


def steps(plan: Plan) -> list[Step]:
    """Return the steps in order, without checks. Raises :class:`TrackerError` for an invalid address."""
    host, port = parse_address(plan.tracker)
    host = host if is_loopback(host) else "127.0.0.1"
    version, ssh = host_version(), plan.ssh or PLACEHOLDER
    ffi = metadata.version("apache-tvm-ffi")
    own_tracker = "syno_lab.tuning.own_tracker"
    serve = f"{plan.python} board_server.py --tracker {host}:{port} --key {plan.name} --port {plan.port}"
    plan_steps = [
        Step("the tracker", "here", (f"python -m {own_tracker} --host {host} --port {port}",),
             "It gives boards to this account alone; TVM's own tracker answers every account of this machine."),
        Step("TVM on the board", "board",
             (f"{plan.python} -m pip install apache-tvm=={version} apache-tvm-ffi=={ffi} {' '.join(_PACKAGES)}",
              "sudo apt-get install g++"),
             "The same versions on both sides, Python 3.10 or newer (JetPack 6 has it); g++ links the sent code."),
        Step("the server's file", "here", (f"scp {SERVER} {ssh}:board_server.py",),
             "One file that needs only TVM."),
    ]  # fmt: skip
    if plan.device in _JETSONS:
        plan_steps += [
            Step("power mode", "board", ("sudo nvpmodel -p --verbose", "sudo nvpmodel -m 0", "nvpmodel -q"),
                 "Power modes change which schedule is the fastest: list them, choose one (0: MAXN on AGX)."),
            Step("clocks", "board", ("sudo jetson_clocks",), "Fixed clock rates make latencies comparable."),
        ]  # fmt: skip
    tunnel = f"ssh -N -R {port}:127.0.0.1:{port} -L {plan.port}:127.0.0.1:{plan.port} {ssh}"
    serve += " --address 127.0.0.1"
    plan_steps += [
        Step("the tunnel", "here", (tunnel,), f"Everything stays on loopback, here and on {ssh}."),
        Step("the server", "board", (serve,), "Leave it running; it comes back by itself when the tracker restarts."),
        Step("a last look", "here", (f"syno-lab doctor --tracker {plan.tracker} --key {plan.name}",),
             "Runs a kernel on the board and compares it with the loop nest."),
    ]  # fmt: skip
    return plan_steps


def checked(plan: Plan, deadline_s: float = 5.0) -> tuple[list[Step], list[str]]:
    """Return :func:`steps` with the states that this machine can check, and a list of warnings."""
    host, port = parse_address(plan.tracker)
    all_steps, warnings = steps(plan), []
    public = public_address(host, port)
    if public is not None:
        warnings.append(f"the tracker {warning(public)}")
    try:
        summary: TrackerSummary | None = tracker_summary(host, port, deadline_s)
        seen = {"the tracker": ("done", "it answers")}
    except TrackerError as error:
        summary, seen = None, {"the tracker": ("to do", str(error))}
    entry = None if summary is None else summary.get(plan.name)
    if summary is not None and entry is None:
        keys = listed(summary)
        seen["the server"] = "to do", f"no device is registered as {plan.name!r}; registered keys: {keys}"
    if summary is not None and entry is not None:
        seen["the server"] = "done", f"{entry.total} devices, {entry.free} free"
        seen["the server's file"] = ("done", "it runs") if summary.of(plan.name)[0].tvm else ("to do", "a stock server")
        seen["the tunnel"] = "done", "the server came through"
        if plan.name in TARGETS:
            try:
                check_machines(summary.of(plan.name), architecture(plan.name), plan.name)
            except TrackerError as error:
                seen["the server"] = "to do", str(error)
        try:
            check_versions(summary.of(plan.name), host_version())
            versions = ", ".join(device.tvm or "not said" for device in summary.of(plan.name))
            seen["TVM on the board"] = "done", f"TVM {versions}"
        except TrackerError as error:
            seen["TVM on the board"] = "to do", str(error)
        else:
            if entry.free:
                seen |= _power(Board(host, port, plan.name))
    return [replace(step, state=seen[step.title][0], found=seen[step.title][1]) if step.title in seen else step
            for step in all_steps], warnings  # fmt: skip


class _Moment(msgspec.Struct, frozen=True):
    """A report of a board's server on the board's clock rates and power mode."""

    power: str = ""
    clocks_fixed: bool | None = None
    clocks_mhz: list[Annotated[int, msgspec.Meta(ge=0, lt=_MOST_MHZ)]] = []
    celsius: Annotated[float, msgspec.Meta(gt=-_MOST_CELSIUS, lt=_MOST_CELSIUS)] | None = None


def _power(board: Board) -> dict[str, tuple[str, str]]:
    """Return the states of power mode and clocks from the board's report; empty without a report."""
    device = Device(board, wait_s=10.0, session_s=10.0)
    try:
        report = once(board.key, jobs.board_moment, device, deadline_s=30.0)
        moment = msgspec.json.decode(report, type=_Moment)
    except (TuningError, msgspec.DecodeError, RecursionError):
        return {}
    states = {}
    if moment.power:
        states["power mode"] = "done", f"it is {printable(moment.power, 60)}"
    if moment.clocks_fixed is not None:
        warm = "" if moment.celsius is None else f", {moment.celsius:.0f} degrees"
        at = f"{max(moment.clocks_mhz, default=0)} MHz{warm}"
        states["clocks"] = ("done", f"fixed at {at}") if moment.clocks_fixed else ("to do", f"they move; now {at}")
    return states


def save_server(path: str) -> Path:
    """Copy the server's file to ``path``, a file or a folder. Raises :class:`SynoError`."""
    try:
        return Path(shutil.copy(SERVER, path))
    except OSError as error:
        raise SynoError(f"expected to write the board's server to {path}, found: {error.strerror or error}") from None
